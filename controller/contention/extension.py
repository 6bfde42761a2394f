"""Time sharing as an extension of the control loop (``core.messages``).

In: iteration reports, jobs, and the ``Sharing`` of each plan whose routes are in force. Out: times of jobs for the
planner, waits in the answers to reports, DSCP of jobs, alarms, and the published timing of each job.

A job gets a slot while it announces ``keeps_slots`` and is regular. It gets none for ``REST_S`` after it has ignored a
slot, or after slots have made a job of its circle slower. A job obeys the answer to a report for at most two iteration
boundaries, so it stops waiting if the controller ends.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.alarms import Alarm
from controller.config import Config
from controller.contention.keeping import NEAR, Member, leads_s, same_circle
from controller.contention.rhythm import USUAL, WINDOW, Mean, Rhythm
from controller.contention.timing import UNKNOWN, Measured, measured, timing, with_common_periods
from controller.core.messages import NO_EFFECTS, Arrange, Effects, Extension, Work, at_once, when_quiet
from controller.core.state import State
from controller.fabric.topology import Fabric
from controller.jobs.job import Job
from controller.planning.plan import Circle, Sharing
from controller.planning.problem import Timing
from controller.planning.snapshot import NO_TIMINGS
from controller.shared_map import Memo, SharedMap, differing, per_key, updated
from controller.status import CirclePart, ExtensionStatus, JobTiming, PublishedSlot, TimingState
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId, same_traffic
from signalbox.words import AlarmKind

REST_S = 600.0
"""Seconds for which a job gets no slot after it has ignored one, or after its circle has made a job slower."""
SILENT = 4.0
"""Number of iterations without a report after which a job no longer counts on its circle.

A job whose iterations take this many times as long as planned does not count either."""
LEAST_SILENT_S = 1.0
"""Smallest number of seconds of silence, because jobs report short iterations together."""
IGNORED = "its iterations have not begun in its slot"
SLOWER = "iterations on its circle took longer with slots than without"


@dataclass(slots=True)
class _Timed:
    """A registration that reports iterations."""

    job: Job
    rhythm: Rhythm = field(default_factory=Rhythm)
    member: Member | None = None
    slots: int = 0
    """Number of slots that the registration has had."""
    realignments: int = 0
    changes: int = 0
    """Number of changes of its slot and its DSCP."""

    def leave_circle(self) -> None:
        self.changes += self.member is not None
        self.member = None


class ContentionExtension(Extension):
    """Extension that measures the rhythms of jobs and gives the jobs the slots of the plan in force."""

    def __init__(self, config: Config, s: State) -> None:
        self._s = s
        self._of_config = config.contention
        self._debounce_s = config.planning.debounce_s
        self._timed: dict[JobId, _Timed] = {}
        self._measured: Mapping[JobId, Measured] = SharedMap()
        """Measured times of each job that the planner uses."""
        self._resting: Mapping[JobId, tuple[str, float]] = SharedMap()
        """Reason why a job gets no slot, and the time in monotonic seconds until which it gets none."""
        self._sharing: Sharing | None = None
        self._dscp: Mapping[JobId, int] = {}
        self._published: Mapping[JobId, JobTiming] = SharedMap()
        self._planned_jobs: Collection[str] = frozenset()
        """Uids of the registrations in the latest call of ``timings``."""
        self._timings = per_key(self._timing)
        self._with_common_periods = Memo(with_common_periods)
        self._given: Mapping[JobId, Timing] = NO_TIMINGS
        """Result of the latest call of ``timings``."""

    # ---- input

    def iterations_ended(self, job_id: JobId, new: Sequence[IterationTime], _arrange: Arrange, now: float) -> Effects:
        timed, effects = self._registered(self._s.jobs.jobs[job_id]), NO_EFFECTS
        timed.rhythm = timed.rhythm.and_now(new)
        found = measured(timed.rhythm, self._of_config.max_jitter)
        if found.differs(self._measured.get(job_id, UNKNOWN), timed.rhythm.error):
            self._measured = updated(self._measured, {job_id: found})
            effects = self._plan(now)
        if timed.member:
            effects |= self._follow(job_id, timed, timed.member, len(new), now)
        self._publish([job_id])
        return effects

    def tick(self, _arrange: Arrange, now: float) -> Effects:
        over = [job_id for job_id, (_, until) in self._resting.items() if until <= now]
        if not over:
            return NO_EFFECTS
        self._resting = updated(self._resting, dict.fromkeys(over))
        self._publish(over)
        return self._plan(now)

    def take_settings(self, config: Config) -> None:
        self._debounce_s = config.planning.debounce_s

    def take_sharing(self, sharing: Sharing | None) -> Effects:
        """Give the jobs their slots and classes. A job whose circle is about the same keeps its slot."""
        before, self._sharing = self._sharing, sharing
        circle_of = {job_id: circle for circle in sharing.circles for job_id in circle.slots} if sharing else {}
        kept = {id(circle): self._is_kept(circle) for circle in circle_of.values()}
        for job_id, timed in self._timed.items():
            circle = circle_of.get(job_id)
            if circle is None or job_id in self._resting or not timed.rhythm.beats:  # it may have changed meanwhile
                timed.leave_circle()
            elif timed.member and kept[id(circle)]:
                timed.member = replace(timed.member, circle=circle)
            else:
                timed.slots += 1
                timed.changes += 1
                timed.member = Member(circle, timed.slots, self._before(timed.rhythm, circle))
        dscp = self._of_config.dscp
        found = {job_id: dscp[number - 1] for job_id, number in sharing.class_of.items()} if sharing else {}
        marked_anew = [job_id for job_id, *_ in differing(self._dscp, found)]
        for job_id in marked_anew:
            if job_id in self._timed:
                self._timed[job_id].changes += 1
        self._dscp = found if marked_anew else self._dscp
        self._publish({job_id for of in (before, sharing) if of for job_id in of.guaranteed_s})
        return at_once(Work.RULES) if marked_anew else NO_EFFECTS

    # ---- output

    def wait_s(self, job_id: JobId) -> float | None:
        timed = self._timed.get(job_id)
        return timed.member.wait_s if timed and timed.member and timed.member.drifts_s else None

    def timings(self, jobs: Mapping[JobId, Job]) -> Mapping[JobId, Timing]:
        planned, registered = {job.uid for job in jobs.values()}, self._s.jobs.jobs
        if self._planned_jobs != planned:
            self._planned_jobs = planned
            self._timed = {
                job_id: timed
                for job_id, timed in self._timed.items()
                if job_id in registered and registered[job_id].uid == timed.job.uid
            }
            for timed in self._timed.values():  # later iterations may take longer because of other jobs
                timed.member = timed.member and replace(timed.member, before=None)
            gone = (self._measured.keys() | self._resting.keys() | self._published.keys()) - self._timed.keys()
            self._measured = updated(self._measured, dict.fromkeys(gone))
            self._resting = updated(self._resting, dict.fromkeys(gone))
            self._published = updated(self._published, dict.fromkeys(gone))
        self._given = self._with_common_periods(self._timings(jobs, self._measured, self._resting), self._measured)
        return self._given

    @property
    def dscp(self) -> Mapping[JobId, int]:
        return self._dscp

    def alarms(self, _fabric: Fabric) -> Iterable[Alarm]:
        return (
            Alarm(AlarmKind.SLOT_IGNORED, job_id, {"iterations": WINDOW})
            for job_id, (reason, _) in self._resting.items()
            if reason == IGNORED
        )

    def status(self) -> ExtensionStatus:
        return ExtensionStatus(timings=self._published, sharing=self._sharing)

    # ---- inside

    def _plan(self, now: float) -> Effects:
        return when_quiet(Work.PLAN, now, self._debounce_s)

    def _registered(self, job: Job) -> _Timed:
        timed = self._timed.get(job.id)
        if timed is None or timed.job.uid != job.uid:
            timed = self._timed[job.id] = _Timed(job)
            self._resting = updated(self._resting, {job.id: None})
        elif not same_traffic(timed.job.spec, job.spec):
            timed.rhythm = timed.rhythm.anew()
            timed.leave_circle()
        timed.job = job
        return timed

    def _timing(self, _: JobId, job: Job, found: Measured | None, resting: tuple[str, float] | None) -> Timing | None:
        of, hosts = self._of_config, self._s.fabric.hosts
        return timing(job, hosts, found or UNKNOWN, resting is None and of.slots, of.declared_work)

    def _follow(self, job_id: JobId, timed: _Timed, member: Member, new: int, now: float) -> Effects:
        """Follow a job with a slot; withdraw the slot if the job ignores it or becomes slower."""
        circle, rhythm = member.circle, timed.rhythm
        members = [
            (other, self._timed[other].member) for other in circle.slots.keys() - {job_id} if other in self._timed
        ]
        heard = self._heard(circle, now)
        waits_s = {other: max(0.0, each.wait_s) for other, each in members if each}
        next_at = {job: each.next_at(waits_s.get(job, 0.0)) for job, each in heard.items()}
        leads = leads_s(circle, next_at, now, rhythm.beats[-1].communication_s)
        near_s = NEAR * circle.every_s(job_id) + rhythm.jitter * (rhythm.computed_s or 0.0)
        others_near = all(each is not None and each.is_near for _, each in members)
        member = member.and_now(rhythm, new, leads, job_id, self._max_wait_s(circle, job_id), near_s, others_near)
        timed.realignments += member.left(timed.member)
        timed.member = member
        if member.ignores(near_s):
            return self._rest([job_id], IGNORED, now)
        return self._rest(circle.slots, SLOWER, now) if member.loses(rhythm, new) else NO_EFFECTS

    def _rest(self, jobs: Iterable[JobId], reason: str, now: float) -> Effects:
        resting = dict.fromkeys(jobs, (reason, now + REST_S))
        self._resting = updated(self._resting, resting)
        for job_id in resting.keys() & self._timed.keys():
            self._timed[job_id].leave_circle()
        self._publish(resting)
        return self._plan(now)

    def _heard(self, circle: Circle, now: float) -> Mapping[JobId, Rhythm]:
        """Return the rhythms of the members of the circle that have not fallen silent."""
        found = {job_id: self._timed[job_id] for job_id in circle.slots if job_id in self._timed}
        return {
            job_id: timed.rhythm
            for job_id, timed in found.items()
            if timed.member and timed.rhythm.beats and counts(timed.rhythm, circle.every_s(job_id), now)
        }

    def _is_kept(self, circle: Circle) -> bool:
        """Return whether all members already have slots at about the places that this circle gives them."""
        members = [timed.member for job_id in circle.slots if (timed := self._timed.get(job_id))]
        return all(member is not None and same_circle(member.circle, circle) for member in members)

    def _before(self, rhythm: Rhythm, circle: Circle) -> Mean | None:
        """Return the mean time of an iteration without slots, while all jobs of the circle were running."""
        members = (self._timed[job_id].rhythm.beats for job_id in circle.slots if job_id in self._timed)
        since = max(beats[0].ended_at for beats in members if beats)
        count = sum(beat.ended_at - (beat.interval_s or 0.0) >= since for beat in rhythm.beats)
        return rhythm.mean(min(count, WINDOW)) if count >= USUAL else None

    def _max_wait_s(self, circle: Circle, job_id: JobId) -> float:
        return self._of_config.max_wait * circle.every_s(job_id)

    def _publish(self, jobs: Iterable[JobId]) -> None:
        found = {job_id: self._status(job_id, self._timed[job_id]) for job_id in jobs if job_id in self._timed}
        self._published = updated(self._published, found)

    def _status(self, job_id: JobId, timed: _Timed) -> JobTiming:
        rhythm, member, sharing = timed.rhythm, timed.member, self._sharing
        known, given = rhythm.is_known, self._given.get(job_id)
        state, reason = self._state(job_id, timed)
        return JobTiming(
            state=state,
            reason=reason,
            traffic_class=sharing.class_of.get(job_id, 1) if sharing else 1,
            period_s=rhythm.period_s if known else None,
            until_communication_s=rhythm.until_s if known else None,
            jitter=rhythm.jitter if known else None,
            drift_s=member.drift_s if member else None,
            waited_s=rhythm.waited_s,
            guaranteed_s=sharing.guaranteed_s.get(job_id) if sharing else None,
            promised_s=sharing.promise_s.get(job_id) if sharing else None,
            slots=tuple(_parts(member.circle, job_id)) if member else (),
            ideal_s=math.fsum(each.compute_s + each.ideal_s for each in given.phases) if given else None,
            slot=self._slot(job_id, rhythm, member) if member else None,
            dscp=self._dscp.get(job_id),
            realignments=timed.realignments,
            changes=timed.changes,
        )

    def _state(self, job_id: JobId, timed: _Timed) -> tuple[TimingState, str]:
        if timed.member:
            return ("keeping" if timed.member.is_near else "aligning"), ""
        if resting := self._resting.get(job_id):
            return ("ignoring" if resting[0] == IGNORED else "free"), resting[0]
        return "free", self._why_free(timed)

    def _why_free(self, timed: _Timed) -> str:
        rhythm, most = timed.rhythm, self._of_config.max_jitter
        if not timed.job.spec.keeps_slots:
            return "it does not announce keeps_slots"
        if not rhythm.is_known:
            return f"it has reported fewer than {USUAL} iterations of its usual length"
        if rhythm.least_jitter > most:
            return f"its compute times vary by {rhythm.jitter:.1%}, more than {most:.1%} (contention.max_jitter)"
        if rhythm.computed_s is None and not timed.job.spec.compute:
            return "it reports no communication times, and announces no compute times"
        return "the plan has no slot for it: no circle with the jobs on its links makes iterations shorter"

    def _slot(self, job_id: JobId, rhythm: Rhythm, member: Member) -> PublishedSlot:
        circle, begins_at = member.circle, rhythm.beats[-1].ended_at + max(0.0, member.wait_s)
        return PublishedSlot(circle.every_s(job_id), begins_at, self._max_wait_s(circle, job_id), member.number)


def counts(rhythm: Rhythm, every_s: float, now: float) -> bool:
    """Return whether a job is neither silent nor too slow for a circle with iterations of ``every_s`` seconds."""
    recent_s = rhythm.recent_s
    return recent_s < SILENT * every_s and now - rhythm.beats[-1].ended_at < max(LEAST_SILENT_S, SILENT * recent_s)


def _parts(circle: Circle, job_id: JobId) -> Iterator[CirclePart]:
    for start_s, length_s in circle.slots[job_id]:
        yield CirclePart(start_s / circle.period_s % 1.0, length_s / circle.period_s)
