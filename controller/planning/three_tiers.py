"""Routing in closed form on three tiers: flows get a plane first, then a core of their plane.

In: flows between leaves, and the ``Tiers`` of the fabric. Out: their routes. ``problem`` defines pods, planes and
common links.

- *Whole flows*. Colour the flows between leaves so that each colour is a common edge link, evenly in every leaf and
  pod. In each plane, then colour the flows between pods so that each colour is a common core link, evenly in every pod.
  The flows of each job are divided evenly too (``edge_coloring``). No link of a leaf has more than ceil(flows / common
  edge links) flows. When a plane has as many common core links as a pod has leaves, this limit also holds for core
  links. This is the theorem of Slepian (1952) and Duguid (1959) on Clos networks (Beneš, "Mathematical Theory of
  Connecting Networks and Telephone Traffic", 1965).

- *Split flows* of equal demand, when cores have failed. Colour the flows with D colours, the largest degree of a leaf.
  Cut the line [0, D) into segments, one per plane. A flow puts on a plane the share of its colour's interval that lies
  in the plane's segment. In each plane, colour the flows of one colour again for the pods. These colours have intervals
  on a second line, each as long as the share in the plane. This line is cut into segments, one per common core link.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import Path
from controller.planning.bounds import Bounds
from controller.planning.closed_forms import crossing, nearly_equal
from controller.planning.edge_coloring import nested_coloring
from controller.planning.problem import Flow, FlowId, PathShare, PlanLimits, Problem, Route, Tiers, distinct, whole
from controller.planning.whole_flows.cpsat import cp_model, solver_within

_ROUNDING = 1e-9
_NOTHING = 1e-12
"""Share of a flow below which a part counts as zero."""
_BISECTIONS = 60
_CHOICE_S = 0.3
"""Limit of the search in ``choose``, in CP-SAT's deterministic time (one unit is about one second)."""


class CommonLinks(NamedTuple):
    """Indices of the common edge link and the common core link that a flow takes; -1 for none."""

    edge: int
    core: int


def route(problem: Problem, bounds: Bounds) -> tuple[str, dict[FlowId, Route]] | None:
    """Return (name of the method, routes), with whole flows unless splitting may lower the worst slowdown.

    Return None when the fabric has no three tiers."""
    tiers = problem.tiers
    if tiers is None:
        return None
    between = crossing(problem)
    max_subflows = min([flow.max_subflows for flow in between], default=1)
    numbers = problem.numbers
    cuts = (
        max_subflows > 1
        and bounds.integer > bounds.fluid
        and nearly_equal(numbers.peak_bps[numbers.crossing]) is not None
    )
    split = split_evenly(problem, between, tiers, max_subflows) if cuts else None
    routes = split or color_evenly(problem, between, tiers, bounds.worst)
    routes |= {flow.id: whole(()) for flow in problem.flows if flow.src_leaf == flow.dst_leaf}
    return "interval-cutting" if split else "edge-coloring", routes


class _Ends:
    """Ends of the flows as numbers.

    ``leaf``, ``pod``: two lists, for sources and destinations, with the number of each flow's leaf or pod."""

    def __init__(self, flows: Sequence[Flow], tiers: Tiers) -> None:
        number = {leaf: index for index, leaf in enumerate(tiers.pod)}
        self.leaf = [number[flow.src_leaf] for flow in flows], [number[flow.dst_leaf] for flow in flows]
        self.pod = [tiers.pod[flow.src_leaf] for flow in flows], [tiers.pod[flow.dst_leaf] for flow in flows]
        jobs = {job: index for index, job in enumerate(sorted({flow.job_id for flow in flows}))}
        self._job = np.array([jobs[flow.job_id] for flow in flows], np.int64)

    def color(self, flows: Sequence[int], colors: int, current: Sequence[int]) -> list[int]:
        """Return a colour per flow, so that the flows of a leaf, a job in a leaf, and a pod are divided evenly."""
        return self._colored(flows, colors, current, (self.leaf, self.pod))

    def color_pods(self, flows: Sequence[int], colors: int, current: Sequence[int]) -> list[int]:
        """Return a colour per flow, so that the flows of a pod, and of a job in a pod, are divided evenly."""
        return self._colored(flows, colors, current, (self.pod,))

    def _colored(
        self,
        flows: Sequence[int],
        colors: int,
        current: Sequence[int],
        levels: Sequence[tuple[Sequence[int], Sequence[int]]],
    ) -> list[int]:
        src, dst = ([np.array(level[side], np.int64)[flows] for level in levels] for side in (0, 1))
        job = self._job[flows]
        if job.min(initial=0) < job.max(initial=0):
            src, dst = ([distinct(of[0] * len(self._job) + job)[1], *of] for of in (src, dst))
        coloring: list[int] = nested_coloring((src, dst), colors, np.array(current, np.int64)).tolist()
        return coloring

    def between_pods(self, flows: Iterable[int]) -> list[int]:
        src, dst = self.pod
        return [flow for flow in flows if src[flow] != dst[flow]]

    def of_leaf(self) -> int:
        return max(count for leaf in self.leaf for count in Counter(leaf).values())

    def of_pod(self, flows: Sequence[int]) -> int:
        counts = [Counter([pod[flow] for flow in flows]) for pod in self.pod]
        return max((count for of in counts for count in of.values()), default=0)


# ---- whole flows


def color_evenly(problem: Problem, flows: Sequence[Flow], tiers: Tiers, worst: float) -> dict[FlowId, Route]:
    """Return routes of whole flows between leaves. Running flows keep their common links where the colouring allows.

    ``worst``: slowdown to aim at."""
    ends = _Ends(flows, tiers)
    running = _running(flows, tiers)
    edge, core = [-1] * len(flows), [-1] * len(flows)
    of_plane: defaultdict[int, list[int]] = defaultdict(list)
    for those, common in _groups(problem, flows, tiers, ends, [of.edge for of in running], worst):
        current = [running[flow].edge - common[0] if running[flow].edge in common else -1 for flow in those]
        for flow, color in zip(those, ends.color(those, len(common), current), strict=True):
            edge[flow] = common[color]
    for flow in ends.between_pods(range(len(flows))):
        of_plane[tiers.plane[edge[flow]]].append(flow)
    for plane, those in of_plane.items():
        stays = [tiers.plane[running[flow].edge] == plane for flow in those]
        current = [running[flow].core if stay else -1 for flow, stay in zip(those, stays, strict=True)]
        for flow, color in zip(those, ends.color_pods(those, tiers.core_links[plane], current), strict=True):
            core[flow] = color
    return {
        flow.id: (PathShare(_path(tiers, flow, CommonLinks(*common)), 1.0),)
        for flow, *common in zip(flows, edge, core, strict=True)
    }


def _groups(
    problem: Problem, flows: Sequence[Flow], tiers: Tiers, ends: _Ends, running: Sequence[int], worst: float
) -> list[tuple[Sequence[int], range]]:
    """Return the groups into which the flows are divided, and the common edge links with which each group is coloured.

    Normally all flows are one group, and use the links of the planes with the most common core links. When planes are
    unequal and one group would exceed the slowdown ``worst``, ``choose`` divides the flows among kinds of planes.
    ``running``: index of the common edge link that each flow takes now, -1 for none."""
    edge_bps, core_bps = _rates(problem, tiers)
    count, load = _edge_links(tiers, ends, core_bps / edge_bps)
    together: list[tuple[Sequence[int], range]] = [(range(len(flows)), range(count))]
    demands = {max([bps for _, bps in flow.demand_bps], default=0.0) for flow in flows}
    kinds = [tiers.core_links[plane] for plane in tiers.plane]
    if len(set(kinds)) == 1 or not 0 < max(demands) <= min(demands) * (1 + _ROUNDING):
        return together
    of_edge, of_core = (int(worst * bps / max(demands) + _ROUNDING) for bps in (edge_bps, core_bps))
    if load <= of_edge:
        return together
    common = [range(kinds.index(cores), kinds.index(cores) + kinds.count(cores)) for cores in dict.fromkeys(kinds)]
    core_links = [
        sum(tiers.core_links[plane] for plane in {tiers.plane[common_link] for common_link in of}) for of in common
    ]
    rooms = [Room(of_edge * len(of), of_core * count) for of, count in zip(common, core_links, strict=True)]
    current = [next((number for number, of in enumerate(common) if common_link in of), -1) for common_link in running]
    chosen = choose(ends.leaf, ends.pod, rooms, current)
    if chosen is None:
        return together
    return [([flow for flow, own in enumerate(chosen) if own == number], of) for number, of in enumerate(common)]


def _edge_links(tiers: Tiers, ends: _Ends, per_core: float) -> tuple[int, float]:
    """Return the number of common edge links to use, and the number of flows on the most loaded link.

    A plane with few cores is left out when using it would increase this load. ``per_core``: capacity of a common
    core link / capacity of a common edge link."""
    leaf, pod = ends.of_leaf(), ends.of_pod(ends.between_pods(range(len(ends.leaf[0]))))
    per_plane = Counter(tiers.plane)
    loads = {}
    for count in accumulate(per_plane[plane] for plane in sorted(per_plane)):
        used = range(tiers.plane[count - 1] + 1)
        of_core = max(-(-(per_plane[plane] * -(-pod // count)) // tiers.core_links[plane]) for plane in used)
        loads[count] = max(-(-leaf // count), of_core / per_core)
    best = min(loads, key=lambda count: (loads[count], -count))
    return best, loads[best]


def _running(flows: Sequence[Flow], tiers: Tiers) -> list[CommonLinks]:
    """Return the common links that each flow takes now; -1 for a flow that is not on a single path."""
    if not any(flow.current for flow in flows):
        return [CommonLinks(-1, -1)] * len(flows)
    edge = {link: common_link for links in tiers.up.values() for common_link, link in enumerate(links)}
    core = {link: common_link for pods in tiers.core_up for links in pods for common_link, link in enumerate(links)}

    def common(flow: Flow) -> CommonLinks:
        path = flow.current[0].path if flow.current and len(flow.current) == 1 else ()
        return CommonLinks(edge.get(path[0], -1), core.get(path[1], -1)) if len(path) > 1 else CommonLinks(-1, -1)

    return list(map(common, flows))


def _path(tiers: Tiers, flow: Flow, common: CommonLinks) -> Path:
    up, down = tiers.up[flow.src_leaf][common.edge], tiers.down[flow.dst_leaf][common.edge]
    if common.core < 0:
        return up, down
    plane = tiers.plane[common.edge]
    out, into = tiers.core_up[plane][tiers.pod[flow.src_leaf]], tiers.core_down[plane][tiers.pod[flow.dst_leaf]]
    return up, out[common.core], into[common.core], down


def _rates(problem: Problem, tiers: Tiers) -> tuple[float, float]:
    """Return the smallest capacity (bit/s) of a common edge link, and of a common core link."""
    edge = (link for links in (*tiers.up.values(), *tiers.down.values()) for link in links)
    core = (link for pods in (*tiers.core_up, *tiers.core_down) for links in pods for link in links)
    least_edge, least_core = (min([problem.capacity_bps[link] for link in links]) for links in (edge, core))
    return least_edge, least_core


# ---- planes with unequal numbers of cores


class Room(NamedTuple):
    """Capacity of a *group* of planes (see ``choose``), in flows."""

    of_leaf: int
    """Number of flows that may leave or enter a leaf."""
    of_pod: int
    """Number of flows to or from other pods that may leave or enter a pod."""


def choose(
    leaves: Sequence[Sequence[int]], pods: Sequence[Sequence[int]], rooms: Sequence[Room], current: Sequence[int]
) -> list[int] | None:
    """Return the group of planes that each whole flow takes; None when no assignment is found in time.

    A *group* has all planes with the same number of cores. The flows of a group can afterwards be coloured evenly with
    the planes of the group. So whole flows of equal demand can reach a slowdown exactly when some assignment of flows
    to groups keeps every leaf and every pod within its ``Room``. This search has a variable per flow and group, and no
    variable for paths.

    ``leaves``, ``pods``: indices of the flows' leaves and pods per side (sources, destinations).
    ``current``: group of each running flow, else -1. As many flows as possible keep their group."""
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
    """Share of each flow of one colour that a plane carries."""

    color: int
    share: float


_Group = tuple[int, int]
"""Colour of a flow in the colouring for leaves, and in the colouring for pods (-1 for a flow within a pod).

Flows with equal colours are split alike."""


class _Subflow(NamedTuple):
    """Share of each flow of one group that a common core link of a plane carries."""

    group: _Group
    core: int
    share: float


def split_evenly(
    problem: Problem, flows: Sequence[Flow], tiers: Tiers, max_subflows: int
) -> dict[FlowId, Route] | None:
    """Return routes of flows of equal demand between leaves, with at most ``max_subflows`` subflows each.

    Return None when flows would need more subflows, or when several cables lead from a leaf to a plane."""
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
        planes = _Planes(counts, tiers.core_links, core_bps / edge_bps, whole_in_plane)
        subflows = planes.subflows(edge_bps / demand_bps)
        if max(len(subflows[group]) for group in zip(color, sub, strict=True)) <= max_subflows:
            return {
                flow.id: tuple([PathShare(_path(tiers, flow, common), share) for common, share in subflows[group]])
                for flow, group in zip(flows, zip(color, sub, strict=True), strict=True)
            }
    return None


@dataclass(frozen=True, slots=True)
class _Planes:
    """Distribution of the colours over planes. Loads are in flows per common edge link."""

    counts: Sequence[int]
    """Largest number of flows of each colour that leave or enter one pod."""
    core_links: Sequence[int]
    """Number of common core links of each plane."""
    per_core: float
    """Capacity of a common core link / capacity of a common edge link."""
    whole_in_plane: bool
    """Whether no flow may take two cores of one plane."""

    def subflows(self, least: float) -> dict[_Group, list[tuple[CommonLinks, float]]]:
        """Return the common links and shares of every group of flows. ``least``: link load that is small enough."""
        load, planes = self._least_load(least)
        room = load * self.per_core
        found: dict[_Group, list[tuple[CommonLinks, float]]] = defaultdict(list)
        for plane, parts in enumerate(planes):
            common = self.core_links[plane]
            fits = all(self.counts[color] <= common for color, _ in parts) and sum(share for _, share in parts) <= room
            cut = self._one_core_each(parts, common) if self.whole_in_plane or fits else self._cut(parts, room, found)
            for color, share in parts:
                found[color, -1].append((CommonLinks(plane, -1), share))
            for group, core, share in cut:
                found[group].append((CommonLinks(plane, core), share))
        total = {group: sum(share for _, share in subflows) for group, subflows in found.items()}
        return {group: [(common, share / total[group]) for common, share in of] for group, of in found.items()}

    def _least_load(self, least: float) -> tuple[float, list[list[_Part]]]:
        """Return the smallest load (>= ``least``) at which the planes carry all colours, and each plane's parts."""
        low = high = least
        while (planes := self._filled(high)) is None:
            low, high = high, 2 * high
        for _ in range(_BISECTIONS if high > least else 0):
            middle = (low + high) / 2
            better = self._filled(middle)
            low, high, planes = (low, middle, better) if better else (middle, high, planes)
        return high, planes

    def _filled(self, load: float) -> list[list[_Part]] | None:
        """Return the parts that each plane carries when it is filled up to ``load``; None when a part is left over."""
        waiting = [(1.0, color) for color in sorted(range(len(self.counts)), key=self.counts.__getitem__)]
        planes = []
        for common in self.core_links:
            edge, core, parts = load, load * self.per_core * common, list[_Part]()
            while waiting and edge > _NOTHING:
                left, color = waiting[-1]
                need = self._core_links_needed(color, common)
                share = min(left, edge, core / need if need else edge)
                if share > _NOTHING:
                    parts.append(_Part(color, share))
                edge, core, waiting[-1] = edge - share, core - share * need, (left - share, color)
                if left - share > _NOTHING:
                    break
                waiting.pop()
            planes.append(parts)
        return None if waiting else planes

    def _core_links_needed(self, color: int, common: int) -> int:
        """Return the load that a share of 1 of the colour adds to the core links of the pod with its most flows."""
        count = self.counts[color]
        return math.ceil(count / common) * common if self.whole_in_plane else count

    def _one_core_each(self, parts: Sequence[_Part], common: int) -> list[_Subflow]:
        return [
            _Subflow((color, sub), sub % common, share) for color, share in parts for sub in range(self.counts[color])
        ]

    def _cut(self, parts: Sequence[_Part], room: float, found: Mapping[_Group, Sequence[object]]) -> list[_Subflow]:
        """Return the subflows of a plane.

        The groups are adjacent on a line, which is cut into segments of length ``room``. The places with the most cuts
        are given to the groups with the fewest subflows so far."""
        subflows = []
        begin = 0.0
        for color, share in parts:
            count = self.counts[color]
            places = [_cores(begin + place * share, begin + (place + 1) * share, room) for place in range(count)]
            subs = sorted(range(count), key=lambda sub: len(found.get((color, sub), ())))
            for sub, place in zip(subs, sorted(places, key=len, reverse=True), strict=True):
                subflows += [_Subflow((color, sub), core, own) for core, own in place]
            begin += count * share
        return subflows


def _cores(begin: float, end: float, length: float) -> list[tuple[int, float]]:
    """Return (segment, length in it) of an interval on a line that is cut into segments of length ``length``."""
    first, last = int(begin / length + _ROUNDING), math.ceil(end / length - _ROUNDING) - 1
    cores = range(first, max(first, last) + 1)
    return [(core, min(end, (core + 1) * length) - max(begin, core * length)) for core in cores]
