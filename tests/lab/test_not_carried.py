"""Packets of real hosts that the fabric does not carry: the switch that drops them counts each kind.

The tests also cover the effect of a gateway."""

import sys
from collections.abc import Iterator

import pytest

from mininet_topos.lab.lab import Lab
from mininet_topos.lab.running_fabric import LINK_MBPS, running_fabric
from mininet_topos.leaf_spine import LeafSpine
from signalbox.client import Client
from signalbox.mapping import word_in
from tests.support.lab.waits import wait_for

SEND = """
import socket, sys
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind((sys.argv[1], 0))
source = wire.getsockname()[4]

def ip(to, protocol, payload):
    head = bytes([0x45, 0]) + (20 + len(payload)).to_bytes(2, "big") + bytes([0, 0, 0, 0, 9, protocol])
    addresses = socket.inet_aton(sys.argv[2]) + socket.inet_aton(to)
    words = sum(int.from_bytes((head + bytes(2) + addresses)[i:i + 2], "big") for i in range(0, 20, 2))
    return head + (~(words + (words >> 16)) & 0xFFFF).to_bytes(2, "big") + addresses + payload

def send(times, to, ethertype, payload):
    for _ in range(times):
        wire.send(bytes.fromhex(to) + source + ethertype.to_bytes(2, "big") + payload.ljust(46, bytes(1)))

udp = lambda port: (68).to_bytes(2, "big") + port.to_bytes(2, "big") + (8).to_bytes(2, "big") + bytes(2)
everyone = "ffffffffffff"
send(1, "333300000001", 0x86DD, bytes([0x60]))
send(2, "01005e0000fb", 0x0800, ip("224.0.0.251", 17, udp(5353)))
send(3, everyone, 0x0800, ip("255.255.255.255", 17, udp(9)))
send(4, everyone, 0x0800, ip("255.255.255.255", 17, udp(67)))
send(5, "020000000909", 0x0800, ip("192.0.2.1", 17, udp(9)))
send(6, "020000000909", 0x88B5, b"")
"""
OUTSIDE = "198.51.100.7"
SENT = {"ipv6": 1, "multicast": 2, "broadcast": 3, "dhcp": 4, "unknown_host": 5, "other": 6}


@pytest.fixture(scope="module")
def fabric(lab_prefix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Client]]:
    """Run a fabric in which h2_1 is a gateway."""
    size = LeafSpine(2, 1, 1, host_mbps=LINK_MBPS, fabric_mbps=LINK_MBPS, prefix=lab_prefix)
    router = size.fabric.hosts[1]
    settings = {"fabric": {"gateway": [{"ip": router.ip, "mac": router.mac}]}}
    with running_fabric(size, tmp_path_factory.mktemp("controller"), settings=settings) as (lab, _, client):
        wait_for(lambda: len(client.get_fabric().hosts) == 0, "an answer")
        ping(lab, router.ip)
        wait_for(lambda: len(client.get_fabric().hosts) == 2, "both hosts")
        yield lab, client


def ping(lab: Lab, ip: str) -> bool:
    return lab.popen("h1_1", ["ping", "-c", "1", "-W", "1", ip]).wait() == 0


def counted(client: Client) -> dict[tuple[str, str], int]:
    return {(d.switch_name, word_in(d, "kind")): d.packets for d in client.get_fabric().dropped}


def test_each_kind_is_counted_at_the_first_switch(fabric: tuple[Lab, Client]) -> None:
    lab, client = fabric
    leaf = lab.bridge("leaf1")
    before = counted(client)
    interface = lab.topo.interface("h1_1", 0)
    sender = lab.popen("h1_1", [sys.executable, "-c", SEND, interface, lab.hosts[0].ip])
    assert sender.wait() == 0

    def grown() -> dict[tuple[str, str], int]:
        now = counted(client)
        return {key: now[key] - before.get(key, 0) for key in now if now[key] != before.get(key, 0)}

    wanted = {(leaf, kind): count for kind, count in SENT.items()}
    wait_for(lambda: all(grown().get(key, 0) >= count for key, count in wanted.items()), "the drops to be counted")
    seen = grown()
    assert seen.pop((leaf, "unknown_host")) >= wanted.pop((leaf, "unknown_host")), "hosts have asked for others too"
    assert seen == wanted


def test_another_subnet_is_reached_over_the_gateway(fabric: tuple[Lab, Client]) -> None:
    lab, _ = fabric
    assert lab.popen("h2_1", ["ip", "address", "add", f"{OUTSIDE}/32", "dev", "lo"]).wait() == 0
    assert not ping(lab, OUTSIDE), "no route"
    assert lab.popen("h1_1", ["ip", "route", "add", "default", "via", lab.hosts[1].ip]).wait() == 0
    wait_for(lambda: ping(lab, OUTSIDE), "an answer from behind the gateway")
