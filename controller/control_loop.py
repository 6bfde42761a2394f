"""Control loop: handles messages, derives new values from the state, and returns the commands that follow.

``core/intake.py`` handles each message, which makes work due. ``core/derived.py`` derives problems and rules, and
``core/sending.py`` chooses the next stage of changes. ``serving/driver.py`` carries out all commands.
docs/architecture.md#one-job follows a job from gRPC to the switches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from controller.alarms import AlarmKey
from controller.config import Config
from controller.core import state
from controller.core.alarms import KEEP_STARTS_S, AlarmTimes
from controller.core.derived import Derived
from controller.core.intake import Intake
from controller.core.messages import NO_EFFECTS, Command, Effects, Message, Work, at_once, not_before
from controller.core.published import all_alarms, status
from controller.core.sending import Input
from controller.core.state import KnownJobs
from controller.extensions import configured
from controller.fabric.parts import Declared
from controller.fabric.topology import Dpid, Fabric
from controller.jobs.job import Job
from controller.jobs.messages import SavedState
from controller.planning.messages import SolvePlan
from controller.status import Status
from controller.tables.messages import PollLearning
from controller.tables.pipeline import narrowed
from signalbox.jobs.spec import JobId
from signalbox.words import Mode

DRAIN_REST_S = 0.1
"""Seconds between two planning cycles that move flows off drained parts."""

NO_ALARMS: Mapping[AlarmKey, float] = {}


class ControlLoop:
    """The control loop, which runs in a single thread.

    ``now`` is always in monotonic seconds and never decreases. ``alarms_before``: see ``AlarmTimes``."""

    def __init__(
        self,
        config: Config,
        saved: SavedState,
        declared: Declared,
        now: float,
        alarms_before: Mapping[AlarmKey, float] = NO_ALARMS,
    ) -> None:
        self.state = state.initial(config, saved, declared, now)
        """State of the controller; each attribute owns one kind of state."""
        self.extension = configured(config, self.state, now)
        """Configured extension; if none is configured, an ``Extension`` that does nothing."""
        self.derived = Derived(config, self.state, self.extension)
        """All values that are derived from the state."""
        self.state.commits.start(KnownJobs(self.derived.jobs(), self.state.demand.demands))
        self._intake = Intake(config, self.state, self.derived, self.extension)
        self._alarm_times = AlarmTimes(alarms_before, now + config.discovery.adoption_patience_s + KEEP_STARTS_S)
        self._pending = at_once(Work.RULES)
        self._polled_soon: frozenset[Dpid] = frozenset()
        self._jobs: Mapping[JobId, Job] = {}

    @property
    def fabric(self) -> Fabric:
        """Current snapshot of the topology."""
        return self.state.fabric

    @property
    def unfinished(self) -> bool:
        """Whether ``handle`` must be called again at once, because more work can be done now."""
        phases = self.state.phases
        return self.derived.pins_due() and not (phases.adopting or phases.urgent or self.state.sync.busy)

    @property
    def urgent(self) -> bool:
        """Whether the controller is reacting to lost links, so that other work should wait."""
        return self.state.phases.urgent

    @property
    def published_routes(self) -> object:
        """Object whose identity changes whenever the routes that are published to jobs change."""
        return self.state.sending.generation

    def handle(self, messages: Iterable[Message], now: float) -> list[Command]:
        """Handle the messages in order, do the work that is due, and return all resulting commands together."""
        return [*self.apply(messages, now), *self.work(now)]

    def apply(self, messages: Iterable[Message], now: float) -> list[Command]:
        """Handle the messages, and return the commands that depend on neither plan nor rules: most replies, and saving.

        An error of a request is its reply. Any other exception is a bug."""
        if self.unfinished:  # no stage is under way: derive the pins of the next turn
            self.derived.next_pins()
            self._pending |= at_once(Work.RULES)
        sent = self._apply_each(messages, now)
        before, self._jobs = self._jobs, self.derived.jobs()
        if self._jobs is not before:
            self.state.measuring_periods.follow(self._jobs, now)
        return [*sent, *self._save(now)]

    def work(self, now: float) -> list[Command]:
        """Do the work that has become due, and return the remaining commands."""
        s = self.state
        sent = [*self.extension.work()]
        self._pending |= self._intake.follow_extension(now)
        sent += self._answer_losses(now)
        sent += self._plan(now)
        sent += self._derive_rules(now)
        rules_due = self._rules_due(now) or self.derived.pins_due()
        if not (rules_due or s.phases.adopting or s.sync.busy or s.sync.unsettled):
            sent += self.extension.change(now)
            self._begin_arranged(now)
        if s.drains.parts:
            self._follow_drained(rules_due, now)
        sent += self._poll_soon()
        replies = s.sending.due_replies(rules_due, s.cycle.cycles_done, s.losses, now)
        return [*sent, *replies]

    def status(self, now: float) -> Status:
        """Return the published status."""
        s, rules_due = self.state, Work.RULES in self._pending.due
        awaits_parts = bool(s.parts.awaited)
        raised = all_alarms(s, self.derived, self.extension, now)
        alarms = self._alarm_times.dated(raised, s.silences.of, now, awaits_parts)
        if s.silences.of and s.silences.follow(alarms):
            self._pending |= at_once(Work.SAVE)
        return status(s, self.derived, self.extension, self._alarm_times, rules_due)

    def _apply_each(self, messages: Iterable[Message], now: float) -> tuple[Command, ...]:
        effects = NO_EFFECTS
        for message in messages:
            effects |= self._intake.handle(message, now)
        effects |= self._intake.pass_time(now)
        if effects.due:
            self._pending |= Effects(effects.due)
        return effects.commands

    def _begin_arranged(self, now: float) -> None:
        """Begin the jobs that the extension does not hold back any longer, on the routes that it has found.

        If the extension has no routes for one of these jobs, the running planning cycle is dropped. Its plan was begun
        without the job's new circuits, and would leave the job on detours."""
        s = self.state
        made = {} if Work.RULES in self._pending.due else self.extension.begin(now)
        if not made:
            return
        for job_id, routes in made.items() if s.mode is Mode.PLANNED else ():
            if routes is not None:
                s.routes.begin(self.derived.jobs()[job_id], routes)
        if None in made.values():
            s.cycle.supersede()
        self._pending |= at_once(Work.RULES) | at_once(Work.PLAN)

    def _answer_losses(self, now: float) -> list[Command]:
        """Remove next hops over lost links.

        All other work waits up to ``HURRY_S`` until the switches have confirmed the removal."""
        s = self.state
        if self._rules_due(now) and not s.phases.adopting:
            lost = s.losses.lost(s.fabric.links)
            leaves = {host.at.dpid for host in s.fabric.hosts.values()} if lost else set()
            if lost and (fewer := narrowed(s.wanted.rules, s.losses.before, lost, leaves)):
                s.want_rules({**s.wanted.rules, **fewer})
                s.phases.transition(Input.NEXT_HOPS_REMOVED, now)
                self._pending |= at_once(Work.STAGE)
        return self._stage(now) if s.phases.urgent else []

    def _plan(self, now: float) -> list[Command]:
        s = self.state
        steady = not (s.phases.adopting or s.phases.urgent)
        broken = steady and self._rules_due(now) and self._record_broken(now)
        if broken:
            s.cycle.supersede()
            self._pending |= at_once(Work.PLAN)
        if s.cycle.solving or (s.phases.adopting and s.fabric.switches):
            return []
        if s.cycle.must_pause(now) or not self._take_due(Work.PLAN, now):
            return s.cycle.work_out_slowdowns(self.derived.snapshot()) if self._take_due(Work.SLOWDOWNS, now) else []
        self._take_due(Work.SLOWDOWNS, now)  # the plan brings new slowdowns
        self._move_more_drained(now)
        snapshot = self.derived.snapshot()
        s.load_events.plan_begins(self.derived.background())
        if is_loss := bool(self.derived.routed_lost_links()):
            self._record_broken(now)  # this cycle reacts to the loss
        # Flows on drained links need no repair: they are still delivered, and move once, to their paths in the plan.
        repairs = is_loss or not self.derived.drained_flows()
        sources = {job_id: s.demand.demands[job_id].source for job_id in self.derived.ready()}
        jobs, is_claimed = self.derived.jobs(), s.commits.is_claimed
        asked = s.cycle.begin(snapshot, jobs, sources, s.mode, s.fabric.links, repairs, is_loss, is_claimed, now)
        if broken and any(isinstance(command, SolvePlan) for command in asked):
            s.phases.transition(Input.REPAIR_ASKED, now)
        return asked

    def _record_broken(self, now: float) -> bool:
        """Record the lost links that routes use, and return whether a link has been added since the last call.

        If all routes were intact before, the latest repair is forgotten. The status would otherwise report it as the
        repair of the new loss, which is perhaps not repairable."""
        s = self.state
        was_whole = not s.losses.broken
        more = s.losses.record_broken(self.derived.routed_lost_links(), now)
        if was_whole and s.losses.broken:
            s.cycle.forget_repair()
        return more

    def _move_more_drained(self, now: float) -> None:
        """Let the new planning cycle move more flows off drained parts, if the rules of earlier moves are confirmed."""
        s = self.state
        if s.drains.waiting and not (s.sync.busy or s.sync.unsettled):
            most = s.cycle.limits.max_moves
            s.drains.exclude(s.fabric.links, self.derived.drained_flows(), math.inf if most is None else most)
            self._pending |= at_once(Work.RULES)
        if s.drains.waiting:
            self._pending |= not_before(Work.PLAN, now + DRAIN_REST_S)

    def _follow_drained(self, rules_due: bool, now: float) -> None:
        s = self.state
        if s.phases.adopting:
            s.draining.forget()
        else:
            s.draining.follow(self.derived.drained(), s.fabric, rules_due, now)

    def _derive_rules(self, now: float) -> list[Command]:
        s, d = self.state, self.derived
        if not s.phases.urgent and self._take_due(Work.RULES, now):
            self._pending |= at_once(Work.STAGE)
            if s.phases.adopting:
                s.want_rules(d.adopting_rules())
            else:
                rules = d.rules_and_unknown() if now < s.adoption.unknown_kept_until else d.rules()
                other_uses = d.pins() is not s.wanted.pins or not d.only_pins_changed()
                s.want(d.jobs(), d.pins(), rules, d.counted_links.later() if other_uses else None, now)
                d.flows()  # for the next plan: deriving the flows of all changed jobs together would take long
        return self._stage(now)

    def _stage(self, now: float) -> list[Command]:
        s, d = self.state, self.derived
        if s.sync.busy and not self.urgent:
            return []  # the rest is computed when the switches have confirmed this stage
        sent: list[Command] = []
        staged = self._take_due(Work.STAGE, now)
        if staged:
            sent = s.sending.next_stage(s.wanted.rules, now)
            self._pending |= self._intake.links_came(now)
        elif not self.urgent:
            return []
        if s.sending.is_confirmed(now) and staged:
            s.sending.take_confirmed(d.confirmed(), d.jobs(), now)
        return sent

    def _poll_soon(self) -> list[Command]:
        before, self._polled_soon = self._polled_soon, self.derived.polled_soon()
        return [] if self._polled_soon == before else [PollLearning(self._polled_soon)]

    def _save(self, now: float) -> list[Command]:
        s = self.state
        if s.commits.busy or not self._take_due(Work.SAVE, now):
            return []
        of_jobs = self.derived.measured(), s.jobs.connections, s.jobs.ends.saved
        # A configured mode is not saved: the next controller may be configured with another one.
        mode = s.mode if s.commits.has_waiting or s.commits.latest.mode else None
        of_operators = s.drains.parts, s.silences.of
        of_network = self.derived.registrations(), mode, s.routes.shares
        state = SavedState(*of_network, *of_jobs, *of_operators, self.derived.saved_parts())
        return list(s.commits.begin(state, KnownJobs(self.derived.jobs(), s.demand.demands), now))

    def _rules_due(self, now: float) -> bool:
        return self._pending.has_due(Work.RULES, now)

    def _take_due(self, work: Work, now: float) -> bool:
        """Return whether this work is due, and remove due work from the pending work."""
        due = self._pending.has_due(work, now)
        if due:
            self._pending = self._pending.without(work)
        return due
