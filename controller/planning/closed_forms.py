"""Routing in closed form on a leaf-spine, part by part: optimal when the leaves of each part are alike.

In: a ``Problem``. Out: routes of the flows between leaves, or None when some path does not have two links, or the
leaves of a part have no common link. docs/explanation/planning.md#how-a-plan-is-made defines parts, common links and
residual links, and describes colouring and cutting.

A leaf can belong to two parts: with its links out to one part, and with its links in to the other. A spine with several
cables to each leaf has several common links.

Flows are edges of a bipartite multigraph, from the leaf of the source to the leaf of the destination. Edges that share
a leaf on the same side get different colours; as many colours as the largest degree D are enough (König's theorem).

- *Balanced edge colouring* routes whole flows: the colours are the S common links. A leaf of degree d is first cut into
  copies of at most S flows each. The colouring is then *equitable* (de Werra, "Equitable colorations of graphs", 1971):
  each leaf has floor(d/S) or ceil(d/S) flows of each colour. No routing of whole flows puts fewer flows on the fullest
  of these links.

- *Interval cutting* splits flows of equal demand. Colour c of D colours owns the interval [c, c+1) of a line of length
  D. The line is cut into one segment per common link, in proportion to capacity. A flow puts on a link the share of its
  interval that lies in the link's segment. If no segment is shorter than 1, a flow touches at most two segments. The
  slowest links come first, so that their segments may be a little shorter. The load is the lower bound of the leaf's
  cut (``bounds``) if the leaf has no residual links and its links are alike.

- *Residual links* serve equal flows too. Flows are coloured as if each spine with residual links were one more common
  link, and the flows of a spine's colours take its links. *Late* flows cannot take them, because one of their leaves
  has no link to the spine. Split late flows get further colours on the common links. A whole late flow takes the common
  link with the fewest flows, and in ties the link where it slows the fewest other jobs.

- *Whole flows first* serves flows that all have the same number of equal subflows (``color_whole_first``).

Two simplifications may make routes worse. Demands that differ a little (``_NEARLY``) are cut as if all were the largest
one. The capacity of a common link is the smallest capacity of its links at any leaf. Slowdowns include this cost,
because they are computed from the routes; bounds do not.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import Dpid, LinkId
from controller.planning.bounds import Bounds
from controller.planning.edge_coloring import even_coloring, nested_coloring, proper_coloring
from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from controller.planning.problem import (
    Around,
    Bools,
    Floats,
    Flow,
    FlowId,
    Ints,
    Links,
    NumberedRoutes,
    Numbers,
    Problem,
    distinct,
)

_EQUAL = 1e-9
_ROUNDING = 1e-9
_NEARLY = 0.05
"""Relative difference up to which demands are cut as if they were equal."""
_SHIFTS = 16
"""Largest number of assignments of spines to colours that are tried."""


def route(problem: Problem, bounds: Bounds) -> tuple[str, NumberedRoutes] | None:
    """Return (name of the method, routes), with whole flows in every part where splitting gains nothing.

    Return None when no flow crosses the fabric, or when the leaves of a part have no common link."""
    numbers = problem.numbers
    whole = bool((numbers.most == 1).all()) or bounds.integer <= bounds.fluid * (1 + SLOWDOWN_TOLERANCE)
    routed, name, running = [], "edge-coloring", _running_links(problem)
    for flows, common, floor in _each_part(problem, bounds, at_once=whole):
        if common is None:
            return None
        cut = _cut_where_it_gains(numbers, flows, common, floor)
        name = name if cut is None else "interval-cutting"
        routed.append(cut or _colored(numbers, flows, common, running))
    return (name, NumberedRoutes.joined(routed)) if routed else None


def _each_part(problem: Problem, bounds: Bounds, at_once: bool) -> Iterator[tuple[Ints, CommonLinks | None, float]]:
    """Yield (flows, common links, smallest lower bound of the jobs' slowdowns) for each part.

    ``at_once``: treat all flows as one part if all leaves are alike."""
    numbers = problem.numbers
    if not len(numbers.crossing):
        return
    alike = find_common_links(problem)
    floor = np.array([bounds.job.get(job, 1.0) for job in numbers.job_ids])[numbers.job]
    apart = [numbers.crossing] if alike and at_once else parts(numbers, numbers.crossing)
    for flows in _cut_alike(numbers, apart, floor) if alike else apart:
        yield flows, alike or common_links_of(problem, flows), float(floor[flows].min())


def _cut_alike(numbers: Numbers, apart: Sequence[Ints], floor: Floats) -> Iterable[Ints]:
    """Join the parts whose flows are cut in the same way, because colouring them once is faster."""
    if len(apart) == 1:
        return apart
    joined: defaultdict[tuple[float, ...], list[Ints]] = defaultdict(list)
    for flows in apart:
        bps = numbers.peak_bps[flows]
        degree = max(int(np.bincount(of[flows]).max()) for of in (numbers.src, numbers.dst))
        way = degree, int(numbers.most[flows].min()), float(floor[flows].min()), float(bps.min()), float(bps.max())
        joined[way].append(flows)
    return map(np.concatenate, joined.values())


def _running_links(problem: Problem) -> Ints | None:
    """Return the two links of each whole running route that is in force, -1 for other flows; None if nothing runs."""
    if not problem.runs:
        return None
    number, in_force, links = problem.link_number, problem.in_force, np.full((len(problem.flows), 2), -1)
    for place, flow in enumerate(problem.flows):
        if flow.current is not None and len(flow.current) == 1 and flow.id in in_force:
            path = flow.current[0].path
            if len(path) == 2:
                links[place] = number[path[0]], number[path[1]]
    return links


def _colored(numbers: Numbers, flows: Ints, common: CommonLinks, running: Ints | None) -> NumberedRoutes:
    residual = common.has_others and nearly_equal(numbers.peak_bps[flows])
    over_all = _whole_over_residual_links(numbers, flows, common) if residual else None
    return over_all or color_evenly(numbers, flows, common, running)


def _cut_where_it_gains(numbers: Numbers, flows: Ints, common: CommonLinks, floor: float) -> NumberedRoutes | None:
    """Return routes of split flows; None when splitting gains nothing, or when the flows cannot be split."""
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
            for divided in _split_over_residual_links(numbers, flows, common, demand_bps)
        ]
        least, way = min(((max(one.slowdown for one in way), n) for n, way in enumerate(ways)), default=(math.inf, 0))
        if least < min(slowdown, in_turns) * (1 - SLOWDOWN_TOLERANCE):
            divided, cut = ways[way]
            return NumberedRoutes.joined(
                [divided.over, split_evenly(numbers, divided.rest, common, cut, divided.colors)]
            )
    if slowdown >= in_turns * (1 - SLOWDOWN_TOLERANCE):
        return None
    colors = even_coloring(numbers.src[flows], numbers.dst[flows], len(flows))
    return split_evenly(numbers, flows, common, _cut(degree, fit, max_subflows), colors)


def nearly_equal(peak_bps: Floats) -> float | None:
    """Return the largest demand (bit/s) when all demands are nearly equal, else None."""
    largest = float(peak_bps.max(initial=0.0))
    return largest if float(peak_bps.min(initial=largest)) >= (1 - _NEARLY) * largest > 0 else None


# ---- parts and common links


Cable = tuple[Dpid, int]
"""Spine, and the index of a cable among the parallel cables between this spine and a leaf."""


@dataclass(frozen=True)
class CommonLinks:
    """Common links of one part.

    A path over common link l has two links: entry l of the sender in ``out``, and entry l of the receiver in ``into``.

    - ``senders``, ``receivers``: leaves that send and leaves that receive, ascending.
    - ``out``: number of each sender's link out by common link; shape (senders, common links).
    - ``into``: number of each receiver's link in by common link; shape (receivers, common links).
    - ``bps``: per common link the smallest capacity of its links, descending.
    - ``others``: residual links of senders and of receivers."""

    links: Links
    senders: Sequence[Dpid]
    receivers: Sequence[Dpid]
    out: Ints
    into: Ints
    bps: tuple[float, ...]
    others: tuple[Around, Around]

    @property
    def count(self) -> int:
        return len(self.bps)

    @property
    def alike(self) -> bool:
        return self.bps[0] - self.bps[-1] <= _EQUAL * self.bps[0]

    @property
    def has_others(self) -> bool:
        """Whether both senders and receivers have residual links."""
        return all(len(side.at) for side in self.others)

    @cached_property
    def up(self) -> Mapping[Dpid, tuple[LinkId, ...]]:
        """Links out of each sender, by common link."""
        return self._by_leaf(self.senders, self.out)

    @cached_property
    def down(self) -> Mapping[Dpid, tuple[LinkId, ...]]:
        """Links into each receiver, by common link."""
        return self._by_leaf(self.receivers, self.into)

    @cached_property
    def residual(self) -> tuple[Mapping[Dpid, Mapping[Cable, LinkId]], Mapping[Dpid, Mapping[Cable, LinkId]]]:
        """Residual links out of each sender, and into each receiver, by cable."""
        ids, dpids = self.links.ids, self.links.dpids

        def by_cable(leaves: Sequence[Dpid], around: Around) -> dict[Dpid, dict[Cable, LinkId]]:
            found: dict[Dpid, dict[Cable, LinkId]] = {leaf: {} for leaf in leaves}
            for at, spine, cable, link in zip(*(column.tolist() for column in around), strict=True):
                found[leaves[at]][dpids[spine], cable] = ids[link]
            return found

        return by_cable(self.senders, self.others[0]), by_cable(self.receivers, self.others[1])

    def paths(self, numbers: Numbers, flows: Ints, common: Ints) -> Ints:
        """Return the two links of each flow's path over its common link; shape (flows, 2)."""
        row_out, row_in = self.rows(numbers, flows)
        return np.stack([self.out[row_out, common], self.into[row_in, common]], axis=1)

    def of_links(self, paths: Ints) -> Ints:
        """Return the common link of each path of two links, -1 for a path over other links; shape (paths, 2)."""
        out, into = np.full((2, len(self.links.capacity_bps) + 1), -1)
        out[self.out], into[self.into] = np.arange(self.count), np.arange(self.count)
        common: Ints = np.where(out[paths[:, 0]] == into[paths[:, 1]], out[paths[:, 0]], -1)
        return common

    def rows(self, numbers: Numbers, flows: Ints) -> tuple[Ints, Ints]:
        """Return the positions of each flow's leaves in ``senders`` and ``receivers``."""
        if self.senders == self.receivers == numbers.leaves:
            return numbers.src[flows], numbers.dst[flows]
        place_out = {leaf: row for row, leaf in enumerate(self.senders)}
        place_in = {leaf: row for row, leaf in enumerate(self.receivers)}
        row_out = np.array([place_out.get(leaf, -1) for leaf in numbers.leaves])[numbers.src[flows]]
        row_in = np.array([place_in.get(leaf, -1) for leaf in numbers.leaves])[numbers.dst[flows]]
        return row_out, row_in

    def _by_leaf(self, leaves: Sequence[Dpid], links: Ints) -> dict[Dpid, tuple[LinkId, ...]]:
        ids = self.links.ids
        return {leaf: tuple([ids[link] for link in row]) for leaf, row in zip(leaves, links.tolist(), strict=True)}


def find_common_links(problem: Problem) -> CommonLinks | None:
    """Return the common links of all leaves at which flows begin or end; None unless these leaves are alike.

    Leaves are alike when every cable belongs to a common link and all cables have the same capacity."""
    numbers = problem.numbers
    ends = np.concatenate([numbers.src[numbers.crossing], numbers.dst[numbers.crossing]])
    leaves = [numbers.leaves[leaf] for leaf in distinct(ends)[0].tolist()]
    common = common_links_between(problem, leaves, leaves)
    if common is None or not common.alike or any(len(others.at) for others in common.others):
        return None
    fastest = max(float(numbers.capacity_bps[links].max()) for links in (common.out, common.into))
    return common if fastest - common.bps[-1] <= _EQUAL * fastest else None


def common_links_of(problem: Problem, flows: Ints) -> CommonLinks | None:
    """Return the common links of the leaves at which these flows begin and end; None when there is no common link."""
    numbers = problem.numbers
    ends = (distinct(of[flows])[0].tolist() for of in (numbers.src, numbers.dst))
    return common_links_between(problem, *([numbers.leaves[leaf] for leaf in those] for those in ends))


def common_links_between(problem: Problem, senders: Iterable[Dpid], receivers: Iterable[Dpid]) -> CommonLinks | None:
    """Return the common links of these leaves, the fastest first; None when there is no common link."""
    links = problem.links
    senders, receivers = sorted(set(senders)), sorted(set(receivers))
    sides = links.around(senders, outward=True), links.around(receivers, outward=False)
    spines = {links.dpids[spine] for side in sides for spine in np.flatnonzero(np.bincount(side.other)).tolist()}
    if not spines.isdisjoint([*senders, *receivers]):
        return None
    width = 1 + max(int(side.cable.max(initial=0)) for side in sides)
    keys = [side.other * width + side.cable for side in sides]
    is_common = np.bincount(np.concatenate(keys)) == len(senders) + len(receivers)
    if not is_common.any():
        return None
    shared = [is_common[key] for key in keys]
    count = np.count_nonzero(is_common)
    out, into = (side.link[those].reshape(-1, count) for side, those in zip(sides, shared, strict=True))
    bps = np.minimum(links.capacity_bps[out].min(axis=0), links.capacity_bps[into].min(axis=0))
    order = np.argsort(-bps, kind="stable")
    others = [Around(*(of[~those] for of in side)) for side, those in zip(sides, shared, strict=True)]
    best_first = (out[:, order], into[:, order], tuple(bps[order].tolist()))
    return CommonLinks(links, senders, receivers, *best_first, (others[0], others[1]))


def crossing(problem: Problem) -> list[Flow]:
    """Return the flows between different leaves."""
    return [flow for flow in problem.flows if flow.src_leaf != flow.dst_leaf]


def parts(numbers: Numbers, flows: Ints) -> list[Ints]:
    """Return the parts of these flows, in the order of their first flows."""
    leaves = len(numbers.leaves)
    src, dst = numbers.src[flows], leaves + numbers.dst[flows]
    root = np.arange(2 * leaves)
    while True:
        lowest = root.copy()
        np.minimum.at(lowest, src, root[dst])
        np.minimum.at(lowest, dst, root[src])
        lowest = lowest[lowest]
        if (lowest == root).all():
            break
        root = lowest
    _, first, part = np.unique(root[src], return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))[part]
    sizes = np.bincount(rank, minlength=1)
    return np.split(flows[np.argsort(rank, kind="stable")], np.cumsum(sizes)[:-1])


# ---- whole flows


def color_evenly(numbers: Numbers, flows: Ints, common: CommonLinks, running: Ints | None = None) -> NumberedRoutes:
    """Return routes of whole flows between leaves, divided evenly over the common links.

    No link has more than ceil(number of its leaf's flows / number of common links) flows. The flows of one demand are
    divided as evenly, and so are each job's flows of one demand. ``running``: the two links that each flow uses now, -1
    for none; flows stay on them where possible."""
    current = None if running is None else common.of_links(running[flows])
    colors = _even_for_each_job(numbers, flows, common.count, current)
    return NumberedRoutes(flows, common.paths(numbers, flows, colors), np.ones(len(flows)))


def _even_for_each_job(numbers: Numbers, flows: Ints, colors: int, current: Ints | None = None) -> Ints:
    """Return a colouring that divides the flows of every leaf evenly among the colours.

    The colouring also divides evenly the flows of each demand at a leaf, and each job's flows of one demand there. So a
    job fills no link with its own flows when it could use several links. In a job with several phases, the flows of
    each phase are divided evenly too."""
    ends = numbers.src[flows], numbers.dst[flows]
    most = max(int(np.bincount(of).max()) for of in ends)
    cell = np.zeros(len(numbers.job), np.int64)
    cell[numbers.entry_flow] = numbers.entry_cell
    bps = numbers.peak_bps[flows]
    demand = np.zeros(len(flows), np.int64) if nearly_equal(bps) else np.unique(bps, return_inverse=True)[1]
    keys = demand, numbers.job[flows], cell[flows]
    if current is None and (most <= colors or all(key.min() == key.max() for key in keys)):
        return even_coloring(*ends, colors)
    levels = [np.zeros(len(flows), np.int64)]
    for key in keys:
        level = distinct(levels[0] * (int(key.max()) + 1) + key)[1]
        if level.max() > levels[0].max():
            levels.insert(0, level)
    nests = [[distinct(of * len(flows) + level)[1] for level in levels] for of in ends]
    return nested_coloring((nests[0], nests[1]), colors, current)


# ---- split flows


class Cut(NamedTuple):
    """Result of interval cutting (see the module): a line of colours, cut into one segment per common link.

    - ``slowdown``: slowdown of the flows, that is, the largest load of a common link.
    - ``subflows``: number of subflows of each colour.
    - ``common_link``, ``share``: common link and share of each subflow, colour by colour."""

    slowdown: float
    subflows: Ints
    common_link: Ints
    share: Floats


@lru_cache(maxsize=64)
def _cut(colors: int, fit: tuple[float, ...], max_subflows: int) -> Cut:
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
    subflows: list[list[tuple[int, float]]] = [[] for _ in range(colors)]
    start = 0.0
    for common_link, end in enumerate(ends):
        for color in range(int(start + _ROUNDING), math.ceil(end - _ROUNDING)):
            share = min(end, color + 1) - max(start, color)
            subflows[color].append((common_link, share))
        start = end
    return subflows


# ---- residual links


@dataclass(frozen=True, slots=True)
class Residual:
    """Spines with residual links, one column each.

    - ``out``, ``into``: link of each sender to each spine, and from each spine to each receiver; -1 where there is no
      link; shape (leaves, spines).
    - ``bps``: smallest capacity of these links."""

    out: Ints
    into: Ints
    bps: float

    @property
    def count(self) -> int:
        return len(self.out[0])


def find_residual(common: CommonLinks) -> Residual | None:
    """Return the spines with residual links from senders and to receivers; None when there is no such spine.

    ``common`` must have residual links."""
    width = 1 + max(int(side.cable.max(initial=0)) for side in common.others)
    keys = [side.other * width + side.cable for side in common.others]
    shared = np.intersect1d(keys[0], keys[1])
    if not len(shared):
        return None
    tables = []
    for side, key, leaves in zip(common.others, keys, (common.senders, common.receivers), strict=True):
        table = np.full((len(leaves), len(shared)), -1)
        rows = np.flatnonzero(np.isin(key, shared))
        table[side.at[rows], np.searchsorted(shared, key[rows])] = side.link[rows]
        tables.append(table)
    bps = min(float(common.links.capacity_bps[table[table >= 0]].min()) for table in tables)
    return Residual(tables[0], tables[1], bps)


def _placed(numbers: Numbers, flows: Ints, common: CommonLinks, residual: Residual, spine: Ints) -> tuple[Bools, Ints]:
    """Return whether each flow has links to and from its spine, and these two links if it has; shape (flows, 2).

    ``spine``: column of each flow's spine in ``residual``, -1 for none."""
    row_out, row_in = common.rows(numbers, flows)
    links = np.stack([residual.out[row_out, spine], residual.into[row_in, spine]], axis=1)
    on: Bools = (spine >= 0) & (links >= 0).all(axis=1)
    return on, links[on]


class Divided(NamedTuple):
    """Flows divided between residual links and common links."""

    slowdown: float
    """Slowdown on the residual links."""
    over: NumberedRoutes
    """Routes over the residual links."""
    rest: Ints
    """Flows without a path over the residual links; they take common links."""
    colors: Ints
    """Colours of the flows in ``rest``."""


def _split_over_residual_links(
    numbers: Numbers, flows: Ints, common: CommonLinks, demand_bps: float
) -> Iterator[Divided]:
    """Yield divisions of the flows between the residual links and the common links.

    Each residual spine gets D / (number of common links and residual spines) of the D colours, rounded down or up."""
    residual = find_residual(common)
    if residual is None:
        return
    colors = even_coloring(numbers.src[flows], numbers.dst[flows], len(flows))
    count = int(colors.max()) + 1
    least, rest = divmod(count, common.count + residual.count)
    for each in range(max(1, least), least + 1 + (rest > 0)):
        taken = min(count, each * residual.count)
        late, on, links = _fewest_late(numbers, flows, common, residual, np.where(colors < taken, colors, -1))
        further = even_coloring(numbers.src[flows[late]], numbers.dst[flows[late]], max(1, int(late.sum())))
        left = colors - taken
        left[late] = count - taken + further
        over = NumberedRoutes(flows[on], links, np.ones(len(links)))
        yield Divided(each * demand_bps / residual.bps, over, flows[~on], left[~on])


def _fewest_late(
    numbers: Numbers, flows: Ints, common: CommonLinks, residual: Residual, colors: Ints
) -> tuple[Bools, Bools, Ints]:
    """Choose a residual spine for each colour, so that few flows are late at any leaf (see the module).

    Return whether each flow is late, whether it has a path over its spine, and the links of the flows with a path.
    Flows with a colour below 0 get no spine, and are not late."""

    def shifted(by: int) -> tuple[int, Bools, Bools, Ints]:
        spine = np.where(colors < 0, -1, (colors + by) % residual.count)
        on, links = _placed(numbers, flows, common, residual, spine)
        late = (colors >= 0) & ~on
        most = max(int(np.bincount(of[flows[late]], minlength=1).max()) for of in (numbers.src, numbers.dst))
        return most, late, on, links

    best = shifted(0)
    for by in range(1, min(_SHIFTS, residual.count)):
        if best[0] <= 1:
            break
        best = min(best, shifted(by), key=itemgetter(0))
    return best[1:]


def _whole_over_residual_links(numbers: Numbers, flows: Ints, common: CommonLinks) -> NumberedRoutes | None:
    """Return routes of whole flows over common and residual links, or None if residual links are no help."""
    residual = find_residual(common)
    if residual is None or residual.bps < common.bps[0] * (1 - _EQUAL):
        return None
    degree = max(int(np.bincount(of[flows]).max()) for of in (numbers.src, numbers.dst))
    if -(-degree // (common.count + residual.count)) >= -(-degree // common.count):
        return None
    colors = _even_for_each_job(numbers, flows, common.count + residual.count)
    spine = np.where(colors < common.count, -1, colors - common.count)
    links = np.full((len(flows), 2), -1)
    on, links[on] = _placed(numbers, flows, common, residual, spine)
    direct = spine < 0
    links[direct] = common.paths(numbers, flows[direct], colors[direct])
    _place_late(numbers, flows, common, links, np.flatnonzero(~direct & ~on))
    return NumberedRoutes(flows, links, np.ones(len(flows)))


def _place_late(numbers: Numbers, flows: Ints, common: CommonLinks, links: Ints, late: Ints) -> None:
    """Choose a common link for each flow at the positions ``late``, and write its two links into ``links``.

    Common links with the fewest flows come first, then those on which the flow delays the fewest further jobs."""
    count: Floats = np.bincount(links[links >= 0], minlength=len(numbers.capacity_bps)).astype(np.float64)
    job_on = np.full(len(numbers.capacity_bps), -1)
    there = np.flatnonzero(links[:, 0] >= 0)
    for side in (0, 1):
        job_on[links[there, side]] = numbers.job[flows[there]]
    slow = np.zeros(len(numbers.job_ids) + 1, bool)
    slow[-1] = True  # entry for links without flows
    row_out, row_in = common.rows(numbers, flows[late])
    for place, up, down in zip(late.tolist(), common.out[row_out], common.into[row_in], strict=True):
        further = (~slow[job_on[up]]).astype(np.int64) + ~slow[job_on[down]]
        best = int(np.lexsort((further, np.maximum(count[up], count[down])))[0])
        links[place] = up[best], down[best]
        count[links[place]] += 1
        slow[[numbers.job[flows[place]], *job_on[links[place]]]] = True


# ---- equal subflows


def color_whole_first(problem: Problem, bounds: Bounds) -> NumberedRoutes | None:
    """Return routes of equal flows in equal numbers of subflows on a leaf-spine, part by part.

    The worst slowdown equals the worst slowdown of an even colouring of the subflows. Return None when flows differ, or
    when the leaves of a part have no common link."""
    numbers = problem.numbers
    number: dict[FlowId, int] = {}
    group = np.array([number.setdefault(flow.id.joined, len(number)) for flow in problem.flows], np.int64)
    found = []
    for flows, common, floor in _each_part(problem, bounds, at_once=False):
        routed = common and _whole_first(numbers, flows, group[flows], common, floor)
        if not routed:
            return None
        found.append(routed)
    return NumberedRoutes.joined(found) if found else None


def _whole_first(
    numbers: Numbers, flows: Ints, group: Ints, common: CommonLinks, floor: float
) -> NumberedRoutes | None:
    """Return routes of one part, in which as many flows as possible stay whole; None when flows differ.

    The flows first get a proper colouring, as if all were whole. Colour by colour, flows then stay whole on a common
    link as long as the link's load allows. Colours with the most flows come first. The subflows of the other flows lie
    colour by colour on a line, which is cut into segments of equal length, one per common link. ``floor``: lower bound
    of all slowdowns, so that links may have this load."""
    order = np.argsort(group, kind="stable")
    flows = flows[order]
    _, first, sizes = np.unique(group[order], return_index=True, return_counts=True)
    demand_bps = nearly_equal(numbers.peak_bps[flows])
    subflows = int(sizes[0])
    if subflows == 1 or (sizes != subflows).any() or demand_bps is None:
        return None
    src, dst = numbers.src[flows[first]], numbers.dst[flows[first]]
    degree = max(int(np.bincount(of).max()) for of in (src, dst))
    fit = int(floor * common.bps[-1] / demand_bps + _ROUNDING)
    on_link = max(-(-degree * subflows // common.count), fit)
    whole = min(on_link // subflows * common.count, degree)
    colors = np.array(proper_coloring(list(zip(src.tolist(), dst.tolist(), strict=True))), np.int64)
    rank = np.argsort(np.argsort(-np.bincount(colors, minlength=degree), kind="stable"))[colors]
    place = np.repeat((rank - whole) * subflows, subflows) + np.tile(np.arange(subflows), len(first))
    left = max(1, on_link - whole // common.count * subflows)
    common_link = np.where(np.repeat(rank < whole, subflows), np.repeat(rank, subflows) % common.count, place // left)
    return NumberedRoutes(flows, common.paths(numbers, flows, common_link), np.ones(len(flows)))
