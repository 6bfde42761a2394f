"""Plans for an alternating job: for all of its patterns, or for the present one where that gains enough."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planning.analysis.job import analyse_job
from controller.planning.analysis.messages import AnalyseJob, FabricNames, Network
from controller.planning.answers import solved
from controller.planning.plan import Planned, relative_gain, slowdowns
from controller.planning.plan_check import check
from controller.planning.problem import Flow, PlanLimits, Problem
from signalbox.jobs.spec import JobId
from tests.support.planning.fabrics import RATE, flow, leaf_spine, pinned, problem_of
from tests.support.planning.plans import EXACT, planned, vector
from tests.support.planning.random_problems import problems as whole_problems
from tests.support.planning.split_problems import leaf_spines
from tests.support.planning.split_problems import problems as split_problems

LIMITS = replace(EXACT, ecmp_draws=20)
GAIN = 0.02

OTHER = [flow("b", (1, 1), (2, 1), RATE), flow("b", (3, 1), (4, 1), RATE)]
HELD_BACK = [
    flow("a", (1, 2), (4, 2), [(0, RATE)]),
    flow("a", (1, 3), (5, 1), [(1, RATE)]),
    flow("a", (3, 2), (5, 2), [(1, RATE)]),
]
"""Flows whose phases conflict on two spines.

Phase 0 needs the flows of b on one spine, phase 1 on two: one of the phases always collides."""
FREE = [
    flow("a", (1, 2), (4, 2), [(0, RATE)]),
    flow("a", (4, 2), (1, 2), [(0, RATE)]),
    flow("a", (1, 3), (5, 1), [(1, RATE)]),
]


def sending(problem: Problem, phase: int | None) -> Problem:
    """Return the problem while job a's other phase is idle for long; if ``phase`` is None, no phase is idle."""
    idle = frozenset() if phase is None else frozenset({1 - phase})
    return problem.with_flows(replace(f, idle_phases=idle if f.job_id == "a" else f.idle_phases) for f in problem.flows)


def of(flows: Sequence[Flow]) -> Problem:
    return problem_of(leaf_spine(5, 2), [*OTHER, *flows])


def cycle(problem: Problem, phase: int | None, limits: PlanLimits = LIMITS) -> tuple[Problem, Planned]:
    """Run one planning cycle and return the problem after it, with the planned answer."""
    problem = sending(problem, phase)
    planned, _ = solved(problem, limits, GAIN)
    return pinned(problem, planned.plan.routes) if planned.adopted else problem, planned


def worst_now(problem: Problem) -> float:
    shown = slowdowns(problem, 1)
    assert shown
    return max(shown.of_job.values())


def test_routes_for_the_present_pattern_are_taken_where_routes_for_all_hold_it_back() -> None:
    problem, planned = cycle(of(HELD_BACK), None)
    assert planned.plan.max_slowdown == 2.0, "nothing is better for both"
    problem, planned = cycle(problem, None)
    assert not planned.adopted, "a pattern that may end soon moves nothing"
    for phase in (0, 1, 0, 1):
        problem, planned = cycle(problem, phase)
        assert worst_now(problem) == 1.0
        assert planned.slowdowns
        assert max(planned.slowdowns.of_job.values()) == 1.0
        assert problem.in_force == {f.id for f in problem.flows}, "also of the flows that send nothing now"
        assert planned.decision
        said = planned.decision.reason.startswith(
            "for what jobs send now: worst slowdown falls from 2.00 to 1.00 (50.0%)"
        )
        assert said == (phase == 1), "the plan for both is the best one for the other"
        again, planned = cycle(problem, phase)
        assert (again, planned.adopted) == (problem, False)


def test_where_routes_for_all_patterns_are_as_good_nothing_moves_at_a_change() -> None:
    problem, planned = cycle(of(FREE), 0)
    assert planned.plan.max_slowdown == 1.0
    for phase in (1, 0, 1):
        problem, planned = cycle(problem, phase)
        assert not planned.adopted
        assert worst_now(problem) == 1.0


@pytest.mark.parametrize("share", [0.01, 0.04])
def test_it_is_planned_for_the_present_pattern_if_that_gains_what_moves_must(share: float) -> None:
    """Phase 0 is so small that a collision costs no more than ``share``."""
    small = [flow("a", (1, 2), (4, 2), [(0, share * RATE)]), *HELD_BACK[1:]]
    problem, planned = cycle(of(small), None)
    assert planned.plan.max_slowdown == pytest.approx(1 + share)
    problem, planned = cycle(problem, 0)
    assert planned.adopted == (share / (1 + share) > GAIN)


def test_moves_keep_to_the_cap() -> None:
    problem, _ = cycle(of(HELD_BACK), 0)
    _, planned = cycle(problem, 1, replace(LIMITS, max_moves=1))
    assert planned.plan.moves <= 1


def test_explain_is_about_what_the_job_sends_now() -> None:
    problem, _ = cycle(of(HELD_BACK), 0)
    fabric = leaf_spine(5, 2)
    network = Network(problem, fabric, fabric, LIMITS, FabricNames(fabric))
    found = analyse_job(AnalyseJob(network, JobId("a"), efficiency_measured=None))
    assert (found.slowdown, found.flows) == (1.0, 1)


@settings(max_examples=25)
@given(st.one_of(whole_problems(), split_problems(leaf_spines(), subflows=(1, 2, 3))), st.data())
def test_it_is_never_worse_now_than_routes_for_all_patterns_and_stays(problem: Problem, data: st.DataObject) -> None:
    phases = defaultdict[JobId, set[int]](set)
    for f in problem.flows:
        phases[f.job_id] |= {phase for phase, _ in f.demand_bps}
    idle = {
        job: frozenset(data.draw(st.sets(st.sampled_from(sorted(own)), max_size=len(own) - 1)))
        for job, own in sorted(phases.items())
    }
    problem = problem.with_flows(replace(f, idle_phases=idle[f.job_id]) for f in problem.flows)
    union = planned(problem, LIMITS)
    found, _ = solved(problem, LIMITS, GAIN)
    assert found.plan.routes.keys() == union.routes.keys()
    assert check(problem.now if found.for_now else problem, found.plan, None) == ()
    assert relative_gain(vector(problem.now, union.routes), vector(problem.now, found.plan.routes)) >= 0
    again, _ = solved(pinned(problem, found.plan.routes), LIMITS, GAIN)
    assert not again.adopted
