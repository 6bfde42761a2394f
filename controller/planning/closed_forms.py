"""Routing in closed form on a leaf-spine, part by part: optimal when the leaves of each part are alike.

In: a ``Problem``. Out: routes of the flows between leaves. None when some paths do not have two links, or when the
leaves of a part have no common link. ``common_links`` defines *parts* of a fabric. A *common link* is a cable that all
leaves of a part have to the same spine.

Flows are edges of a bipartite multigraph, from the leaf of the source to the leaf of the destination. Edges that share
a leaf on the same side get different colours; as many colours as the largest degree are enough (König's theorem).

- *Balanced edge colouring* routes whole flows: colours are the S common links. A leaf of degree d is first cut
  into copies of at most S flows each. The colouring is then *equitable* (de Werra, "Equitable colorations of
  graphs", 1971): each leaf has floor(d/S) or ceil(d/S) flows of each colour. No routing of whole flows puts fewer flows
  on the fullest of these S links.
- *Interval cutting* splits flows of equal demand. Colour the flows with D colours, where D is the largest degree.
  Colour c owns the interval [c, c+1) of a line of length D. Cut the line into segments, one per common link. A flow
  puts on a link the share of its colour's interval that lies in the link's segment. A leaf has at most one flow of a
  colour, so it loads a link with at most the length of the link's segment. The length of a segment is proportional to
  its link's capacity, so that all common links are equally loaded. When all links of the leaves are common links and
  are alike, this load is the lower bound of the leaf's cut (``bounds``). A flow touches at most two segments if no
  segment is shorter than 1; with the slowest links first, segments may even be a little shorter.

Demands that differ a little (``_NEARLY``) are cut as if all demands were the largest one. The capacity of a common
link is the smallest capacity of its links at any leaf. The slowdowns are computed from the routes and include
the cost of both simplifications; the bounds do not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import rustworkx as rx

from controller.planning import residual_links
from controller.planning.bounds import Bounds
from controller.planning.common_links import CommonLinks, common_links_of, find_common_links, parts
from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from controller.planning.problem import Floats, Ints, NumberedRoutes, Numbers, Problem, distinct

_ROUNDING = 1e-9
_NEARLY = 0.05
"""Relative difference up to which demands are cut as if they were equal."""


def route(problem: Problem, bounds: Bounds) -> tuple[str, NumberedRoutes] | None:
    """Return (name of the method, routes), with whole flows in every part where splitting gains nothing.

    Return None when no flow crosses the fabric, or when the leaves of a part have no common link."""
    numbers = problem.numbers
    if not len(numbers.crossing):
        return None
    routed = []
    name = "edge-coloring"
    alike = find_common_links(problem)
    whole = (numbers.most == 1).all() or bounds.integer <= bounds.fluid * (1 + SLOWDOWN_TOLERANCE)
    floors = np.array([bounds.job.get(job, 1.0) for job in numbers.job_ids])
    for flows in [numbers.crossing] if alike and whole else parts(numbers, numbers.crossing):
        common = alike or common_links_of(problem, flows)
        if common is None:
            return None
        cut = _cut_where_it_gains(numbers, flows, common, float(floors[numbers.job[flows]].min()))
        name = name if cut is None else "interval-cutting"
        routed.append(cut or _colored(numbers, flows, common))
    return name, NumberedRoutes.joined(routed)


def _colored(numbers: Numbers, flows: Ints, common: CommonLinks) -> NumberedRoutes:
    """Return routes of whole flows over common links.

    Residual links (``residual_links``) are used too if fewer flows then share a link."""
    residual = common.has_others and nearly_equal(numbers.peak_bps[flows])
    over_all = residual_links.whole(numbers, flows, common, _even) if residual else None
    return over_all or color_evenly(numbers, flows, common)


def _cut_where_it_gains(numbers: Numbers, flows: Ints, common: CommonLinks, floor: float) -> NumberedRoutes | None:
    """Return routes of split flows; None when splitting gains nothing, or when the flows cannot be split.

    ``floor``: lower bound of the slowdown of every job."""
    max_subflows, demand_bps = int(numbers.most[flows].min()), nearly_equal(numbers.peak_bps[flows])
    if max_subflows == 1 or demand_bps is None:
        return None
    degree = max(int(np.bincount(of[flows]).max()) for of in (numbers.src, numbers.dst))
    fit = tuple([bps / demand_bps for bps in common.bps])
    in_turns = -(-degree // common.count) / fit[min(degree, common.count) - 1]
    if in_turns <= floor * (1 + SLOWDOWN_TOLERANCE):
        return None
    slowdown = _cut(degree, fit, max_subflows).slowdown
    if common.has_others and slowdown > floor * (1 + SLOWDOWN_TOLERANCE):
        ways = [
            (divided, _cut(int(divided.colors.max(initial=0)) + 1, fit, max_subflows))
            for divided in residual_links.split(numbers, flows, common, demand_bps, _even)
        ]
        least, way = min(((max(one.slowdown for one in way), n) for n, way in enumerate(ways)), default=(math.inf, 0))
        if least < min(slowdown, in_turns) * (1 - SLOWDOWN_TOLERANCE):
            divided, cut = ways[way]
            return NumberedRoutes.joined(
                [divided.over, split_evenly(numbers, divided.rest, common, cut, divided.colors)]
            )
    if slowdown >= in_turns * (1 - SLOWDOWN_TOLERANCE):
        return None
    colors = _even(numbers.src[flows], numbers.dst[flows], len(flows))
    return split_evenly(numbers, flows, common, _cut(degree, fit, max_subflows), colors)


def nearly_equal(peak_bps: Floats) -> float | None:
    """Return the largest demand (bit/s) when all demands are nearly equal, else None."""
    largest = float(peak_bps.max(initial=0.0))
    return largest if float(peak_bps.min(initial=largest)) >= (1 - _NEARLY) * largest > 0 else None


# ---- whole flows


def color_evenly(numbers: Numbers, flows: Ints, common: CommonLinks) -> NumberedRoutes:
    """Return routes of whole flows between leaves: no link has more than ceil(flows of its leaf / common links)."""
    colors = _even(numbers.src[flows], numbers.dst[flows], common.count)
    return NumberedRoutes(flows, common.paths(numbers, flows, colors), np.ones(len(flows)))


def balanced_coloring(edges: Sequence[tuple[int, int]], colors: int) -> list[int]:
    """Return a colour in [0, ``colors``) for each (left, right) edge.

    Each end has at most ceil(degree / ``colors``) and at least floor(degree / ``colors``) edges of each colour."""
    left, right = (_numbered([edge[side] for edge in edges]) for side in (0, 1))
    coloring: list[int] = _even(left, right, colors).tolist()
    return coloring


def _numbered(nodes: Sequence[int]) -> Ints:
    """Return numbers from 0 for the nodes, which may be too large for an ``np.int64``."""
    number = {node: place for place, node in enumerate(sorted(set(nodes)))}
    return np.array([number[node] for node in nodes], np.int64)


def _even(left: Ints, right: Ints, colors: int) -> Ints:
    return _proper(_copies(left, colors), _copies(right, colors))


def proper_coloring(edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return colours for the (left, right) edges of a bipartite multigraph, such that edges with a common node differ.

    There are as many colours as the largest degree. A left and a right node are different nodes even if they have the
    same number."""
    return balanced_coloring(edges, max(1, len(edges)))


def _copies(node: Ints, size: int) -> Ints:
    """Divide each node into copies with at most ``size`` edges; return the number of the copy of each edge.

    ``node``: node of each edge."""
    order = np.argsort(node, kind="stable")
    degree = np.bincount(node)
    rank = np.empty(len(node), np.int64)
    rank[order] = np.arange(len(node)) - np.repeat(np.cumsum(degree) - degree, degree)
    copy = rank // size
    return distinct(node * (int(copy.max(initial=0)) + 1) + copy)[1]


def _proper(left: Ints, right: Ints) -> Ints:
    """Return a proper colouring.

    ``left``, ``right``: ends of each edge, numbered from 0 without gaps on each side."""
    graph: rx.PyGraph[None, None] = rx.PyGraph()
    right = right + int(left.max(initial=-1)) + 1
    graph.extend_from_edge_list(list(zip(left.tolist(), right.tolist(), strict=True)))
    found = rx.graph_bipartite_edge_color(graph)
    colors = np.zeros(len(left), np.int64)
    colors[np.fromiter(found.keys(), np.int64, len(left))] = np.fromiter(found.values(), np.int64, len(left))
    return colors


# ---- split flows


class Cut(NamedTuple):
    """Line of colours that is cut into segments of common links.

    - ``slowdown``: slowdown of the flows, that is, the largest load of a common link.
    - ``subflows``: number of subflows of each colour.
    - ``common_link``, ``share``: common link and share of each subflow, colour by colour."""

    slowdown: float
    subflows: Ints
    common_link: Ints
    share: Floats


@lru_cache(maxsize=64)
def _cut(colors: int, fit: tuple[float, ...], max_subflows: int) -> Cut:
    """Return the line that is cut at ``segment_ends``. Results are cached, because parts often need equal cuts.

    ``fit``: capacity of each common link / demand of a flow, descending."""
    ends = segment_ends(colors, fit, max_subflows)
    slowdown = max((end - start) / of for start, end, of in zip([0.0, *ends], ends, reversed(fit), strict=False))
    subflows = _subflows(colors, ends)
    common_link = np.array([len(fit) - 1 - common_link for of in subflows for common_link, _ in of], np.int64)
    share = np.array([share for of in subflows for _, share in of], np.float64)
    return Cut(slowdown, np.array([len(of) for of in subflows], np.int64), common_link, share)


def split_evenly(numbers: Numbers, flows: Ints, common: CommonLinks, cut: Cut, colors: Ints) -> NumberedRoutes:
    """Return routes of flows of equal demand, each split as ``cut`` splits its colour.

    Flows that share a leaf on the same side must have different colours."""
    times = cut.subflows[colors]
    at = np.repeat(flows, times)
    first = (np.cumsum(cut.subflows) - cut.subflows)[colors]
    subflow = np.arange(len(at)) + np.repeat(first - np.cumsum(times) + times, times)
    return NumberedRoutes(at, common.paths(numbers, at, cut.common_link[subflow]), cut.share[subflow])


def segment_ends(colors: int, fit: Sequence[float], max_subflows: int) -> list[float]:
    """Return the ends of the segments of the line [0, ``colors``), ascending.

    There is one segment per common link; the slowest link has the first segment. No colour lies in more than
    ``max_subflows`` >= 2 segments. The load of the most loaded link is minimal. When minimal load would need too many
    segments per colour, the longest segment is as short as possible.

    ``fit``: capacity of each common link, descending."""
    total = math.fsum(fit)
    ends = [colors * of / total for of in itertools.accumulate(reversed(fit))]
    if max(map(len, _subflows(colors, ends))) <= max_subflows:
        return ends
    common = len(fit)
    length = colors / common
    if length < 1 / (max_subflows - 1):
        # A cut in the middle of a colour would give it a segment too many, so every colour is cut alike.
        length = 1 / min(max_subflows, int(1 / length + _ROUNDING))
    used = min(common, math.ceil(colors / length - _ROUNDING))
    return [0.0] * (common - used) + [min(colors, (common_link + 1) * length) for common_link in range(used)]


def _subflows(colors: int, ends: Sequence[float]) -> list[list[tuple[int, float]]]:
    """Return a list of (segment, share) per colour: the segments that the colour's interval overlaps."""
    subflows: list[list[tuple[int, float]]] = [[] for _ in range(colors)]
    start = 0.0
    for common_link, end in enumerate(ends):
        for color in range(int(start + _ROUNDING), math.ceil(end - _ROUNDING)):
            share = min(end, color + 1) - max(start, color)
            subflows[color].append((common_link, share))
        start = end
    return subflows
