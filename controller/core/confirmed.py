"""What the switches have confirmed of the routes that are wanted.

In: the wanted pins, desired and installed rules. Out: the pins and routes in force, and per job a number that grows
when they change. Pure; owned by the control loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from controller.fabric.topology import Dpid, Fabric
from controller.jobs.registry import Job
from controller.jobs.spec import JobId
from controller.planning.problem import FlowId, Route, Routes
from controller.tables.pinned_table import Pin
from controller.tables.rules import RuleSet
from controller.tables.running_routes import confirmed_pins, confirmed_routes


class Confirmed:
    """``pins``: to a path, as the switch of their source holds them. ``routes``: all of whose subflows are pinned so.
    ``generation``: of every job whose routes have ever changed."""

    def __init__(self) -> None:
        self.pins: tuple[Pin, ...] = ()
        self.routes: Mapping[FlowId, Route] = {}
        self.generation: dict[JobId, int] = {}
        self._changes = 0
        self._wanted: tuple[Pin, ...] = ()
        self._at_source: dict[Dpid, tuple[Pin, ...]] = {}
        self._known: dict[Dpid, tuple[tuple[object, ...], tuple[Pin, ...]]] = {}

    def update(
        self,
        fabric: Fabric,
        pins: tuple[Pin, ...],
        desired: Mapping[Dpid, RuleSet],
        installed: Mapping[Dpid, RuleSet],
    ) -> None:
        """Look at the switches whose pins or rules changed."""
        if pins is not self._wanted:
            self._wanted, self._at_source = pins, _at_source(fabric, pins)
        known, self._known = self._known, {}
        for dpid, here in self._at_source.items():
            if dpid in desired and dpid in installed:
                wanted, held = desired[dpid], installed[dpid]
                before = known.get(dpid)
                if before is None or not all(map(_same, before[0], (here, wanted.flows, held.flows))):
                    before = (here, wanted.flows, held.flows), confirmed_pins(here, wanted, held)
                self._known[dpid] = before
        self.pins = tuple(pin for _, of_switch in self._known.values() for pin in of_switch)

    def routes_changed(self, wanted: Routes, jobs: Iterable[Job]) -> list[JobId]:
        """The jobs whose routes in force changed with the last update."""
        before, routes = self.routes, confirmed_routes(wanted, self.pins)
        if before == routes:
            return []
        self.routes = routes
        present, changed = set(), []
        for job in jobs:
            present.add(job.id)
            if any(before.get(flow) != self.routes.get(flow) for flow in (FlowId(*pair) for pair in job.pairs)):
                self._changes += 1
                self.generation[job.id] = self._changes
                changed.append(job.id)
        self.generation = {job: number for job, number in self.generation.items() if job in present}
        return changed


def _at_source(fabric: Fabric, pins: Iterable[Pin]) -> dict[Dpid, tuple[Pin, ...]]:
    at: defaultdict[Dpid, list[Pin]] = defaultdict(list)
    for pin in pins:
        source = fabric.hosts.get(pin.flow.src_ip)
        if pin.path and source:
            at[source.at.dpid].append(pin)
    return {dpid: tuple(of_switch) for dpid, of_switch in at.items()}


def _same(before: object, now: object) -> bool:
    return before is now or (isinstance(now, tuple) and before == now)
