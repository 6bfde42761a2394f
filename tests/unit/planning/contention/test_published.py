"""The parts of Crux and CASSINI on small examples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from benchmarks.contention.cases import WORKED_EXAMPLE, crux_case
from controller.planning.contention import cassini, crux
from controller.planning.contention.fluid import Case, Phase, TimedJob
from signalbox.jobs.spec import JobId
from tests.unit.planning.contention.test_fluid import job


def test_the_short_job_of_the_worked_example_is_corrected_by_one_and_a_half_and_goes_first() -> None:
    assert crux.correction(*WORKED_EXAMPLE.jobs) == pytest.approx(1.5)
    assert crux.priorities(WORKED_EXAMPLE, [0, 0]) == pytest.approx([5.0, 7.5])
    assert [choice.rank for _, choice in sorted(crux.crux(WORKED_EXAMPLE, 2).items())] == [1, 0]


def test_jobs_of_higher_intensity_choose_the_least_congested_way_first() -> None:
    ways = (({0: 1.0},), ({1: 1.0},))
    jobs = tuple(TimedJob(JobId(f"j{work}"), (Phase(1, 1),), ways, work) for work in (1.0, 9.0, 5.0))
    assert crux.paths(Case((1.0, 2.0), jobs)) == [1, 1, 0]


@pytest.mark.parametrize("seed", range(20))
def test_compression_cuts_as_much_as_the_best_classes_that_keep_the_order(seed: int) -> None:
    case = crux_case(seed)
    ways = crux.paths(case)
    priority = crux.priorities(case, ways)
    edges = crux.edges_of(case, ways, priority)
    found = crux.compressed(case, ways, priority, 2, seed)
    keeping = [ranks for ranks in product((0, 1), repeat=5) if all(ranks[high] <= ranks[low] for high, low in edges)]
    assert tuple(found) in keeping

    def cut(ranks: Sequence[int]) -> float:
        return sum(weight for (high, low), weight in edges.items() if ranks[high] < ranks[low])

    assert cut(found) == pytest.approx(max(map(cut, keeping)))


def test_the_score_is_one_without_excess() -> None:
    of = job(5, 5)
    profile = cassini.profile(of, 0, 0, 10.0, 1, 20)
    assert cassini.score([profile, profile], 1.0) == pytest.approx(0.5)
    shifts = cassini.shifts(Case((1.0,), (of, of)), [0, 0], 10.0, [1, 1], 20)
    assert shifts == {0: 0, 1: 10}


def test_shifts_of_a_chain_of_jobs_and_links_hold_on_every_link() -> None:
    case = Case((1.0, 1.0), (job(5, 5, 0), job(5, 5, 0, 1), job(5, 5, 1)))
    assert cassini.shifts(case, [0] * 3, 10.0, [1] * 3, 20) == {0: 0, 1: 10, 2: 0}


def test_a_short_job_is_shifted_within_its_own_period() -> None:
    case = Case((1.0,), (job(2, 2), job(1, 1)))
    assert cassini.profile(case.jobs[1], 0, 0, 4.0, 2, 8).tolist() == [1, 1, 0, 0, 1, 1, 0, 0]
    assert cassini.shifts(case, [0, 0], 4.0, [1, 2], 8) == {0: 0, 1: 0}
