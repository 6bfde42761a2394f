"""The whole controller on a real fat-tree k = 4: discovery, pins, repairs; ECMP does not polarise.

Paths branch twice: at the edge switch and at the aggregation switch."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from mininet_topos.controller_process import ControllerProcess
from mininet_topos.fat_tree import FatTree
from mininet_topos.lab.lab import Lab
from mininet_topos.lab.record import run, wait_for
from mininet_topos.lab.running_fabric import LINK_MBPS, fabric_links, running_fabric, settled
from signalbox.client import Client
from signalbox.jobs.spec import JobSpec
from signalbox.words import Mode
from tests.support.lab.pings import address
from tests.support.lab.snoop import Snoop
from tests.support.wire.api_calls import ring as ring_of

pytestmark = pytest.mark.lab

K = 4
EDGES = range(1, K * K // 2 + 1)
JOBS = {f"ring{host}": [f"h{edge}_{host}" for edge in EDGES] for host in (1, 2)}
ECHOES = 60
Fabric = tuple[Lab, ControllerProcess, Client]
Port = tuple[str, int]

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
        wait_for(lambda: all(pinned(client, job) == len(EDGES) for job in JOBS), "the rings' pins", 60)
        yield lab, controller, client


def ring(lab: Lab, job_id: str, hosts: list[str]) -> JobSpec:
    return ring_of(job_id, tuple(address(lab, host) for host in hosts), 10**6, lease_s=600.0)


def pinned(client: Client, job_id: str) -> int:
    return client.get_job(job_id).pinned


def planned_paths(lab: Lab, client: Client) -> dict[tuple[str, str], list[str]]:
    """Return the switches of each pinned path by (source, destination) address, as the switches confirmed it."""
    paths = {}
    for job_id in JOBS:
        with closing(client.watch_routes(job_id)) as updates:
            for route in next(updates).routes:
                assert route.pinned
                paths[route.src, route.dst] = [name.removeprefix(lab.topo.prefix) for name in route.switches]
    return paths


def sent(lab: Lab) -> Counter[Port]:
    """Return the packets that every port of every switch has sent."""
    counts: Counter[Port] = Counter()
    for switch in lab.switches:
        out = run("ovs-ofctl", "-O", "OpenFlow13", "dump-ports", lab.bridge(switch.name))
        for port, packets in re.findall(r"port +(\d+): rx.*?tx pkts=(\d+)", out, re.DOTALL):
            counts[switch.name, int(port)] = int(packets)
    return counts


def ports_between(lab: Lab) -> dict[tuple[str, str], int]:
    """Return the port of the first switch that leads to the second."""
    return {(c.a, c.b): c.a_port for c in lab.links} | {(c.b, c.a): c.b_port for c in lab.links}


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
    paths, port_to = planned_paths(lab, client), ports_between(lab)
    assert Counter(map(len, paths.values())) == {3: 8, 5: 8}
    before = sent(lab)
    ping_all(lab, paths)
    after = sent(lab)
    expected: Counter[Port] = Counter()
    for path in paths.values():
        for a, b in pairwise(path):
            expected[a, port_to[a, b]] += ECHOES
            expected[b, port_to[b, a]] += ECHOES
    between = {(a, port) for (a, b), port in port_to.items() if not {a[0], b[0]} & {"h"}}
    for port in between:
        extra = after[port] - before[port] - expected[port]
        assert abs(extra) < ECHOES / 2, f"{port}: {expected[port]} planned, {extra} more (probes and ARP are few)"
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
            wait_for(partial(has_counted, lab, name, src, dst), f"{name} to count {src} > {dst}", 60)
        for name in path[2:-1]:
            assert pin_packets(lab, name, src, dst) == 0


def has_counted(lab: Lab, switch: str, src: str, dst: str) -> bool:
    return pin_packets(lab, switch, src, dst) >= 0.8 * ECHOES


def pin_packets(lab: Lab, switch: str, src: str, dst: str) -> int:
    bridge = lab.bridge(switch)
    match = f"table=1,ip,nw_src={src},nw_dst={dst}"
    out = run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", bridge, match)
    return sum(map(int, re.findall(r"n_packets=(\d+)", out)))


def test_a_cut_behind_the_first_choice_is_repaired_and_traffic_goes_on(fabric: Fabric) -> None:
    lab, _, client = fabric
    (src, dst), path = next((flow, path) for flow, path in planned_paths(lab, client).items() if len(path) == 5)
    names = {host.ip: host.name for host in lab.hosts}
    argv = ["ping", "-q", "-i", "0.01", "-c", "200", "-W", "1", dst]
    ping = lab.popen(names[src], argv, stdout=subprocess.PIPE, text=True)
    lab.cut(path[1], path[2])
    wait_for(lambda: settled(client, 62), "the cut is noticed and repaired", 60)
    out = ping.communicate(timeout=60)[0]
    (received,) = re.findall(r"(\d+) received", out)
    assert int(received) > 150, out
    wait_for(lambda: all(pinned(client, job) == len(EDGES) for job in JOBS), "every flow has a path again", 60)
    assert path[1:3] not in [list(hop) for p in planned_paths(lab, client).values() for hop in pairwise(p)]
    lab.plug(path[1], path[2])
    wait_for(lambda: settled(client, 64), "the cable is used again", 60)
    ping_all(lab, planned_paths(lab, client))


def test_switches_that_return_without_rules_are_found_and_filled_again(fabric: Fabric) -> None:
    lab, _, client = fabric
    ports = {switch: described_ports(lab, switch) for switch in ("agg1", "edge3", "core4")}
    for switch in ports:
        lab.stop_switch(switch)
    wait_for(lambda: settled(client, 64 - 2 * (4 + 2 + 4)), "their loss is noticed and repaired", 60)
    for switch in ports:
        lab.start_switch(switch)
    wait_for(lambda: settled(client, 64), "they are used again", 60)
    wait_for(lambda: all(pinned(client, job) == len(EDGES) for job in JOBS), "every flow has a path again", 60)
    assert {switch: described_ports(lab, switch) for switch in ports} == ports
    ping_all(lab, planned_paths(lab, client))


def test_a_restart_adopts_pins_and_repeated_buckets_as_they_are(fabric: Fabric, tmp_path: Path) -> None:
    lab, controller, client = fabric
    paths = planned_paths(lab, client)
    controller.kill()
    ping_all(lab, paths)
    with Snoop(lab, tmp_path) as snoop:
        controller.start()
        wait_for(lambda: settled(client, 64), "adoption", 60)
        wait_for(lambda: snoop.count("OFPT_PACKET_OUT") > 0, "the snoop to see probes", 60)
        assert snoop.count("OFPT_FLOW_MOD") + snoop.count("OFPT_GROUP_MOD") == 0
    assert planned_paths(lab, client) == paths


def described_ports(lab: Lab, switch: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return dpid, ports and MAC addresses, as the switch describes itself."""
    bridge = lab.bridge(switch)
    out = run("ovs-ofctl", "-O", "OpenFlow13", "show", bridge)
    return re.findall(r"dpid:(\S+)", out), sorted(re.findall(r"^ (\d+)\(.*addr:(\S+)", out, re.MULTILINE))


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
    before = sent(lab)
    calls = []
    for host in lab.hosts:
        edge, number = map(int, host.name.removeprefix("h").split("_"))
        partners = [address(lab, f"h{(edge + 2 * pods - 1) % len(EDGES) + 1}_{number}") for pods in (1, 2, 3)]
        calls.append(lab.popen(host.name, [sys.executable, "-c", CALLER, str(connections), *partners]))
    for call in calls:
        assert call.wait(60) == 0
    expected = 2 * connections * 3 * len(lab.hosts)
    ups = {(c.a, c.b): c.a_port for c in lab.links if c.a.startswith(("edge", "agg"))}

    def use() -> dict[tuple[str, str], int]:
        now = sent(lab)
        return {(a, b): now[a, port] - before[a, port] for (a, b), port in ups.items()}

    wait_for(lambda: sum(n for (a, _), n in use().items() if a.startswith("agg")) >= expected, "all calls to pass", 60)
    return use()
