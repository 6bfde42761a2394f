"""Every job's level, not only the worst, where flows may be split and no cut shows what is possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from controller.planning.plan import Plan
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem
from controller.planning.split_flows import least_levels, search
from tests.support.planning.fabrics import fabric_of, flow, problem_of
from tests.support.planning.split_problems import split

LIMITS = PlanLimits(ecmp_draws=0, deterministic=True)


def planned(problem: Problem, limits: PlanLimits = LIMITS) -> Plan:
    answer = plan(problem, limits)
    assert isinstance(answer, Plan), answer
    return answer


Phases = Sequence[tuple[int, float]]


def beside_a_slow_job(first: Phases = ((0, 1.0),), second: Phases = ((0, 1.0),)) -> Problem:
    """Three cables from 1 to 2, one from 2 to 3. The job ``slow`` has three flows from 2 to 3, so that its level is 3,
    and two from 1 to 2, with these demands. ``fast`` has one flow from 1 to 2, of one and a half cables."""
    flows = [flow("slow", (2, host), (3, host), 1.0) for host in (1, 2, 3)]
    flows += [flow("slow", (1, 1), (2, 4), first), flow("slow", (1, 2), (2, 5), second)]
    flows += [flow("fast", (1, 3), (2, 6), 1.5)]
    return problem_of(fabric_of([(1, 2, 1.0)] * 3 + [(2, 3, 1.0)]), split(flows), nic_bps=10.0)


@pytest.fixture(autouse=True)
def nothing_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search that takes levels from cuts finds nothing."""
    monkeypatch.setattr(search, "exclusive_links", lambda *_: None)


def test_a_job_has_cables_to_itself_where_the_other_is_slow_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(beside_a_slow_job()).sorted_levels == pytest.approx((3.0, 1.0))
    monkeypatch.setattr(least_levels, "improve", lambda *_: None)
    assert planned(beside_a_slow_job()).sorted_levels[1] > 1.1


def test_phases_of_one_job_take_turns_on_a_link() -> None:
    """Each flow of ``slow`` from 1 to 2 has phases of its own, so that together they load a cable with 0.8 or 1."""
    problem = beside_a_slow_job([(1, 0.8)], [(2, 0.2), (3, 0.8)])
    assert planned(problem).sorted_levels == pytest.approx((3.0, 1.0))


def test_no_time_no_search() -> None:
    problem = beside_a_slow_job()
    assert planned(problem, replace(LIMITS, deterministic=False, until=0.0)).sorted_levels[0] == pytest.approx(3.0)


def test_large_problems_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(least_levels, "_MOST_CHOICES", 1)
    assert planned(beside_a_slow_job()).sorted_levels[1] > 1.1
