"""Circuits in analyses: the meaning of their names, common failures, and how a job uses its circuits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.api.convert_explain import explain_message
from controller.circuits.analysis import Use, arranged, circuits_named, use_of
from controller.circuits.job_wiring import JobWiring
from controller.fabric.topology import Dpid, Fabric, LinkId, PortNo, PortRef
from controller.planning.analysis.failures import analyse_failures, interchangeable, one_way_ports, single_failures
from controller.planning.analysis.job import analyse_job
from controller.planning.analysis.messages import (
    AnalyseFailures,
    AnalyseJob,
    FabricNames,
    JobAnalysis,
    JobShare,
    Network,
    Parts,
    Verdict,
)
from controller.planning.plan import Plan
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem
from signalbox.jobs.spec import JobId, JobSpec
from signalbox.words import FailureKind
from tests.support.planning.analyses import BEST, FINE, LINK, SLOWED, A
from tests.support.planning.fabrics import RATE, flow, leaf_spine, pinned, problem_of, rings

EXACT = PlanLimits(time_limit_s=10, deterministic=True)


def link(server: int, port: int) -> LinkId:
    return LinkId(Dpid(server), PortNo(port))


def network(problem: Problem, fabric: Fabric) -> Network:
    answer = plan(problem, EXACT)
    assert isinstance(answer, Plan), answer
    return Network(pinned(problem, answer.routes), fabric, fabric, EXACT, FabricNames(fabric))


@pytest.fixture
def fabric() -> Fabric:
    """Return a fabric where interface 2 sends to the next server, and interface 3 to the previous server."""
    return rings(4, (1, 3))


def test_circuits_are_named_by_an_interface_by_both_ends_or_by_two_servers(fabric: Fabric) -> None:
    """An interface stands for the circuit that it sends into, and for the one that it receives from."""
    for name in ("server2:3", "0x2:3", "server2:server2-eth3"):
        assert circuits_named([name], fabric) == (Parts(name, frozenset((link(2, 3), link(3, 3)))),)
    for name in ("server2:3>server1", "0x2:3>0x1"):
        assert circuits_named([name], fabric) == (Parts(name, frozenset((link(2, 3),))),)
    named = circuits_named(["server1:server2", "server2", "server1:9"], rings(3, (1, 1, 2)))
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
    """Circuits lead from server 1 over server 2, and over server 3, to ports 2 and 3 of server 4, all at one rate.

    Server 4 sends back to server 1 from the same two ports, at two other rates."""
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
    assert outcome.slowdown == 2.0  # both flows use the circuit from server3 to server4
    single = AnalyseFailures(network(problem, fabric), frozenset((FailureKind.CABLE,)), None, 60.0)
    worst = {outcome.example.name: outcome.slowdown for outcome in analyse_failures(single).outcomes}
    assert worst["server2:3"] == 2.0


def test_a_wired_job_says_its_circuits_and_what_is_forwarded(fabric: Fabric) -> None:
    problem = problem_of(fabric, [flow("a", (1, 1), (2, 1), RATE / 2), flow("a", (1, 1), (3, 1), RATE / 2)])
    wiring = replace(WIRING, circuits=tuple((each.src, each.dst) for each in fabric.links.values()))
    made = wiring.arrangement
    found = analyse_job(AnalyseJob(network(problem, fabric), JobId("a"), efficiency_measured=None, arrangement=made))
    assert found.arranged == arranged(found, Use(wiring, 2, 1, 2))
    assert use_of(made, (), ()).most_hops == 0
    assert use_of(made, (), {LinkId(*wiring.circuits[0][0])}).unusable == 7


ENDS = PortRef(Dpid(1), PortNo(2)), PortRef(Dpid(2), PortNo(2))
RUNS = JobSpec.parse({"job_id": "a", "endpoints": ["10.0.1.1", "10.0.2.1", "10.0.3.1"]})
WIRING = JobWiring("hybrid", RUNS, (ENDS,) * 12, planned_s=0.22, bound_s=0.21, other_s=0.4379)
USE = Use(WIRING, flows=10, flows_forwarded=4, most_hops=3)


def said(found: JobAnalysis, use: Use = USE) -> list[str]:
    return list(explain_message(replace(found, arranged=arranged(found, use))).answer)


def test_a_wired_job_is_compared_with_the_alternative() -> None:
    assert said(FINE)[-2:] == [
        "The job runs parallelization hybrid on 12 circuits: other servers forward 4 of the job's 10 pinned flows, "
        "over at most 3 circuits.",
        "By the model an iteration takes 0.22 s, at least 0.21 s with any routes on these "
        "circuits, and 0.4379 s on one switch of the same cost.",
    ]
    direct = Use(replace(WIRING, parallelization=""), flows=10, flows_forwarded=0, most_hops=1)
    assert said(FINE, direct)[-2] == "The job runs on 12 circuits: no server forwards any pinned flow of the job."
    assert "circuit" not in " ".join(explain_message(FINE).answer)


OWN = replace(LINK, link="server1:2>server2", jobs=(JobShare(A, 4, 2.0),))
ON_CIRCUITS = replace(
    SLOWED,
    verdict=Verdict.UNPROVEN,
    fullest_links=(OWN,),
    best=replace(BEST, slowdown=2.0, best_for_all=False),
)


def test_what_circuits_allow_is_not_called_a_fault_of_the_network() -> None:
    answer = " ".join(said(replace(ON_CIRCUITS, withheld="up to 7 hosts send to one host at once")))
    assert answer.startswith(
        "Job 'a' is limited by its 12 circuits; all of them work, and the fullest circuit carries no other traffic. "
        "The job's communication takes up to 2.00 times as long as its hosts' ports alone would need, because a "
        "circuit leads to one server only, and servers forward for each other. The fullest circuit of the job is "
        "server1:2>server2. It is loaded to 2.00 times its capacity by 4 flows of the job alone. The planner found no "
        "better routes on these circuits. By the model no routes on them make an iteration more than 4.5% shorter."
    )
    assert "No efficiency is predicted: up to 7 hosts send to one host at once." in answer
    assert "Routing can gain nothing: by the model no routes on these circuits make an iteration shorter." in said(
        ON_CIRCUITS, replace(USE, wiring=replace(WIRING, bound_s=0.22))
    )
    assert not explain_message(replace(ON_CIRCUITS, withheld="why")).HasField("efficiency_predicted")


@pytest.mark.parametrize(
    "changed",
    [
        {"fullest_links": (replace(OWN, jobs=LINK.jobs),)},
        {"fullest_links": (replace(OWN, background=0.3),)},
        {"flows_hashed": 1},
    ],
)
def test_a_wired_job_that_others_slow_is_slowed_by_the_network(changed: dict[str, Any]) -> None:
    assert said(replace(ON_CIRCUITS, **changed))[0].startswith("The network slows job 'a': ")


def test_circuits_that_cannot_be_used_are_counted_and_slow_a_job_as_the_network_does() -> None:
    answer = said(ON_CIRCUITS, replace(USE, unusable=2))
    assert answer[0].startswith("The network slows job 'a': ")
    assert "on 12 circuits, of which 2 cannot be used now: other servers" in answer[-2]
