"""Running routes: read back from switches, claimed by jobs, in force, confirmed; and the links of their packets."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from controller.fabric.counter_samples import Counted
from controller.fabric.topology import CandidatePaths, Dpid, Fabric, Host, LinkId, Path, PortNo, PortRef
from controller.jobs.job import Job
from controller.jobs.messages import RegisterJob
from controller.jobs.registry import JobRegistry
from controller.planning.plan import in_place
from controller.planning.problem import FlowId, PathShare, Route, Routes, whole
from controller.tables.flow_tables import FlowPart, Pin, counting_rule, pin_key
from controller.tables.pins import Pins, PinSet, parts_of
from controller.tables.pipeline import Pipeline, PipelineSettings
from controller.tables.rules import FlowKey, FlowRule, GroupRule, RuleSet, Table, ToGroup, job_owner
from controller.tables.running_routes import (
    ConfirmedRoutes,
    RunningRoutes,
    installed_hosts,
    installed_pins,
    possible_links,
)
from offline.scenarios.fabrics import leaf_spine, without
from signalbox.jobs.collectives import VirtualLinks
from signalbox.jobs.spec import Transport
from signalbox.jobs.subflows import PortClass
from tests.support.by_id import by_id
from tests.support.fake_fabric import ring_job
from tests.support.long_cases import with_long

SETTINGS = PipelineSettings(punt_rate_pps=50, leaf_prefix_length=24)
FABRIC = leaf_spine(3, 3, 2, 1e9, 1e9)
FLOW, BACK = FlowId("10.0.0.1", "10.0.1.1"), FlowId("10.0.1.1", "10.0.0.1")
OTHER = FlowId("10.0.0.2", "10.0.2.2")
LEAF1, LEAF2, LEAF3 = Dpid(1), Dpid(2), Dpid(3)
EVEN, UNEVEN = (0.5, 0.5), (0.25, 0.75)
PATHS = CandidatePaths(FABRIC, 64)
FIRST, SECOND, THIRD = PATHS.between(LEAF1, LEAF2)
ELSEWHERE = PATHS.between(LEAF1, LEAF3)[1]


def job_of(job_id: str, max_subflows: int = 2, flow: FlowId = FLOW) -> Job:
    """Return a job that announces both directions between the hosts of the flow."""
    return JobRegistry(10).register(RegisterJob(ring_job(job_id, [*flow.pair], max_subflows=max_subflows)), 0.0)


def split(*paths: Path, shares: tuple[float, ...] = EVEN) -> Route:
    return tuple(map(PathShare, paths, shares))


def cut_one_way(*links: LinkId) -> Fabric:
    return replace(FABRIC, links={key: link for key, link in FABRIC.links.items() if key not in links})


def installed(job: Job, routes: Routes, fabric: Fabric = FABRIC) -> Mapping[Dpid, RuleSet]:
    return Pipeline(SETTINGS).desired(fabric, Pins()(fabric, by_id(job), routes, ()), {})


# ---- adoption


@pytest.mark.parametrize("route", [whole(SECOND), split(THIRD, FIRST)])
def test_routes_come_back_from_the_rules_that_were_made_for_them(route: Route) -> None:
    job, routes = job_of("job"), RunningRoutes()
    assert routes.adopt(FABRIC, installed(job, {FLOW: route}), [job]) == {job.id}
    assert routes.routes == {FLOW: route}
    assert routes.orphans == ()


def test_pins_of_another_job_between_the_same_hosts_are_not_claimed() -> None:
    routes = RunningRoutes()
    assert routes.adopt(FABRIC, installed(job_of("gone"), {FLOW: whole(FIRST)}), [job_of("new")]) == frozenset()
    assert routes.routes == {}
    assert {pin.owner for pin in routes.orphans} == {job_owner("gone")}


def test_a_job_that_registers_later_claims_its_orphans_once() -> None:
    job, routes = job_of("job"), RunningRoutes()
    routes.adopt(FABRIC, installed(job, {FLOW: whole(FIRST)}), [])
    assert routes.claim(job)
    assert routes.routes == {FLOW: whole(FIRST)}
    assert not routes.claim(job)


def test_a_route_that_is_only_partly_there_does_not_replace_the_running_one() -> None:
    """The routes are adopted a second time while the switches of some subflows are not connected."""
    job, routes = job_of("job"), RunningRoutes()
    running = split(FIRST, SECOND)
    routes.replace({FLOW: running})
    routes.adopt(FABRIC, installed(job, {FLOW: whole(THIRD)}), [job])
    assert routes.routes == {FLOW: running}


@pytest.mark.parametrize(
    ("saved", "shares"), [(UNEVEN, UNEVEN), ((0.2, 0.3, 0.5), EVEN), ((), EVEN)], ids=["known", "of three", "not known"]
)
def test_shares_come_from_the_saved_state_if_there_are_as_many(
    saved: tuple[float, ...], shares: tuple[float, ...]
) -> None:
    job, routes = job_of("job"), RunningRoutes({FLOW.pair: saved} if saved else {})
    routes.adopt(FABRIC, installed(job, {FLOW: split(FIRST, SECOND)}), [job])
    assert routes.routes == {FLOW: split(FIRST, SECOND, shares=shares)}


@pytest.mark.parametrize("missing", [0, 1])
def test_subflows_that_leave_out_a_class_are_no_route_of_the_job(missing: int) -> None:
    job, routes = job_of("job", 4), RunningRoutes()
    rules = dict(installed(job, {FLOW: split(FIRST, SECOND, THIRD, shares=(0.2, 0.3, 0.5))}))
    gone = pin_key(FLOW, parts_of(job, FLOW.pair)[missing][0])
    rules[Dpid(1)] = replace(rules[Dpid(1)], flows={k: rule for k, rule in rules[Dpid(1)].flows.items() if k != gone})
    routes.adopt(FABRIC, rules, [job])
    assert FLOW not in routes.routes


def test_saved_shares_are_kept_until_no_orphan_is_expected_any_more() -> None:
    routes = RunningRoutes({FLOW.pair: UNEVEN})
    routes.forget_orphans()
    assert routes.shares == {FLOW.pair: UNEVEN}
    routes.drop_orphans()
    assert routes.shares == {}


def test_only_routes_that_the_jobs_can_have_are_kept() -> None:
    routes = RunningRoutes()
    for jobs, kept in (([job_of("job", 2)], 1), ([job_of("job", 1)], 0), ([], 0)):
        routes.replace({FLOW: split(FIRST, SECOND)})
        routes.release({job.id: job for job in jobs})
        assert len(routes.routes) == kept
    routes.replace({FLOW: whole(FIRST)})
    routes.release({job.id: job for job in [job_of("job", 1)]})
    assert routes.routes


def test_routes_that_a_job_has_claimed_go_with_it() -> None:
    job, other, wanted = job_of("job", 4), job_of("other", 1), {FLOW: split(FIRST, SECOND)}
    for earlier in ([], [{other.id: other}]):
        routes = RunningRoutes()
        routes.adopt(FABRIC, installed(job, wanted), [])
        for jobs in earlier:
            routes.release(jobs)
        assert routes.claim(job)
        assert FLOW in routes.routes
        routes.release({other.id: other})
        assert not routes.routes


# ---- installed pins and hosts


TWO_CABLES = leaf_spine(2, 1, 1, 1e9, 1e9, cables=2)


def rules_of(fabric: Fabric, *pins: Pin) -> dict[Dpid, RuleSet]:
    return dict(Pipeline(SETTINGS).desired(fabric, pins, {}))


def test_hosts_and_pins_are_read_back_with_ports_and_paths_parallel_cables_too() -> None:
    assert dict(installed_hosts(rules_of(FABRIC))) == {ip: host.at for ip, host in FABRIC.hosts.items()}
    for fabric in (FABRIC, TWO_CABLES):
        for path in CandidatePaths(fabric, 64).between(LEAF1, LEAF2):
            pin = Pin(FLOW, 7, path)
            assert list(installed_pins(fabric, rules_of(fabric, pin))) == [pin]


def test_a_pin_is_not_followed_where_its_next_hop_is_not_known() -> None:
    """The spine has two cables to the leaf and lost its table row: the packets may take either cable."""
    path = CandidatePaths(TWO_CABLES, 64).between(LEAF1, LEAF2)[0]
    rules = rules_of(TWO_CABLES, Pin(FLOW, 7, path))
    spine = path[1].dpid
    flows = {key: rule for key, rule in rules[spine].flows.items() if key != pin_key(FLOW)}
    rules[spine] = replace(rules[spine], flows=flows)
    assert list(installed_pins(TWO_CABLES, rules)) == [Pin(FLOW, 7, None)]


def test_a_pin_over_a_link_or_a_path_group_that_is_not_there_or_empty_has_no_path() -> None:
    rules = rules_of(FABRIC, Pin(FLOW, 7, FIRST))
    assert list(installed_pins(cut_one_way(FIRST[1]), rules)) == [Pin(FLOW, 7, None)]
    for left in ({}, {number: GroupRule(number, "fast_failover", ()) for number in rules[LEAF1].groups}):
        without_group = {**rules, LEAF1: replace(rules[LEAF1], groups=left)}
        assert list(installed_pins(FABRIC, without_group)) == [Pin(FLOW, 7, None)]


# ---- pins


def one_way_of(job: Job) -> Job:
    links = VirtualLinks(link for link in job.virtual_links if (link.src_ip, link.dst_ip) == FLOW.pair)
    return replace(job, virtual_links=links)


def test_acknowledgements_keep_their_cables_while_one_of_them_is_lost() -> None:
    """A cable is lost in the direction of acknowledgements only; they fail over, and later return to the cable."""
    one_way = one_way_of(job_of("job", 1))
    derive, routes = Pins(), {FLOW: whole(FIRST)}
    before = derive(FABRIC, by_id(one_way), routes, ())
    assert {pin.flow for pin in before} == {FLOW, BACK}
    assert all(pin.path for pin in before)
    there = FABRIC.links[FIRST[1]].dst
    assert derive(cut_one_way(LinkId(*there)), by_id(one_way), routes, ()) == before
    assert derive(FABRIC, by_id(one_way), routes, ()) == before


def test_acknowledgements_follow_a_cable_that_was_plugged_in_elsewhere() -> None:
    """The last cable of the path ends at another port of the same switch."""
    one_way = one_way_of(job_of("job", 1))
    up, down = FIRST
    port = PortRef(Dpid(2), PortNo(77))
    there = FABRIC.links[down]
    links = {key: link for key, link in FABRIC.links.items() if key != LinkId(*there.dst)}
    moved = {down: replace(there, dst=port), LinkId(*port): replace(there, src=port, dst=there.src)}
    derive, routes = Pins(), {FLOW: whole(FIRST)}
    derive(FABRIC, by_id(one_way), routes, ())
    pins = derive(replace(FABRIC, links={**links, **moved}), by_id(one_way), routes, ())
    assert [pin.path for pin in pins if pin.flow == BACK] == [(LinkId(*port), LinkId(*FABRIC.links[up].dst))]


def test_a_job_without_pairs_loses_its_pins_also_when_links_change_at_the_same_time() -> None:
    derive, job = Pins(), job_of("job", 1)
    assert len(derive(FABRIC, by_id(job), {FLOW: whole(FIRST)}, ()))
    observed = replace(job, virtual_links=VirtualLinks())
    assert not len(derive(cut_one_way(SECOND[1]), by_id(observed), {}, ()))


def test_orphans_stand_beside_the_pins_of_jobs_where_both_hosts_are_known() -> None:
    orphan = Pin(FlowId("10.0.0.2", "10.0.1.2"), 5, SECOND)
    taken, nowhere = replace(orphan, flow=FLOW), replace(orphan, flow=FlowId("10.0.0.2", "10.9.9.9"))
    pins = Pins()(FABRIC, by_id(job_of("job")), {FLOW: whole(FIRST)}, (orphan, taken, nowhere))
    assert [pin for pin in pins if pin.owner == 5] == [orphan]


def test_subflows_that_stay_keep_their_class() -> None:
    running = split(FIRST, SECOND)
    assert in_place(split(SECOND, FIRST), running) == running
    assert in_place(split(THIRD, FIRST), running) == split(FIRST, THIRD)
    assert in_place(split(SECOND, THIRD), running) == split(THIRD, SECOND)
    assert in_place(whole(SECOND), running) == whole(SECOND)


# ---- routes in force


JOBS = by_id(job_of("one"), job_of("two", flow=OTHER))


def pinned(pins: PinSet, flow: FlowId) -> list[Path]:
    return [pin.path for of_job in pins.of.values() for pin in of_job if pin.flow == flow and pin.path]


def test_a_detour_is_pinned_until_a_short_way_is_back() -> None:
    pins = Pins()
    cut = without(FABRIC, {FIRST[0], SECOND[1], THIRD[1]})
    detour = CandidatePaths(cut, 64).between(LEAF1, LEAF2)[0]
    assert len(detour) == 4
    routes: Routes = {FLOW: whole(detour), OTHER: whole(ELSEWHERE)}
    found = pins(cut, JOBS, routes, ())
    assert (pinned(found, FLOW), pinned(found, OTHER), found.invalid) == ([detour], [ELSEWHERE], frozenset())
    some = without(FABRIC, {FIRST[0]})
    found = pins(some, JOBS, routes, ())
    assert not pinned(found, FLOW) + pinned(found, FLOW.back)
    assert found.invalid == {"one"}
    assert pinned(found, OTHER) == [ELSEWHERE]
    assert pinned(pins(cut, JOBS, routes, ()), FLOW) == [detour], "the short way has gone again"
    found = pins(some, JOBS, {**routes, FLOW: whole(SECOND)}, ())
    assert (pinned(found, FLOW), found.invalid) == ([SECOND], frozenset()), "the next plan"


def test_a_route_falls_with_any_of_its_subflows() -> None:
    pins = Pins()
    routes: Routes = {FLOW: (PathShare(FIRST, 0.5), PathShare(SECOND, 0.5)), OTHER: whole(ELSEWHERE)}
    assert set(pinned(pins(FABRIC, JOBS, routes, ()), FLOW)) == {FIRST, SECOND}
    found = pins(without(FABRIC, {FIRST[1]}), JOBS, routes, ())
    assert not pinned(found, FLOW)
    assert found.invalid == {"one"}


def test_a_route_falls_when_its_host_is_elsewhere_and_is_not_judged_while_that_is_not_known() -> None:
    pins = Pins()
    routes: Routes = {FLOW: whole(FIRST)}
    host = FABRIC.hosts[FLOW.dst_ip]
    moved = replace(FABRIC, hosts={**FABRIC.hosts, FLOW.dst_ip: replace(host, at=PortRef(LEAF3, PortNo(77)))})
    gone = replace(FABRIC, hosts={ip: one for ip, one in FABRIC.hosts.items() if ip != FLOW.dst_ip})
    for fabric, paths, invalid in (
        (FABRIC, [FIRST], set()),
        (moved, [], {"one"}),
        (gone, [], set()),
        (FABRIC, [FIRST], set()),
    ):
        found = pins(fabric, JOBS, routes, ())
        assert pinned(found, FLOW) == paths
        assert found.invalid == invalid


def test_a_job_that_is_gone_has_no_fallen_routes() -> None:
    pins = Pins()
    cut = without(FABRIC, {FIRST[0]})
    assert pins(cut, JOBS, {FLOW: whole(FIRST)}, ()).invalid == {"one"}
    left = by_id(*(job for job in JOBS.values() if job.id == "two"))
    assert pins(cut, left, {}, ()).invalid == frozenset()


# ---- losses


def used(fabric: Fabric, path: Path | None) -> frozenset[LinkId]:
    uses = possible_links(fabric, [Pin(FLOW, 7, path)], CandidatePaths(fabric, 64))
    return frozenset().union(*uses[Counted(*FLOW.pair)])


def test_a_pinned_flow_may_use_its_path_and_any_other_every_candidate() -> None:
    ends = {FABRIC.hosts[FLOW.src_ip].uplink, FABRIC.hosts[FLOW.dst_ip].downlink}
    assert used(FABRIC, FIRST) == {*FIRST, *ends}
    assert used(FABRIC, None) == {*FIRST, *SECOND, *THIRD, *ends}
    assert used(cut_one_way(FIRST[1]), FIRST) == {*SECOND, *THIRD, *ends}, "it has failed over"


# ---- confirmed routes

SPLIT = (PathShare(FIRST, 0.5), PathShare(SECOND, 0.5))
HOSTS = {FLOW.src_ip: Host(FLOW.src_ip, None, PortRef(Dpid(1), PortNo(9)), 1e9)}
PARTS = [FlowPart(Transport.TCP, ports) for ports in (PortClass(0, 2), PortClass(2, 2))]
PINS = PinSet({"job": tuple(Pin(FLOW, 7, path, part) for (path, _), part in zip(SPLIT, PARTS, strict=True))})


def pin_rules(*pins: Pin) -> dict[Dpid, RuleSet]:
    return {Dpid(1): RuleSet.of(FlowRule(pin.key, 0, (ToGroup(3),)) for pin in pins)}


def test_a_route_is_confirmed_when_all_of_its_subflows_are() -> None:
    wanted, derive = pin_rules(*PINS), ConfirmedRoutes()
    for installed, count in (
        (pin_rules(), 0),
        (pin_rules(*list(PINS)[:1]), 1),
        (pin_rules(*PINS), 2),
        (pin_rules(), 0),
    ):
        found = derive(HOSTS, {FLOW: SPLIT}, PINS, wanted, installed)
        assert (found.pins, found.routes) == (count, {"job": {FLOW: SPLIT}} if count == 2 else {})


def test_a_route_is_confirmed_by_the_rule_of_the_job_that_announced_its_flow_before() -> None:
    """Jobs that exchange hosts change the cookies of rules, not the paths of packets."""
    pins = PinSet({"job": (Pin(FLOW, 7, FIRST),)})
    wanted = {Dpid(1): RuleSet.of([FlowRule(pin.key, 7, (ToGroup(3),)) for pin in pins])}
    of_other = {Dpid(1): RuleSet.of([FlowRule(pin.key, 8, (ToGroup(3),)) for pin in pins])}
    elsewhere = {Dpid(1): RuleSet.of([FlowRule(pin.key, 8, (ToGroup(4),)) for pin in pins])}
    derive = ConfirmedRoutes()
    for installed, found in (
        (of_other, {"job": {FLOW: whole(FIRST)}}),
        (elsewhere, {}),
        (wanted, {"job": {FLOW: whole(FIRST)}}),
    ):
        assert derive(HOSTS, {FLOW: whole(FIRST)}, pins, wanted, installed).routes == found


def test_a_new_route_is_not_confirmed_by_pins_of_the_one_before() -> None:
    """The new route waits for its turn to be installed, and an audit reads the rules."""
    pins = PinSet({"job": (Pin(FLOW, 7, FIRST),)})
    wanted, derive = pin_rules(*pins), ConfirmedRoutes()
    assert derive(HOSTS, {FLOW: whole(FIRST)}, pins, wanted, pin_rules(*pins)).routes == {"job": {FLOW: whole(FIRST)}}
    assert derive(HOSTS, {FLOW: whole(SECOND)}, pins, wanted, pin_rules(*pins)).routes == {}
    counting = {Dpid(1): RuleSet.of(counting_rule(pin, 2) for pin in pins)}
    assert ConfirmedRoutes()(HOSTS, {FLOW: whole(FIRST)}, pins, counting, counting) == (0, {}), "it could not stand"


@pytest.mark.parametrize("seed", with_long(range(6), range(20)))
def test_what_is_confirmed_is_the_same_as_if_all_were_looked_at(seed: int) -> None:
    """Pins, desired rules and installed rules change at random.

    Two jobs have the same pin for a while, when one of them lost the pair and waits for its turn."""
    draw, derive = random.Random(seed), ConfirmedRoutes()
    hosts = {ip: Host(ip, None, PortRef(Dpid(n % 2 + 1), PortNo(9)), 1e9) for n, ip in enumerate("abcd")}
    kept: dict[str, tuple[Pin, ...]] = {}
    rules: dict[Dpid, RuleSet] = {}
    for _ in range(60):
        if draw.random() < 0.5:
            name = draw.choice("abc")
            src = draw.choice([name, name, *"abc"])
            flows = [FlowId(src, dst, name) for dst in "abcd" if dst != src and draw.random() < 0.5]
            kept = {**kept, name: tuple(Pin(flow, 7, draw.choice([FIRST, SECOND, None])) for flow in flows)}
            if draw.random() < 0.2:
                del kept[name]
        pins = PinSet(kept)
        routes = {pin.flow: whole(pin.path) for pin in pins if pin.path}
        keys = [pin.key for pin in pins]
        here, there = (
            {dpid: RuleSet.of(_drawn(draw, keys, rules.get(dpid))) for dpid in (Dpid(1), Dpid(2))} for _ in range(2)
        )
        rules = here if draw.random() < 0.7 else there
        installed = draw.choice([rules, there, {Dpid(1): here[Dpid(1)]}])
        assert derive(hosts, routes, pins, rules, installed) == ConfirmedRoutes()(hosts, routes, pins, rules, installed)


def _drawn(draw: random.Random, keys: list[FlowKey], before: RuleSet | None) -> Iterator[FlowRule]:
    """Yield random rules for the keys; some keys keep their former rule, some have none."""
    for key in keys:
        if before and key in before.flows and draw.random() < 0.6:
            yield before.flows[key]
        elif draw.random() < 0.8:
            yield FlowRule(key, 0, (ToGroup(draw.randint(1, 2)),), draw.choice([None, None, Table.DEFAULT]))
