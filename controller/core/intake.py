"""Intake of messages: passes each message to the owners of the state that the message changes, and returns the effects.

The intake reads derived values and sends nothing: ``control_loop`` does the work that becomes due. The reply to a
request that changes saved state waits until the change is on disk (``core/state.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from controller.config import Config
from controller.core.derived import Derived
from controller.core.messages import (
    NO_EFFECTS,
    Effects,
    Extension,
    Message,
    NewSettings,
    Reply,
    Tick,
    Work,
    at_once,
    commands,
    not_before,
    when_quiet,
)
from controller.core.planning_cycle import has_slowed
from controller.core.published import analysis, refuse_while_adopting
from controller.core.sending import Input
from controller.core.state import State
from controller.demand.measured_demand import only_counted_otherwise
from controller.fabric.counter_samples import NO_USES
from controller.fabric.messages import (
    ArpSeen,
    ConnectionRefused,
    DrainParts,
    ForgetParts,
    GenerationRaised,
    LinkLost,
    LinkSeen,
    MastershipLost,
    PacketsRefused,
    PortChanged,
    SwitchConnected,
    SwitchFloods,
    SwitchLeft,
    SwitchMoved,
    UndrainParts,
)
from controller.fabric.parts import MAX_NAMES, Part, PartKey, PartKind
from controller.fabric.topology import Dpid, LinkId, PortRef
from controller.jobs.job import Job
from controller.jobs.messages import (
    Arrangement,
    DeregisterJob,
    JobEnd,
    RegisterJob,
    RenewLease,
    ReportConnections,
    ReportIterations,
    StateNotSaved,
    StateSaved,
    UpdateJobs,
)
from controller.jobs.registry import Known
from controller.planning.analysis.messages import Analyse, Explain, GetPlanProof, WhatIf
from controller.planning.messages import Replan, Request, SetMode
from controller.planning.plan import Planned, Slowdowns
from controller.planning.snapshot import missing_hosts
from controller.silence import EndSilence, SilenceAlarms
from controller.store.members import MissingMembers
from controller.tables.messages import Counters, LearningCounters, PollHalfway, StageDone, SwitchRules, TablesRead
from controller.tables.running_routes import installed_hosts
from signalbox.errors import InvalidInput, SignalboxError, in_entry
from signalbox.jobs.spec import JobId
from signalbox.words import Mode

JOBS_REST_S = 0.1
"""Smallest number of seconds between two derivations of rules for changed jobs.

Among thousands of jobs, some job changes at any moment. Each derivation causes several stages of rule changes."""

PARTS_QUIET_S = 1.0
"""Seconds without a further change after which changed parts of the fabric are saved.

One commit thus saves the changes of hundreds of parts, or repeated changes of one part."""

ASLEEP_S = 1.0
"""Seconds between two ticks above which the process, or the machine, must have been suspended.

The controller then restarts all leases, because it could not receive renewals."""

LINKS_QUIET_S = 0.2
"""Seconds without a further new link after which the controller derives rules for the new links.

Thousands of links appear together when a fabric is discovered. The controller reacts to lost links at once."""


class Intake:
    """Handler of all messages of the control loop; ``now`` is monotonic seconds."""

    def __init__(self, config: Config, state: State, derived: Derived, extension: Extension) -> None:
        self._config = config
        self._state = state
        self._derived = derived
        self._extension = extension
        self._saved_parts = derived.saved_parts()
        self._ticked_at = math.inf

    def handle(self, message: Message, now: float) -> Effects:
        """Change the state as the message says and return the effects.

        A ``SignalboxError`` of a request becomes its reply. Any other exception is a bug."""
        match message:
            case Planned():
                return self._planned(message, now)
            case Slowdowns():
                self._state.cycle.take_slowdowns(message)
                return NO_EFFECTS
            case StateSaved(revision):
                return commands(*self._state.commits.done(revision, now))
            case StateNotSaved(why):
                return self._not_saved(why, now)
            case Tick(at, is_claimed):
                return self._tick(now, at, is_claimed)
            case MissingMembers():
                self._state.take_members(message)
                return NO_EFFECTS
            case NewSettings(config):
                self._config = config
                self._state.take_settings(config, now)
                self._extension.take_settings(config)
                return NO_EFFECTS
            case _ if isinstance(message, Request):
                try:
                    return self._request(message, now)
                except SignalboxError as error:
                    return self._refuse(message, error)
            case _:
                return self._network(message, now)

    def pass_time(self, now: float) -> Effects:
        """Stop using switches that disconnected ``GRACE_S`` ago, end phases whose time is over, and return the effects.

        Called after every batch of messages, because ``GRACE_S`` or a phase may end between two ticks."""
        s = self._state
        s.phases.pass_time(now)
        gone = s.departures.due(now)
        for dpid in gone:
            s.topology.switch_left(dpid, now)
        return self._changed(now) if gone else NO_EFFECTS

    def links_came(self, now: float) -> Effects:
        """Return the effects of new links: when no further links appear, rules and then a plan are due."""
        if not self._state.topology.take_news():
            return NO_EFFECTS
        quiet_s = LINKS_QUIET_S + self._config.planning.debounce_s
        return when_quiet(Work.RULES, now, LINKS_QUIET_S) | when_quiet(Work.PLAN, now, quiet_s)

    def _changed(self, now: float) -> Effects:
        self._state.topology.take_news()
        return at_once(Work.RULES) | when_quiet(Work.PLAN, now, self._config.planning.debounce_s)

    def _jobs_changed(self, now: float) -> Effects:
        return self._rules_changed() | when_quiet(Work.PLAN, now, self._config.planning.debounce_s)

    def _rules_changed(self) -> Effects:
        return not_before(Work.RULES, self._state.wanted_at + JOBS_REST_S)

    # ---- requests of the API

    def _request(self, message: Request, now: float) -> Effects:
        """Carry out a request and return the effects.

        Raises ``SignalboxError`` and then changes nothing."""
        s = self._state
        match message:
            case RegisterJob():
                return self._register(message, now)
            case UpdateJobs():
                return self._update(message, now)
            case DeregisterJob():
                return self._deregister(message, now)
            case RenewLease():
                left_s = s.jobs.renew(message.job_id, message.owner, now)
                return commands(Reply(message.reply, left_s, after_status=False))
            case ReportIterations():
                new = s.jobs.report(message.job_id, message.owner, message.iterations, now)
                s.demand.reported(message.job_id, new, now)
                recent_s = s.jobs.jobs[message.job_id].vitals.reported.recent_communication_s
                if has_slowed(recent_s, len(new)):
                    s.load_events.slowed()
                effects = (
                    self._extension.iterations_ended(message.job_id, new, self._arrange, now) if new else NO_EFFECTS
                )
                answer = len(new), self._extension.wait_s(message.job_id)
                return effects | commands(Reply(message.reply, answer, after_status=False))
            case ReportConnections():
                return self._connections(message, now)
            case Replan() | Explain() | WhatIf() | GetPlanProof() if message.reply.cancelled():
                return NO_EFFECTS  # the request changes nothing, and nobody waits for its reply
            case Replan(reply):
                s.cycle.answer_next(reply)
                return at_once(Work.PLAN)
            case SetMode():
                return self._set_mode(message, now)
            case DrainParts() | UndrainParts():
                return self._drain(message)
            case SilenceAlarms() | EndSilence():
                return self._silence(message)
            case Explain() | WhatIf() | GetPlanProof():
                return commands(Analyse(analysis(s, self._derived, self._extension, message), message.reply))
            case ForgetParts(names):
                gone = s.parts.forget(names, now)
                s.commits.add_request(message.reply, gone, partial(s.parts.restore, gone))
                return at_once(Work.SAVE)

    def _silence(self, message: SilenceAlarms | EndSilence) -> Effects:
        s = self._state
        before = s.silences.of
        if isinstance(message, SilenceAlarms):
            s.silences.add(message.silence)
        else:
            s.silences.end(message.key)
        s.commits.add_request(message.reply, None, lambda _: s.silences.restore(before))
        return at_once(Work.SAVE)

    def _refuse(self, message: Request, error: SignalboxError) -> Effects:
        """Return the effects that lead to a reply with the error.

        The reply waits until earlier changes of other requests are on disk. The error may follow from such a change,
        which may still be undone."""
        commits = self._state.commits
        if isinstance(error, InvalidInput) or not commits.has_waiting:
            return commands(Reply(message.reply, error, after_status=False))
        commits.add_request(message.reply, error, lambda _: None)
        return at_once(Work.SAVE)

    def _not_saved(self, why: str, now: float) -> Effects:
        s, held = self._state, self._state.commits.has_waiting
        replies = s.commits.failed(why, now)
        if not held:
            return NO_EFFECTS
        replies += s.sending.refuse_mode(s.commits.error)
        self._release_routes(now)
        return self._jobs_changed(now) | commands(*replies)

    def _arrange(self, job: Job, arrangement: Arrangement, now: float) -> Effects:
        """Apply the arrangement of the extension to the job.

        Raises the errors of ``JobRegistry.arrange``."""
        self._state.jobs.arrange(job, arrangement)
        self._release_routes(now)
        return self._jobs_changed(now) | at_once(Work.SAVE)

    def _release_routes(self, now: float) -> None:
        s = self._state
        s.demand.follow(s.jobs.jobs, now)
        s.routes.release(self._derived.jobs())
        s.cycle.stop_waiting(s.cycle.unplanned - s.jobs.jobs.keys())

    def _register(self, message: RegisterJob, now: float) -> Effects:
        s, spec = self._state, message.spec
        before = s.jobs.known(JobId(spec.job_id))
        with in_entry("", "spec"):
            s.demand.refuse_unlearnable(spec)
        job = s.jobs.register(message, now)
        held = before.job
        if held and held.uid != job.uid:
            taken_over = s.jobs.ends.of(held.id, held.uid)
            when_saved = self._reply_when_saved(message.reply, job.uid, {job.id: before}, taken_over, job)
            if held.spec == spec and held.dividing == job.dividing:
                return when_saved
            self._release_routes(now)
            return self._jobs_changed(now) | when_saved
        when_saved = self._reply_when_saved(message.reply, job.uid, {job.id: before}, begun=job)
        if held:
            return when_saved
        s.demand.follow(s.jobs.jobs, now)
        claimed = s.mode is Mode.PLANNED and s.routes.claim(self._derived.jobs()[job.id])
        planned = s.mode is Mode.PLANNED and job.pairs
        if planned and not claimed and not missing_hosts(s.fabric.hosts, job.addresses):
            s.cycle.wait_for_plan(job.id)
        return self._jobs_changed(now) | when_saved

    def _update(self, message: UpdateJobs, now: float) -> Effects:
        """Change jobs.

        A pair of hosts keeps its routes until the next plan, even if another job announces the pair now."""
        s = self._state
        before = {update.job_id: s.jobs.known(update.job_id) for update in message.updates}
        for update in message.updates:
            with in_entry(update.entry, "spec"):
                s.demand.refuse_unlearnable(update.spec)
        jobs = s.jobs.update(message.updates, message.quota)
        when_saved = self._reply_when_saved(message.reply, tuple(job.uid for job in jobs), before)
        if all(job is before[job.id].job for job in jobs):
            return when_saved
        self._release_routes(now)
        return self._jobs_changed(now) | when_saved

    def _deregister(self, message: DeregisterJob, now: float) -> Effects:
        s, job_id = self._state, message.job_id
        before = s.jobs.known(job_id)
        end = s.jobs.deregister(job_id, message.owner, message.ended_at, message.force, message.tenant)
        when_saved = self._reply_when_saved(message.reply, None, {job_id: before}, end)
        if end is None:
            return when_saved
        self._release_routes(now)
        return self._jobs_changed(now) | when_saved

    def _connections(self, message: ReportConnections, now: float) -> Effects:
        s, job_id, quota = self._state, message.job_id, message.quota
        before = s.jobs.known(job_id)
        job = s.jobs.report_connections(
            job_id, message.address, message.connections, message.owner, quota, message.places
        )
        when_saved = self._reply_when_saved(message.reply, None, {job_id: before})
        if before.job and before.job.dividing == job.dividing:
            return when_saved
        self._release_routes(now)
        return self._jobs_changed(now) | when_saved

    def _reply_when_saved(
        self,
        reply: Future[Any],
        value: object,
        before: Mapping[JobId, Known],
        end: JobEnd | None = None,
        begun: Job | None = None,
    ) -> Effects:
        """Reply when the change is on disk.

        A request that changes nothing also waits: the state that its reply confirms may not be on disk yet. ``before``:
        the jobs before the request. ``end``: end of a registration, to be marked as final. ``begun``: job of a new
        registration, whose lease is to be started."""
        s = self._state

        def then(now: float) -> None:
            if end:
                s.jobs.ends.confirm(end)
            if begun:
                s.jobs.begin_lease(begun.id, begun.uid, now)

        jobs = tuple(known.job for known in before.values() if known.job)
        s.commits.add_request(reply, value, partial(s.jobs.restore, before), then, jobs)
        return at_once(Work.SAVE)

    def _drain(self, message: DrainParts | UndrainParts) -> Effects:
        s = self._state
        refuse_while_adopting(s)
        before, waiting, named, down = s.drains.parts, s.drains.waiting, None, self._derived.down_parts()

        def undo(_: float) -> None:
            s.drains.restore(before, s.fabric.links, waiting)
            s.draining.forget()  # rules may have used the parts while they were not drained
            s.cycle.supersede()

        if isinstance(message, DrainParts):
            hosts, others = self._places_of_hosts(down), self._extension.no_parts(message.names[:MAX_NAMES])
            named = s.drains.drain(message.names, s.fabric, message.at, down.values(), hosts, others)
        else:
            s.drains.undrain(message.names, s.fabric, down.values())
            if not s.drains.parts:
                s.draining.forget()
        s.commits.add_request(message.reply, named, undo)
        return at_once(Work.RULES, Work.PLAN, Work.SAVE)

    def _places_of_hosts(self, down: Mapping[PartKey, Part]) -> Mapping[str, Dpid]:
        """Return the present or last switch of each host that jobs or the inventory file name."""
        hosts, found = self._state.fabric.hosts, {}
        for key in self._derived.named_hosts():
            if key.id in hosts:
                found[key.id] = hosts[key.id].at.dpid
            elif key in down and down[key].seen:
                found[key.id] = down[key].ends[0].at.dpid
        return found

    def _set_mode(self, message: SetMode, now: float) -> Effects:
        s = self._state
        before = s.mode
        s.commits.add_request(None, None, lambda _: s.set_mode(before), lambda _: s.sending.mode_saved(message.reply))
        s.set_mode(message.mode)
        if message.mode is Mode.ECMP:
            s.cycle.supersede()  # no plan will be adopted
        cycles = s.cycle.cycles_done + s.cycle.solving  # the reply waits for the cycle after the current one
        superseded = s.sending.wait_for_mode(message.reply, message.mode, cycles, now)
        if message.mode is not Mode.PLANNED:
            s.routes.replace({})
            s.routes.drop_orphans()
            self._extension.take_sharing(None)
            s.cycle.stop_waiting(s.cycle.unplanned)
        return at_once(Work.RULES, Work.PLAN, Work.SAVE) | commands(*superseded)

    # ---- the network

    def _network(self, message: Message, now: float) -> Effects:
        s = self._state
        match message:  # also of switches whose messages the extension handles
            case SwitchConnected(dpid) | SwitchMoved(dpid):
                s.refusals.switch_connected(dpid)
            case SwitchLeft() | MastershipLost():
                s.refusals.switch_left(message)
        if (effects := self._extension.handle(message, self._arrange, now)) is not None:
            return effects
        match message:
            case SwitchConnected():
                return self._connected(message, now)
            case SwitchMoved(dpid, _, ports):
                changed = s.topology.ports_are(dpid, ports, now)
                return (self._changed(now) if changed else Effects()) | commands(*s.sync.moved(dpid))
            case SwitchLeft(dpid) | MastershipLost(dpid):
                s.hosts.claims.refused.switch_left(dpid)
                s.sync.switch_left(dpid)
                s.counters.switch_left(dpid)
                s.tables.switch_left(dpid)
                return self._adopt_installed_rules(now) if s.departures.switch_left(dpid, s.fabric, now) else NO_EFFECTS
            case PortChanged(dpid, port, removed):
                if removed:
                    s.counters.port_removed(PortRef(dpid, port.number))
                return self._changed(now) if s.topology.port_changed(dpid, port, removed, now) else NO_EFFECTS
            case LinkSeen(src, dst):
                s.topology.link_seen(src, dst, now)
                return self.links_came(now)
            case LinkLost(src, dst):
                s.topology.link_lost(src, dst, now)
                return self._changed(now)
            case SwitchRules():
                return self._rules_read(message, now)
            case StageDone():
                s.sending.stage_done(message, now)
                return at_once(Work.STAGE)
            case Counters():
                s.counters.add(s.fabric, message)
                return self._evaluate_counters(now)
            case LearningCounters():
                s.counters.add_learning(s.fabric, message)
            case TablesRead():
                if s.tables.record(message, s.sync.held(message.dpid)):
                    s.sync.retry(message.dpid)
            case PacketsRefused():
                s.refusals.count_packets(message, s.fabric, now)
            case ConnectionRefused():
                s.refusals.count_connection(message, now)
            case GenerationRaised():
                s.refusals.generation_raised(message)
            case SwitchFloods():
                s.refusals.count_flood(message, now)
            case ArpSeen():
                return self._arp(message, now)
        return NO_EFFECTS

    def follow_extension(self, now: float) -> Effects:
        """Return the effects of changed links of the extension: new rules and a new plan."""
        return self._changed(now) if self._state.topology.allow(self._extension.links) else NO_EFFECTS

    def _connected(self, message: SwitchConnected, now: float) -> Effects:
        s, dpid = self._state, message.dpid
        if s.phases.adopting:
            s.adoption.switch_connected(dpid, now)
        s.departures.switch_returned(dpid)
        s.parts.switch_connected(dpid, now)
        s.topology.switch_connected(dpid, message.name, message.ports, now)
        s.counters.switch_connected(dpid, now)
        return self._changed(now) | commands(s.sync.switch_connected(dpid))

    def _rules_read(self, message: SwitchRules, now: float) -> Effects:
        s, dpid, rules = self._state, message.dpid, message.rules
        seen = (part.ends[0].at.dpid for part in self._derived.known_switches().values() if part.seen)
        news = s.sync.rules_read(message, s.fabric, now, seen)
        if news == "changed":
            return at_once(Work.RULES)
        if news != "first":
            return NO_EFFECTS
        late = s.adoption.rules_read(dpid, rules, now) and not s.phases.adopting
        for ip, at in installed_hosts({dpid: rules}):
            s.hosts.adopt(ip, at)
        return self._changed(now) | (self._adopt_installed_rules(now) if late else NO_EFFECTS)

    def _adopt_installed_rules(self, now: float) -> Effects:
        self._state.adoption.begin(now)
        self._state.phases.transition(Input.ADOPTION_NEEDED, now)
        return at_once(Work.RULES)

    def _arp(self, message: ArpSeen, now: float) -> Effects:
        learned, answers, questions = self._state.hosts.arp_seen(message, now)
        self._state.sending.add_arp_answers(answers, now)
        return commands(*questions) | (self._changed(now) if learned in ("new", "moved") else NO_EFFECTS)

    # ---- planning

    def _planned(self, message: Planned, now: float) -> Effects:
        s = self._state
        if s.phases.awaits_repair:
            s.phases.transition(Input.REPAIR_ANSWERED, now)
        before = s.routes.routes, s.cycle.unplanned
        replies = s.cycle.handle_answer(message, s.mode, s.commits.is_claimed, s.fabric, now)
        s.routes.release(self._derived.jobs(), s.cycle.jobs)  # some jobs may have ended during the solve
        effects = commands(*replies)
        if s.cycle.plan is message.answer and (s.cycle.adopted or not message.adopted):
            effects |= self._extension.take_sharing(message.sharing)
        if s.routes.routes is not before[0] or s.cycle.unplanned != before[1]:
            effects |= at_once(Work.RULES)
        return effects | at_once(Work.SAVE) if s.routes.shares != s.commits.latest.shares else effects

    # ---- time

    def _tick(self, now: float, at: float, is_claimed: bool) -> Effects:
        """Handle a tick; ``at`` is the time in seconds since 1970."""
        s = self._state
        effects = commands(*s.sync.tick(now))
        if s.sync.retrying:
            effects |= at_once(Work.STAGE)
        s.topology.advance(now)
        effects |= self._extension.tick(self._arrange, now)
        if now - self._ticked_at >= ASLEEP_S:
            s.jobs.begin_leases(now)
        self._ticked_at = now
        expired = s.jobs.expire(now, at, self._derived.unsaved())
        if expired:
            self._release_routes(now)
            effects |= self._jobs_changed(now) | at_once(Work.SAVE)
        if s.silences.of:
            s.silences.tick(at)
        if is_claimed and not s.commits.is_claimed:
            effects |= at_once(Work.PLAN)  # what was planned without the claim was not installed
        s.commits.follow_claim(is_claimed)
        if s.commits.trial_due(now):
            effects |= at_once(Work.SAVE)
        if s.phases.adopting:
            effects |= self._adopt_if_complete(now)
        elif s.adoption.lease_over(now):
            s.routes.drop_orphans()
            effects |= at_once(Work.RULES)
        effects |= commands(*s.hosts.advance(self._derived.missing(), now)) | self.links_came(now)
        if self._derived.only_pins_changed():
            s.load.take_announced()  # in small steps, before the next counters arrive
        soon = not_before(Work.PLAN, now + self._config.planning.debounce_s)  # not postponed by counters of other jobs
        effects |= self._judge_demand(now, s.demand.search, soon)
        effects |= self._evaluate_counters(now)
        if s.demand.waiting and now > s.load.measured_at:
            effects |= self._judge_demand(now, s.demand.judge_next)
        effects |= self._follow_parts(now, at)
        return effects | at_once(Work.PLAN) if s.cycle.period_over(now) else effects

    def _evaluate_counters(self, now: float) -> Effects:
        s, d = self._state, self._derived
        if not s.counters.rounds.is_over(now):
            return NO_EFFECTS
        halfway = s.counters.rounds.is_halfway
        s.load.forget(d.ports())
        s.load.update(now, d.nominal_bps())
        look_again = not halfway and s.load_events.look_again(self._links_of_unannounced_traffic())
        s.counters.rounds.evaluated(now)
        effects = commands(PollHalfway()) if look_again else NO_EFFECTS
        if not halfway:
            judge = partial(s.demand.update, self._hosts_with_unannounced_traffic(), without_path=d.without_path())
            effects |= self._judge_demand(now, judge)
        uncounted = d.uncounted_links() if s.load.beyond or s.recent.held else NO_USES
        between = {link: bps for link, bps in d.background().items() if link in s.fabric.links}
        s.recent.follow(between, d.flows_by_link(), uncounted, now)
        loads, routed = (d.background(), d.nominal_bps()), d.flows_by_link()
        planning = self._config.planning
        if s.load_events.start_plan(*loads, routed, planning.interval_s, now):
            effects |= when_quiet(Work.PLAN, now, planning.debounce_s)
        elif s.load_events.show(*loads, routed, d.ready(), s.fabric.hosts):
            effects |= at_once(Work.SLOWDOWNS)
        return effects

    def _follow_parts(self, now: float, at: float) -> Effects:
        self._state.parts.follow(self._state.fabric, now, at)
        before, self._saved_parts = self._saved_parts, self._derived.saved_parts()
        return NO_EFFECTS if self._saved_parts is before else when_quiet(Work.SAVE, now, PARTS_QUIET_S)

    def _links_of_unannounced_traffic(self) -> frozenset[LinkId]:
        return frozenset(link for link in self._derived.background() if link.direction == "in")

    def _hosts_with_unannounced_traffic(self) -> frozenset[str]:
        """Return the addresses of hosts that send more bytes than their jobs announced."""
        busy = {link.at for link in self._links_of_unannounced_traffic()}
        hosts = self._state.fabric.hosts
        return frozenset(ip for ip, host in hosts.items() if host.at in busy) if busy else frozenset()

    def _judge_demand(self, now: float, judge: Callable[[float], None], plan: Effects = NO_EFFECTS) -> Effects:
        """Call ``judge``, which compares announced with measured traffic, and return the effects of changed jobs.

        ``plan``: effects that are returned too if ``judge`` changes a virtual link that the planner uses."""
        s = self._state
        before = self._derived.jobs()
        judge(now)
        jobs = self._derived.jobs()
        if jobs is before:
            return NO_EFFECTS
        s.routes.release(jobs)
        for job in jobs.values() if s.routes.orphans and s.mode is Mode.PLANNED else ():
            if job.counted:
                s.routes.claim(job)
        planned_alike = not s.routes.orphans and only_counted_otherwise(before, jobs)
        changed = self._rules_changed() if planned_alike else self._jobs_changed(now) | plan
        return changed | at_once(Work.SAVE) if self._derived.measured() != s.commits.latest.measured else changed

    def _adopt_if_complete(self, now: float) -> Effects:
        s = self._state
        if s.departures.waiting or not s.sync.installed:
            return NO_EFFECTS
        all_here = not s.parts.absent.get(PartKind.SWITCH)
        if not s.adoption.is_complete(s.fabric, s.sync.installed, s.sync.all_read, all_here, now):
            return NO_EFFECTS
        s.adoption.end(now)
        s.phases.transition(Input.ADOPTED, now)
        s.cycle.stop_waiting(s.routes.adopt(s.fabric, s.sync.installed, self._derived.jobs().values()))
        if not s.adoption.is_first:  # no job was forgotten, so no job will claim these pins
            s.routes.forget_orphans()
        if s.mode is not Mode.PLANNED:
            s.routes.replace({})
        return self._changed(now)
