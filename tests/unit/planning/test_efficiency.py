"""Demand, load and slowdown, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.planning.efficiency import (
    first_difference,
    job_slowdowns,
    network_efficiency,
    outweighed,
    phase_slowdowns,
)
from controller.planning.problem import Flow, Subflow, whole
from controller.planning.snapshot import demands, ideal_communication_s, ideal_time_s
from signalbox.jobs.collectives import VirtualLink
from tests.support.planning.fabrics import flow, leaf_spine, link_between, problem_of
from tests.support.planning.loads import link_loads

NICS = {"a": 8e6, "b": 8e6, "c": 4e6}
SHARED = leaf_spine(2, 1, capacity=4.0)


def test_demands_fill_the_slowest_nic_and_are_divided_by_bytes() -> None:
    """A ring sends at the rate of its slowest NIC. Receiving counts as sending does, and phases follow each other."""
    ring = [VirtualLink("a", "b", 0, 10**6), VirtualLink("b", "c", 0, 10**6), VirtualLink("c", "a", 0, 10**6)]
    assert ideal_time_s(ring, NICS) == {0: 2.0}
    assert demands(ring, NICS) == dict.fromkeys([("a", "b"), ("b", "c"), ("c", "a")], ((0, 4000000.0),))
    to_two = [VirtualLink("a", "b", 0, 3 * 10**6), VirtualLink("a", "c", 0, 10**6)]
    assert demands(to_two, NICS) == {("a", "b"): ((0, 6e6),), ("a", "c"): ((0, 2e6),)}
    assert ideal_time_s([VirtualLink("a", "c", 0, 10**6), VirtualLink("b", "c", 0, 10**6)], NICS) == {0: 4.0}
    phases = [VirtualLink("a", "b", 5, 10**6), VirtualLink("a", "b", 0, 2 * 10**6)]
    assert demands(phases, NICS) == {("a", "b"): ((0, 8e6), (5, 8e6))}
    assert ideal_communication_s(phases, NICS) == 3.0


def test_a_link_counts_each_jobs_worst_phase_and_a_slowdown_each_jobs_worst_link() -> None:
    """The two phases of job a demand 3 and 1 + 4 on a link of capacity 4, and job b demands 2.

    Job c uses the other direction. A phase has its own load and the worst phase of every other job, because two phases
    of one job never send at the same time."""
    flows = [
        flow("a", (1, 1), (2, 1), ((0, 3.0), (1, 1.0))),
        flow("a", (1, 2), (2, 2), ((1, 4.0),)),
        flow("b", (1, 3), (2, 3), ((0, 2.0),)),
        flow("c", (2, 4), (1, 4), ((0, 2.0),)),
    ]
    problem = problem_of(SHARED, flows, nic_bps=4.0)
    routes = {f.id: whole(problem.candidates(f)[0]) for f in flows}
    assert link_loads(problem, routes)[link_between(SHARED, 1, 101)] == pytest.approx((5 + 2) / 4)
    slowdowns = job_slowdowns(problem, routes)
    assert slowdowns == {"a": 1.75, "b": 1.75, "c": 1.0}
    assert network_efficiency(slowdowns.values()) == pytest.approx(1 / 1.75)
    assert phase_slowdowns(problem, routes) == {
        "a": {0: pytest.approx((3 + 2) / 4), 1: pytest.approx((5 + 2) / 4)},
        "b": {0: pytest.approx((2 + 5) / 4)},
        "c": {0: 1.0},
    }


def test_a_flow_without_route_loads_nothing_and_a_job_without_any_has_no_slowdown() -> None:
    flows = [flow("a", (1, 1), (2, 1), 1.0), flow("b", (1, 2), (2, 2), 1.0)]
    problem = problem_of(leaf_spine(2, 1, capacity=1.0), flows, nic_bps=1.0)
    assert job_slowdowns(problem, {flows[0].id: whole(problem.candidates(flows[0])[0])}) == {"a": 1.0}
    assert network_efficiency([]) is None


def test_slowdowns_differ_only_beyond_the_tolerance() -> None:
    assert first_difference((2.0, 1.0), (2.0000001, 1.0)) is None
    assert first_difference((2.0, 1.5), (2.0000001, 1.0)) == 1


# ---- connections of other jobs


def with_subflows(of: Flow, count: int) -> list[Flow]:
    """Return the flow as ``count`` connections."""
    demand_bps = tuple((phase, bps / count) for phase, bps in of.demand_bps)
    return [replace(of, id=of.id._replace(subflow=subflow), demand_bps=demand_bps) for subflow in range(count)]


@pytest.mark.parametrize(
    ("subflows", "capacity", "slower"),
    [
        ((1, 1), 1.0, set()),
        ((4, 4), 1.0, set()),
        ((1, 4), 1.0, {"a"}),
        ((4, 2), 1.0, {"b"}),
        ((1, 4), 4.9, {"a"}),
        ((1, 4), 5.0, set()),
    ],
)
def test_a_job_with_fewer_connections_is_outweighed_where_a_link_is_too_full_for_all(
    subflows: tuple[int, int], capacity: float, slower: set[str]
) -> None:
    """Each of 5 connections on a link has a fifth of it.

    A fifth is enough for a flow of one connection when the link has five times its demand."""
    fabric = leaf_spine(2, 1, capacity)
    flows = [
        subflow
        for host, (job, count) in enumerate(zip("ab", subflows, strict=True), 1)
        for subflow in with_subflows(flow(job, (1, host), (2, host), 1.0), count)
    ]
    problem = problem_of(fabric, flows, nic_bps=10.0)
    routes = {of.id: whole(problem.candidates(of)[0]) for of in flows}
    assert outweighed(problem, routes) == slower


@pytest.mark.parametrize("paced", [True, False])
def test_subflows_that_are_not_paced_are_a_connection_each(paced: bool) -> None:
    """A whole flow shares a link with a subflow that has 10 % of another flow."""
    fabric = leaf_spine(2, 2, capacity=1.0)
    flows = [flow("a", (1, 1), (2, 1), 1.0), replace(flow("b", (1, 2), (2, 2), 1.0), max_subflows=2, paced=paced)]
    problem = problem_of(fabric, flows, nic_bps=10.0)
    left, right = problem.candidates(flows[0])
    routes = {flows[0].id: whole(left), flows[1].id: (Subflow(left, 0.1), Subflow(right, 0.9))}
    assert ("a" in outweighed(problem, routes)) == (not paced)
