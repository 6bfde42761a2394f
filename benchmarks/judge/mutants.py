"""Files of plans with one change, or with claims that are not true.

The input is a file as plain data, and a random generator. The results are changed copies, each with the name of the
change. This module imports nothing of the controller.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

from benchmarks.judge.implied import slowdowns

SAME = Fraction(3, 10**4)
"""Relative difference up to which two slowdowns count as the same here; the planner's own tolerance is smaller."""


def with_own_slowdowns(plan: Any) -> Any:
    """Change the plan's slowdowns in place to the slowdowns of its routes, and return the plan."""
    for job, slowdown in zip(plan["jobs"], slowdowns(plan), strict=True):
        job["slowdown"] = math.ceil(slowdown * plan["denominator"])
    return plan


def _copy(data: Any) -> Any:
    return json.loads(json.dumps(data))


# ---- claims


def boasting(plan: Any, walks: Callable[[Any], list[list[int]]], rng: random.Random) -> Any | None:
    """Return a plan with worse routes that the same witnesses claim to be best; None if no worse routes were found.

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
    """Return whether the slowdowns ``other`` refute the claim that the slowdowns ``claimed`` are the least possible.

    Both are sorted, largest first. The claim is refuted if ``other`` is smaller at the first entry that differs."""
    for least, slowdown in zip(claimed, other, strict=True):
        if slowdown * (1 + SAME) < least:
            return True
        if slowdown > least:
            return False
    return False


def _claiming(plan: Any, rng: random.Random) -> Any:
    """Return the plan with all slowdowns claimed as proven by its own proofs, whose bounds are set to the slowdowns."""
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
    """Return a copy with one change of a witness, or of the problem, and the name of the change.

    A change of the problem usually also updates the slowdowns that follow from it."""
    mutant = _copy(plan)
    if plan["proofs"] and rng.random() < 0.7:
        name, change = rng.choice(list(_OF_WITNESSES.items()))
        change(mutant, rng)
        return name, mutant
    name, change = rng.choice(list(_OF_PROBLEMS.items()))
    change(mutant, rng)
    if rng.random() < 0.7 and name not in _OF_CLAIMS:
        with suppress(ArithmeticError, LookupError):
            return f"{name}, slowdowns follow", with_own_slowdowns(mutant)
    return name, mutant


def _price(plan: Any, rng: random.Random) -> None:
    rng.choice(rng.choice(plan["cuts"])["prices"])[1] = rng.choice((0, 2, 3, 10**6))


def _no_price(plan: Any, rng: random.Random) -> None:
    prices = rng.choice(plan["cuts"])["prices"]
    del prices[rng.randrange(len(prices))]


def _other_link(plan: Any, rng: random.Random) -> None:
    rng.choice(rng.choice(plan["cuts"])["prices"])[0] = rng.randrange(len(plan["links"]))


def _fewer_flows(plan: Any, rng: random.Random) -> None:
    flows = rng.choice(plan["cuts"])["flows"]
    del flows[rng.randrange(len(flows))]


def _more_flows(plan: Any, rng: random.Random) -> None:
    rng.choice(plan["cuts"])["flows"].append(rng.randrange(len(plan["flows"])))


def _unit(plan: Any, rng: random.Random) -> None:
    cut = rng.choice(plan["cuts"])
    rate = rng.choice(rng.choice(plan["flows"])["demand"])[1]
    cut["unit"] = rng.choice((0, 1, rate, rate // 2, rate + 1))


def _phases(plan: Any, rng: random.Random) -> None:
    cut, flow = rng.choice(plan["cuts"]), rng.choice(plan["flows"])
    link, price = rng.choice(cut["prices"])
    cut["phases"].append([flow["job"], rng.choice(flow["demand"])[0], link, rng.choice((price, price // 2, 2 * price))])


def _group(plan: Any, rng: random.Random) -> Any:
    return rng.choice(rng.choice(plan["proofs"])["groups"])


def _least(plan: Any, rng: random.Random) -> None:
    _group(plan, rng)["least"] += rng.choice((1, 1, 2, -1))


def _weight(plan: Any, rng: random.Random) -> None:
    group = _group(plan, rng)
    group["weight"] = rng.choice((0, 1, 2 * group["weight"], group["weight"] // 2))


def _fewer_jobs(plan: Any, rng: random.Random) -> None:
    jobs = _group(plan, rng)["jobs"]
    del jobs[rng.randrange(len(jobs))]


def _other_job(plan: Any, rng: random.Random) -> None:
    jobs = _group(plan, rng)["jobs"]
    jobs[rng.randrange(len(jobs))] = rng.randrange(len(plan["jobs"]))


def _no_group(plan: Any, rng: random.Random) -> None:
    groups = rng.choice(plan["proofs"])["groups"]
    del groups[rng.randrange(len(groups))]


def _other_cut(plan: Any, rng: random.Random) -> None:
    _group(plan, rng)["cut"] = rng.randrange(-1, len(plan["cuts"]) + 1)


def _no_proof(plan: Any, rng: random.Random) -> None:
    del plan["proofs"][rng.randrange(len(plan["proofs"]))]


def _bound(plan: Any, rng: random.Random) -> None:
    proof = rng.choice(plan["proofs"])
    proof["bound"] = int(proof["bound"] * rng.choice((0.99, 1.000001, 1.01)))


def _more_jobs(plan: Any, rng: random.Random) -> None:
    rng.choice(plan["proofs"])["jobs"] += 1


_OF_WITNESSES: dict[str, Callable[[Any, random.Random], None]] = {
    "a price": _price,
    "a price is missing": _no_price,
    "a price at another link": _other_link,
    "a flow is missing in a cut": _fewer_flows,
    "a flow more in a cut": _more_flows,
    "a unit": _unit,
    "phases of a price": _phases,
    "least of a group": _least,
    "a weight": _weight,
    "a job is missing in a group": _fewer_jobs,
    "another job in a group": _other_job,
    "a group is missing": _no_group,
    "another cut of a group": _other_cut,
    "a proof is missing": _no_proof,
    "a bound": _bound,
    "a proof for more jobs": _more_jobs,
}


# ---- problems


def _demand(plan: Any, rng: random.Random) -> None:
    demand = rng.choice(rng.choice(plan["flows"])["demand"])
    demand[1] = int(demand[1] * rng.choice((0, 0.5, 0.9, 0.999, 1.1, 2)))


def _capacity(plan: Any, rng: random.Random) -> None:
    links = [link for cut in plan["cuts"] for link, _ in cut["prices"]]
    link = rng.choice(links) if links and rng.random() < 0.7 else rng.randrange(len(plan["links"]))
    plan["links"][link][2] = int(plan["links"][link][2] * rng.choice((0, 0.5, 0.999, 1.001, 1.1, 2)))


def _end(plan: Any, rng: random.Random) -> None:
    rng.choice(plan["links"])[rng.choice((0, 1))] = rng.choice(plan["links"])[rng.choice((0, 1))]


def _one_more_link(plan: Any, rng: random.Random) -> None:
    plan["links"].append(list(rng.choice(plan["links"])))


def _share(plan: Any, rng: random.Random) -> None:
    rng.choice(rng.choice(plan["flows"])["route"])[0] += rng.choice((-1, 1, 10**9))


def _path(plan: Any, rng: random.Random) -> None:
    path = rng.choice(rng.choice(plan["flows"])["route"])[1]
    path[rng.randrange(len(path))] = rng.randrange(-1, len(plan["links"]))


def _no_flow(plan: Any, rng: random.Random) -> None:
    del plan["flows"][rng.randrange(len(plan["flows"]))]


def _job(plan: Any, rng: random.Random) -> None:
    rng.choice(plan["flows"])["job"] = rng.randrange(-1, len(plan["jobs"]))


def _phase(plan: Any, rng: random.Random) -> None:
    rng.choice(rng.choice(plan["flows"])["demand"])[0] = rng.randrange(4)


def _subflows(plan: Any, rng: random.Random) -> None:
    rng.choice(plan["flows"])["max_subflows"] = rng.choice((0, 1, 2, 3))


def _hops(plan: Any, rng: random.Random) -> None:
    rng.choice(plan["flows"])["hops"] += rng.choice((-1, 1))


def _slowdown(plan: Any, rng: random.Random) -> None:
    rng.choice(plan["jobs"])["slowdown"] += rng.choice((-1, 1, 10**10))


def _proven(plan: Any, rng: random.Random) -> None:
    plan["proven"] += rng.choice((1, max(1, plan["searched"])))


def _tolerance(plan: Any, rng: random.Random) -> None:
    plan["tolerance"] *= rng.choice((-1, 2, 10**4))


_OF_CLAIMS = {"a slowdown": _slowdown, "more is proven": _proven, "the tolerance": _tolerance}
_OF_PROBLEMS: dict[str, Callable[[Any, random.Random], None]] = {
    "a demand": _demand,
    "a capacity": _capacity,
    "an end of a link": _end,
    "one more link": _one_more_link,
    "a share": _share,
    "a path": _path,
    "a flow is missing": _no_flow,
    "the job of a flow": _job,
    "a phase": _phase,
    "subflows of a flow": _subflows,
    "hops of a flow": _hops,
    **_OF_CLAIMS,
}
