"""The published status of each job: it follows from the job's own changes, and says whether the job is served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from controller.config import PlanningConfig
from controller.core.job_statuses import JobStatuses, prediction_withheld
from controller.demand.job_demand import DemandSource, JobDemand
from controller.demand.measured_demand import MeasuredJobs
from controller.fabric.topology import Dpid, Host, PortNo
from controller.jobs.job import Job
from controller.jobs.messages import DeregisterJob, RegisterJob
from controller.jobs.registry import JobRegistry
from controller.planning.analysis.dispatch import analyse
from controller.planning.analysis.messages import Analyse, Explain, JobAnalysis, Verdict
from controller.planning.messages import SetMode
from controller.planning.plan import Slowdowns
from controller.status import JobStatus
from offline.scenarios.fabrics import leaf_spine
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.spec import JobId, JobSpec, Striping
from signalbox.words import Mode
from tests.support.by_id import by_id
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.late_answers import SlowSolver
from tests.support.three_rings import CONFIG, RINGS, register, started

HOSTS = leaf_spine(3, 2, 2, 1e9, 2e9).hosts
A, B = JobId("a"), JobId("b")


def job_of(job_id: str, ips: list[str], **more: Any) -> Job:
    return JobRegistry(10).register(RegisterJob(ring_job(job_id, ips, **more)), 0.0)


def told(statuses: JobStatuses, *jobs: Job, hosts: Mapping[str, Host] = HOSTS) -> Mapping[JobId, JobStatus]:
    return statuses(by_id(*jobs), {}, {}, hosts, {}, {}, Slowdowns(1, {A: 2.0, B: 2.0}))


def test_a_job_that_changes_is_told_beside_one_whose_hosts_do() -> None:
    statuses, a, b = JobStatuses(), job_of("a", ["10.0.0.1", "10.0.1.1"]), job_of("b", ["10.0.0.2", "10.0.1.2"])
    before = told(statuses, a, b)
    assert (before[A].routes_generation, before[A].routes_known) == (0, False)
    other = job_of("a", ["10.0.0.1", "10.0.1.1"], max_subflows=2)
    slower = {ip: replace(host, nic_bps=host.nic_bps / 2) if ip in b.addresses else host for ip, host in HOSTS.items()}
    after = told(statuses, other, b, hosts=slower)
    assert after[A].dividing.max_subflows == 2
    assert after[B].ideal_communication_s == 2 * before[B].ideal_communication_s


def test_changes_of_pairs_count_from_each_registration() -> None:
    statuses, near, far = JobStatuses(), job_of("a", ["10.0.0.1", "10.0.1.1"]), job_of("a", ["10.0.0.1", "10.0.2.1"])
    assert [told(statuses, job)[A].routes_generation for job in (near, far, far, near)] == [0, 1, 1, 2]
    assert told(statuses) == {}
    assert told(statuses, near)[A].routes_generation == 0


# ---- jobs that get a prediction of their communication time


def one_job(ranks: int, algorithm: str = "", **more: Any) -> Job:
    """Return a job with this collective, or without one a job that sends from its first rank to its second."""
    endpoints = [f"10.0.{number}.1" for number in range(ranks)]
    groups = [{"name": "all", "ranks": list(range(ranks))}]
    collectives = [{"algorithm": algorithm, "groups": ["all"], "bytes_per_iteration": 480_000}]
    transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 480_000}]
    sent = {"groups": groups, "collectives": collectives} if algorithm else {"transfers": transfers}
    spec = JobSpec.parse({"job_id": "job", "endpoints": endpoints, **sent, **more})
    return JobRegistry(1).register(RegisterJob(spec), 0.0)


@pytest.mark.parametrize(
    ("library", "algorithm", "ranks", "predicted"),
    [
        ("openmpi", "ring_all_reduce", 4, True),
        ("openmpi", "recursive_doubling_all_reduce", 4, False),
        ("openmpi", "all_reduce", 4, False),
        ("openmpi", "all_to_all", 3, False),
        ("gloo", "all_reduce", 2, True),
        ("gloo", "all_gather", 8, True),
        ("gloo", "broadcast", 8, False),
        ("gloo", "broadcast", 2, True),
        ("gloo", "all_to_all", 2, True),
        ("openmpi", "all_to_all", 2, False),
        ("generic", "broadcast", 8, True),
    ],
)
def test_only_what_links_decide_is_predicted(library: str, algorithm: str, ranks: int, predicted: bool) -> None:
    job = one_job(ranks, algorithm, library=library)
    assert (prediction_withheld(job) == "") == predicted


@pytest.mark.parametrize("striping", Striping)
def test_a_job_whose_independent_connections_have_unequal_shares_gets_none(striping: Striping) -> None:
    job = one_job(2, max_subflows=2, striping=striping)
    assert not prediction_withheld(job)
    assert bool(prediction_withheld(job, split=True)) == (striping is Striping.BY_SHARE)


def test_a_job_beside_others_with_more_connections_per_flow_gets_none() -> None:
    job = one_job(2)
    assert not prediction_withheld(job)
    assert "more connections per flow" in prediction_withheld(job, outweighed=True)


def test_what_was_announced_says_nothing_of_a_job_that_was_found_to_send_between_other_hosts() -> None:
    announced = one_job(4, "broadcast", library="gloo")
    ips = announced.spec.endpoints
    ring = VirtualLinks(VirtualLink(a, b, 0, 480_000) for a, b in zip(ips, ips[1:] + ips[:1], strict=True))
    demand = JobDemand(DemandSource.MEASURED, ring, {})
    (measured,) = MeasuredJobs()({announced.id: announced}, {announced.id: demand}).values()
    assert prediction_withheld(announced)
    assert not prediction_withheld(measured)


# ---- jobs without service lower the network's efficiency to 0; the efficiency has no value when nothing is known


JOB0, JOB1 = JobId("job0"), JobId("job1")


@pytest.fixture
def fabric() -> FakeFabric:
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
