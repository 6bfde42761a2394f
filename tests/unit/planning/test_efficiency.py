"""Demand, load and level, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from controller.jobs.collectives import VirtualLink
from controller.planning.demands import demands, ideal_communication_s, ideal_time_s
from controller.planning.efficiency import first_difference, job_levels, network_efficiency
from controller.planning.problem import whole
from tests.support.planning.fabrics import flow, leaf_spine, link_between, problem_of
from tests.support.planning.loads import link_loads

NICS = {"a": 8e6, "b": 8e6, "c": 4e6}


def test_a_ring_sends_at_the_rate_of_its_slowest_nic() -> None:
    ring = [VirtualLink("a", "b", 0, 10**6), VirtualLink("b", "c", 0, 10**6), VirtualLink("c", "a", 0, 10**6)]
    assert ideal_time_s(ring, NICS) == {0: 2.0}
    assert demands(ring, NICS) == dict.fromkeys([("a", "b"), ("b", "c"), ("c", "a")], ((0, 4000000.0),))


def test_a_nic_that_sends_to_two_divides_its_rate_by_bytes() -> None:
    links = [VirtualLink("a", "b", 0, 3 * 10**6), VirtualLink("a", "c", 0, 10**6)]
    assert demands(links, NICS) == {("a", "b"): ((0, 6e6),), ("a", "c"): ((0, 2e6),)}


def test_receiving_counts_as_much_as_sending() -> None:
    assert ideal_time_s([VirtualLink("a", "c", 0, 10**6), VirtualLink("b", "c", 0, 10**6)], NICS) == {0: 4.0}


def test_phases_follow_each_other() -> None:
    links = [VirtualLink("a", "b", 5, 10**6), VirtualLink("a", "b", 0, 2 * 10**6)]
    assert demands(links, NICS) == {("a", "b"): ((0, 8e6), (5, 8e6))}
    assert ideal_communication_s(links, NICS) == 3.0


def test_a_link_counts_each_jobs_worst_phase_and_a_level_each_jobs_worst_link() -> None:
    fabric = leaf_spine(2, 1, capacity=4.0)
    flows = [
        flow("a", (1, 1), (2, 1), ((0, 3.0), (1, 1.0))),
        flow("a", (1, 2), (2, 2), ((1, 4.0),)),
        flow("b", (1, 3), (2, 3), ((0, 2.0),)),
        flow("c", (2, 4), (1, 4), ((0, 2.0),)),
    ]
    problem = problem_of(fabric, flows, nic_bps=4.0)
    routes = {f.id: whole(problem.candidates(f)[0]) for f in flows}
    assert link_loads(problem, routes)[link_between(fabric, 1, 101)] == pytest.approx((5 + 2) / 4)
    levels = job_levels(problem, routes)
    assert levels == {"a": 1.75, "b": 1.75, "c": 1.0}
    assert network_efficiency(levels.values()) == pytest.approx(1 / 1.75)


def test_a_flow_without_route_loads_nothing_and_a_job_without_any_has_no_level() -> None:
    flows = [flow("a", (1, 1), (2, 1), 1.0), flow("b", (1, 2), (2, 2), 1.0)]
    problem = problem_of(leaf_spine(2, 1, capacity=1.0), flows, nic_bps=1.0)
    assert job_levels(problem, {flows[0].id: whole(problem.candidates(flows[0])[0])}) == {"a": 1.0}
    assert network_efficiency([]) is None


def test_levels_differ_only_beyond_the_tolerance() -> None:
    assert first_difference((2.0, 1.0), (2.0000001, 1.0)) is None
    assert first_difference((2.0, 1.5), (2.0000001, 1.0)) == 1
