"""``signalbox lab --train``: jobs train while the lab is up, through faults and restarts of the controller."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from mininet_topos.controller_process import ControllerProcess
from mininet_topos.demo import endless
from mininet_topos.demo.parts import TrainingJob, rings_and_idle
from mininet_topos.lab.lab import Lab
from signalbox.client import Client
from tests.support.lab.waits import wait_for


@contextmanager
def lab_that_trains(controller: ControllerProcess, prefix: str) -> Iterator[subprocess.Popen[bytes]]:
    sizes = ("--leaves", "2", "--spines", "2", "--hosts", "2", "--prefix", prefix)
    to = ("--controller", controller.target, "--train", controller.address)
    process = subprocess.Popen([sys.executable, "-m", "signalbox", "lab", *sizes, *to], stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def iterations(client: Client) -> int:
    return sum(job.iterations for job in client.list_jobs())


def test_jobs_train_before_and_after_a_restart_and_leave_at_the_end(tmp_path: Path, lab_prefix: str) -> None:
    controller = ControllerProcess(tmp_path)
    with lab_that_trains(controller, lab_prefix) as lab:
        with controller.running() as client:
            wait_for(lambda: iterations(client) > 0, "a job to train", poll_s=0.3)
        with controller.running() as client:
            wait_for(lambda: iterations(client) > 0, "it to train on", poll_s=0.3)
            lab.send_signal(signal.SIGTERM)
            assert lab.wait(60) == 128 + signal.SIGTERM
            assert client.list_jobs() == ()


def test_ended_jobs_start_again_and_each_round_has_another_fault(
    tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rings, idle = rings_and_idle(lab.hosts)
    assert [[host.name for host in ring] for ring in rings] == [["h1_1", "h2_1"]]
    ring = endless.Ring(lab, TrainingJob("ring", rings[0]), 1000, f"unix:{tmp_path / 'api.sock'}", 3)
    unannounced = endless.Unannounced(lab, idle)
    for _ in range(2):
        ring.keep()
        assert list(tmp_path.iterdir())
        wait_for(lambda: ended(ring, tmp_path), "the job to end")
        unannounced.begin()
        unannounced.end()
    assert not list(tmp_path.iterdir())

    with Client("127.0.0.1:1") as client:
        first, *what = (
            step.what for step in islice(endless.steps(lab, client, endless.Unannounced(lab, ())), 1 + 4 * 4)
        )
    assert first == "nothing is drained"
    assert len({text for text in what if text.endswith(" is cut")}) == 4
    assert [text for text in what if text.endswith(" is drained")] == [f"spine{n} is drained" for n in (1, 2, 1, 2)]


def ended(ring: endless.Ring, folder: Path) -> bool:
    if list(folder.iterdir()):
        ring.keep()
    return not list(folder.iterdir())
