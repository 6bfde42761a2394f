"""What the switches have confirmed of the routes that are wanted. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from controller.fabric.topology import Dpid, Host
from controller.jobs.registry import Job
from controller.jobs.spec import JobId
from controller.memo import Memo, MemoPerKey
from controller.planning.problem import FlowId, Route
from controller.tables.pinned_table import Pin
from controller.tables.rules import FlowKey, FlowRule, RuleSet
from controller.tables.running_routes import confirmed_pins

_Flows = Mapping[FlowKey, FlowRule]


class ConfirmedPins:
    """Derives the pins to a path that the switch of their source holds; looks again only at switches whose pins or
    rules have changed."""

    def __init__(self) -> None:
        self._at_source = Memo(_at_source)
        self._of_switch = MemoPerKey[Dpid, tuple[Pin, ...], _Flows, _Flows, tuple[Pin, ...]](confirmed_pins)

    def __call__(
        self,
        hosts: Mapping[str, Host],
        pins: tuple[Pin, ...],
        wanted: Mapping[Dpid, RuleSet],
        installed: Mapping[Dpid, RuleSet],
    ) -> tuple[Pin, ...]:
        of_switch = self._of_switch(
            {
                dpid: (here, wanted[dpid].flows, installed[dpid].flows)
                for dpid, here in self._at_source(hosts, pins).items()
                if dpid in wanted and dpid in installed
            }
        )
        return tuple(pin for pins in of_switch.values() for pin in pins)


class Confirmed:
    """``pins``: to a path. ``routes``: all of whose subflows are pinned so. ``generation``: of every job whose routes
    have ever changed, a number that grows when they do; another mapping then."""

    def __init__(self) -> None:
        self.pins: tuple[Pin, ...] = ()
        self.routes: Mapping[FlowId, Route] = {}
        self.generation: Mapping[JobId, int] = {}
        self._changes = 0

    def update(self, pins: tuple[Pin, ...], routes: Mapping[FlowId, Route], jobs: Iterable[Job]) -> list[JobId]:
        """Returns the jobs whose confirmed routes have changed."""
        self.pins = pins
        if routes is self.routes or routes == self.routes:
            return []
        before, self.routes = self.routes, routes
        generation, changed = {}, []
        for job in jobs:
            if any(before.get(flow) != routes.get(flow) for flow in (FlowId(*pair) for pair in job.pairs)):
                self._changes += 1
                generation[job.id] = self._changes
                changed.append(job.id)
            elif job.id in self.generation:
                generation[job.id] = self.generation[job.id]
        self.generation = generation
        return changed


def _at_source(hosts: Mapping[str, Host], pins: tuple[Pin, ...]) -> dict[Dpid, tuple[Pin, ...]]:
    at: defaultdict[Dpid, list[Pin]] = defaultdict(list)
    for pin in pins:
        source = hosts.get(pin.flow.src_ip)
        if pin.path and source:
            at[source.at.dpid].append(pin)
    return {dpid: tuple(of_switch) for dpid, of_switch in at.items()}
