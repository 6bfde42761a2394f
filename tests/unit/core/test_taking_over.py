"""A registration ends and another begins under the same id: routes, saved state and replies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.messages import Tick
from controller.jobs.messages import (
    DeregisterJob,
    EndReason,
    RegisterJob,
    Registration,
    RenewLease,
    ReportConnections,
    StateNotSaved,
)
from controller.tables.rules import host_prefix
from signalbox.errors import Gone, InvalidInput, NotFound, Unavailable
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import JobId, JobSpec
from tests.support.by_id import registered
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.late_answers import SlowDisk
from tests.support.three_rings import started
from tests.unit.core.test_commits import CONFIG, FULL

JOB = JobId("job")
HOSTS = [f"10.0.{leaf}.1" for leaf in range(1, 5)]
SPEC = ring_job("job", HOSTS, lease_s=600)


def answer(fabric: FakeFabric) -> Any:
    value = fabric.replies[-1].value
    fabric.replies.clear()
    return value


@pytest.fixture
def fabric() -> FakeFabric:
    fabric = started(FakeFabric(4, 4, 1), config=CONFIG)
    fabric.send(RegisterJob(SPEC, uid="old", tenant="red"))
    fabric.run(3)
    assert fabric.job().state == "pinned"
    return fabric


def told(fabric: FakeFabric) -> list[tuple[str, EndReason]]:
    return [(end.uid, end.reason) for end in fabric.status.job_ends]


def take_over(fabric: FakeFabric, spec: JobSpec = SPEC) -> None:
    fabric.send(RegisterJob(spec, owner="", take_over=True, uid="new", registered_at=5e8))  # an operator


def test_taking_over_with_the_same_spec_keeps_the_routes(fabric: FakeFabric) -> None:
    before = fabric.job()
    fabric.forget_mods()
    take_over(fabric)
    assert answer(fabric) == "new"
    fabric.run(5)
    after = fabric.job()
    assert (after.uid, after.registration.tenant, after.state, after.routes) == ("new", "", "pinned", before.routes)
    assert not fabric.mods
    assert [job.uid for job in fabric.saved.jobs.values()] == ["new"]
    (end,) = fabric.status.job_ends
    assert (end.job_id, end.uid, end.tenant, end.reason, end.ended_at) == (JOB, "old", "red", EndReason.TAKEN_OVER, 5e8)
    assert fabric.status.jobs_ended[EndReason.TAKEN_OVER] == 1
    fabric.send(RenewLease(JOB, "old"))
    assert isinstance(answer(fabric), NotFound)
    fabric.send(RenewLease(JOB, "new"))
    assert answer(fabric) == 600.0


@pytest.mark.parametrize("hosts", [4, 3])
def test_taking_over_that_cannot_be_saved_is_undone(fabric: FakeFabric, hosts: int) -> None:
    routes = fabric.job().routes
    fabric.disk_error = FULL
    take_over(fabric, ring_job("job", HOSTS[:hosts], lease_s=600))
    assert isinstance(answer(fabric), Unavailable)
    fabric.run(2)
    job = fabric.job()
    assert (job.uid, job.spec, job.routes) == ("old", SPEC, routes)
    assert fabric.status.job_ends == ()
    assert set(fabric.loop.state.demand.demands[JOB].declared) == {flow.pair for flow in routes}
    fabric.send(RenewLease(JOB, "old"))
    assert answer(fabric) == 600.0
    fabric.disk_error = ""
    fabric.run(6)
    assert fabric.saved.ends == {}


SECOND = JobId("second")


@pytest.fixture
def sharing(fabric: FakeFabric) -> FakeFabric:
    """Return a fabric where two jobs each report a connection between the same hosts.

    The connection of the second job has its own rule."""
    for job_id, port in ((JOB, 5000), (SECOND, 7000)):
        spec = ring_job(job_id, HOSTS, lease_s=600, reports_connections=True)
        fabric.send(RegisterJob(spec, owner="", take_over=True, uid=f"new {job_id}"))
        fabric.send(ReportConnections(job_id, HOSTS[0], connected(port)))
    fabric.run(3)
    assert rules_of_ports(fabric) == {7000}
    fabric.replies.clear()
    return fabric


def connected(*ports: int) -> frozenset[Connected]:
    return frozenset(Connected(HOSTS[0], port, HOSTS[1], 6000) for port in ports)


@pytest.mark.parametrize("hosts", [4, 3])
def test_taking_over_forgets_the_connections_of_before_with_their_rules(sharing: FakeFabric, hosts: int) -> None:
    spec = ring_job(SECOND, HOSTS[:hosts], lease_s=600, reports_connections=True)
    sharing.send(RegisterJob(spec, owner="", take_over=True, uid="newer"))
    assert answer(sharing) == "newer"
    assert sharing.saved.connections == {JOB: connected(5000)}
    sharing.run(3)
    assert not rules_of_ports(sharing)
    assert not sharing.status.jobs[SECOND].dividing.connections
    sharing.send(ReportConnections(JOB, HOSTS[0], connected(5000, 7000)))
    assert answer(sharing) is None, "the connection is free"
    sharing.send(ReportConnections(SECOND, HOSTS[0], connected(8000)))
    sharing.run(3)
    assert rules_of_ports(sharing) == {8000}


def rules_of_ports(fabric: FakeFabric) -> set[int]:
    keys = (key for switch in fabric.switches.values() for key in switch.flows if key.match.ip_src)
    ports = (key.match.src_port for key in keys if key.match.ip_src == host_prefix(HOSTS[0]))
    return {port.value for port in ports if port is not None}


def test_an_end_is_told_when_it_is_on_disk_also_to_who_asks_again() -> None:
    fabric = SlowDisk(4, 4, 1)
    fabric.start(CONFIG)
    fabric.send(RegisterJob(SPEC, uid="first"))
    fabric.answer()
    assert JOB in fabric.status.jobs
    fabric.send(DeregisterJob(JOB, "first"))
    assert JOB not in fabric.loop.state.jobs.jobs
    assert JOB in fabric.status.jobs
    assert told(fabric) == []
    fabric.send(StateNotSaved(FULL))
    fabric.late.clear()
    assert JOB in fabric.status.jobs
    fabric.replies.clear()
    for _ in range(2):
        fabric.send(DeregisterJob(JOB, "first"))
    assert fabric.replies == []
    fabric.answer()
    assert told(fabric) == [("first", EndReason.DEREGISTERED)]
    while fabric.late:
        fabric.answer()
    assert [reply.value for reply in fabric.replies] == [None, None]


def test_a_lease_that_runs_out_is_told_with_the_time(fabric: FakeFabric) -> None:
    fabric.run(596, step=0.5)
    for _ in range(3):
        fabric.now += 0.5
        fabric.send(Tick(at=7e8))
    end = fabric.status.job_ends[-1]
    assert (end.uid, end.reason, end.ended_at) == ("old", EndReason.LEASE_RAN_OUT, 7e8)


def test_owners_and_how_their_registrations_ended_outlive_a_restart(fabric: FakeFabric) -> None:
    fabric.start(CONFIG)
    fabric.run(3)
    fabric.send(RenewLease(JOB, "old"))
    assert answer(fabric) == 600.0
    assert fabric.job().registration.tenant == "red"
    take_over(fabric)
    fabric.send(DeregisterJob(JOB, "new"))
    fabric.start(CONFIG)
    assert told(fabric) == [("old", EndReason.TAKEN_OVER), ("new", EndReason.DEREGISTERED)]
    for uid, reason in (("old", Gone.JOB_TAKEN_OVER), ("new", Gone.JOB_DEREGISTERED)):
        fabric.send(RenewLease(JOB, uid))
        assert answer(fabric).reason is reason
    fabric.send(DeregisterJob(JOB, "new"))
    assert answer(fabric) is None, "as if the answer to the first time had been lost"
    assert told(fabric) == [("old", EndReason.TAKEN_OVER), ("new", EndReason.DEREGISTERED)]


def test_a_start_over_a_lowered_limit_is_refused_with_the_names_of_the_jobs_beyond_it(fabric: FakeFabric) -> None:
    more = [Registration(ring_job(f"more{number}", [f"10.7.{number}.1", f"10.7.{number}.2"])) for number in range(3)]
    fabric.saved = replace(fabric.saved, jobs={**fabric.saved.jobs, **registered(*more)})
    lowered = CONFIG.model_copy(update={"jobs": CONFIG.jobs.model_copy(update={"max_jobs": 2})})
    with pytest.raises(InvalidInput) as error:
        fabric.start(lowered)
    text = str(error.value)
    assert "job 'more1'" in text
    assert "job 'more2'" in text
    assert "'more0'" not in text
    assert "Nothing was changed. Raise the limit (jobs.max_jobs is 2, " in text
