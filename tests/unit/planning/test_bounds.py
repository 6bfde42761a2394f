"""Closed-form bounds, on cases where the optimum is known, and compared with brute force."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.planning.bounds import common_unit, flow_bound, slowdown_bounds, whole_flow_bound
from controller.planning.problem import Flow, PlanLimits, Problem
from controller.planning.slowdown_vector import Need, SlowdownVector, contested, least_worst, slowdown_vector, stronger
from tests.support.planning.fabrics import (
    RATE,
    across,
    better,
    brute_force,
    fabric_of,
    flow,
    leaf_spine,
    link_between,
    problem_of,
    three_tiers,
    two_leaves,
)
from tests.support.planning.random_problems import packings, problems


@pytest.mark.parametrize(("flows", "spines", "expected"), [(4, 4, 1), (4, 3, 2), (5, 4, 2), (7, 3, 3), (2, 4, 1)])
def test_whole_equal_flows_cannot_beat_the_quotient_rounded_up(flows: int, spines: int, expected: int) -> None:
    assert slowdown_bounds(two_leaves(spines, flows * "a")).worst == expected


@given(
    st.integers(1, 40),
    st.floats(0.1, 10),
    st.lists(st.sampled_from([0.05, 1.0, 1.5, 2.0, 7.0]), min_size=1, max_size=6),
)
def test_the_whole_flow_bound_is_what_filling_the_least_full_link_reaches(
    count: int, demand: float, capacities: list[float]
) -> None:
    loads = [0.0] * len(capacities)
    for _ in range(count):
        fill = [load + demand / capacity for load, capacity in zip(loads, capacities, strict=True)]
        least = fill.index(min(fill))
        loads[least] = fill[least]
    assert whole_flow_bound(count, demand, capacities) == pytest.approx(max(loads))


@pytest.mark.parametrize(
    ("count", "subflows", "capacities", "expected"),
    [
        pytest.param(1, 2, [1.0, 1.0, 1.0, 1.0], 1 / 2, id="one flow on two of four links"),
        pytest.param(3, 2, [1.0] * 5, 2 / 3, id="two flows share three links, one flow has two"),
        pytest.param(5, 2, [1.0] * 8, 2 / 3, id="three groups, of at most two flows"),
        pytest.param(3, 2, [1.0] * 4, 3 / 4, id="one group with all links"),
        pytest.param(5, 2, [1.0] * 4, 5 / 4, id="more flows than links"),
        pytest.param(3, 3, [1.0] * 8, 2 / 5, id="two flows share five links"),
        pytest.param(1, 2, [1.0, 1.0, 4.0], 1 / 5, id="the widest links"),
        pytest.param(2, 2, [0.5, 1.0, 1.0, 1.0, 4.0], 2 / 7, id="the widest links for two flows"),
    ],
)
def test_few_subflows_use_few_links(count: int, subflows: int, capacities: list[float], expected: float) -> None:
    assert flow_bound(count, 1.0, capacities, subflows) == pytest.approx(expected)
    assert flow_bound(count, 1.0, capacities, 99) == pytest.approx(count / sum(capacities))


def test_a_large_flow_counts_as_several_small_ones() -> None:
    """Three flows are five times as large as the smallest one, rounded down, so that a link has three of these."""
    flows = [flow("a", (1, host), (2, host), demand) for host, demand in enumerate((1.0, 1.0, 0.4301))]
    bounds = slowdown_bounds(problem_of(leaf_spine(2, 2, 1.0), flows, nic_bps=9.0))
    assert [bounds.fluid, bounds.worst] == pytest.approx([1.21505, 3 * 0.4301])


def test_flows_that_may_have_more_subflows_do_not_hide_the_others() -> None:
    fabric = fabric_of([(leaf, spine, 1.0) for leaf in (1, 2) for spine in range(101, 107)])
    first, second = (replace(f, max_subflows=most) for f, most in zip(across("ab", 3.0), (2, 6), strict=True))
    bounds = slowdown_bounds(problem_of(fabric, [first, second], nic_bps=3.0))
    assert (bounds.fluid, bounds.worst) == (1, 1.5)
    assert bounds.job == {"a": 1.5, "b": 1}


def test_of_several_phases_the_one_with_the_most_flows_of_a_size_counts() -> None:
    """Two of three large flows share a link, however many small flows the other phase has."""
    large, small = ([(0, 1.5)], [(1, 0.1)])
    flows = [*across("aaa", large), *(flow("a", (1, host), (2, host), small) for host in range(4, 8))]
    assert slowdown_bounds(problem_of(leaf_spine(2, 2, 1.0), flows, nic_bps=9.0)).worst == 3


@pytest.mark.parametrize("without", [[(2, 1), (2, 2)], [(1, 3), (2, 1)]], ids=["broken far end", "one common spine"])
def test_the_links_that_both_ends_of_a_pair_have_bound_its_flows(without: list[tuple[int, int]]) -> None:
    assert slowdown_bounds(problem_of(leaf_spine(2, 3, without=without), across("aaa"))).worst == 3


MIXED = [flow("a", (1, h), (2, h), bps) for h, bps in enumerate([1.0, 1.5, 2.5, 0.5])]


def test_mixed_demands_are_bounded_by_fluid_and_on_equal_links_in_steps_of_their_common_unit() -> None:
    fabric = fabric_of([(1, 101, 3.0), (1, 102, 1.0), (2, 101, 9.0), (2, 102, 9.0)])
    bounds = slowdown_bounds(problem_of(fabric, MIXED, nic_bps=9.0))
    assert [bounds.fluid, bounds.worst] == pytest.approx([5.5 / 4, 1.5])
    slowed = problem_of(fabric, MIXED, nic_bps=9.0, background={link_between(fabric, 1, 101): 2.0})
    assert slowdown_bounds(slowed).fluid == pytest.approx(5.5 / 2)
    equal = slowdown_bounds(problem_of(leaf_spine(2, 2, 1.0), MIXED, nic_bps=9.0))
    assert (equal.fluid, equal.worst) == (2.75, 3)


def test_demands_that_are_multiples_of_a_unit_but_for_rounding_do_not_make_a_step_more() -> None:
    """Bytes of rings are rounded up, so demands exceed multiples of a unit slightly. One path gives slowdown 2."""
    crossing = [flow("a", (1, 0), (2, 0), 9.0), flow("a", (1, 1), (2, 1), 23.0 * (1 + 8e-10))]
    bounds = slowdown_bounds(problem_of(leaf_spine(2, 1, 16.0), crossing, nic_bps=32.0))
    assert bounds.worst == pytest.approx(2.0, rel=1e-8)


@pytest.mark.parametrize(
    ("demands", "unit"),
    [
        ([3.0, 1.0], 1.0),
        ([7.0, 3.0], 1.0),
        ([100e9 / 3, 100e9 / 7], 100e9 / 21),
        ([1.0, 2**0.5], 0.0),
        ([77.0, 84.0, 88.0], 0.0),
        ([5.0], 5.0),
    ],
)
def test_the_common_unit_of_demands(demands: list[float], unit: float) -> None:
    assert common_unit(tuple(demands)) == pytest.approx(unit)


def test_two_jobs_on_one_nic_bound_both_and_phases_of_one_job_do_not_add_up() -> None:
    flows = [flow("a", (1, 1), (2, 1), 1.0), flow("b", (1, 1), (2, 2), 1.0), flow("c", (1, 3), (2, 3), 1.0)]
    bounds = slowdown_bounds(problem_of(leaf_spine(2, 8, 1.0), flows, nic_bps=1.0))
    assert bounds.job == {"a": 2, "b": 2, "c": 1}
    assert bounds.vector == (2, 2, 1)
    phases = [flow("a", (1, h), (2, h), ((h, 1.0),)) for h in range(4)]
    assert slowdown_bounds(problem_of(leaf_spine(2, 1, 1.0), phases, nic_bps=1.0)).worst == 1
    nothing = slowdown_bounds(problem_of(leaf_spine(4, 4), []))
    assert (nothing.fluid, nothing.integer, nothing.worst, nothing.vector) == (1, 1, 1, ())


# ---- cuts of pods whose cores are few or have failed


@pytest.mark.parametrize(
    ("cores", "fluid", "whole"),
    [([2, 2], 1, 1), ([2, 1], 4 / 3, 2), ([1, 1], 2, 2), ([2, 0], 2, 2), ([3, 1], 4 / 3, 2), ([1, 0], 4, 4)],
)
def test_a_full_pod_is_bounded_by_its_cores(cores: list[int], fluid: float, whole: float) -> None:
    """Two leaves have two flows each; every case but the first is above the bound of a leaf alone."""
    crossing = [flow("a", (leaf, host), (leaf + 2, host), RATE) for leaf in (1, 2) for host in (1, 2)]
    bounds = slowdown_bounds(problem_of(three_tiers(2, 2, cores), crossing))
    assert bounds.fluid == pytest.approx(fluid)
    assert bounds.worst == pytest.approx(whole)


def test_some_leaves_of_a_pod_may_be_narrower_than_all_of_them() -> None:
    """Four flows of leaf 1 leave the pod, and two of the leaf's uplinks lead to planes with cores."""
    crossing = [flow("a", (1, host), (3, host), RATE) for host in range(4)]
    crossing += [flow("a", (2, host), (1, host), RATE) for host in range(2)]
    assert slowdown_bounds(problem_of(three_tiers(2, 2, [2, 2, 0]), crossing)).fluid == pytest.approx(2)


ends = st.tuples(st.integers(1, 4), st.integers(1, 4))


@settings(max_examples=40)
@given(
    st.lists(ends, min_size=1, max_size=5),
    st.lists(st.integers(0, 2), min_size=1, max_size=3).filter(any),
    st.booleans(),
)
def test_no_routing_beats_the_bounds(pairs: list[tuple[int, int]], cores: list[int], two_jobs: bool) -> None:
    crossing = [
        flow("ab"[two_jobs and number % 2], (src, number), (dst, number), RATE)
        for number, (src, dst) in enumerate(pairs)
    ]
    problem = problem_of(three_tiers(2, 2, cores), crossing)
    vector, _ = brute_force(problem)
    assert slowdown_bounds(problem).vector <= tuple(slowdown * (1 + 1e-9) for slowdown in vector)


# ---- bounds by cuts on the slowdowns of all jobs: some job must be slow


def vector_of(problem: Problem) -> SlowdownVector:
    return slowdown_vector(slowdown_bounds(problem), PlanLimits())


def fan(job: str, src: int, dst: int, hosts: Iterable[int]) -> list[Flow]:
    return [flow(job, (src, host), (dst, host), 1.0) for host in hosts]


def of_flows(flows: Iterable[Flow], spines: int = 2, nic_bps: float = 1.0) -> SlowdownVector:
    return vector_of(problem_of(leaf_spine(6, spines, 1.0), flows, nic_bps=nic_bps))


def test_a_leaf_with_one_flow_too_many_slows_one_job_down() -> None:
    """Any job may be the slow one, but only with two of its own flows on one link."""
    crowded = [*fan("a", 1, 2, [1, 2]), *fan("b", 1, 3, [3])]
    alone = of_flows(crowded)
    assert (alone.slowdowns, alone.ceiling) == ((2, 1), {"a": 2, "b": 1})
    assert of_flows(f for h in (1, 2, 3) for f in fan("abc"[h - 1], 1, 1 + h, [h])).slowdowns == (2, 2, 1)
    most = [*fan("a", 1, 2, [1, 2]), *fan("b", 1, 2, [3, 4]), *fan("b", 3, 4, [1, 2])]
    assert of_flows(most, spines=3).ceiling == {"a": 1, "b": 2}
    other = fan("c", 4, 6, [3])
    assert of_flows([*crowded, *fan("a", 4, 5, [1, 2]), *other]).slowdowns == (2, 1, 1), "a is slow at two leaves"
    assert of_flows([*crowded, *fan("d", 4, 5, [1, 2]), *other]).slowdowns == (2, 2, 1, 1)


def test_large_flows_take_whole_links_and_the_small_ones_share_the_rest() -> None:
    """Each link has 1.9 flows of 1 and half a flow of 3. Below slowdown 4 a flow of 3 leaves no room for others.

    In the other cases each link has 2.5 flows of 2. Two flows fit from slowdown 4, three from 6; the volume of 2.5 fits
    from 5."""
    need = Need(((0.5,), (1.9,)), (3.0, 1.0), by_volume=True, step=0.0)
    assert need.of(3.5).sum() == pytest.approx(0.5 + 1.9 / 3.5)
    assert need.after(3.5) == pytest.approx(1.9 / 0.5)
    assert need.of(need.after(3.5)).sum() == pytest.approx(1.0)
    for by_volume, slowdown, following in ((False, 4.0, 6.0), (True, 4.0, 5.0), (True, 3.0, 4.0)):
        need = Need(((2.5,),), (2.0,), by_volume, step=0.0)
        assert need.of(slowdown).sum() > 1
        assert need.after(slowdown) == pytest.approx(following)


def test_without_contention_every_job_has_its_own_bound() -> None:
    flows = [*fan("a", 1, 2, [1, 2]), *fan("b", 3, 4, [1])]
    assert of_flows(flows, nic_bps=0.5).slowdowns == (2, 2)
    assert of_flows(flows).slowdowns == (1, 1)
    assert of_flows([]) == SlowdownVector((), {})
    needs = contested(slowdown_bounds(two_leaves(2, "aa")))
    assert (needs, least_worst(needs, 1.5)) == ([], 1.5)


def test_a_flow_that_leaves_no_room_for_another_has_a_link_of_its_own() -> None:
    """Three links carry sizes 7, 7, 4, 4 and 4: 26 of 27 units at slowdown 9/7.

    Three flows of 4 do not fit on the third link, and none fits on the links of the sevens."""
    flows = [flow("a", (1, h), (2, h), size) for h, size in enumerate([7.0, 7.0, 4.0, 4.0, 4.0])]
    problem = problem_of(leaf_spine(2, 3, 7.0), flows, nic_bps=7.0)
    bounds = slowdown_bounds(problem)
    assert bounds.worst == pytest.approx(9 / 7)
    assert slowdown_vector(bounds, PlanLimits()).slowdowns == pytest.approx((11 / 7,))
    assert brute_force(problem)[0] == pytest.approx((11 / 7,))


def test_the_lexicographically_larger_one_of_two_bounds_holds() -> None:
    pairs: list[tuple[Sequence[float], Sequence[float]]] = [
        ((2.0, 1.5), (2.0, 1.0)),
        ((2.0, 1.0, 1.0), (1.9, 1.9, 1.9)),
        ((2.0, 2.0), (2.0,)),
        ((), ()),
    ]
    for larger, other in pairs:
        assert stronger(larger, other) == stronger(other, larger) == larger


@settings(max_examples=70)
@given(problems() | packings())
def test_no_routing_is_better(problem: Problem) -> None:
    slowdowns, _ = brute_force(problem)
    found = vector_of(problem)
    assert not better(slowdowns, found.slowdowns)
    assert not better(found.slowdowns, slowdown_bounds(problem).vector)
    assert sorted(found.ceiling) == sorted({f.job_id for f in problem.flows if problem.candidates(f)})
