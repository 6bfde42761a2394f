"""The least number of pieces into which any planner must cut the flows: split plans are compared with it.

Take the flows out of one leaf and the leaf's uplinks as the two sides of a graph, with an edge where a flow has a piece
on a link. A flow has at least as many pieces as edges, and a connected part with f flows and u links has at least
f + u - 1 edges. All bytes of the part's flows leave through its links: when every link may take x flows' worth, f is at
most floor(u * x). So flows and links fall into parts with sum f = d, sum u <= S, f <= floor(u * x), and beyond one
piece each the d flows need

    the least sum of (u - 1) over parts of u links, such that sum u <= S and sum floor(u * x) >= d

more: a knapsack, solved here by dynamic programming. At a single leaf that many are enough: laid end to end, f flows on
u links are cut u - 1 times (McNaughton, "Scheduling with deadlines and loss functions", 1959). The same holds for the
flows into a leaf.

Leaves together: say y is a flow's pieces beyond the first; the y of the flows out of (into) a leaf add up to at least
what that leaf needs. In a set of leaf ends no two of which share a flow no y counts twice, so the sum of what they need
is a bound; the best such set is the heaviest independent set of a bipartite graph: the sum of all needs less the
maximum flow from the ends out to the ends in (König and Egerváry, 1931).

Flows of several sizes: scaled down to one size those that are at least as large still fit, and every size gives a
bound. Only one phase of each job counts, because phases do not add up. Unequal links count as the largest of them.

In: a ``Problem`` and a worst level. Out: a number of pieces.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import networkx as nx
import numpy as np

from controller.fabric.topology import Dpid
from controller.planning.problem import Flow, Problem
from signalbox.jobs.spec import JobId

_ROUNDING = 1e-9
_SIZES = 16
"""Distinct demands that a leaf's need is taken for, the largest first."""

_End = tuple[str, Dpid]


def least_pieces(problem: Problem, level: float) -> int:
    """No routing of all flows that have a path, with no link loaded beyond ``level``, has fewer pieces in all. Raises
    ``ValueError`` when there is no such routing because a leaf has more to send or to receive."""
    local = sum(flow.src_leaf == flow.dst_leaf for flow in problem.flows)
    crossing = [flow for flow in problem.flows if flow.src_leaf != flow.dst_leaf and problem.reachable(flow)]
    at_end: defaultdict[_End, list[float]] = defaultdict(list)
    for flow, bps in zip(crossing, _one_phase(crossing), strict=True):
        at_end["out", flow.src_leaf].append(bps)
        at_end["in", flow.dst_leaf].append(bps)
    needs = {end: _need(sizes, _capacities(problem, end), level) for end, sizes in at_end.items()}
    return local + len(crossing) + _together(needs, crossing)


@lru_cache(maxsize=4096)
def least_cuts(flows: int, links: int, fit: float) -> int:
    """By how much the pieces of ``flows`` equal flows on up to ``links`` equal links outnumber the flows at least, when
    a link may take ``fit`` flows. Raises ``ValueError`` when not all of them fit."""
    held = np.array([int(count * fit * (1 + _ROUNDING)) for count in range(links + 1)], np.int64)
    if held[links] < flows:
        raise ValueError(f"{flows} flows do not fit on {links} links of {fit:g} flows each")
    alone = held[1] * np.arange(links + 1) if links else np.zeros(1, np.int64)
    # most[cuts][n]: flows that n links hold when their parts are cut ``cuts`` times in all.
    most = [alone]
    while most[-1][links] < flows:
        cuts = len(most)
        row = np.zeros(links + 1, np.int64)
        for count in range(2, cuts + 2):
            row[count:] = np.maximum(row[count:], most[cuts - count + 1][: links + 1 - count] + held[count])
        most.append(np.maximum.accumulate(row - alone) + alone)
    return len(most) - 1


def _one_phase(flows: Sequence[Flow]) -> list[float]:
    """Per flow its bit/s in the phase in which most flows of its job send."""
    senders: defaultdict[JobId, Counter[int]] = defaultdict(Counter)
    for flow in flows:
        senders[flow.job_id].update(phase for phase, _ in flow.demand_bps)
    chosen = {job: max(sorted(count), key=count.__getitem__, default=0) for job, count in senders.items()}
    return [dict(flow.demand_bps).get(chosen[flow.job_id], 0.0) for flow in flows]


def _capacities(problem: Problem, end: _End) -> list[float]:
    way, leaf = end
    links = problem.paths.links_from(leaf) if way == "out" else problem.paths.links_into(leaf)
    return [problem.capacity_bps[link] for link in links]


def _need(sizes: Sequence[float], capacities: Sequence[float], level: float) -> int:
    """Pieces beyond one for each flow, at one end of a leaf."""
    counts = Counter(size for size in sizes if size > 0)
    need = flows = 0
    for size in sorted(counts, reverse=True)[:_SIZES]:
        flows += counts[size]
        fit = min(level * max(capacities) / size, math.ldexp(1.0, 40))
        need = max(need, least_cuts(flows, len(capacities), fit))
    return need


def _together(needs: dict[_End, int], flows: Sequence[Flow]) -> int:
    total = sum(needs.values())
    if not total:
        return 0
    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.add_nodes_from(("source", "sink"))
    for (way, leaf), need in needs.items():
        ends = ("source", (way, leaf)) if way == "out" else ((way, leaf), "sink")
        graph.add_edge(*ends, capacity=need)
    graph.add_edges_from({(("out", flow.src_leaf), ("in", flow.dst_leaf)) for flow in flows})
    return total - int(nx.maximum_flow_value(graph, "source", "sink"))
