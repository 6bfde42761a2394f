"""Certificates of random instances and their changed copies, and the command ``certificates``.

The controller's checker and ``implied``, which decides independently whether the claims follow, agree."""

import random
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.judge.adapter import certificate_of
from benchmarks.judge.certificates import judged, summary
from benchmarks.judge.implied import follows, slowdowns, walks
from benchmarks.judge.instances import generate
from benchmarks.judge.mutants import boasting, changed, refuted
from controller.planning.problem import PlanLimits
from controller.planning.verify import Cut, Graph, slowdowns_of, verify
from tests.support.command_line import Command

LIMITS = PlanLimits(time_limit_s=10, ecmp_draws=0, deterministic=True)
WITH_PROOF = 51
"""Seed of an instance whose whole flows need a slowdown above 1."""


@pytest.fixture(scope="module")
def plan() -> Any:
    return certificate_of(generate(WITH_PROOF), 1, LIMITS)


def accepted(plan: Any) -> bool:
    try:
        verify(plan)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("seed", range(6))
def test_certificates_are_accepted_and_what_does_not_follow_is_refused(seed: int) -> None:
    record = judged(seed, LIMITS)
    assert all(plan["accepted"] and plan["follows"] for plan in record["plans"])
    mutants = [mutant for plan in record["plans"] for mutant in plan["mutants"]]
    assert [mutant for mutant in mutants if not mutant[2] and not mutant[3]] == []
    found = summary([record], 0)
    assert found["wrong"] == []
    assert found["certificates"] == 3


def test_the_checker_and_the_second_decision_agree_on_changed_copies(plan: Any) -> None:
    assert plan["proofs"]
    agreed = []
    for seed in range(300):
        what, mutant = changed(plan, random.Random(seed))
        if accepted(mutant):
            assert follows(mutant), what
        agreed.append((accepted(mutant), follows(mutant)))
    assert {(False, False), (True, True)} <= set(agreed)


def test_worse_routes_that_claim_to_be_the_best_are_refuted_by_the_better_ones(plan: Any) -> None:
    best = sorted(slowdowns(plan), reverse=True)
    found = [boasting(plan, lambda flow: walks(plan, flow), random.Random(seed)) for seed in range(20)]
    boasts = [mutant for mutant in found if mutant]
    assert boasts
    for mutant in boasts:
        assert refuted(sorted(slowdowns(mutant), reverse=True), best)
        assert mutant["proven"] == len(best)
        assert not accepted(mutant)
        assert not follows(mutant)


def test_slowdowns_are_refuted_by_smaller_ones_after_none_that_are_larger() -> None:
    claimed = [Fraction(3), Fraction(2)]
    assert refuted(claimed, [Fraction(3), Fraction(1)])
    assert refuted(claimed, [Fraction(2), Fraction(2)])
    assert not refuted(claimed, [Fraction(4), Fraction(1)])
    assert not refuted(claimed, claimed)


def test_the_second_decision_does_not_import_the_controller() -> None:
    code = "import sys, benchmarks.judge.implied, benchmarks.judge.mutants; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if name.partition(".")[0] == "controller"]


def test_the_command(benchmark: Command, tmp_path: Path) -> None:
    arguments = ("certificates", "--count", 3, "--seed", WITH_PROOF, "--out", tmp_path / "c")
    run = benchmark(*arguments, "--json")
    assert (run.status, *(run.json[name] for name in ("certificates", "left", "wrong"))) == (0, 3, 0, [])
    assert "3 certificates, 0 left" in benchmark(*arguments).out


# ---- claims that the checker accepts are true


@pytest.mark.parametrize("seed", [15, 22, 24, 91, 101])
def test_what_a_cut_proves_holds_in_every_routing_that_is_tried(seed: int) -> None:
    """No tried routing has slowdowns below the largest bounds that random cuts prove for random groups of jobs.

    The cuts have random prices, units, phases and flows. The test shares no reasoning with the checker. Some routings
    come within 10 % of a bound."""
    rng = random.Random(seed)
    plan = certificate_of(generate(seed), 1, LIMITS)
    for flow in plan["flows"]:
        flow["max_subflows"] = rng.choice((1, 1, 3))
    found, graph = routings(plan, rng), Graph(plan["links"])
    proven = sharp = 0
    for _ in range(100):
        cut = Cut(plan, graph, random_cut(plan, graph, rng))
        members = set(rng.sample(range(len(plan["jobs"])), rng.randint(1, len(plan["jobs"]))))
        least, worst = rng.randint(1, len(members)), max(rng.choice(found))
        bound = largest(partial(proves, cut, members, least, worst), plan["denominator"], worst)
        if bound > plan["denominator"]:
            within = [slowdowns for slowdowns in found if max(slowdowns) <= worst]
            reached = [sorted((slowdowns[job] for job in members), reverse=True)[least - 1] for slowdowns in within]
            assert min(reached) >= bound
            proven += 1
            sharp += min(reached) <= 1.1 * bound
    assert proven
    assert sharp


def routings(plan: Any, rng: random.Random) -> list[list[int]]:
    """Return the slowdowns of the jobs for many routings, times the plan's denominator.

    The routings differ from the plan's own in few or in many flows."""
    whole, flows = plan["denominator"], plan["flows"]
    kept, found = [flow["route"] for flow in flows], [slowdowns_of(plan)]
    for _ in range(150):
        stay = rng.random()
        for flow, route in zip(flows, kept, strict=True):
            paths = walks(plan, flow)
            paths = rng.sample(paths, min(len(paths), rng.randint(1, flow["max_subflows"])))
            cuts = sorted(rng.sample(range(1, whole), len(paths) - 1))
            parts = [end - start for start, end in zip([0, *cuts], [*cuts, whole], strict=True)]
            drawn = [[part, path] for part, path in zip(parts, paths, strict=True)]
            flow["route"] = route if rng.random() < stay else drawn
        found.append(slowdowns_of(plan))
    return found


def random_cut(plan: Any, graph: Graph, rng: random.Random) -> Any:
    links, flows = plan["links"], plan["flows"]
    node, side = rng.choice([node for node, after in graph.after.items() if len(after) > 1]), rng.choice((0, 1))
    around = [link for link, ends in enumerate(links) if ends[side] == node]
    chosen = rng.choice((around, around, rng.sample(range(len(links)), min(len(links), rng.randint(1, 6)))))
    prices = [[link, rng.choice((1, 1, 1, 2, 3))] for link in chosen]
    job, phases = rng.randrange(len(plan["jobs"])), []
    for link, price in prices if rng.random() < 0.3 else ():
        first = rng.randint(0, price)
        phases += [[job, 0, link, first], [job, 1, link, price - first]]
    rate = rng.choice(rng.choice(flows)["demand"])[1]
    counted = [number for number in range(len(flows)) if rng.random() < 0.95]
    return {"prices": prices, "phases": phases, "flows": counted, "unit": rng.choice((0, rate, rate // 2, rate + 1))}


def proves(cut: Cut, members: set[int], least: int, worst: int, bound: int) -> bool:
    return cut.proves(members, least, bound, worst)


def largest(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest number up to ``high`` for which ``holds`` is true; ``low`` counts as true."""
    high += 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
