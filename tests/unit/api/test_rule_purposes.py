"""Purposes of rules, tested on the rules that a controller has really installed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from controller.api.rule_purposes import Ordered, Purpose, Purposes, Use, actions_text, match_text, ordered
from controller.fabric.topology import Dpid, PortNo
from controller.jobs.messages import SavedState
from controller.planning.problem import FlowId
from controller.tables.flow_tables import FlowPart, pin_key
from controller.tables.rules import (
    ETH_ARP,
    ETH_LLDP,
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    Output,
    Prefix,
    Rule,
    RuleSet,
    SetDscp,
    Table,
    ToController,
    ToGroup,
    dropped_cookie,
    host_prefix,
)
from signalbox.jobs.spec import ROCE_PORT, JobId, Transport
from signalbox.jobs.subflows import PortClass, exactly
from tests.support.fake_fabric import FakeFabric
from tests.support.three_rings import CONFIG, started

LEAF1 = Dpid(1)


@pytest.fixture(scope="module")
def fabric() -> FakeFabric:
    return started(FakeFabric(), 0, 1, 2)


def uses(fabric: FakeFabric, dpid: Dpid = LEAF1) -> Iterator[tuple[Rule, Use]]:
    status = fabric.status
    purposes, of = Purposes(dpid, status.fabric, status.jobs), ordered(status.rules[dpid])
    assert len(of.rules) == len(status.rules[dpid])
    return ((rule, purposes.of(rule, of.owners)) for rule in of.rules)


def test_every_rule_has_a_purpose_what_is_not_carried_is_dropped_and_all_that_is_hashed_leads_somewhere(
    fabric: FakeFabric,
) -> None:
    purposes = [use.purpose for dpid in fabric.switches for _, use in uses(fabric, dpid)]
    assert {*purposes} == {*Purpose} - {Purpose.COUNTING, Purpose.ORPHAN, Purpose.FOUND}
    found = [(rule, use) for rule, use in uses(fabric) if isinstance(rule, FlowRule)]
    assert [rule for rule, use in found if use.purpose is Purpose.DROP] == [
        rule for rule, _ in found if rule.cookie == dropped_cookie()
    ]
    assert all(use.towards is not None for _, use in found if use.purpose is Purpose.ECMP)


def test_each_pinned_flow_has_a_pin_of_its_job_at_its_leaf_and_on_the_way_back(fabric: FakeFabric) -> None:
    status = fabric.status
    for job_id, job in status.jobs.items():
        for flow, route in job.routes.items():
            assert route
            leaf = status.fabric.hosts[flow.src_ip].at.dpid
            pins = [use for rule, use in uses(fabric, leaf) if isinstance(rule, FlowRule) and use.flow == flow]
            assert [(use.purpose, use.jobs, use.answers) for use in pins] == [(Purpose.PIN, (job_id,), False)]
            assert pins[0].towards == status.fabric.hosts[flow.dst_ip].at.dpid
    answers = [use for _, use in uses(fabric) if use.answers]
    assert answers
    assert {use.purpose for use in answers} == {Purpose.PIN}


def test_a_path_group_serves_the_jobs_whose_pins_point_at_it_and_one_that_leads_nowhere_known_was_found(
    fabric: FakeFabric,
) -> None:
    groups = [(rule, use) for rule, use in uses(fabric) if isinstance(rule, GroupRule)]
    assert {use.purpose for rule, use in groups if rule.kind == "select"} == {Purpose.ECMP}
    assert all(use.jobs and use.towards for rule, use in groups if rule.kind == "fast_failover")
    assert Counter(use.towards for rule, use in groups if rule.kind == "select") == Counter(map(Dpid, (2, 3, 4)))
    other = GroupRule(77, "select", (Bucket(Output(PortNo(1))),))
    assert Purposes(LEAF1, fabric.status.fabric, fabric.status.jobs).of(other, {}) == Use(Purpose.FOUND)


def test_flows_that_are_hashed_are_only_counted() -> None:
    fabric = started(FakeFabric(), 0, 1, 2)
    for port in (1, 2, 3, 4):
        fabric.cut(Dpid(2), PortNo(port))
    fabric.run(3)
    counting = {use.jobs for _, use in uses(fabric) if use.purpose is Purpose.COUNTING}
    assert counting == {(JobId(f"job{number}"),) for number in range(3)}


def test_pins_of_jobs_that_a_new_controller_does_not_know_are_orphans() -> None:
    fabric = started(FakeFabric(), 0, 1, 2)
    fabric.saved = SavedState()
    fabric.start(CONFIG)
    fabric.run(3)
    orphans = [use for _, use in uses(fabric) if use.purpose is Purpose.ORPHAN]
    assert orphans
    assert all(use.flow and not use.jobs for use in orphans)
    assert Purpose.PIN not in {use.purpose for rule, use in uses(fabric) if isinstance(rule, FlowRule)}


def test_rules_have_an_order_without_equals(fabric: FakeFabric) -> None:
    found: Ordered = ordered(fabric.status.rules[LEAF1])
    assert sorted({*found.keys}) == [*found.keys]
    kinds = [type(rule) for rule in found.rules]
    assert [*dict.fromkeys(kinds)] == [FlowRule, GroupRule, MeterRule]
    flows = [rule.key for rule in found.rules if isinstance(rule, FlowRule)]
    assert flows == sorted(flows, key=lambda key: (key.table, -key.priority, match_text(key.match)))
    assert ordered(RuleSet()).keys == ()


# ---- notation of ovs-ofctl


FLOW = FlowId("10.0.1.1", "10.0.2.1")


@pytest.mark.parametrize(
    ("match", "text"),
    [
        (Match(), ""),
        (Match(in_port=PortNo(3), eth_type=ETH_LLDP), "dl_type=0x88cc,in_port=3"),
        (
            Match(in_port=PortNo(3), eth_type=ETH_ARP, eth_dst="ff:ff:ff:ff:ff:ff", arp_spa=host_prefix("10.0.1.1")),
            "arp,in_port=3,dl_dst=ff:ff:ff:ff:ff:ff,arp_spa=10.0.1.1",
        ),
        (Match(eth_type=ETH_ARP, arp_tpa=Prefix("10.0.2.0", 24)), "arp,arp_tpa=10.0.2.0/24"),
        (pin_key(FLOW).match, "ip,nw_src=10.0.1.1,nw_dst=10.0.2.1"),
        (
            pin_key(FLOW, FlowPart(Transport.TCP, PortClass(2, 6))).match,
            "tcp,nw_src=10.0.1.1,nw_dst=10.0.2.1,tp_src=0x2/0x6",
        ),
        (
            pin_key(FLOW, FlowPart(Transport.ROCE_V2, exactly(4000))).match,
            f"udp,nw_src=10.0.1.1,nw_dst=10.0.2.1,tp_src=4000,tp_dst={ROCE_PORT}",
        ),
    ],
)
def test_matches(match: Match, text: str) -> None:
    assert match_text(match) == text


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (FlowRule(FlowKey(Table.PINNED, 100, Match()), 0), "drop"),
        (FlowRule(FlowKey(Table.PINNED, 100, Match()), 0, (ToGroup(7),)), "group:7"),
        (FlowRule(FlowKey(Table.PINNED, 100, Match()), 0, (SetDscp(26), ToGroup(7))), "set_field:26->ip_dscp,group:7"),
        (
            FlowRule(FlowKey(Table.CONTROL, 80, Match()), 0, (ToController(),), Table.PINNED, meter=3),
            "meter:3,CONTROLLER:65535,goto_table:1",
        ),
        (
            GroupRule(9, "fast_failover", (Bucket(Output(PortNo(2)), 2), Bucket(ToGroup(7), watch_group=7))),  # type: ignore[arg-type]
            "type=ff,bucket=watch_port:2,actions=output:2,bucket=watch_group:7,actions=group:7",
        ),
        (MeterRule(3, 50, 40), "pktps,burst,bands=type=drop,rate=50,burst_size=40"),
    ],
)
def test_actions(rule: Rule, text: str) -> None:
    assert actions_text(rule) == text
