"""Encoder of rules, requests and frames as OpenFlow 1.3 bytes; fast enough for thousands of messages in a second.

In: changes of rules, requests, frames. Out: whole messages with transaction id 0, which ``Connection.send`` replaces;
the bytes equal those of Ryu's serialisers. Section numbers are those of OpenFlow 1.3.5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Protocol, assert_never

from controller.fabric.topology import Dpid, PortNo
from controller.southbound.framework import ofp
from controller.southbound.openflow_framing import message
from controller.tables.rules import (
    COOKIE_MAGIC,
    COOKIE_MASK,
    COUNTED_BIT,
    ETH_IPV4,
    IP_TCP,
    IP_UDP,
    Action,
    AnyPort,
    Bucket,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    Output,
    Prefix,
    RuleMod,
    SetDscp,
    Table,
    ToController,
    ToGroup,
    learning_cookie,
)
from signalbox.jobs.subflows import PortClass

_FLOW_COMMANDS = {"add": ofp.OFPFC_ADD, "modify": ofp.OFPFC_MODIFY_STRICT, "delete": ofp.OFPFC_DELETE_STRICT}
_GROUP_COMMANDS = {"add": ofp.OFPGC_ADD, "modify": ofp.OFPGC_MODIFY, "delete": ofp.OFPGC_DELETE}
_METER_COMMANDS = {"add": ofp.OFPMC_ADD, "modify": ofp.OFPMC_MODIFY, "delete": ofp.OFPMC_DELETE}
_GROUP_TYPES = {"select": ofp.OFPGT_SELECT, "fast_failover": ofp.OFPGT_FF, "other": ofp.OFPGT_ALL}
_METER_FLAGS = ofp.OFPMF_PKTPS | ofp.OFPMF_BURST
_EVERY_BIT = 0xFFFF
_ALL = {
    ofp.OFPMP_PORT_STATS: struct.pack("!I4x", ofp.OFPP_ANY),
    ofp.OFPMP_METER: struct.pack("!I4x", ofp.OFPM_ALL),
    ofp.OFPMP_METER_CONFIG: struct.pack("!I4x", ofp.OFPM_ALL),
}
"""Bodies of multipart requests, by kind. Requests of other kinds have an empty body."""

_FLOW_MOD = struct.Struct("!QQBBHHHIIIHxx")
_GROUP_MOD = struct.Struct("!HBxI")
_METER_MOD = struct.Struct("!HHI")
_MULTIPART = struct.Struct("!HH4x")
_ROLE = struct.Struct("!I4xQ")
# Header, packet-out, one output action (sections 7.1, 7.3.7 and 7.2.5).
_PACKET_OUT = struct.Struct("!BBHIIIH6xHHIH6x")
_FLOW_REQUEST = struct.Struct("!B3xII4xQQ")
_MATCH = struct.Struct("!HH")
_BUCKET = struct.Struct("!HHII4x")
_OUTPUT = struct.Struct("!HHIH6x")
_GROUP = struct.Struct("!HHI")
_METER = struct.Struct("!HHI")
_GOTO = struct.Struct("!HHB3x")
_APPLY = struct.Struct("!HH4x")
CLEAR_IN_PORT = struct.pack("!HHIHHIQ", ofp.OFPAT_EXPERIMENTER, 24, 0x2320, 7, 15, 2, 0)
"""Nicira's action reg_load that writes 0 into the 16 bits of NXM_OF_IN_PORT (Open vSwitch, nicira-ext.h)."""
_BAND = struct.Struct("!HHII4x")


class Send(Protocol):
    """Function that sends messages to a switch, and returns their transaction ids."""

    def __call__(self, dpid: Dpid, /, *messages: bytes) -> list[int]: ...


# ---- rules


def mod_message(mod: RuleMod) -> bytes:
    """Return the message for ``mod``.

    Raises ``ValueError`` for a rule that does not fit into a message, or that a switch would store in another form."""
    rule = mod.rule
    try:
        if isinstance(rule, FlowRule):
            return _flow_mod(mod.op, rule)
        if isinstance(rule, GroupRule):
            return _group_mod(mod.op, rule)
        return _meter_mod(mod.op, rule)
    except (struct.error, OverflowError, KeyError) as error:
        raise ValueError(f"{rule} does not fit into a message: {error}") from None


def _flow_mod(op: str, rule: FlowRule) -> bytes:
    """Return a flow mod (section 7.3.4.1).

    Modify and delete affect only entries with the controller's cookie. Modifying does not change an entry's cookie,
    counters and duration (section 6.4). An entry with a new owner must therefore be added, which replaces the old
    entry."""
    table, priority, match = rule.key
    body = _match(match)
    if op != "delete":
        body += _instructions(rule.actions, rule.goto, rule.meter)
    mask = 0 if op == "add" else COOKIE_MASK
    any_out = ofp.OFP_NO_BUFFER, ofp.OFPP_ANY, ofp.OFPG_ANY
    head = _FLOW_MOD.pack(rule.cookie, mask, table, _FLOW_COMMANDS[op], 0, 0, priority, *any_out, 0)
    return message(ofp.OFPT_FLOW_MOD, head + body)


def _group_mod(op: str, rule: GroupRule) -> bytes:
    """Return a group mod (section 7.3.4.2)."""
    weight = 1 if rule.kind == "select" else 0
    body = b"" if op == "delete" else b"".join([_bucket(weight, bucket) for bucket in rule.buckets])
    head = _GROUP_MOD.pack(_GROUP_COMMANDS[op], _GROUP_TYPES[rule.kind], rule.group_id)
    return message(ofp.OFPT_GROUP_MOD, head + body)


def _meter_mod(op: str, rule: MeterRule) -> bytes:
    """Return a meter mod with one band that drops (section 7.3.4.4)."""
    if rule.burst_packets < 1 and op != "delete":
        raise ValueError(f"the burst of {rule} must be at least 1 packet: Open vSwitch would replace 0 by the rate")
    body = b"" if op == "delete" else _BAND.pack(ofp.OFPMBT_DROP, _BAND.size, rule.rate_pps, rule.burst_packets)
    head = _METER_MOD.pack(_METER_COMMANDS[op], _METER_FLAGS, rule.meter_id)
    return message(ofp.OFPT_METER_MOD, head + body)


# ---- match fields (section 7.2.3), in the order of their numbers as in Ryu and the switches


def _header(field: int, size: int, masked: bool = False) -> bytes:
    """Return the header of an OXM TLV of the basic class (section 7.2.3.2). A mask is as long as the value."""
    return struct.pack("!HBB", ofp.OFPXMC_OPENFLOW_BASIC, field << 1 | masked, 2 * size if masked else size)


_IN_PORT = _header(ofp.OFPXMT_OFB_IN_PORT, 4)
_ETH_DST = _header(ofp.OFPXMT_OFB_ETH_DST, 6)
_ETH_TYPE = _header(ofp.OFPXMT_OFB_ETH_TYPE, 2)
_IP_PROTO = _header(ofp.OFPXMT_OFB_IP_PROTO, 1)
_PORT_FIELDS = {
    IP_TCP: (ofp.OFPXMT_OFB_TCP_SRC, ofp.OFPXMT_OFB_TCP_DST),
    IP_UDP: (ofp.OFPXMT_OFB_UDP_SRC, ofp.OFPXMT_OFB_UDP_DST),
}


def _match(match: Match) -> bytes:
    """Return the match (section 7.2.3.1). The length field does not include the padding to 8 bytes."""
    in_port, eth_type, eth_dst, ip_src, ip_dst, arp_tpa, ip_proto, src_port, dst_port, arp_spa = match
    fields = b""
    if in_port is not None:
        fields = _IN_PORT + in_port.to_bytes(4, "big")
    if eth_dst is not None:
        fields += _ETH_DST + bytes.fromhex(eth_dst.replace(":", ""))
    if eth_type is not None:
        fields += _ETH_TYPE + eth_type.to_bytes(2, "big")
    if ip_proto is not None:
        fields += _IP_PROTO + ip_proto.to_bytes(1, "big")
    if ip_src is not None:
        fields += _prefix(ofp.OFPXMT_OFB_IPV4_SRC, ip_src)
    if ip_dst is not None:
        fields += _prefix(ofp.OFPXMT_OFB_IPV4_DST, ip_dst)
    if src_port is not None or dst_port is not None:
        fields += _ports(match)
    if arp_spa is not None:
        fields += _prefix(ofp.OFPXMT_OFB_ARP_SPA, arp_spa)
    if arp_tpa is not None:
        fields += _prefix(ofp.OFPXMT_OFB_ARP_TPA, arp_tpa)
    size = _MATCH.size + len(fields)
    return _MATCH.pack(ofp.OFPMT_OXM, size) + fields + bytes(-size % 8)


@lru_cache(maxsize=1 << 14)
def _prefix(field: int, prefix: Prefix) -> bytes:
    """Return the field of an address prefix. A single host has no mask: the switch reports the same field."""
    address, length = prefix
    value = IPv4Address(address)
    if length == 32:
        return _header(field, 4) + value.packed
    if not 1 <= length < 32 or int(value) & ((1 << (32 - length)) - 1):
        raise ValueError(f"the prefix {prefix} needs a length from 1 to 32, and no address bits after the prefix")
    mask = ((1 << length) - 1) << (32 - length)
    return _header(field, 4, masked=True) + value.packed + mask.to_bytes(4, "big")


def _ports(match: Match) -> bytes:
    """Return the port fields (section 7.2.3.8). Raises ``ValueError`` unless the match is of TCP or UDP over IPv4."""
    fields = _PORT_FIELDS.get(match.ip_proto or 0)
    if fields is None or match.eth_type != ETH_IPV4:
        raise ValueError(f"the match {match} has ports, so it needs IPv4 and TCP or UDP")
    both = zip(fields, (match.src_port, match.dst_port), strict=True)
    return b"".join([_port(field, ports) for field, ports in both if ports is not None])


@lru_cache(maxsize=1 << 10)
def _port(field: int, ports: PortClass) -> bytes:
    """Return the field of a port class. A single port has no mask: the switch reports the same field."""
    value, mask = ports
    if not 0 < mask <= _EVERY_BIT or value & ~mask:
        raise ValueError(f"the ports {ports} need a mask above 0, and a value without bits outside the mask")
    if mask == _EVERY_BIT:
        return _header(field, 2) + value.to_bytes(2, "big")
    return _header(field, 2, masked=True) + value.to_bytes(2, "big") + mask.to_bytes(2, "big")


# ---- instructions, actions, buckets

SET_DSCP = {
    SetDscp(dscp): struct.pack("!HH4sB7x", ofp.OFPAT_SET_FIELD, 16, _header(ofp.OFPXMT_OFB_IP_DSCP, 1), dscp)
    for dscp in range(64)
}
"""Action that writes each DSCP (section 7.2.5.11): one field, padded to 16 bytes."""


@lru_cache(maxsize=1 << 14)
def _instructions(actions: tuple[Action, ...], goto: Table | None, meter: int | None) -> bytes:
    """Return the instructions (section 7.2.4). The switch executes them in the order of section 5.9."""
    packed = b""
    if meter is not None:
        packed = _METER.pack(ofp.OFPIT_METER, _METER.size, meter)
    if actions:
        body = b"".join([_action(action) for action in actions])
        packed += _APPLY.pack(ofp.OFPIT_APPLY_ACTIONS, _APPLY.size + len(body)) + body
    if goto is not None:
        packed += _GOTO.pack(ofp.OFPIT_GOTO_TABLE, _GOTO.size, goto)
    return packed


def _action(action: Action) -> bytes:
    """Return an action (section 7.2.5)."""
    if isinstance(action, Output):
        return _OUTPUT.pack(ofp.OFPAT_OUTPUT, _OUTPUT.size, action.port, 0)
    if isinstance(action, ToGroup):
        return _GROUP.pack(ofp.OFPAT_GROUP, _GROUP.size, action.group_id)
    if isinstance(action, AnyPort):
        return CLEAR_IN_PORT
    if isinstance(action, SetDscp):
        return SET_DSCP[action]
    if isinstance(action, ToController):
        return _OUTPUT.pack(ofp.OFPAT_OUTPUT, _OUTPUT.size, ofp.OFPP_CONTROLLER, ofp.OFPCML_NO_BUFFER)
    assert_never(action)


@lru_cache(maxsize=1 << 14)
def _bucket(weight: int, bucket: Bucket) -> bytes:
    """Return a bucket of a group (section 7.3.4.2)."""
    action = _action(bucket.action)
    watch_port = ofp.OFPP_ANY if bucket.watch_port is None else bucket.watch_port
    watch_group = ofp.OFPG_ANY if bucket.watch_group is None else bucket.watch_group
    return _BUCKET.pack(_BUCKET.size + len(action), weight, watch_port, watch_group) + action


# ---- requests


def barrier() -> bytes:
    return message(ofp.OFPT_BARRIER_REQUEST)


def role_request(role: int, generation: int) -> bytes:
    """Return a role request (section 7.3.9)."""
    return message(ofp.OFPT_ROLE_REQUEST, _ROLE.pack(role, generation))


def flow_stats_request() -> bytes:
    """Return a request for all flow entries of the controller (section 7.3.5.2)."""
    return _flow_request(ofp.OFPMP_FLOW, ofp.OFPTT_ALL, COOKIE_MAGIC << 48, COOKIE_MASK)


def counted_flows_request() -> bytes:
    """Return a request for the controller's flow entries whose counters are polled (section 7.3.5.2)."""
    return _flow_request(ofp.OFPMP_FLOW, ofp.OFPTT_ALL, COOKIE_MAGIC << 48 | COUNTED_BIT, COOKIE_MASK | COUNTED_BIT)


def learning_flows_request() -> bytes:
    """Return a request for the controller's learning rules (section 7.3.5.2)."""
    return _flow_request(ofp.OFPMP_FLOW, ofp.OFPTT_ALL, learning_cookie(0), COOKIE_MASK | 0xFF << 40)


def every_flow_request(kind: int = ofp.OFPMP_FLOW) -> bytes:
    """Return a request for every flow entry, including foreign ones (section 7.3.5.2).

    With kind ``OFPMP_AGGREGATE``, the request is for the number of flow entries (section 7.3.5.3)."""
    return _flow_request(kind, ofp.OFPTT_ALL, 0, 0)


def _flow_request(kind: int, table: int, cookie: int, mask: int) -> bytes:
    wanted = _FLOW_REQUEST.pack(table, ofp.OFPP_ANY, ofp.OFPG_ANY, cookie, mask)
    return _request(kind, wanted + _match(Match()))


def all_request(kind: int) -> bytes:
    """Return a request about all tables, ports, groups or meters.

    Sections: 7.3.5.4 and 7.3.5.5 (tables), 7.3.5.6 (ports), 7.3.5.10 and 7.3.5.11 (groups), 7.3.5.12 to 7.3.5.14
    (meters)."""
    return _request(kind, _ALL.get(kind, b""))


def _request(kind: int, body: bytes) -> bytes:
    """Return a multipart request (section 7.3.5)."""
    return message(ofp.OFPT_MULTIPART_REQUEST, _MULTIPART.pack(kind, 0) + body)


# ---- frames


def packet_outs(frames: Iterable[tuple[PortNo, bytes]]) -> bytes:
    """Return one packet-out for each pair of port and frame, concatenated.

    The transaction ids stay 0, since packet-outs have no reply."""
    return b"".join([_packet_out_head(port, len(frame)) + frame for port, frame in frames])


@lru_cache(maxsize=1 << 12)
def _packet_out_head(port: PortNo, frame_bytes: int) -> bytes:
    size, action = _PACKET_OUT.size + frame_bytes, 16
    head = ofp.OFP_VERSION, ofp.OFPT_PACKET_OUT, size, 0, ofp.OFP_NO_BUFFER, ofp.OFPP_CONTROLLER, action
    return _PACKET_OUT.pack(*head, ofp.OFPAT_OUTPUT, action, port, 0)
