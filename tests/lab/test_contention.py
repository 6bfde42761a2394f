"""Jobs of the trainer that share an uplink of a fabric whose controller gives slots."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.contention.lab import MBPS, LabJob, Scenario, Way, have_done, training_jobs
from mininet_topos.demo.parts import Training
from mininet_topos.lab.running_fabric import running_fabric
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.trainer.log import read_rank_logs
from signalbox.client import Client
from signalbox.mapping import seconds
from tests.support.waiting import until

JOBS = tuple(LabJob(name, (1, 2), 0.2, 0.2) for name in ("first", "second"))
SCENARIO = Scenario("two jobs", JOBS, 0.02)


@pytest.fixture
def training(lab_prefix: str, tmp_path: Path) -> Iterator[tuple[Training, Client]]:
    topo = LeafSpine(2, 1, 2, MBPS, MBPS, prefix=lab_prefix)
    with running_fabric(topo, tmp_path, MBPS, SCENARIO.contention) as (lab, controller, client):
        raw = tmp_path / "raw"
        raw.mkdir()
        jobs = training_jobs(lab, SCENARIO, Way.SHARED, 1, start_s=0.0)
        yield Training(lab, jobs, 1, controller.address, tmp_path / "ports", raw), client


def test_jobs_that_share_an_uplink_are_timed_and_their_results_stay_right(training: tuple[Training, Client]) -> None:
    """Whether they get slots depends on how regular they are, and so on the load of the machine."""
    jobs, client = training
    jobs.start()
    until(lambda: all(job.timing.HasField("until_communication") for job in client.list_jobs()), "the times of jobs")
    for job in client.list_jobs():
        assert seconds(job.timing.until_communication) >= 0.15
        assert seconds(job.timing.ideal) >= 0.35
        assert seconds(job.timing.promised) > seconds(job.timing.ideal)  # the uplink is too slow for both
    until(lambda: have_done(jobs, 40), "40 iterations of each job")
    jobs.stop()
    logs = read_rank_logs(jobs.raw)
    assert len(logs) == 4
    assert all(each.ok for log in logs for each in log.iterations)
