"""Routing in closed form on three tiers: flows get a plane first, then a core of their plane.

In: flows between leaves, and the ``Tiers`` of the fabric. Out: their routes.

- *Whole flows*. Colour the flows between leaves with the edge lanes, evenly in every leaf and in every pod. Then, in
  each plane, colour its flows between pods with the core lanes, evenly in every pod. A colouring needs no more colours
  than the largest degree (König's theorem); done twice, this is the theorem of Slepian (1952) and Duguid (1959) that a
  Clos network with as many middle switches as an outer one has inputs can be rearranged to carry any permutation
  (Beneš, "Mathematical Theory of Connecting Networks and Telephone Traffic", 1965). No link of a leaf has more than
  ceil(flows / edge lanes); where a plane has as many core lanes as a pod has leaves, no other link has more either.
- *Split flows* of one demand, where cores have failed. Colour with D colours, D the largest degree of a leaf, and cut
  the line [0, D) into pieces, one per plane: a flow puts on a plane the share of its colour's interval that lies in the
  plane's piece. Flows of one colour in one plane are coloured again, for the pods, with n colours. These are intervals
  of the length of the share, side by side on a second line, which is cut into pieces for the core lanes.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from controller.fabric.topology import Path
from controller.planning.bounds import Bounds
from controller.planning.closed_forms import nearly_equal
from controller.planning.lanes import crossing
from controller.planning.nested_coloring import nested_coloring
from controller.planning.problem import Flow, FlowId, PlanLimits, Problem, Route, Subflow, whole
from controller.planning.solver import cp_model, solver_within
from controller.planning.tiers import Tiers

_ROUNDING = 1e-9
_NOTHING = 1e-12
"""Of a flow."""
_BISECTIONS = 60
_CHOICE_S = 0.3
"""For the choice of planes, in deterministic time: about as many seconds."""


class Lanes(NamedTuple):
    """Where a flow goes; -1 for no lane."""

    edge: int
    core: int


class _Ends:
    """The ends of the flows in numbers. ``leaf``, ``pod``: of the sources and of the destinations."""

    def __init__(self, flows: Sequence[Flow], tiers: Tiers) -> None:
        number = {leaf: index for index, leaf in enumerate(tiers.pod)}
        self.leaf = [number[flow.src_leaf] for flow in flows], [number[flow.dst_leaf] for flow in flows]
        self.pod = [tiers.pod[flow.src_leaf] for flow in flows], [tiers.pod[flow.dst_leaf] for flow in flows]

    def color(self, flows: Sequence[int], colors: int, current: Sequence[int]) -> list[int]:
        """These flows, evenly in leaves and pods."""
        src, dst = (
            ([leaf[flow] for flow in flows], [pod[flow] for flow in flows])
            for leaf, pod in zip(self.leaf, self.pod, strict=True)
        )
        return nested_coloring((src, dst), colors, current)

    def color_pods(self, flows: Sequence[int], colors: int, current: Sequence[int]) -> list[int]:
        """These flows, evenly in pods."""
        src, dst = ([pod[flow] for flow in flows] for pod in self.pod)
        return nested_coloring(((src,), (dst,)), colors, current)

    def between_pods(self, flows: Iterable[int]) -> list[int]:
        src, dst = self.pod
        return [flow for flow in flows if src[flow] != dst[flow]]

    def of_leaf(self) -> int:
        """The most flows out of or into a leaf."""
        return max(count for leaf in self.leaf for count in Counter(leaf).values())

    def of_pod(self, flows: Sequence[int]) -> int:
        """The most of these flows out of or into a pod."""
        counts = [Counter([pod[flow] for flow in flows]) for pod in self.pod]
        return max((count for of in counts for count in of.values()), default=0)


# ---- whole flows


def route(problem: Problem, bounds: Bounds) -> tuple[str, dict[FlowId, Route]] | None:
    """(name, routes): whole flows, unless splitting gains; None on other fabrics."""
    tiers = problem.tiers
    if tiers is None:
        return None
    between = crossing(problem)
    pieces = min([flow.max_subflows for flow in between], default=1)
    numbers = problem.numbers
    cuts = pieces > 1 and bounds.integer > bounds.fluid and nearly_equal(numbers.peak_bps[numbers.crossing]) is not None
    split = split_evenly(problem, between, tiers, pieces) if cuts else None
    routes = split or color_evenly(problem, between, tiers, bounds.worst)
    routes |= {flow.id: whole(()) for flow in problem.flows if flow.src_leaf == flow.dst_leaf}
    return "interval-cutting" if split else "edge-coloring", routes


def color_evenly(problem: Problem, flows: Sequence[Flow], tiers: Tiers, worst: float) -> dict[FlowId, Route]:
    """Routes of whole flows between leaves. Flows that run stay on their lanes as far as the colouring allows it.
    ``worst``: the level to aim at."""
    ends = _Ends(flows, tiers)
    running = _running(flows, tiers)
    edge, core = [-1] * len(flows), [-1] * len(flows)
    of_plane: defaultdict[int, list[int]] = defaultdict(list)
    for those, lanes in _groups(problem, flows, tiers, ends, [of.edge for of in running], worst):
        current = [running[flow].edge - lanes[0] if running[flow].edge in lanes else -1 for flow in those]
        for flow, color in zip(those, ends.color(those, len(lanes), current), strict=True):
            edge[flow] = lanes[color]
    for flow in ends.between_pods(range(len(flows))):
        of_plane[tiers.plane[edge[flow]]].append(flow)
    for plane, those in of_plane.items():
        stays = [tiers.plane[running[flow].edge] == plane for flow in those]
        current = [running[flow].core if stay else -1 for flow, stay in zip(those, stays, strict=True)]
        for flow, color in zip(those, ends.color_pods(those, tiers.core_lanes[plane], current), strict=True):
            core[flow] = color
    return {
        flow.id: (Subflow(_path(tiers, flow, Lanes(*lanes)), 1.0),)
        for flow, *lanes in zip(flows, edge, core, strict=True)
    }


def _groups(
    problem: Problem, flows: Sequence[Flow], tiers: Tiers, ends: _Ends, running: Sequence[int], worst: float
) -> list[tuple[Sequence[int], range]]:
    """Which flows to colour with which edge lanes: all flows with those of the planes with the most core lanes, or,
    where planes are unequal and that does not reach the level, flows chosen for each kind of plane."""
    edge_bps, core_bps = _rates(problem, tiers)
    count, load = _edge_lanes(tiers, ends, core_bps / edge_bps)
    together: list[tuple[Sequence[int], range]] = [(range(len(flows)), range(count))]
    demands = {max([bps for _, bps in flow.demand_bps], default=0.0) for flow in flows}
    kinds = [tiers.core_lanes[plane] for plane in tiers.plane]
    if len(set(kinds)) == 1 or not 0 < max(demands) <= min(demands) * (1 + _ROUNDING):
        return together
    of_edge, of_core = (int(worst * bps / max(demands) + _ROUNDING) for bps in (edge_bps, core_bps))
    if load <= of_edge:
        return together
    lanes = [range(kinds.index(cores), kinds.index(cores) + kinds.count(cores)) for cores in dict.fromkeys(kinds)]
    core_lanes = [sum(tiers.core_lanes[plane] for plane in {tiers.plane[lane] for lane in of}) for of in lanes]
    rooms = [Room(of_edge * len(of), of_core * count) for of, count in zip(lanes, core_lanes, strict=True)]
    current = [next((number for number, of in enumerate(lanes) if lane in of), -1) for lane in running]
    chosen = choose(ends.leaf, ends.pod, rooms, current)
    if chosen is None:
        return together
    return [([flow for flow, own in enumerate(chosen) if own == number], of) for number, of in enumerate(lanes)]


def _edge_lanes(tiers: Tiers, ends: _Ends, per_core: float) -> tuple[int, float]:
    """How many edge lanes to use, those of the planes with the most core lanes: as many as make the fullest link least
    full. A plane with few cores is better left out than filled like the others. And the flows on that link;
    ``per_core``: capacity of a core lane / that of an edge lane."""
    leaf, pod = ends.of_leaf(), ends.of_pod(ends.between_pods(range(len(ends.leaf[0]))))
    per_plane = Counter(tiers.plane)
    loads = {}
    for count in accumulate(per_plane[plane] for plane in sorted(per_plane)):
        used = range(tiers.plane[count - 1] + 1)
        of_core = max(-(-(per_plane[plane] * -(-pod // count)) // tiers.core_lanes[plane]) for plane in used)
        loads[count] = max(-(-leaf // count), of_core / per_core)
    best = min(loads, key=lambda count: (loads[count], -count))
    return best, loads[best]


def _running(flows: Sequence[Flow], tiers: Tiers) -> list[Lanes]:
    """The lanes that whole flows have now."""
    if not any(flow.current for flow in flows):
        return [Lanes(-1, -1)] * len(flows)
    edge = {link: lane for links in tiers.up.values() for lane, link in enumerate(links)}
    core = {link: lane for pods in tiers.core_up for links in pods for lane, link in enumerate(links)}

    def lanes(flow: Flow) -> Lanes:
        path = flow.current[0].path if flow.current and len(flow.current) == 1 else ()
        return Lanes(edge.get(path[0], -1), core.get(path[1], -1)) if len(path) > 1 else Lanes(-1, -1)

    return list(map(lanes, flows))


def _path(tiers: Tiers, flow: Flow, lanes: Lanes) -> Path:
    up, down = tiers.up[flow.src_leaf][lanes.edge], tiers.down[flow.dst_leaf][lanes.edge]
    if lanes.core < 0:
        return up, down
    plane = tiers.plane[lanes.edge]
    out, into = tiers.core_up[plane][tiers.pod[flow.src_leaf]], tiers.core_down[plane][tiers.pod[flow.dst_leaf]]
    return up, out[lanes.core], into[lanes.core], down


def _rates(problem: Problem, tiers: Tiers) -> tuple[float, float]:
    """The least capacity of the links of edge lanes, and of those of core lanes."""
    edge = (link for links in (*tiers.up.values(), *tiers.down.values()) for link in links)
    core = (link for pods in (*tiers.core_up, *tiers.core_down) for links in pods for link in links)
    least_edge, least_core = (min([problem.capacity_bps[link] for link in links]) for links in (edge, core))
    return least_edge, least_core


# ---- planes with unequal numbers of cores


class Room(NamedTuple):
    """How many flows may leave or enter a leaf in all planes of a group, and a pod for another one."""

    of_leaf: int
    of_pod: int


def choose(
    leaves: Sequence[Sequence[int]], pods: Sequence[Sequence[int]], rooms: Sequence[Room], current: Sequence[int]
) -> list[int] | None:
    """Return which planes whole flows take where the planes have unequal numbers of cores: a *group* of planes with
    equally many per flow, or None where there is no choice or none was found in time.

    Flows of a group can be coloured evenly with its planes afterwards. So a level is reached by whole flows of one
    demand if, and only if, groups can be chosen within the room of every leaf and of every pod: this search has a
    variable per flow and group, and none for paths.

    ``leaves``, ``pods``: per side (sources, destinations) those of the flows. ``current``: the group of each flow
    that runs, else -1; as many as possible keep it."""
    model = cp_model.CpModel()
    takes = [[model.new_bool_var("") for _ in rooms] for _ in current]
    for of in takes:
        model.add_exactly_one(of)
    stays = [takes[flow][group] for flow, group in enumerate(current) if group >= 0]
    if stays:
        model.maximize(sum(stays))
    between = [flow for flow, (src, dst) in enumerate(zip(*pods, strict=True)) if src != dst]
    for side in (0, 1):
        for place, flows, of_leaf in ((leaves[side], range(len(current)), True), (pods[side], between, False)):
            sets: defaultdict[int, list[int]] = defaultdict(list)
            for flow in flows:
                sets[place[flow]].append(flow)
            for those in sets.values():
                for number, room in enumerate(rooms):
                    most = room.of_leaf if of_leaf else room.of_pod
                    if len(those) > most:
                        model.add(sum(takes[flow][number] for flow in those) <= most)
    solver = solver_within(PlanLimits(deterministic=True), _CHOICE_S)
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return [next(group for group, take in enumerate(of) if solver.boolean_value(take)) for of in takes]


# ---- split flows


class _Part(NamedTuple):
    """The share of a colour's flows that a plane carries."""

    color: int
    share: float


_Group = tuple[int, int]
"""Colours in leaves and in pods, the latter -1 within a pod: flows of one group are split alike."""


class _Piece(NamedTuple):
    """Of the flows of a group in one plane."""

    group: _Group
    core: int
    share: float


def split_evenly(
    problem: Problem, flows: Sequence[Flow], tiers: Tiers, max_subflows: int
) -> dict[FlowId, Route] | None:
    """Routes of flows between leaves, all of one demand, in at most so many pieces; None when there would be more, or
    several cables lead from a leaf to a plane."""
    if len(set(tiers.plane)) < len(tiers.plane):
        return None
    ends = _Ends(flows, tiers)
    color, counts = ends.color(range(len(flows)), ends.of_leaf(), [-1] * len(flows)), []
    sub = [-1] * len(flows)
    for number in range(max(color) + 1):
        between = ends.between_pods([flow for flow, own in enumerate(color) if own == number])
        counts.append(ends.of_pod(between))
        for flow, own in zip(between, ends.color_pods(between, max(1, counts[-1]), [-1] * len(between)), strict=True):
            sub[flow] = own
    edge_bps, core_bps = _rates(problem, tiers)
    demand_bps = max(bps for _, bps in flows[0].demand_bps)
    for whole_in_plane in (False, True):
        planes = _Planes(counts, tiers.core_lanes, core_bps / edge_bps, whole_in_plane)
        pieces = planes.pieces(edge_bps / demand_bps)
        if max(len(pieces[group]) for group in zip(color, sub, strict=True)) <= max_subflows:
            return {
                flow.id: tuple([Subflow(_path(tiers, flow, lanes), share) for lanes, share in pieces[group]])
                for flow, group in zip(flows, zip(color, sub, strict=True), strict=True)
            }
    return None


@dataclass(frozen=True, slots=True)
class _Planes:
    """``counts``: per colour the most of its flows that leave or enter a pod. ``core_lanes``: per plane. ``per_core``:
    capacity of a core lane / that of an edge lane. ``whole_in_plane``: no flow takes two cores of a plane.

    Loads are in flows per edge lane."""

    counts: Sequence[int]
    core_lanes: Sequence[int]
    per_core: float
    whole_in_plane: bool

    def pieces(self, least: float) -> dict[_Group, list[tuple[Lanes, float]]]:
        """Lanes and shares of every group of flows. ``least``: a load below this gains nothing."""
        load, planes = self._least_load(least)
        room = load * self.per_core
        found: dict[_Group, list[tuple[Lanes, float]]] = defaultdict(list)
        for plane, parts in enumerate(planes):
            lanes = self.core_lanes[plane]
            fits = all(self.counts[color] <= lanes for color, _ in parts) and sum(share for _, share in parts) <= room
            cut = self._dealt(parts, lanes) if self.whole_in_plane or fits else self._cut(parts, room, found)
            for color, share in parts:
                found[color, -1].append((Lanes(plane, -1), share))
            for group, core, share in cut:
                found[group].append((Lanes(plane, core), share))
        return {group: _adding_up(pieces) for group, pieces in found.items()}

    def _least_load(self, least: float) -> tuple[float, list[list[_Part]]]:
        """The least load of the fullest link with which the planes can carry all colours, and what each carries."""
        low = high = least
        while (planes := self._filled(high)) is None:
            low, high = high, 2 * high
        for _ in range(_BISECTIONS if high > least else 0):
            middle = (low + high) / 2
            better = self._filled(middle)
            low, high, planes = (low, middle, better) if better else (middle, high, planes)
        return high, planes

    def _filled(self, load: float) -> list[list[_Part]] | None:
        """What each plane carries when it is filled up to this load, the planes with the most cores first and with the
        colours that have the most flows; None when that is not everything."""
        waiting = [(1.0, color) for color in sorted(range(len(self.counts)), key=self.counts.__getitem__)]
        planes = []
        for lanes in self.core_lanes:
            edge, core, parts = load, load * self.per_core * lanes, list[_Part]()
            while waiting and edge > _NOTHING:
                left, color = waiting[-1]
                need = self._core_lanes_needed(color, lanes)
                share = min(left, edge, core / need if need else edge)
                if share > _NOTHING:
                    parts.append(_Part(color, share))
                edge, core, waiting[-1] = edge - share, core - share * need, (left - share, color)
                if left - share > _NOTHING:
                    break
                waiting.pop()
            planes.append(parts)
        return None if waiting else planes

    def _core_lanes_needed(self, color: int, lanes: int) -> int:
        """By what one unit of the colour's share adds to the core lanes of the fullest pod."""
        count = self.counts[color]
        return math.ceil(count / lanes) * lanes if self.whole_in_plane else count

    def _dealt(self, parts: Sequence[_Part], lanes: int) -> list[_Piece]:
        return [_Piece((color, sub), sub % lanes, share) for color, share in parts for sub in range(self.counts[color])]

    def _cut(self, parts: Sequence[_Part], room: float, found: Mapping[_Group, Sequence[object]]) -> list[_Piece]:
        """The groups side by side on a line, cut into pieces of this length. Those that have the fewest pieces already
        lie where the cuts are."""
        pieces = []
        begin = 0.0
        for color, share in parts:
            count = self.counts[color]
            places = [_cores(begin + place * share, begin + (place + 1) * share, room) for place in range(count)]
            subs = sorted(range(count), key=lambda sub: len(found.get((color, sub), ())))
            for sub, place in zip(subs, sorted(places, key=len, reverse=True), strict=True):
                pieces += [_Piece((color, sub), core, own) for core, own in place]
            begin += count * share
        return pieces


def _cores(begin: float, end: float, length: float) -> list[tuple[int, float]]:
    """The pieces of a line, each of this length, that an interval lies in, with its share in each."""
    first, last = int(begin / length + _ROUNDING), math.ceil(end / length - _ROUNDING) - 1
    cores = range(first, max(first, last) + 1)
    return [(core, min(end, (core + 1) * length) - max(begin, core * length)) for core in cores]


def _adding_up(pieces: Sequence[tuple[Lanes, float]]) -> list[tuple[Lanes, float]]:
    """Shares that add up to 1 in spite of rounding."""
    total = sum(share for _, share in pieces)
    return [(lanes, share / total) for lanes, share in pieces]
