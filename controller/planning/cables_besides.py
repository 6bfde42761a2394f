"""Closed forms for equal flows of a part some of whose leaves have lost cables: over its lanes (``lanes``) and over the
other cables of its leaves, whose spines have links to all leaves but a few.

Flows are coloured as if each such spine were one more lane. The flows of its colours take its links. Few cannot,
because an end has no link to the spine. Split ones get further colours, and all colours that are left are laid over
the lanes (interval cutting). Whole ones take the lane where they meet the fewest flows, and slow the fewest other jobs.

In: a part in numbers, its lanes. Out: routes, and the level that they have; None where there is nothing to gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from controller.planning.lanes import Lanes
from controller.planning.numbered import Bools, Floats, Ints, NumberedRoutes, Numbers

_EQUAL = 1e-9
_SHIFTS = 16
"""Ways to give spines to colours that are tried."""

Coloring = Callable[[Ints, Ints, int], Ints]
"""Of edges, by their ends on both sides, with so many colours at the most; balanced."""


@dataclass(frozen=True, slots=True)
class Besides:
    """The spines that are no lanes, a column each. ``out``, ``into``: the links of the leaves that send and that
    receive, -1 where there is none; shape (leaves, spines). ``bps``: of the slowest link."""

    out: Ints
    into: Ints
    bps: float

    @property
    def count(self) -> int:
        return len(self.out[0])


def find_besides(lanes: Lanes) -> Besides | None:
    """None where no spine besides the lanes has links to senders and to receivers. ``lanes``: with other links."""
    width = 1 + max(int(side.cable.max(initial=0)) for side in lanes.others)
    keys = [side.other * width + side.cable for side in lanes.others]
    shared = np.intersect1d(keys[0], keys[1])
    if not len(shared):
        return None
    tables = []
    for side, key, leaves in zip(lanes.others, keys, (lanes.senders, lanes.receivers), strict=True):
        table = np.full((len(leaves), len(shared)), -1)
        rows = np.flatnonzero(np.isin(key, shared))
        table[side.at[rows], np.searchsorted(shared, key[rows])] = side.link[rows]
        tables.append(table)
    bps = min(float(lanes.links.capacity_bps[table[table >= 0]].min()) for table in tables)
    return Besides(tables[0], tables[1], bps)


class _Placed(NamedTuple):
    """``on``: whether each flow is on a spine besides; ``links``: of those that are, shape (flows, 2)."""

    on: Bools
    links: Ints


def _placed(numbers: Numbers, flows: Ints, lanes: Lanes, besides: Besides, spine: Ints) -> _Placed:
    """``spine``: of each flow, -1 of those that go elsewhere."""
    row_out, row_in = lanes.rows(numbers, flows)
    links = np.stack([besides.out[row_out, spine], besides.into[row_in, spine]], axis=1)
    on: Bools = (spine >= 0) & (links >= 0).all(axis=1)
    return _Placed(on, links[on])


class Divided(NamedTuple):
    """``level``: of the spines besides; ``over``: routes over them; ``rest``, ``colors``: the flows that are left to
    the lanes."""

    level: float
    over: NumberedRoutes
    rest: Ints
    colors: Ints


def split(numbers: Numbers, flows: Ints, lanes: Lanes, demand_bps: float, coloring: Coloring) -> Iterator[Divided]:
    """As many colours on each spine besides as on a lane, on average: rounded down, then up."""
    besides = find_besides(lanes)
    if besides is None:
        return
    colors = coloring(numbers.src[flows], numbers.dst[flows], len(flows))
    count = int(colors.max()) + 1
    least, rest = divmod(count, lanes.count + besides.count)
    for each in range(max(1, least), least + 1 + (rest > 0)):
        taken = min(count, each * besides.count)
        late, found = _fewest_late(numbers, flows, lanes, besides, np.where(colors < taken, colors, -1))
        further = coloring(numbers.src[flows[late]], numbers.dst[flows[late]], max(1, int(late.sum())))
        left = colors - taken
        left[late] = count - taken + further
        over = NumberedRoutes(flows[found.on], found.links, np.ones(len(found.links)))
        yield Divided(each * demand_bps / besides.bps, over, flows[~found.on], left[~found.on])


def _fewest_late(numbers: Numbers, flows: Ints, lanes: Lanes, besides: Besides, colors: Ints) -> tuple[Bools, _Placed]:
    """Which of the flows with a colour (of at least 0) cannot take its spine, and where the others are. Of a few ways
    to give spines to colours that after which the fewest such flows share a leaf: so many further colours they need."""

    def shifted(by: int) -> tuple[int, Bools, _Placed]:
        placed = _placed(numbers, flows, lanes, besides, np.where(colors < 0, -1, (colors + by) % besides.count))
        late = (colors >= 0) & ~placed.on
        return (
            max(int(np.bincount(of[flows[late]], minlength=1).max()) for of in (numbers.src, numbers.dst)),
            late,
            placed,
        )

    best = shifted(0)
    for by in range(1, min(_SHIFTS, besides.count)):
        if best[0] <= 1:
            break
        best = min(best, shifted(by), key=itemgetter(0))
    return best[1:]


def whole(numbers: Numbers, flows: Ints, lanes: Lanes, coloring: Coloring) -> NumberedRoutes | None:
    """None unless every spine besides is as fast as the lanes, and lets fewer flows share a link."""
    besides = find_besides(lanes)
    if besides is None or besides.bps < lanes.bps[0] * (1 - _EQUAL):
        return None
    degree = max(int(np.bincount(of[flows]).max()) for of in (numbers.src, numbers.dst))
    if -(-degree // (lanes.count + besides.count)) >= -(-degree // lanes.count):
        return None
    colors = coloring(numbers.src[flows], numbers.dst[flows], lanes.count + besides.count)
    spine = np.where(colors < lanes.count, -1, colors - lanes.count)
    found = _placed(numbers, flows, lanes, besides, spine)
    late = (spine >= 0) & ~found.on
    links = np.full((len(flows), 2), -1)
    links[found.on] = found.links
    on_lanes = spine < 0
    links[on_lanes] = lanes.paths(numbers, flows[on_lanes], colors[on_lanes])
    _place_late(numbers, flows, lanes, links, np.flatnonzero(late))
    return NumberedRoutes(flows, links, np.ones(len(flows)))


def _place_late(numbers: Numbers, flows: Ints, lanes: Lanes, links: Ints, late: Ints) -> None:
    """Writes the lanes' links of the flows at the places ``late`` into ``links``."""
    count: Floats = np.bincount(links[links >= 0], minlength=len(numbers.capacity_bps)).astype(np.float64)
    job_on = np.full(len(numbers.capacity_bps), -1)
    there = np.flatnonzero(links[:, 0] >= 0)
    for side in (0, 1):
        job_on[links[there, side]] = numbers.job[flows[there]]
    slow = np.zeros(len(numbers.job_ids) + 1, bool)
    slow[-1] = True  # of a link without flows
    row_out, row_in = lanes.rows(numbers, flows[late])
    for place, up, down in zip(late.tolist(), lanes.out[row_out], lanes.into[row_in], strict=True):
        further = (~slow[job_on[up]]).astype(np.int64) + ~slow[job_on[down]]
        best = int(np.lexsort((further, np.maximum(count[up], count[down])))[0])
        links[place] = up[best], down[best]
        count[links[place]] += 1
        slow[[numbers.job[flows[place]], *job_on[links[place]]]] = True
