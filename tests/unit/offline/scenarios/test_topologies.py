"""Topologies, and the optical switches in a configuration."""

import tomllib
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from typer.testing import CliRunner

from offline.scenarios.topologies import (
    EMULATED,
    OFFLINE,
    Scheme,
    Topology,
    circuits_config,
    fat_tree,
    leaf_spine,
    optical,
)
from signalbox.cli import app
from signalbox.errors import InvalidInput

RATE = 5e6


def spine_leaf(leaves: int, spines: int, hosts: int, cables: int = 1, scheme: Scheme = EMULATED) -> Topology:
    return leaf_spine(leaves, spines, hosts, RATE, RATE, cables, scheme)


def ports_of(topology: Topology) -> dict[str, list[int]]:
    ports: dict[str, list[int]] = {}
    for cable in (*(host.cable for host in topology.hosts), *topology.cables):
        ports.setdefault(cable.a, []).append(cable.a_port)
        ports.setdefault(cable.b, []).append(cable.b_port)
    return {name: sorted(used) for name, used in ports.items()}


def test_hosts_come_first_on_an_emulated_leaf_then_the_uplinks_spine_by_spine() -> None:
    fabric = spine_leaf(2, 2, 2, 2)
    ports = ports_of(fabric)
    assert (ports["leaf2"], ports["spine1"], ports["h1_1"]) == ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4], [0])
    assert {host.port: host.name for host in fabric.hosts if host.leaf == "leaf1"} == {1: "h1_1", 2: "h1_2"}
    found = {c.a_port: (c.b, c.number) for c in fabric.cables if c.a == "leaf1"}
    assert found == {3: ("spine1", 1), 4: ("spine1", 2), 5: ("spine2", 1), 6: ("spine2", 2)}


def test_uplinks_come_first_on_a_leaf_of_a_workload_file() -> None:
    fabric = spine_leaf(2, 2, 2, 1, OFFLINE)
    assert {c.a_port: c.b for c in fabric.cables if c.a == "leaf0"} == {1: "spine0", 2: "spine1"}
    assert {host.port: host.ip for host in fabric.hosts if host.leaf == "leaf1"} == {3: "10.0.1.1", 4: "10.0.1.2"}


def test_dpids_are_distinct_and_name_the_tier() -> None:
    dpids = {switch.name: switch.dpid for switch in spine_leaf(254, 254, 1).switches}
    assert len(set(dpids.values())) == 508
    assert (dpids["leaf3"], dpids["spine3"]) == (3, 0x103)


def test_hosts_have_addresses_of_their_leaf_and_unicast_macs() -> None:
    hosts = spine_leaf(3, 2, 4).hosts
    assert len({host.ip for host in hosts}) == len({host.mac for host in hosts}) == 12
    for host in hosts:
        leaf = host.leaf.removeprefix("leaf")
        assert ip_address(host.ip) in ip_network(f"10.0.{leaf}.0/24")
        assert int(host.mac[:2], 16) & 0b11 == 0b10  # unicast, locally administered


@pytest.mark.parametrize(("make", "problem"), [
    (lambda: spine_leaf(0, 2, 2), r"leaves: .*given: 0"),
    (lambda: spine_leaf(2, 255, 2), r"spines: must be from 1 to 254 \(given: 255"),
    (lambda: spine_leaf(2, 2, 0), r"hosts_per_leaf: .*given: 0"),
    (lambda: spine_leaf(2, 2, 2, 0), r"cables: .*given: 0"),
    (lambda: fat_tree(3, RATE, RATE), "k: must be an even number"),
    (lambda: fat_tree(0, RATE, RATE), "k: must"),
    (lambda: fat_tree(24, RATE, RATE), "edge switches: .*given: 288"),
    (lambda: optical(0, 1, RATE), "servers: must be from 1"),
    (lambda: optical(1, 0, RATE), "interfaces: must be from 1"),
])  # fmt: skip
def test_sizes_that_are_impossible_or_that_emulated_numbers_cannot_hold_are_refused(
    make: Callable[[], Topology], problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        make()


@pytest.mark.parametrize(("k", "scheme"), [(2, EMULATED), (4, OFFLINE), (6, EMULATED)])
def test_a_fat_trees_ports_have_one_cable_each_and_no_gaps(k: int, scheme: Scheme) -> None:
    fabric = fat_tree(k, RATE, RATE, scheme)
    ports = ports_of(fabric)
    assert {tuple(ports[switch.name]) for switch in fabric.switches} == {tuple(range(1, k + 1))}
    assert len({switch.dpid for switch in fabric.switches}) == k * k + k * k // 4
    assert len({host.ip for host in fabric.hosts}) == k**3 // 4


def test_a_fat_trees_ports_go_down_first_then_up() -> None:
    fabric = fat_tree(4, RATE, RATE)
    down = {(c.b, c.b_port): c.a for c in fabric.cables} | {(h.leaf, h.port): h.name for h in fabric.hosts}
    up = {(c.a, c.a_port): c.b for c in fabric.cables}
    assert [down["edge4", port] for port in (1, 2)] == ["h4_1", "h4_2"]
    assert [up["edge4", port] for port in (3, 4)] == ["agg3", "agg4"]
    assert [down["agg4", port] for port in (1, 2)] == ["edge3", "edge4"]
    assert [up["agg4", port] for port in (3, 4)] == ["core3", "core4"]
    assert [down["core4", port] for port in (1, 2, 3, 4)] == ["agg2", "agg4", "agg6", "agg8"]
    assert {host.leaf: host.ip for host in fabric.hosts if host.name == "h4_1"} == {"edge4": "10.0.4.1"}
    dpids = {switch.name: switch.dpid for switch in fabric.switches}
    assert (dpids["agg4"], dpids["core4"]) == (0x104, 0x204)


def test_interface_k_of_every_server_is_at_its_port_of_optical_switch_k() -> None:
    fabric = optical(12, 4, RATE)
    found = [(s.name, s.dpid) for s in fabric.switches if s.name in ("server1", "server12", "optical1", "optical4")]
    assert found == [("server1", 1), ("server12", 12), ("optical1", 0x101), ("optical4", 0x104)]
    every = {(f"server{i}", 1 + k, f"optical{k}", i, RATE) for i in range(1, 13) for k in range(1, 5)}
    assert {(c.a, c.a_port, c.b, c.b_port, c.bps) for c in fabric.cables} == every


def test_a_server_has_one_host_with_the_rate_of_all_its_interfaces_unless_given() -> None:
    hosts = {(h.leaf, h.port, h.bps) for h in optical(3, 2, RATE).hosts}
    assert hosts == {(f"server{i}", 1, 2 * RATE) for i in (1, 2, 3)}
    assert {h.bps for h in optical(3, 2, RATE, 7e6).hosts} == {7e6}


FABRIC = optical(3, 2, 5e6)


def test_a_port_without_a_fibre_is_empty() -> None:
    cables = tuple(c for c in FABRIC.cables if (c.a, c.b) != ("server2", "optical1") and c.b != "optical2")
    read = tomllib.loads(circuits_config(replace(FABRIC, cables=cables), dark_s=0.5))["circuits"]
    assert read["dark_s"] == 0.5
    assert [switch["fibres"] for switch in read["switch"]] == [["0x1:2", "", "0x3:2"], []]


def test_options_of_the_lab_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    for argv, reason in (
        (["--circuits", str(tmp_path / "circuits.toml")], "needs --fabric direct-connect"),
        (["--fabric", "direct-connect", "--train", "unix:api.sock"], "does not work on a direct-connect fabric"),
        (["--train", "127.0.0.1:50051"], "must be unix:PATH"),
    ):
        refused = CliRunner().invoke(app, ["lab", *argv])
        assert refused.exit_code == 2
        assert reason in " ".join(refused.output.replace("│", " ").split())
