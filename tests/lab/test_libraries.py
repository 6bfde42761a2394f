"""Real jobs of PyTorch and Open MPI over the emulated fabric."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mininet_topos.joining.forked_ranks import ForkedRanks
from mininet_topos.joining.jobs import LibraryJob, RunningJobs
from mininet_topos.joining.launch import missing
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.running_fabric import LINK_MBPS, running_fabric
from mininet_topos.leaf_spine import LeafSpine
from signalbox.client import Client
from signalbox.jobs.spec import JobSpec
from tests.support.lab.connections import read_connections, received_from
from tests.support.lab.fabric import Fabric, routes
from tests.support.lab.needs import needs
from tests.support.lab.waits import wait_for

ITERATIONS = 3
RANKS = 3
ELEMENTS = 12_000
SETTINGS = {"counters": {"interval_s": 1.0}, "planning": {"interval_s": 2.0}}
M = 4 * ELEMENTS
END_S = 200.0
"""Seconds in which mpirun must end; its ranks spin while they wait, so on a busy machine the end takes a minute."""


def assert_right(jobs: RunningJobs) -> None:
    """Assert that all ranks have ended after the same iterations, and that every sum was right."""
    for job in jobs.jobs:
        logs = jobs.logs(job)
        assert [log.rank for log in logs] == list(range(RANKS))
        assert all(log.ended for log in logs)
        finished = [[i.index for i in log.iterations] for log in logs]
        assert finished == [list(range(max(ITERATIONS, len(finished[0]))))] * RANKS
        assert all(i.ok for log in logs for i in log.iterations)


def test_mpiruns_that_start_at_once_have_two_directories(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two runs have nodes of the same names, and cannot create Open MPI's default directories for these names.

    Creating such a directory can also fail while another mpirun creates it. No directory is left behind."""
    needs(missing().get("open-mpi"))
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setenv("TMPDIR", str(scratch))
    taken = {scratch / f"ompi.{node}.0" for node in (os.uname().nodename, "n0", "n1")}
    for path in taken:
        path.touch()
    pairs = (lab.hosts[::2], lab.hosts[1::2])
    both = [LibraryJob(f"job{n}", "open-mpi", "all_reduce", hosts, ELEMENTS, "ring") for n, hosts in enumerate(pairs)]
    jobs = RunningJobs(lab, both, tmp_path, ITERATIONS)
    jobs.start()
    jobs.begin()
    jobs.wait(END_S)
    for job in both:
        assert [[i.ok for i in log.iterations] for log in jobs.logs(job)] == [[True] * ITERATIONS] * 2
    assert set(scratch.iterdir()) == taken


def pinned(jobs: RunningJobs, client: Client) -> set[tuple[str, str]]:
    jobs.check()
    if not client.list_jobs():
        return set()
    return {(route.src, route.dst) for route in routes(client, "job") if route.pinned}


@pytest.fixture(scope="module")
def fabric(lab_prefix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    topo = LeafSpine(RANKS, 2, 1, host_mbps=LINK_MBPS, fabric_mbps=LINK_MBPS, prefix=f"s{lab_prefix[1:]}")
    with running_fabric(topo, tmp_path_factory.mktemp("controller"), settings=SETTINGS) as running:
        yield running


def test_an_observed_gloo_all_reduce_is_learnt_and_pinned_as_it_runs(
    fabric: Fabric, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The job announces only its hosts. Rank r sends to r - 1, as the switches and the hosts' sockets report."""
    needs(missing().get("gloo"))
    lab, _, client = fabric
    job = LibraryJob("job", "gloo", "all_reduce", lab.hosts, ELEMENTS)
    forks = ForkedRanks(tmp_path / "forks")
    request.addfinalizer(forks.stop)
    jobs = RunningJobs(lab, [job], tmp_path / "ranks", forks=forks)
    jobs.start()
    jobs.begin()
    client.register_job(JobSpec.parse({"job_id": "job", "endpoints": job.peers}))
    ring = {(ip, job.peers[rank - 1]) for rank, ip in enumerate(job.peers)}
    wait_for(lambda: pinned(jobs, client) == ring, "the ring's pins", poll_s=0.3)
    jobs.wait_for_iterations(ITERATIONS)
    received = received_from(c for host in job.hosts for c in read_connections(lab.namespace(host)))
    jobs.ask_to_end()
    jobs.wait()
    client.deregister_job("job", force=True)
    assert_right(jobs)
    for src, dst in ring:
        assert received[src, dst] > ITERATIONS * M, "4/3 of M per iteration"
        assert received[dst, src] < 0.1 * received[src, dst], "headers"


def test_signalbox_run_announces_what_mpirun_says_until_it_ends(fabric: Fabric, tmp_path: Path) -> None:
    """Every all-reduce of Open MPI returns the right sum. The announced ring leads from each rank r to rank r + 1."""
    needs(missing().get("open-mpi"))
    lab, controller, client = fabric
    job = LibraryJob("job", "open-mpi", "all_reduce", lab.hosts, ELEMENTS, "ring")
    addresses = tmp_path / "addresses.yaml"
    addresses.write_text("".join(f"n{rank}: {ip}\n" for rank, ip in enumerate(job.peers)))
    run = [sys.executable, "-m", "signalbox", "run", "--job", "job", "--address", controller.address]
    jobs = RunningJobs(lab, [job], tmp_path / "ranks", before_mpirun=[*run, "--addresses", str(addresses), "--"])
    jobs.start()
    jobs.begin()
    ring = {(ip, job.peers[(rank + 1) % RANKS]) for rank, ip in enumerate(job.peers)}
    wait_for(lambda: pinned(jobs, client) == ring, "the ring's pins", poll_s=0.3)
    jobs.wait_for_iterations(ITERATIONS)
    jobs.ask_to_end()
    jobs.wait(END_S)
    assert_right(jobs)
    assert not client.list_jobs()
