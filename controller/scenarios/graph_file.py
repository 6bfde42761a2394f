"""Reads a fabric from a graph, and writes one: networkx's node-link JSON, as ``networkx.node_link_data`` writes it.

In: a file as docs/reference/file-formats.md#graph describes it; the edges may be called ``edges`` (networkx from 3.4)
or ``links`` (before). Out: the ``Fabric``, or its ``Topology``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from controller.fabric.topology import Fabric
from controller.scenarios.fabric_options import LEAST_GBPS, MOST_GBPS
from controller.scenarios.fabrics import fabric_of
from controller.scenarios.topologies import OFFLINE, Switch, Topology, wire
from signalbox.errors import FieldProblem, InvalidInput, field_problems
from signalbox.standard_input import called, read_bytes

_RESERVED = ":>, "
"""Separators in the names of cables and paths."""

NodeId = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)]


class _Node(BaseModel):
    id: NodeId = Field(min_length=1)
    kind: Literal["switch", "host"]


class _Edge(BaseModel):
    source: NodeId
    target: NodeId
    capacity_gbps: float = Field(ge=LEAST_GBPS, le=MOST_GBPS, allow_inf_nan=False, strict=True)


class _Graph(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    directed: bool = False
    nodes: tuple[_Node, ...] = Field(min_length=1)
    edges: tuple[_Edge, ...] = Field(validation_alias=AliasChoices("edges", "links"))


def graph_file(path: Path) -> Fabric:
    """Raises as ``graph_topology``."""
    return fabric_of(graph_topology(path))


def graph_topology(path: Path) -> Topology:
    """Raises ``InvalidInput`` with every wrong element of the file (``fabric.json: edges[3].capacity_gbps``),
    ``OSError`` when it cannot be read."""
    try:
        graph = _Graph.model_validate_json(read_bytes(path))
    except ValidationError as error:
        raise InvalidInput(field_problems(error, _Graph)).within(called(path)) from None
    if problems := tuple(_faults(graph)):
        raise InvalidInput(problems).within(path)
    names = [node.id for node in graph.nodes if node.kind == "switch"]
    number = {name: n for n, name in enumerate(names)}
    cables = [
        (number[edge.source], number[edge.target], edge.capacity_gbps * 1e9)
        for edge in graph.edges
        if edge.source in number and edge.target in number
    ]
    nic = {
        host: (number[switch], edge.capacity_gbps * 1e9)
        for edge in graph.edges
        for host, switch in ((edge.source, edge.target), (edge.target, edge.source))
        if host not in number
    }
    nics = [nic[node.id] for node in graph.nodes if node.kind == "host"]
    switches = [Switch(name, n + 1) for name, n in number.items()]
    return wire(switches, cables, nics, OFFLINE)


def write_graph(path: Path, topology: Topology) -> None:
    """``graph_topology`` reads the same switches, cables, rates, and hosts by their addresses. Raises ``OSError``."""
    nodes = [{"id": switch.name, "kind": "switch"} for switch in topology.switches]
    nodes += [{"id": host.name, "kind": "host"} for host in topology.hosts]
    ends = [(cable.a, cable.b, cable.bps) for cable in topology.cables]
    ends += [(host.name, host.leaf, host.bps) for host in topology.hosts]
    edges = [{"source": a, "target": b, "capacity_gbps": bps / 1e9} for a, b, bps in ends]
    path.write_text(json.dumps({"directed": False, "multigraph": True, "nodes": nodes, "edges": edges}) + "\n")


def _faults(graph: _Graph) -> Iterator[FieldProblem]:
    if graph.directed:
        yield FieldProblem("directed", "must be false: a cable carries its capacity both ways")
    kinds = {node.id: node.kind for node in graph.nodes}
    ids = Counter(node.id for node in graph.nodes)
    edges = Counter(end for edge in graph.edges for end in (edge.source, edge.target))
    for n, node in enumerate(graph.nodes):
        if ids[node.id] > 1:
            yield FieldProblem(f"nodes[{n}].id", f"'{node.id}' is the id of {ids[node.id]} nodes")
        if any(character in node.id for character in _RESERVED):
            yield FieldProblem(
                f"nodes[{n}].id", f"'{node.id}' has a colon, comma, blank or '>', which names may not have"
            )
        if node.kind == "host" and edges[node.id] != 1:
            yield FieldProblem(f"nodes[{n}]", f"host '{node.id}' has {edges[node.id]} edges; it needs exactly one")
    for n, edge in enumerate(graph.edges):
        unknown = [end for end in (edge.source, edge.target) if end not in kinds]
        if unknown:
            yield FieldProblem(f"edges[{n}]", f"no node has the id '{unknown[0]}'")
        elif edge.source == edge.target:
            yield FieldProblem(f"edges[{n}]", f"connects '{edge.source}' with itself")
        elif kinds[edge.source] == kinds[edge.target] == "host":
            yield FieldProblem(f"edges[{n}]", f"connects the hosts '{edge.source}' and '{edge.target}'")
