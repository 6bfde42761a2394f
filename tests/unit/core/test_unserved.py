"""Jobs without service lower the network's efficiency to 0; the efficiency has no value when nothing is known."""

from __future__ import annotations

import pytest

from controller.config import PlanningConfig
from controller.fabric.topology import Dpid, PortNo
from controller.jobs.messages import DeregisterJob, RegisterJob
from controller.planning.analysis.job import analyse
from controller.planning.analysis.messages import Analyse, Explain, JobAnalysis, Verdict
from controller.planning.messages import SetMode
from signalbox.jobs.spec import JobId
from signalbox.words import Mode
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.late_answers import SlowSolver
from tests.support.three_rings import CONFIG, RINGS, register, started

JOB0, JOB1 = JobId("job0"), JobId("job1")


@pytest.fixture
def fabric() -> FakeFabric:
    """Return a fabric with three planned, running jobs."""
    return started(FakeFabric(), 0, 1, 2)


def cut_off(fabric: FakeFabric, leaf: Dpid) -> None:
    for port in range(1, 5):
        fabric.cut(leaf, PortNo(port))
    fabric.run(3)


def test_a_job_whose_host_has_a_dead_cable_counts_nothing_until_it_lives_again(fabric: FakeFabric) -> None:
    at = fabric.hosts[RINGS[0][0]]
    fabric.cut(*at)
    fabric.run(3)
    status = fabric.status
    dead, other = status.jobs[JOB0], status.jobs[JOB1]
    assert (dead.flows_without_path, dead.efficiency_predicted) == (2, 0.0), "from the host and to it"
    assert other.flows_without_path == 0
    assert other.efficiency_predicted == pytest.approx(1.0)
    assert (status.unserved, status.network_efficiency) == ({"no_path": 1}, 0.0)
    (asked,) = [c for c in fabric.loop.handle([Explain(JOB0)], fabric.now) if isinstance(c, Analyse)]
    explained = analyse(asked.request)
    assert isinstance(explained, JobAnalysis)
    assert (explained.verdict, explained.flows_without_a_path) == (Verdict.CUT_OFF, 2)
    fabric.plug(*at)
    fabric.run(3)
    assert not fabric.status.unserved
    assert fabric.status.network_efficiency == pytest.approx(1.0)


@pytest.mark.parametrize("mode", list(Mode))
def test_jobs_of_a_leaf_that_is_cut_off_have_flows_without_a_path(fabric: FakeFabric, mode: Mode) -> None:
    fabric.send(SetMode(mode))
    fabric.run(3)
    assert (fabric.status.network_efficiency or 0) > 0.4, "of ECMP it is the mean over hash draws"
    cut_off(fabric, Dpid(1))
    status = fabric.status
    assert {job.flows_without_path for job in status.jobs.values()} == {2}
    assert (status.unserved, status.network_efficiency) == ({"no_path": 3}, 0.0)


def test_a_job_between_hosts_of_one_leaf_is_served_when_its_leaf_is_cut_off(fabric: FakeFabric) -> None:
    for job_id in list(fabric.status.jobs):
        fabric.send(DeregisterJob(job_id))
    assert fabric.status.network_efficiency is None, "there is no job"
    fabric.send(RegisterJob(ring_job("inside", ["10.0.1.1", "10.0.1.2"])))
    cut_off(fabric, Dpid(1))
    assert fabric.status.network_efficiency == pytest.approx(1.0)


def test_a_job_counts_nothing_until_it_is_planned() -> None:
    fabric = started(SlowSolver())
    register(fabric, 0)
    fabric.run(1)
    assert (fabric.status.unserved, fabric.status.network_efficiency) == ({"unplanned": 1}, 0.0)
    assert fabric.status.jobs[JOB0].efficiency_predicted is None, "it is not known"
    fabric.solve()
    assert fabric.status.network_efficiency == pytest.approx(1.0)
    fabric.send(DeregisterJob(JOB0))
    register(fabric, 0)
    assert fabric.status.jobs[JOB0].slowdown == 0.0, "that of an earlier registration says nothing of this one"


def test_where_all_is_hashed_no_job_is_unplanned() -> None:
    shadow = CONFIG.model_copy(update={"planning": PlanningConfig(mode=Mode.SHADOW)})
    fabric = started(SlowSolver(), config=shadow)
    register(fabric, 0)
    fabric.run(1)
    assert fabric.solving
    assert not fabric.status.unserved


def test_while_rules_are_adopted_nothing_is_said(fabric: FakeFabric) -> None:
    fabric.start(CONFIG, late=fabric.switches)
    assert fabric.status.adopting
    assert fabric.status.jobs
    assert fabric.status.network_efficiency is None
    fabric.connect(*fabric.switches)
    fabric.run(10)
    assert fabric.status.network_efficiency == pytest.approx(1.0)
