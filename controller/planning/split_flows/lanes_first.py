"""Equal flows of one part of a leaf-spine that are split over its lanes and over the cables besides.

Lanes that all leaves of the part share are alike, so they are one column of a small linear programme (``lanes``); each
cable that only some leaves have is another. Its optimum says how much of every pair of leaves goes over the lanes. As a
pair's share of the lanes it takes one interval of a line that is cut into as many pieces as there are lanes, like a
colour of ``closed_forms``. Where no leaf has more than two pairs at a side, one of them begins at the left end of the
line and the other ends at the right end, and they do not overlap: the intervals cost nothing. That is the fluid optimum
where all links of a part's lanes have one capacity, with about as many pieces as pairs have flows and lanes.

In: a part, its lanes. Out: routes; None where leaves have more pairs, or flows must stay whole or are unequal.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import Dpid, LinkId, Path
from controller.planning.closed_forms import nearly_equal
from controller.planning.lanes import Lanes
from controller.planning.problem import Flow, FlowId, Problem, Route
from controller.planning.split_flows.programme import Programme
from controller.planning.split_flows.shares import lay, lay_nearest

_LEVEL_COST = 1e5
"""Of a level, in flows that take a cable besides: larger than the number of flows."""
_ROUNDING = 1e-9

Pair = tuple[Dpid, Dpid]
Side = tuple[bool, Dpid]
"""Of a leaf: whether the links into it, or those out of it."""


def route(part: Problem, lanes: Lanes, floor: float) -> dict[FlowId, Route] | None:
    """``floor``: no link needs to be loaded less than this."""
    flows = part.flows
    pairs: defaultdict[Pair, list[Flow]] = defaultdict(list)
    for flow in flows:
        pairs[flow.src_leaf, flow.dst_leaf].append(flow)
    at_right = _alternating(list(pairs))
    demand_bps = nearly_equal(part.numbers.peak_bps)
    if at_right is None or demand_bps is None or min(flow.max_subflows for flow in flows) == 1:
        return None
    shared = _shared(part, pairs, lanes, demand_bps, floor)
    if shared is None:
        return None
    lengths = [shared.level * bps / demand_bps for bps in reversed(lanes.bps)]
    ends = [0.0, *itertools.accumulate(lengths)]
    routes: dict[FlowId, Route] = {}
    for (src, dst), those in pairs.items():
        amounts = shared.besides[src, dst]
        length = len(those) - sum(amounts.values())
        start = ends[-1] - length if at_right[src, dst] else 0.0
        for lane, (begin, end) in enumerate(itertools.pairwise(ends)):
            share = min(end, start + length) - max(begin, start)
            if share > _ROUNDING:
                amounts[lanes.up[src][-1 - lane], lanes.down[dst][-1 - lane]] = share
        before, most = [None] * len(those), min(flow.max_subflows for flow in those)
        laid = lay(amounts, before, most) or lay_nearest(amounts, len(those), most)
        routes |= {flow.id: of for flow, of in zip(those, laid, strict=True)}
    return routes


def _alternating(pairs: Sequence[Pair]) -> dict[Pair, bool] | None:
    """One of two values per pair, different where two share a side of a leaf; None where more than two share one."""
    at: defaultdict[Side, list[Pair]] = defaultdict(list)
    for src, dst in pairs:
        at[False, src].append((src, dst))
        at[True, dst].append((src, dst))
    if max(map(len, at.values())) > 2:
        return None
    found: dict[Pair, bool] = {}
    for first in pairs:
        reached = [(first, False)]
        while reached:
            pair, value = reached.pop()
            if pair not in found:
                found[pair] = value
                reached += [(other, not value) for side in _sides(pair) for other in at[side] if other != pair]
    return found


def _sides(pair: Pair) -> tuple[Side, Side]:
    return (False, pair[0]), (True, pair[1])


class _Shared(NamedTuple):
    """``besides``: per pair the flows on each path that is no lane's."""

    level: float
    besides: Mapping[Pair, dict[Path, float]]


def _shared(
    part: Problem, pairs: Mapping[Pair, Sequence[Flow]], lanes: Lanes, demand_bps: float, floor: float
) -> _Shared | None:
    """The least level at which the pairs find room, with the fewest flows besides lanes."""
    programme = Programme()
    above = programme.variables(np.array([_LEVEL_COST]), np.array([np.inf]))
    columns: list[tuple[Pair, Path | None]] = [
        (pair, path) for pair in pairs for path in (None, *_paths_besides(lanes, *pair))
    ]
    first = programme.variables(
        np.array([float(path is not None) for _, path in columns]), np.full(len(columns), np.inf)
    )
    placed = {pair: row for row, pair in enumerate(pairs)}
    counts = np.array([float(len(those)) for those in pairs.values()])
    programme.constraints(counts, counts)
    rows: defaultdict[LinkId | Side, list[int]] = defaultdict(list)
    room_bps: dict[LinkId | Side, float] = dict.fromkeys(
        (side for pair in pairs for side in _sides(pair)), sum(lanes.bps)
    )
    for number, (pair, path) in enumerate(columns, start=first):
        programme.add(np.array([placed[pair]]), np.array([number]), np.ones(1))
        for link in path or ():
            rows[link].append(number)
            room_bps[link] = part.capacity_bps[link]
        for side in () if path else _sides(pair):
            rows[side].append(number)
    for place, those in rows.items():
        room = room_bps[place] / demand_bps
        row = programme.constraints(np.array([-np.inf]), np.array([floor * room]))
        programme.add(np.full(len(those) + 1, row), np.array([*those, above]), np.array([*[1.0] * len(those), -room]))
    solved = programme.solve(np.inf)
    if solved is None:
        return None
    values = solved[0]
    besides: dict[Pair, dict[Path, float]] = {pair: {} for pair in pairs}
    for (pair, path), amount in zip(columns, values[first:].tolist(), strict=True):
        if path is not None and amount > _ROUNDING:
            besides[pair][path] = amount
    return _Shared(floor + float(values[above]), besides)


def _paths_besides(lanes: Lanes, src: Dpid, dst: Dpid) -> Iterator[Path]:
    up, down = lanes.up_besides[src], lanes.down_besides[dst]
    return ((up[cable], down[cable]) for cable in sorted(up.keys() & down.keys()))
