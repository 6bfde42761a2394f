"""Split flows on real switches: four flows out of each leaf share three spines evenly, which whole flows cannot.

Two of four whole flows share a spine, and the ring waits for them: slowdown 2. Split, every spine carries 4/3 flows."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from mininet_topos.demo.parts import Training, TrainingJob
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import wait_for
from mininet_topos.lab.running_fabric import running_fabric, settled
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.trainer.announcement import announcement
from offline.scenarios.topologies import Host
from signalbox.client import Client
from signalbox.errors import NotFound
from signalbox.jobs.spec import Algorithm
from tests.support.lab.counters import quiet
from tests.support.lab.snoop import Snoop

pytestmark = pytest.mark.lab

LEAVES, SPINES, HOSTS = 2, 3, 4
MBPS = 3.0
ELEMENTS = 20_000
MEASURED = 3
RING = Algorithm.RING_ALL_REDUCE
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
        stays_whole = announcement("ring", [host.ip for host in hosts], RING, 4 * ELEMENTS, lease_s=600)
        client.register_job(stays_whole)
        with training(lab, TrainingJob("ring", hosts, SUBFLOWS), controller.address, tmp_path) as job:
            wait_for(lambda: client.get_job("ring").pinned == len(hosts), "the pins of whole flows", 60)
            whole = job.communication_s()
            client.deregister_job("ring")
            wait_for(lambda: is_split(client), "the trainers announce themselves, and are split", 60)
            split = job.communication_s()
            told = routes(client)
            # A small new job is learnt until it is confirmed; a restart removes the rules of learning.
            own = told.keys() | {(dst, src) for src, dst in told}
            wait_for(lambda: counted_pairs(lab) <= own, "learning to end", 60)
            controller.kill()
            with Snoop(lab, tmp_path) as snoop:
                controller.start()
                wait_for(lambda: settled(client, 2 * LEAVES * SPINES), "adoption", 60)
                wait_for(lambda: client.get_plan() is not None, "a plan after the restart", 60)
                assert snoop.count("OFPT_FLOW_MOD") == snoop.count("OFPT_GROUP_MOD") == 0, controller.log.read_text()
                assert snoop.count("OFPT_PACKET_OUT") > 0
            assert routes(client) == told, "paths, classes and shares"
            # This check must be the last one: the controller judges pauses as traffic other than announced, and then
            # adds rules that count all pairs.
            assert_counters_add_up(lab, job, told)
    assert whole / split > 1.2, f"whole {whole:.3f} s, split {split:.3f} s; ideal are 2 and 4/3 times the same"


def is_split(client: Client) -> bool:
    try:
        job = client.get_job("ring")
    except NotFound:
        return False
    return bool(job.pinned == LEAVES * HOSTS < job.subflows)


@dataclass
class Job:
    """Running job: its trainer processes and the file of its first rank."""

    training: Training
    log: Path

    def lines(self) -> list[dict[str, Any]]:
        complete = self.log.read_text().rpartition("\n")[0]
        return [line for line in map(json.loads, complete.splitlines()) if "i" in line]

    def go_on(self, more: int) -> None:
        before = len(self.lines())
        wait_for(lambda: len(self.lines()) >= before + more, f"{more} more iterations", 60)
        assert all(line["ok"] for line in self.lines())

    def communication_s(self) -> float:
        """Return the median communication time of the next iterations, without the iteration that is under way."""
        first = len(self.lines()) + 2
        wait_for(lambda: len(self.lines()) >= first + MEASURED, "iterations to measure", 60)
        assert all(line["ok"] for line in self.lines())
        return float(median(line["comm_s"] for line in self.lines()[first:]))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the first rank while the block runs, so that nothing is sent."""
        process = self.training.rank_process("ring", 0)
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)


@contextmanager
def training(lab: Lab, job: TrainingJob, api: str, folder: Path) -> Iterator[Job]:
    raw = folder / "raw"
    raw.mkdir()
    running = Training(lab, [job], ELEMENTS, api, folder / "ports", raw)
    running.start()
    yield Job(running, raw / f"{job.job_id}-rank0.jsonl")
    running.stop()


def ring(hosts: tuple[Host, ...]) -> tuple[Host, ...]:
    """Return a ring in which every flow crosses from one leaf to the other."""
    by_leaf = [[host for host in hosts if host.leaf == f"leaf{leaf}"] for leaf in range(1, LEAVES + 1)]
    return tuple(host for pair in zip(*by_leaf, strict=True) for host in pair)


def routes(client: Client) -> dict[tuple[str, str], list[tuple[float, tuple[str, ...], Ports]]]:
    """Return share, path and ports of each subflow, by flow."""
    with closing(client.watch_routes("ring")) as updates:
        told = next(updates).routes
    return {
        (route.src, route.dst): [
            (subflow.share, tuple(subflow.switches), (subflow.port_value, subflow.port_mask))
            for subflow in route.subflows
        ]
        for route in told
    }


def assert_counters_add_up(lab: Lab, job: Job, told: dict[tuple[str, str], Any]) -> None:
    """Assert that the rules of a leaf's hosts count what its uplinks carry, and that each subflow has its share."""
    leaves = {switch.name: lab.bridge(switch.name) for switch in lab.switches if switch.name.startswith("leaf")}
    samples = []
    for _ in range(2):
        with job.paused():
            counted = quiet(lambda: {leaf: rule_bytes(bridge) for leaf, bridge in leaves.items()})
            samples.append((counted, {leaf: uplink_bytes(lab, leaf, bridge) for leaf, bridge in leaves.items()}))
        job.go_on(2)
    (rules0, uplinks0), (rules1, uplinks1) = samples
    sent: dict[Key, int] = {}
    for leaf, rules in rules1.items():
        between = {key: total - rules0[leaf].get(key, 0) for key, total in rules.items()}
        assert sum(between.values()) == pytest.approx(uplinks1[leaf] - uplinks0[leaf], rel=0.03)
        sent |= between
    for flow, subflows in told.items():
        if len(subflows) > 1:
            of_flow = [sent[(*flow, ports)] for _, _, ports in subflows]
            shares = [share for share, _, _ in subflows]
            assert [count / sum(of_flow) for count in of_flow] == pytest.approx(shares, abs=0.08)
            assert sent[(*flow, EVERY_PORT)] < 0.02 * sum(of_flow), "nothing but strays goes outside the classes"
    assert any(len(subflows) > 1 for subflows in told.values())


RULE = re.compile(r"n_bytes=(\d+),.*nw_src=([\d.]+),nw_dst=([\d.]+)(?:,tp_(?:src|dst)=(\w+)/(\w+))?")


def rule_bytes(bridge: str) -> dict[Key, int]:
    argv = ["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", bridge, "table=1"]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    found = [match.groups(default="0") for line in lines if (match := RULE.search(line))]
    return {(src, dst, (int(value, 0), int(mask, 0))): int(count) for count, src, dst, value, mask in found}


def counted_pairs(lab: Lab) -> set[tuple[str, str]]:
    return {(src, dst) for switch in lab.switches for src, dst, _ in rule_bytes(lab.bridge(switch.name))}


def uplink_bytes(lab: Lab, leaf: str, bridge: str) -> int:
    """Return the bytes sent towards the spines."""
    argv = ["ovs-ofctl", "-O", "OpenFlow13", "dump-ports", bridge]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    sent = re.findall(r'port\s+"?(\S+?)"?:.*?tx pkts=\d+, bytes=(\d+)', text, re.DOTALL)
    ports = {str(cable.a_port) for cable in lab.links if cable.a == leaf}
    names = {f"{bridge}-eth{port}" for port in ports}
    return sum(int(count) for port, count in sent if port in ports | names)
