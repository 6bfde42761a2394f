"""Closed forms for equal flows of a part in which some leaves have lost cables.

The closed forms use the common links of the part and its *residual links*: the other cables of its leaves, whose spines
have links to all leaves but a few. Flows are coloured as if each such spine were one more common link, and the flows of
its colours take its links. A few *late* flows cannot take these links, because one of their leaves has no link to the
spine. When flows are split, late flows get further colours, and all remaining colours are cut onto the common links
(interval cutting). When flows are whole, each late flow takes the common link where it meets the fewest flows. Among
several such links it takes the link where it slows the fewest other jobs.

In: a part (``common_links``) as arrays, and its common links. Out: routes and their slowdown; None where there is
nothing to gain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from controller.planning.common_links import CommonLinks
from controller.planning.problem import Bools, Floats, Ints, NumberedRoutes, Numbers

_EQUAL = 1e-9
_SHIFTS = 16
"""Largest number of assignments of spines to colours that are tried."""

Coloring = Callable[[Ints, Ints, int], Ints]
"""Function that colours edges evenly, given their ends on both sides and the largest number of colours."""


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


class _Placed(NamedTuple):
    """Flows that are routed over spines with residual links."""

    on: Bools
    """Whether each flow is routed over a spine with residual links."""
    links: Ints
    """Links of the flows that are routed over such a spine; shape (number of these flows, 2)."""


def _placed(numbers: Numbers, flows: Ints, common: CommonLinks, residual: Residual, spine: Ints) -> _Placed:
    """Route flows over their spines where both links exist.

    ``spine`` has the column of each flow's spine, -1 for none."""
    row_out, row_in = common.rows(numbers, flows)
    links = np.stack([residual.out[row_out, spine], residual.into[row_in, spine]], axis=1)
    on: Bools = (spine >= 0) & (links >= 0).all(axis=1)
    return _Placed(on, links[on])


class Divided(NamedTuple):
    """Flows divided between residual links and common links."""

    slowdown: float
    """Slowdown on the residual links."""
    over: NumberedRoutes
    """Routes over the residual links."""
    rest: Ints
    """Flows that are left for the common links."""
    colors: Ints
    """Colours of the flows in ``rest``."""


def split(
    numbers: Numbers, flows: Ints, common: CommonLinks, demand_bps: float, coloring: Coloring
) -> Iterator[Divided]:
    """Yield divisions that give each residual spine the mean number of colours per link, rounded down, then up.

    The mean is over common links and residual spines."""
    residual = find_residual(common)
    if residual is None:
        return
    colors = coloring(numbers.src[flows], numbers.dst[flows], len(flows))
    count = int(colors.max()) + 1
    least, rest = divmod(count, common.count + residual.count)
    for each in range(max(1, least), least + 1 + (rest > 0)):
        taken = min(count, each * residual.count)
        late, found = _fewest_late(numbers, flows, common, residual, np.where(colors < taken, colors, -1))
        further = coloring(numbers.src[flows[late]], numbers.dst[flows[late]], max(1, int(late.sum())))
        left = colors - taken
        left[late] = count - taken + further
        over = NumberedRoutes(flows[found.on], found.links, np.ones(len(found.links)))
        yield Divided(each * demand_bps / residual.bps, over, flows[~found.on], left[~found.on])


def _fewest_late(
    numbers: Numbers, flows: Ints, common: CommonLinks, residual: Residual, colors: Ints
) -> tuple[Bools, _Placed]:
    """Return which flows with a colour (at least 0) are late, and the routes of the other flows with a colour.

    Several ways to assign spines to colours are tried. The best way minimises the largest number of late flows at one
    leaf, because late flows need as many further colours."""

    def shifted(by: int) -> tuple[int, Bools, _Placed]:
        placed = _placed(numbers, flows, common, residual, np.where(colors < 0, -1, (colors + by) % residual.count))
        late = (colors >= 0) & ~placed.on
        return (
            max(int(np.bincount(of[flows[late]], minlength=1).max()) for of in (numbers.src, numbers.dst)),
            late,
            placed,
        )

    best = shifted(0)
    for by in range(1, min(_SHIFTS, residual.count)):
        if best[0] <= 1:
            break
        best = min(best, shifted(by), key=itemgetter(0))
    return best[1:]


def whole(numbers: Numbers, flows: Ints, common: CommonLinks, coloring: Coloring) -> NumberedRoutes | None:
    """Return routes of whole flows over common and residual links.

    None unless every residual spine is as fast as the common links, and residual links reduce the flows per link."""
    residual = find_residual(common)
    if residual is None or residual.bps < common.bps[0] * (1 - _EQUAL):
        return None
    degree = max(int(np.bincount(of[flows]).max()) for of in (numbers.src, numbers.dst))
    if -(-degree // (common.count + residual.count)) >= -(-degree // common.count):
        return None
    colors = coloring(numbers.src[flows], numbers.dst[flows], common.count + residual.count)
    spine = np.where(colors < common.count, -1, colors - common.count)
    found = _placed(numbers, flows, common, residual, spine)
    late = (spine >= 0) & ~found.on
    links = np.full((len(flows), 2), -1)
    links[found.on] = found.links
    on_common_links = spine < 0
    links[on_common_links] = common.paths(numbers, flows[on_common_links], colors[on_common_links])
    _place_late(numbers, flows, common, links, np.flatnonzero(late))
    return NumberedRoutes(flows, links, np.ones(len(flows)))


def _place_late(numbers: Numbers, flows: Ints, common: CommonLinks, links: Ints, late: Ints) -> None:
    """Choose common links for the flows at the positions ``late``, and write them into ``links``."""
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
