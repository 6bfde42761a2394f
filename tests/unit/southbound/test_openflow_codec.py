"""Rules to bytes and back, through Ryu's serialiser and parser."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Dpid, Port, PortNo
from controller.jobs.source_ports import PortClass
from controller.messages import PortCount
from controller.southbound import openflow_codec as codec
from controller.southbound.framework import PROTOCOL, ofp, ofp_parser
from controller.tables.rules import (
    COOKIE_MAGIC,
    COOKIE_MASK,
    ETH_ARP,
    ETH_IPV4,
    ETH_LLDP,
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
    ToController,
    ToGroup,
    cookie,
)

ports = st.integers(1, ofp.OFPP_MAX).map(PortNo)
group_ids = st.integers(0, ofp.OFPG_MAX)
macs = st.binary(min_size=6, max_size=6).map(lambda raw: raw.hex(":"))


@st.composite
def prefixes(draw: st.DrawFn) -> Prefix:
    length = draw(st.integers(1, 32))
    host_bits = 32 - length
    address = draw(st.integers(0, (1 << 32) - 1)) >> host_bits << host_bits
    return Prefix(".".join(map(str, address.to_bytes(4, "big"))), length)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def match_of(**fields: Any) -> Match:
    """Only the fields that are given; hypothesis would think of values for the others too."""
    return Match(**fields)


any_match = st.builds(match_of, in_port=optional(ports), eth_type=optional(st.just(ETH_LLDP)), eth_dst=optional(macs))
ip_match = st.builds(
    match_of,
    in_port=optional(ports),
    eth_type=st.just(ETH_IPV4),
    eth_dst=optional(macs),
    ipv4_src=optional(prefixes()),
    ipv4_dst=prefixes(),
)
port_masks = st.builds(
    lambda value, mask: PortClass(value & mask, mask), st.integers(0, 0xFFFF), st.integers(1, 0xFFFF)
)
l4_match = st.builds(
    match_of,
    eth_type=st.just(ETH_IPV4),
    ipv4_src=optional(prefixes()),
    ipv4_dst=prefixes(),
    ip_proto=st.sampled_from([IP_TCP, IP_UDP]),
    src_port=optional(port_masks),
    dst_port=optional(port_masks),
)
arp_match = st.builds(
    match_of,
    in_port=optional(ports),
    eth_type=st.just(ETH_ARP),
    eth_dst=optional(macs),
    arp_tpa=optional(prefixes()),
)
matches = any_match | ip_match | l4_match | arp_match
outputs = st.builds(Output, ports)
to_groups = st.builds(ToGroup, group_ids)
keys = st.builds(FlowKey, st.sampled_from(Table), st.integers(0, 65535), matches)
flow_rules = st.builds(
    FlowRule,
    keys,
    st.builds(cookie, st.sampled_from(Table), st.integers(0, (1 << 40) - 1)),
    st.lists(outputs | to_groups | st.just(ToController()), max_size=3).map(tuple),
    optional(st.sampled_from(Table)),
    optional(st.integers(1, ofp.OFPM_MAX)),
)
buckets = st.builds(Bucket, outputs | to_groups, optional(ports), optional(group_ids))
group_rules = st.builds(
    GroupRule,
    group_ids,
    st.sampled_from(["select", "fast_failover"]),
    st.lists(buckets, max_size=33).map(tuple),
)
meter_rules = st.builds(MeterRule, st.integers(1, ofp.OFPM_MAX), st.integers(1, 1 << 31), st.integers(1, 1 << 31))


def wire(message: Any) -> Any:
    """The message after a trip over the wire."""
    message.set_xid(7)
    message.serialize()
    buf = bytes(message.buf)
    version, kind, length, xid = struct.unpack_from("!BBHI", buf)
    assert length == len(buf)
    return ofp_parser.msg_parser(PROTOCOL, version, kind, length, xid, buf)


def as_flow_stats(mod: Any) -> Any:
    """The flow entry that a flow mod makes, as a switch tells it: over the wire too."""
    stats = ofp_parser.OFPFlowStats(
        mod.table_id, 0, 0, mod.priority, mod.idle_timeout, mod.hard_timeout, mod.flags, mod.cookie, 0, 0, mod.match
    )
    stats.instructions = mod.instructions
    buf = bytearray()
    body = bytearray()
    mod.match.serialize(body, 0)
    for instruction in mod.instructions:
        instruction.serialize(body, len(body))
    head = struct.pack(
        ofp.OFP_FLOW_STATS_0_PACK_STR,
        ofp.OFP_FLOW_STATS_0_SIZE + len(body),
        *(mod.table_id, 0, 0, mod.priority, mod.idle_timeout, mod.hard_timeout, mod.flags, mod.cookie, 0, 0),
    )
    buf += head + body
    return ofp_parser.OFPFlowStats.parser(bytes(buf), 0)


def add(rule: Any) -> Any:
    return wire_mod(codec.mod_message(RuleMod("add", rule)))


def wire_mod(message: Any) -> Any:
    message.set_xid(7)
    message.serialize()
    return message


@settings(deadline=None)
@given(flow_rules)
def test_a_flow_rule_survives_the_wire(rule: FlowRule) -> None:
    assert codec.flow_rule(as_flow_stats(add(rule))) == rule


@settings(deadline=None)
@given(group_rules)
def test_a_group_rule_survives_the_wire(rule: GroupRule) -> None:
    message = add(rule)
    body = bytes(message.buf)[ofp.OFP_GROUP_MOD_SIZE :]
    head = struct.pack(
        ofp.OFP_GROUP_DESC_STATS_PACK_STR, ofp.OFP_GROUP_DESC_STATS_SIZE + len(body), message.type, message.group_id
    )
    assert codec.group_rule(ofp_parser.OFPGroupDescStats.parser(head + body, 0)) == rule


@settings(deadline=None)
@given(meter_rules)
def test_a_meter_rule_survives_the_wire(rule: MeterRule) -> None:
    message = add(rule)
    bands = bytes(message.buf)[ofp.OFP_METER_MOD_SIZE :]
    head = struct.pack(
        ofp.OFP_METER_CONFIG_PACK_STR, ofp.OFP_METER_CONFIG_SIZE + len(bands), message.flags, message.meter_id
    )
    assert codec.meter_rule(ofp_parser.OFPMeterConfigStats.parser(head + bands, 0)) == rule


PIN = FlowRule(
    FlowKey(Table.PINNED, 100, Match(eth_type=ETH_IPV4, ipv4_dst=Prefix("10.0.1.2"))),
    cookie(Table.PINNED, 5),
    (ToGroup(9),),
)


@pytest.mark.parametrize(
    ("op", "command", "mask"),
    [
        ("add", ofp.OFPFC_ADD, 0),
        ("modify", ofp.OFPFC_MODIFY_STRICT, COOKIE_MASK),
        ("delete", ofp.OFPFC_DELETE_STRICT, COOKIE_MASK),
    ],
)
def test_flow_mods_reach_one_entry_of_ours_and_never_reset_counters(op: Any, command: int, mask: int) -> None:
    message = wire_mod(codec.mod_message(RuleMod(op, PIN)))
    head = struct.unpack_from(ofp.OFP_FLOW_MOD_PACK_STR0, bytes(message.buf), ofp.OFP_HEADER_SIZE)
    cookie_, cookie_mask, table, sent, idle, hard, priority, buffer_id, out_port, out_group, flags = head
    assert (cookie_, cookie_mask, table, sent, priority) == (PIN.cookie, mask, Table.PINNED, command, 100)
    assert (idle, hard, flags, buffer_id) == (0, 0, 0, ofp.OFP_NO_BUFFER)
    assert (out_port, out_group) == (ofp.OFPP_ANY, ofp.OFPG_ANY)


@pytest.mark.parametrize("prefix", [Prefix("10.0.1.2", 24), Prefix("0.0.0.0", 0)])
def test_a_prefix_that_a_switch_would_not_keep_is_an_error(prefix: Prefix) -> None:
    rule = FlowRule(FlowKey(Table.DEFAULT, 1, Match(eth_type=ETH_IPV4, ipv4_dst=prefix)), cookie(Table.DEFAULT))
    with pytest.raises(ValueError, match="prefix"):
        codec.mod_message(RuleMod("add", rule))


@pytest.mark.parametrize(
    ("match", "why"),
    [
        (Match(eth_type=ETH_IPV4, src_port=PortClass(2, 6)), "needs IPv4 and TCP or UDP"),
        (Match(ip_proto=IP_TCP, src_port=PortClass(2, 6)), "needs IPv4 and TCP or UDP"),
        (Match(eth_type=ETH_IPV4, ip_proto=1, dst_port=PortClass(2, 6)), "needs IPv4 and TCP or UDP"),
        (Match(eth_type=ETH_IPV4, ip_proto=IP_UDP, dst_port=PortClass(3, 6)), "class of ports"),
        (Match(eth_type=ETH_IPV4, ip_proto=IP_UDP, dst_port=PortClass(0, 0)), "class of ports"),
    ],
)
def test_ports_that_a_switch_would_not_keep_are_an_error(match: Match, why: str) -> None:
    rule = FlowRule(FlowKey(Table.PINNED, 102, match), cookie(Table.PINNED))
    with pytest.raises(ValueError, match=why):
        codec.mod_message(RuleMod("add", rule))


def test_a_meter_without_burst_is_an_error_because_a_switch_would_change_it() -> None:
    with pytest.raises(ValueError, match="burst"):
        codec.mod_message(RuleMod("add", MeterRule(1, 10, 0)))


def foreign_flow(**changed: Any) -> Any:
    message = add(PIN)
    for name, value in changed.items():
        setattr(message, name, value)
    return as_flow_stats(message)


@pytest.mark.parametrize(
    "changed",
    [
        {"cookie": 0},
        {"table_id": 7},
        {"idle_timeout": 10},
        {"match": ofp_parser.OFPMatch(eth_type=ETH_IPV4, ip_dscp=6)},
        {"match": ofp_parser.OFPMatch(eth_type=ETH_IPV4, ipv4_dst=("10.0.0.1", "255.0.0.255"))},
        {"match": ofp_parser.OFPMatch(eth_dst=("01:00:00:00:00:00", "01:00:00:00:00:00"))},
        {"instructions": [ofp_parser.OFPInstructionActions(ofp.OFPIT_WRITE_ACTIONS, [])]},
        {"instructions": [ofp_parser.OFPInstructionGotoTable(9)]},
        {"instructions": [ofp_parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, [ofp_parser.OFPActionPopVlan()])]},
        {
            "instructions": [
                ofp_parser.OFPInstructionActions(
                    ofp.OFPIT_APPLY_ACTIONS, [ofp_parser.OFPActionOutput(ofp.OFPP_CONTROLLER, 128)]
                )
            ]
        },
    ],
)
def test_an_entry_that_our_rules_cannot_say_is_none(changed: dict[str, Any]) -> None:
    assert codec.flow_rule(foreign_flow()) == PIN
    assert codec.flow_rule(foreign_flow(**changed)) is None


def test_groups_and_meters_that_our_rules_cannot_say_are_none() -> None:
    output = ofp_parser.OFPActionOutput(1, 0)
    two_actions = ofp_parser.OFPBucket(1, 1, ofp.OFPG_ANY, [output, output])
    assert codec.group_rule(ofp_parser.OFPGroupDescStats(ofp.OFPGT_ALL, 1, [])) is None
    assert codec.group_rule(ofp_parser.OFPGroupDescStats(ofp.OFPGT_SELECT, 1, [two_actions])) is None
    assert codec.meter_rule(ofp_parser.OFPMeterConfigStats(ofp.OFPMF_KBPS, 1, [])) is None
    band = ofp_parser.OFPMeterBandDrop(1, 1)
    assert codec.meter_rule(ofp_parser.OFPMeterConfigStats(ofp.OFPMF_KBPS | ofp.OFPMF_BURST, 1, [band])) is None


def test_flow_stats_requests_ask_for_our_cookie_only() -> None:
    message = codec.flow_stats_request(Table.PINNED)
    assert (message.cookie, message.cookie_mask, message.table_id) == (COOKIE_MAGIC << 48, COOKIE_MASK, 1)


def test_a_packet_out_is_what_ryu_would_send() -> None:
    frame = b"\x01\x80\xc2\x00\x00\x0e" + b"x" * 54
    ours = codec.PacketOut(PortNo(3), frame)
    ours.set_xid(0x1234)
    action = ofp_parser.OFPActionOutput(3, 0)
    ryus = ofp_parser.OFPPacketOut(PROTOCOL, ofp.OFP_NO_BUFFER, ofp.OFPP_CONTROLLER, [action], frame)
    ryus.set_xid(0x1234)
    ryus.serialize()
    assert bytes(ours.buf) == bytes(ryus.buf)


def desc(number: int = 1, config: int = 0, state: int = 0, name: bytes = b"s1-eth1") -> Any:
    return ofp_parser.OFPPort(number, "02:00:00:00:00:01", name, config, state, 0, 0, 0, 0, 10_000_000, 0)


def test_a_port_has_its_speed_in_bits_per_second() -> None:
    assert codec.port(desc()) == Port(PortNo(1), "s1-eth1", "02:00:00:00:00:01", True, 1e10)


@pytest.mark.parametrize(("config", "state"), [(ofp.OFPPC_PORT_DOWN, 0), (0, ofp.OFPPS_LINK_DOWN)])
def test_a_port_is_up_only_when_nobody_and_nothing_holds_it_down(config: int, state: int) -> None:
    read = codec.port(desc(config=config, state=state))
    assert read is not None
    assert not read.up


def test_the_switchs_own_port_is_not_a_port_but_names_it() -> None:
    local = desc(ofp.OFPP_LOCAL, name=b"leaf1")
    assert codec.port(local) is None
    assert codec.switch_name(Dpid(1), [desc(), local]) == "leaf1"
    assert codec.switch_name(Dpid(0xAB), [desc()]) == "00000000000000ab"


def test_counters_that_a_switch_does_not_support_are_none() -> None:
    unsupported = (1 << 64) - 1
    stats = [
        ofp_parser.OFPPortStats(1, 0, 0, unsupported, 5, *[0] * 10),
        ofp_parser.OFPPortStats(ofp.OFPP_LOCAL, 0, 0, 1, 1, *[0] * 10),
    ]
    assert codec.port_counts(stats) == {1: PortCount(5, None)}


def test_an_error_is_told_by_its_names() -> None:
    refused = ofp_parser.OFPErrorMsg(PROTOCOL, ofp.OFPET_BAD_ACTION, ofp.OFPBAC_BAD_OUT_GROUP, b"")
    assert "OFPBAC_BAD_OUT_GROUP" in codec.error_reason(refused)
