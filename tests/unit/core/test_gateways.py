"""Packets that hosts send to the MAC address of a router reach it from everywhere, whatever their destination."""

from __future__ import annotations

import pytest

from controller.config import Config
from controller.fabric.messages import ArpSeen
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.tables.rules import FlowRule
from tests.support.fake_fabric import FakeFabric
from tests.support.fake_switch import Packet
from tests.support.three_rings import CONFIG, started

ROUTER, MAC = "10.0.4.3", "00:00:5e:00:01:0a"
OUTSIDE = "192.0.2.1"
SOURCES = ["10.0.1.1", "10.0.2.2", "10.0.4.1"]
GATEWAY = Config.model_validate(CONFIG.model_dump() | {"fabric": {"gateway": [{"ip": ROUTER, "mac": MAC.upper()}]}})


def seen_at(fabric: FakeFabric, at: PortRef) -> None:
    fabric.hosts[ROUTER] = at
    fabric.send(ArpSeen(at, "request", ROUTER, MAC, ROUTER))
    fabric.run(1)


def leaves(fabric: FakeFabric, src: str, dst: str = OUTSIDE, mac: str = MAC) -> bool:
    return all(fabric.follow(Packet(src, dst, entropy, dst_mac=mac), to=ROUTER) for entropy in range(4))


@pytest.fixture
def fabric() -> FakeFabric:
    fabric = started(FakeFabric(), 0, 1, config=GATEWAY)
    fabric.run(4)
    seen_at(fabric, fabric.hosts[ROUTER])
    return fabric


def test_what_is_sent_to_the_routers_mac_reaches_it_and_nothing_else_does(fabric: FakeFabric) -> None:
    assert all(leaves(fabric, src) for src in SOURCES)
    assert not any(fabric.follow(Packet(src, OUTSIDE), to=ROUTER) for src in SOURCES)
    assert leaves(fabric, SOURCES[0], dst=SOURCES[1]), "the router decides, even about a host that is known"
    assert leaves(fabric, SOURCES[0], dst="10.0.2.77"), "or that is not, in the prefix of a leaf"
    assert fabric.follow(Packet(ROUTER, SOURCES[0])), "and back, by the address of the host"


def test_a_router_that_moves_takes_the_packets_with_it(fabric: FakeFabric) -> None:
    seen_at(fabric, fabric.hosts["10.0.1.3"])
    fabric.run(5)
    assert all(leaves(fabric, src) for src in SOURCES)


def test_a_lost_spine_leaves_a_way_to_the_router(fabric: FakeFabric) -> None:
    fabric.cut(Dpid(4), PortNo(1))
    assert all(leaves(fabric, src) for src in SOURCES)


def test_the_way_to_a_router_stays_while_another_controller_adopts_it(fabric: FakeFabric) -> None:
    def still_there() -> None:
        assert all(leaves(fabric, src) for src in SOURCES)

    fabric.after_each_mod = still_there
    fabric.forget_mods()
    fabric.start(GATEWAY, late=[Dpid(4)])
    fabric.run(CONFIG.discovery.adoption_patience_s + 5)
    assert not fabric.status.adopting
    fabric.connect(Dpid(4))
    fabric.run(10)
    still_there()
    assert not any(isinstance(mod.rule, FlowRule) and mod.rule.key.match.eth_dst == MAC for mod in fabric.mods)


def test_a_gateway_that_is_not_configured_any_more_goes(fabric: FakeFabric) -> None:
    fabric.start(CONFIG)
    fabric.run(20)
    assert not any(leaves(fabric, src) for src in SOURCES)
    assert not any(key.match.eth_dst == MAC for switch in fabric.switches.values() for key in switch.flows)
