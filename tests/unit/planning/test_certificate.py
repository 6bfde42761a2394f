"""Plans with their proofs: slowdowns that witnesses prove, and those left to a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from controller.fabric.topology import Fabric
from controller.planning.analysis.requests import FabricNames
from controller.planning.certificate import certificate
from controller.planning.plan import Plan
from controller.planning.planner import plan
from controller.planning.problem import Flow, PlanLimits, whole
from controller.planning.verify import verify
from tests.support.planning.fabrics import RATE, fabric_of, flow, leaf_spine, pinned, problem_of, three_tiers

LIMITS = PlanLimits(ecmp_draws=0, deterministic=True)


def proven(fabric: Fabric, flows: Sequence[Flow], subflows: int = 1) -> dict[str, Any]:
    """Return the certificate of the best plan, which the checker accepts."""
    problem = problem_of(fabric, [replace(flow, max_subflows=subflows) for flow in flows])
    answer = plan(problem, LIMITS)
    assert isinstance(answer, Plan)
    written = certificate(problem, answer, FabricNames(fabric))
    verify(written)
    assert {job["name"]: job["slowdown"] / written["denominator"] for job in written["jobs"]} == pytest.approx(
        dict(answer.job_slowdown)
    )
    above_1 = sum(slowdown > 1.0001 for slowdown in answer.sorted_slowdowns)
    assert written["proven"] + written["searched"] >= min(above_1, answer.slowdowns_proven)
    return written


def across(jobs: str, demand: float = RATE) -> list[Flow]:
    """Return one flow from the first leaf to the second for each letter of ``jobs``, the name of its job."""
    return [flow(job, (1, number), (2, number), demand) for number, job in enumerate(jobs)]


def summary(written: dict[str, Any]) -> tuple[int, int, list[tuple[int, float]]]:
    """Return (slowdowns proven by witnesses, slowdowns proven by a search only, (jobs, bound) of each proof)."""
    proofs = [(of["jobs"], round(of["bound"] / written["denominator"], 6)) for of in written["proofs"]]
    return written["proven"], written["searched"], proofs


def test_slowdowns_of_1_need_no_witness() -> None:
    assert summary(proven(leaf_spine(2, 2), across("ab"))) == (0, 0, [])


def test_a_leaf_with_too_few_uplinks_is_the_witness_of_whole_flows() -> None:
    written = proven(leaf_spine(2, 2), across("aaa"))
    assert summary(written) == (1, 0, [(1, 2.0)])
    assert written["cuts"][0]["unit"] > 0


def test_a_full_cut_is_the_witness_of_every_job_across_when_flows_may_be_split() -> None:
    written = proven(leaf_spine(2, 2), across("abc"), subflows=2)
    assert summary(written) == (3, 0, [(3, 1.5)])
    assert written["cuts"][0]["unit"] == 0


def test_of_two_jobs_one_must_be_slow() -> None:
    """Either job may be the slow one, and the other job need not be slow."""
    assert summary(proven(leaf_spine(2, 2), across("aab"))) == (1, 0, [(1, 2.0)])


def test_a_shared_nic_is_a_witness() -> None:
    flows = [flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 1), (2, 2), RATE)]
    assert summary(proven(leaf_spine(2, 2), flows)) == (2, 0, [(2, 2.0)])


def test_cores_of_a_pod_are_a_witness() -> None:
    flows = [flow("a", (leaf, host), (2 + leaf, host), RATE) for leaf in (1, 2) for host in (1, 2)]
    written = proven(three_tiers(2, 2, (1, 1)), flows, subflows=2)
    assert summary(written) == (1, 0, [(1, 2.0)])


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
    fabric = leaf_spine(2, 2)
    problem = problem_of(fabric, [replace(flow, max_subflows=subflows) for flow in across("aaaa")])
    problem = pinned(problem, {of.id: whole(problem.candidates(of)[0]) for of in problem.flows})
    answer = plan(problem, replace(LIMITS, max_moves=0))
    assert isinstance(answer, Plan)
    written = certificate(problem, answer, FabricNames(fabric))
    verify(written)
    assert summary(written) == (0, 0, [(1, 2.0)])


def test_flows_without_a_path_are_left_out() -> None:
    fabric = leaf_spine(3, 1, without=[(3, 1)])
    flows = [*across("a"), flow("a", (1, 5), (3, 1), RATE)]
    written = proven(fabric, flows)
    assert len(written["flows"]) == 1


def test_what_rounding_to_integers_changes_is_not_written() -> None:
    """Beside capacities that are 10^12 times as large, 1.4 is rounded to 1."""
    fabric = fabric_of([(1, 2, 1e-6), (3, 4, 1e6)])
    flows = [flow("a", (1, 1), (2, 1), 1.4e-6), flow("b", (3, 1), (4, 1), 1e6)]
    problem = problem_of(fabric, flows)
    answer = plan(problem, LIMITS)
    assert isinstance(answer, Plan)
    assert max(answer.job_slowdown.values()) == pytest.approx(1.4)
    with pytest.raises(ValueError, match=r"too far apart to be written as integers: job 'a' has slowdown 1\.4, 1 "):
        certificate(problem, answer, FabricNames(fabric))


def test_a_plan_without_any_path_is_written_too() -> None:
    fabric = leaf_spine(2, 1, without=[(1, 1)])
    problem = problem_of(fabric, across("a"))
    answer = plan(problem, LIMITS)
    assert isinstance(answer, Plan)
    assert verify(certificate(problem, answer, FabricNames(fabric)))[1] == 0
