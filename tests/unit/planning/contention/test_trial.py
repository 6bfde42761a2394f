"""Trials agree with the simulator, and choose ranks that lose less work on average."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from controller.planning.contention.fluid import Case, Choice, Objective
from controller.planning.contention.large import Search
from controller.planning.contention.trial import Trial
from offline.simulator.contention import SharedPlan, simulated
from tests.support.planning.timed_jobs import random_case
from tests.unit.planning.contention.test_fluid import job


def trial_of(case: Case) -> Trial:
    demands = [np.zeros((len(each.phases), len(case.capacity_bps))) for each in case.jobs]
    for each, demand in zip(case.jobs, demands, strict=True):
        for phase, of in enumerate(each.ways[0]):
            demand[phase, [*of]] = [*of.values()]
    return Trial(case, demands)


@pytest.mark.parametrize("seed", range(20))
def test_a_trial_agrees_with_the_simulator(seed: int) -> None:
    case = random_case(seed, floor=0.1, most_ways=1)
    chance = random.Random(seed)
    free = {number: Choice(rank=chance.randrange(3)) for number in range(len(case.jobs))}
    found_s = trial_of(case).mean_s(free, [0.0] * len(free), 40)
    same = {n: each._replace(start_s=case.jobs[n].ideal_s * (n * 0.618034 % 1)) for n, each in free.items()}
    for number, of in simulated(case, SharedPlan(same), 40).items():
        assert found_s[number] == pytest.approx(fmean(of.took_s), rel=0.03)


def test_members_of_a_trial_keep_their_slots() -> None:
    choices = {0: Choice(start_s=0.0), 1: Choice(start_s=5.0)}
    assert trial_of(Case((1.0,), (job(5, 5), job(5, 5)))).mean_s(choices, [10.0, 10.0], 5).tolist() == [10.0, 10.0]


def test_ranks_are_chosen_if_they_lose_less_work_on_average() -> None:
    """The guarantees of ranks are worse, because they assume that the first job always disturbs the second."""
    case = Case((1.0,), (job(6, 4), job(6, 4), job(6, 4)))
    case = replace(case, jobs=tuple(replace(each, work=10.0**n) for n, each in enumerate(case.jobs)))
    search = Search(case, Objective.WORK, 3)
    plan = search.chosen()
    assert search.admits(plan)
    assert plan.ranks[2] < plan.ranks[0]
    assert Search(case, Objective.WORST, 3).chosen() == Search(case, Objective.WORST, 3).best()
