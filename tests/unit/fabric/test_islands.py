"""Islands: hosts that cannot reach most other hosts."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from controller.fabric.topology import (
    ALONE,
    Dpid,
    Fabric,
    Islands,
    PortNo,
    Switch,
    connected,
    islands_beside_the_largest,
)
from offline.scenarios.fabrics import fabric_of
from offline.scenarios.topologies import leaf_spine

LEAVES = Dpid(1), Dpid(2), Dpid(3)


@pytest.fixture
def fabric() -> Fabric:
    """Return three leaves with two hosts each."""
    return fabric_of(leaf_spine(3, 2, 2, 1e9, 1e9))


def islands(fabric: Fabric) -> Islands:
    return islands_beside_the_largest(fabric.switches, fabric.links, fabric.hosts)


def cut_off(fabric: Fabric, *leaves: Dpid) -> Fabric:
    links = {k: v for k, v in fabric.links.items() if not {v.src.dpid, v.dst.dpid} & {*leaves}}
    return replace(fabric, links=links)


def with_switch(fabric: Fabric, switch: Switch) -> Fabric:
    return replace(fabric, switches={**fabric.switches, switch.dpid: switch})


def test_hosts_of_a_leaf_without_links_reach_each_other_only(fabric: Fabric) -> None:
    found = islands(cut_off(fabric, LEAVES[1]))
    assert found == {"10.0.2.1": LEAVES[1], "10.0.2.2": LEAVES[1]}
    assert connected(found, "10.0.2.1", "10.0.2.2")
    assert not connected(found, "10.0.2.1", "10.0.1.1")
    assert not connected(found, "10.0.1.1", "10.0.2.1")
    assert connected(found, "10.0.1.1", "10.0.3.1")
    found = islands(cut_off(fabric, *LEAVES))
    assert len(found) == 4
    assert not connected(found, "10.0.2.1", "10.0.3.1")


@pytest.mark.parametrize("is_removed", [True, False], ids=["removed", "down"])
def test_a_host_whose_port_is_down_or_gone_reaches_none_not_even_at_its_leaf(fabric: Fabric, is_removed: bool) -> None:
    at = fabric.hosts["10.0.1.1"].at
    switch = fabric.switches[at.dpid]
    ports = {n: p for n, p in switch.ports.items() if n != at.port}
    if not is_removed:
        ports[at.port] = replace(switch.ports[at.port], up=False)
    found = islands(with_switch(fabric, replace(switch, ports=MappingProxyType(ports))))
    assert found == {"10.0.1.1": ALONE}
    assert not connected(found, "10.0.1.1", "10.0.1.2")
    assert not connected(found, "10.0.3.1", "10.0.1.1")


def test_hosts_of_a_switch_that_has_left_reach_none(fabric: Fabric) -> None:
    left = cut_off(fabric, LEAVES[0])
    left = replace(left, switches={k: v for k, v in left.switches.items() if k != LEAVES[0]})
    found = islands(left)
    assert found == {"10.0.1.1": ALONE, "10.0.1.2": ALONE}
    assert not connected(found, "10.0.1.1", "10.0.1.2")


def test_while_all_are_connected_there_is_one_part_whatever_the_ports_of_other_switches(fabric: Fabric) -> None:
    assert islands(fabric) == {}
    assert islands(Fabric()) == {}
    spine = max(fabric.switches)
    ports = {PortNo(99): replace(next(iter(fabric.switches[spine].ports.values())), number=PortNo(99), up=False)}
    ports |= fabric.switches[spine].ports
    assert islands(with_switch(fabric, replace(fabric.switches[spine], ports=MappingProxyType(ports)))) == {}
