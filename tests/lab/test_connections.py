"""Jobs that report their connections, on real switches.

Two jobs run on the same hosts. The flows of another job are split over connections with arbitrary ports."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from mininet_topos.controller_process import Settings
from mininet_topos.demo.parts import TrainingJob
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.running_fabric import running_fabric
from mininet_topos.leaf_spine import LeafSpine
from mininet_topos.trainer.training import announcement
from signalbox.client import Client
from signalbox.jobs.spec import Algorithm, Striping
from tests.support.lab.counters import quiet, rule_bytes, sent
from tests.support.lab.fabric import Fabric, routes
from tests.support.lab.pings import send
from tests.support.lab.ring import ELEMENTS, Ring
from tests.support.lab.waits import wait_for

FABRIC_MBPS, HOST_MBPS = 2.0, 4.0
RATES: Settings = {"fabric": {"link_bps": FABRIC_MBPS * 1e6, "host_link_bps": HOST_MBPS * 1e6}}
THIRD_BYTES = 300_000
"""Bytes of an unannounced flow."""

Pair = tuple[str, str]


@pytest.fixture(scope="module")
def fabric(lab_prefix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    size = LeafSpine(2, 2, 1, host_mbps=HOST_MBPS, fabric_mbps=FABRIC_MBPS, prefix=lab_prefix)
    with running_fabric(size, tmp_path_factory.mktemp("controller"), settings=RATES) as running:
        yield running


def spines(client: Client, job_id: str) -> dict[Pair, list[str]]:
    told = routes(client, job_id)
    return {(route.src, route.dst): [subflow.switches[1] for subflow in route.subflows] for route in told}


@contextmanager
def paused(lab: Lab, *jobs: Ring) -> Iterator[None]:
    """Stop the jobs while the block runs; the counters include everything that they sent before."""
    with ExitStack() as stack:
        for job in jobs:
            stack.enter_context(job.paused())
        quiet(partial(pinned_bytes, lab))
        yield


def pinned_bytes(lab: Lab) -> Counter[tuple[Pair, bool]]:
    """Return the bytes of the leaves' rules by pair.

    The second part of the key is whether the rule is for one connection or for all other packets. A leaf counts only
    the packets of its own hosts."""
    found: Counter[tuple[Pair, bool]] = Counter()
    for host in lab.hosts:
        for (src, dst, ports), count in rule_bytes(lab, host.leaf).items():
            if src == host.ip:
                found[(src, dst), bool(ports)] += count
    return found


def test_two_jobs_on_the_same_hosts_travel_apart_and_are_counted_apart(fabric: Fabric, tmp_path: Path) -> None:
    """The job ``second`` reports its connections; the job ``first`` does not."""
    lab, controller, client = fabric
    jobs = (TrainingJob("first", lab.hosts), TrainingJob("second", lab.hosts, reports_connections=True))
    first, second = (Ring(lab, job, controller.address, tmp_path) for job in jobs)
    wait_for(lambda: [job.pinned for job in client.list_jobs()] == [2, 2], "the pins of both jobs")
    on = {job.job_id: spines(client, job.job_id) for job in jobs}
    pairs = list(on["first"])
    assert all(on["first"][pair] != on["second"][pair] for pair in pairs), "different spines"

    with paused(lab, first, second):
        rules, uplinks = pinned_bytes(lab), sent(lab)
    first.go_on()
    second.go_on()
    with paused(lab, first, second):
        counted, carried = pinned_bytes(lab) - rules, sent(lab) - uplinks
        leaf_of = {host.ip: host.leaf for host in lab.hosts}
        for job_id, own_rule in (("first", False), ("second", True)):
            for pair in pairs:
                spine = on[job_id][pair][0].removeprefix(lab.topo.prefix)
                assert counted[pair, own_rule] == pytest.approx(carried[leaf_of[pair[0]], spine], rel=0.1)
        here, there = lab.hosts
        send(lab, here.name, there.name, THIRD_BYTES)
        third = quiet(partial(pinned_bytes, lab)) - rules - counted
    assert third[(here.ip, there.ip), False] > THIRD_BYTES
    assert third[(here.ip, there.ip), True] < 0.02 * THIRD_BYTES

    first.stop()
    second.go_on()
    wait_for(lambda: [job.pinned for job in client.list_jobs()] == [2], "the second job alone")
    second.go_on()
    second.stop()


@pytest.mark.alone
def test_even_connections_from_any_port_use_every_spine(fabric: Fabric, tmp_path: Path) -> None:
    """Two connections per direction use two spines, and so double the speed: a link has half of a NIC's rate.

    At first another registration has the job's id, so the controller ignores the trainers' announcement."""
    lab, controller, client = fabric
    elements = 3 * ELEMENTS
    peers = [host.ip for host in lab.hosts]
    client.register_job(announcement("ring", peers, Algorithm.RING_ALL_REDUCE, 4 * elements, lease_s=600))
    job = TrainingJob("ring", lab.hosts, 2, Striping.EVEN, reports_connections=True)
    running = Ring(lab, job, controller.address, tmp_path, elements)
    wait_for(lambda: client.get_job("ring").pinned == 2, "the pins of whole flows")
    whole = running.communication_s()
    client.deregister_job("ring")
    wait_for(lambda: [one.subflows for one in client.list_jobs()] == [4], "the connections are split")
    assert all(len(set(used)) == 2 for used in spines(client, "ring").values())
    split = running.communication_s()
    running.stop()
    assert whole / split > 1.5, f"whole {whole:.3f} s, split {split:.3f} s; ideally twice the same"
