"""Published ways to share links, on small cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.planning.contention.fluid import Case, Objective, Phase, TimedJob
from offline.simulator.baselines import alone, baselines, ours
from offline.simulator.contention import simulated
from signalbox.jobs.spec import JobId


def case_of(*links: tuple[int, ...], duty: float = 0.5, ways: int = 1) -> Case:
    """Return jobs of period 10 that send ``duty`` of the time.

    ``links``: links of each job; its way n uses links of numbers that are higher by n."""
    jobs = [
        TimedJob(
            JobId(f"j{number}"),
            (Phase(10 * (1 - duty), 10 * duty),),
            tuple(({link + way: 1.0 for link in used},) for way in range(ways)),
        )
        for number, used in enumerate(links)
    ]
    return Case((1.0,) * 4, tuple(jobs))


def worst(case: Case) -> dict[str, float]:
    """Return the largest slowdown of a job under each system; ECMP takes the last ways."""
    plans = baselines(case, [len(job.ways) - 1 for job in case.jobs])
    found = {name: max(of.mean for of in simulated(case, plan, 30).values()) for name, plan in plans.items()}
    without = max(of.mean for of in simulated(alone(case), plans["today"], 30).values())
    assert without == pytest.approx(1.0)
    return found


def test_two_jobs_that_send_half_of_the_time_need_a_shift() -> None:
    found = worst(case_of((0,), (0,)))
    assert found["today"] == found["ecmp"] > 1.1
    shifted = [found[name] for name in ("cassini", "foresight", "mltcp", "crux")]
    assert shifted == pytest.approx([1.0] * 4, rel=1e-4)


def test_a_loop_of_jobs_and_links_is_shifted_only_without_the_graph() -> None:
    found = worst(case_of((0, 1), (1, 2), (2, 0), duty=0.32))
    assert found["cassini"] == found["today"] > 1.1
    assert found["foresight"] == pytest.approx(1.0)


def test_only_systems_that_choose_ways_part_jobs_that_send_all_of_the_time() -> None:
    found = worst(case_of((0,), (0,), duty=1.0, ways=2))
    assert [found[name] for name in ("today", "ecmp", "cassini")] == pytest.approx([2.0] * 3)
    assert [found[name] for name in ("crux", "foresight")] == pytest.approx([1.0, 1.0])


def test_our_plan_takes_the_ways_on_which_jobs_do_not_meet() -> None:
    one, other = case_of((0,), (0,), duty=1.0, ways=2).jobs
    case = Case((1.0,) * 4, (replace(one, ways=one.ways[:1] * 2), other))
    assert [ours(case, Objective.WORST, 1, ways).choices[1].way for ways in ((0,), (0, 1), (1, 0))] == [0, 1, 1]
