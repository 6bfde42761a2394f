"""The exact search finds what enumeration finds, and proves it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest

from benchmarks.contention.cases import crux_case
from benchmarks.contention.recipe import enumerated
from benchmarks.contention.recomputed import price_bound
from controller.planning.contention import cassini
from controller.planning.contention.circles import Circle, circles
from controller.planning.contention.exact import Exact, Option, Solved
from controller.planning.contention.fluid import Case, Choice, Objective, Phase, TimedJob, guaranteed_s
from controller.planning.contention.large import Search
from signalbox.jobs.spec import JobId
from tests.support.planning.timed_jobs import random_case
from tests.unit.planning.contention.test_fluid import job

LONGEST = 1_000.0


def solved(
    case: Case,
    objective: Objective,
    ranks: int = 1,
    on: Sequence[Circle] = (),
    most_s: Sequence[float] = (),
    time_limit_s: float = math.inf,
) -> Solved:
    most_s = most_s or [LONGEST * each.ideal_s for each in case.jobs]
    return Exact(case, objective, ranks, on, most_s).solve([Option()] * len(case.jobs), time_limit_s)


def plans(case: Case, ranks: int, on: Sequence[Circle]) -> Iterator[tuple[Option, ...]]:
    """Yield all plans."""
    yield from product(
        *(
            [
                Option(way, rank, circle, place)
                for way, rank in product(range(len(each.ways)), range(ranks))
                for circle, place in [
                    (None, 0),
                    *((at, place) for at, of in enumerate(on) for place in of.places(number)),
                ]
            ]
            for number, each in enumerate(case.jobs)
        )
    )


def times_s(case: Case, plan: Sequence[Option], on: Sequence[Circle]) -> list[float]:
    """Return the guaranteed times of a plan. Members of other circles are free jobs to each circle."""
    free = {number: Choice(option.way, option.rank) for number, option in enumerate(plan)}
    found = guaranteed_s(case, free)
    for at, circle in enumerate(on):
        members = {
            number: free[number]._replace(start_s=circle.start_s(option.place), turns=circle.turns[number])
            for number, option in enumerate(plan)
            if option.circle == at
        }
        times = guaranteed_s(case, {**free, **members}, circle.period_s)
        found |= {number: times[number] for number in members}
    return [found[number] for number in free]


def costs(case: Case, objective: Objective, took_s: Sequence[float]) -> list[float]:
    """Return what a plan makes small: all costs from the worst on, or their sum."""
    of = [*map(objective.cost, case.jobs, took_s)]
    return sorted(of, reverse=True) if objective is Objective.WORST else [sum(of)]


@pytest.mark.parametrize("seed", range(60))
def test_the_search_proves_the_plan_that_enumeration_finds(seed: int) -> None:
    """Half of the cases have largest times; the first plan, without slots and classes, keeps them."""
    chance = random.Random(seed)
    case = random_case(seed, most_jobs=3, floor=chance.choice((0.1, 0.2)))
    objective, ranks = chance.choice([*Objective]), chance.choice((1, 2, 3))
    every = [*circles(case, 6)]
    on = chance.sample(every, min(len(every), chance.choice((0, 1, 2))))
    while (
        math.prod(
            len(each.ways) * ranks * (1 + sum(len(of.places(n)) for of in on)) for n, each in enumerate(case.jobs)
        )
        > 1_500
    ):
        on, ranks = on[1:], ranks - (not on)
    first_s = times_s(case, [Option()] * len(case.jobs), on)
    most_s = first_s if seed % 2 else [LONGEST * each.ideal_s for each in case.jobs]
    every_s = [times_s(case, plan, on) for plan in plans(case, ranks, on)]
    kept_s = [each for each in every_s if all(s <= most * (1 + 1e-9) for s, most in zip(each, most_s, strict=True))]
    best = min(costs(case, objective, took_s) for took_s in kept_s)
    found = solved(case, objective, ranks, on, most_s)
    assert costs(case, objective, times_s(case, found.options, on)) == pytest.approx(best, abs=1e-5)
    assert objective.total(best) - 1e-5 <= found.bound <= found.cost == pytest.approx(objective.total(best), abs=1e-5)
    for link in range(len(case.capacity_bps)):
        assert price_bound(case, {link: 1.0}, objective) <= found.cost + 1e-9


@pytest.mark.parametrize("seed", [0, 1, 7, 8, 10, 260])  # in the last one, no job uses a link
def test_small_cases_by_the_recipe_of_crux_get_the_best_of_all_plans(seed: int) -> None:
    case = crux_case(seed)
    found = solved(case, Objective.WORK, 3, most_s=[math.inf] * len(case.jobs))
    least, _ = enumerated(case, 3)
    assert found.cost == pytest.approx(least) == pytest.approx(found.bound, abs=1e-5)


def test_three_jobs_in_a_loop_of_links_get_slots_although_cassini_excludes_them() -> None:
    case = Case((1.0,) * 3, tuple(job(2, 1, number, (number + 1) % 3) for number in range(3)))
    assert cassini.shifts(case, [0] * 3, 3.0, [1] * 3, 12) is None
    found = solved(case, Objective.WORST, on=[Circle(3.0, (1, 1, 1), 12)])
    assert found.cost == pytest.approx(0.0)
    assert sorted(option.place for option in found.options) == [0, 4, 8]


def test_a_long_and_a_short_job_meet_the_bound_on_a_stretched_circle_without_priorities() -> None:
    case = Case((1.0,), (job(2, 2), job(1, 1)))
    assert solved(case, Objective.WORST, 3).cost == pytest.approx(0.5)
    found = [solved(case, Objective.WORST, on=[Circle(4 * stretch, (1, 2), 20)]).cost for stretch in (1, 1.2, 1.25)]
    assert found == pytest.approx([0.5, 0.5, 0.25])


def test_another_way_is_taken_where_slots_alone_do_not_help() -> None:
    busy = job(1, 9, 0)
    either = TimedJob(JobId("j"), (Phase(1, 9),), (({0: 1.0},), ({1: 1.0},)))
    found = solved(Case((1.0, 1.0), (busy, either)), Objective.WORST, on=[Circle(10.0, (1, 1), 10)])
    assert (found.options[1].way, found.cost) == (1, 0.0)


def test_a_job_gets_a_slot_on_its_second_way_if_it_overfills_its_first_by_itself() -> None:
    either = TimedJob(JobId("j"), (Phase(5, 5),), (({0: 1.5},), ({0: 1.0},)))
    found = solved(Case((1.0,), (either, job(5, 5))), Objective.WORST, on=[Circle(10.0, (1, 1), 10)])
    assert (found.options, found.cost) == ((Option(1, 0, 0, 0), Option(0, 0, 0, 5)), 0.0)


def test_the_bound_of_an_interrupted_search_is_at_most_the_cost_of_the_best_plan() -> None:
    case = crux_case(1)
    found = solved(case, Objective.WORK, 3, time_limit_s=0.0)
    assert found.options == (Option(),) * len(case.jobs)
    assert found.bound <= enumerated(case, 3)[0] < found.cost


@pytest.mark.parametrize("heavy", [0, 1])
def test_the_job_with_the_larger_weight_is_not_disturbed_if_the_mean_counts(heavy: int) -> None:
    beside = [replace(job(1, 9, link), weight=3.0 if link == heavy else 1.0) for link in (0, 1)]
    either = TimedJob(JobId("j"), (Phase(1, 9),), (({0: 1.0},), ({1: 1.0},)))
    found = solved(Case((1.0, 1.0), (*beside, either)), Objective.WEIGHTED)
    assert found.options[2].way == 1 - heavy


def test_a_job_that_counts_for_no_objective_keeps_its_largest_time() -> None:
    jobs = (job(1, 9), replace(job(0, 10), weight=0.0))
    case, most_s = Case((1.0,), jobs), (19.0, 20.0)
    assert solved(case, Objective.WEIGHTED, 2).options[0].rank == 0
    assert solved(case, Objective.WEIGHTED, 2).cost < solved(case, Objective.WEIGHTED, 2, most_s=most_s).cost


def test_circles_are_those_that_two_jobs_can_keep() -> None:
    case = Case((1.0,), (job(2, 2), job(1, 1), job(2, 1.1)))
    periods = [(circle.period_s, circle.turns) for circle in circles(case, 12, stretches=(1.0,))]
    assert periods == [(4.0, (1, 2, 0))]


@pytest.mark.parametrize("seed", range(20))
def test_the_planner_proves_plans_of_few_jobs(seed: int) -> None:
    chance = random.Random(seed)
    case = random_case(seed, most_jobs=5, floor=0.1, most_ways=1)
    objective = chance.choice([Objective.WORST, Objective.WEIGHTED])
    search = Search(case, objective, chance.choice((1, 2, 3)), 0.1)
    quick, plan = search.best(), search.chosen(exact_s=60.0)
    assert search.admits(plan)
    assert search.key(plan.costs) <= search.key(quick.costs)
    assert search.bound() == pytest.approx(objective.total(plan.costs), abs=1e-5)
