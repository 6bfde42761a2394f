"""Closed-form bounds, on cases where the optimum is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.planning.bounds import Bounds, common_unit, slowdown_bounds, whole_flow_bound
from controller.planning.problem import Problem
from tests.support.planning.fabrics import demo_flows, fabric_of, flow, leaf_spine, link_between, problem_of


def bounds_of(problem: Problem) -> Bounds:
    return slowdown_bounds(problem)


@pytest.mark.parametrize(("flows", "spines", "expected"), [(4, 4, 1), (4, 3, 2), (5, 4, 2), (7, 3, 3), (2, 4, 1)])
def test_whole_equal_flows_cannot_beat_the_quotient_rounded_up(flows: int, spines: int, expected: int) -> None:
    crossing = [flow("a", (1, h), (2, h), 1.0) for h in range(flows)]
    assert bounds_of(problem_of(leaf_spine(2, spines, 1.0), crossing, nic_bps=1.0)).worst == expected


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


def test_a_broken_far_end_counts_for_the_pair_it_breaks() -> None:
    """Leaf 2 has one downlink left: the capacity of leaf 1's uplinks does not help."""
    fabric = leaf_spine(2, 3, 1.0, without=[(2, 1), (2, 2)])
    crossing = [flow("a", (1, h), (2, h), 1.0) for h in range(3)]
    assert bounds_of(problem_of(fabric, crossing, nic_bps=1.0)).worst == 3


def test_flows_between_leaves_with_few_common_spines_share_the_links_to_these() -> None:
    fabric = fabric_of([(1, 101, 1.0), (1, 102, 1.0), (2, 102, 1.0), (2, 103, 1.0)])
    crossing = [flow("a", (1, h), (2, h), 1.0) for h in range(2)]
    assert bounds_of(problem_of(fabric, crossing, nic_bps=1.0)).worst == 2


def test_background_and_unequal_links_bound_mixed_demands_by_fluid() -> None:
    fabric = fabric_of([(1, 101, 3.0), (1, 102, 1.0), (2, 101, 9.0), (2, 102, 9.0)])
    crossing = [flow("a", (1, h), (2, h), bps) for h, bps in enumerate([1.0, 1.5, 2.5, 0.5])]
    assert bounds_of(problem_of(fabric, crossing, nic_bps=9.0)).worst == pytest.approx(5.5 / 4)
    background = {link_between(fabric, 1, 101): 2.0}
    assert bounds_of(problem_of(fabric, crossing, nic_bps=9.0, background=background)).fluid == pytest.approx(5.5 / 2)


def test_whole_flows_fill_equal_links_in_steps_of_their_common_unit() -> None:
    crossing = [flow("a", (1, h), (2, h), bps) for h, bps in enumerate([1.0, 1.5, 2.5, 0.5])]
    bounds = bounds_of(problem_of(leaf_spine(2, 2, 1.0), crossing, nic_bps=9.0))
    assert (bounds.fluid, bounds.worst) == (2.75, 3)


def test_demands_that_are_multiples_of_a_unit_but_for_rounding_do_not_make_a_step_more() -> None:
    """The bytes of rings are rounded up. There is one path, so the slowdown is 2."""
    crossing = [flow("a", (1, 0), (2, 0), 9.0), flow("a", (1, 1), (2, 1), 23.0 * (1 + 8e-10))]
    bounds = bounds_of(problem_of(leaf_spine(2, 1, 16.0), crossing, nic_bps=32.0))
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
    assert common_unit(demands) == pytest.approx(unit)


def test_two_jobs_on_one_nic_bound_both_and_no_other_job() -> None:
    flows = [flow("a", (1, 1), (2, 1), 1.0), flow("b", (1, 1), (2, 2), 1.0), flow("c", (1, 3), (2, 3), 1.0)]
    bounds = bounds_of(problem_of(leaf_spine(2, 8, 1.0), flows, nic_bps=1.0))
    assert bounds.job == {"a": 2, "b": 2, "c": 1}
    assert bounds.vector == (2, 2, 1)


def test_phases_of_one_job_do_not_add_up() -> None:
    flows = [flow("a", (1, h), (2, h), ((h, 1.0),)) for h in range(4)]
    assert bounds_of(problem_of(leaf_spine(2, 1, 1.0), flows, nic_bps=1.0)).worst == 1


def test_the_demo_is_bounded_by_one_and_so_is_nothing_at_all() -> None:
    assert bounds_of(problem_of(leaf_spine(4, 4), demo_flows())).vector == (1, 1, 1)
    nothing = bounds_of(problem_of(leaf_spine(4, 4), []))
    assert (nothing.fluid, nothing.integer, nothing.worst, nothing.vector) == (1, 1, 1, ())
