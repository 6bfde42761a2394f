"""The benchmark of planning at scale: its cases, and the greedy scheme to which the planner is compared."""

from collections import Counter

import pytest

from benchmarks.plan.workloads import random_flows
from benchmarks.plan_scale import published_greedy
from controller.fabric.topology import CandidatePaths
from controller.planning.snapshot import Flows, Snapshot, capacities
from offline.scenarios.fabrics import leaf_spine, without_random_links
from offline.scenarios.generator import jobs_of


@pytest.mark.parametrize("cables", [0, 3])
def test_the_greedy_takes_paths_that_are_there_and_at_most_twice_the_least_load(cables: int) -> None:
    fabric = leaf_spine(8, 4, 8, 1e9, 1e9)
    jobs = jobs_of(random_flows(fabric, 64, 2, seed=1), fabric)
    fabric = without_random_links(fabric, cables, 1) if cables else fabric
    flows = Flows()({job.id: job for job in jobs}, fabric.hosts)
    snapshot = Snapshot(1, capacities(fabric.links, fabric.hosts, {}), CandidatePaths(fabric, 64), flows, {})
    routes = published_greedy(snapshot)
    problem = snapshot.problem
    assert routes.keys() == {flow.id for flow in problem.flows}
    assert all(routes[flow.id] in problem.candidates(flow) for flow in problem.flows)
    taken = Counter(link for path in routes.values() for link in path)
    ends = [Counter(of) for of in zip(*((f.src_leaf, f.dst_leaf) for f in problem.flows), strict=True)]
    most = max(max(of.values()) for of in ends)
    assert max(taken.values()) <= 2 * -(-most // (4 - min(cables, 2)))
