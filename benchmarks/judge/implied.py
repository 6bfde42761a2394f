"""Independent check of whether the claims of a plan's file follow from its proofs, to test the product's checker.

It imports nothing of the controller, and is simple instead of fast: it lists all walks, computes in fractions, and
tries sets of jobs one by one. A plan is plain data (docs/reference/json-output.md), whose proofs refer to cuts of the
fabric. The module also makes changed copies of a plan, and copies that claim too much.
"""

import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import combinations
from typing import Any


def follows(plan: Any) -> bool:
    """Return whether the plan's claims follow from its proofs; False if the data are no plan."""
    try:
        return _Plan(plan).holds()
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return False


def slowdowns(plan: Any) -> list[Fraction]:
    """Return the slowdown of each job under the plan's routes."""
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
        """Return whether at least ``least`` jobs of the group must have a slowdown of ``bound`` or more.

        This must hold under every routing that gives no job a slowdown above ``highest``."""
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
        """Return whether the cut has too little capacity for slowdowns below ``bound`` of all jobs in ``low``.

        The other jobs may have slowdowns up to ``highest``."""
        unit, capacity = cut["unit"], {link: self._links[link][2] for link in price}
        of_low = sum(of for job, of in need.items() if job in low)
        of_others = sum(need.values()) - of_low
        if not unit:
            room = sum(of * capacity[link] for link, of in price.items())
            return bool(of_low > 0 and of_low / bound + of_others / highest >= room)
        if cut.get("subflows", 1) > 1:
            return of_low > 0 and self._scattered(int(of_low), cut["subflows"], unit, bound, sorted(capacity.values()))
        below = {link: math.ceil(bound * capacity[link] / unit) - 1 for link in price}
        most = {link: math.floor(highest * capacity[link] / unit) for link in price}
        part = min(Fraction(below[link], most[link]) for link in price if most[link])
        return bool(of_low + part * of_others > sum(of * below[link] for link, of in price.items()))

    def _scattered(self, flows: int, subflows: int, unit: int, bound: Fraction, capacities: list[int]) -> bool:
        """Return whether flows of one unit, split into few subflows, overload the links: not all stay below the bound.

        ``fewest[n]`` is the smallest number of links on which n flows fit. The flows are divided into groups. In a
        group, flows are connected by links that they share, so g flows reach at most g * (subflows - 1) + 1 links."""
        if flows * unit >= bound * sum(capacities[max(0, len(capacities) - flows * subflows) :]):
            return True
        fewest: list[float] = [0]
        for count in range(1, flows + 1):
            of_group = [math.floor(size * unit / (bound * capacities[-1])) + 1 for size in range(1, count + 1)]
            fewest.append(
                min(
                    fewest[count - size] + links if links <= size * (subflows - 1) + 1 else math.inf
                    for size, links in enumerate(of_group, 1)
                )
            )
        return fewest[flows] > len(capacities)

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
        most = cut.get("subflows", 1)
        if unit < 0 or most < 1 or (most > 1 and (not unit or cut["phases"])):
            raise ValueError
        for number in set(cut["flows"]):
            flow = self._plan["flows"][number]
            for phase, rate in flow["demand"]:
                job = flow["job"]
                costs = own.get((job, phase), {}) if job in dividing else price
                cheapest = min(sum(costs.get(link, 0) for link in walk) for walk in self.between(flow))
                if most > 1:
                    cells[job, phase] += cheapest > 0 and rate >= unit and flow["max_subflows"] <= most
                elif not unit or flow["max_subflows"] == 1:
                    cells[job, phase] += cheapest * (Fraction(rate // unit) if unit else rate)
        need: defaultdict[int, Fraction] = defaultdict(Fraction)
        for (job, _), of in cells.items():
            need[job] = need[job] + of if job in dividing else max(need[job], of)
        return need


SAME = Fraction(3, 10**4)
"""Relative difference up to which two slowdowns count as equal; larger than the planner's own tolerance."""


def with_own_slowdowns(plan: Any) -> Any:
    """Set the slowdowns that the plan states to those of its routes, in place, and return the plan."""
    for job, slowdown in zip(plan["jobs"], slowdowns(plan), strict=True):
        job["slowdown"] = math.ceil(slowdown * plan["denominator"])
    return plan


def _copy(data: Any) -> Any:
    return json.loads(json.dumps(data))


# ---- claims


def boasting(plan: Any, walks: Callable[[Any], list[list[int]]], rng: random.Random) -> Any | None:
    """Return a copy of the plan with worse routes that it claims to be the best; None if none were found.

    ``walks``: function that returns the walks that a flow may take."""
    best = sorted(slowdowns(plan), reverse=True)
    for _ in range(8):
        mutant = _copy(plan)
        for flow in rng.sample(mutant["flows"], min(len(mutant["flows"]), rng.randint(1, 4))):
            flow["route"] = [[plan["denominator"], rng.choice(walks(flow))]]
        worse = sorted(slowdowns(mutant), reverse=True)
        if refuted(worse, best):
            return _claiming(with_own_slowdowns(mutant), rng)
    return None


def refuted(claimed: Sequence[Fraction], other: Sequence[Fraction]) -> bool:
    """Return whether slowdowns ``other`` prove that slowdowns ``claimed`` are not the least possible.

    Both are sorted, largest first. The proof is an ``other`` that is smaller at the first entry that differs."""
    for least, slowdown in zip(claimed, other, strict=True):
        if slowdown * (1 + SAME) < least:
            return True
        if slowdown > least:
            return False
    return False


def _claiming(plan: Any, rng: random.Random) -> Any:
    """Let the plan claim, in place, that its proofs prove all of its slowdowns; return the plan.

    The bounds of the proofs are set to the slowdowns. At random, proofs are also left out, changed or added."""
    claimed = sorted((job["slowdown"] for job in plan["jobs"]), reverse=True)
    plan["proven"], plan["searched"] = len(claimed), 0
    proofs = [proof for proof in plan["proofs"] if rng.random() < 0.9]
    for proof in proofs:
        proof["bound"] = claimed[proof["jobs"] - 1]
        if rng.random() < 0.3:
            for group in proof["groups"]:
                group["least"] = rng.randint(1, len(group["jobs"]))
    if proofs and rng.random() < 0.5:
        further = _copy(proofs[-1])
        further["jobs"], further["bound"] = len(claimed), claimed[-1]
        proofs.append(further)
    plan["proofs"] = proofs
    return plan


# ---- witnesses


def changed(plan: Any, rng: random.Random) -> tuple[str, Any]:
    """Return the name of a change, and a copy of the plan with this change of a proof or of the problem.

    After a change of the problem, the stated slowdowns are usually set to the slowdowns that then hold."""
    mutant = _copy(plan)
    if plan["proofs"] and rng.random() < 0.7:
        name = rng.choice(_OF_WITNESSES)
        _change_witness(name, mutant, rng)
        return name, mutant
    name = rng.choice(_OF_PROBLEMS)
    _change_problem(name, mutant, rng)
    if rng.random() < 0.7 and name not in _OF_CLAIMS:
        with suppress(ArithmeticError, LookupError):
            return f"{name}, slowdowns follow", with_own_slowdowns(mutant)
    return name, mutant


_OF_WITNESSES = (
    *("a price", "a price is missing", "a price at another link", "a flow is missing in a cut", "a flow more in a cut"),
    *("a unit", "subflows of a cut", "phases of a price", "least of a group", "a weight"),
    "a job is missing in a group",
    *("another job in a group", "a group is missing", "another cut of a group", "a proof is missing", "a bound"),
    "a proof for more jobs",
)


def _change_witness(name: str, plan: Any, rng: random.Random) -> None:
    cut, proof, flow = (rng.choice(plan[part]) for part in ("cuts", "proofs", "flows"))
    group = rng.choice(proof["groups"])
    match name:
        case "a price":
            rng.choice(cut["prices"])[1] = rng.choice((0, 2, 3, 10**6))
        case "a price is missing":
            _drop(cut["prices"], rng)
        case "a price at another link":
            rng.choice(cut["prices"])[0] = rng.randrange(len(plan["links"]))
        case "a flow is missing in a cut":
            _drop(cut["flows"], rng)
        case "a flow more in a cut":
            cut["flows"].append(rng.randrange(len(plan["flows"])))
        case "a unit":
            rate = rng.choice(flow["demand"])[1]
            cut["unit"] = rng.choice((0, 1, rate, rate // 2, rate + 1))
        case "subflows of a cut":
            cut["subflows"] = rng.choice((1, 2, 3, 0))
        case "phases of a price":
            link, price = rng.choice(cut["prices"])
            part = rng.choice((price, price // 2, 2 * price))
            cut["phases"].append([flow["job"], rng.choice(flow["demand"])[0], link, part])
        case "least of a group":
            group["least"] += rng.choice((1, 1, 2, -1))
        case "a weight":
            group["weight"] = rng.choice((0, 1, 2 * group["weight"], group["weight"] // 2))
        case "a job is missing in a group":
            _drop(group["jobs"], rng)
        case "another job in a group":
            group["jobs"][rng.randrange(len(group["jobs"]))] = rng.randrange(len(plan["jobs"]))
        case "a group is missing":
            _drop(proof["groups"], rng)
        case "another cut of a group":
            group["cut"] = rng.randrange(-1, len(plan["cuts"]) + 1)
        case "a proof is missing":
            _drop(plan["proofs"], rng)
        case "a bound":
            proof["bound"] = int(proof["bound"] * rng.choice((0.99, 1.000001, 1.01)))
        case "a proof for more jobs":
            proof["jobs"] += 1


def _drop(items: list[Any], rng: random.Random) -> None:
    del items[rng.randrange(len(items))]


_OF_CLAIMS = ("a slowdown", "more is proven", "the tolerance")
_OF_PROBLEMS = (
    *("a demand", "a capacity", "an end of a link", "one more link", "a share", "a path", "a flow is missing"),
    *("the job of a flow", "a phase", "subflows of a flow", "hops of a flow"),
    *_OF_CLAIMS,
)


def _change_problem(name: str, plan: Any, rng: random.Random) -> None:
    flow, links = rng.choice(plan["flows"]), plan["links"]
    demand, route = rng.choice(flow["demand"]), rng.choice(flow["route"])
    match name:
        case "a demand":
            demand[1] = int(demand[1] * rng.choice((0, 0.5, 0.9, 0.999, 1.1, 2)))
        case "a capacity":
            priced = [link for cut in plan["cuts"] for link, _ in cut["prices"]]
            link = links[rng.choice(priced)] if priced and rng.random() < 0.7 else rng.choice(links)
            link[2] = int(link[2] * rng.choice((0, 0.5, 0.999, 1.001, 1.1, 2)))
        case "an end of a link":
            rng.choice(links)[rng.choice((0, 1))] = rng.choice(links)[rng.choice((0, 1))]
        case "one more link":
            links.append(list(rng.choice(links)))
        case "a share":
            route[0] += rng.choice((-1, 1, 10**9))
        case "a path":
            route[1][rng.randrange(len(route[1]))] = rng.randrange(-1, len(links))
        case "a flow is missing":
            _drop(plan["flows"], rng)
        case "the job of a flow":
            flow["job"] = rng.randrange(-1, len(plan["jobs"]))
        case "a phase":
            demand[0] = rng.randrange(4)
        case "subflows of a flow":
            flow["max_subflows"] = rng.choice((0, 1, 2, 3))
        case "hops of a flow":
            flow["hops"] += rng.choice((-1, 1))
        case "a slowdown":
            rng.choice(plan["jobs"])["slowdown"] += rng.choice((-1, 1, 10**10))
        case "more is proven":
            plan["proven"] += rng.choice((1, max(1, plan["searched"])))
        case "the tolerance":
            plan["tolerance"] *= rng.choice((-1, 2, 10**4))
