"""A change is acknowledged when it is on disk; when it cannot be, it is taken back."""

from __future__ import annotations

from typing import Any

import pytest

from controller.alarms import AlarmKind
from controller.config import Config, FabricConfig, Strategy
from controller.core.messages import Reply
from controller.errors import Unavailable
from controller.jobs.messages import (
    Connected,
    DeregisterJob,
    RegisterJob,
    ReportConnections,
    StateNotSaved,
    StateSaved,
    UpdateJob,
)
from controller.jobs.spec import JobId, JobSpec
from controller.planning.messages import SetStrategy
from tests.support.fake_fabric import FABRIC_BPS, FakeFabric, ring_job

CONFIG = Config(fabric=FabricConfig(link_bps=FABRIC_BPS, host_link_bps=FABRIC_BPS))
HOSTS = [f"10.0.{leaf}.1" for leaf in range(1, 5)]
FULL = "database or disk is full"


@pytest.fixture
def fabric() -> FakeFabric:
    fabric = FakeFabric(4, 4, 1)
    fabric.start(CONFIG)
    fabric.run(3)
    return fabric


def answers(fabric: FakeFabric) -> list[Any]:
    """Values of the replies since this was asked last."""
    values = [reply.value for reply in fabric.replies]
    fabric.replies.clear()
    return values


def uid(fabric: FakeFabric, job_id: str) -> str:
    return fabric.status.jobs[JobId(job_id)].uid


def alarms(fabric: FakeFabric) -> set[AlarmKind]:
    return {alarm.kind for alarm in fabric.status.alarms.values()}


def test_a_registration_that_cannot_be_saved_is_refused_and_nothing_of_it_stays(fabric: FakeFabric) -> None:
    fabric.disk_error = FULL
    fabric.send(RegisterJob(ring_job("job", HOSTS, lease_s=600)))
    (refused,) = answers(fabric)
    assert isinstance(refused, Unavailable)
    assert FULL in str(refused)
    assert refused.retry_s > 0
    fabric.run(1)
    assert not fabric.status.jobs
    assert fabric.status.pins == 0
    assert alarms(fabric) == {AlarmKind.STATE_NOT_SAVED}
    assert fabric.status.state_failures > 0
    fabric.disk_error = ""
    fabric.run(6)
    assert not alarms(fabric), "it was tried again"
    fabric.send(RegisterJob(ring_job("job", HOSTS, lease_s=600)))
    assert answers(fabric) == [uid(fabric, "job")]
    fabric.run(1)
    assert fabric.saved.jobs
    assert not alarms(fabric)


def test_a_job_whose_end_cannot_be_saved_keeps_its_routes(fabric: FakeFabric) -> None:
    fabric.send(RegisterJob(ring_job("job", HOSTS, lease_s=600)))
    fabric.run(1)
    routes = fabric.status.jobs[JobId("job")].routes
    fabric.disk_error = FULL
    answers(fabric)
    fabric.send(DeregisterJob(JobId("job")))
    assert isinstance(answers(fabric)[0], Unavailable)
    fabric.run(2)
    assert fabric.status.jobs[JobId("job")].state == "pinned"
    assert fabric.status.jobs[JobId("job")].routes == routes
    fabric.disk_error = ""
    fabric.send(DeregisterJob(JobId("job")))
    assert answers(fabric) == [None]
    assert not fabric.saved.jobs


def test_an_update_that_cannot_be_saved_is_taken_back(fabric: FakeFabric) -> None:
    before, after = ring_job("job", HOSTS, lease_s=600), ring_job("job", HOSTS[:3], lease_s=600)
    fabric.send(RegisterJob(before))
    fabric.run(1)
    answers(fabric)
    fabric.disk_error = FULL
    fabric.send(UpdateJob(after))
    assert isinstance(answers(fabric)[0], Unavailable)
    fabric.run(2)
    job = fabric.status.jobs[JobId("job")]
    assert (job.spec, job.state, len(job.routes)) == (before, "pinned", 4)
    fabric.disk_error = ""
    fabric.send(UpdateJob(after))
    assert answers(fabric) == [uid(fabric, "job")]
    assert [job.spec for job in fabric.saved.jobs.values()] == [after]


def test_a_strategy_that_cannot_be_saved_is_set_back(fabric: FakeFabric) -> None:
    fabric.send(RegisterJob(ring_job("job", HOSTS, lease_s=600)))
    fabric.run(1)
    answers(fabric)
    fabric.disk_error = FULL
    fabric.send(SetStrategy(Strategy.ECMP))
    fabric.run(2)
    assert [type(answer) for answer in answers(fabric)] == [Unavailable]
    assert fabric.status.strategy is Strategy.PLANNED
    assert fabric.status.jobs[JobId("job")].state == "pinned"


def test_connections_that_cannot_be_saved_are_those_before(fabric: FakeFabric) -> None:
    spec = JobSpec.parse({**ring_job("job", HOSTS, lease_s=600).model_dump(), "reports_connections": True})
    first, second = (frozenset({Connected(HOSTS[0], port, HOSTS[1], 6000)}) for port in (5000, 5001))
    fabric.send(RegisterJob(spec))
    fabric.send(ReportConnections(JobId("job"), HOSTS[0], first))
    answers(fabric)
    fabric.disk_error = FULL
    fabric.send(ReportConnections(JobId("job"), HOSTS[0], second))
    assert isinstance(answers(fabric)[0], Unavailable)
    assert fabric.loop.state.jobs.connections == {"job": first}
    other = JobSpec.parse({**spec.model_dump(), "job_id": "other"})
    fabric.disk_error = ""
    fabric.send(RegisterJob(other))
    fabric.send(ReportConnections(JobId("other"), HOSTS[0], second))
    assert answers(fabric) == [uid(fabric, "other"), None], "what was refused is free"


def test_what_no_request_waits_for_is_written_when_the_disk_is_back(fabric: FakeFabric) -> None:
    fabric.send(RegisterJob(ring_job("job", HOSTS, lease_s=5)))
    fabric.disk_error = FULL
    fabric.run(8)
    assert not fabric.status.jobs
    assert fabric.saved.jobs
    fabric.disk_error = ""
    fabric.run(6)
    assert not fabric.saved.jobs
    assert not alarms(fabric)


class SlowDisk(FakeFabric):
    """Answers when it is asked to."""

    def _carry_out(self, command: Any) -> list[Any]:
        answered = super()._carry_out(command)
        self.waiting += [message for message in answered if isinstance(message, StateSaved)]
        return [message for message in answered if not isinstance(message, StateSaved)]

    waiting: list[StateSaved]

    def answer(self) -> None:
        """The oldest commit."""
        self.send(self.waiting.pop(0))


def test_replies_wait_for_the_disk_and_nothing_else_does() -> None:
    fabric = SlowDisk(4, 4, 1)
    fabric.waiting = []
    fabric.start(CONFIG)
    fabric.run(3)
    for number in (1, 2, 3):
        fabric.send(RegisterJob(ring_job(f"job{number}", HOSTS[number - 1 : number + 1], lease_s=600)))
    fabric.run(1)
    assert fabric.replies == []
    assert fabric.status.jobs[JobId("job1")].state == "pinned", "routes do not wait"
    assert len(fabric.waiting) == 1
    fabric.answer()
    assert answers(fabric) == [uid(fabric, "job1")]
    assert len(fabric.waiting) == 1, "those that came meanwhile share a commit"
    assert AlarmKind.STATE_NOT_SAVED not in alarms(fabric)
    fabric.run(3)
    assert AlarmKind.STATE_NOT_SAVED in alarms(fabric), "a disk that does not answer"
    fabric.answer()
    assert answers(fabric) == [uid(fabric, "job2"), uid(fabric, "job3")]
    fabric.run(0.5)
    assert AlarmKind.STATE_NOT_SAVED not in alarms(fabric)


def test_all_that_is_not_on_disk_is_taken_back_newest_first() -> None:
    """The second job uses the pairs that the end of the first has freed."""
    fabric = SlowDisk(4, 4, 1)
    fabric.waiting = []
    fabric.start(CONFIG)
    fabric.run(3)
    fabric.send(RegisterJob(ring_job("first", HOSTS, lease_s=600)))
    fabric.answer()
    answers(fabric)
    fabric.send(DeregisterJob(JobId("first")))
    fabric.send(RegisterJob(ring_job("second", HOSTS, lease_s=600)))
    fabric.waiting.clear()
    fabric.disk_error = FULL

    fabric.send(StateNotSaved(FULL))
    replies: list[Reply] = fabric.replies
    assert all(isinstance(reply.value, Unavailable) for reply in replies)
    assert len(replies) == 2
    assert list(fabric.status.jobs) == ["first"]
