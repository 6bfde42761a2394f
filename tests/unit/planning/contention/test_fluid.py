"""Guaranteed iteration times: the worked example of Crux, slots, simulations that must not exceed them, and bounds."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from benchmarks.contention.cases import WORKED_EXAMPLE
from benchmarks.contention.recipe import utilization
from benchmarks.contention.recomputed import price_bound
from controller.planning.contention.circles import circles
from controller.planning.contention.fluid import (
    Case,
    Choice,
    Choices,
    Objective,
    Phase,
    TimedJob,
    guaranteed_s,
)
from signalbox.jobs.spec import JobId
from tests.support.planning.timed_jobs import random_case, simulated_s


def job(compute_s: float, ideal_s: float, *links: int) -> TimedJob:
    return TimedJob(JobId("j"), (Phase(compute_s, ideal_s),), ((dict.fromkeys(links or (0,), 1.0),),))


@pytest.mark.parametrize(
    ("ranks", "iterations_s", "used"),
    [((0, 1), (4.0, 4.0), 0.375), ((1, 0), (6.0, 2.0), 2.5 / 6), ((0, 0), (6.0, 3.0), 1 / 3)],
)
def test_the_worked_example_of_crux_has_the_published_utilization(
    ranks: tuple[int, int], iterations_s: tuple[float, float], used: float
) -> None:
    choices = {number: Choice(rank=rank) for number, rank in enumerate(ranks)}
    took_s = guaranteed_s(WORKED_EXAMPLE, choices)
    assert (took_s[0], took_s[1]) == pytest.approx(iterations_s)
    assert utilization(WORKED_EXAMPLE, took_s) == pytest.approx(used)


def members(case: Case, period_s: float, *starts_s: float) -> dict[int, float]:
    choices = {number: Choice(start_s=start_s) for number, start_s in enumerate(starts_s)}
    return guaranteed_s(case, choices, period_s, 0.02)


def test_two_jobs_that_send_half_of_the_time_do_not_disturb_each_other_in_opposite_slots() -> None:
    case = Case((1.0,), (job(5, 5), job(5, 5)))
    assert guaranteed_s(case, {0: Choice(), 1: Choice()}) == pytest.approx({0: 15.0, 1: 15.0})
    assert members(case, 10, 0, 5) == pytest.approx({0: 10.0, 1: 10.0})
    assert members(case, 10, 0, 4) == {0: math.inf, 1: math.inf}


def test_slots_that_overlap_at_both_ends_are_kept_if_both_jobs_get_through() -> None:
    case = Case((1.0,), (job(4, 6), job(4, 6)))
    assert members(case, 12, 0, 6) == pytest.approx({0: 12.0, 1: 12.0})
    assert members(case, 11.5, 0, 5.75) == {0: math.inf, 1: math.inf}
    assert price_bound(case, {0: 1.0}, Objective.WORST) == pytest.approx(0.2)


@pytest.mark.parametrize("weight", [5e-324, 1e-200, 1e6])
def test_the_bound_of_weighted_jobs_scales_with_tiny_and_large_weights(weight: float) -> None:
    jobs = [replace(job(4, 6), weight=weight)] * 2
    assert Objective.WEIGHTED.bound(jobs, [0.6, 0.6], 1.0) == pytest.approx(0.4 * weight, abs=5e-324)


def test_a_circle_on_which_a_job_would_wait_long_is_not_kept() -> None:
    case = Case((1.0,), (job(5, 5), job(5, 5)))
    assert members(case, 10.2, 0, 5.1) == pytest.approx({0: 10.2, 1: 10.2})
    assert members(case, 12, 0, 6) == {0: math.inf, 1: math.inf}


def test_a_free_job_delays_a_member_of_a_lower_rank_by_what_it_can_send() -> None:
    case = Case((1.0,), (job(5, 5), job(20, 0.1)), floor=0.0)
    choices = {0: Choice(rank=1, start_s=0.0), 1: Choice()}
    assert guaranteed_s(case, choices, 10.0)[0] == math.inf
    assert guaranteed_s(case, choices, 10.1)[0] == pytest.approx(10.1)


def test_a_low_rank_keeps_its_floor_and_costs_high_ranks_no_more() -> None:
    case = Case((1.0,), (job(0, 1), job(0, 1)), floor=0.1)
    assert guaranteed_s(case, {0: Choice(), 1: Choice(rank=1)}) == pytest.approx({0: 1 / 0.9, 1: 10.0})


def random_choices(case: Case, chance: random.Random) -> tuple[Choices, float]:
    """Return random choices; if there are circles, mostly with members that keep one."""
    choices = {
        number: Choice(chance.randrange(len(each.ways)), chance.choice((0, 0, 1, 2)))
        for number, each in enumerate(case.jobs)
    }
    found = [*circles(case, 12)]
    for _ in range(30 if found else 0):
        circle = chance.choice(found)
        placed = {
            number: choice._replace(start_s=circle.start_s(chance.choice(places)), turns=circle.turns[number])
            if (places := circle.places(number)) and chance.random() < 0.8
            else choice
            for number, choice in choices.items()
        }
        if math.inf not in guaranteed_s(case, placed, circle.period_s).values():
            return placed, circle.period_s
    return choices, 0.0


@pytest.mark.parametrize("seed", range(40))
def test_no_simulated_iteration_lasts_longer_than_guaranteed(seed: int) -> None:
    chance = random.Random(seed)
    case = random_case(seed, floor=chance.choice((0.0, 0.1)))
    choices, period_s = random_choices(case, chance)
    took_s = guaranteed_s(case, choices, period_s)
    for aligned in (True, False):
        begins_s = {number: 0.0 if aligned else chance.uniform(0, 6) for number in choices}
        for number, times_s in simulated_s(case, choices, begins_s, 100, period_s).items():
            assert max(times_s, default=0.0) <= took_s[number] * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(60))
def test_without_one_of_the_jobs_no_other_gets_slower(seed: int) -> None:
    chance = random.Random(seed)
    case = random_case(seed, most_jobs=5, floor=chance.choice((0.0, 0.1)))
    choices, period_s = random_choices(case, chance)
    took_s = guaranteed_s(case, choices, period_s)
    for gone in choices:
        fewer = {number: choice for number, choice in choices.items() if number != gone}
        for number, now_s in guaranteed_s(case, fewer, period_s).items():
            assert now_s <= took_s[number] * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_free_jobs_of_one_rank_are_guaranteed_at_least_what_loads_of_links_say(seed: int) -> None:
    case = random_case(seed, most_jobs=5)
    choices = {number: Choice() for number in range(len(case.jobs))}
    load = [sum(each.peaks[0].get(link, 0.0) for each in case.jobs) for link in range(len(case.capacity_bps))]
    for number, took_s in guaranteed_s(case, choices).items():
        each = case.jobs[number]
        at_most_s = each.compute_s
        for phase, demand in zip(each.phases, each.ways[0], strict=True):
            others = [load[link] - each.peaks[0][link] + bps for link, bps in demand.items()]
            at_most_s += phase.ideal_s * max([1.0, *others])
        assert took_s <= at_most_s * (1 + 1e-9)


def test_an_undisturbed_job_sends_most_at_the_begin_of_its_longest_phase() -> None:
    of = TimedJob(JobId("j"), (Phase(2.0, 1.0), Phase(1.0, 3.0)), (({0: 1.0}, {0: 1.0}),))
    assert [of.burst_s(0, (0,), seconds) for seconds in (0, 1, 3, 5, 7, 14, 15.5)] == [0, 1, 3, 4, 4, 8, 9.5]
