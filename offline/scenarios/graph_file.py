"""Fabrics as graph files: networkx's node-link JSON (docs/reference/file-formats.md#graph).

A directed graph is a direct-connect fabric: its edges between switches are circuits. The list of edges may be called
``edges`` (networkx from 3.4) or ``links`` (older versions). Reading returns the ``Fabric`` or its ``Topology``.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from controller.public.problems import Fabric
from offline.scenarios.fabric_options import LEAST_GBPS, MOST_GBPS
from offline.scenarios.fabrics import fabric_of
from offline.scenarios.topologies import OFFLINE, Circuit, Switch, Topology, wire, with_circuits
from signalbox.errors import FieldProblem, InvalidInput, cut, field_problems
from signalbox.files import called, read_bytes

_RESERVED = ":>, "
"""Characters that separate names of cables and paths, and so cannot be part of a name."""

_MOST_INTERFACES = 1024

NodeId = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)]


class _Node(BaseModel):
    id: NodeId = Field(min_length=1)
    kind: Literal["switch", "host"]


class _Edge(BaseModel):
    source: NodeId
    target: NodeId
    capacity_gbps: float = Field(ge=LEAST_GBPS, le=MOST_GBPS, allow_inf_nan=False, strict=True)
    interface: int | None = Field(default=None, ge=0, lt=_MOST_INTERFACES, strict=True)


class _Graph(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    directed: bool = False
    nodes: tuple[_Node, ...] = Field(min_length=1)
    edges: tuple[_Edge, ...] = Field(validation_alias=AliasChoices("edges", "links"))


def graph_file(path: Path) -> Fabric:
    """Return the fabric of a graph file. Raises the errors of ``graph_topology``.

    If the ids of all hosts are IPv4 addresses, hosts have these addresses, not those of the scheme ``OFFLINE``."""
    graph = _read(path)
    topology = _topology(graph)
    ids = [node.id for node in graph.nodes if node.kind == "host"]
    if all(map(_is_address, ids)):
        hosts = tuple(host._replace(ip=ip) for host, ip in zip(topology.hosts, ids, strict=True))
        topology = replace(topology, hosts=hosts)
    return fabric_of(topology)


def _is_address(text: str) -> bool:
    try:
        return str(IPv4Address(text)) == text
    except ValueError:
        return False


def graph_topology(path: Path) -> Topology:
    """Return the topology of a graph file.

    Raises ``InvalidInput`` with every wrong element (``fabric.json: edges[3].capacity_gbps``), and ``OSError`` when the
    file cannot be read."""
    return _topology(_read(path))


def _read(path: Path) -> _Graph:
    try:
        graph = _Graph.model_validate_json(read_bytes(path))
    except ValidationError as error:
        raise InvalidInput(field_problems(error, _Graph)).within(called(path)) from None
    if problems := tuple(chain(_faults(graph), _wrong_circuits(graph) if graph.directed else ())):
        raise InvalidInput(problems).within(path)
    return graph


def _topology(graph: _Graph) -> Topology:
    names = [node.id for node in graph.nodes if node.kind == "switch"]
    number = {name: n for n, name in enumerate(names)}
    cables = [
        (number[edge.source], number[edge.target], edge.capacity_gbps * 1e9)
        for edge in graph.edges
        if edge.source in number and edge.target in number and not graph.directed
    ]
    nic = {
        host: (number[switch], edge.capacity_gbps * 1e9)
        for edge in graph.edges
        for host, switch in ((edge.source, edge.target), (edge.target, edge.source))
        if host not in number
    }
    nics = [nic[node.id] for node in graph.nodes if node.kind == "host"]
    switches = [Switch(name, n + 1) for name, n in number.items()]
    topology = wire(switches, cables, nics, OFFLINE)
    interfaces = [edge.interface for edge in graph.edges if edge.interface is not None] if graph.directed else []
    return with_circuits(topology, _circuits(graph), 1 + max(interfaces)) if interfaces else topology


def _circuits(graph: _Graph) -> Iterator[Circuit]:
    """Yield the circuits; interface k is port k + 1."""
    for edge in graph.edges:
        if edge.interface is not None:
            yield Circuit(edge.source, edge.target, 1 + edge.interface, edge.capacity_gbps * 1e9)


def write_graph(path: Path, topology: Topology) -> None:
    """Write a topology as a file from which ``graph_topology`` reads the same topology. Raises ``OSError``.

    Reading restores switches, cables or circuits, rates, and hosts with their addresses, and numbers ports by the
    scheme ``OFFLINE``."""
    nodes = [{"id": switch.name, "kind": "switch"} for switch in topology.switches]
    nodes += [{"id": host.name, "kind": "host"} for host in topology.hosts]
    ends = [(cable.a, cable.b, cable.bps) for cable in topology.cables]
    ends += [(host.name, host.leaf, host.bps) for host in topology.hosts]
    directed = bool(topology.circuits)
    if directed:
        ends += [(host.leaf, host.name, host.bps) for host in topology.hosts]
    edges: list[dict[str, Any]] = [{"source": a, "target": b, "capacity_gbps": bps / 1e9} for a, b, bps in ends]
    edges += [
        {"source": src, "target": dst, "interface": port - 1, "capacity_gbps": bps / 1e9}
        for src, dst, port, bps in topology.circuits
    ]
    path.write_text(json.dumps({"directed": directed, "multigraph": True, "nodes": nodes, "edges": edges}) + "\n")


def _faults(graph: _Graph) -> Iterator[FieldProblem]:
    kinds = {node.id: node.kind for node in graph.nodes}
    ids = Counter(node.id for node in graph.nodes)
    edges = Counter(end for edge in graph.edges for end in (edge.source, edge.target))
    needed = 2 if graph.directed else 1
    for n, node in enumerate(graph.nodes):
        if ids[node.id] > 1:
            yield FieldProblem(
                f"nodes[{n}].id", f"'{cut(node.id)}' is the id of {ids[node.id]} nodes; each needs an id of its own"
            )
        if any(character in node.id for character in _RESERVED):
            yield FieldProblem(
                f"nodes[{n}].id", f"'{node.id}' has a colon, comma, blank or '>', which names may not have"
            )
        if node.kind == "host" and edges[node.id] != needed:
            exactly = "exactly one each way" if graph.directed else "exactly one"
            yield FieldProblem(f"nodes[{n}]", f"host '{node.id}' has {edges[node.id]} edges; it needs {exactly}")
    for n, edge in enumerate(graph.edges):
        unknown = [end for end in (edge.source, edge.target) if end not in kinds]
        if unknown:
            yield FieldProblem(f"edges[{n}]", f"no node has the id '{cut(unknown[0])}'")
        elif edge.source == edge.target:
            yield FieldProblem(f"edges[{n}]", f"connects '{edge.source}' with itself")
        elif kinds[edge.source] == kinds[edge.target] == "host":
            yield FieldProblem(f"edges[{n}]", f"connects the hosts '{edge.source}' and '{edge.target}'")


def _wrong_circuits(graph: _Graph) -> Iterator[FieldProblem]:
    """Yield the faults of circuits and NICs.

    A host needs one edge each way, of one rate. An optical switch has one input and one output per server."""
    hosts = {node.id: n for n, node in enumerate(graph.nodes) if node.kind == "host"}
    nics: defaultdict[str, set[tuple[bool, float]]] = defaultdict(set)
    used = Counter[tuple[str, str, int]]()
    for n, edge in enumerate(graph.edges):
        if edge.source in hosts or edge.target in hosts:
            out = edge.source in hosts
            nics[edge.source if out else edge.target].add((out, edge.capacity_gbps))
        elif edge.interface is None:
            message = "is missing: the number of the interface at both ends of the circuit"
            yield FieldProblem(f"edges[{n}].interface", message)
        else:
            for node, what in ((edge.source, "sends"), (edge.target, "receives")):
                used[node, what, edge.interface] += 1
                if used[node, what, edge.interface] > 1:
                    yield FieldProblem(f"edges[{n}]", f"'{node}' {what} twice through interface {edge.interface}")
    for host, ways in nics.items():
        if len(ways) == 2 and (len({out for out, _ in ways}) < 2 or len({rate for _, rate in ways}) > 1):
            message = f"host '{host}' needs one edge each way, of the same capacity_gbps"
            yield FieldProblem(f"nodes[{hosts[host]}]", message)
