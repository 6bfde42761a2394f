"""Jobs with slots, ranks and varying compute times, in both simulations."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.planning.contention.fluid import Case, Choice, Phase, TimedJob, guaranteed_s
from offline.scenarios.variation import STEADY, Variation
from offline.scenarios.workloads import Slot
from offline.simulator.contention import Figures, Iterations, SharedPlan, simulated
from offline.simulator.fluid import Fluid
from offline.simulator.options import Options, Replan, Sharing
from offline.simulator.training import simulate
from signalbox.jobs.spec import JobId
from tests.support.planning.timed_jobs import random_case, rates
from tests.support.simulator_scenes import fabric_of, job, over, stage

FREE = {0: Choice(), 1: Choice()}
SLOTS = SharedPlan({0: Choice(start_s=0.0), 1: Choice(start_s=5.0)}, {0: 10.0, 1: 10.0})


def pair(*shapes: tuple[float, float]) -> Case:
    """Return jobs of one link; ``shapes``: seconds of computing and of communication of each."""
    jobs = (TimedJob(JobId(f"j{n}"), (Phase(*shape),), (({0: 1.0},),)) for n, shape in enumerate(shapes))
    return Case((1.0,), tuple(jobs))


@given(st.integers(0, 10_000))
def test_rates_of_ranks_are_those_of_another_program(seed: int) -> None:
    case = random_case(seed, most_jobs=5, floor=0.1, most_ways=1)
    chance = random.Random(seed)
    choices = {n: Choice(rank=chance.randrange(3)) for n in range(len(case.jobs))}
    network = Fluid([*case.capacity_bps, *(1.0 for _ in case.jobs)], case.floor)
    sending = {n: each.ways[0][0] for n, each in enumerate(case.jobs)}
    for n, demand in sending.items():
        network.start(network.connect({**demand, len(case.capacity_bps) + n: 1.0}, 1.0, choices[n].rank), 1.0)
    assert network.rates_bps() == pytest.approx(rates(case, choices, sending))


@given(st.integers(0, 10_000))
def test_no_iteration_lasts_longer_than_guaranteed(seed: int) -> None:
    case = random_case(seed, floor=0.1)
    chance = random.Random(seed)
    choices = {n: Choice(chance.randrange(len(each.ways)), chance.randrange(2)) for n, each in enumerate(case.jobs)}
    most_s = guaranteed_s(case, choices)
    for n, of in simulated(case, SharedPlan(choices), 5, seed=seed).items():
        assert max(of.took_s) <= most_s[n] * (1 + 1e-6)


def test_slots_keep_two_jobs_apart_with_short_waits() -> None:
    case = pair((5, 5), (5, 5))
    assert [of.mean for of in simulated(case, SLOTS, 20).values()] == pytest.approx([1, 1])
    for deviation, most in ((0.05, 1.06), (0.1, 1.18)):
        vary = [Variation(jitter=deviation)] * 2
        kept, free = simulated(case, SLOTS, 200, vary), simulated(case, SharedPlan(FREE), 200, vary)
        assert kept[0].alone_s[:200] == free[0].alone_s[:200]
        assert max(of.mean for of in kept.values()) < most < max(of.mean for of in free.values())
        assert all(0 < of.waited_s <= 0.02 * sum(of.took_s) for of in kept.values())


def test_jobs_of_other_periods_keep_their_slots() -> None:
    """A job of two iterations per turn sends in both gaps of the other one."""
    plan = SharedPlan({0: Choice(start_s=0.0), 1: Choice(start_s=4.0, turns=2)}, {0: 16.0, 1: 16.0})
    found = simulated(pair((12, 4), (5, 3)), plan, 100, [Variation(0.01)] * 2)
    assert max(of.mean for of in found.values()) < 1.01


def test_mltcp_lets_jobs_interleave_without_a_plan() -> None:
    found = simulated(pair((5, 5), (5, 5)), SharedPlan(FREE, mltcp=True), 50, seed=3)
    assert [of.mean for of in found.values()] == pytest.approx([1, 1])


def test_the_second_rank_keeps_its_floor_beside_a_job_that_never_pauses() -> None:
    found = simulated(pair((0, 5), (5, 5)), SharedPlan({0: Choice(rank=0), 1: Choice(rank=1)}), 20)
    assert fmean(found[1].took_s) == pytest.approx(5 + 5 / 0.1)
    assert fmean(found[0].took_s) == pytest.approx(5 + 0.1 * 5 * 50 / 55, rel=0.02)


def test_figures_of_a_plan() -> None:
    case = Case(
        (), tuple(TimedJob(JobId(name), (Phase(1, 1),), ((),), work) for name, work in (("a", 1.0), ("b", 3.0)))
    )
    found = {0: Iterations((2.0, 4.0), (2.0, 2.0), 0.3), 1: Iterations((2.0, 2.0, 2.0), (2.0, 2.0, 2.0))}
    assert Figures.of(case, found) == pytest.approx((1.5, 1.25, 2.0, (1 / 3 + 3 / 2) / 2, 0.05))


def test_variations_of_compute_times() -> None:
    chance = random.Random(1)
    assert STEADY.factor(100, chance) == 1.0
    assert Variation(drift=0.01).factor(50, chance) == pytest.approx(1.5)
    assert Variation(straggler=1.0, slow=3.0).factor(0, chance) == 3.0
    drawn = [Variation(jitter=0.05).factor(0, chance) for _ in range(2000)]
    assert sum(drawn) / len(drawn) == pytest.approx(1.0, abs=0.01)


ONE = Options(iterations=40, replan=Replan.NEVER)


def all_reduces_s(
    options: Options = ONE, compute_s: float = 0.2, start_s: float = 0.0, slots: bool = False, rank: int = 0
) -> list[float]:
    """Return the mean time of an all-reduce of two rings over the same links, which takes 0.2 s on idle links.

    ``start_s``, ``rank``: of the second job."""
    fabric = fabric_of(leaves=2, spines=1)
    jobs = [
        job(fabric, "a", [[(0, 0), (1, 0)]], compute_s=compute_s),
        replace(job(fabric, "b", [[(0, 1), (1, 1)]], start_s, compute_s), rank=rank),
    ]
    if slots:
        jobs = [replace(each, slot=Slot(0, 0.2 * n, 0.4)) for n, each in enumerate(jobs)]
    outcome = simulate([stage(fabric, jobs)], jobs, over(0), options)
    return [sum(i.all_reduce_s for i in each.iterations) / len(each.iterations) for each in outcome.jobs]


def test_flows_of_jobs_with_slots_or_with_mltcp_are_as_fast_as_alone() -> None:
    assert all_reduces_s() == pytest.approx([0.4, 0.4])
    assert all_reduces_s(slots=True) == pytest.approx([0.2, 0.2])
    assert all_reduces_s(replace(ONE, sharing=Sharing.MLTCP), start_s=0.1)[1] < 0.21


def test_flows_of_the_second_rank_keep_a_floor() -> None:
    first, second = all_reduces_s(replace(ONE, iterations=2), compute_s=0.0, rank=1)
    assert first == pytest.approx(0.2 / 0.9)
    assert second == pytest.approx(0.4)


def test_compute_phases_between_parts_count_as_computing() -> None:
    fabric = fabric_of(leaves=2, spines=1)
    once = job(fabric, "a", [[(0, 0), (1, 0)]], compute_s=0.5)
    again = tuple(replace(link, phase=1) for link in once.virtual_links)
    twice = replace(
        once,
        virtual_links=once.virtual_links + again,
        rings=((0, 1), (2, 3)),
        steps=(2, 2),
        parts=(0, 1),
        pauses_s=(0.3,),
    )
    outcome = simulate([stage(fabric, [twice])], [twice], over(0), replace(ONE, iterations=3))
    assert [i.all_reduce_s for i in outcome.jobs[0].iterations] == pytest.approx([0.4] * 3)
    assert [i.start_s for i in outcome.jobs[0].iterations] == pytest.approx([0.0, 1.2, 2.4])
