"""Graphs as networkx writes them become fabrics; the errors of wrong graphs name the element."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from offline.scenarios.fabrics import parallel_cables, without, without_random_links
from offline.scenarios.graph_file import graph_file, graph_topology, write_graph
from offline.scenarios.topologies import OFFLINE, direct_connect
from signalbox.errors import InvalidInput


def graph() -> nx.MultiGraph[Any]:
    """Return two switches with two cables of different rates, a slow host on one and a fast host on the other."""
    made: nx.MultiGraph[Any] = nx.MultiGraph()
    made.add_node("fast", kind="host", rack=7)
    made.add_nodes_from(("a", "b"), kind="switch")
    made.add_node(9, kind="host")
    made.add_edge("a", "b", capacity_gbps=100)
    made.add_edge("a", "b", capacity_gbps=40)
    made.add_edge("a", 9, capacity_gbps=25)
    made.add_edge("fast", "b", capacity_gbps=100)
    return made


def data() -> dict[str, Any]:
    written: dict[str, Any] = nx.node_link_data(graph(), edges="edges")
    return written


def write(folder: Path, content: object) -> Path:
    file = folder / "fabric.json"
    file.write_text(json.dumps(content))
    return file


def problems(folder: Path, content: object) -> list[str]:
    file = write(folder, content)
    with pytest.raises(InvalidInput) as error:
        graph_file(file)
    assert all(str(problem).startswith(str(file)) for problem in error.value.problems)
    return [str(problem).removeprefix(f"{file}: ") for problem in error.value.problems]


@pytest.mark.parametrize("edges", ["edges", "links"])
def test_switches_and_hosts_are_numbered_as_in_the_file(tmp_path: Path, edges: str) -> None:
    fabric = graph_file(write(tmp_path, nx.node_link_data(graph(), edges=edges)))
    assert [switch.name for switch in fabric.switches.values()] == ["a", "b"]
    hosts = [(fabric.name(host.at.dpid), host.nic_bps) for host in fabric.hosts.values()]
    assert hosts == [("b", 100e9), ("a", 25e9)]
    between = [[fabric.links[link].capacity_bps for link in links] for links in parallel_cables(fabric).values()]
    assert between == [[100e9, 40e9], [100e9, 40e9]]


def test_ids_of_hosts_that_are_addresses_are_their_addresses(tmp_path: Path) -> None:
    some = nx.relabel_nodes(graph(), {"fast": "192.168.1.9"})
    assert [*graph_file(write(tmp_path, nx.node_link_data(some, edges="edges"))).hosts] == ["10.0.1.1", "10.0.0.1"]
    every = nx.relabel_nodes(some, {9: "192.168.1.4"})
    assert [*graph_file(write(tmp_path, nx.node_link_data(every, edges="edges"))).hosts] == [
        "192.168.1.9",
        "192.168.1.4",
    ]


@pytest.mark.parametrize(
    ("where", "value", "problem"),
    [
        (("nodes", 0, "kind"), "router", "nodes[0].kind: must be 'switch' or 'host' (given: 'router')"),
        (("edges", 1, "capacity_gbps"), 0, "edges[1].capacity_gbps: must be at least 1e-06 (given: 0)"),
        (("edges", 1, "capacity_gbps"), 1e300, "edges[1].capacity_gbps: must be at most 1000000 (given: 1e+300)"),
        (("edges", 0, "capacity_gbps"), "100", "edges[0].capacity_gbps: must be a number (given: '100')"),
        (("edges", 0, "source"), "c", "edges[0]: no node has the id 'c'"),
        (("edges", 1, "target"), "a", "edges[1]: connects 'a' with itself"),
        (("nodes", 1, "id"), "9", "nodes[1].id: '9' is the id of 2 nodes; each needs an id of its own"),
        (("nodes", 1, "id"), "a>b", "nodes[1].id: 'a>b' has a colon, comma, blank or '>', which names may not have"),
    ],
)
def test_a_wrong_element_is_named(tmp_path: Path, where: tuple[Any, ...], value: object, problem: str) -> None:
    content = data()
    target = content
    for key in where[:-1]:
        target = target[key]
    target[where[-1]] = value
    assert problem in problems(tmp_path, content)


def test_hosts_have_one_nic(tmp_path: Path) -> None:
    content = data()
    content["nodes"].append({"id": "alone", "kind": "host"})
    content["edges"].append({"source": "fast", "target": 9, "capacity_gbps": 1})
    assert problems(tmp_path, content) == [
        "nodes[0]: host 'fast' has 2 edges; it needs exactly one",
        "nodes[3]: host '9' has 2 edges; it needs exactly one",
        "nodes[4]: host 'alone' has 0 edges; it needs exactly one",
        "edges[4]: connects the hosts 'fast' and '9'",
    ]


def test_what_is_not_json_says_so(tmp_path: Path) -> None:
    file = tmp_path / "fabric.json"
    file.write_text("{")
    with pytest.raises(InvalidInput, match=r"fabric\.json: Invalid JSON: [^(]*$"):
        graph_file(file)


# ---- direct-connect fabrics


def circuits() -> dict[str, Any]:
    """Return three servers in a ring, two of which are also connected in both directions."""
    made: nx.MultiDiGraph[Any] = nx.MultiDiGraph()
    for n in range(3):
        made.add_node(f"s{n}", kind="switch")
        made.add_node(f"h{n}", kind="host")
        made.add_edge(f"h{n}", f"s{n}", capacity_gbps=20)
        made.add_edge(f"s{n}", f"h{n}", capacity_gbps=20)
    for a, b, interface in ((0, 1, 0), (1, 2, 0), (2, 0, 0), (0, 2, 1), (2, 0, 1)):
        made.add_edge(f"s{a}", f"s{b}", interface=interface, capacity_gbps=10)
    written: dict[str, Any] = nx.node_link_data(made, edges="edges")
    return written


def test_edges_of_a_directed_graph_are_circuits_between_interfaces_of_one_number(tmp_path: Path) -> None:
    fabric = graph_file(write(tmp_path, circuits()))
    ways = [(fabric.link_name(link.id), link.dst.port, link.capacity_bps) for link in fabric.links.values()]
    assert sorted(ways) == [
        ("s0:1>s1", 1, 10e9), ("s0:2>s2", 2, 10e9), ("s1:1>s2", 1, 10e9), ("s2:1>s0", 1, 10e9), ("s2:2>s0", 2, 10e9),
    ]  # fmt: skip
    assert {(host.at.port, host.nic_bps) for host in fabric.hosts.values()} == {(3, 20e9)}


def test_what_was_written_of_a_direct_connect_fabric_is_read(tmp_path: Path) -> None:
    topology = direct_connect(((1, 2, 0, None), (None, 0, 1, None)), 5e9, OFFLINE)
    file = tmp_path / "fabric.json"
    write_graph(file, topology)
    assert graph_topology(file) == topology
    graph = nx.node_link_graph(json.loads(file.read_text()), edges="edges")
    assert graph.is_directed()
    assert nx.has_path(graph, "h1_1", "h0_1")
    assert not nx.has_path(graph, "h0_1", "h3_1")


def test_a_circuit_that_no_optical_switch_makes_is_named(tmp_path: Path) -> None:
    content = circuits()
    of = {(edge["source"], edge["target"], edge.get("interface")): edge for edge in content["edges"]}
    place = {id(edge): n for n, edge in enumerate(content["edges"])}
    del of["s1", "s2", 0]["interface"]
    of["s0", "s2", 1]["interface"] = 0
    of["h0", "s0", None]["capacity_gbps"] = 10
    of["s2", "h2", None]["target"] = "h1"
    twice = "\n".join(problems(tmp_path, content))
    missing, again = (f"edges[{place[id(of[key])]}]" for key in (("s1", "s2", 0), ("s0", "s2", 1)))
    assert f"{missing}.interface: is missing: the number of the interface at both ends of the circuit" in twice
    assert f"{again}: 's0' sends twice through interface 0" in twice
    assert "nodes[1]: host 'h0' needs one edge each way, of the same capacity_gbps" in twice
    assert "nodes[5]: host 'h2' has 1 edges; it needs exactly one each way" in twice


def test_a_cut_circuit_leaves_the_one_that_arrives_at_its_far_port(tmp_path: Path) -> None:
    fabric = graph_file(write(tmp_path, circuits()))
    ring = next(link for link in fabric.links.values() if fabric.link_name(link.id) == "s0:1>s1")
    left = without(fabric, [ring.id])
    assert sorted(map(left.link_name, left.links)) == ["s0:2>s2", "s1:1>s2", "s2:1>s0", "s2:2>s0"]
    pair = next(link for link in fabric.links.values() if fabric.link_name(link.id) == "s0:2>s2")
    assert sorted(map(fabric.link_name, without(fabric, [pair.id]).links)) == ["s0:1>s1", "s1:1>s2", "s2:1>s0"]
    assert len(without_random_links(fabric, 4, 1).links) == 0
