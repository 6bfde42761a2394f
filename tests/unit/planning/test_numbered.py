"""The arrays of a problem."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controller.planning.numbered import distinct
from controller.planning.problem import PlanLimits
from tests.support.planning.fabrics import RATE, flow, leaf_spine, problem_of


@given(st.lists(st.integers(0, 40) | st.integers(0, 2**60)))
def test_distinct_keys_are_ascending_and_each_key_has_its_place(keys: list[int]) -> None:
    values, place = distinct(np.array(keys, np.int64))
    assert values.tolist() == sorted(set(keys))
    assert values[place].tolist() == keys


def test_links_are_ordered_by_leaf_and_spine_the_fastest_of_several_first() -> None:
    fabric = leaf_spine(2, 3)
    problem = problem_of(fabric, [flow("a", (1, 1), (2, 1), RATE)])
    links = problem.links
    around = links.around([2, 1], outward=True)  # type: ignore[list-item]
    assert around.at.tolist() == [0, 0, 0, 1, 1, 1]
    assert [links.dpids[switch] for switch in around.other.tolist()] == [101, 102, 103] * 2
    assert [links.ids[link].dpid for link in around.link.tolist()] == [2, 2, 2, 1, 1, 1]


def test_other_flows_of_a_problem_have_the_same_numbers_of_links() -> None:
    problem = problem_of(leaf_spine(2, 3), [flow("a", (1, n), (2, n), RATE) for n in range(3)])
    fewer = problem.with_flows(problem.flows[1:])
    assert fewer.links is problem.links
    assert fewer.numbers.src.tolist() == [0, 0]
    assert replace(fewer, flows=problem.flows) == problem


def test_a_stage_without_time_is_left_out() -> None:
    before = time.perf_counter()
    limits = PlanLimits(time_limit_s=60).begun()
    assert before + 60 <= limits.until <= time.perf_counter() + 60
    assert limits.allows("first", 1.0)
    assert not limits.sooner(50).allows("second", 20.0)
    assert limits.left_out == ["second"]
    assert PlanLimits(deterministic=True).begun().allows("any", 1e9)
    assert limits.begun() is limits
