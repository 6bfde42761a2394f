"""On fabrics small enough to try every routing, plans are what they claim to be."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.fabric.topology import PortNo
from controller.planning.efficiency import job_levels
from controller.planning.plan import Plan
from controller.planning.plan_check import check
from controller.planning.planner import plan
from controller.planning.problem import Flow, PlanLimits, Problem, Route, whole
from tests.unit.planning.fabrics import better, brute_force, fabric_of, flow, pinned, problem_of

LIMITS = PlanLimits(time_limit_s=10, ecmp_draws=8, deterministic=True)
MAX_ROUTINGS = 800
quick = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Two or three leaves, two or three spines, cables cut, doubled and of unequal capacity; up to three jobs of one or
    two phases; some flows pinned, some of them to a path that is not there."""
    leaves = draw(st.integers(2, 3))
    spines = draw(st.integers(2, 3))
    capacities = st.lists(st.sampled_from([0.1, 2.0, 3.0, 4.0]), max_size=2)
    cables = [
        (leaf, spine, capacity)
        for leaf in range(1, leaves + 1)
        for spine in range(101, 101 + spines)
        for capacity in draw(capacities)
    ]
    fabric = fabric_of([*cables, *((leaf, 101, 4.0) for leaf in range(1, leaves + 1))])
    ends = st.tuples(st.integers(1, leaves), st.integers(1, 3))
    phases = st.sampled_from([((0, 1.0),), ((0, 2.0),), ((1, 3.0),), ((0, 1.0), (1, 2.0))])
    pairs = draw(st.lists(st.tuples(ends, ends), min_size=3, max_size=7, unique=True))
    flows = [flow(draw(st.sampled_from("abc")), src, dst, draw(phases)) for src, dst in pairs if src != dst]
    nic_bps = draw(st.sampled_from([4.0, 40.0]))
    problem = problem_of(fabric, _few_enough(problem_of(fabric, flows), flows), nic_bps)
    return replace(problem, flows=tuple(replace(f, current=draw(_currents(problem, f))) for f in problem.flows))


def _few_enough(problem: Problem, flows: list[Flow]) -> list[Flow]:
    routings = 1
    kept = []
    for candidate in flows:
        routings *= len(problem.candidates(candidate))
        if routings <= MAX_ROUTINGS:
            kept.append(candidate)
    return kept


def _currents(problem: Problem, flow: Flow) -> st.SearchStrategy[Route | None]:
    gone = tuple(link._replace(port=PortNo(link.port + 500)) for link in problem.candidates(flow)[0])
    return st.sampled_from([None, whole(gone) if gone else None, *map(whole, problem.candidates(flow))])


def planned(problem: Problem, limits: PlanLimits = LIMITS) -> Plan:
    answer = plan(problem, limits)
    assert isinstance(answer, Plan), answer
    return answer


@quick
@given(problems())
def test_the_plan_is_optimal_in_levels_and_then_in_moves(problem: Problem) -> None:
    answer = planned(problem)
    levels, fewest = brute_force(problem)
    assert answer.certificate == "optimal"
    assert not better(levels, answer.sorted_levels)
    assert answer.moves <= fewest
    assert check(problem, answer) == ()


@quick
@given(problems(), st.integers(0, 2))
def test_a_capped_plan_is_the_best_within_the_cap_and_claims_no_more_than_is_true(
    problem: Problem, max_moves: int
) -> None:
    answer = planned(problem, replace(LIMITS, max_moves=max_moves))
    levels, fewest = brute_force(problem, max_moves)
    free, _ = brute_force(problem)
    assert answer.moves <= max_moves
    assert not better(levels, answer.sorted_levels)
    assert answer.moves <= fewest
    proven = answer.levels_proven
    assert not better(free[:proven], answer.sorted_levels[:proven])
    assert not free or answer.bound <= free[0] * (1 + 1e-9)


@quick
@given(problems())
def test_an_adopted_plan_stays(problem: Problem) -> None:
    first = planned(problem)
    again = planned(pinned(problem, first.routes))
    assert again.moves == 0
    assert dict(again.routes) == dict(first.routes)


@quick
@given(problems())
def test_without_time_the_plan_is_still_valid_and_never_worse_than_staying(problem: Problem) -> None:
    answer = planned(problem, replace(LIMITS, time_limit_s=1e-9))
    assert answer.solver != "cpsat"
    assert check(problem, answer) == ()
    assert not brute_force(problem)[0] or answer.bound <= brute_force(problem)[0][0] * (1 + 1e-9)
    if all(problem.stands(f) for f in problem.flows):
        running = job_levels(problem, {f.id: f.current for f in problem.flows if f.current})
        assert not better(sorted(running.values(), reverse=True), answer.sorted_levels)
