"""The whole controller on a real fat-tree k = 4: discovery, pins, repairs; ECMP does not polarise.

Paths branch twice: at the edge switch and at the aggregation switch."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise

import pytest

from mininet_topos.fat_tree import FatTree
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.running_fabric import LINK_MBPS, fabric_links, running_fabric, settled
from signalbox.client import Client
from signalbox.words import Mode
from tests.support.lab.counters import described_ports, ofctl, sent
from tests.support.lab.fabric import Fabric, pinned, ring, routes
from tests.support.lab.pings import address
from tests.support.lab.waits import wait_for

K = 4
EDGES = range(1, K * K // 2 + 1)
JOBS = {f"ring{host}": [f"h{edge}_{host}" for edge in EDGES] for host in (1, 2)}
ECHOES = 60

CALLER = """
import socket, sys
for target in sys.argv[2:]:
    for port in range(int(sys.argv[1])):
        with socket.socket() as caller:
            caller.setblocking(False)
            caller.connect_ex((target, 20000 + port))
"""
"""Program that connects to closed ports: each attempt is one packet in each direction, with a hash of its own."""


@pytest.fixture(scope="module")
def fabric(lab_prefix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """Run 20 switches and 16 hosts with two planned rings over all edge switches."""
    topo = FatTree(K, LINK_MBPS, LINK_MBPS, lab_prefix)
    # The jobs send nothing, so the controller would never finish learning their traffic, and a restart would remove the
    # rules that learning needs.
    settings: dict[str, dict[str, object]] = {"discovery": {"hold_down_s": 0.5}, "jobs": {"max_learning_rules": 0}}
    with running_fabric(topo, tmp_path_factory.mktemp("controller"), settings=settings) as (lab, controller, client):
        for job_id, hosts in JOBS.items():
            client.register_job(ring(lab, job_id, hosts))
        wait_for(lambda: all(pinned(client, job) == len(EDGES) for job in JOBS), "the rings' pins")
        yield lab, controller, client


def planned_paths(lab: Lab, client: Client) -> dict[tuple[str, str], list[str]]:
    """Return the switches of each pinned path by (source, destination) address, as the switches confirmed it."""
    found = [route for job_id in JOBS for route in routes(client, job_id)]
    assert all(route.pinned for route in found)
    return {(r.src, r.dst): [name.removeprefix(lab.topo.prefix) for name in r.switches] for r in found}


def test_everything_is_found_and_every_host_reaches_every_other(fabric: Fabric) -> None:
    lab, _, client = fabric
    assert client.get_status().links == fabric_links(lab) == 64
    assert len(client.get_fabric().hosts) == 16
    script = "for ip in {}; do ping -q -c 1 -W 3 $ip >/dev/null || ping -q -c 1 -W 3 $ip >/dev/null || echo $ip; done"
    others = {host.name: " ".join(o.ip for o in lab.hosts if o is not host) for host in lab.hosts}
    asking = {
        host: lab.popen(host, ["sh", "-c", script.format(ips)], stdout=subprocess.PIPE, text=True)
        for host, ips in others.items()
    }
    unreached = {host: program.communicate(timeout=60)[0].split() for host, program in asking.items()}
    assert not any(unreached.values()), unreached


def test_every_packet_of_a_pinned_flow_takes_its_planned_path_at_both_choices(fabric: Fabric) -> None:
    lab, _, client = fabric
    paths = planned_paths(lab, client)
    assert Counter(map(len, paths.values())) == {3: 8, 5: 8}
    before = sent(lab, unit="pkts")
    ping_all(lab, paths)
    after = sent(lab, unit="pkts")
    expected: Counter[tuple[str, str]] = Counter()
    for path in paths.values():
        for a, b in pairwise(path):
            expected[a, b] += ECHOES
            expected[b, a] += ECHOES
    for hop in (hop for hop in after if not hop[1].startswith("h")):
        extra = after[hop] - before[hop] - expected[hop]
        assert abs(extra) < ECHOES / 2, f"{hop}: {expected[hop]} planned, {extra} more (probes and ARP are few)"
    assert_pins_count(lab, paths)


def ping_all(lab: Lab, flows: Mapping[tuple[str, str], object]) -> None:
    names = {host.ip: host.name for host in lab.hosts}
    argv = ["ping", "-q", "-i", "0.05", "-c", str(ECHOES), "-W", "3"]
    pings = [lab.popen(names[src], [*argv, dst], stdout=subprocess.PIPE, text=True) for src, dst in flows]
    for ping in pings:
        out = ping.communicate(timeout=60)[0]
        (received,) = re.findall(r"(\d+) received", out)
        assert int(received) >= 0.8 * ECHOES, out  # a busy machine drops some


def assert_pins_count(lab: Lab, paths: Mapping[tuple[str, str], list[str]]) -> None:
    """Assert that the pins at the edge and the aggregation switch count every packet; cores have no pin.

    The counters need a second or so, because switches gather them."""
    for (src, dst), path in paths.items():
        for name in path[: 2 if len(path) == 5 else 1]:
            wait_for(partial(has_counted, lab, name, src, dst), f"{name} to count {src} > {dst}")
        for name in path[2:-1]:
            assert pin_packets(lab, name, src, dst) == 0


def has_counted(lab: Lab, switch: str, src: str, dst: str) -> bool:
    return pin_packets(lab, switch, src, dst) >= 0.8 * ECHOES


def pin_packets(lab: Lab, switch: str, src: str, dst: str) -> int:
    out = ofctl(lab, switch, "dump-flows", f"table=1,ip,nw_src={src},nw_dst={dst}")
    return sum(map(int, re.findall(r"n_packets=(\d+)", out)))


def test_a_cut_behind_the_first_choice_is_repaired_and_traffic_goes_on(fabric: Fabric) -> None:
    lab, _, client = fabric
    (src, dst), path = next((flow, path) for flow, path in planned_paths(lab, client).items() if len(path) == 5)
    names = {host.ip: host.name for host in lab.hosts}
    argv = ["ping", "-q", "-i", "0.01", "-c", "200", "-W", "1", dst]
    ping = lab.popen(names[src], argv, stdout=subprocess.PIPE, text=True)
    lab.cut(path[1], path[2])
    wait_for(lambda: settled(client, 62), "the cut is noticed and repaired")
    out = ping.communicate(timeout=60)[0]
    (received,) = re.findall(r"(\d+) received", out)
    assert int(received) > 150, out
    wait_for(lambda: all(pinned(client, job) == len(EDGES) for job in JOBS), "every flow has a path again")
    assert path[1:3] not in [list(hop) for p in planned_paths(lab, client).values() for hop in pairwise(p)]
    lab.plug(path[1], path[2])
    wait_for(lambda: settled(client, 64), "the cable is used again")
    ping_all(lab, planned_paths(lab, client))


def test_switches_that_return_without_rules_are_found_and_filled_again(fabric: Fabric) -> None:
    lab, _, client = fabric
    ports = {switch: described_ports(lab, switch) for switch in ("agg1", "edge3", "core4")}
    for switch in ports:
        lab.stop_switch(switch)
    wait_for(lambda: settled(client, 64 - 2 * (4 + 2 + 4)), "their loss is noticed and repaired")
    for switch in ports:
        lab.start_switch(switch)
    wait_for(lambda: settled(client, 64), "they are used again")
    wait_for(lambda: all(pinned(client, job) == len(EDGES) for job in JOBS), "every flow has a path again")
    assert {switch: described_ports(lab, switch) for switch in ports} == ports
    ping_all(lab, planned_paths(lab, client))


def test_ecmp_spreads_over_both_choices(fabric: Fabric) -> None:
    lab, _, client = fabric
    client.set_mode(Mode.ECMP)
    use = uplink_use(lab)
    for a in {a for a, _ in use}:
        packets = [count for (switch, _), count in use.items() if switch == a]
        assert len(packets) == 2
        assert 0.3 < packets[0] / sum(packets) < 0.7, f"{a}: {packets}"


def uplink_use(lab: Lab, connections: int = 20) -> dict[tuple[str, str], int]:
    """Return the packets that edge and aggregation switches send to each of their uplinks.

    Meanwhile every host tries ``connections`` connections to each of its partners in other pods (``CALLER``)."""
    ups = [(c.a, c.b) for c in lab.links if c.a.startswith(("edge", "agg"))]
    lower = sorted({a for a, _ in ups})
    before = sent(lab, *lower, unit="pkts")
    calls = []
    for host in lab.hosts:
        edge, number = map(int, host.name.removeprefix("h").split("_"))
        partners = [address(lab, f"h{(edge + 2 * pods - 1) % len(EDGES) + 1}_{number}") for pods in (1, 2, 3)]
        calls.append(lab.popen(host.name, [sys.executable, "-c", CALLER, str(connections), *partners]))
    for call in calls:
        assert call.wait(60) == 0
    expected = 2 * connections * 3 * len(lab.hosts)

    def use() -> dict[tuple[str, str], int]:
        now = sent(lab, *lower, unit="pkts")
        return {up: now[up] - before[up] for up in ups}

    wait_for(lambda: sum(n for (a, _), n in use().items() if a.startswith("agg")) >= expected, "all calls to pass")
    return use()
