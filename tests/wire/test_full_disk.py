"""A state directory that fills up, or cannot be written any more: what is acknowledged is there after a SIGKILL."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.api.client import Client
from controller.config import Strategy
from controller.errors import Unavailable
from controller.jobs.spec import JobSpec
from mininet_topos.controller_process import ControllerProcess
from mininet_topos.lab.record import wait_for

JOBS = 200
REFUSED = 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder whose ``state`` is a file system of 128 kB."""
    state = tmp_path / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(state)], check=True)
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "--lazy", str(state)], check=True)


def register(client: Client, numbers: range) -> list[str]:
    """The jobs that were acknowledged; stops after ``REFUSED`` that were not."""
    acknowledged: list[str] = []
    refused = 0
    for number in numbers:
        ips = [f"10.{number}.0.1", f"10.{number}.0.2"]
        transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 1_000_000}]
        try:
            client.register_job(JobSpec.parse({"job_id": f"job{number}", "endpoints": ips, "transfers": transfers}))
        except Unavailable:
            refused += 1
            if refused == REFUSED:
                break
        else:
            acknowledged.append(f"job{number}")
    return acknowledged


def known(client: Client) -> list[str]:
    return [job.spec.job_id for job in client.list_jobs()]


def alarms(client: Client) -> str:
    return " ".join(alarm.text for alarm in client.get_status().alarms)


def test_what_a_full_disk_does_not_take_is_not_acknowledged(small_disk: Path) -> None:
    controller = ControllerProcess(small_disk)
    with controller.running() as client:
        acknowledged = register(client, range(JOBS))
        assert 0 < len(acknowledged) < JOBS
        with pytest.raises(Unavailable, match=r"cannot be saved .*full.* so it was not made") as refused:
            client.set_strategy(Strategy.SHADOW)
        assert refused.value.retry_s > 0
        assert sorted(known(client)) == sorted(acknowledged)
        wait_for(lambda: "cannot be saved" in alarms(client), "the alarm", 2)
        controller.kill()
    with controller.running() as client:
        assert sorted(known(client)) == sorted(acknowledged), "in the first answer"
        subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk / "state")], check=True)
        more = register(client, range(JOBS, JOBS + 3))
        assert len(more) == 3
        wait_for(lambda: "cannot be saved" not in alarms(client), "the alarm's end", 2)
        controller.kill()
    with controller.running() as client:
        assert sorted(known(client)) == sorted(acknowledged + more)
