"""More subflows are never worse than fewer, and a single deadline covers everything that searches."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings

from controller.planning.efficiency import first_difference
from controller.planning.plan import Plan
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem
from controller.planning.split_flows import by_part, search
from controller.planning.split_flows.freedom import with_subflows
from tests.support.planning.fabrics import RATE, flow, leaf_spine, problem_of
from tests.support.planning.split_problems import any_fabric, problems, split

LIMITS = PlanLimits(ecmp_draws=0, deterministic=True)


def planned(problem: Problem, limits: PlanLimits = LIMITS) -> Plan:
    answer = plan(problem, limits)
    assert isinstance(answer, Plan), answer
    return answer


@settings(max_examples=40)
@given(problems(any_fabric(), {4}))
def test_no_number_of_subflows_is_worse_than_a_smaller_one(problem: Problem) -> None:
    slowdowns = [planned(with_subflows(problem, subflows)).sorted_slowdowns for subflows in (1, 2, 3, 4)]
    for fewer, more in pairwise(slowdowns):
        index = first_difference(fewer, more)
        assert index is None or more[index] < fewer[index]


@pytest.fixture
def crowded() -> Problem:
    """Return a problem in which leaf 1 has two links for three unequal flows.

    Whole flows cannot reach the bound of split ones."""
    flows = [flow("a", (1, h), (2, h), RATE * part) for h, part in enumerate((1.0, 0.8, 0.7), start=1)]
    return problem_of(leaf_spine(2, 2), split(flows, 2))


def test_whole_flows_compete_where_split_ones_are_rounded_badly(
    crowded: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert planned(crowded).max_slowdown == pytest.approx(2.5 / 2)
    monkeypatch.setattr(search, "solve", lambda *_: None)
    assert planned(crowded).max_slowdown == pytest.approx(1.5)


def test_a_plan_that_is_not_cut_does_not_depend_on_the_time(crowded: Problem) -> None:
    by_clock = planned(crowded, replace(LIMITS, deterministic=False, time_limit_s=600))
    assert not by_clock.cut_short
    assert by_clock.routes == planned(crowded, replace(LIMITS, time_limit_s=600)).routes


def test_what_the_time_limit_cuts_says_so(crowded: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_part, "solve", lambda *_: None)
    assert planned(crowded, replace(LIMITS, deterministic=False, time_limit_s=0)).cut_short
    assert not planned(crowded).cut_short
