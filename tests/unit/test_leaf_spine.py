"""The fabric's names, numbers and wiring, without making it."""

from __future__ import annotations

import runpy
from ipaddress import ip_address, ip_network

import pytest

from mininet_topos import leaf_spine
from mininet_topos.leaf_spine import LeafSpine, shaping


def test_every_leaf_is_cabled_to_every_spine_and_every_host_to_its_leaf() -> None:
    fabric = LeafSpine(3, 2, 4)
    pairs = [(cable.a, cable.b) for cable in fabric.cable_specs]
    assert len(pairs) == len(set(pairs)) == 3 * 2 + 3 * 4
    assert {(f"leaf{i}", f"spine{j}") for i in (1, 2, 3) for j in (1, 2)} <= set(pairs)
    assert {(f"h{i}_{k}", f"leaf{i}") for i in (1, 2, 3) for k in (1, 2, 3, 4)} <= set(pairs)


@pytest.mark.parametrize("cables", [1, 3])
def test_a_port_has_one_cable_and_ports_are_numbered_without_gaps(cables: int) -> None:
    fabric = LeafSpine(3, 2, 4, cables_per_pair=cables)
    ports: dict[str, list[int]] = {}
    for cable in fabric.cable_specs:
        ports.setdefault(cable.a, []).append(cable.a_port)
        ports.setdefault(cable.b, []).append(cable.b_port)
    assert sorted(ports["leaf2"]) == list(range(1, 4 + 2 * cables + 1))
    assert sorted(ports["spine1"]) == list(range(1, 3 * cables + 1))
    assert ports["h1_1"] == [0]


def test_hosts_come_first_on_a_leaf_then_the_uplinks_spine_by_spine() -> None:
    fabric = LeafSpine(2, 2, 2, cables_per_pair=2)
    leaf1 = {c.a_port: (c.b, c.number) for c in fabric.cable_specs if c.a == "leaf1"}
    assert {c.b_port: c.a for c in fabric.cable_specs if c.b == "leaf1"} == {1: "h1_1", 2: "h1_2"}
    assert leaf1 == {3: ("spine1", 1), 4: ("spine1", 2), 5: ("spine2", 1), 6: ("spine2", 2)}


def test_parallel_cables_reach_mininet() -> None:
    assert len(LeafSpine(2, 2, 2, cables_per_pair=3).links()) == 2 * 2 + 2 * 2 * 3


def test_dpids_are_explicit_and_distinct() -> None:
    fabric = LeafSpine(254, 254, 1)
    assert len({switch.dpid for switch in fabric.switch_specs}) == 508
    assert fabric.nodeInfo("leaf3")["dpid"] == "0000000000000003"
    assert fabric.nodeInfo("spine3")["dpid"] == "0000000000000103"


def test_hosts_have_addresses_of_their_leaf_and_unicast_macs() -> None:
    hosts = LeafSpine(3, 2, 4).host_specs
    assert len({host.ip for host in hosts}) == len({host.mac for host in hosts}) == 12
    for host in hosts:
        leaf = host.leaf.removeprefix("leaf")
        assert ip_address(host.ip) in ip_network(f"10.0.{leaf}.0/24")
        assert int(host.mac[:2], 16) & 0b11 == 0b10  # unicast, locally administered


def test_a_prefix_changes_global_names_only() -> None:
    plain, prefixed = LeafSpine(2, 2, 2), LeafSpine(2, 2, 2, prefix="x1")
    assert [s.name for s in plain.switch_specs] == [s.name for s in prefixed.switch_specs]
    assert plain.cable_specs == prefixed.cable_specs
    assert {s.bridge for s in prefixed.switch_specs} == {"x1leaf1", "x1leaf2", "x1spine1", "x1spine2"}
    assert prefixed.interface("leaf1", 3) == "x1leaf1-eth3"


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ((0, 2, 2), "leaves: 0"),
        ((2, 255, 2), "spines: 255"),
        ((2, 2, 0), "hosts_per_leaf: 0"),
        ((2, 2, 2, 0), "0 Mbit/s"),
        ((2, 2, 2, 5, 5, 0), "cables_per_pair: 0"),
        ((2, 2, 2, 5, 5, 1, "toolongaprefix"), "longer than 15"),
    ],
)
def test_impossible_fabrics_are_refused(sizes: tuple[object, ...], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        LeafSpine(*sizes)


def test_a_queue_is_at_most_50_ms_and_takes_at_least_a_burst() -> None:
    assert shaping(5) == "tbf rate 5000kbit burst 12112 limit 31250"
    assert shaping(0.1) == "tbf rate 100kbit burst 12112 limit 12112"


def test_mn_can_load_the_file_alone() -> None:
    """``mn --custom`` executes it with neither our package nor a module name."""
    customs = runpy.run_path(str(leaf_spine.__file__))
    assert len(customs["topos"]["leafspine"](4, 4, 4, 5, 5).links()) == 32
