"""Requests of the API: register, change and end jobs, report measurements, and operate the fabric.

In: a request. Out: its effects. The reply to a request whose change must be saved waits for the disk
(``core/state.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from controller.core.derived import Derived
from controller.core.messages import NOTHING, Effects, Extension, Reply, Work, at_once, commands
from controller.core.planning_cycle import has_slowed
from controller.core.state import State
from controller.fabric.drains import links_named, with_links
from controller.fabric.messages import DrainParts, ForgetParts, UndrainParts
from controller.fabric.parts import MAX_NAMES, Part, PartKey
from controller.fabric.topology import Dpid
from controller.jobs.ends import JobEnd
from controller.jobs.job import Job
from controller.jobs.messages import (
    Arrangement,
    DeregisterJob,
    RegisterJob,
    RenewLease,
    ReportConnections,
    ReportIterations,
    UpdateJobs,
)
from controller.jobs.registry import Known
from controller.planning.analysis.requests import (
    Analyse,
    Explain,
    FabricNames,
    GetPlanProof,
    Network,
    Question,
    WhatIf,
    analysis_request,
)
from controller.planning.messages import Replan, Request, SetMode
from controller.planning.problem import FlowId, missing_hosts
from controller.silence import EndSilence, SilenceAlarms
from signalbox.errors import InvalidInput, NotKnownYet, SignalboxError, in_entry, in_field
from signalbox.jobs.spec import JobId
from signalbox.words import Mode

RETRY_S = 0.5
"""Seconds after which a client should retry when something is not known yet.

Rules are read, and routes of jobs confirmed, within tenths of a second."""


class Requests:
    """Handler of requests; ``now`` is monotonic seconds.

    ``changed``: returns the effects of a changed network or changed jobs."""

    def __init__(
        self, state: State, derived: Derived, extension: Extension, changed: Callable[[float], Effects]
    ) -> None:
        self._state = state
        self._derived = derived
        self._extension = extension
        self._changed = changed

    def take(self, message: Request, now: float) -> Effects:
        """Carry out a request and return the effects. Raises ``SignalboxError`` and then changes nothing."""
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
                effects = commands(Reply(message.reply, len(new), after_status=False))
                return effects | self._extension.iteration_ended(message.job_id, self.arrange, now) if new else effects
            case ReportConnections():
                return self._connections(message, now)
            case Replan() | Explain() | WhatIf() | GetPlanProof() if message.reply.cancelled():
                return NOTHING  # the request changes nothing, and nobody waits for it
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
                return self._analyse(message)
            case ForgetParts(names):
                gone = s.parts.forget(names, now)
                s.commits.hold(message.reply, gone, partial(s.parts.restore, gone))
                return at_once(Work.SAVE)

    def _silence(self, message: SilenceAlarms | EndSilence) -> Effects:
        s = self._state
        before = s.silences.of
        if isinstance(message, SilenceAlarms):
            s.silences.add(message.silence)
        else:
            s.silences.end(message.key)
        s.commits.hold(message.reply, None, lambda _: s.silences.restore(before))
        return at_once(Work.SAVE)

    def _analyse(self, message: Question) -> Effects:
        """Return the command to answer a question about the current network."""
        s, d = self._state, self._derived
        intact, fabric = s.topology.intact, with_links(s.fabric, d.plannable())
        network = Network(d.snapshot(), fabric, intact, s.cycle.limits, FabricNames(intact), d.excluded())
        names = message.names if isinstance(message, WhatIf) else ()
        others = self._extension.no_parts(names[:MAX_NAMES])
        links = links_named(names, s.fabric, d.down_parts().values(), others)
        known = d.job_statuses().get(message.job_id) if isinstance(message, Explain) else None
        withheld = known.prediction_withheld if known else ""
        request = analysis_request(
            message, network, d.jobs(), d.without_path(), links, withheld, s.demand.demands, s.cycle.min_gain
        )
        self._refuse_unknown_routes(every=isinstance(message, GetPlanProof))
        return commands(Analyse(request, message.reply))

    def _refuse_unknown_routes(self, every: bool) -> None:
        """Raise ``NotKnownYet`` while the running routes are not known.

        ``every``: whether the answer needs every route; otherwise a question is refused only when no route is known."""
        s = self._state
        if not s.fabric.switches:
            raise NotKnownYet("no switch is connected yet: try again when the switches have connected")
        if s.phases.adopting:
            raise NotKnownYet(
                "the controller is still reading the rules of the switches; try again in a moment", {}, RETRY_S
            )
        if not every:
            return
        routes, confirmed = s.routes.routes, self._derived.confirmed().routes
        for job_id in sorted(self._derived.missing().keys() & confirmed.keys()):
            text = f"job '{job_id}' waits for hosts, but switches hold routes of it, whose traffic is unknown"
            raise NotKnownYet(text, {"jobId": job_id})
        held = set[FlowId]().union(*confirmed.values())
        missing = [flow for flow, route in routes.items() if flow not in held and any(path for path, _ in route)]
        if missing:
            named = f"{missing[0].src_ip} > {missing[0].dst_ip}, {len(missing)} in all"
            text = f"the switches do not hold all routes, because some are under way or refused: {named}"
            raise NotKnownYet(text, {}, RETRY_S)

    def refuse(self, message: Request, error: SignalboxError) -> Effects:
        """Reply with the error; if changes wait for the disk, the reply waits with them.

        A waiting change may be the reason for the error, and that change may still be undone."""
        commits = self._state.commits
        if isinstance(error, InvalidInput) or not commits.holding:
            return commands(Reply(message.reply, error, after_status=False))
        commits.hold(message.reply, error, lambda _: None)
        return at_once(Work.SAVE)

    def not_saved(self, why: str, now: float) -> Effects:
        """Undo and refuse the requests that waited for a failed commit."""
        s, mode, held = self._state, self._state.mode, self._state.commits.holding
        replies = s.commits.failed(why, now)
        if not held:
            return NOTHING
        if s.mode is not mode:
            replies += s.sending.refuse_mode(s.commits.error)
        self.release_routes(now)
        return self._changed(now) | commands(*replies)

    def arrange(self, job: Job, arrangement: Arrangement, now: float) -> Effects:
        """Apply the arrangement of the extension to the job. Raises the errors of ``JobRegistry.arrange``."""
        self._state.jobs.arrange(job, arrangement)
        self.release_routes(now)
        return self._changed(now) | at_once(Work.SAVE)

    def release_routes(self, now: float) -> None:
        """Release the routes of jobs, or of pairs of jobs, that have been removed."""
        s = self._state
        s.demand.follow(s.jobs.jobs, now)
        s.routes.release(self._derived.jobs())
        s.cycle.stop_waiting(s.cycle.unplanned - s.jobs.jobs.keys())

    def _register(self, message: RegisterJob, now: float) -> Effects:
        s, spec = self._state, message.spec
        before = s.jobs.known(JobId(spec.job_id))
        with in_field("spec"):
            s.demand.refuse_unlearnable(spec)
        job = s.jobs.register(message, now)
        held = before.job
        if held and held.uid != job.uid:
            taken_over = s.jobs.ends.of(held.id, held.uid)
            when_saved = self._reply_when_saved(message.reply, job.uid, {job.id: before}, taken_over, job)
            if held.spec == spec and held.dividing == job.dividing:
                return when_saved
            self.release_routes(now)
            return self._changed(now) | when_saved
        when_saved = self._reply_when_saved(message.reply, job.uid, {job.id: before}, begun=job)
        if held:
            return when_saved
        s.demand.follow(s.jobs.jobs, now)
        claimed = s.mode is Mode.PLANNED and s.routes.claim(self._derived.jobs()[job.id])
        planned = s.mode is Mode.PLANNED and job.pairs
        if planned and not claimed and not missing_hosts(s.fabric.hosts, job.addresses):
            s.cycle.wait_for_plan(job.id)
        return self._changed(now) | when_saved

    def _update(self, message: UpdateJobs, now: float) -> Effects:
        """Change jobs. A pair that remains keeps its routes until the next plan, even if it moves to another job."""
        s = self._state
        before = {update.job_id: s.jobs.known(update.job_id) for update in message.updates}
        for update in message.updates:
            with in_entry(update.entry, "spec"):
                s.demand.refuse_unlearnable(update.spec)
        jobs = s.jobs.update(message.updates, message.quota)
        when_saved = self._reply_when_saved(message.reply, tuple(job.uid for job in jobs), before)
        if all(job is before[job.id].job for job in jobs):
            return when_saved
        self.release_routes(now)
        return self._changed(now) | when_saved

    def _deregister(self, message: DeregisterJob, now: float) -> Effects:
        s, job_id = self._state, message.job_id
        before = s.jobs.known(job_id)
        end = s.jobs.deregister(job_id, message.owner, message.ended_at, message.force, message.tenant)
        when_saved = self._reply_when_saved(message.reply, None, {job_id: before}, end)
        if end is None:
            return when_saved
        self.release_routes(now)
        return self._changed(now) | when_saved

    def _connections(self, message: ReportConnections, now: float) -> Effects:
        s, job_id, quota = self._state, message.job_id, message.quota
        before = s.jobs.known(job_id)
        job = s.jobs.report_connections(
            job_id, message.address, message.connections, message.owner, quota, message.places
        )
        when_saved = self._reply_when_saved(message.reply, None, {job_id: before})
        if before.job and before.job.dividing == job.dividing:
            return when_saved
        s.demand.connections_changed(job, now)
        s.routes.release(self._derived.jobs())
        return self._changed(now) | when_saved

    def _reply_when_saved(
        self,
        reply: Future[Any],
        value: object,
        before: Mapping[JobId, Known],
        end: JobEnd | None = None,
        begun: Job | None = None,
    ) -> Effects:
        """Reply when the change is on disk.

        A request that changes nothing waits too, because the state that it confirms may not be on disk yet. ``before``:
        the jobs before the request. ``end``: end of a registration, marked as final once it is on disk. ``begun``: job
        of a new registration, whose lease starts once it is on disk."""
        s = self._state

        def then(now: float) -> None:
            if end:
                s.jobs.ends.confirm(end)
            if begun:
                s.jobs.begin_lease(begun.id, begun.uid, now)

        jobs = tuple(known.job for known in before.values() if known.job)
        s.commits.hold(reply, value, partial(s.jobs.restore, before), then, jobs)
        return at_once(Work.SAVE)

    def _drain(self, message: DrainParts | UndrainParts) -> Effects:
        s = self._state
        if s.phases.adopting:
            raise NotKnownYet(
                "the controller is still reading the rules of the switches; try again in a moment", {}, RETRY_S
            )
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
        s.commits.hold(message.reply, named, undo)
        return at_once(Work.RULES, Work.PLAN, Work.SAVE)

    def _places_of_hosts(self, down: Mapping[PartKey, Part]) -> Mapping[str, Dpid]:
        """Return the switch of each host that jobs or the inventory file name.

        For a host that is down, this is the switch where the host was seen last."""
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
        s.commits.hold(None, None, lambda _: s.set_mode(before))
        s.set_mode(message.mode)
        if message.mode is Mode.ECMP:
            s.cycle.supersede()  # no plan will be adopted
        cycles = s.cycle.cycles_done + s.cycle.solving  # the cycle after the current one counts
        superseded = s.sending.wait_for_mode(message.reply, message.mode, cycles, now)
        if message.mode is not Mode.PLANNED:
            s.routes.replace({})
            s.routes.drop_orphans()
            s.cycle.stop_waiting(s.cycle.unplanned)
        return at_once(Work.RULES, Work.PLAN, Work.SAVE) | commands(*superseded)
