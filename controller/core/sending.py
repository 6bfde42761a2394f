"""What is sent to switches next, what they have confirmed, and the replies that wait for that.

In: the wanted rules, what switches hold. Out: stages of changes, requests to probe the ports of switches that have
become ready, replies. Jobs whose confirmed routes change are measured anew. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from controller.config import Strategy
from controller.core.messages import Command, Reply
from controller.core.phases import Input, LinkLosses, Phases
from controller.errors import Conflict, SignalboxError
from controller.fabric.messages import ProbePorts, SendArpReply
from controller.fabric.topology import Dpid, Host
from controller.fabric.topology_state import TopologyState
from controller.jobs.registry import Job, JobRegistry
from controller.jobs.spec import JobId
from controller.memo import Memo, MemoPerKey
from controller.planning.messages import StrategySet
from controller.planning.problem import FlowId, Route, flow_ids
from controller.tables.pinned_table import Pin
from controller.tables.rules import FlowKey, FlowRule, RuleSet
from controller.tables.running_routes import confirmed_pins
from controller.tables.switch_sync import SwitchSync

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


@dataclass(frozen=True, slots=True)
class _StrategyWaiter:
    """Waits for a planning cycle beyond ``cycles_done``, and for the switches to confirm what follows from it."""

    future: Future[Any]
    strategy: Strategy
    since: float
    cycles_done: int


class Sending:
    """``pins``: to a path, as confirmed. ``routes``: all of whose subflows are pinned so. ``generation``: of every job
    whose routes have ever changed, a number that grows when they do; another mapping then. ``now`` is monotonic
    seconds."""

    def __init__(self, sync: SwitchSync, topology: TopologyState, phases: Phases) -> None:
        self.pins: tuple[Pin, ...] = ()
        self.routes: Mapping[FlowId, Route] = {}
        self.generation: Mapping[JobId, int] = {}
        self._sync = sync
        self._topology = topology
        self._phases = phases
        self._changes = 0
        self._for_strategy: _StrategyWaiter | None = None
        self._arp_answers: list[tuple[float, SendArpReply]] = []

    def next_stage(self, wanted: Mapping[Dpid, RuleSet]) -> list[Command]:
        """The first stage of the difference between what switches should hold and what they hold."""
        stage = self._sync.next_stage(wanted)
        ready = frozenset(dpid for dpid in self._sync.settled if self._topology.switch_ready(dpid))
        return [*([stage] if stage else []), *([ProbePorts(ready)] if ready else [])]

    def is_confirmed(self, now: float) -> bool:
        """Whether what switches hold can be compared with what they should hold: not while that is about to change."""
        if not self._sync.busy:
            self._phases.take(Input.ALL_CONFIRMED, now)
        return not (self._phases.adopting or self._phases.urgent)

    def take_confirmed(
        self, pins: tuple[Pin, ...], routes: Mapping[FlowId, Route], jobs: Mapping[JobId, Job], registry: JobRegistry
    ) -> None:
        """Jobs whose confirmed routes have changed are measured anew. ``jobs``: with what they are planned for."""
        self.pins = pins
        if routes is self.routes or routes == self.routes:
            return
        before, self.routes = self.routes, routes
        generation: dict[JobId, int] = {}
        for job in jobs.values():
            flows = (flow for pair in job.pairs for flow in flow_ids(job.dividing, pair))
            if any(before.get(flow) != routes.get(flow) for flow in flows):
                self._changes += 1
                generation[job.id] = self._changes
                registry.reset_measured(job.id)
            elif job.id in self.generation:
                generation[job.id] = self.generation[job.id]
        self.generation = generation

    # ---- replies

    def add_arp_answers(self, answers: list[SendArpReply], now: float) -> None:
        self._arp_answers += [(now, answer) for answer in answers]

    def wait_for_strategy(self, reply: Future[Any], strategy: Strategy, cycles_done: int, now: float) -> list[Reply]:
        """Returns the reply to an earlier request that has not been answered yet."""
        before, self._for_strategy = self._for_strategy, _StrategyWaiter(reply, strategy, now, cycles_done)
        return [Reply(before.future, Conflict(f"superseded: {strategy} was set"))] if before else []

    def due_replies(
        self, rules_due: bool, saved: bool, cycles_done: int, losses: LinkLosses, now: float
    ) -> list[Command]:
        """``rules_due``: the wanted rules are to be derived anew, so that nothing counts as confirmed. ``saved``: a
        strategy that was set is on disk."""
        all_confirmed = not (rules_due or self._sync.busy or self._sync.unsettled)
        if all_confirmed:
            losses.all_confirmed(now)
        due: list[Command] = [
            answer for since, answer in self._arp_answers if all_confirmed or now >= since + ARP_ANSWER_AFTER_S
        ]
        if due:
            self._arp_answers = [(since, answer) for since, answer in self._arp_answers if answer not in due]
        waiter = self._for_strategy
        if waiter and saved and all_confirmed and cycles_done > waiter.cycles_done:
            self._for_strategy = None
            due.append(Reply(waiter.future, StrategySet(waiter.strategy, now - waiter.since, len(self.pins))))
        return due

    def refuse_strategy(self, error: SignalboxError) -> list[Reply]:
        """The strategy was set back."""
        waiter, self._for_strategy = self._for_strategy, None
        return [Reply(waiter.future, error)] if waiter else []


def _at_source(hosts: Mapping[str, Host], pins: tuple[Pin, ...]) -> dict[Dpid, tuple[Pin, ...]]:
    at: defaultdict[Dpid, list[Pin]] = defaultdict(list)
    for pin in pins:
        source = hosts.get(pin.flow.src_ip)
        if pin.path and source:
            at[source.at.dpid].append(pin)
    return {dpid: tuple(of_switch) for dpid, of_switch in at.items()}
