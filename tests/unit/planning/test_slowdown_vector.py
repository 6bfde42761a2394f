"""Bounds by cuts on the slowdowns of all jobs: cases where some job must be slow, and comparison with brute force."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings

from controller.fabric.topology import Fabric
from controller.planning.bounds import slowdown_bounds
from controller.planning.problem import Flow, PlanLimits, Problem
from controller.planning.slowdown_vector import Need, SlowdownVector, contested, least_worst, slowdown_vector, stronger
from tests.support.planning.fabrics import better, brute_force, flow, leaf_spine, problem_of
from tests.support.planning.random_problems import packings, problems

quick = settings(max_examples=150)


def vector_of(problem: Problem) -> SlowdownVector:
    return slowdown_vector(slowdown_bounds(problem), PlanLimits())


def fan(job: str, src: int, dst: int, hosts: Iterable[int], demand: float = 1.0) -> list[Flow]:
    return [flow(job, (src, host), (dst, host), demand) for host in hosts]


@pytest.fixture
def fabric() -> Fabric:
    """Return a fabric with two uplinks on each of six leaves."""
    return leaf_spine(6, 2, 1.0)


def test_a_leaf_with_one_flow_too_many_slows_one_job_down(fabric: Fabric) -> None:
    """Any job may be the slow one, but only with two of its own flows on one link."""
    alone = vector_of(problem_of(fabric, [*fan("a", 1, 2, [1, 2]), *fan("b", 1, 3, [3])], nic_bps=1.0))
    assert (alone.slowdowns, alone.ceiling) == ((2, 1), {"a": 2, "b": 1})
    several = vector_of(
        problem_of(fabric, [f for h in (1, 2, 3) for f in fan("abc"[h - 1], 1, 1 + h, [h])], nic_bps=1.0)
    )
    assert several.slowdowns == (2, 2, 1)


def test_one_slow_job_is_enough_for_two_leaves_that_it_crosses(fabric: Fabric) -> None:
    together = [*fan("a", 1, 2, [1, 2]), *fan("b", 1, 3, [3]), *fan("a", 4, 5, [1, 2]), *fan("c", 4, 6, [3])]
    apart = [*fan("a", 1, 2, [1, 2]), *fan("b", 1, 3, [3]), *fan("d", 4, 5, [1, 2]), *fan("c", 4, 6, [3])]
    assert vector_of(problem_of(fabric, together, nic_bps=1.0)).slowdowns == (2, 1, 1)
    assert vector_of(problem_of(fabric, apart, nic_bps=1.0)).slowdowns == (2, 2, 1, 1)


def test_the_job_with_the_most_flows_is_the_slow_one() -> None:
    flows = [*fan("a", 1, 2, [1, 2]), *fan("b", 1, 2, [3, 4]), *fan("b", 3, 4, [1, 2])]
    assert vector_of(problem_of(leaf_spine(6, 3, 1.0), flows, nic_bps=1.0)).ceiling == {"a": 1, "b": 2}


def test_large_flows_take_whole_links_and_the_small_ones_share_the_rest() -> None:
    """Each link has 1.9 flows of 1 and half a flow of 3. Below slowdown 4 a flow of 3 leaves no room for others."""
    need = Need(((0.5,), (1.9,)), (3.0, 1.0), by_volume=True, step=0.0)
    assert need.of(3.5).sum() == pytest.approx(0.5 + 1.9 / 3.5)
    assert need.after(3.5) == pytest.approx(1.9 / 0.5)
    assert need.of(need.after(3.5)).sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("by_volume", "slowdown", "following"), [(False, 4.0, 6.0), (True, 4.0, 5.0), (True, 3.0, 4.0)]
)
def test_a_need_of_one_load_changes_at_its_volume_or_where_one_more_flow_fits(
    by_volume: bool, slowdown: float, following: float
) -> None:
    """Each link has 2.5 flows of 2. Two flows fit from slowdown 4, three from 6; the volume of 2.5 fits from 5."""
    need = Need(((2.5,),), (2.0,), by_volume, step=0.0)
    assert need.of(slowdown).sum() > 1
    assert need.after(slowdown) == pytest.approx(following)


def test_without_contention_everybody_has_his_own_bound(fabric: Fabric) -> None:
    flows = [*fan("a", 1, 2, [1, 2]), *fan("b", 3, 4, [1])]
    assert vector_of(problem_of(fabric, flows, nic_bps=0.5)).slowdowns == (2, 2)
    assert vector_of(problem_of(fabric, flows, nic_bps=1.0)).slowdowns == (1, 1)
    assert vector_of(problem_of(fabric, [])) == SlowdownVector((), {})


def test_a_flow_that_leaves_no_room_for_another_has_a_link_of_its_own() -> None:
    """Three links carry sizes 7, 7, 3, 3 and 3: 23 of 24 units at slowdown 8/7.

    Three flows of 3 do not fit on the third link, and none fits on the links of the sevens."""
    flows = [flow("a", (1, h), (2, h), size) for h, size in enumerate([7.0, 7.0, 3.0, 3.0, 3.0])]
    problem = problem_of(leaf_spine(2, 3, 7.0), flows, nic_bps=7.0)
    bounds = slowdown_bounds(problem)
    assert bounds.worst == pytest.approx(8 / 7)
    assert slowdown_vector(bounds, PlanLimits()).slowdowns == pytest.approx((9 / 7,))
    assert brute_force(problem)[0] == pytest.approx((9 / 7,))


def test_needs_that_everybody_meets_raise_nothing(fabric: Fabric) -> None:
    problem = problem_of(fabric, fan("a", 1, 2, [1, 2]), nic_bps=1.0)
    needs = contested(slowdown_bounds(problem))
    assert (needs, least_worst(needs, 1.5)) == ([], 1.5)


@pytest.mark.parametrize(
    ("one", "other", "larger"),
    [
        ((2.0, 1.0), (2.0, 1.5), (2.0, 1.5)),
        ((2.0, 1.0, 1.0), (1.9, 1.9, 1.9), (2.0, 1.0, 1.0)),
        ((2.0, 2.0), (2.0,), (2.0, 2.0)),
        ((2.0,), (2.0, 1.5), (2.0, 1.5)),
        ((), (), ()),
    ],
)
def test_of_two_bounds_the_lexicographically_larger_one_holds(
    one: Sequence[float], other: Sequence[float], larger: Sequence[float]
) -> None:
    assert stronger(one, other) == larger
    assert stronger(other, one) == larger


@quick
@given(problems() | packings())
def test_no_routing_is_better(problem: Problem) -> None:
    slowdowns, _ = brute_force(problem)
    found = vector_of(problem)
    assert not better(slowdowns, found.slowdowns)
    assert not better(found.slowdowns, slowdown_bounds(problem).vector)
    assert sorted(found.ceiling) == sorted({f.job_id for f in problem.flows if problem.candidates(f)})
