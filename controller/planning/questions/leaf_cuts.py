"""Where a leaf bounds a job: all flows that must share some of its links, and how full those are at least.

In: a ``Problem`` and a job. Out: the ``LeafCut`` that bounds the job most, with everybody in it. These are the cuts of
``bounds``, which explains the formulas and bounds all jobs at once; here one job is to be told why.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from controller.fabric.topology import Dpid, Fabric, LinkId
from controller.jobs.spec import JobId
from controller.planning.bounds import common_unit, whole_flow_bound
from controller.planning.problem import Flow, Problem

_SIZES = 16
"""Distinct demands that the bound of whole flows is taken for, the largest first."""
_ROUNDING = 1e-9

_Where = tuple[Dpid, bool, Dpid | None]


@dataclass(frozen=True, slots=True)
class LeafCut:
    """Flows out of a leaf (``outward``) or into it, all of them or those of one ``other`` leaf; they share ``links``
    links. ``failed``: links of the leaf that have failed.

    ``fluid``: load of the links if all that crosses could be spread evenly. ``whole``: load that one of them has at
    least because flows that may not be split stay whole. ``flows``: of each job, the most first.
    """

    leaf: Dpid
    outward: bool
    other: Dpid | None
    links: int
    failed: int
    fluid: float
    whole: float
    flows: tuple[tuple[JobId, int], ...]

    @property
    def level(self) -> float:
        return max(self.fluid, self.whole)


def tightest_cut(problem: Problem, job_id: JobId, intact: Fabric) -> LeafCut | None:
    """Of cuts that bound the job alike that of a whole leaf, then the one with most of its flows; None when no flow
    leaves its leaf. ``intact``: the fabric with what has failed."""
    crossing: defaultdict[_Where, list[Flow]] = defaultdict(list)
    for flow in problem.flows:
        if flow.src_leaf != flow.dst_leaf and problem.reachable(flow):
            for where in _cuts_of(flow):
                crossing[where].append(flow)
    cuts = []
    for where, flows in crossing.items():
        if any(flow.job_id == job_id for flow in flows) and (links := _links(problem, where)):
            cuts.append(_cut(problem, where, links, flows, intact))
    return max(
        cuts,
        key=lambda cut: (round(cut.level, 9), cut.other is None, dict(cut.flows)[job_id], cut.outward, -cut.leaf),
        default=None,
    )


def _cuts_of(flow: Flow) -> Iterable[_Where]:
    for other in (None, flow.dst_leaf):
        yield flow.src_leaf, True, other
    for other in (None, flow.src_leaf):
        yield flow.dst_leaf, False, other


def _links(problem: Problem, where: _Where) -> Collection[LinkId]:
    """Empty for a pair of leaves where every link of the one leads to the other."""
    leaf, outward, other = where
    around = problem.paths.links_from(leaf) if outward else problem.paths.links_into(leaf)
    if other is None:
        return around
    if outward:
        links = {path[0] for path in problem.paths.between(leaf, other)}
    else:
        links = {path[-1] for path in problem.paths.between(other, leaf)}
    return links if len(links) < len(around) else ()


def _cut(problem: Problem, where: _Where, links: Collection[LinkId], flows: Sequence[Flow], intact: Fabric) -> LeafCut:
    leaf, outward, other = where
    before = sum((link.src if outward else link.dst).dpid == leaf for link in intact.links.values())
    now = problem.paths.links_from(leaf) if outward else problem.paths.links_into(leaf)
    capacities_bps = [problem.capacity_bps[link] for link in links]
    return LeafCut(
        leaf=leaf,
        outward=outward,
        other=other,
        links=len(links),
        failed=before - len(now),
        fluid=_fluid(flows, capacities_bps),
        whole=_whole([flow for flow in flows if flow.max_subflows == 1], capacities_bps),
        flows=tuple(Counter(flow.job_id for flow in flows).most_common()),
    )


def _fluid(flows: Iterable[Flow], capacities_bps: Sequence[float]) -> float:
    return sum(max(map(sum, phases)) for phases in _rates_bps(flows)) / sum(capacities_bps)


def _whole(flows: Sequence[Flow], capacities_bps: Sequence[float]) -> float:
    """Of each job the phase with the most flows counts; and on equal links loads are multiples of one step."""
    rates = [bps for phases in _rates_bps(flows) for bps in max(phases, key=len)]
    sizes = sorted(set(rates), reverse=True)[:_SIZES]
    level = max((whole_flow_bound(sum(r >= size for r in rates), size, capacities_bps) for size in sizes), default=0.0)
    fluid = _fluid(flows, capacities_bps)
    if fluid <= 1 or max(capacities_bps) > min(capacities_bps) * (1 + _ROUNDING):
        return level
    step = common_unit(sorted({bps for flow in flows for _, bps in flow.demand_bps})) / capacities_bps[0]
    return max(level, math.ceil(fluid / step - _ROUNDING) * step) if step else level


def _rates_bps(flows: Iterable[Flow]) -> list[list[list[float]]]:
    """Per job and phase the demands of these flows."""
    rates: defaultdict[JobId, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for flow in flows:
        for phase, bps in flow.demand_bps:
            rates[flow.job_id][phase].append(bps)
    return [list(phases.values()) for phases in rates.values()]
