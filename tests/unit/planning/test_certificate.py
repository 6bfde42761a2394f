"""Plans with their proofs: slowdowns that witnesses prove, and those left to a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller.fabric.topology import Fabric
from controller.planning.analysis.messages import FabricNames
from controller.planning.certificate import certificate, with_own_bound
from controller.planning.problem import Flow
from controller.planning.verify import verify
from tests.support.planning.fabrics import (
    RATE,
    across,
    fabric_of,
    flow,
    leaf_spine,
    on_paths,
    problem_of,
    three_tiers,
    two_leaves,
)
from tests.support.planning.plans import EXACT, planned
from tests.support.planning.split_problems import split


def proven(fabric: Fabric, flows: Sequence[Flow], subflows: int = 1) -> dict[str, Any]:
    """Return the certificate of the best plan, which the checker accepts."""
    problem = problem_of(fabric, split(flows, subflows))
    answer = planned(problem)
    written = certificate(problem, answer, FabricNames(fabric))
    verify(written)
    assert {job["name"]: job["slowdown"] / written["denominator"] for job in written["jobs"]} == pytest.approx(
        dict(answer.job_slowdown)
    )
    above_1 = sum(slowdown > 1.0001 for slowdown in answer.sorted_slowdowns)
    assert written["proven"] + written["searched"] >= min(above_1, answer.slowdowns_proven)
    return written


def summary(written: dict[str, Any]) -> tuple[int, int, list[tuple[int, float]]]:
    """Return (slowdowns proven by witnesses, slowdowns proven by a search only, (jobs, bound) of each proof)."""
    proofs = [(of["jobs"], round(of["bound"] / written["denominator"], 6)) for of in written["proofs"]]
    return written["proven"], written["searched"], proofs


TWO_SPINES = leaf_spine(2, 2)
SHARED_NIC = [flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 1), (2, 2), RATE)]
BETWEEN_PODS = [flow("a", (leaf, host), (2 + leaf, host), RATE) for leaf in (1, 2) for host in (1, 2)]


@pytest.mark.parametrize(
    ("fabric", "flows", "subflows", "expected"),
    [
        pytest.param(TWO_SPINES, across("ab"), 1, (0, 0, []), id="slowdowns of 1 need no witness"),
        pytest.param(TWO_SPINES, across("aaa"), 1, (1, 0, [(1, 2.0)]), id="a leaf with too few uplinks"),
        pytest.param(TWO_SPINES, across("abc"), 2, (3, 0, [(3, 1.5)]), id="a full cut, for every job across"),
        pytest.param(TWO_SPINES, across("aab"), 1, (1, 0, [(1, 2.0)]), id="either of two jobs must be slow"),
        pytest.param(
            leaf_spine(2, 5, RATE / 2), across("abc"), 2, (1, 0, [(1, 1.333333)]), id="two flows on three links"
        ),
        pytest.param(
            leaf_spine(2, 4, RATE / 3), across("a"), 2, (1, 0, [(1, 1.5)]), id="one flow on two of four links"
        ),
        pytest.param(TWO_SPINES, SHARED_NIC, 1, (2, 0, [(2, 2.0)]), id="a shared NIC"),
        pytest.param(three_tiers(2, 2, (1, 1)), BETWEEN_PODS, 2, (1, 0, [(1, 2.0)]), id="the cores of a pod"),
    ],
)
def test_cuts_are_witnesses(fabric: Fabric, flows: Sequence[Flow], subflows: int, expected: object) -> None:
    """A cut counts flows in units only where they stay whole, or where they have too few subflows."""
    written = proven(fabric, flows, subflows)
    assert summary(written) == expected
    assert all(cut["unit"] == 0 or subflows == cut["subflows"] for cut in written["cuts"])


def test_the_duals_of_the_fluid_optimum_are_a_witness_where_no_leaf_is_full() -> None:
    """The fabric is a line of switches: the middle cable is narrow, and no leaf is beside it."""
    fabric = fabric_of([(1, 3, 4 * RATE), (3, 4, RATE), (4, 2, 4 * RATE)])
    written = proven(fabric, across("abb", RATE), subflows=2)
    assert summary(written) == (2, 0, [(2, 3.0)])


def test_what_only_a_search_has_proven_is_said_to_be() -> None:
    """Five flows of 5, 4, 4, 3 and 3 run over two links of capacity 5; loads of 9 and 10 are best."""
    flows = [flow("a", (1, n), (2, n), size * RATE / 5) for n, size in enumerate((5, 4, 4, 3, 3))]
    written = proven(leaf_spine(2, 2), flows)
    assert written["proven"] + written["searched"] == 1


@pytest.mark.parametrize("subflows", [1, 2])
def test_a_plan_far_from_the_best_one_has_a_proof_of_the_worst_slowdown(subflows: int) -> None:
    """Four flows run on one of two links and may not move: the slowdown is 4, and 2 is proven."""
    problem = on_paths(two_leaves(2, "aaaa", subflows))
    written = certificate(problem, planned(problem, replace(EXACT, max_moves=0)), FabricNames(leaf_spine(2, 2)))
    verify(written)
    assert summary(written) == (0, 0, [(1, 2.0)])
    unbounded = replace(planned(problem, replace(EXACT, max_moves=0)), bound=1.0, integer_bound=1.0)
    bounded = with_own_bound(unbounded, written)
    assert [bounded.bound, bounded.integer_bound] == pytest.approx([2.0, 2.0])
    assert with_own_bound(replace(unbounded, bound=3.0), written).bound == 3.0


def test_flows_without_a_path_are_left_out() -> None:
    fabric = leaf_spine(3, 1, without=[(3, 1)])
    lost = flow("a", (1, 5), (3, 1), RATE)
    assert len(proven(fabric, [*across("a"), lost])["flows"]) == 1
    problem = problem_of(fabric, [lost])
    assert verify(certificate(problem, planned(problem), FabricNames(fabric)))[1] == 0, "a plan without any path"


def test_what_rounding_to_integers_changes_is_not_written() -> None:
    """Beside capacities that are 10^12 times as large, 1.4 is rounded to 1."""
    fabric = fabric_of([(1, 2, 1e-6), (3, 4, 1e6)])
    flows = [flow("a", (1, 1), (2, 1), 1.4e-6), flow("b", (3, 1), (4, 1), 1e6)]
    problem = problem_of(fabric, flows)
    answer = planned(problem)
    assert max(answer.job_slowdown.values()) == pytest.approx(1.4)
    with pytest.raises(ValueError, match=r"too far apart to be written as integers: job 'a' has slowdown 1\.4, 1 "):
        certificate(problem, answer, FabricNames(fabric))
