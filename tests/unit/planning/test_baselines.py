"""Routes of the quick published schemes where spines differ, and which schemes fit into the time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.planning.baselines import Numbered, baseline_slowdowns, first_fit, fold_coloring
from controller.planning.efficiency import ecmp_slowdown
from controller.planning.problem import Ints, PlanLimits, Problem
from tests.support.planning.fabrics import RATE, across, demo_flows, flow, leaf_spine, problem_of, two_leaves

LIMITS = PlanLimits(ecmp_draws=20)


def spines(numbered: Numbered, links: Ints) -> list[int]:
    far_end = numbered.problem.paths.far_end
    return [far_end[numbered.next_hops.links[link]] for link in links[0].tolist()]


def test_a_flow_that_cannot_take_the_spine_of_its_colour_takes_the_path_of_that_number() -> None:
    """Leaf 1 has no cable to 102. Its flows have the colours 0 to 3, and those of colour 1 take path 1, over 103."""
    flows = [*across("aaaa"), flow("a", (3, 1), (4, 1), RATE)]
    numbered = Numbered(problem_of(leaf_spine(4, 3, without=[(1, 2)]), flows))
    taken = spines(numbered, fold_coloring(numbered.problem, numbered.choices))
    assert sorted(taken[:4]) == [101, 101, 103, 103]


def test_first_fit_looks_for_room_on_every_link_of_a_path() -> None:
    """The flows leave different leaves and fill the link from the first spine down to the leaf that they share."""
    flows = [flow("a", (src, 1), (3, src), RATE) for src in (1, 2)]
    numbered = Numbered(problem_of(leaf_spine(3, 2), flows))
    assert spines(numbered, first_fit(numbered.choices, numbered.hashed(1))) == [101, 102]


def test_the_quick_schemes_include_ecmp_unless_its_draws_take_too_long() -> None:
    problem = problem_of(leaf_spine(4, 3), demo_flows())
    assert baseline_slowdowns(problem, LIMITS)["ecmp"] == ecmp_slowdown(problem, 20, LIMITS.seed).mean
    assert "ecmp" not in baseline_slowdowns(problem, replace(LIMITS, ecmp_draws=1_000_000))


@pytest.mark.parametrize(
    "problem",
    [two_leaves(2, 8000 * "a"), replace(two_leaves(2, "a"), capacity_bps={})],
    ids=["large", "contradictory"],
)
def test_problems_without_quick_schemes(problem: Problem) -> None:
    assert baseline_slowdowns(problem, LIMITS) == {}
