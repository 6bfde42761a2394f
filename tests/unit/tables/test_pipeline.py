"""The rules of all switches together, as they follow from the fabric and from what is installed."""

from __future__ import annotations

from controller.fabric.messages import ArpSeen
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.tables.rules import FlowRule, Prefix
from tests.support.fake_fabric import FakeFabric
from tests.support.three_rings import CONFIG

PREFIX = Prefix("10.0.1.0", 24)


def claim(fabric: FakeFabric, ip: str, at: PortRef) -> None:
    fabric.hosts[ip] = at
    fabric.send(ArpSeen(at, "request", ip, fabric.mac(ip), "10.0.3.1"))


def changes_of_prefix(fabric: FakeFabric) -> int:
    return sum(isinstance(mod.rule, FlowRule) and PREFIX in mod.rule.key.match for mod in fabric.mods)


def test_a_prefix_stays_at_its_leaf_however_many_of_its_addresses_are_claimed_elsewhere() -> None:
    fabric = FakeFabric()
    fabric.start(CONFIG)
    fabric.run(3)
    for host in (1, 2, 3):
        claim(fabric, f"10.0.1.{host}", fabric.hosts[f"10.0.1.{host}"])
    fabric.run(1)
    fabric.forget_mods()
    for number in range(200, 204):
        claim(fabric, f"10.0.1.{number}", PortRef(Dpid(2), PortNo(7)))
    fabric.run(1)
    assert fabric.mods, "each has a rule of its own"
    assert changes_of_prefix(fabric) == 0
    fabric.forget_mods()
    fabric.start(CONFIG)
    fabric.run(20)
    assert changes_of_prefix(fabric) == 0, "nor does the next controller process move it"
