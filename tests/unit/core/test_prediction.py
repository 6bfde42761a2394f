"""Jobs that get a prediction of their communication time."""

from __future__ import annotations

from typing import Any

import pytest

from controller.core.job_statuses import prediction_withheld
from controller.demand.job_demand import DemandSource, JobDemand
from controller.demand.measured_demand import MeasuredJobs
from controller.jobs.job import Job
from controller.jobs.messages import RegisterJob
from controller.jobs.registry import JobRegistry
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.spec import JobSpec, Striping


def job_of(ranks: int, algorithm: str = "", **more: Any) -> Job:
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
    job = job_of(ranks, algorithm, library=library)
    assert (prediction_withheld(job) == "") == predicted


@pytest.mark.parametrize("striping", Striping)
def test_a_job_whose_independent_connections_have_unequal_shares_gets_none(striping: Striping) -> None:
    job = job_of(2, max_subflows=2, striping=striping)
    assert not prediction_withheld(job)
    assert bool(prediction_withheld(job, split=True)) == (striping is Striping.BY_SHARE)


def test_a_job_beside_others_with_more_connections_per_flow_gets_none() -> None:
    job = job_of(2)
    assert not prediction_withheld(job)
    assert "more connections per flow" in prediction_withheld(job, outweighed=True)


def test_what_was_announced_says_nothing_of_a_job_that_was_found_to_send_between_other_hosts() -> None:
    announced = job_of(4, "broadcast", library="gloo")
    ips = announced.spec.endpoints
    ring = VirtualLinks(VirtualLink(a, b, 0, 480_000) for a, b in zip(ips, ips[1:] + ips[:1], strict=True))
    demand = JobDemand(DemandSource.MEASURED, ring, {})
    (measured,) = MeasuredJobs()({announced.id: announced}, {announced.id: demand}).values()
    assert prediction_withheld(announced)
    assert not prediction_withheld(measured)
