"""Names, numbers and wiring of the emulated fabrics, without making them."""

from __future__ import annotations

import runpy
from collections import Counter
from ipaddress import ip_address, ip_network

import pytest
from typer import Typer
from typer.testing import CliRunner

from controller.offline.fabrics import fat_tree as on_paper
from mininet_topos import fat_tree, leaf_spine
from mininet_topos.fabric_topo import shaping
from mininet_topos.fat_tree import FatTree
from mininet_topos.lab import __main__ as lab
from mininet_topos.leaf_spine import LeafSpine


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


def test_mn_can_load_the_files() -> None:
    """``mn --custom`` executes them under no module name."""
    leafspine = runpy.run_path(str(leaf_spine.__file__))["topos"]["leafspine"]
    assert len(leafspine(4, 4, 4, 5, 5).links()) == 32
    fattree = runpy.run_path(str(fat_tree.__file__))["topos"]["fattree"]
    assert len(fattree(4, 5, 5).links()) == 48


@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_a_fat_tree_has_the_wiring_of_the_planners_fat_tree(k: int) -> None:
    """Which switch is cabled to which, and where hosts are, by the names that both give to the nodes."""
    topo, paper = FatTree(k), on_paper(k, 5e6, 5e6)
    name = {dpid: counted_from_one(switch.name) for dpid, switch in paper.switches.items()}
    expected = {frozenset((name[link.src.dpid], name[link.dst.dpid])) for link in paper.links.values()}
    switches = {switch.name for switch in topo.switch_specs}
    assert {frozenset((c.a, c.b)) for c in topo.cable_specs if c.a in switches} == expected
    assert Counter(h.leaf for h in topo.host_specs) == Counter(name[h.at.dpid] for h in paper.hosts.values())


def counted_from_one(name: str) -> str:
    kind = name.rstrip("0123456789")
    return f"{kind}{int(name.removeprefix(kind)) + 1}"


@pytest.mark.parametrize("k", [4, 6])
def test_a_fat_trees_ports_have_one_cable_each_and_no_gaps(k: int) -> None:
    fabric = FatTree(k)
    ports: dict[str, list[int]] = {}
    for cable in fabric.cable_specs:
        ports.setdefault(cable.a, []).append(cable.a_port)
        ports.setdefault(cable.b, []).append(cable.b_port)
    assert {tuple(sorted(ports[switch.name])) for switch in fabric.switch_specs} == {tuple(range(1, k + 1))}
    assert len({switch.dpid for switch in fabric.switch_specs}) == k * k + k * k // 4
    assert len({host.ip for host in fabric.host_specs}) == k**3 // 4


def test_a_fat_trees_ports_go_down_first_then_up() -> None:
    fabric = FatTree(4)
    assert {c.b_port: c.a for c in fabric.cable_specs if c.b == "edge4"} == {1: "h4_1", 2: "h4_2"}
    assert {c.a_port: c.b for c in fabric.cable_specs if c.a == "edge4"} == {3: "agg3", 4: "agg4"}
    assert {c.b_port: c.a for c in fabric.cable_specs if c.b == "agg4"} == {1: "edge3", 2: "edge4"}
    assert {c.a_port: c.b for c in fabric.cable_specs if c.a == "agg4"} == {3: "core3", 4: "core4"}
    assert {c.b_port: c.a for c in fabric.cable_specs if c.b == "core4"} == {1: "agg2", 2: "agg4", 3: "agg6", 4: "agg8"}
    assert {host.leaf: host.ip for host in fabric.host_specs if host.name == "h4_1"} == {"edge4": "10.0.4.1"}
    assert fabric.nodeInfo("agg4")["dpid"] == f"{0x104:016x}"
    assert fabric.nodeInfo("core4")["dpid"] == f"{0x204:016x}"


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ((3,), "k: 3 is not an even number"),
        ((0,), "k: 0 is not"),
        ((24,), "edge switches: 288"),
        ((4, 5, 0), "0 Mbit/s"),
        ((10, 5, 5, "long"), "longer than 15"),
    ],
)
def test_impossible_fat_trees_are_refused(sizes: tuple[object, ...], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        FatTree(*sizes)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--fabric", "fat-tree", "--leaves", "4"], "a fat-tree has no leaves"),
        (["--k", "4"], "a leaf-spine has no k"),
        (["--fabric", "fat-tree", "--k", "3"], "k: 3 is not an even number"),
    ],
)
def test_a_lab_of_sizes_that_its_shape_does_not_have_is_refused(options: list[str], problem: str) -> None:
    app = Typer()
    app.command()(lab.main)
    answer = CliRunner().invoke(app, options)
    assert answer.exit_code == 1
    assert problem in answer.output
