"""The Mininet topologies, without building them."""

import runpy
import subprocess
import sys

import pytest

from mininet_topos import direct_connect, fat_tree, leaf_spine
from mininet_topos.direct_connect import DirectConnect
from mininet_topos.fabric_topo import shaping
from mininet_topos.fat_tree import FatTree
from mininet_topos.lab.command import LabKind, topology
from mininet_topos.leaf_spine import LeafSpine
from signalbox.errors import InvalidInput


def test_mininet_gets_explicit_dpids_ports_and_addresses() -> None:
    fabric = LeafSpine(4, 3, 2)
    assert fabric.nodeInfo("spine3")["dpid"] == "0000000000000103"
    assert fabric.nodeInfo("h4_2")["ip"] == "10.0.4.2/16"
    assert fabric.port("leaf4", "spine3") == (5, 4)
    assert fabric.linkInfo("h4_2", "leaf4")["addr1"] == "02:00:00:00:04:02"
    assert fabric.linkInfo("leaf4", "spine3")["addr2"] == "02:01:01:03:00:04"
    assert len(LeafSpine(2, 2, 2, cables_per_pair=3).links()) == 2 * 2 + 2 * 2 * 3
    assert FatTree(4).nodeInfo("core4")["dpid"] == f"{0x204:016x}"


def test_a_long_interface_name_is_without_eth() -> None:
    fabric = DirectConnect(12, 4, prefix="t01")
    assert fabric.interface("server9", 5) == "t01server9-eth5"
    assert fabric.interface("server12", 5) == "t01server12-5"
    assert fabric.linkInfo("t01server12", "t01optical4")["intfName2"] == "t01optical4-12"


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ((2, 2, 2, 5, 0), "0 Mbit/s"),
        ((2, 2, 2, 5, 5, 1, "toolongaprefix"), "longer than 15"),
    ],
)
def test_impossible_links_are_refused(sizes: tuple[object, ...], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        LeafSpine(*sizes)


def test_a_host_has_the_rate_of_all_interfaces_unless_given_and_the_window_of_one_flow() -> None:
    sizes: dict[str, int | None] = {"servers": 3, "interfaces": 2}
    labs = [topology(LabKind.DIRECT_CONNECT, sizes, rates, "") for rates in [(None, 20.0), (7.0, 20.0)]]
    assert [lab.linkInfo("h1_1", "server1")["bw"] for lab in labs] == [40, 7]
    assert DirectConnect(3, 4, 20).nodeInfo("h1_1")["window_mbps"] == 20
    assert LeafSpine(2, 2, 2, 5, 20).nodeInfo("h1_1")["window_mbps"] == 5


def test_a_queue_is_at_most_50_ms_and_takes_at_least_a_burst() -> None:
    assert shaping(5) == "tbf rate 5000kbit burst 12112 limit 31250"
    assert shaping(0.1) == "tbf rate 100kbit burst 12112 limit 12112"


def test_mn_can_load_the_files() -> None:
    """``mn --custom`` executes the files under no module name."""
    leafspine = runpy.run_path(str(leaf_spine.__file__))["topos"]["leafspine"]
    assert len(leafspine(4, 4, 4, 5, 5).links()) == 32
    fattree = runpy.run_path(str(fat_tree.__file__))["topos"]["fattree"]
    assert len(fattree(4, 5, 5).links()) == 48
    directconnect = runpy.run_path(str(direct_connect.__file__))["topos"]["directconnect"]
    assert len(directconnect(12, 4, 5).links()) == 60


def test_mn_needs_no_package_but_mininet() -> None:
    """Mininet runs with the system's Python."""
    code = f"""
import runpy, sys
import mininet.link, mininet.node, mininet.topo
before = set(sys.modules)
for file in {[module.__file__ for module in (leaf_spine, fat_tree, direct_connect)]}:
    runpy.run_path(file)
print(*sorted({{name.partition(".")[0] for name in set(sys.modules) - before}} - sys.stdlib_module_names))
"""
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == ["mininet_topos", "offline", "signalbox"]


@pytest.mark.parametrize(
    ("kind", "sizes", "problem"),
    [
        (LabKind.FAT_TREE, {"leaves": 4}, "--fabric: a fat-tree has no leaves"),
        (LabKind.FAT_TREE, {"k": 3}, "k: must be an even number"),
        (LabKind.DIRECT_CONNECT, {"cables": 2, "leaves": 4}, "--fabric: a direct-connect has no cables, leaves"),
        (LabKind.DIRECT_CONNECT, {"interfaces": 0}, "interfaces: must be from 1"),
    ],
)
def test_a_lab_of_sizes_that_its_topology_does_not_have_is_refused(
    kind: LabKind, sizes: dict[str, int | None], problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        topology(kind, sizes, (5, 5), "")
