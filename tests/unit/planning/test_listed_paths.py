"""Fabrics with more shortest paths than candidates: plans claim only what holds for all shortest paths."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import CandidatePaths, Dpid, Fabric
from controller.planning import greedy
from controller.planning.analysis.messages import FabricNames
from controller.planning.certificate import certificate
from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from controller.planning.plan import Plan, answered
from controller.planning.plan_check import check
from controller.planning.problem import PlanLimits, Problem
from controller.planning.verify import verify
from offline.schemes import SCHEMES
from tests.support.planning.fabrics import across, better, fabric_of, flow, problem_of
from tests.support.planning.split_problems import optimum, split

LIMITS = PlanLimits(ecmp_draws=0, deterministic=True)
LAYERS = ((1, 2), (11, 12, 13), (21, 22, 23), (31, 32, 33), (41, 42, 43), (3, 4))
"""Switches by layer; 81 shortest paths lead from leaf 1 or 2 to leaf 3 or 4."""
ENDS = [pair for here, there in pairwise(LAYERS) for pair in product(here, there)]


def layered(slow: Collection[tuple[int, int]] = (), slow_bps: float = 0.5) -> Fabric:
    return fabric_of((a, b, slow_bps if (a, b) in slow else 1.0) for a, b in ENDS)


def planned(problem: Problem, scheme: str = "planned") -> Plan:
    answer = answered(SCHEMES[scheme](problem, LIMITS))
    assert check(problem, answer) == ()
    return answer


@pytest.fixture
def one_way() -> Fabric:
    """Return a fabric where the only path from 1 to 3 without a slow link is not among the first 64."""
    listed = CandidatePaths(layered(), 64).between(Dpid(1), Dpid(3))
    every = CandidatePaths(layered(), 81).between(Dpid(1), Dpid(3))
    far_end = CandidatePaths(layered(), 1).far_end
    (path, *_) = [path for path in every if path not in listed]
    fast = {(int(link.dpid), int(far_end[link])) for link in path}
    return layered({*ENDS} - fast, 0.25)


def test_which_pairs_have_more_paths_than_are_listed() -> None:
    for most, cut in ((64, True), (80, True), (81, False)):
        paths = CandidatePaths(layered(), most)
        assert paths.cut(Dpid(1), Dpid(3)) == cut
        assert len(paths.between(Dpid(1), Dpid(3))) == min(most, 81)
    assert not paths.cut(Dpid(1), Dpid(1))


@pytest.mark.parametrize("subflows", [1, 2])
def test_the_best_path_is_found_although_it_is_not_listed(one_way: Fabric, subflows: int) -> None:
    answer = planned(problem_of(one_way, split(across("a", 1.0, 1, 3), subflows), nic_bps=1.0))
    assert (answer.max_slowdown, answer.certificate, answer.slowdowns_proven) == (1.0, "optimal", 1)


@st.composite
def problems(draw: st.DrawFn, subflows: int) -> Problem:
    slow = draw(st.sets(st.sampled_from(ENDS), min_size=10, max_size=30))
    rates = st.sampled_from([0.5, 1.0, 1.5])
    flows = [
        replace(flow(job, (src, 1), (dst, 1), draw(rates)), max_subflows=subflows)
        for job, (src, dst) in zip("abab", draw(st.permutations([*product((1, 2), (3, 4))])), strict=True)
    ]
    fabric = layered(slow, draw(st.sampled_from([0.1, 0.3])))
    return problem_of(fabric, flows, nic_bps=9.0, max_paths=draw(st.sampled_from([1, 2, 8])))


def listing_all(problem: Problem) -> Problem:
    return replace(problem, paths=CandidatePaths(Fabric(links=problem.paths.links), 81))


@pytest.fixture
def listing_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the greedy from considering all 81 paths."""
    monkeypatch.setattr(greedy, "_MOST_PATHS", 0)


@pytest.mark.usefixtures("listing_few")
@settings(max_examples=12)
@given(problems(8))
def test_split_flows_are_optimal_over_all_shortest_paths(problem: Problem) -> None:
    answer, least = planned(problem), optimum(listing_all(problem))
    assert answer.bound == pytest.approx(least, rel=1e-4)
    assert answer.max_slowdown == pytest.approx(least, rel=1e-4)


@pytest.mark.usefixtures("listing_few")
@settings(max_examples=8)
@given(problems(1))
def test_what_is_said_of_whole_flows_holds_over_all_shortest_paths(problem: Problem) -> None:
    few, ilp, every = planned(problem), planned(problem, "ilp"), planned(listing_all(problem))
    assert every.certificate == "optimal"
    assert max(few.bound, few.integer_bound, ilp.bound) <= every.max_slowdown * (1 + SLOWDOWN_TOLERANCE)
    assert not better(every.sorted_slowdowns[: few.slowdowns_proven], few.sorted_slowdowns[: few.slowdowns_proven])
    if few.candidates_listed:
        assert few.candidates_listed == problem.paths.max_paths
        assert few.slowdowns_proven < few.slowdowns_proven_listed <= len(few.job_slowdown)
    else:
        assert few.slowdowns_proven_listed == 0


@pytest.mark.usefixtures("listing_few")
def test_a_slowdown_that_only_a_search_over_candidates_proves(one_way: Fabric) -> None:
    answer = planned(problem_of(one_way, across("a", 1.0, 1, 3), nic_bps=1.0))
    assert (answer.max_slowdown, answer.bound, answer.certificate) == (4.0, 1.0, "gap")
    assert (answer.slowdowns_proven, answer.slowdowns_proven_listed, answer.candidates_listed) == (0, 1, 64)


def test_proofs_of_plans_over_unlisted_paths_are_accepted() -> None:
    fabric = layered()
    problem = problem_of(fabric, split(across("aaaa", 1.0, 1, 3)), nic_bps=4.0, max_paths=2)
    form = certificate(problem, planned(problem), FabricNames(fabric))
    assert form["proven"] == 1
    assert verify(json.loads(json.dumps(form))) == (
        "worst slowdown 1.33333, at least 1.33333 with any routes; 1 of 1 slowdowns proven",
        0,
    )
