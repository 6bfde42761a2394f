"""Split flows on real switches: four flows out of each leaf share three spines evenly, which whole flows cannot.

Two of four whole flows share a spine, and the ring waits for them: slowdown 2. Split, every spine carries 4/3 flows."""

import re
from pathlib import Path
from typing import Any

import pytest

from mininet_topos.demo.parts import TrainingJob
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.running_fabric import running_fabric, settled
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.trainer.training import announcement
from offline.scenarios.topologies import Host
from signalbox.client import Client
from signalbox.errors import NotFound
from signalbox.jobs.spec import Algorithm
from tests.support.lab.counters import quiet, rule_bytes, sent_up
from tests.support.lab.fabric import routes
from tests.support.lab.ring import Ring
from tests.support.lab.snoop import Snoop
from tests.support.lab.waits import wait_for

LEAVES, SPINES, HOSTS = 2, 3, 4
MBPS = 1.5
ELEMENTS = 10_000
SUBFLOWS = 4

Ports = tuple[int, int]
EVERY_PORT = (0, 0)
Key = tuple[str, str, Ports]
"""Source, destination, and value and mask of the ports."""


@pytest.mark.alone
def test_split_flows_use_what_whole_ones_leave_idle_and_survive_a_restart(lab_prefix: str, tmp_path: Path) -> None:
    """The trainers can split flows from the start, but the job is first announced with whole flows.

    The published routes change when the job is announced anew."""
    size = LeafSpine(LEAVES, SPINES, HOSTS, host_mbps=MBPS, fabric_mbps=MBPS, prefix=lab_prefix)
    with running_fabric(size, tmp_path, MBPS) as (lab, controller, client):
        hosts = ring(lab.hosts)
        peers = [host.ip for host in hosts]
        client.register_job(announcement("ring", peers, Algorithm.RING_ALL_REDUCE, 4 * ELEMENTS, lease_s=600))
        job = Ring(lab, TrainingJob("ring", hosts, SUBFLOWS), controller.address, tmp_path, ELEMENTS)
        wait_for(lambda: client.get_job("ring").pinned == len(hosts), "the pins of whole flows")
        whole = job.communication_s()
        client.deregister_job("ring")
        wait_for(lambda: is_split(client), "the trainers announce themselves, and are split")
        split = job.communication_s()
        told = published(client)
        # The controller counts a small new job's pairs until it is confirmed. A restart would remove these counting
        # rules.
        own = told.keys() | {(dst, src) for src, dst in told}
        wait_for(lambda: counted_pairs(lab) <= own, "learning to end", poll_s=0.5)
        controller.kill()
        job.go_on(2)
        with Snoop(lab, tmp_path) as snoop:
            controller.start()
            wait_for(lambda: settled(client, 2 * LEAVES * SPINES), "adoption")
            wait_for(lambda: client.get_plan() is not None, "a plan after the restart")
            assert snoop.count("OFPT_FLOW_MOD") == snoop.count("OFPT_GROUP_MOD") == 0, controller.log.read_text()
            assert snoop.count("OFPT_PACKET_OUT") > 0
        assert published(client) == told, "paths, classes and shares"
        # This check must be the last one: the controller judges pauses as traffic other than announced, and then
        # adds rules that count all pairs.
        assert_counters_add_up(lab, job, told)
        job.stop()
    assert whole / split > 1.2, f"whole {whole:.3f} s, split {split:.3f} s; ideal are 2 and 4/3 times the same"


def is_split(client: Client) -> bool:
    try:
        job = client.get_job("ring")
    except NotFound:
        return False
    return bool(job.pinned == LEAVES * HOSTS < job.subflows)


def ring(hosts: tuple[Host, ...]) -> tuple[Host, ...]:
    """Return a ring in which every flow crosses from one leaf to the other."""
    by_leaf = [[host for host in hosts if host.leaf == f"leaf{leaf}"] for leaf in range(1, LEAVES + 1)]
    return tuple(host for pair in zip(*by_leaf, strict=True) for host in pair)


def published(client: Client) -> dict[tuple[str, str], list[tuple[float, tuple[str, ...], Ports]]]:
    """Return share, path and ports of each subflow, by flow."""
    return {
        (route.src, route.dst): [
            (subflow.share, tuple(subflow.switches), (subflow.port_value, subflow.port_mask))
            for subflow in route.subflows
        ]
        for route in routes(client, "ring")
    }


def assert_counters_add_up(lab: Lab, job: Ring, told: dict[tuple[str, str], Any]) -> None:
    """Assert that the rules of a leaf's hosts count what its uplinks carry, and that each subflow has its share."""
    leaves = [switch.name for switch in lab.switches if switch.name.startswith("leaf")]
    samples = []
    for _ in range(2):
        with job.paused():
            counted = quiet(lambda: {leaf: rules_of(lab, leaf) for leaf in leaves})
            samples.append({leaf: (rules, sum(sent_up(lab, leaf))) for leaf, rules in counted.items()})
        job.go_on(2)
    passed: dict[Key, int] = {}
    for leaf in leaves:
        (rules0, uplinks0), (rules1, uplinks1) = (sample[leaf] for sample in samples)
        between = {key: total - rules0.get(key, 0) for key, total in rules1.items()}
        assert sum(between.values()) == pytest.approx(uplinks1 - uplinks0, rel=0.03)
        passed |= between
    for flow, subflows in told.items():
        if len(subflows) > 1:
            of_flow = [passed[(*flow, ports)] for _, _, ports in subflows]
            shares = [share for share, _, _ in subflows]
            assert [count / sum(of_flow) for count in of_flow] == pytest.approx(shares, abs=0.08)
            assert passed[(*flow, EVERY_PORT)] < 0.02 * sum(of_flow), "nothing but strays goes outside the classes"
    assert any(len(subflows) > 1 for subflows in told.values())


def rules_of(lab: Lab, switch: str) -> dict[Key, int]:
    """Return the bytes that each rule has counted; value and mask of its ports are given as numbers."""
    found: dict[Key, int] = {}
    for (src, dst, match), count in rule_bytes(lab, switch).items():
        value, mask = (re.findall(r"=(\w+)/(\w+)", match) or [("0", "0")])[0]
        found[src, dst, (int(value, 0), int(mask, 0))] = count
    return found


def counted_pairs(lab: Lab) -> set[tuple[str, str]]:
    return {(src, dst) for switch in lab.switches for src, dst, _ in rule_bytes(lab, switch.name)}
