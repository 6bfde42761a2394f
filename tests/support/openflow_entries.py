"""Entries of multipart replies as a switch sends them: flows, groups, meters, counters."""

import struct
from typing import Any

from controller.southbound import openflow_encode as encode
from controller.southbound.framework import ofp
from controller.tables.rules import FlowRule, GroupRule, MeterRule, RuleMod

FLOW_MOD_SIZE, GROUP_MOD_SIZE, METER_MOD_SIZE = 48, 16, 16


def sent(rule: Any) -> bytes:
    return encode.mod_message(RuleMod("add", rule))


def flow_entry(rule: FlowRule, byte_count: int = 0, **changed: Any) -> bytes:
    body = sent(rule)[FLOW_MOD_SIZE:]
    return flow_head(len(body), rule, byte_count, **changed) + body


def flow_head(size: int, rule: FlowRule, byte_count: int = 0, **changed: Any) -> bytes:
    fields = {"table": int(rule.key.table), "idle": 0, "hard": 0, "cookie": rule.cookie} | changed
    return struct.pack(
        ofp.OFP_FLOW_STATS_0_PACK_STR,
        ofp.OFP_FLOW_STATS_0_SIZE + size,
        *(fields["table"], 17, 4, rule.key.priority, fields["idle"], fields["hard"], 0, fields["cookie"]),
        *(3, byte_count),
    )


def group_entry(rule: GroupRule) -> bytes:
    body = sent(rule)[GROUP_MOD_SIZE:]
    kind = ofp.OFPGT_SELECT if rule.kind == "select" else ofp.OFPGT_FF
    size = ofp.OFP_GROUP_DESC_STATS_SIZE + len(body)
    return struct.pack(ofp.OFP_GROUP_DESC_STATS_PACK_STR, size, kind, rule.group_id) + body


def meter_entry(rule: MeterRule, flags: int = ofp.OFPMF_PKTPS | ofp.OFPMF_BURST) -> bytes:
    body = sent(rule)[METER_MOD_SIZE:]
    return struct.pack("!HHI", 8 + len(body), flags, rule.meter_id) + body


def meter_count(meter_id: int, *drops: int) -> bytes:
    head = struct.pack("!IH6xIQQII", meter_id, 40 + 16 * len(drops), 1, 9, 9, 9, 9)
    return head + b"".join(struct.pack("!QQ", drop, 0) for drop in drops)


def table_entry(number: int, entries: int) -> bytes:
    return struct.pack(ofp.OFP_TABLE_STATS_PACK_STR, number, entries, 9, 9)


def table_limit(number: int, max_entries: int) -> bytes:
    """Return the features of a table, with a single property: instructions."""
    instructions = struct.pack("!HHHH", ofp.OFPTFPT_INSTRUCTIONS, 8, ofp.OFPIT_METER, 4)
    head = ofp.OFP_TABLE_FEATURES_PACK_STR
    return struct.pack(head, 72, number, b"a table", 0, 0, 0, max_entries) + instructions


def group_room(select: int, fast_failover: int) -> bytes:
    return struct.pack(ofp.OFP_GROUP_FEATURES_PACK_STR, 0xF, 0, 7, select, 7, fast_failover, *4 * [0])


def meter_room(meters: int) -> bytes:
    return struct.pack(ofp.OFP_METER_FEATURES_PACK_STR, meters, 2, 0xF, 1, 0)


def port_entry(number: int, tx: int, rx: int) -> bytes:
    return struct.pack(ofp.OFP_PORT_STATS_PACK_STR, number, 0, 0, rx, tx, *[0] * 10)
