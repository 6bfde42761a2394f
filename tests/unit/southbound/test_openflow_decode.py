"""Rules that were sent to a switch are read back unchanged; malformed bytes raise ``Malformed`` and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Port, PortNo
from controller.southbound import openflow_decode as decode
from controller.southbound.framework import PROTOCOL, ofp, ofp_parser
from controller.southbound.multipart import Reply, multipart_reply
from controller.southbound.openflow_framing import Malformed
from controller.tables.messages import PortCount
from controller.tables.rules import (
    ETH_IPV4,
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    OtherTable,
    Output,
    RuleMod,
    Table,
    ToController,
    ToGroup,
    cookie,
    host_prefix,
)
from tests.support.openflow_entries import (
    flow_entry,
    flow_head,
    group_entry,
    group_room,
    meter_count,
    meter_entry,
    meter_room,
    port_entry,
    table_entry,
    table_limit,
)
from tests.support.rule_strategies import flow_rules, group_rules, meter_rules, ryu_message

UNSUPPORTED = (1 << 64) - 1


@given(st.lists(st.tuples(flow_rules, st.integers(0, UNSUPPORTED - 1)), max_size=4))
def test_flow_rules_come_back_with_their_counters(rules: list[tuple[FlowRule, int]]) -> None:
    body = b"".join(flow_entry(rule, count) for rule, count in rules)
    expected = [(rule, 3, count) for rule, count in rules]
    assert list(map(tuple, decode.flow_stats(body))) == expected
    assert list(map(tuple, decode.flow_stats(body))) == expected, "read again, from memory"


@given(flow_rules)
def test_ryu_reads_the_same_from_the_entry_of_a_flow(rule: FlowRule) -> None:
    theirs = ofp_parser.OFPFlowStats.parser(flow_entry(rule, 99), 0)
    asked = ryu_message(RuleMod("add", rule))
    asked.serialize()
    assert (theirs.priority, theirs.table_id, theirs.cookie, theirs.byte_count) == (*rule.key[1::-1], rule.cookie, 99)
    assert dict(theirs.match.items()) == dict(asked.match.items())
    assert [i.to_jsondict() for i in theirs.instructions] == [i.to_jsondict() for i in asked.instructions]


@given(st.lists(group_rules, max_size=3), st.lists(meter_rules, max_size=3))
def test_group_and_meter_rules_come_back(groups: list[GroupRule], meters: list[MeterRule]) -> None:
    assert decode.group_descs(b"".join(map(group_entry, groups))) == groups
    assert decode.meter_configs(b"".join(map(meter_entry, meters))) == meters


PIN = FlowRule(
    FlowKey(Table.PINNED, 100, Match(eth_type=ETH_IPV4, ip_dst=host_prefix("10.0.1.2"))),
    cookie(Table.PINNED, 5),
    (ToGroup(9),),
)


def ryu_entry(match: Any = None, instructions: tuple[Any, ...] = ()) -> bytes:
    body = bytearray()
    (match or ofp_parser.OFPMatch(eth_type=ETH_IPV4)).serialize(body, 0)
    for instruction in instructions:
        instruction.serialize(body, len(body))
    return flow_head(len(body), PIN) + bytes(body)


def apply(*actions: Any) -> Any:
    return ofp_parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, list(actions))


@pytest.mark.parametrize(
    "entry",
    [
        *(flow_entry(PIN, **changed) for changed in ({"cookie": 0}, {"table": 7}, {"idle": 10}, {"hard": 10})),
        ryu_entry(ofp_parser.OFPMatch(eth_type=ETH_IPV4, ip_dscp=6)),
        ryu_entry(ofp_parser.OFPMatch(eth_type=ETH_IPV4, ipv4_dst=("10.0.0.1", "255.0.0.255"))),
        ryu_entry(ofp_parser.OFPMatch(eth_dst=("01:00:00:00:00:00", "01:00:00:00:00:00"))),
        ryu_entry(ofp_parser.OFPMatch(eth_type=ETH_IPV4, tcp_src=1, udp_dst=2)),
        ryu_entry(instructions=(ofp_parser.OFPInstructionActions(ofp.OFPIT_WRITE_ACTIONS, []),)),
        ryu_entry(instructions=(ofp_parser.OFPInstructionGotoTable(9),)),
        ryu_entry(instructions=(apply(ofp_parser.OFPActionPopVlan()),)),
        ryu_entry(instructions=(apply(ofp_parser.OFPActionOutput(ofp.OFPP_CONTROLLER, 128)),)),
    ],
)
def test_a_foreign_entry_and_one_that_a_rule_cannot_express_is_none(entry: bytes) -> None:
    assert [count.rule for count in decode.flow_stats(entry + flow_entry(PIN))] == [None, PIN]


def test_a_counter_that_a_switch_does_not_have_is_none_and_the_largest_values_stay_exact() -> None:
    assert decode.flow_stats(flow_entry(PIN, UNSUPPORTED))[0].bytes is None
    body = port_entry(1, 5, UNSUPPORTED) + port_entry(ofp.OFPP_LOCAL, 1, 1) + port_entry(2, 3, 4)
    assert decode.port_stats(body) == {1: PortCount(5, None), 2: PortCount(3, 4)}
    assert decode.meter_stats(meter_count(3, UNSUPPORTED)) == [(3, None)]
    largest = UNSUPPORTED - 1
    assert decode.flow_stats(flow_entry(PIN, largest))[0].bytes == largest
    assert decode.port_stats(port_entry(1, largest, largest)) == {1: PortCount(largest, largest)}


def test_of_tables_and_groups_those_that_signalbox_uses_are_read_with_their_entries_and_limits() -> None:
    body = b"".join(table_entry(*table) for table in ((7, 1), (2, 30), (0, 0), (1, 200)))
    assert decode.table_stats(body) == {Table.DEFAULT: 30, Table.CONTROL: 0, Table.PINNED: 200}
    body = b"".join(table_limit(*table) for table in ((7, 1), (2, 1_000_000), (0, 2**32 - 1)))
    assert decode.table_features(body) == {Table.DEFAULT: 1_000_000, Table.CONTROL: 2**32 - 1}
    room = decode.group_features(group_room(1024, 2**32 - 1))
    assert room == {OtherTable.SELECT_GROUPS: 1024, OtherTable.FAST_FAILOVER_GROUPS: 2**32 - 1}
    assert decode.meter_features(meter_room(48)) == {OtherTable.METERS: 48}


def test_drops_are_those_of_all_bands_and_flows_are_counted() -> None:
    assert decode.meter_stats(meter_count(3, 5, 6) + meter_count(4)) == [(3, 11), (4, None)]
    assert decode.meter_stats(meter_count(3, 2**63, 2**63)) == [(3, UNSUPPORTED)]
    assert decode.flow_count(struct.pack("!QQI4x", 1, 2, 77)) == 77


def test_groups_and_meters_that_a_rule_cannot_express_are_like_none_that_is_wanted() -> None:
    two_actions = struct.pack("!HHII4x", 48, 1, 1, ofp.OFPG_ANY) + 2 * struct.pack("!HHIH6x", 0, 16, 1, 0)
    up = struct.pack("!HHII4x", 32, 1, 1, ofp.OFPG_ANY) + struct.pack("!HHIH6x", 0, 16, ofp.OFPP_CONTROLLER, 0xFFFF)
    for kind, buckets in ((ofp.OFPGT_ALL, b""), (ofp.OFPGT_SELECT, two_actions), (ofp.OFPGT_SELECT, up)):
        (group,) = decode.group_descs(struct.pack("!HBxI", 8 + len(buckets), kind, 1) + buckets)
        assert group == GroupRule(1, "select" if buckets else "other", ())
    other = MeterRule(1, 0, 0)
    assert decode.meter_configs(struct.pack("!HHI", 8, ofp.OFPMF_PKTPS | ofp.OFPMF_BURST, 1)) == [other]
    assert decode.meter_configs(meter_entry(MeterRule(1, 1, 1), ofp.OFPMF_KBPS | ofp.OFPMF_BURST)) == [other]


def packet_in_bytes(match: Any, frame: bytes) -> bytes:
    body = bytearray(struct.pack("!IHBBQ", ofp.OFP_NO_BUFFER, len(frame), 0, 0, 0))
    match.serialize(body, len(body))
    body += b"\0\0" + frame
    return struct.pack("!BBHI", 4, ofp.OFPT_PACKET_IN, 8 + len(body), 9) + bytes(body)


@pytest.mark.parametrize(
    ("match", "port"),
    [
        (ofp_parser.OFPMatch(in_port=7), 7),
        (ofp_parser.OFPMatch(in_port=7, metadata=5), 7),
        (ofp_parser.OFPMatch(metadata=5), None),
    ],
)
def test_a_packet_in_has_a_port_and_a_frame(match: Any, port: int | None) -> None:
    message = packet_in_bytes(match, b"frame")
    assert decode.packet_in(message) == (port, b"frame")
    assert ofp_parser.msg_parser(PROTOCOL, 4, ofp.OFPT_PACKET_IN, len(message), 9, message).data == b"frame"


def test_a_role_reply_has_a_role_and_a_generation_and_a_part_of_a_multipart_reply_the_number_of_its_request() -> None:
    assert decode.role_reply(struct.pack("!I4xQ", 2, 77)) == (2, 77)
    head = struct.pack("!BBHIHH4x", 4, ofp.OFPT_MULTIPART_REPLY, 18, 9, ofp.OFPMP_FLOW, ofp.OFPMPF_REPLY_MORE)
    assert multipart_reply(head + b"ab") == Reply(9, ofp.OFPMP_FLOW, True, b"ab")


def port_bytes(number: int = 1, config: int = 0, state: int = 0, name: bytes = b"s1-eth1") -> bytes:
    mac = bytes.fromhex("020000000001")
    return struct.pack(ofp.OFP_PORT_PACK_STR, number, mac, name, config, state, 0, 0, 0, 0, 10_000_000, 0)


def test_a_port_has_its_speed_in_bits_per_second_and_is_up_when_it_is_neither_switched_off_nor_without_carrier() -> (
    None
):
    """Control characters in its name are replaced."""
    assert decode.port_desc(port_bytes()) == Port(PortNo(1), "s1-eth1", "02:00:00:00:00:01", True, 1e10)
    assert ofp_parser.OFPPort.parser(port_bytes(), 0).curr_speed == 10_000_000
    assert not decode.port_desc(port_bytes(config=ofp.OFPPC_PORT_DOWN)).up
    assert not decode.port_desc(port_bytes(state=ofp.OFPPS_LINK_DOWN)).up
    assert decode.port_desc(port_bytes(name=b"\x1b[31meth\n1\xff")).name == "\ufffd[31meth\ufffd1\ufffd"


@pytest.mark.parametrize(("reason", "removed"), [(ofp.OFPPR_ADD, False), (ofp.OFPPR_DELETE, True)])
def test_a_port_status_is_a_port_and_whether_it_was_removed(reason: int, removed: bool) -> None:
    port = port_bytes(5)
    assert decode.port_status(bytes([reason]) + bytes(7) + port) == (decode.port_desc(port), removed)


def test_an_error_has_its_type_its_code_and_their_names() -> None:
    code, reason = decode.error(struct.pack("!HH", ofp.OFPET_BAD_ACTION, ofp.OFPBAC_BAD_OUT_GROUP) + bytes(64))
    assert code == (ofp.OFPET_BAD_ACTION, ofp.OFPBAC_BAD_OUT_GROUP)
    assert reason == "OFPET_BAD_ACTION(2): OFPBAC_BAD_OUT_GROUP(9)"
    experimenter = struct.pack("!HHI", ofp.OFPET_EXPERIMENTER, 7, 0x4F4E4600)
    assert decode.error(experimenter) == (None, "experimenter error 0x4f4e4600/7")


ROLE_STATUS = bytes.fromhex("4f4e4600 00000777 00000003 00000000 000000000000004d")
"""Body of the message in which Open vSwitch 3.1.0 says that the controller is a slave now."""


def test_a_role_status_has_the_new_role_and_other_messages_of_experimenters_have_none() -> None:
    assert decode.role_status(ROLE_STATUS) == decode.role_status(ROLE_STATUS + bytes(8)) == ofp.OFPCR_ROLE_SLAVE
    assert decode.role_status(struct.pack("!II", 0x4F4E4600, 1912)) is None


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (decode.error, b"\0\1\0"),
        (decode.error, struct.pack("!HHH", ofp.OFPET_EXPERIMENTER, 1, 0)),
        (decode.port_status, bytes(8)),
        (decode.port_status, bytes(8 + 63)),
        (decode.port_status, bytes(8 + 65)),
        (decode.port_status, b"\3" + bytes(7 + 64)),
        (decode.port_desc, bytes(63)),
        (decode.barrier_reply, b"\0"),
        (decode.role_reply, bytes(15)),
        (decode.role_status, bytes(7)),
        (decode.role_status, ROLE_STATUS[:-1]),
    ],
)
def test_messages_of_a_wrong_size_or_reason_are_malformed(read: Callable[[bytes], Any], body: bytes) -> None:
    with pytest.raises(Malformed):
        read(body)


# ---- malformed bytes

GROUP = GroupRule(
    7,
    "select",
    (Bucket(Output(PortNo(1)), PortNo(1)), Bucket(ToGroup(2), None, 2), Bucket(Output(PortNo(3)), PortNo(3))),
)
PUNT = FlowRule(
    FlowKey(Table.CONTROL, 9, Match(in_port=PortNo(4), eth_type=ETH_IPV4, eth_dst="02:00:00:00:00:01")),
    cookie(Table.CONTROL),
    (ToController(), Output(PortNo(3))),
    Table.PINNED,
    4,
)
READERS: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "flows": (decode.flow_stats, flow_entry(PIN, 5) + flow_entry(PUNT, 6) + ryu_entry()),
    "groups": (decode.group_descs, group_entry(GROUP) * 2),
    "meters": (decode.meter_configs, meter_entry(MeterRule(1, 2, 3)) * 2),
    "drops": (decode.meter_stats, meter_count(1, 2) + meter_count(2, 3, 4)),
    "count": (decode.flow_count, struct.pack("!QQI4x", 1, 2, 3)),
    "ports": (decode.port_stats, port_entry(1, 2, 3) * 2),
    "tables": (decode.table_stats, table_entry(0, 2) + table_entry(1, 3)),
    "limits of tables": (decode.table_features, table_limit(0, 2) + table_limit(1, 3)),
    "room for groups": (decode.group_features, group_room(2, 3)),
    "room for meters": (decode.meter_features, meter_room(2)),
    "packet-in": (decode.packet_in, packet_in_bytes(ofp_parser.OFPMatch(in_port=7, metadata=5), b"frame")),
    "packet-in, plain": (decode.packet_in, packet_in_bytes(ofp_parser.OFPMatch(in_port=7), b"frame")),
    "part": (multipart_reply, struct.pack("!BBHIHH4x", 4, ofp.OFPT_MULTIPART_REPLY, 16, 9, 1, 0)),
}


@pytest.mark.parametrize("name", ["flows", "groups", "meters", "drops"])
def test_no_structure_may_be_empty_or_reach_beyond_its_end(name: str) -> None:
    read, body = READERS[name]
    at = 4 if name == "drops" else 0
    for wrong in (b"\0\0", b"\0\4", b"\xff\xf8", struct.pack("!H", len(body) + 8)):
        with pytest.raises(Malformed):
            read(body[:at] + wrong + body[at + 2 :])


def test_no_part_of_a_flow_may_be_empty_or_reach_beyond_its_end() -> None:
    """The parts are the match, a field of it, the instruction and its action."""
    entry = flow_entry(PIN)
    match_at, instruction_at = 48, 72
    for wrong in (0, 1, 3, 0xFF):
        for at in (match_at + 2, match_at + 6, instruction_at + 2, instruction_at + 10):
            with pytest.raises(Malformed):
                decode.flow_stats(entry[:at] + bytes((wrong, wrong)) + entry[at + 2 :])


@pytest.mark.parametrize("field", range(40))
def test_no_match_field_has_a_value_of_three_bytes(field: int) -> None:
    oxm = struct.pack("!HBB", ofp.OFPXMC_OPENFLOW_BASIC, field << 1, 3) + b"abc"
    match = struct.pack("!HH", ofp.OFPMT_OXM, 4 + len(oxm)) + oxm + bytes(5)
    head = struct.pack("!HBxIIHHHH4xQQQ", 48 + len(match), 0, 0, 0, 1, 0, 0, 0, cookie(Table.CONTROL), 0, 0)
    with suppress(Malformed):  # no error if our rules never use the field: the rule is foreign
        assert [count.rule for count in decode.flow_stats(head + match)] == [None]


@pytest.mark.parametrize("name", READERS)
def test_a_body_that_is_cut_short_is_malformed_or_ends_between_two_entries(name: str) -> None:
    read, body = READERS[name]
    whole = read(body)
    for size in range(len(body)):
        try:
            part = read(body[:size])
        except Malformed:
            continue
        if isinstance(whole, list):
            assert part == whole[: len(part)]
        elif isinstance(whole, dict):
            assert part.items() <= whole.items()
        else:
            assert name.startswith("packet-in"), "only a frame can be any shorter"
            assert part[0] == whole[0]
            assert whole[1].startswith(part[1])


OTHERS: list[tuple[Callable[[bytes], Any], bytes]] = [
    (decode.error, struct.pack("!HH", ofp.OFPET_BAD_ACTION, ofp.OFPBAC_BAD_OUT_GROUP) + bytes(64)),
    (decode.port_status, bytes(8) + port_bytes(5)),
    (decode.role_reply, struct.pack("!I4xQ", 2, 77)),
]


@settings(max_examples=250)
@given(st.sampled_from([*READERS.values(), *OTHERS]), st.data())
def test_changed_bytes_are_read_or_malformed(reader: tuple[Callable[[bytes], Any], bytes], data: st.DataObject) -> None:
    read, body = reader
    changed = bytearray(body)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        if data.draw(st.booleans()):
            changed[at] = data.draw(st.integers(0, 255))
        else:
            changed[at : at + data.draw(st.integers(0, 16))] = data.draw(st.binary(max_size=16))
            changed = changed or bytearray(1)
    with suppress(Malformed):
        read(bytes(changed))


def test_the_memory_for_entries_has_a_bound_when_each_entry_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "REMEMBERED", 100)
    for owner in range(1000):
        (read,) = decode.flow_stats(flow_entry(PIN, cookie=cookie(Table.PINNED, owner)))
        assert read.rule is not None
        assert read.rule.cookie == cookie(Table.PINNED, owner)
    assert len(decode._known) <= 100
