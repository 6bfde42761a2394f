"""The exact search finds what enumeration finds, proves it, and respects bounds by prices."""

from __future__ import annotations

import random

import pytest

from benchmarks.contention.cases import crux_case, one_of_each_pair
from benchmarks.contention.enumeration import enumerated
from benchmarks.contention.exact import Costs, price_bound, solve
from controller.planning.contention import cassini, crux
from controller.planning.contention.circles import NO_CIRCLE, Circle, circles
from controller.planning.contention.fluid import Case, Choice, Objective, Phase, TimedJob
from signalbox.jobs.spec import JobId
from tests.support.planning.timed_jobs import random_case
from tests.unit.planning.contention.test_fluid import job


@pytest.mark.parametrize("seed", range(40))
def test_the_search_proves_the_plan_that_enumeration_finds(seed: int) -> None:
    chance = random.Random(seed)
    case = random_case(seed, most_jobs=3, floor=chance.choice((0.0, 0.1)))
    objective, ranks = chance.choice([*Objective]), chance.choice((1, 2, 3))
    circle = chance.choice([NO_CIRCLE, *circles(case, 8)])
    best = enumerated(case, objective, ranks, circle)
    found = solve(case, objective, ranks, circle)
    assert found.cost == pytest.approx(best.cost, abs=1e-5)
    assert found.bound == pytest.approx(found.cost, abs=2e-5)
    assert Costs(case, objective, circle).total(found.choices) == pytest.approx(found.cost)
    for link in range(len(case.capacity_bps)):
        assert price_bound(case, {link: 1.0}, objective) <= best.cost + 1e-9


def test_bounds_of_triples_prove_a_plan_for_which_pairs_do_not_suffice() -> None:
    theirs = crux.crux(crux_case(8), 3)
    case, start = one_of_each_pair(crux_case(8), theirs)
    found = solve(case, Objective.WORK, 3, start=start)
    cost = Costs(case, Objective.WORK, NO_CIRCLE).total(start)
    assert enumerated(case, Objective.WORK, 3, below=cost).cost == pytest.approx(found.cost)
    assert cost - 0.8 > found.cost == pytest.approx(found.bound, abs=2e-5)
    assert 5 <= found.rounds <= 8


def test_three_jobs_in_a_loop_of_links_get_slots_although_cassini_excludes_them() -> None:
    case = Case((1.0,) * 3, tuple(job(2, 1, number, (number + 1) % 3) for number in range(3)))
    assert cassini.shifts(case, [0] * 3, 3.0, [1] * 3, 12) is None
    found = solve(case, Objective.WORST, 1, Circle(3.0, (1, 1, 1), 12))
    assert found.cost == pytest.approx(0.0)
    starts_s = sorted(choice.start_s or 0.0 for choice in found.choices.values())
    assert starts_s == pytest.approx([0.0, 1.0, 2.0])


def test_a_long_and_a_short_job_meet_the_bound_on_a_stretched_circle_without_priorities() -> None:
    case = Case((1.0,), (job(2, 2), job(1, 1)))
    free = solve(case, Objective.WORST, 3)
    found = [solve(case, Objective.WORST, 1, Circle(4 * stretch, (1, 2), 20, 0.3)).cost for stretch in (1, 1.2, 1.25)]
    assert free.cost == pytest.approx(0.5)
    assert found == pytest.approx([0.5, 0.5, 0.25])


def test_another_way_is_taken_where_slots_alone_do_not_help() -> None:
    busy = job(1, 9, 0)
    either = TimedJob(JobId("j"), (Phase(1, 9),), (({0: 1.0},), ({1: 1.0},)))
    found = solve(Case((1.0, 1.0), (busy, either)), Objective.WORST, 1, Circle(10.0, (1, 1), 10))
    assert found.choices[1].way == 1
    assert found.cost == 0.0


def test_a_job_gets_a_slot_on_its_second_way_if_it_overfills_its_first_by_itself() -> None:
    either = TimedJob(JobId("j"), (Phase(5, 5),), (({0: 1.5},), ({0: 1.0},)))
    found = solve(Case((1.0,), (either, job(5, 5))), Objective.WORST, 1, Circle(10.0, (1, 1), 10))
    assert found.choices == {0: Choice(1, 0, 0.0), 1: Choice(0, 0, 5.0)}
    assert found.cost == 0.0


def test_the_bound_of_an_interrupted_search_is_at_most_the_cost_of_the_best_plan() -> None:
    case = random_case(7, most_jobs=4)
    found = solve(case, Objective.WORK, 3, time_limit_s=0.0)
    assert found.choices == dict.fromkeys(range(len(case.jobs)), Choice())
    assert found.bound <= enumerated(case, Objective.WORK, 3).cost


def test_circles_are_those_that_two_jobs_can_keep() -> None:
    case = Case((1.0,), (job(2, 2), job(1, 1), job(2, 1.1)))
    periods = [(circle.period_s, circle.turns) for circle in circles(case, 12, stretches=(1.0,))]
    assert periods == [(4.0, (1, 2, 0))]
