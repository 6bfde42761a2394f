"""Takes messages in: each goes to the owners of the state that it changes, and its consequences are returned.

Nothing is derived here, and nothing is sent: ``control_loop`` does what becomes due. What a message leads to is one
value, ``Effects``: work, with the time when it is due, and commands that need nothing else. Effects of many messages
merge with ``|``; work of one kind is done once for all messages that asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from types import MappingProxyType
from typing import Any

from controller.config import Config, Strategy
from controller.core.derived import Derived
from controller.core.messages import Command, Message, Reply, Tick
from controller.core.phases import Input
from controller.core.state import State
from controller.errors import SignalboxError
from controller.fabric.messages import (
    ArpSeen,
    ConnectionRefused,
    LinkLost,
    LinkSeen,
    MastershipLost,
    PacketsRefused,
    PortChanged,
    SwitchConnected,
    SwitchLeft,
)
from controller.jobs.ends import JobEnd
from controller.jobs.messages import (
    DeregisterJob,
    RegisterJob,
    RenewLease,
    ReportConnections,
    ReportIterations,
    StateNotSaved,
    StateSaved,
    UpdateJob,
)
from controller.jobs.registry import Known
from controller.jobs.spec import JobId
from controller.planning.analysis.requests import Analyse, Explain, FabricNames, Network, WhatIf, analysis_request
from controller.planning.messages import Compared, Planned, Replan, Request, SetStrategy
from controller.planning.problem import missing_hosts
from controller.planning.verdict import Levels
from controller.tables.adoption import installed_hosts
from controller.tables.messages import Counters, StageDone, SwitchRules

LINKS_QUIET_S = 0.2
"""Links that come (not those that are lost) wait for others: thousands come when a fabric is found."""

MAX_DEBOUNCES = 10
"""Work that waits for quiet is done after this many quiet times at the latest, however often more is asked for."""


class Work(Enum):
    """``RULES``: derive the rules that switches should hold. ``STAGE``: compare them with what switches hold and send
    the first stage. ``PLAN``: begin a planning cycle. ``SAVE``: write what a restart must know."""

    RULES = auto()
    STAGE = auto()
    PLAN = auto()
    SAVE = auto()


@dataclass(frozen=True, slots=True)
class Due:
    """Monotonic seconds. ``quiet_at``: later if the same work is asked for again before; ``latest_at``: in any case."""

    quiet_at: float
    latest_at: float

    def __or__(self, other: Due) -> Due:
        return Due(max(self.quiet_at, other.quiet_at), min(self.latest_at, other.latest_at))


@dataclass(frozen=True, slots=True)
class Effects:
    """``due``: work by kind. ``commands``: in the order in which they are to be given."""

    due: Mapping[Work, Due] = field(default_factory=lambda: MappingProxyType({}))
    commands: tuple[Command, ...] = ()

    def __or__(self, other: Effects) -> Effects:
        if not other.due:
            return replace(self, commands=self.commands + other.commands) if other.commands else self
        both = {work: self.due[work] | due if work in self.due else due for work, due in other.due.items()}
        return Effects({**self.due, **both}, self.commands + other.commands)

    def has_due(self, work: Work, now: float) -> bool:
        """Whether this work is to be done by now."""
        due = self.due.get(work)
        return due is not None and now >= min(due.quiet_at, due.latest_at)

    def without(self, work: Work) -> Effects:
        """The same after this work was done."""
        return replace(self, due={kind: due for kind, due in self.due.items() if kind is not work})


NOTHING = Effects()


def at_once(*works: Work) -> Effects:
    """Work that waits for nothing."""
    return Effects(dict.fromkeys(works, Due(float("-inf"), float("-inf"))))


def when_quiet(work: Work, now: float, quiet_s: float) -> Effects:
    """Work that waits until nothing has asked for it for ``quiet_s`` seconds."""
    return Effects({work: Due(now + quiet_s, now + MAX_DEBOUNCES * quiet_s)})


def commands(*to_give: Command) -> Effects:
    """Commands, and no work."""
    return Effects(commands=to_give)


class Intake:
    """``now`` is monotonic seconds."""

    def __init__(self, config: Config, state: State, derived: Derived) -> None:
        self._config = config
        self._state = state
        self._derived = derived

    def take(self, message: Message, now: float) -> Effects:
        """Errors of a request become its reply; anything else that raises is a bug."""
        match message:
            case Planned():
                return self._planned(message, now)
            case Compared():
                self._state.cycle.take_comparison(message)
                return NOTHING
            case Levels():
                self._state.cycle.take_levels(message)
                return NOTHING
            case StateSaved(revision):
                return commands(*self._state.commits.done(revision))
            case StateNotSaved(why):
                return self._not_saved(why, now)
            case Tick(at):
                return self._tick(now, at)
            case _ if isinstance(message, Request):
                try:
                    return self._request(message, now)
                except SignalboxError as error:
                    return commands(Reply(message.reply, error, after_status=False))
            case _:
                return self._network(message, now)

    def pass_time(self, now: float) -> Effects:
        """What is due between two ticks: switches that are given up, phases that end."""
        s = self._state
        s.phases.pass_time(now)
        gone = s.departures.due(now)
        for dpid in gone:
            s.topology.switch_left(dpid, now)
        return self._changed(now) if gone else NOTHING

    def links_came(self, now: float) -> Effects:
        """Rules and then the plan follow, when no more links come."""
        if not self._state.topology.take_news():
            return NOTHING
        quiet_s = LINKS_QUIET_S + self._config.planning.debounce_s
        return when_quiet(Work.RULES, now, LINKS_QUIET_S) | when_quiet(Work.PLAN, now, quiet_s)

    def _changed(self, now: float) -> Effects:
        """Rules follow at once, the plan when it is quiet."""
        self._state.topology.take_news()  # whatever it is, this covers it
        return at_once(Work.RULES) | when_quiet(Work.PLAN, now, self._config.planning.debounce_s)

    # ---- the network

    def _network(self, message: Message, now: float) -> Effects:
        s = self._state
        match message:
            case SwitchConnected():
                return self._connected(message, now)
            case SwitchLeft(dpid) | MastershipLost(dpid):
                s.refusals.switch_left(message)
                s.sync.left(dpid)
                s.counters.switch_left(dpid)
                return self._begin_adoption(now) if s.departures.left(dpid, s.fabric, now) else NOTHING
            case PortChanged(dpid, port, removed):
                return self._changed(now) if s.topology.port_changed(dpid, port, removed, now) else NOTHING
            case LinkSeen(src, dst):
                s.topology.link_seen(src, dst, now)
                return self.links_came(now)
            case LinkLost(src, dst):
                s.topology.link_lost(src, dst, now)
                return self._changed(now)
            case SwitchRules():
                return self._rules_read(message, now)
            case StageDone():
                s.sync.stage_done(message, now)
                return at_once(Work.STAGE)
            case Counters():
                s.counters.take(s.fabric, message)
            case PacketsRefused():
                s.refusals.count_packets(message, s.fabric, now)
            case ConnectionRefused():
                s.refusals.count_connection(message, now)
            case ArpSeen():
                return self._arp(message, now)
        return NOTHING

    def _connected(self, message: SwitchConnected, now: float) -> Effects:
        s, dpid = self._state, message.dpid
        if s.phases.adopting:
            s.adoption.switch_connected(dpid, now)
        s.departures.returned(dpid)
        s.topology.switch_connected(dpid, message.name, message.ports, now)
        s.refusals.switch_connected(dpid)
        return self._changed(now) | commands(s.sync.connected(dpid))

    def _rules_read(self, message: SwitchRules, now: float) -> Effects:
        s, dpid, rules = self._state, message.dpid, message.rules
        news = s.sync.rules_read(message, s.fabric, now)
        if news == "changed":
            return at_once(Work.RULES)
        if news != "first":
            return NOTHING
        late = s.adoption.rules_read(dpid, rules, now) and not s.phases.adopting
        known = s.fabric.hosts
        for ip, at in installed_hosts({dpid: rules}):
            if ip not in known:
                s.topology.place_host(ip, None, at)
        return self._changed(now) | (self._begin_adoption(now) if late else NOTHING)

    def _begin_adoption(self, now: float) -> Effects:
        """What the switches hold counts, not what is known here."""
        self._state.adoption.begin(now)
        self._state.phases.take(Input.ADOPTION_NEEDED, now)
        return at_once(Work.RULES)

    def _arp(self, message: ArpSeen, now: float) -> Effects:
        learned, answers, questions = self._state.hosts.arp_seen(message, now)
        self._state.sending.add_arp_answers(answers, now)
        return commands(*questions) | (self._changed(now) if learned in ("new", "moved") else NOTHING)

    # ---- planning

    def _planned(self, message: Planned, now: float) -> Effects:
        s = self._state
        s.phases.take(Input.REPAIR_ANSWERED, now)
        before = s.routes.routes, s.cycle.unplanned
        replies = s.cycle.take(message, s.strategy, s.fabric)
        s.routes.release(self._derived.jobs(), s.cycle.jobs)  # some may have gone while they were planned for
        effects = commands(*replies)
        if s.routes.routes is not before[0] or s.cycle.unplanned != before[1]:
            effects |= at_once(Work.RULES)
        return effects | at_once(Work.SAVE) if s.routes.shares != s.commits.latest.shares else effects

    # ---- requests

    def _request(self, message: Request, now: float) -> Effects:
        s = self._state
        match message:
            case RegisterJob():
                return self._register(message, now)
            case UpdateJob():
                return self._update(message, now)
            case DeregisterJob():
                return self._deregister(message, now)
            case RenewLease():
                left_s = s.jobs.renew(message.job_id, message.owner, now)
                return commands(Reply(message.reply, left_s, after_status=False))
            case ReportIterations():
                new = s.jobs.report(message.job_id, message.owner, message.iterations)
                s.demand.reported(message.job_id, new, now)
                return commands(Reply(message.reply, len(new), after_status=False))
            case ReportConnections():
                return self._connections(message, now)
            case Replan() | Explain() | WhatIf() if message.reply.cancelled():
                return NOTHING  # it changes nothing, and nobody waits for it
            case Replan(reply):
                s.cycle.answer_next(reply)
                return at_once(Work.PLAN)
            case SetStrategy():
                return self._set_strategy(message, now)
            case Explain() | WhatIf():
                intact = s.topology.intact
                network = Network(self._derived.problem(), s.fabric, intact, s.cycle.limits, FabricNames(intact))
                return commands(Analyse(analysis_request(message, network, self._derived.jobs()), message.reply))

    def _register(self, message: RegisterJob, now: float) -> Effects:
        s, spec = self._state, message.spec
        before = s.jobs.known(JobId(spec.job_id))
        s.demand.refuse_unlearnable(spec)
        job = s.jobs.register(message, now)
        held = before.job
        if held and held.uid != job.uid:
            taken_over = s.jobs.ends.of(held.id, held.uid)
            when_saved = self._reply_when_saved(message.reply, job.uid, job.id, before, taken_over)
            if held.spec == spec:
                return when_saved
            self._release_routes(now)
            return self._changed(now) | when_saved
        when_saved = self._reply_when_saved(message.reply, job.uid, job.id, before)
        if held:
            return when_saved
        s.demand.follow(s.jobs.jobs, now)
        claimed = s.strategy is Strategy.PLANNED and s.routes.claim(job)
        planned = s.strategy is Strategy.PLANNED and job.pairs
        if planned and not claimed and not missing_hosts(s.fabric.hosts, job.addresses):
            s.cycle.wait_for_plan(job.id)
        return self._changed(now) | when_saved

    def _update(self, message: UpdateJob, now: float) -> Effects:
        """Routes of pairs that stay are kept until the plan that follows."""
        s, spec = self._state, message.spec
        before = s.jobs.known(JobId(spec.job_id))
        s.demand.refuse_unlearnable(spec)
        job = s.jobs.update(spec, message.owner, message.merged_with, message.quota)
        when_saved = self._reply_when_saved(message.reply, job.uid, job.id, before)
        if job is before.job:
            return when_saved
        self._release_routes(now)
        return self._changed(now) | when_saved

    def _deregister(self, message: DeregisterJob, now: float) -> Effects:
        s, job_id = self._state, message.job_id
        before = s.jobs.known(job_id)
        end = s.jobs.deregister(job_id, message.owner, message.ended_at, message.force, message.tenant)
        when_saved = self._reply_when_saved(message.reply, None, job_id, before, end)
        if end is None:
            return when_saved
        self._release_routes(now)
        return self._changed(now) | when_saved

    def _connections(self, message: ReportConnections, now: float) -> Effects:
        s, job_id = self._state, message.job_id
        before = s.jobs.known(job_id)
        job = s.jobs.report_connections(job_id, message.address, message.connections, message.owner)
        when_saved = self._reply_when_saved(message.reply, None, job_id, before)
        if before.job and before.job.dividing == job.dividing:
            return when_saved
        s.demand.connections_changed(job, now)
        s.routes.release(self._derived.jobs())
        return self._changed(now) | when_saved

    def _reply_when_saved(
        self, reply: Future[Any], value: object, job_id: JobId, before: Known, end: JobEnd | None = None
    ) -> Effects:
        """Also to what changes nothing: what it confirms may still wait for the disk. ``before``: the job before it.
        ``end``: of a registration, certain when it is on disk."""
        s = self._state
        undo = partial(s.jobs.restore, job_id, before)
        if end is None:
            s.commits.hold(reply, value, undo)
        else:
            s.commits.hold(reply, value, undo, partial(s.jobs.ends.confirm, end))
        return at_once(Work.SAVE)

    def _not_saved(self, why: str, now: float) -> Effects:
        s, strategy, held = self._state, self._state.strategy, self._state.commits.holding
        replies = s.commits.failed(why, now)
        if not held:
            return NOTHING
        if s.strategy is not strategy:
            replies += s.sending.refuse_strategy(s.commits.error)
        self._release_routes(now)
        return self._changed(now) | commands(*replies)

    def _release_routes(self, now: float) -> None:
        """Jobs are gone, or some of their pairs, and their routes with them."""
        s = self._state
        s.demand.follow(s.jobs.jobs, now)
        s.routes.release(self._derived.jobs())
        s.cycle.stop_waiting(s.cycle.unplanned - s.jobs.jobs.keys())

    def _set_strategy(self, message: SetStrategy, now: float) -> Effects:
        s = self._state
        s.commits.hold(None, None, partial(setattr, s, "strategy", s.strategy))
        s.strategy = message.strategy
        if message.strategy is Strategy.ECMP:
            s.cycle.supersede()  # no plan will be taken
        cycles = s.cycle.cycles_done + s.cycle.solving  # the next one counts
        superseded = s.sending.wait_for_strategy(message.reply, message.strategy, cycles, now)
        if message.strategy is not Strategy.PLANNED:
            s.routes.replace({})
            s.routes.drop_orphans()
            s.cycle.stop_waiting(s.cycle.unplanned)
        return at_once(Work.RULES, Work.PLAN, Work.SAVE) | commands(*superseded)

    # ---- time

    def _tick(self, now: float, at: float) -> Effects:
        """``at``: now in seconds since 1970."""
        s = self._state
        effects = commands(*s.sync.tick(now))
        if s.sync.retrying:
            effects |= at_once(Work.STAGE)
        s.topology.advance(now)
        expired = s.jobs.expire(now, at)
        if expired:
            self._release_routes(now)
            effects |= self._changed(now) | at_once(Work.SAVE)
        if s.commits.retry_due(now):
            effects |= at_once(Work.SAVE)
        if s.phases.adopting:
            effects |= self._adopt_if_complete(now)
        elif s.adoption.lease_over(now):
            s.routes.drop_orphans()
            effects |= at_once(Work.RULES)
        effects |= commands(*s.hosts.advance(self._derived.missing(), now)) | self.links_came(now)
        if now >= s.load.measured_at + self._config.counters.interval_s:
            s.load.forget(self._derived.ports())
            s.load.update(now, self._derived.nominal_bps(), self._derived.uncounted_links())
            effects |= self._judge_demand(now, partial(s.demand.update, self._suspicious()))
        elif s.demand.waiting:
            effects |= self._judge_demand(now, s.demand.go_on)
        return effects | at_once(Work.PLAN) if s.cycle.period_over(now) else effects

    def _suspicious(self) -> frozenset[str]:
        """Addresses of hosts that send more than is announced for them."""
        busy = {link.at for link in self._derived.background() if link.direction == "in"}
        hosts = self._state.fabric.hosts
        return frozenset(ip for ip, host in hosts.items() if host.at in busy) if busy else frozenset()

    def _judge_demand(self, now: float, judge: Callable[[float], None]) -> Effects:
        """What jobs really send may change what is planned for, and what is counted."""
        s = self._state
        before = self._derived.jobs()
        judge(now)
        jobs = self._derived.jobs()
        if jobs is before:
            return NOTHING
        s.routes.release(jobs)
        changed = self._changed(now)
        return changed | at_once(Work.SAVE) if s.demand.measured != s.commits.latest.measured else changed

    def _adopt_if_complete(self, now: float) -> Effects:
        """Take what the switches hold for the running plan, once all of it is known."""
        s = self._state
        if s.departures.waiting or not s.sync.installed:
            return NOTHING
        if not s.adoption.is_complete(s.fabric, s.sync.installed, s.sync.all_read, now):
            return NOTHING
        s.adoption.end(now)
        s.phases.take(Input.ADOPTED, now)
        s.cycle.stop_waiting(s.routes.adopt(s.fabric, s.sync.installed, self._derived.jobs().values()))
        if not s.adoption.is_first:  # no job has been forgotten: pins of other jobs are not expected to be claimed
            s.routes.forget_orphans()
        if s.strategy is not Strategy.PLANNED:
            s.routes.replace({})
        return self._changed(now)
