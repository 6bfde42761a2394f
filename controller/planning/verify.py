"""Checks a plan and its proofs from the plan's file alone: ``python3 docs/verify_plan.py plan.json``. No solver, nothing
but Python's standard library. docs/reference/json-output.md describes the file, docs/explanation/planning.md the proofs.

All numbers are integers; levels, bounds and shares are over ``denominator``. What is proven: when these flows take any
walks of their ``hops`` links, and the levels before the n-th from the worst are at most the plan's, then the n-th is at
least the bound of the proof for n jobs; and the plan's own is at most ``tolerance`` (relative) above that.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from typing import Any

NONE = float("inf")


def verify(plan: Any) -> str:
    """What is proven, in a sentence. Raises ``ValueError`` with the first thing that does not follow."""
    try:
        of_job, whole, near = levels_of(plan), plan["denominator"], plan["denominator"] + plan["tolerance"]
        for job, level in zip(plan["jobs"], of_job, strict=True):
            _require(job["level"] == level, f"job {job['name']} has level {level / whole:.9g}")
        levels = sorted(of_job, reverse=True)
        graph = graph_of(plan["links"])
        cuts = [Cut(plan, graph, cut) for cut in plan["cuts"]]
        bounds = [_bound(cuts, proof, levels, whole) for proof in plan["proofs"]]
        proven, searched = plan["proven"], plan["searched"]
        _require(0 <= proven <= proven + searched <= len(levels), "more levels are proven than there are")
        _require(whole <= near <= whole + whole // 10_000, "the tolerance is above 1/10,000")
        for place, level in enumerate(levels[:proven], 1):
            bound = max([whole, *(bound for jobs, bound in bounds if jobs >= place)])
            _require(level * whole <= bound * near, f"nothing proves level {place} from the worst")
        worst, least = max([whole, *levels]), max([whole, *(bound for _, bound in bounds)])
        text = f"worst level {worst / whole:.6g}, none is below {least / whole:.6g}; {proven} of {len(levels)} proven"
        return text + f", {searched} more by a search, which cannot be checked" * (searched > 0)
    except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError) as error:
        raise ValueError(f"this is no plan: {type(error).__name__} {error}") from error


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def levels_of(plan: Any) -> list[int]:
    """Per job, rounded up. Raises ``ValueError`` for a flow on a path that it may not take."""
    links, jobs, whole = plan["links"], plan["jobs"], plan["denominator"]
    _require(whole > 0 and all(capacity > 0 for _, _, capacity in links), "a link has no capacity")
    loads: Any = defaultdict(lambda: defaultdict(int))
    for number, flow in enumerate(plan["flows"]):
        job, demand, shares = flow["job"], flow["demand"], [share for share, _ in flow["route"]]
        if not 0 <= job < len(jobs) or not all(rate > 0 for _, rate in demand):
            raise ValueError(f"flow {number} has no job or no demand")
        if not 0 < len(shares) <= flow["pieces"] or min(shares) <= 0 or sum(shares) != whole:
            raise ValueError(f"flow {number} has too many pieces, or shares that do not add up")
        for share, path in flow["route"]:
            here, cells = flow["from"], [((job, phase), rate * share) for phase, rate in demand]
            for link in path:
                if link < 0 or links[link][0] != here:
                    raise ValueError(f"flow {number} has a path with a gap")
                here = links[link][1]
                for cell, rate in cells:
                    loads[link][cell] += rate
            if here != flow["to"] or len(path) != flow["hops"]:
                raise ValueError(f"flow {number} has a path that does not end there, or is too long")
    levels = [whole] * len(jobs)
    for link, cells in loads.items():
        peaks = _peaks(cells)
        load = -(-sum(peaks.values()) // links[link][2])
        for job in peaks:
            levels[job] = max(load, levels[job])
    return levels


def _peaks(cells: dict[tuple[int, Any], int]) -> dict[int, int]:
    """Per job its largest phase."""
    peaks: dict[int, int] = {}
    for (job, _), rate in cells.items():
        peaks[job] = max(rate, peaks.get(job, 0))
    return peaks


def _bound(cuts: list[Cut], proof: Any, levels: list[int], whole: int) -> tuple[int, int]:
    """(number of jobs, bound): each group has ``least`` jobs at the bound, and fewer jobs cannot be so many, weighted."""
    jobs, bound = proof["jobs"], proof["bound"]
    _require(jobs > 0 and whole <= bound <= levels[jobs - 1], f"a bound is above level {jobs} from the worst")
    total, of_job = 0, Counter[int]()
    for group in proof["groups"]:
        members, least, weight = set(group["jobs"]), group["least"], group["weight"]
        _require(weight > 0 < least <= len(members) and group["cut"] >= 0, "a group has no weight or no jobs")
        needs = cuts[group["cut"]].proves(members, least, bound, levels[0])
        _require(needs, f"cut {group['cut']} does not prove {bound / whole:.6g} for {least} of {len(members)} jobs")
        total += weight * least
        of_job.update(dict.fromkeys(members, weight))
    _require(total > (jobs - 1) * max(of_job.values()), f"the groups for {jobs} jobs need fewer")
    return jobs, bound


def graph_of(links: Any) -> tuple[Any, Any]:
    """Per node its next nodes, each with the links there; per node the nodes before it."""
    out: Any = defaultdict(lambda: defaultdict(list))
    into: Any = defaultdict(lambda: defaultdict(list))
    for link, (start, end, _) in enumerate(links):
        out[start][end].append(link)
        into[end][start].append(link)
    return out, into


class Cut:
    """Prices of links. ``needs``: per job the sum over its flows of demand * price of the cheapest walk, in its largest
    phase; a job in ``phases`` divides prices among its phases. With a ``unit`` only flows that stay whole count, and
    their demands in whole units."""

    def __init__(self, plan: Any, graph: tuple[Any, Any], cut: Any) -> None:
        links, price, unit, shared = plan["links"], dict(cut["prices"]), cut["unit"], None
        parts, divided = defaultdict[int, Any](lambda: defaultdict(dict)), Counter[Any]()
        _require(unit >= 0 and all(link >= 0 <= of for link, of in price.items()), "a price is negative")
        for job, phase, link, part in cut["phases"]:
            parts[job][phase][link] = part
            divided[job, link] += part
            _require(0 <= part and divided[job, link] <= price[link], "phases cost more than their link")
        shared, cells = Walks(links, graph, price), defaultdict[Any, int](int)
        for number in set(cut["flows"]):
            flow = plan["flows"][number]
            job, ends = flow["job"], (flow["from"], flow["to"], flow["hops"])
            demand = [] if unit and flow["pieces"] > 1 else [(of, rate // (unit or 1)) for of, rate in flow["demand"]]
            if job in parts:
                own = Counter[int]()
                for phase, rate in demand:
                    own.update({link: part * rate for link, part in parts[job][phase].items()})
                cells[job, 0] += Walks(links, graph, own).cheapest(*ends)
            else:
                cheapest = shared.cheapest(*ends)
                for phase, rate in demand:
                    cells[job, phase] += cheapest * rate
        self.needs, self._unit, self._whole = _peaks(cells), unit, plan["denominator"]
        self._rooms = [(of, links[link][2]) for link, of in price.items()]

    def proves(self, members: set[int], least: int, bound: int, worst: int) -> bool:
        """Whether ``least`` of these jobs are at the bound or above in every routing with no job above ``worst``. If
        fewer are, though those with the largest needs, all flows together have no room on the links of the cut."""
        inside = sorted(self.needs.get(job, 0) for job in members)
        low = sum(inside[: len(inside) - least + 1])
        high, whole = sum(self.needs.values()) - low, self._whole * (self._unit or 1)
        if not self._unit:
            room = sum(price * capacity for price, capacity in self._rooms)
            return low > 0 and (low * worst + high * bound) * whole >= room * bound * worst
        fits = [(price, (bound * of - 1) // whole, worst * of // whole) for price, of in self._rooms]
        _, below, most = fits[0]
        if any((few, many) != (below, most) for _, few, many in fits):
            return low > sum(price * few for price, few, _ in fits)
        return low * most + high * below > below * most * sum(price for price, _, _ in fits)


class Walks:
    """The cheapest by these prices of links, 0 where there is none. A price's own nodes get rows of their own."""

    def __init__(self, links: Any, graph: tuple[Any, Any], price: Any) -> None:
        self._graph, self._known, self._price = graph, dict[Any, Any](), price
        self._priced = defaultdict[Any, set[Any]](set), defaultdict[Any, set[Any]](set)
        for start, end, _ in [links[link] for link in price]:
            self._priced[0][start].add(end)
            self._priced[1][end].add(start)

    def _row(self, side: int, node: Any) -> dict[Any, Any]:
        """Per neighbour the least price of a link."""
        if (side, node) not in self._known:
            around = self._graph[side][node]
            self._known[side, node] = row = dict.fromkeys(around, 0)
            for other in self._priced[side][node]:
                row[other] = min([self._price.get(link, 0) for link in around[other]])
        return self._known[side, node]

    def cheapest(self, src: Any, dst: Any, hops: int) -> Any:
        """Sum of prices of a walk of so many links; infinite where there is none."""
        if (src, dst, hops) not in self._known:
            out, into = self._row(0, src), self._row(1, dst)
            if hops <= 2:
                ways = [out[node] + into[node] for node in out.keys() & into.keys()] if hops == 2 else [out.get(dst, NONE)]
            elif len(out) <= len(into):
                ways = [price + self.cheapest(node, dst, hops - 1) for node, price in out.items()]
            else:
                ways = [price + self.cheapest(src, node, hops - 1) for node, price in into.items()]
            self._known[src, dst, hops] = min(ways, default=NONE)
        return self._known[src, dst, hops]


def _no_fraction(text: str) -> None:
    raise ValueError(f"{text} is no integer")


def read(text: str) -> Any:
    """Raises ``ValueError`` for what is no JSON, or has numbers that are no integers."""
    return json.loads(text, parse_float=_no_fraction, parse_constant=_no_fraction)


if __name__ == "__main__":
    try:
        sys.stdout.write(verify(read(open(sys.argv[1], encoding="utf-8").read())) + "\n")
    except ValueError as error:
        sys.exit(f"refused: {error}")
