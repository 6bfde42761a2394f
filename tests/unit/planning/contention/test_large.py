"""The fast search is never worse than published systems, keeps its promises, and finds the optimum of small cases."""

from __future__ import annotations

import random

import pytest

from benchmarks.contention.oversubscribed import HARMONIC, oversubscribed
from controller.planning.contention.case import cases_of
from controller.planning.contention.fluid import Case, Choice, Objective, guaranteed_s
from controller.planning.contention.large import Search, Shared, best_routes
from controller.planning.greedy import assign
from tests.support.planning.timed_jobs import random_case, simulated_s
from tests.unit.planning.contention.test_fluid import job


def searched(seed: int) -> tuple[Case, Objective, Search, Shared]:
    chance = random.Random(seed)
    case = random_case(seed, most_jobs=6, floor=chance.choice((0.1, 0.2)), most_ways=1)
    objective = chance.choice([*Objective])
    search = Search(case, objective, chance.choice((1, 2, 3)), chance.choice((0.02, 1.0)))
    return case, objective, search, search.best()


@pytest.mark.parametrize("seed", range(60))
def test_no_admitted_candidate_is_better_and_no_bound_is_above(seed: int) -> None:
    case, objective, search, best = searched(seed)
    assert search.admits(best)
    today = search.judged([0 for _ in case.jobs], ())
    for plan in (today, search.judged(search.of_crux(), ()), *search.of_cassini()):
        assert not search.admits(plan) or search.key(best.costs) <= search.key(plan.costs)
    assert search.bound() <= objective.total(best.costs) + 1e-9
    if objective is not Objective.WORK:
        assert all(now <= s * (1 + 1e-9) for now, s in zip(best.iteration_s, search.promise_s, strict=True))


@pytest.mark.parametrize("seed", range(40))
def test_no_simulated_iteration_lasts_longer_than_the_search_says(seed: int) -> None:
    """Members of other circles are free when a circle is simulated."""
    case, _, _, best = searched(seed)
    chance = random.Random(seed)
    free = {number: Choice(rank=rank) for number, rank in enumerate(best.ranks)}
    elsewhere = {number for _, places in best.slots for number in places}
    for circle, places in best.slots or [(None, {})]:
        at = {
            number: free[number]._replace(start_s=circle.start_s(place), turns=circle.turns[number])
            for number, place in places.items()
            if circle
        }
        begins_s = {number: chance.uniform(0, 6) for number in free}
        period_s = circle.period_s if circle else 0.0
        times_s = simulated_s(case, {**free, **at}, begins_s, 60, period_s)
        promised = [number for number in times_s if number in at or number not in elsewhere]
        assert promised
        for number in promised:
            assert max(times_s[number], default=0.0) <= best.iteration_s[number] * (1 + 1e-6)


def test_the_whole_vector_of_slowdowns_counts() -> None:
    """Two jobs that are never silent share a link; this does not keep two others from taking turns on another link."""
    case = Case((1.0, 1.0), (job(0, 5), job(0, 5), job(5, 5, 1), job(5, 5, 1)))
    assert Search(case, Objective.WORST, 1).best().costs == pytest.approx((1.0, 1.0, 0.0, 0.0))


def test_jobs_with_other_periods_have_circles_of_their_own() -> None:
    case = Case((1.0, 1.0), (job(5, 5), job(5, 5), job(4, 3, 1), job(4, 3, 1)))
    best = Search(case, Objective.WORST, 1).best()
    assert best.costs == pytest.approx((0.0, 0.0, 0.0, 0.0))
    assert sorted(circle.period_s for circle, _ in best.slots) == pytest.approx([7.0, 10.0])


def test_a_loop_of_three_jobs_gets_slots_and_four_get_them_on_a_longer_circle_if_they_may_wait() -> None:
    loop = Case((1.0,) * 3, tuple(job(2, 1, number, (number + 1) % 3) for number in range(3)))
    assert max(Search(loop, Objective.WORST, 1).best().costs) == pytest.approx(0.0)
    four = Case((1.0,), tuple(job(7, 3) for _ in range(4)))
    assert max(Search(four, Objective.WORST, 1).best().costs) > 0.2
    best = Search(four, Objective.WORST, 1, max_wait=0.22).best()
    assert best.costs == pytest.approx((0.2,) * 4)
    assert [circle.period_s for circle, _ in best.slots] == pytest.approx([12.0])


@pytest.mark.parametrize("seed", range(3))
def test_slots_of_many_jobs_on_a_fabric_keep_their_circles(seed: int) -> None:
    problem, timings = oversubscribed(seed, 12, mix=HARMONIC)
    for case in cases_of(problem, assign(problem, keep_current=False), timings, 0.1):
        best = Search(case, Objective.WORST, 1).best()
        today = guaranteed_s(case, dict.fromkeys(range(len(case.jobs)), Choice()))
        members = {number for _, places in best.slots for number in places}
        assert all(case.jobs[number].regular for number in members)
        assert all(s <= today[number] * (1 + 1e-9) for number, s in enumerate(best.iteration_s))


def options(*cases: Case, objective: Objective = Objective.WORST) -> tuple[int, list[Shared]]:
    return best_routes(objective, [[Search(case, objective, 1)] for case in cases])


def test_routes_on_which_jobs_disturb_each_other_less_win() -> None:
    together = Case((1.0, 1.0), (job(2, 8), job(2, 8), job(5, 5, 1)))
    apart = Case((1.0, 1.0), (job(2, 8), job(2, 8, 1), job(5, 5, 1)))
    assert options(together, together)[0] == 0, "only better routes win"
    assert options(together, together, apart)[0] == 2
    best, (plan,) = options(apart, together)
    assert (best, plan) == (0, Search(apart, Objective.WORST, 1).chosen())


def test_routes_that_guarantee_less_do_not_win(monkeypatch: pytest.MonkeyPatch) -> None:
    fair = Case((1.0, 1.0), (job(5, 5), job(4, 5), job(1, 1, 1)))
    crowded = Case((1.0, 1.0), (job(5, 5), job(4, 5), job(1, 1)))
    monkeypatch.setattr(Search, "mean_costs", lambda search, _: [0.0 if len(search._beside[2]) > 1 else 1.0])
    assert options(fair, crowded)[0] == 0
    assert options(crowded, fair)[0] == 0, "nor do routes with larger mean costs"
