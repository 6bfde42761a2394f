"""Real switches count the traffic of two jobs: one announced as it is, one backwards.

``test_libraries.py`` has a job that announces only its hosts."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mininet_topos.lab.lab import Lab
from mininet_topos.lab.running_fabric import LINK_MBPS, running_fabric
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.trainer.log import read_rank_log
from signalbox.client import Client
from signalbox.jobs.spec import JobSpec
from signalbox.mapping import word_in
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.job_specs import job_spec, sends
from tests.support.lab.fabric import LEASE_S, routes
from tests.support.lab.waits import wait_for

ELEMENTS = 40_000
JOBS = ("right", "backwards")


def test_what_switches_count_decides(lab_prefix: str, tmp_path: Path) -> None:
    size = LeafSpine(2, 2, 2, host_mbps=LINK_MBPS, fabric_mbps=LINK_MBPS, prefix=lab_prefix)
    settings = {"counters": {"interval_s": 1.0, "window_s": 3.0}, "planning": {"interval_s": 5.0}}
    with ExitStack() as stack:
        lab, _, client = stack.enter_context(running_fabric(size, tmp_path, settings=settings))
        for number, job in enumerate(JOBS):
            stack.enter_context(trained(lab, tmp_path, job, pair_of(lab, number)))
        for number, job in enumerate(JOBS):
            client.register_job(announcement(job, pair_of(lab, number)))
        wait_for(lambda: sources(client) == ["confirmed", "measured"], "all to be judged")
        wait_for(lambda: not client.get_status().jobs_learning, "learning to end")
        wait_for(lambda: states(client) == {pb.JOB_STATE_PINNED}, "what is measured to be pinned")
        (alarm,) = client.get_status().alarms
        assert alarm.text.startswith("job backwards sends other traffic than it announced")
        (route,) = routes(client, "backwards")
        assert (route.src, route.dst, route.pinned) == (*pair_of(lab, 1), True), "as it trains"


def pair_of(lab: Lab, number: int) -> tuple[str, str]:
    leaves = sorted({host.leaf for host in lab.hosts})
    src, dst = (sorted(host.ip for host in lab.hosts if host.leaf == leaf)[number] for leaf in leaves)
    return src, dst


def announcement(job: str, pair: tuple[str, str]) -> JobSpec:
    """Return the announcement of a job in which the first of two ranks sends to the second.

    The job ``backwards`` announces the reverse direction."""
    endpoints = pair[::-1] if job == "backwards" else pair
    return job_spec(job, endpoints, sends("pipeline_send", 4 * ELEMENTS), lease_s=LEASE_S)


@contextmanager
def trained(lab: Lab, folder: Path, job: str, pair: tuple[str, str]) -> Iterator[None]:
    """Train while the block runs, with ranks that do not connect to the controller."""
    names = {host.ip: host.name for host in lab.hosts}
    logs = [folder / f"{job}-{rank}.jsonl" for rank in range(2)]
    processes = []
    for rank, log in enumerate(logs):
        options = {
            "--job": job, "--rank": rank, "--peers": ",".join(pair), "--algorithm": "pipeline_send",
            "--elements": ELEMENTS, "--rendezvous": folder / f"{job}-meets", "--out": log,
        }  # fmt: skip
        words = (str(word) for item in options.items() for word in item)
        argv = [sys.executable, "-m", "mininet_topos.trainer", *words]
        processes.append(lab.popen(names[pair[rank]], argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        yield
        done = [read_rank_log(log).iterations for log in logs]
        assert all(iteration.ok for of_rank in done for iteration in of_rank)
        assert all(done)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def sources(client: Client) -> list[str]:
    return [word_in(client.get_job(job).demand, "source") for job in JOBS]


def states(client: Client) -> set[int]:
    return {job.state for job in client.list_jobs()}
