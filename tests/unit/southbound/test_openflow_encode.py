"""Every message equals the one that Ryu's serialiser makes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from controller.fabric.topology import PortNo
from controller.southbound import openflow_encode as encode
from controller.southbound.framework import PROTOCOL, ofp, ofp_parser
from controller.tables.rules import (
    COOKIE_MAGIC,
    COOKIE_MASK,
    ETH_IPV4,
    IP_TCP,
    IP_UDP,
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    Output,
    Prefix,
    RuleMod,
    Table,
    cookie,
)
from signalbox.jobs.subflows import PortClass
from tests.support.rule_strategies import mods, ryu_message


def same(ours: bytes, ryus: Any) -> bool:
    ryus.set_xid(0)
    ryus.serialize()
    assert ours == bytes(ryus.buf)
    return True


@settings(max_examples=150)
@given(mods)
def test_a_change_of_a_rule_equals_the_message_of_ryu(mod: RuleMod) -> None:
    assert same(encode.mod_message(mod), ryu_message(mod))


def of_ours(kind: Any, table: int, cookie_: int, mask: int) -> Any:
    return kind(PROTOCOL, 0, table, ofp.OFPP_ANY, ofp.OFPG_ANY, cookie_, mask, ofp_parser.OFPMatch())


@pytest.mark.parametrize(
    ("ours", "ryus"),
    [
        (encode.barrier(), ofp_parser.OFPBarrierRequest(PROTOCOL)),
        (encode.role_request(2, 77), ofp_parser.OFPRoleRequest(PROTOCOL, ofp.OFPCR_ROLE_MASTER, 77)),
        (encode.all_request(ofp.OFPMP_PORT_STATS), ofp_parser.OFPPortStatsRequest(PROTOCOL, 0, ofp.OFPP_ANY)),
        (encode.all_request(ofp.OFPMP_GROUP_DESC), ofp_parser.OFPGroupDescStatsRequest(PROTOCOL, 0)),
        (encode.all_request(ofp.OFPMP_METER_CONFIG), ofp_parser.OFPMeterConfigStatsRequest(PROTOCOL, 0, ofp.OFPM_ALL)),
        (encode.all_request(ofp.OFPMP_TABLE), ofp_parser.OFPTableStatsRequest(PROTOCOL, 0)),
        (encode.all_request(ofp.OFPMP_TABLE_FEATURES), ofp_parser.OFPTableFeaturesStatsRequest(PROTOCOL, 0, [])),
        (encode.all_request(ofp.OFPMP_GROUP_FEATURES), ofp_parser.OFPGroupFeaturesStatsRequest(PROTOCOL, 0)),
        (encode.all_request(ofp.OFPMP_METER_FEATURES), ofp_parser.OFPMeterFeaturesStatsRequest(PROTOCOL, 0)),
        (encode.all_request(ofp.OFPMP_METER), ofp_parser.OFPMeterStatsRequest(PROTOCOL, 0, ofp.OFPM_ALL)),
        (
            encode.every_flow_request(ofp.OFPMP_AGGREGATE),
            of_ours(ofp_parser.OFPAggregateStatsRequest, ofp.OFPTT_ALL, 0, 0),
        ),
        (
            encode.counted_flows_request(),
            of_ours(ofp_parser.OFPFlowStatsRequest, ofp.OFPTT_ALL, 0x5B17_0100_0000_0000, 0xFFFF_0100_0000_0000),
        ),
        (
            encode.flow_stats_request(),
            of_ours(ofp_parser.OFPFlowStatsRequest, ofp.OFPTT_ALL, COOKIE_MAGIC << 48, COOKIE_MASK),
        ),
    ],
)
def test_a_request_equals_the_message_of_ryu(ours: bytes, ryus: Any) -> None:
    assert same(ours, ryus)


def flow(match: Match, priority: int = 1) -> FlowRule:
    return FlowRule(FlowKey(Table.PINNED, priority, match), cookie(Table.PINNED))


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (flow(Match(eth_type=ETH_IPV4, ip_dst=Prefix("10.0.1.2", 24))), "prefix"),
        (flow(Match(eth_type=ETH_IPV4, ip_dst=Prefix("0.0.0.0", 0))), "prefix"),
        (flow(Match(eth_type=ETH_IPV4, ip_dst=Prefix("10.0.1.2", 33))), "prefix"),
        (flow(Match(eth_type=ETH_IPV4, src_port=PortClass(2, 6))), "needs IPv4 and TCP or UDP"),
        (flow(Match(ip_proto=IP_TCP, src_port=PortClass(2, 6))), "needs IPv4 and TCP or UDP"),
        (flow(Match(eth_type=ETH_IPV4, ip_proto=1, dst_port=PortClass(2, 6))), "needs IPv4 and TCP or UDP"),
        (flow(Match(eth_type=ETH_IPV4, ip_proto=IP_UDP, dst_port=PortClass(3, 6))), "need a mask above 0"),
        (flow(Match(eth_type=ETH_IPV4, ip_proto=IP_UDP, dst_port=PortClass(0, 0))), "need a mask above 0"),
        (MeterRule(1, 10, 0), "burst"),
        (GroupRule(1, "select", (Bucket(Output(PortNo(1))),) * 2100), "does not fit"),
        (flow(Match(), priority=1 << 16), "does not fit"),
        (flow(Match(in_port=PortNo(1 << 32))), "does not fit"),
    ],
)
def test_a_rule_that_a_switch_would_change_or_that_does_not_fit_into_a_message_is_an_error(rule: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        encode.mod_message(RuleMod("add", rule))
