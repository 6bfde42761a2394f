"""Calls of a job to its controller, also when that does not answer, forgets the job, or comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from mininet_topos.trainer.announcer import Announcer, announcement
from signalbox.client import Registered
from signalbox.errors import NotFound
from signalbox.jobs.reports import Connected, IterationTime
from signalbox.jobs.spec import Algorithm, JobSpec
from signalbox.v1 import signalbox_pb2 as pb

DEADLINE_S = 30.0
SPEC = announcement("job", ("10.0.1.1", "10.0.2.1"), Algorithm.RING_ALL_REDUCE, 4000, lease_s=1.0).model_copy(
    update={"lease_s": 0.04}
)


@dataclass
class RecordingController:
    """Stores jobs as the controller does; ``away`` makes every call fail."""

    away: bool = False
    jobs: dict[str, JobSpec] = field(default_factory=dict)
    registrations: int = 0
    renewals: int = 0
    failures: int = 0
    reported: list[int] = field(default_factory=list)
    told: list[tuple[str, set[Connected]]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    request_ids: set[str] = field(default_factory=set)
    connections: int = 0
    closed: int = 0

    def connect(self) -> RecordingController:
        self.connections += 1
        return self

    def close(self) -> None:
        self.closed += 1

    def register_job(self, spec: JobSpec, *, lease_token: str, request_id: str) -> Registered:
        self._answer()
        self.registrations += 1
        assert not lease_token or lease_token in self.tokens
        self.request_ids.add(request_id)
        self.jobs[spec.job_id] = spec
        self.tokens.append(f"token {self.registrations}")
        return Registered(pb.Job(), self.tokens[-1])

    def renew_lease(self, job_id: str, lease_token: str) -> None:
        self._answer(job_id, lease_token)
        self.renewals += 1

    def report_iterations(self, job_id: str, iterations: Sequence[IterationTime], lease_token: str) -> None:
        self._answer(job_id, lease_token)
        self.reported += [iteration.index for iteration in iterations]

    def report_connections(self, job_id: str, address: str, connections: Iterable[Connected], lease_token: str) -> None:
        self._answer(job_id, lease_token)
        self.told.append((address, set(connections)))

    def deregister_job(self, job_id: str, lease_token: str) -> None:
        self._answer(job_id, lease_token)
        del self.jobs[job_id]

    def _answer(self, job_id: str | None = None, lease_token: str = "") -> None:
        if self.away:
            self.failures += 1
            raise ConnectionError("no controller")
        if job_id is not None and job_id not in self.jobs:
            raise NotFound(job_id)
        assert job_id is None or lease_token == self.tokens[-1]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def took(index: int) -> IterationTime:
    return IterationTime(index, 1.0, 0.9)


def test_a_job_is_registered_once_and_its_lease_renewed() -> None:
    controller = RecordingController()
    with Announcer(controller.connect, SPEC):
        until(lambda: controller.renewals >= 3)
        assert controller.jobs == {"job": SPEC}
    assert controller.registrations == 1


def test_the_job_is_gone_after_training() -> None:
    controller = RecordingController()
    with Announcer(controller.connect, SPEC) as announcer:
        until(lambda: controller.registrations == 1)
        announcer.report(took(0))
    assert controller.jobs == {}
    assert controller.reported == [0]


def test_each_iteration_is_reported_once_and_in_order() -> None:
    controller = RecordingController()
    with Announcer(controller.connect, SPEC) as announcer:
        for index in range(50):
            announcer.report(took(index))
            until(lambda seen=index // 10: controller.renewals >= seen)  # type: ignore[misc]
    assert controller.reported == list(range(50))


def test_a_forgotten_job_is_registered_again() -> None:
    controller = RecordingController()
    with Announcer(controller.connect, SPEC):
        until(lambda: controller.renewals >= 1)
        controller.jobs.clear()
        until(lambda: controller.registrations == 2)
    assert len(controller.request_ids) == 2, "a request id names one registration"


REPORTING = SPEC.model_copy(update={"reports_connections": True})
THERE, BACK = Connected("10.0.1.1", 40_001, "10.0.2.1", 50_001), Connected("10.0.2.1", 40_002, "10.0.1.1", 50_002)


def test_connections_are_reported_once_all_are_open_and_again_when_the_job_was_forgotten() -> None:
    controller = RecordingController()
    opened: list[frozenset[Connected]] = []
    with Announcer(controller.connect, REPORTING, lambda: opened[0] if opened else None):
        until(lambda: controller.renewals >= 2)
        assert not controller.told
        opened.append(frozenset({THERE, BACK}))
        once = [("10.0.1.1", {THERE}), ("10.0.2.1", {BACK})]
        until(lambda: len(controller.told) == 2)
        renewals = controller.renewals
        until(lambda: controller.renewals >= renewals + 2)
        assert controller.told == once
        controller.jobs.clear()
        until(lambda: len(controller.told) == 4)
    assert controller.told == once * 2


def test_a_job_that_does_not_report_its_connections_keeps_them() -> None:
    controller = RecordingController()
    with Announcer(controller.connect, SPEC, lambda: frozenset({THERE})):
        until(lambda: controller.renewals >= 3)
    assert not controller.told


def test_a_controller_that_comes_back_hears_of_the_time_between() -> None:
    controller = RecordingController(away=True)
    with Announcer(controller.connect, SPEC) as announcer:
        announcer.report(took(0))
        announcer.report(took(1))
        until(lambda: controller.failures >= 3)
        controller.away = False
        until(lambda: controller.reported == [0, 1])


def test_the_latest_iterations_survive_a_long_absence() -> None:
    controller = RecordingController(away=True)
    with Announcer(controller.connect, SPEC) as announcer:
        for index in range(1500):
            announcer.report(took(index))
        controller.away = False
        until(lambda: bool(controller.reported))
    assert controller.reported == list(range(500, 1500))


def test_a_failed_connection_is_not_used_again() -> None:
    controller = RecordingController(away=True)
    with Announcer(controller.connect, SPEC):
        until(lambda: controller.connections >= 3)
        controller.away = False
        until(lambda: controller.renewals >= 3)
    assert controller.closed == controller.connections
