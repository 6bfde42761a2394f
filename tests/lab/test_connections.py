"""Jobs that report their connections, on real switches: two on the same hosts, and one split without chosen ports."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import pytest

from mininet_topos.controller_process import Settings
from mininet_topos.demo.parts import Training, TrainingJob
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import wait_for
from mininet_topos.lab.running_fabric import running_fabric
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.trainer.announcement import announcement
from mininet_topos.trainer.log import read_rank_log
from signalbox.client import Client
from signalbox.jobs.spec import Algorithm, Striping
from tests.support.lab.counters import quiet

pytestmark = pytest.mark.lab

FABRIC_MBPS, HOST_MBPS = 5.0, 10.0
RATES: Settings = {"fabric": {"link_bps": FABRIC_MBPS * 1e6, "host_link_bps": HOST_MBPS * 1e6}}
ELEMENTS = 20_000
MEASURED = 4
THIRD_BYTES = 300_000

Pair = tuple[str, str]

THIRD_SERVER = """
import socket
with socket.create_server(("0.0.0.0", 7000)) as server:
    print("ready", flush=True)
    sock, _ = server.accept()
    while sock.recv(65536): pass
"""
THIRD_CLIENT = f"""
import socket, sys
with socket.create_connection((sys.argv[1], 7000)) as sock:
    sock.sendall(bytes({THIRD_BYTES}))
"""


def training(lab: Lab, job: TrainingJob, api: str, folder: Path, elements: int = ELEMENTS) -> Training:
    raw = folder / "raw"
    raw.mkdir(exist_ok=True)
    return Training(lab, [job], elements, api, folder / "ports", raw)


def assert_right(folder: Path) -> None:
    """Assert that all ranks have ended, and that every sum was right."""
    for log in map(read_rank_log, (folder / "raw").glob("*.jsonl")):
        assert log.ended
        assert log.iterations
        assert all(iteration.ok for iteration in log.iterations)


def go_on(running: Training, more: int = 3) -> None:
    job_id = running.jobs[0].job_id
    running.read_new_lines()
    before = running.latest()[job_id][0]

    def finished() -> bool:
        running.read_new_lines()
        return running.latest()[job_id][0] >= before + more

    wait_for(finished, f"{more} more iterations of {job_id}", 60)


def spines(client: Client, job_id: str) -> dict[Pair, list[str]]:
    """Return the spines that the job's flows cross, subflow by subflow."""
    with closing(client.watch_routes(job_id)) as updates:
        told = next(updates).routes
    return {(route.src, route.dst): [subflow.switches[1] for subflow in route.subflows] for route in told}


@contextmanager
def paused(lab: Lab, *trainings: Training) -> Iterator[None]:
    """Stop the first ranks while the block runs, so that nothing is sent; the counters include everything before."""
    ranks = [running.rank_process(running.jobs[0].job_id, 0) for running in trainings]
    for rank in ranks:
        rank.send_signal(signal.SIGSTOP)
    try:
        quiet(partial(rule_bytes, lab))
        yield
    finally:
        for rank in ranks:
            rank.send_signal(signal.SIGCONT)


RULE = re.compile(r"n_bytes=(\d+),.*nw_src=([\d.]+),nw_dst=([\d.]+)(,tp_src=\d+,tp_dst=\d+)?")


def ofctl(command: str, bridge: str, *more: str) -> str:
    argv = ["ovs-ofctl", "-O", "OpenFlow13", command, bridge, *more]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def rule_bytes(lab: Lab) -> Counter[tuple[Pair, bool]]:
    """Return the bytes of the leaves' rules by pair.

    The second part of the key is whether the rule is for one connection or for all other packets. A leaf counts only
    the packets of its own hosts."""
    found: Counter[tuple[Pair, bool]] = Counter()
    hosts = {host.ip: host.leaf for host in lab.hosts}
    for leaf in sorted(set(hosts.values())):
        for count, src, dst, ports in RULE.findall(ofctl("dump-flows", lab.bridge(leaf), "table=1")):
            if hosts[src] == leaf:
                found[(src, dst), bool(ports)] += int(count)
    return found


def uplink_bytes(lab: Lab) -> dict[tuple[str, str], int]:
    """Return the bytes that each leaf has sent towards each spine, by names of bridges."""
    sent: dict[tuple[str, str], int] = {}
    for leaf in {host.leaf for host in lab.hosts}:
        bridge = lab.bridge(leaf)
        ports = re.findall(r'port\s+"?(\S+?)"?:.*?tx pkts=\d+, bytes=(\d+)', ofctl("dump-ports", bridge), re.DOTALL)
        of_port = {port.removeprefix(f"{bridge}-eth"): int(count) for port, count in ports}
        sent |= {(leaf, lab.bridge(cable.b)): of_port[str(cable.a_port)] for cable in lab.links if cable.a == leaf}
    return sent


def test_two_jobs_on_the_same_hosts_travel_apart_and_are_counted_apart(lab_prefix: str, tmp_path: Path) -> None:
    """The job ``second`` reports its connections; the job ``first`` does not."""
    size = LeafSpine(4, 2, 1, host_mbps=HOST_MBPS, fabric_mbps=FABRIC_MBPS, prefix=lab_prefix)
    with running_fabric(size, tmp_path, settings=RATES) as (lab, controller, client), ExitStack() as stack:
        jobs = (TrainingJob("first", lab.hosts), TrainingJob("second", lab.hosts, reports_connections=True))
        first, second = trainings = [training(lab, job, controller.address, tmp_path) for job in jobs]
        for one in trainings:
            one.start()
        wait_for(lambda: [job.pinned for job in client.list_jobs()] == [4, 4], "the pins of both jobs", 60)
        on = {job.job_id: spines(client, job.job_id) for job in jobs}
        pairs = list(on["first"])
        assert all(on["first"][pair] != on["second"][pair] for pair in pairs), "different spines"

        with paused(lab, first, second):
            rules, uplinks = rule_bytes(lab), uplink_bytes(lab)
        go_on(first)
        go_on(second)
        with paused(lab, first, second):
            sent, carried = rule_bytes(lab) - rules, Counter(uplink_bytes(lab)) - Counter(uplinks)
            leaf_of = {host.ip: host.leaf for host in lab.hosts}
            for job_id, own_rule in (("first", False), ("second", True)):
                for pair in pairs:
                    (spine,) = on[job_id][pair]
                    assert sent[pair, own_rule] == pytest.approx(carried[leaf_of[pair[0]], spine], rel=0.1)
            send_third(lab, stack)
            third = quiet(partial(rule_bytes, lab)) - rules - sent
        here, there = lab.hosts[0].ip, lab.hosts[1].ip
        assert third[(here, there), False] > THIRD_BYTES
        assert third[(here, there), True] < 0.02 * THIRD_BYTES

        first.stop()
        go_on(second)
        wait_for(lambda: [job.pinned for job in client.list_jobs()] == [4], "the second job alone", 60)
        go_on(second)
        second.stop()
    assert_right(tmp_path)


def send_third(lab: Lab, stack: ExitStack) -> None:
    """Send an unannounced flow from the first host to the second."""
    here, there = lab.hosts[:2]
    server = lab.popen(there.name, [sys.executable, "-c", THIRD_SERVER], stdout=subprocess.PIPE, text=True)
    stack.callback(server.kill)
    assert server.stdout
    with server.stdout as said:
        assert said.readline() == "ready\n"
    client = lab.popen(here.name, [sys.executable, "-c", THIRD_CLIENT, there.ip])
    assert client.wait(60) == 0
    assert server.wait(60) == 0


@pytest.mark.alone
def test_even_connections_from_any_port_use_every_spine(lab_prefix: str, tmp_path: Path) -> None:
    """Two connections per direction use two spines, whose links have half of a NIC's rate, and so double the speed.

    While another spec has the job's name, the controller ignores the trainers."""
    size = LeafSpine(2, 2, 1, host_mbps=HOST_MBPS, fabric_mbps=FABRIC_MBPS, prefix=lab_prefix)
    elements = 3 * ELEMENTS
    with running_fabric(size, tmp_path, settings=RATES) as (lab, controller, client):
        peers = [host.ip for host in lab.hosts]
        client.register_job(announcement("ring", peers, Algorithm.RING_ALL_REDUCE, 4 * elements, lease_s=600))
        job = TrainingJob("ring", lab.hosts, 2, Striping.EVEN, reports_connections=True)
        running = training(lab, job, controller.address, tmp_path, elements)
        running.start()
        wait_for(lambda: client.get_job("ring").pinned == 2, "the pins of whole flows", 60)
        whole = communication_s(running, tmp_path)
        client.deregister_job("ring")
        wait_for(lambda: [one.subflows for one in client.list_jobs()] == [4], "the connections are split", 60)
        assert all(len(set(used)) == 2 for used in spines(client, "ring").values())
        split = communication_s(running, tmp_path)
        running.stop()
    assert_right(tmp_path)
    assert whole / split > 1.5, f"whole {whole:.3f} s, split {split:.3f} s; ideally twice the same"


def communication_s(running: Training, folder: Path) -> float:
    """Return the median communication time of the next iterations, without the iteration that is under way."""
    before = len(read_rank_log(folder / "raw" / "ring-rank0.jsonl").iterations) + 2
    go_on(running, 2 + MEASURED)
    log = read_rank_log(folder / "raw" / "ring-rank0.jsonl")
    return median(iteration.communication_s for iteration in log.iterations[before:])
