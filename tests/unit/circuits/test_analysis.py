"""Circuits in analyses: which of them a name means, which fail together, and how a job uses those that it has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.circuits.analysis import circuits_named, wired
from controller.circuits.job_wiring import JobWiring
from controller.fabric.topology import Dpid, Fabric, LinkId, PortNo, PortRef
from controller.planning.analysis.failures import analyse_failures, interchangeable, one_way_ports, single_failures
from controller.planning.analysis.job import analyse_job
from controller.planning.analysis.requests import AnalyseFailures, AnalyseJob, FabricNames, Network, Parts
from controller.planning.plan import Plan
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.words import FailureKind
from tests.support.planning.circuits import rings
from tests.support.planning.fabrics import RATE, flow, leaf_spine, pinned, problem_of

EXACT = PlanLimits(time_limit_s=10, deterministic=True)


def link(server: int, port: int) -> LinkId:
    return LinkId(Dpid(server), PortNo(port))


def network(problem: Problem, fabric: Fabric) -> Network:
    """With a plan running."""
    answer = plan(problem, EXACT)
    assert isinstance(answer, Plan), answer
    return Network(pinned(problem, answer.routes), fabric, fabric, EXACT, FabricNames(fabric))


@pytest.fixture
def fabric() -> Fabric:
    """Interface 2 sends to the next server, interface 3 to the one before."""
    return rings(4, (1, 3))


@pytest.mark.parametrize("name", ["server2:3", "0x2:3", "server2:server2-eth3"])
def test_an_interface_has_what_it_sends_and_what_it_receives(fabric: Fabric, name: str) -> None:
    assert circuits_named([name], fabric) == (Parts(name, frozenset((link(2, 3), link(3, 3)))),)


@pytest.mark.parametrize("name", ["server2:3>server1", "0x2:3>0x1"])
def test_a_circuit_goes_by_where_it_begins_and_where_it_ends(fabric: Fabric, name: str) -> None:
    assert circuits_named([name], fabric) == (Parts(name, frozenset((link(2, 3),))),)


def test_two_servers_are_all_circuits_from_the_one_to_the_other() -> None:
    fabric = rings(3, (1, 1, 2))
    named = circuits_named(["server1:server2", "server2", "server1:9"], fabric)
    assert named == (Parts("server1:server2", frozenset((link(1, 2), link(1, 3)))),)


def test_cables_are_no_circuits() -> None:
    fabric = leaf_spine(2, 2)
    assert circuits_named([fabric.link_name(LinkId(*each.src)) for each in fabric.links.values()], fabric) == ()
    assert list(one_way_ports(fabric)) == []


def test_what_can_fail_is_each_fibre_pair_once_with_the_circuits_that_it_carries(fabric: Fabric) -> None:
    found = single_failures(fabric, frozenset(FailureKind), fabric)
    assert {failure.name: failure.links for failure in found} == {
        f"server{n}:{port}": frozenset((link(n, port), link((n - 2 if port == 2 else n) % 4 + 1, port)))
        for n in range(1, 5)
        for port in (2, 3)
    }
    assert {failure.kind for failure in found} == {FailureKind.CABLE}
    without_hosts = single_failures(replace(fabric, hosts={}), frozenset((FailureKind.SPINE,)), fabric)
    assert without_hosts == ()


def test_a_server_without_a_host_fails_with_all_that_it_sends_and_receives(fabric: Fabric) -> None:
    hosts = {ip: host for ip, host in fabric.hosts.items() if host.at.dpid != 2}
    some = replace(fabric, hosts=hosts)
    (failure,) = single_failures(some, frozenset((FailureKind.SPINE,)), some)
    assert failure.name == "server2"
    assert failure.links == frozenset((link(2, 2), link(2, 3), link(1, 2), link(3, 3)))


def test_servers_are_interchangeable_by_their_circuits_whatever_their_neighbours_send_by_these_ports() -> None:
    """2 and 3 lead from 1 to 4; what 4 sends by the ports where these circuits end goes elsewhere, faster."""
    fabric = rings(4, (1,))
    ends = [((1, 2), (2, 2)), ((1, 3), (3, 2)), ((2, 3), (4, 2)), ((3, 3), (4, 3)), ((4, 2), (1, 2)), ((4, 3), (1, 3))]
    one = next(iter(fabric.links.values()))
    links = {}
    for (a, b), speed in zip(ends, (1, 1, 1, 1, 2, 3), strict=True):
        src, dst = (PortRef(Dpid(dpid), PortNo(port)) for dpid, port in (a, b))
        links[LinkId(*src)] = replace(one, src=src, dst=dst, capacity_bps=speed * RATE)
    fabric = replace(fabric, links=links)
    problem = problem_of(fabric, [flow("a", (1, 1), (4, 1), RATE)])
    label = interchangeable(problem, fabric)
    assert label[Dpid(2)] == label[Dpid(3)] == 2


def test_without_an_interface_flows_go_round_the_other_way(fabric: Fabric) -> None:
    problem = problem_of(fabric, [flow("a", (2, 1), (1, 1), RATE), flow("a", (3, 1), (4, 1), RATE)])
    parts = circuits_named(["server2:3"], fabric)[0]
    request = AnalyseFailures(network(problem, fabric), frozenset(FailureKind), None, 60.0, parts)
    (outcome,) = analyse_failures(request).outcomes
    assert (outcome.example.links, outcome.lost) == (parts.links, ())
    assert outcome.level == 2.0  # both from server3 to server4
    single = AnalyseFailures(network(problem, fabric), frozenset((FailureKind.CABLE,)), None, 60.0)
    worst = {outcome.example.name: outcome.level for outcome in analyse_failures(single).outcomes}
    assert worst["server2:3"] == 2.0


def test_a_wired_job_says_its_circuits_and_what_is_forwarded(fabric: Fabric) -> None:
    problem = problem_of(fabric, [flow("a", (1, 1), (2, 1), RATE / 2), flow("a", (1, 1), (3, 1), RATE / 2)])
    circuits = tuple((each.src, each.dst) for each in fabric.links.values())
    runs = JobSpec.parse({"job_id": "a", "endpoints": ["10.0.1.1", "10.0.2.1", "10.0.3.1"]})
    wiring = JobWiring("hybrid", runs, circuits, 0.22, 0.21, 0.44).arrangement
    found = analyse_job(AnalyseJob(network(problem, fabric), JobId("a"), efficiency_measured=None, arrangement=wiring))
    assert found.wired
    assert (found.wired.strategy, found.wired.circuits, found.wired.iteration_s) == ("hybrid", 8, 0.22)
    assert (found.wired.flows, found.wired.flows_forwarded, found.wired.most_hops) == (2, 1, 2)
    assert not found.wired.unusable
    assert wired(wiring, (), ()).most_hops == 0
    assert wired(wiring, (), {LinkId(*circuits[0][0])}).unusable == 7
