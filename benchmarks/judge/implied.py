"""Check whether the claims of a plan's file follow from its witnesses, independently of the product's checker.

The witnesses are the file's cuts and proofs. All walks are listed, sums are fractions, and sets of jobs are tried one
by one. This module imports nothing of the controller. The input is the plan as plain data
(docs/reference/json-output.md). The results are whether its claims follow, and the slowdowns of its routes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from itertools import combinations
from typing import Any


def follows(plan: Any) -> bool:
    """Return whether the claims follow; False for data that do not have the form of a plan."""
    try:
        return _Plan(plan).holds()
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return False


def slowdowns(plan: Any) -> list[Fraction]:
    """Return the slowdown of each job under the routes of the plan."""
    loads: defaultdict[int, defaultdict[tuple[int, Any], int]] = defaultdict(lambda: defaultdict(int))
    for flow in plan["flows"]:
        for share, path in flow["route"]:
            for phase, rate in flow["demand"]:
                for link in path:
                    loads[link][flow["job"], phase] += share * rate
    found = [Fraction(1)] * len(plan["jobs"])
    for link, cells in loads.items():
        jobs = {job for job, _ in cells}
        peaks = sum(max(of for (own, _), of in cells.items() if own == job) for job in jobs)
        for job in jobs:
            found[job] = max(found[job], Fraction(peaks, plan["denominator"] * plan["links"][link][2]))
    return found


def walks(plan: Any, flow: Any) -> list[list[int]]:
    """Return the walks that a flow of the plan may take."""
    return [list(walk) for walk in _Plan(plan).between(flow)]


class _Plan:
    def __init__(self, plan: Any) -> None:
        self._plan, self._whole = plan, plan["denominator"]
        self._links: list[list[Any]] = plan["links"]
        self._walks: dict[tuple[Any, Any, int], list[tuple[int, ...]]] = {}
        self._out: defaultdict[Any, list[tuple[int, Any]]] = defaultdict(list)
        for link, (start, end, _) in enumerate(self._links):
            self._out[start].append((link, end))

    def holds(self) -> bool:
        plan, whole = self._plan, self._whole
        flows, proven, searched = plan["flows"], plan["proven"], plan["searched"]
        if not all(self._possible(flow) for flow in flows) or min(of for *_, of in self._links) <= 0:
            return False
        exact = slowdowns(plan)
        if [math.ceil(slowdown * whole) for slowdown in exact] != [job["slowdown"] for job in plan["jobs"]]:
            return False
        sorted_slowdowns = sorted(exact, reverse=True)
        if not 0 <= proven <= proven + searched <= len(exact) or not 0 <= plan["tolerance"] * 10_000 <= whole:
            return False
        if not all(self._proves(proof, sorted_slowdowns) for proof in plan["proofs"]):
            return False
        near = 1 + Fraction(plan["tolerance"], whole)
        return all(
            math.ceil(slowdown * whole)
            <= near * max([whole, *(of["bound"] for of in plan["proofs"] if of["jobs"] >= place)])
            for place, slowdown in enumerate(sorted_slowdowns[:proven], 1)
        )

    def _possible(self, flow: Any) -> bool:
        shares = [share for share, _ in flow["route"]]
        walks = self.between(flow)
        return (
            0 <= flow["job"] < len(self._plan["jobs"])
            and all(tuple(path) in walks for _, path in flow["route"])
            and all(rate > 0 for _, rate in flow["demand"])
            and sum(shares) == self._whole
            and min(shares) > 0
            and len(shares) <= flow["max_subflows"]
        )

    def between(self, flow: Any) -> list[tuple[int, ...]]:
        return self._from(flow["from"], flow["to"], flow["hops"])

    def _from(self, here: Any, to: Any, hops: int) -> list[tuple[int, ...]]:
        if hops <= 0:
            return [()] if hops == 0 and here == to else []
        if (here, to, hops) not in self._walks:
            self._walks[here, to, hops] = [
                (link, *rest) for link, end in self._out[here] for rest in self._from(end, to, hops - 1)
            ]
        return self._walks[here, to, hops]

    def _proves(self, proof: Any, exact: list[Fraction]) -> bool:
        jobs, groups = proof["jobs"], [(set(group["jobs"]), group["least"]) for group in proof["groups"]]
        highest = Fraction(math.ceil(exact[0] * self._whole), self._whole)
        if not 0 < jobs <= len(exact) or not self._whole <= proof["bound"] <= math.ceil(exact[jobs - 1] * self._whole):
            return False
        bound = Fraction(proof["bound"], self._whole)
        if not all(self._needs(group, bound, highest) for group in proof["groups"]):
            return False
        everyone = range(len(exact))
        few = (set(slow) for slow in combinations(everyone, jobs - 1))
        return not any(all(len(slow & members) >= least for members, least in groups) for slow in few)

    def _needs(self, group: Any, bound: Fraction, highest: Fraction) -> bool:
        """Return whether in every routing ``least`` jobs of the group have a slowdown of at least the bound."""
        cut, members, least = self._plan["cuts"][group["cut"]], sorted(set(group["jobs"])), group["least"]
        price, need = dict(map(tuple, cut["prices"])), self._need(cut)
        if not 0 < least <= len(members) or min(price.values()) < 0 or min(price) < 0:
            return False
        if len(price) == 1 and all(need[job] > 0 for job in members):
            return self._crowded(cut, price, set(need), need, bound, highest)
        tried = combinations(members, least - 1)
        return all(self._crowded(cut, price, set(members) - set(slow), need, bound, highest) for slow in tried)

    def _crowded(
        self, cut: Any, price: dict[int, int], low: set[int], need: Any, bound: Fraction, highest: Fraction
    ) -> bool:
        """Return whether the cut has too little room for all jobs if the jobs in ``low`` stay below the bound.

        The other jobs may be at the highest slowdown."""
        unit, capacity = cut["unit"], {link: self._links[link][2] for link in price}
        of_low = sum(of for job, of in need.items() if job in low)
        of_others = sum(need.values()) - of_low
        if not unit:
            room = sum(of * capacity[link] for link, of in price.items())
            return bool(of_low > 0 and of_low / bound + of_others / highest >= room)
        below = {link: math.ceil(bound * capacity[link] / unit) - 1 for link in price}
        most = {link: math.floor(highest * capacity[link] / unit) for link in price}
        part = min(Fraction(below[link], most[link]) for link in price if most[link])
        return bool(of_low + part * of_others > sum(of * below[link] for link, of in price.items()))

    def _need(self, cut: Any) -> defaultdict[int, Fraction]:
        price, unit = dict(map(tuple, cut["prices"])), cut["unit"]
        own: defaultdict[tuple[int, Any], dict[int, int]] = defaultdict(dict)
        for job, phase, link, part in cut["phases"]:
            own[job, phase][link] = part
            shared = sum(of for other, _, at, of in cut["phases"] if (other, at) == (job, link))
            if part < 0 or shared > price[link]:
                raise ValueError
        dividing = {job for job, _ in own}
        cells: defaultdict[tuple[int, Any], Fraction] = defaultdict(Fraction)
        if unit < 0:
            raise ValueError
        for number in set(cut["flows"]):
            flow = self._plan["flows"][number]
            for phase, rate in flow["demand"]:
                job = flow["job"]
                costs = own.get((job, phase), {}) if job in dividing else price
                cheapest = min(sum(costs.get(link, 0) for link in walk) for walk in self.between(flow))
                if not unit or flow["max_subflows"] == 1:
                    cells[job, phase] += cheapest * (Fraction(rate // unit) if unit else rate)
        need: defaultdict[int, Fraction] = defaultdict(Fraction)
        for (job, _), of in cells.items():
            need[job] = need[job] + of if job in dividing else max(need[job], of)
        return need
