"""What the switches have confirmed of what they should hold, and the replies that wait for that. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from controller.config import Strategy
from controller.core.messages import Command, Reply
from controller.errors import Conflict
from controller.fabric.messages import SendArpReply
from controller.fabric.topology import Dpid, Host
from controller.jobs.registry import Job
from controller.jobs.spec import JobId
from controller.memo import Memo, MemoPerKey
from controller.planning.messages import StrategySet
from controller.planning.problem import FlowId, Route
from controller.tables.pinned_table import Pin
from controller.tables.rules import FlowKey, FlowRule, RuleSet
from controller.tables.running_routes import confirmed_pins

ARP_ANSWER_AFTER_S = 0.5
"""An ARP request is answered when rules lead to its target, and after this time at the latest: a switch that does not
confirm its rules delays no answer."""

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


@dataclass(frozen=True, slots=True)
class _StrategyWaiter:
    """Waits for a planning cycle beyond ``cycles_done``, and for the switches to confirm what follows from it."""

    future: Future[Any]
    strategy: Strategy
    since: float
    cycles_done: int


class Waiting:
    """``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self._for_strategy: _StrategyWaiter | None = None
        self._arp_answers: list[tuple[float, SendArpReply]] = []

    def add_arp_answers(self, answers: list[SendArpReply], now: float) -> None:
        self._arp_answers += [(now, answer) for answer in answers]

    def wait_for_strategy(self, reply: Future[Any], strategy: Strategy, cycles_done: int, now: float) -> list[Reply]:
        """Returns the reply to an earlier request that has not been answered yet."""
        before, self._for_strategy = self._for_strategy, _StrategyWaiter(reply, strategy, now, cycles_done)
        return [Reply(before.future, Conflict(f"superseded: {strategy} was set"))] if before else []

    def due(self, all_confirmed: bool, cycles_done: int, pins: int, now: float) -> list[Command]:
        """``all_confirmed``: the switches hold what they should. ``pins``: how many are confirmed."""
        due: list[Command] = [
            answer for since, answer in self._arp_answers if all_confirmed or now >= since + ARP_ANSWER_AFTER_S
        ]
        if due:
            self._arp_answers = [(since, answer) for since, answer in self._arp_answers if answer not in due]
        waiter = self._for_strategy
        if waiter and all_confirmed and cycles_done > waiter.cycles_done:
            self._for_strategy = None
            due.append(Reply(waiter.future, StrategySet(waiter.strategy, now - waiter.since, pins)))
        return due
