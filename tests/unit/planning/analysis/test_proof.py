"""The routes in force with their proofs, checked as by a reader who has no planner."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from controller.fabric.topology import Fabric
from controller.planning.analysis.job import prove_routes
from controller.planning.analysis.messages import FabricNames, Network, ProveRoutes
from controller.planning.problem import PlanLimits, Problem, whole
from controller.planning.verify import verify
from signalbox.errors import NotKnownYet
from tests.support.planning.fabrics import RATE, flow, leaf_spine, on_paths, pinned, problem_of, two_leaves

FABRIC = leaf_spine(2, 2)
MEETING = two_leaves(2, "ab")


def proof(problem: Problem, fabric: Fabric = FABRIC) -> tuple[str, Any]:
    """Return the result of the checker, and the file."""
    network = Network(problem, fabric, fabric, PlanLimits(deterministic=True), FabricNames(fabric))
    form = json.loads(prove_routes(ProveRoutes(network)).document)
    return verify(form)[0], form


def test_routes_that_are_best_are_proven_and_others_are_reported_as_they_are() -> None:
    said, form = proof(on_paths(MEETING, [0, 1]))
    assert said == "worst slowdown 1, at least 1 with any routes; 2 of 2 slowdowns proven"
    assert [one["from"] for one in form["flows"]] == [one.id.src_ip for one in MEETING.flows]
    said, _ = proof(on_paths(MEETING, [1, 1]))
    assert said == "worst slowdown 2, at least 1 with any routes; 0 of 2 slowdowns proven"


def test_a_flow_without_any_path_is_left_out() -> None:
    apart = replace(FABRIC, links={})
    near = flow("c", (2, 1), (2, 2), RATE)
    problem = problem_of(apart, [flow("a", (1, 1), (2, 1), RATE), near])
    _, form = proof(pinned(problem, {near.id: whole(())}), apart)
    assert [one["to"] for one in form["flows"]] == [near.id.dst_ip]


def test_hashed_flows_are_not_left_out_silently() -> None:
    first = MEETING.flows[0]
    with pytest.raises(NotKnownYet, match=r"flows of job 'b' \(1\) have no route in force"):
        proof(pinned(MEETING, {first.id: whole(MEETING.candidates(first)[0])}))
    with pytest.raises(NotKnownYet, match="no route is in force"):
        proof(problem_of(FABRIC, []))
