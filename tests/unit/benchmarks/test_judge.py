"""The judge of plans: exact results against known answers and exhaustive search, and verdicts on wrong claims.

There is one instance of each kind of fabric."""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from ortools.math_opt.python import mathopt

from benchmarks.judge import adapter, programme
from benchmarks.judge.adapter import answer, problem_of
from benchmarks.judge.command import Records
from benchmarks.judge.exact import Exact, Routing
from benchmarks.judge.instances import KINDS, MOST_FLOWS, Cable, Host, Instance, Send, from_json, generate
from benchmarks.judge.verdicts import Answer, Judge, Verdict
from controller.planning.problem import PlanLimits
from signalbox.words import Objective
from tests.support.command_line import Command

LIMITS = PlanLimits(time_limit_s=10, ecmp_draws=0, deterministic=True)
RATE = 100
SOLVE_S = 60.0


def two_leaves(spines: int, flows: Sequence[tuple[int, int, int, int, int]], background: int = 0) -> Instance:
    """Return an instance of two leaves whose first uplink carries other traffic.

    Hosts 0 to 3 are on leaf 0, hosts 4 to 7 on leaf 1."""
    cables = [Cable(leaf, 2 + spine, RATE) for leaf in range(2) for spine in range(spines)]
    cables[0] = cables[0]._replace(taken_ab=background)
    hosts = tuple(Host(leaf, RATE) for leaf in (0, 0, 0, 0, 1, 1, 1, 1))
    return Instance("test", 2 + spines, tuple(cables), hosts, tuple(Send(*flow) for flow in flows))


def across(jobs: Iterable[int], size: int = 1000) -> list[tuple[int, int, int, int, int]]:
    """Return one flow per entry of ``jobs``, from the first leaf to the second."""
    return [(job, number, 4 + number, 0, size) for number, job in enumerate(jobs)]


def least(exact: Exact, max_subflows: int | None) -> Fraction:
    if max_subflows is None:
        found = programme.fluid(exact, SOLVE_S)
    else:
        found = programme.better(exact, max_subflows, (), Fraction(1000), SOLVE_S)
    assert found.decided
    assert found.routing is not None
    assert max_subflows is None or not list(exact.faults(found.routing, max_subflows))
    return exact.vector(found.routing)[0]


def everything(exact: Exact) -> list[tuple[Fraction, ...]]:
    choices = product(*(exact.paths(*flow.ends) for flow in exact.flows))
    return sorted({exact.vector([[(path, Fraction(1))] for path in paths]) for paths in choices})


@pytest.mark.parametrize(
    ("spines", "flows", "background", "whole", "two", "fluid"),
    [
        (2, 2, 0, 1, 1, 1),
        (2, 3, 0, 2, Fraction(3, 2), Fraction(3, 2)),
        (3, 4, 0, 2, Fraction(4, 3), Fraction(4, 3)),
        # Two flows on links of 80 and 100: 10/9 each when both are split.
        (2, 2, 20, Fraction(5, 4), Fraction(10, 9), Fraction(10, 9)),
    ],
)
def test_the_least_slowdown_of_cases_with_a_known_answer(
    spines: int, flows: int, background: int, whole: Fraction, two: Fraction, fluid: Fraction
) -> None:
    exact = Exact(two_leaves(spines, across([0] * flows), background))
    for max_subflows, slowdown in ((1, whole), (2, two), (None, fluid)):
        assert float(least(exact, max_subflows)) == pytest.approx(float(slowdown), rel=1e-6)
    assert exact.cut_slowdown <= exact.whole_cut_slowdown <= whole


def test_where_one_solver_fails_the_other_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """HiGHS fails in the first solve, both solvers fail in the second one."""
    exact, failing = Exact(two_leaves(2, across([0, 0, 0]))), [mathopt.SolverType.HIGHS]
    really = mathopt.solve

    def solve(model: mathopt.Model, solver: mathopt.SolverType, **others: Any) -> mathopt.SolveResult:
        if solver in failing:
            raise AttributeError
        return really(model, solver, **others)

    monkeypatch.setattr("ortools.math_opt.python.mathopt.solve", solve)
    assert float(least(exact, 2)) == pytest.approx(1.5)
    failing.append(mathopt.SolverType.GSCIP)
    assert programme.better(exact, 2, (), Fraction(2), SOLVE_S) == (None, False)


SMALL = (2, 3, 4, 5, 25, 26, 31, 34, 35, 36, 59, 66, 72, 89)
"""Seeds of instances with at most 300 routings."""


@pytest.mark.parametrize("over_iterations", [False, True])
@pytest.mark.parametrize("seed", [*SMALL[:4], *(pytest.param(seed, marks=pytest.mark.long) for seed in SMALL[4:])])
def test_the_least_slowdowns_are_those_that_trying_everything_finds(seed: int, over_iterations: bool) -> None:
    exact = Exact(generate(seed), over_iterations)
    best = everything(exact)[0]
    found: tuple[Fraction, ...] = ()
    for _ in best:
        answer = programme.better(exact, 1, found, Fraction(1000), SOLVE_S)
        assert answer.decided
        assert answer.routing is not None
        found = (*found, exact.vector(answer.routing)[len(found)])
    assert [float(slowdown) for slowdown in found] == pytest.approx([float(slowdown) for slowdown in best], rel=1e-6)
    assert exact.cut_slowdown <= least(exact, None) * (1 + Fraction(1, 10**6))
    assert exact.whole_cut_slowdown <= best[0]


def claims(exact: Exact, routing: Routing, **others: object) -> Answer:
    """Return an answer with whole flows and true claims; ``others`` replaces some of its fields."""
    slowdowns = {job: float(slowdown) for job, slowdown in exact.slowdowns(routing).items()}
    honest = Answer(1, routing, slowdowns, 1.0, 1.0, 1.0, 0, "heuristic", "test", 0.0, 0.0)
    return replace(honest, **others)  # type: ignore[arg-type]


def of(exact: Exact, answer: Answer) -> Verdict:
    return Judge(exact, SOLVE_S).of(answer)


def crowded() -> tuple[Exact, Routing]:
    """Return two jobs with two flows each on two spines, three of the flows on the first spine."""
    exact = Exact(two_leaves(2, across([0, 0, 1, 1])))
    first, second = exact.paths(0, 1)
    return exact, [[(path, Fraction(1))] for path in (first, first, first, second)]


def test_an_honest_answer_is_not_refuted_and_its_gap_is_known() -> None:
    exact, routing = crowded()
    verdict = of(exact, claims(exact, routing))
    assert (verdict.slowdown, verdict.optimum, verdict.decided) == (3.0, 2.0, True)
    assert verdict.gap == pytest.approx(0.5)
    assert not verdict.refuted
    assert not verdict.faults


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ({"bound": 2.5}, "the bound is 2.5, but a routing reaches 2"),
        ({"fluid_bound": 2.1}, "the fluid bound is 2.1, but a routing reaches 2"),
        ({"integer_bound": 3.0}, "the bound of whole flows is 3, but a routing reaches 2"),
        ({"slowdowns_proven": 1}, "worst slowdown 3 is claimed as proven, but a routing reaches 2"),
    ],
)
def test_a_claim_that_a_routing_refutes(claim: dict[str, float], words: str) -> None:
    exact, routing = crowded()
    assert words in of(exact, claims(exact, routing, **claim)).refuted


def test_what_is_wrong_with_a_routing() -> None:
    exact, routing = crowded()
    first, second = exact.paths(0, 1)
    halves = [(first, Fraction(1, 2)), (second, Fraction(1, 2))]
    for route, words in (
        ([], "has 0 subflows"),
        (halves, "has 2 subflows"),
        ([(first, Fraction(1, 2))], "has shares [0.5]"),
        ([(first[:1], Fraction(1))], "that is not a shortest path"),
    ):
        fault, *_ = of(exact, claims(exact, [route, *routing[1:]], job_slowdown={})).faults
        assert words in fault
    lower = claims(exact, routing, job_slowdown={0: 1.0, 1: 3.0})
    assert of(exact, lower).faults == ["job 0 has slowdown 3, but the plan says 1"]


def test_more_subflows_that_are_worse() -> None:
    exact, routing = crowded()
    first, second = exact.paths(0, 1)
    better = [[(path, Fraction(1))] for path in (first, first, second, second)]
    judge = Judge(exact, SOLVE_S)
    assert not judge.of(claims(exact, better)).worse
    assert judge.of(claims(exact, routing, max_subflows=2)).worse == [
        "slowdown number 1 from the worst is 3 instead of 2"
    ]


PART_WORSE = 1420
"""Seed of an instance of three tiers.

A part of its flows proves a larger worst slowdown than the bounds of all flows."""


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize("seed", [*range(len(KINDS)), PART_WORSE])
def test_plans_of_each_kind_of_fabric_are_confirmed(seed: int, objective: Objective) -> None:
    exact = Exact(generate(seed), objective is Objective.ITERATION)
    judge = Judge(exact, SOLVE_S)
    for max_subflows in (1, 2, 3):
        verdict = judge.of(answer(generate(seed), max_subflows, LIMITS, objective))
        assert not verdict.refuted
        assert not verdict.faults
        assert not verdict.worse
        assert verdict.decided
        assert verdict.gap < (1e-4 if max_subflows > 1 else 1e-9)


def test_bounds_of_fewer_subflows_are_not_claimed_for_more() -> None:
    """The optimum with two subflows per flow, which the planner also tries, is larger than with three."""
    instance = generate(201)
    assert answer(instance, 3, LIMITS, Objective.PHASE).bound <= least(Exact(instance), None) * (1 + Fraction(1, 10**6))


def test_how_far_a_lower_slowdown_is_from_the_least() -> None:
    """Job 0 uses two links; job 1 shares the second link, or has the third to itself."""
    exact = Exact(two_leaves(3, across([0, 0, 0, 1])))
    one, two, three = exact.paths(0, 1)
    for last, gap in ((two, 1.0), (three, 0.0)):
        routing = [[(path, Fraction(1))] for path in (one, one, two, last)]
        verdict = of(exact, claims(exact, routing))
        assert verdict.best_vector == [2.0, 1.0]
        assert verdict.vector_gap == pytest.approx(gap)
        assert not verdict.refuted
    shared = [[(path, Fraction(1))] for path in (one, one, two, two)]
    verdict = of(exact, claims(exact, shared, slowdowns_proven=2))
    assert verdict.refuted == [
        "the 2 largest slowdowns of [2.0, 2.0] are claimed as proven, but a routing reaches [2.0, 1.0]"
    ]


def test_a_plan_for_which_the_machine_had_no_time_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two attempts take 10 s, of which the process had one second; the third has the processor to itself."""
    limits = PlanLimits(time_limit_s=2, ecmp_draws=0)
    wall_s, cpu_s = iter([0.0, 10.0, 20.0, 30.0, 40.0, 50.0]), iter([0.0, 1.0, 2.0, 3.0, 4.0, 14.0])
    monkeypatch.setattr(adapter, "process_time", lambda: next(cpu_s))
    monkeypatch.setattr(adapter, "perf_counter", lambda: next(wall_s))
    found = answer(generate(6), 1, limits)
    assert (found.wall_s, found.cpu_s) == (10.0, 10.0)


def test_an_instance_is_the_same_for_the_same_seed_and_survives_json() -> None:
    for seed in range(30):
        instance = generate(seed)
        assert instance == generate(seed)
        assert from_json(json.loads(json.dumps(instance.as_json()))) == instance
        exact = Exact(instance)
        assert len(exact.flows) == len(problem_of(instance, 1).flows) <= MOST_FLOWS
        assert all(exact.paths(*flow.ends) for flow in exact.flows)


def test_the_exact_side_does_not_import_the_controller() -> None:
    """The module ``implied``, which decides a second time about certificates, does not import the controller either."""
    modules = ", ".join(f"benchmarks.judge.{name}" for name in ("verdicts", "instances", "implied"))
    code = f"import sys, {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "benchmarks.judge.programme" in loaded
    assert not [name for name in loaded if name.partition(".")[0] == "controller"]


# ---- the commands


def test_a_run_goes_on_where_the_one_before_it_ended(benchmark: Command, tmp_path: Path) -> None:
    file = tmp_path / "out" / "judge.jsonl"
    assert "1 judged, 0 left" in benchmark("judge", "--first", 0, "--instances", 1, "--out", file).out
    with file.open("a") as after:
        after.write('{"name": "torn off')
    run = benchmark("judge", "--first", 0, "--instances", 2, "--out", file)
    found = json.loads((tmp_path / "out" / "judge.summary.json").read_text())
    assert (run.status, found["judged"], found["left"], found["refuted"]) == (0, 2, 0, [])
    assert "2 judged, 0 left" in run.out
    assert [json.loads(line)["name"] for line in file.read_text().splitlines()] == [
        "by iteration, leaf-spine 0",
        "by iteration, three tiers 1",
    ]


def test_an_instance_is_printed_as_data(benchmark: Command) -> None:
    assert from_json(benchmark("judge", "--instance", 5).json) == generate(5)


def test_what_is_left_is_counted_when_time_is_over(tmp_path: Path) -> None:
    records = Records(tmp_path / "file.jsonl")
    assert records.fill(["a", "b"], lambda name: {"name": name}, 0.0) == 2
    assert records.fill(["a", "b"], lambda name: {"name": name}, 60.0) == 0
    assert list(Records(tmp_path / "file.jsonl").known) == ["a", "b"]
