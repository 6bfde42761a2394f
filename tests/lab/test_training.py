"""Real training over real switches, through faults of the controller."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from mininet_topos.demo.parts import Training, TrainingJob
from mininet_topos.lab.record import wait_for
from mininet_topos.lab.running_fabric import LINK_MBPS, running_fabric, settled
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.trainer.log import read_rank_log
from signalbox.client import Client
from tests.support.lab.snoop import Snoop

pytestmark = pytest.mark.lab

LEAVES, SPINES = 2, 2
ELEMENTS = 20_000


def test_training_goes_on_when_the_controller_is_killed_and_started_again(lab_prefix: str, tmp_path: Path) -> None:
    size = LeafSpine(LEAVES, SPINES, 1, host_mbps=LINK_MBPS, fabric_mbps=LINK_MBPS, prefix=lab_prefix)
    ports, raw = tmp_path / "ports", tmp_path / "raw"
    raw.mkdir()
    with ExitStack() as stack:
        lab, controller, client = stack.enter_context(running_fabric(size, tmp_path))
        training = Training(lab, [TrainingJob("ring", lab.hosts)], ELEMENTS, controller.address, ports, raw)
        training.start()
        wait_for(lambda: pins(client) == LEAVES, "the ring's pins", 60)

        controller.kill()
        trains_on(training)
        snoop = stack.enter_context(Snoop(lab, tmp_path))
        controller.start()
        wait_for(lambda: settled(client, 2 * LEAVES * SPINES), "adoption", 60)
        wait_for(lambda: reported(client) > 0, "iterations are reported again", 60)
        trains_on(training)
        assert snoop.count("OFPT_FLOW_MOD") == snoop.count("OFPT_GROUP_MOD") == 0
        assert snoop.count("OFPT_PACKET_OUT") > 0
        assert client.get_job("ring").pinned == LEAVES
        training.stop()

    for rank in range(LEAVES):
        log = read_rank_log(raw / f"ring-rank{rank}.jsonl")
        assert [i.index for i in log.iterations] == list(range(len(log.iterations))), "no iteration is missing"
        assert all(i.ok for i in log.iterations), "every sum is right"


def pins(client: Client) -> int:
    jobs = client.list_jobs()
    return sum(job.pinned for job in jobs)


def reported(client: Client) -> int:
    return int(client.get_job("ring").iterations)


def trains_on(training: Training) -> None:
    """Wait until several more iterations are finished."""
    before = iterations(training)

    def finished() -> bool:
        training.read_new_lines()
        return iterations(training) >= before + 5

    wait_for(finished, "five more iterations", 60)


def iterations(training: Training) -> int:
    return training.latest()["ring"][0]
