"""Equal-cost shortest paths in the switch multigraph.

In: a ``Fabric``. Out: per pair of switches the candidate paths of the planner, and per destination the next hops of
every switch, from which the default table's ECMP groups are built. Only switches forward; hosts never do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import networkx as nx

from controller.fabric.topology import Dpid, Fabric, LinkId, Path

Hops = Mapping[Dpid, tuple[LinkId, ...]]
"""Towards one destination: per switch that reaches it the links out of it that lie on a shortest path, sorted. The
destination has no entry; parallel cables are separate next hops."""


def next_hops(fabric: Fabric, destinations: Iterable[Dpid]) -> dict[Dpid, Hops]:
    """The next hops towards each destination. One breadth-first search each."""
    reversed_graph = _reversed(fabric)
    return {dst: _hops_towards(fabric, reversed_graph, dst) for dst in destinations}


def candidate_paths(
    fabric: Fabric, pairs: Iterable[tuple[Dpid, Dpid]], max_paths: int
) -> dict[tuple[Dpid, Dpid], tuple[Path, ...]]:
    """All shortest paths of each pair, at most ``max_paths``; empty when there is none.

    The order is deterministic, and goes round the next hops at every switch: the first k paths use as many different
    first links as k paths can, so a cap cuts fairly instead of keeping the paths through one spine.
    """
    wanted = list(pairs)
    hops = next_hops(fabric, {dst for _, dst in wanted})
    found = {}
    for src, dst in wanted:
        found[src, dst] = ((),) if src == dst else tuple(islice(_paths(fabric, hops[dst], src, dst), max_paths))
    return found


def _reversed(fabric: Fabric) -> nx.DiGraph[Dpid]:
    """Which switch is reached from which, edges turned round. Cables in parallel do not change a distance."""
    graph: nx.DiGraph[Dpid] = nx.DiGraph()
    graph.add_nodes_from(fabric.switches)
    graph.add_edges_from({(link.dst.dpid, link.src.dpid) for link in fabric.links.values()})
    return graph


def _hops_towards(fabric: Fabric, reversed_graph: nx.DiGraph[Dpid], dst: Dpid) -> dict[Dpid, tuple[LinkId, ...]]:
    if dst not in reversed_graph:
        return {}
    distance = dict(nx.single_source_shortest_path_length(reversed_graph, dst))
    hops: defaultdict[Dpid, list[LinkId]] = defaultdict(list)
    for link_id, link in fabric.links.items():
        here = distance.get(link.src.dpid)
        if here is not None and distance.get(link.dst.dpid) == here - 1:
            hops[link.src.dpid].append(link_id)
    return {dpid: tuple(sorted(links)) for dpid, links in sorted(hops.items())}


def _paths(fabric: Fabric, hops: Hops, src: Dpid, dst: Dpid) -> Iterator[Path]:
    """The shortest paths from ``src``, lazily: there may be exponentially many."""
    if src == dst:
        yield ()
        return
    waiting = [(link, _paths(fabric, hops, fabric.links[link].dst.dpid, dst)) for link in hops.get(src, ())]
    while waiting:
        still = []
        for link, rests in waiting:
            rest = next(rests, None)
            if rest is not None:
                yield (link, *rest)
                still.append((link, rests))
        waiting = still
