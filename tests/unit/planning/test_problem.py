"""The problem of the planner, made from the state of the network."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.fabric.topology import CandidatePaths, Dpid, Host, PortNo, PortRef
from controller.jobs.job import Job
from controller.jobs.messages import RegisterJob
from controller.jobs.registry import JobRegistry
from controller.planning.problem import Flow, FlowId, PathShare, PlanLimits, Problem, Routes, distinct, whole
from controller.planning.snapshot import (
    MIN_CAPACITY_FRACTION,
    Flows,
    Routed,
    capacities,
    demands,
    in_order,
    missing_hosts,
    take_snapshot,
)
from offline.scenarios.fabrics import leaf_spine
from signalbox.jobs.collectives import VirtualLink
from tests.support.by_id import by_id
from tests.support.fake_fabric import ring_job
from tests.support.planning.fabrics import two_leaves

FABRIC = leaf_spine(3, 2, 2, 1e9, 2e9)
RING = ["10.0.0.1", "10.0.1.1", "10.0.2.1"]
FLOW = FlowId(RING[0], RING[1])


def job_of(job_id: str = "ring", ips: list[str] = RING, max_subflows: int = 1) -> Job:
    return JobRegistry(10).register(RegisterJob(ring_job(job_id, ips, max_subflows=max_subflows)), 0.0)


def by_flow(flows: tuple[Flow, ...]) -> dict[FlowId, Flow]:
    return {flow.id: flow for flow in flows}


class Derived:
    def __init__(self) -> None:
        self._flows, self._routed = Flows(), Routed()

    def __call__(
        self, jobs: tuple[Job, ...], routes: Routes, hosts: Mapping[str, Host] = FABRIC.hosts
    ) -> dict[FlowId, Flow]:
        return by_flow(in_order(self._routed(self._flows(by_id(*jobs), hosts), routes)))


# ---- capacities


@pytest.mark.parametrize(("background", "left"), [(0.0, 2e9), (0.5e9, 1.5e9), (1.99e9, 0.1e9), (3e9, 0.1e9)])
def test_background_is_taken_off_a_link_but_for_the_last_twentieth(background: float, left: float) -> None:
    assert MIN_CAPACITY_FRACTION == 1 / 20
    link, *others = FABRIC.links
    found = capacities(FABRIC.links, FABRIC.hosts, {link: background})
    assert found[link] == pytest.approx(left)
    assert {found[other] for other in others} == {2e9}
    host = FABRIC.hosts[RING[0]]
    found = capacities(FABRIC.links, FABRIC.hosts, {host.uplink: 0.25e9})
    assert (found[host.uplink], found[host.downlink]) == (0.75e9, 1e9), "a link each way at the rate of its port"


# ---- flows


def test_a_job_has_a_flow_per_pair_between_the_switches_of_its_hosts() -> None:
    job = job_of(max_subflows=2)
    flow = Derived()((job,), {})[FLOW]
    src, dst = FABRIC.hosts[FLOW.src_ip], FABRIC.hosts[FLOW.dst_ip]
    assert (flow.job_id, flow.max_subflows, flow.current) == (job.id, 2, None)
    assert (flow.src_leaf, flow.dst_leaf) == (src.at.dpid, dst.at.dpid)
    assert flow.nic_links == (src.uplink, dst.downlink)
    assert flow.demand_bps == ((0, 1e9),), "one flow out of each host: it may fill the NIC"


def test_flows_follow_routes_hosts_and_jobs_and_are_the_same_objects_otherwise() -> None:
    flows_of, first, second = Derived(), job_of(), job_of("pair", ["10.0.0.2", "10.0.1.2"])
    route = whole(CandidatePaths(FABRIC, 64).between(Dpid(1), Dpid(2))[0])
    before = flows_of((first, second), {})
    assert all(flow is before[flow.id] for flow in flows_of((first, second), {}).values())

    routed = flows_of((first, second), {FLOW: route})
    assert routed[FLOW] == replace(before[FLOW], current=route)
    assert {flow for flow in before if routed[flow].current != before[flow].current} == {FLOW}
    assert flows_of((first, second), {})[FLOW].current is None

    moved = {**FABRIC.hosts, RING[0]: replace(FABRIC.hosts[RING[0]], at=PortRef(Dpid(3), PortNo(9)))}
    assert flows_of((first, second), {}, moved)[FLOW].src_leaf == 3
    moved = {**moved, "10.0.0.2": replace(FABRIC.hosts["10.0.0.2"], at=PortRef(Dpid(3), PortNo(8)))}
    assert flows_of((first, second), {}, moved)[FlowId("10.0.0.2", "10.0.1.2")].src_leaf == 3
    assert flows_of((second,), {}).keys() == {flow for flow in before if flow.src_ip not in RING}
    assert flows_of((job_of(max_subflows=4),), {})[FLOW].max_subflows == 4


@given(st.lists(st.integers(1, 10**12), min_size=3, max_size=3), st.integers(1, 10**6))
def test_demands_are_exact_and_do_not_depend_on_how_large_all_bytes_are(sizes: list[int], times: int) -> None:
    nic_bps = dict.fromkeys("abc", 100e9)

    def ring(factor: int) -> list[VirtualLink]:
        return [VirtualLink("abc"[n], "bca"[n], 0, factor * size) for n, size in enumerate(sizes)]

    found = demands(ring(1), nic_bps)
    assert demands(ring(times), nic_bps) == found
    assert max(bps for ((_, bps),) in found.values()) == 100e9


def test_hosts_are_missing_that_pairs_name_and_the_fabric_does_not_have() -> None:
    pairs = frozenset({("10.9.9.9", RING[0]), (RING[0], RING[1]), (RING[1], "10.8.8.8"), ("10.9.9.9", RING[1])})
    assert missing_hosts(FABRIC.hosts, frozenset(ip for pair in pairs for ip in pair)) == ("10.8.8.8", "10.9.9.9")


# ---- routes in force


@pytest.fixture
def problem() -> Problem:
    return take_snapshot(7, FABRIC, [job_of(max_subflows=2)], {}, {}, 64)


def test_a_route_stands_while_all_of_its_links_do(problem: Problem) -> None:
    flow = by_flow(problem.flows)[FLOW]
    first, second = problem.candidates(flow)
    split = (PathShare(first, 0.5), PathShare(second, 0.5))
    lost = {link: of for link, of in FABRIC.links.items() if link != second[1]}
    left = take_snapshot(8, replace(FABRIC, links=lost), [job_of(max_subflows=2)], {}, {}, 64)
    for route, stands in ((whole(first), True), (whole(second), False), (split, False)):
        assert problem.is_in_force(replace(flow, current=route))
        assert not problem.with_routes({FLOW: route}).broken
        assert left.is_in_force(replace(flow, current=route)) is stands
        assert left.with_routes({FLOW: route}).broken is not stands
    assert not problem.is_in_force(flow), "it is not pinned"
    assert not left.broken
    routed = problem.with_routes({FLOW: whole(first)})
    assert (by_flow(routed.flows)[FLOW].current, routed.generation) == (whole(first), 7)
    assert routed.with_routes({}) == problem, "the same otherwise"


# ---- arrays, and limits of time


@given(st.lists(st.integers(0, 40) | st.integers(0, 2**60)))
def test_distinct_keys_are_ascending_and_each_key_has_its_place(keys: list[int]) -> None:
    values, place = distinct(np.array(keys, np.int64))
    assert values.tolist() == sorted(set(keys))
    assert values[place].tolist() == keys


def test_links_are_ordered_by_leaf_and_spine_and_have_the_same_numbers_for_other_flows() -> None:
    problem = two_leaves(3, "aaa")
    links = problem.links
    around = links.around([2, 1], outward=True)  # type: ignore[list-item]
    assert around.at.tolist() == [0, 0, 0, 1, 1, 1]
    assert [links.dpids[switch] for switch in around.other.tolist()] == [101, 102, 103] * 2
    assert [links.ids[link].dpid for link in around.link.tolist()] == [2, 2, 2, 1, 1, 1]
    fewer = problem.with_flows(problem.flows[1:])
    assert fewer.links is links
    assert fewer.numbers.src.tolist() == [0, 0]
    assert replace(fewer, flows=problem.flows) == problem


def test_a_stage_without_time_is_left_out() -> None:
    before = time.perf_counter()
    limits = PlanLimits(time_limit_s=60).begun()
    assert before + 60 <= limits.until <= time.perf_counter() + 60
    assert limits.allows("first", 1.0)
    assert not limits.sooner(50).allows("second", 20.0)
    assert limits.left_out == ["second"]
    assert limits.begun() is limits
    without_clock = PlanLimits(deterministic=True).begun()
    assert without_clock.sooner(50).allows("any", 1e9)
    assert without_clock.left_out == [], "it is shared by all runs of these limits"
