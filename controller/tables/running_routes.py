"""The routes that are wanted now, and the pins that follow from them.

Owns the running plan: which path each announced flow is pinned to. After a restart it is read back from the switches;
pins of jobs that nobody has announced again are *orphans* and kept for one lease (DESIGN section 4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.fabric.candidate_paths import CandidatePaths
from controller.fabric.topology import Dpid, Fabric, LinkId, Path
from controller.jobs.registry import Job
from controller.planning.problem import FlowId, Route, whole
from controller.planning.snapshot import Announced
from controller.tables.adoption import installed_pins
from controller.tables.pinned_table import Pin, both_directions, pin_key, reverse_path
from controller.tables.rules import RuleSet, job_owner


class RunningRoutes:
    """``routes``: of the pinned flows. A flow that is announced and not here is on ECMP."""

    def __init__(self) -> None:
        self.routes: dict[FlowId, Route] = {}
        self._back: dict[Path, Path] = {}
        self.orphans: tuple[Pin, ...] = ()

    def adopt(self, fabric: Fabric, installed: Mapping[Dpid, RuleSet], jobs: Iterable[Job]) -> None:
        """Take what the switches do for the running plan."""
        self.orphans = tuple(installed_pins(fabric, installed))
        for job in jobs:
            self.claim(job)

    def claim(self, job: Job) -> None:
        """The job is known (again): its orphans are its routes."""
        owner, pairs = job_owner(job.id), job.pairs
        mine = [pin for pin in self.orphans if pin.owner == owner]
        self.routes |= {pin.flow: whole(pin.path) for pin in mine if pin.path is not None and pin.flow in pairs}
        self.orphans = tuple(pin for pin in self.orphans if pin.owner != owner)

    def release(self, announced: Iterable[FlowId]) -> None:
        """Keep only the routes of these flows."""
        known = set(announced)
        self.routes = {flow: route for flow, route in self.routes.items() if flow in known}

    def pins(self, fabric: Fabric, jobs: Iterable[Announced]) -> tuple[Pin, ...]:
        """Both directions of every announced flow, then the orphans; only flows whose hosts are known."""
        owner_of = {
            FlowId(*pair): job_owner(job.id)
            for job in jobs
            for pair in sorted(job.pairs)
            if pair[0] in fabric.hosts and pair[1] in fabric.hosts
        }
        paths = {flow: self.routes[flow][0].path if flow in self.routes else None for flow in owner_of}
        self._back = {path: back for path in set(paths.values()) if path and (back := self._backwards(fabric, path))}
        pins = tuple(both_directions(paths, self._back, owner_of))
        taken = {pin.flow for pin in pins}
        return pins + tuple(
            pin for pin in self.orphans if pin.flow not in taken and fabric.hosts.keys() >= set(pin.flow)
        )

    def _backwards(self, fabric: Fabric, path: Path) -> Path | None:
        """The same cables the other way, also when one of them is not usable at the moment: acknowledgements then fail
        over at their path group, like the flow itself."""
        return reverse_path(fabric, path) or self._back.get(path)


def confirmed_paths(
    fabric: Fabric, pins: Iterable[Pin], desired: Mapping[Dpid, RuleSet], installed: Mapping[Dpid, RuleSet]
) -> dict[FlowId, Path]:
    """The pins that the source's switch holds as they should be."""
    confirmed = {}
    for pin in pins:
        source = fabric.hosts.get(pin.flow.src_ip)
        if pin.path and source and source.at.dpid in installed and source.at.dpid in desired:
            wanted = desired[source.at.dpid].flows.get(pin_key(pin.flow))
            if wanted and wanted.goto is None and installed[source.at.dpid].flows.get(wanted.key) == wanted:
                confirmed[pin.flow] = pin.path
    return confirmed


def possible_links(
    fabric: Fabric, pins: Iterable[Pin], candidates: CandidatePaths
) -> dict[tuple[str, str], frozenset[LinkId]]:
    """Every link a flow may use: its pinned path, or all candidates under ECMP and after a failover; the hosts' own
    links too."""
    uses: dict[tuple[str, str], frozenset[LinkId]] = {}
    for pin in pins:
        src, dst = fabric.hosts[pin.flow.src_ip], fabric.hosts[pin.flow.dst_ip]
        whole = pin.path is not None and all(link in fabric.links for link in pin.path)
        paths = (pin.path or (),) if whole else candidates.between(src.at.dpid, dst.at.dpid)
        uses[pin.flow] = frozenset((src.uplink, dst.downlink, *(link for path in paths for link in path)))
    return uses
