"""Time sharing in the control loop: jobs report iterations, and a plan gives them slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from controller.config import Config
from controller.contention.extension import REST_S, ContentionExtension, counts
from controller.contention.rhythm import KEPT, WINDOW, Rhythm
from controller.core.messages import Extension, Message
from controller.jobs.messages import DeregisterJob, RegisterJob, ReportIterations, UpdateJob
from controller.planning.messages import PlanningRequest, SetMode, SolvePlan
from controller.planning.plan import Circle, Planned, Sharing, Slot
from controller.planning.problem import Timing
from controller.status import JobTiming
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId
from signalbox.words import AlarmKind, Mode, SharingObjective
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.fake_planner import FakePlanner

A, B = JobId("a"), JobId("b")
LEASE_S = 86_400.0
COMPUTE_S = 0.5
HOSTS = {A: ["10.0.1.1", "10.0.2.1"], B: ["10.0.1.2", "10.0.2.2"]}
CIRCLE = Circle(1.0, {A: (Slot(0.0, 0.5),), B: (Slot(0.5, 0.5),)}, {A: 1, B: 1})
SHARING = Sharing((CIRCLE,), {}, {A: 1.0, B: 1.1}, {A: 1.5, B: 1.5}, 1.1, 1.0, 1.0, SharingObjective.WORST)


class _Planner(FakePlanner):
    def __init__(self, fabric: SharingFabric) -> None:
        super().__init__()
        self._fabric = fabric

    def answers(self, request: PlanningRequest) -> list[Message]:
        if isinstance(request, SolvePlan):
            self._fabric.timings = request.snapshot.timings
        sharing = self._fabric.sharing
        return [
            replace(each, sharing=sharing) if isinstance(each, Planned) else each for each in super().answers(request)
        ]


class SharingFabric(FakeFabric):
    """Fabric whose planner answers with ``sharing``, and whose jobs report iterations."""

    def __init__(self) -> None:
        super().__init__()
        self.sharing: Sharing | None = None
        self.timings: Mapping[JobId, Timing] = {}
        self.indices: dict[JobId, int] = {}
        self.planner = _Planner(self)

    def began(self, **contention: Any) -> SharingFabric:
        self.start(Config.model_validate({"contention": {"slots": True, **contention}}))
        for job_id, ips in HOSTS.items():
            self.request(RegisterJob(ring_job(job_id, ips, LEASE_S, keeps_slots=True)))
        self.run(3)
        return self

    def turn(
        self, count: int = 1, lead_s: float = 0.0, waited_s: float = 0.0, period_s: float = 1.0
    ) -> list[tuple[int, float | None]]:
        """Let both jobs do iterations; b begins too early by ``lead_s``. Return the latest answers."""
        answers: list[tuple[int, float | None]] = []
        for _ in range(count):
            answers = []
            for job_id, part in ((A, 0.5 + lead_s), (B, 0.5 - lead_s)):
                self.run(period_s * part, step=period_s * part)
                index = self.indices[job_id] = self.indices.get(job_id, -1) + 1
                took_s = period_s - waited_s
                time = IterationTime(index, took_s, took_s - COMPUTE_S, self.now, COMPUTE_S, waited_s)
                answers.append(self.request(ReportIterations(job_id, (time,))))
        return answers

    @property
    def raised(self) -> dict[AlarmKind, list[str]]:
        found: dict[AlarmKind, list[str]] = {}
        for kind, subject in sorted(self.status.alarms):
            found.setdefault(kind, []).append(subject)
        return found

    def timing(self, job_id: JobId = B) -> JobTiming:
        return self.status.extension.timings[job_id]


@pytest.fixture
def fabric() -> SharingFabric:
    return SharingFabric().began()


@pytest.fixture
def sharing(fabric: SharingFabric) -> SharingFabric:
    """Fabric after a plan with slots."""
    fabric.turn(12)
    fabric.sharing = SHARING
    fabric.turn(12)  # the next plan comes meanwhile
    assert fabric.timing().slot
    return fabric


def test_without_configuration_there_is_no_such_extension() -> None:
    plain = FakeFabric()
    plain.start()
    assert type(plain.loop.extension) is Extension
    classes = FakeFabric()
    classes.start(Config.model_validate({"contention": {"classes": 2}}))
    assert isinstance(classes.loop.extension, ContentionExtension)


def test_the_planner_gets_the_times_that_reports_show(fabric: SharingFabric) -> None:
    assert fabric.turn() == [(1, None), (1, None)]
    assert fabric.timings == {}
    assert fabric.timing().reason == "it has reported fewer than 8 iterations of its usual length"
    fabric.turn(12)
    timing = fabric.timings[B]
    assert ([each.compute_s for each in timing.phases], timing.keeps_slots) == ([0.5], True)
    told = fabric.timing()
    assert (told.state, told.reason, told.traffic_class) == (
        "free",
        "the plan has no slot for it: no circle with the jobs on its links makes iterations shorter",
        1,
    )
    assert (told.period_s, told.until_communication_s, told.jitter) == pytest.approx((1.0, 0.5, 0.0), abs=1e-6)


def test_answers_let_the_job_that_is_ahead_wait(sharing: SharingFabric) -> None:
    (_, first), (_, second) = sharing.turn(12, lead_s=0.2)
    assert first is not None
    assert first <= 0.0
    assert second == pytest.approx(0.1, abs=0.02)
    timing = sharing.timing()
    assert timing.slot
    assert (timing.slot.period_s, timing.slot.max_wait_s, timing.slot.number) == (1.0, 0.02, 1)
    assert (timing.state, timing.realignments) == ("aligning", 1)
    assert timing.drift_s == pytest.approx(0.1, abs=0.02)
    assert (timing.guaranteed_s, timing.promised_s, timing.slots) == (1.1, 1.5, ((0.5, 0.5),))


def test_a_job_that_begins_in_its_slot_keeps_it(sharing: SharingFabric) -> None:
    sharing.turn(WINDOW)
    assert [sharing.timing(job_id).state for job_id in HOSTS] == ["keeping", "keeping"]
    assert sharing.timing().changes == 1, "later plans with the same circle change nothing"


def test_a_job_that_ignores_its_slot_is_planned_without_one(sharing: SharingFabric) -> None:
    sharing.turn(WINDOW + 1, lead_s=0.3)
    assert sharing.timing().state == "ignoring"
    assert sharing.raised[AlarmKind.SLOT_IGNORED] == [B]
    sharing.run(1)
    assert [sharing.timings[job_id].keeps_slots for job_id in HOSTS] == [True, False]
    assert sharing.turn()[1] == (1, None)
    sharing.run(REST_S, step=1.0)
    assert AlarmKind.SLOT_IGNORED not in sharing.raised
    sharing.turn(1)
    sharing.run(20)
    assert sharing.timings[B].keeps_slots, "it may try again"


def test_slots_with_which_iterations_take_longer_are_withdrawn(sharing: SharingFabric) -> None:
    sharing.turn(KEPT + WINDOW, period_s=1.1)
    assert [sharing.timing(job_id).reason for job_id in HOSTS] == [
        "iterations on its circle took longer with slots than without"
    ] * 2
    assert sharing.timing().state == "free"
    sharing.run(1)
    assert not any(timing.keeps_slots for timing in sharing.timings.values())
    assert AlarmKind.SLOT_IGNORED not in sharing.raised


def test_other_jobs_end_the_comparison_with_earlier_iterations(sharing: SharingFabric) -> None:
    sharing.request(RegisterJob(ring_job("c", ["10.0.3.1", "10.0.4.1"], LEASE_S)))
    sharing.run(20)
    sharing.turn(KEPT + WINDOW, period_s=1.1)
    assert sharing.timing().state == "keeping"


def test_a_job_that_ends_makes_nobody_wait(sharing: SharingFabric) -> None:
    sharing.turn(12, lead_s=0.1)
    sharing.request(DeregisterJob(A, ended_at=0.0))
    sharing.run(10)
    time = IterationTime(99, 1.0, 0.5, sharing.now, 0.5)
    assert sharing.request(ReportIterations(B, (time,))) == (1, 0.0)
    assert A not in sharing.status.extension.timings


@pytest.mark.parametrize(("period_s", "heard_s", "silent_s"), [(0.02, 0.9, 1.1), (1.0, 3.9, 4.1)])
def test_a_job_is_silent_after_four_iterations_but_not_between_two_reports(
    period_s: float, heard_s: float, silent_s: float
) -> None:
    rhythm = Rhythm().and_now(IterationTime(n, period_s, period_s / 2, n * period_s) for n in range(9))
    assert [counts(rhythm, period_s, 8 * period_s + later_s) for later_s in (heard_s, silent_s)] == [True, False]


def test_a_job_with_other_traffic_is_measured_anew(sharing: SharingFabric) -> None:
    sharing.send(UpdateJob(ring_job(B, [*HOSTS[B], "10.0.3.2"], LEASE_S, keeps_slots=True), frozenset()))
    sharing.run(1)
    assert sharing.turn()[1] == (1, None)
    assert sharing.timing().reason == "it has reported fewer than 8 iterations of its usual length"


def test_a_plan_from_before_a_change_of_the_traffic_gives_no_slot_to_the_job(sharing: SharingFabric) -> None:
    sharing.send(UpdateJob(ring_job(B, [*HOSTS[B], "10.0.3.2"], LEASE_S, keeps_slots=True), frozenset()))
    index = sharing.indices[B] + 1
    sharing.request(ReportIterations(B, (IterationTime(index, 1.0, 0.5),)))  # its end is not known
    sharing.loop.extension.take_sharing(replace(SHARING, circles=(replace(CIRCLE, period_s=2.0),)))
    assert [sharing.timing(job_id).slot is not None for job_id in HOSTS] == [True, False]
    sharing.turn()
    assert sharing.timing().state == "free"


def test_another_registration_of_a_job_may_keep_slots(sharing: SharingFabric) -> None:
    sharing.turn(WINDOW + 1, lead_s=0.3)
    sharing.request(DeregisterJob(B, ended_at=0.0))
    sharing.request(RegisterJob(ring_job(B, HOSTS[B], LEASE_S, keeps_slots=True)))
    sharing.turn()
    assert sharing.timing().state == "free"
    assert AlarmKind.SLOT_IGNORED not in sharing.raised


def test_without_planned_routes_there_are_no_slots(sharing: SharingFabric) -> None:
    sharing.request(SetMode(Mode.ECMP))
    assert [sharing.timing(job_id).slot for job_id in HOSTS] == [None, None]


def test_classes_mark_packets(fabric: SharingFabric) -> None:
    fabric = SharingFabric().began(classes=2, dscp=[10, 18, 26])
    fabric.sharing = replace(SHARING, circles=(), class_of={A: 1, B: 2})
    fabric.turn(12)
    fabric.run(20)
    assert fabric.loop.extension.dscp == {A: 10, B: 18}
    assert (fabric.timing().traffic_class, fabric.timing().dscp, fabric.timing().changes) == (2, 18, 1)


@pytest.mark.parametrize(("index", "age_s"), [(1, 0.0), (0, 6e5)], ids=["duration", "age"])
def test_nobody_waits_for_a_job_that_claims_an_iteration_of_a_week(
    sharing: SharingFabric, index: int, age_s: float
) -> None:
    first = sharing.indices[B] + 1 + index
    for n, ended_at in enumerate((sharing.now - age_s, sharing.now)):
        time = IterationTime(first + 2 * index * n + n, 6e5, 0.5, ended_at, 0.5)
        sharing.request(ReportIterations(B, (time,)))
    waits = []
    for _ in range(WINDOW):
        sharing.run(1.01, step=1.01)
        sharing.indices[A] += 1
        time = IterationTime(sharing.indices[A], 1.0, 0.5, sharing.now, 0.5)
        waits.append(sharing.request(ReportIterations(A, (time,)))[1])
    assert set(waits) == {0.0}


def test_a_new_registration_has_no_times_of_the_one_before(sharing: SharingFabric) -> None:
    sharing.sharing = None
    sharing.request(DeregisterJob(B))
    sharing.request(RegisterJob(ring_job(B, HOSTS[B], LEASE_S, keeps_slots=True)))
    sharing.run(3)
    assert list(sharing.timings) == [A]
    assert B not in sharing.status.extension.timings
