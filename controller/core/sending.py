"""What is sent to switches next, what they have confirmed, and the replies that wait for that.

In: the wanted rules, what switches hold. Out: stages of changes, requests to probe the ports of switches that have
become ready, replies. Jobs whose confirmed routes change begin a new epoch (``jobs.job``). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain, starmap
from typing import Any, NamedTuple

from controller.core.messages import Command, Reply
from controller.core.phases import Input, LinkLosses, Phases
from controller.fabric.messages import ProbePorts, SendArpReply
from controller.fabric.topology import Dpid, Host, Path
from controller.fabric.topology_state import TopologyState
from controller.histogram import Histogram
from controller.jobs.job import Job
from controller.planning.messages import StrategySet
from controller.planning.problem import FlowId, Route
from controller.shared_map import differing, unequal, updated
from controller.tables.messages import StageDone
from controller.tables.pinned_table import Pin
from controller.tables.pins import PinSet
from controller.tables.rules import FlowKey, FlowRule, RuleSet
from controller.tables.switch_sync import SwitchSync
from signalbox.errors import SignalboxError, Superseded
from signalbox.jobs.spec import JobId
from signalbox.jobs.subflows import Dividing
from signalbox.words import Strategy

ARP_ANSWER_AFTER_S = 0.5
"""An ARP request is answered when rules lead to its target, and after this time at the latest: a switch that does not
confirm its rules delays no answer."""

_Flows = Mapping[FlowKey, FlowRule]


NO_ROUTES: Mapping[FlowId, Route] = {}


class Confirmed(NamedTuple):
    """What switches hold of what is wanted. ``pins``: how many to a path. ``routes``: of the jobs that have any, those
    all of whose subflows are pinned so; of a job the same object while they do not change."""

    pins: int
    routes: Mapping[str, Mapping[FlowId, Route]]


class ConfirmedRoutes:
    """Derives which routes are confirmed by the switches of their sources, job by job: only where pins have changed, or
    rules that they have there."""

    def __init__(self) -> None:
        self._hosts: Mapping[str, Host] = {}
        self._pins: Mapping[str, tuple[Pin, ...]] = {}
        self._astray: Mapping[FlowId, JobId] = {}
        self._rules: dict[Dpid, tuple[_Flows, _Flows]] = {}
        self._names_of: dict[FlowKey, tuple[str, ...]] = {}
        """More than one while a job that others take a pair over from waits for its turn (``tables.pins``)."""
        self._known: dict[str, _Pinned] = {}
        self._held = 0
        self._found = Confirmed(0, {})

    def __call__(
        self,
        hosts: Mapping[str, Host],
        routes: Mapping[FlowId, Route],
        pins: PinSet,
        wanted: Mapping[Dpid, RuleSet],
        installed: Mapping[Dpid, RuleSet],
    ) -> Confirmed:
        before, self._pins = self._pins, pins.of
        astray, self._astray = self._astray, pins.astray
        names = {name for name, *_ in differing(before, self._pins)} | self._moved(hosts)
        for name in names:
            self._note_pins(name)
        look_at = {name: self._known[name].pins.keys() for name in names if name in self._known}
        others: dict[str, set[FlowKey]] = {}
        for key in self._other_rules(wanted, installed):
            for name in self._names_of.get(key, ()):
                if name not in look_at:
                    others.setdefault(name, set()).add(key)
        both = {**astray, **self._astray}
        for name in {both[flow] for flow in astray.keys() ^ self._astray.keys()}:
            if name in self._known and name not in look_at:
                others.setdefault(name, set())
        found: dict[str, Mapping[FlowId, Route] | None] = dict.fromkeys(names - self._known.keys())
        for name, keys in (look_at | others).items():
            self._held -= self._known[name].held
            confirmed = self._confirmed(self._known[name], keys, routes, wanted, installed)
            self._held += self._known[name].held
            if confirmed != self._found.routes.get(name, NO_ROUTES):
                found[name] = confirmed or None
        self._found = Confirmed(self._held, updated(self._found.routes, found))
        return self._found

    def _moved(self, hosts: Mapping[str, Host]) -> set[str]:
        """What has pins of hosts that have come, gone or moved to another switch."""
        before, self._hosts = self._hosts, hosts
        ips = {ip for ip, was, now in differing(before, hosts) if not (was and now and was.at.dpid == now.at.dpid)}
        pins = self._pins.items() if ips else ()
        return {name for name, of_name in pins if any(pin.flow.src_ip in ips for pin in of_name)}

    def _note_pins(self, name: str) -> None:
        if before := self._known.pop(name, None):
            self._held -= before.held
        for key in before.pins if before else ():
            if len(names := self._names_of.pop(key)) > 1:
                self._names_of[key] = tuple(other for other in names if other != name)
        if name in self._pins:
            pins = {pin.key: pin for pin in self._pins[name] if pin.path and pin.flow.src_ip in self._hosts}
            known = self._known[name] = _Pinned(pins)
            self._held += known.held
            shared = {key: (*self._names_of[key], name) for key in pins.keys() & self._names_of.keys()}
            self._names_of.update(dict.fromkeys(pins, (name,)) | shared)

    def _other_rules(self, wanted: Mapping[Dpid, RuleSet], installed: Mapping[Dpid, RuleSet]) -> set[FlowKey]:
        """Keys of rules that are wanted otherwise, or held otherwise, than at the last call."""
        before, self._rules = (
            self._rules,
            {dpid: (rules.flows, installed[dpid].flows) for dpid, rules in wanted.items() if dpid in installed},
        )
        other: set[FlowKey] = set()
        for dpid in before.keys() | self._rules.keys():
            for old, new in zip(before.get(dpid, _NEITHER), self._rules.get(dpid, _NEITHER), strict=True):
                other.update(chain.from_iterable(starmap(_differing, unequal(old, new))))
        return other

    def _confirmed(
        self,
        known: _Pinned,
        look_at: Iterable[FlowKey],
        routes: Mapping[FlowId, Route],
        wanted: Mapping[Dpid, RuleSet],
        installed: Mapping[Dpid, RuleSet],
    ) -> Mapping[FlowId, Route]:
        """The routes all of whose pins are confirmed. ``look_at``: keys of the pins that may have changed."""
        for key in look_at:
            at = self._hosts[known.pins[key].flow.src_ip].at.dpid
            known.note(key, _is_confirmed(key, wanted.get(at), installed.get(at)))
        missing = {flow for key in known.missing for flow in known.pins[key].flows}
        missing |= self._astray.keys() & known.paths.keys()
        whole = ((flow, paths, routes.get(flow)) for flow, paths in known.paths.items() if flow not in missing)
        return {flow: route for flow, paths, route in whole if route and _are_of(paths, route)}


class _Pinned:
    """The pins of one job to paths, by their keys; ``paths``: of each flow, one for each pin; ``missing``: those that
    are not confirmed."""

    def __init__(self, pins: Mapping[FlowKey, Pin]) -> None:
        self.pins = pins
        self.paths: dict[FlowId, list[Path | None]] = {}
        for pin in pins.values():
            for flow in pin.flows:
                self.paths.setdefault(flow, []).append(pin.path)
        self.missing: set[FlowKey] = set()

    def note(self, key: FlowKey, confirmed: bool) -> None:
        """Note whether the pin with this key is confirmed."""
        if confirmed:
            self.missing.discard(key)
        else:
            self.missing.add(key)

    @property
    def held(self) -> int:
        """How many are confirmed."""
        return len(self.pins) - len(self.missing)


def _are_of(paths: list[Path | None], route: Route) -> bool:
    """Whether pins to these paths are all of the route's, not those of one before: pins follow routes in turns."""
    return len(paths) >= len(route) and all(path in paths for path, _ in route)


def _is_confirmed(key: FlowKey, wanted: RuleSet | None, installed: RuleSet | None) -> bool:
    """Whether the switch where the flow begins holds its pin to a path as it should be. Its cookie may still name the
    job that announced the flow before."""
    rule, held = wanted and wanted.flows.get(key), installed and installed.flows.get(key)
    if not rule or rule.goto is not None or not held:
        return False
    return (held.actions, held.goto, held.meter) == (rule.actions, rule.goto, rule.meter)


_NEITHER: tuple[_Flows, _Flows] = {}, {}


def _differing(flows: _Flows, others: _Flows) -> Iterator[FlowKey]:
    """Keys of the rules that are not the same objects on both sides."""
    here, there = set(map(id, flows.values())), set(map(id, others.values()))
    yield from [rule.key for rule in flows.values() if id(rule) not in there]
    yield from [rule.key for rule in others.values() if id(rule) not in here]


@dataclass(frozen=True, slots=True)
class _StrategyWaiter:
    """Waits for a planning cycle beyond ``cycles_done``, and for the switches to confirm what follows from it."""

    future: Future[Any]
    strategy: Strategy
    since: float
    cycles_done: int


class Sending:
    """``pins``: how many to a path are confirmed. ``routes``: per job, see ``Confirmed``. ``generation``: of every job
    whose routes have ever changed, a number that grows when they do, or what tells their subflows apart; another
    mapping then. ``install_times``: seconds from sending a stage until all of its switches had confirmed it. ``now`` is
    monotonic seconds."""

    def __init__(self, sync: SwitchSync, topology: TopologyState, phases: Phases) -> None:
        self.pins = 0
        self.routes: Mapping[str, Mapping[FlowId, Route]] = {}
        self.generation: Mapping[JobId, int] = {}
        self.install_times = Histogram()
        self._sent_at: dict[int, float] = {}
        self._sync = sync
        self._topology = topology
        self._phases = phases
        self._jobs: Mapping[JobId, Job] = {}
        self._dividing: dict[JobId, Dividing] = {}
        self._changes = 0
        self._for_strategy: _StrategyWaiter | None = None
        self._arp_answers: list[tuple[float, SendArpReply]] = []

    def next_stage(self, wanted: Mapping[Dpid, RuleSet], now: float) -> list[Command]:
        """The first stage of the difference between what switches should hold and what they hold."""
        stage = self._sync.next_stage(wanted)
        if stage:
            self._sent_at[stage.change_id] = now
        ready = frozenset(dpid for dpid in self._sync.settled if self._topology.switch_ready(dpid))
        return [*([stage] if stage else []), *([ProbePorts(ready)] if ready else [])]

    def stage_done(self, message: StageDone, now: float) -> None:
        """A stage that the last of its switches has confirmed counts; one that a switch has not answered does not."""
        self._sync.stage_done(message, now)
        done = {change: self._sent_at.pop(change) for change in self._sent_at.keys() - self._sync.under_way}
        answered = not any(result.timed_out for result in message.results.values())
        if answered and message.change_id in done:
            self.install_times = self.install_times.observed(now - done[message.change_id])

    def is_confirmed(self, now: float) -> bool:
        """Whether what switches hold can be compared with what they should hold: not while that is about to change."""
        if self._phases.awaits_confirmation and not self._sync.busy:
            self._phases.take(Input.ALL_CONFIRMED, now)
        return not (self._phases.adopting or self._phases.urgent)

    def take_confirmed(self, confirmed: Confirmed, jobs: Mapping[JobId, Job], at: float) -> None:
        """Keep what is confirmed, and begin an epoch of jobs whose routes that changes. ``jobs``: with what they are
        planned for. ``at``: now in monotonic seconds."""
        self.pins = confirmed.pins
        before, self.routes = self.routes, confirmed.routes
        touched = dict.fromkeys(JobId(name) for name, *_ in differing(before, self.routes))
        touched.update(dict.fromkeys(job_id for job_id, *_ in differing(self._jobs, jobs)))
        self._jobs = jobs
        generation: dict[JobId, int | None] = {}
        for job_id in touched:
            job = jobs.get(job_id)
            was, now = before.get(job_id, NO_ROUTES), self.routes.get(job_id, NO_ROUTES)
            divided = self._dividing.pop(job_id, None)
            if job is None:
                generation[job_id] = None
                continue
            if job_id in self.routes:
                self._dividing[job_id] = job.dividing
            rerouted = was != now
            if rerouted:
                job.vitals.begin_epoch(at)
            if rerouted or divided != self._dividing.get(job_id):
                self._changes += 1
                generation[job_id] = self._changes
        self.generation = updated(self.generation, generation)

    # ---- replies

    def add_arp_answers(self, answers: list[SendArpReply], now: float) -> None:
        self._arp_answers += [(now, answer) for answer in answers]

    def wait_for_strategy(self, reply: Future[Any], strategy: Strategy, cycles_done: int, now: float) -> list[Reply]:
        """Returns the reply to an earlier request that has not been answered yet."""
        before, self._for_strategy = self._for_strategy, _StrategyWaiter(reply, strategy, now, cycles_done)
        return [Reply(before.future, Superseded(f"superseded: {strategy} was set"))] if before else []

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
            due.append(Reply(waiter.future, StrategySet(waiter.strategy, now - waiter.since, self.pins)))
        return due

    def refuse_strategy(self, error: SignalboxError) -> list[Reply]:
        """The strategy was set back."""
        waiter, self._for_strategy = self._for_strategy, None
        return [Reply(waiter.future, error)] if waiter else []
