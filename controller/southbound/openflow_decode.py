"""Decoder of switch messages: OpenFlow 1.3 bytes to rules, counters, ports, errors and frames.

In: bodies of messages and of multipart replies, and whole packet-ins. Out: rules, or None for a foreign rule that the
controller's types cannot express; counts; frames. ``Malformed`` is the only error raised: every length is checked, and
every step advances by at least one header. Section numbers are those of OpenFlow 1.3.5.

The same flow entries are read every few seconds, so a limited number of decoded rules is cached.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Any, Literal, NamedTuple

import numpy as np

from controller.fabric.topology import Port, PortNo
from controller.southbound.framework import ofp
from controller.southbound.openflow_encode import CLEAR_IN_PORT, SET_DSCP
from controller.southbound.openflow_framing import Malformed
from controller.tables.messages import PortCount
from controller.tables.rules import (
    IP_TCP,
    IP_UDP,
    Action,
    AnyPort,
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    OtherTable,
    Output,
    Prefix,
    Table,
    ToController,
    ToGroup,
    is_ours,
)
from signalbox.jobs.subflows import PortClass, exactly

UNSUPPORTED = (1 << 64) - 1
"""Value of a counter that the switch does not have: all bits are set (section 7.3.5)."""

REMEMBERED = 1 << 15
REMEMBERED_SIZE = 256
"""Largest number of cached flow entries, and largest size in bytes of a cached entry. Both bound the cache's memory."""

COMMON_SIZE = 1 << 13
"""Largest size in bytes of a cached group: 255 next hops."""

_TABLES = {int(table): table for table in Table}
_LENGTHS = {((1 << length) - 1) << (32 - length): length for length in range(33)}
_GROUP_KINDS: dict[int, Literal["select", "fast_failover", "other"]] = {
    ofp.OFPGT_SELECT: "select",
    ofp.OFPGT_FF: "fast_failover",
}
_OTHER_ACTIONS: dict[bytes, Action] = {CLEAR_IN_PORT: AnyPort(), **{packed: to for to, packed in SET_DSCP.items()}}
_METER_FLAGS = ofp.OFPMF_PKTPS | ofp.OFPMF_BURST

_PORT = struct.Struct("!I4x6s2x16sII16xII")
_PORT_STATUS = struct.Struct("!B7x")
_PORT_REASONS = 3
_ERROR = struct.Struct("!HH")
_EXPERIMENTER_ERROR = struct.Struct("!HHI")
_EXPERIMENTER, _ROLE_STATUS = struct.Struct("!II"), struct.Struct("!IB3xQ")
_IS_ROLE_STATUS = (0x4F4E_4600, 1911)
"""Experimenter and type of a role status in OpenFlow 1.3 (ONF extension 191), as Open vSwitch sends it."""
_ROLE = struct.Struct("!I4xQ")
_PACKET_IN = struct.Struct("!IHBBQ")
_PACKET_IN_AT = 8
_ONLY_IN_PORT = bytes.fromhex("0001000c80000004")
"""First bytes of the match in nearly every packet-in, which consists of the field ``in_port`` alone."""
_U16 = struct.Struct("!H")
_U32 = struct.Struct("!I")
_TWO_U16 = struct.Struct("!HH")
_TLV = struct.Struct("!HBB")
_OUTPUT = struct.Struct("!IH6x")
_FLOW = struct.Struct("!HBxIIHHHH4xQQQ")
_FLOW_ID = struct.Struct("!HHHH4xQ")
# The layout of _FLOW in five fields: length, table, bytes from priority to cookie, packet count, byte count.
_FLOW_PARTS = struct.Struct("!H1s9x20sQQ")
_GROUP_DESC = struct.Struct("!HBxI")
_BUCKET = struct.Struct("!HHII4x")
_METER_CONFIG = struct.Struct("!HHI")
_BAND = struct.Struct("!HHII4x")
_METER_STATS = struct.Struct("!IH6xIQQII")
_METER_BAND_STATS = struct.Struct("!QQ")
_AGGREGATE = struct.Struct("!QQI4x")
_TABLE_STATS = struct.Struct("!B3xI16x")
_TABLE_FEATURES = struct.Struct("!HB57xI")
_GROUP_FEATURES = struct.Struct("!8x4I16x")
_METER_FEATURES = struct.Struct("!I12x")
_PORT_STATS = np.dtype(
    {
        "names": ["port", "rx_bytes", "tx_bytes"],
        "formats": [">u4", ">u8", ">u8"],
        "offsets": [0, 24, 32],
        "itemsize": 112,
    }
)


class FlowCount(NamedTuple):
    """Counters of one flow entry.

    ``packets`` and ``bytes`` are cumulative; None if the switch does not count them."""

    rule: FlowRule | None
    """Rule of the entry; None if the entry is foreign or a ``FlowRule`` cannot express it."""
    packets: int | None
    bytes: int | None


class MeterDrops(NamedTuple):
    """Number of packets that the bands of one meter have dropped so far; None if the switch does not count them."""

    meter_id: int
    packets: int | None


# ---- ports, errors, roles, packets


def _unpacked(layout: struct.Struct, data: bytes, what: str) -> tuple[Any, ...]:
    if len(data) != layout.size:
        raise Malformed(f"{what} has {len(data)} bytes, not {layout.size}")
    return layout.unpack(data)


def port_desc(data: bytes) -> Port:
    """Return the port that a port description defines (section 7.2.1).

    Reserved ports, such as the switch's local port, are decoded too. ``curr_speed`` in the description is in kbit/s."""
    number, mac, name, config, state, curr_speed, _ = _unpacked(_PORT, data, "a port description")
    up = not config & ofp.OFPPC_PORT_DOWN and not state & ofp.OFPPS_LINK_DOWN
    return Port(PortNo(number), _printable(name), mac.hex(":"), up, curr_speed * 1000.0)


def _printable(name: bytes) -> str:
    """Return the name with control characters replaced, because a terminal or a log viewer could execute them."""
    text = name.rstrip(b"\0").decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def port_status(body: bytes) -> tuple[Port, bool]:
    """Return the port, and whether it was removed (section 7.4.3)."""
    if len(body) != _PORT_STATUS.size + _PORT.size:
        raise Malformed(f"a port status has {len(body)} bytes, not {_PORT_STATUS.size + _PORT.size}")
    (reason,) = _PORT_STATUS.unpack_from(body)
    if reason >= _PORT_REASONS:
        raise Malformed(f"a port status has the unknown reason {reason}")
    return port_desc(body[_PORT_STATUS.size :]), reason == ofp.OFPPR_DELETE


def error(body: bytes) -> tuple[tuple[int, int] | None, str]:
    """Return type and code of an error, and a text such as ``OFPET_BAD_ACTION(2): OFPBAC_BAD_OUT_GROUP(9)``.

    For an experimenter's error, type and code are None (section 7.4.4)."""
    if len(body) < _ERROR.size:
        raise Malformed(f"an error message has {len(body)} bytes, fewer than {_ERROR.size}")
    kind, code = _ERROR.unpack_from(body)
    if kind != ofp.OFPET_EXPERIMENTER:
        return (kind, code), f"{ofp.ofp_error_type_to_str(kind)}: {ofp.ofp_error_code_to_str(kind, code)}"
    if len(body) < _EXPERIMENTER_ERROR.size:
        raise Malformed(f"an experimenter error has {len(body)} bytes, fewer than {_EXPERIMENTER_ERROR.size}")
    _, number, experimenter = _EXPERIMENTER_ERROR.unpack_from(body)
    return None, f"experimenter error {experimenter:#x}/{number}"


def role_status(body: bytes) -> int | None:
    """Return the role that a switch has given this controller; None for any other message of an experimenter.

    The layout is that of OpenFlow 1.4 (section 7.4.4 there); properties may follow."""
    if len(body) < _EXPERIMENTER.size:
        raise Malformed(f"an experimenter message has {len(body)} bytes, fewer than {_EXPERIMENTER.size}")
    if _EXPERIMENTER.unpack_from(body) != _IS_ROLE_STATUS:
        return None
    if len(body) < (size := _EXPERIMENTER.size + _ROLE_STATUS.size):
        raise Malformed(f"a role status has {len(body)} bytes, fewer than {size}")
    role: int = _ROLE_STATUS.unpack_from(body, _EXPERIMENTER.size)[0]
    return role


def role_reply(body: bytes) -> tuple[int, int]:
    """Return the role and the generation id (section 7.3.9)."""
    role, generation = _unpacked(_ROLE, body, "a role reply")
    return role, generation


def barrier_reply(body: bytes) -> None:
    """Check that the body is empty (section 7.3.8)."""
    if body:
        raise Malformed(f"a barrier reply has {len(body)} bytes after its header")


def packet_in(message: bytes) -> tuple[PortNo | None, bytes]:
    """Return the ingress port (None if missing) and the frame of a whole packet-in message (section 7.4.1)."""
    at = _PACKET_IN_AT + _PACKET_IN.size
    if message.startswith(_ONLY_IN_PORT, at) and len(message) >= at + 18:
        return PortNo(_U32.unpack_from(message, at + 8)[0]), message[at + 18 :]
    fields, end = match_fields(message, at, len(message))
    if end + 2 > len(message):
        raise Malformed("a packet-in ends within its padding")
    in_port = next((value for number, value, _ in fields if number == ofp.OFPXMT_OFB_IN_PORT), None)
    return (None if in_port is None else PortNo(int.from_bytes(in_port, "big"))), message[end + 2 :]


# ---- flow entries


_known: dict[bytes, FlowRule | None] = {}


def flow_stats(body: bytes) -> list[FlowCount]:
    """Return the flow entries with their counters (section 7.3.5.2)."""
    counts = []
    at, end = 0, len(body)
    known = _known
    while at < end:
        if end - at < _FLOW.size + 8:
            raise Malformed(f"{end - at} bytes are too few for a flow entry")
        length, table, identity, packets, total = _FLOW_PARTS.unpack_from(body, at)
        if length < _FLOW.size + 8 or length % 8 or length > end - at:
            raise Malformed(f"a flow entry has the length {length}, but {end - at} bytes are left")
        entry = table + identity + body[at + _FLOW.size : at + length]
        try:
            rule = known[entry]
        except KeyError:
            rule = _remember(entry)
        counts.append(
            FlowCount(rule, None if packets == UNSUPPORTED else packets, None if total == UNSUPPORTED else total)
        )
        at += length
    return counts


def _remember(entry: bytes) -> FlowRule | None:
    rule = _flow_rule(entry)
    if len(entry) <= REMEMBERED_SIZE:
        if len(_known) >= REMEMBERED:
            _known.clear()
        _known[entry] = rule
    return rule


def _flow_rule(entry: bytes) -> FlowRule | None:
    """Return the rule in an entry; None if the entry is foreign or a ``FlowRule`` cannot express it.

    ``entry``: bytes of the entry without length, duration and counters, as ``flow_stats`` joins them. Foreign
    entries are checked for errors too."""
    priority, idle_timeout, hard_timeout, _, cookie = _FLOW_ID.unpack_from(entry, 1)
    fields, at = match_fields(entry, 1 + _FLOW_ID.size, len(entry))
    match = match_of(fields)
    done = instructions(entry[at:])
    table = _TABLES.get(entry[0])
    if match is None or done is None or table is None or not is_ours(cookie) or idle_timeout or hard_timeout:
        return None
    actions, goto, meter = done
    return FlowRule(FlowKey(table, priority, match), cookie, actions, goto, meter)


def foreign_flow_keys(body: bytes) -> list[FlowKey]:
    """Return the keys of foreign flow entries that a rule of the controller could have too (section 7.3.5.2)."""
    keys = []
    for at, end in structures(body, 0, len(body), "a flow entry", _FLOW.size):
        _, number, _, _, priority, _, _, _, cookie, _, _ = _FLOW.unpack_from(body, at)
        table = _TABLES.get(number)
        if table is None or is_ours(cookie):
            continue
        fields, _ = match_fields(body, at + _FLOW.size, end)
        if (match := match_of(fields)) is not None:
            keys.append(FlowKey(table, priority, match))
    return keys


# ---- groups, meters


def group_descs(body: bytes) -> list[GroupRule]:
    """Return the groups (section 7.3.5.10)."""
    groups = []
    for at, end in structures(body, 0, len(body), "a group", _GROUP_DESC.size):
        _, number, group_id = _GROUP_DESC.unpack_from(body, at)
        kind = _GROUP_KINDS.get(number, "other")
        read = _common_buckets if end - at <= COMMON_SIZE else _buckets
        buckets = read(body[at + _GROUP_DESC.size : end])
        groups.append(GroupRule(group_id, kind, () if kind == "other" or buckets is None else buckets))
    return groups


def _buckets(data: bytes) -> tuple[Bucket, ...] | None:
    buckets: list[Bucket | None] = []
    for at, end in structures(data, 0, len(data), "a bucket", _BUCKET.size):
        _, _, watch_port, watch_group = _BUCKET.unpack_from(data, at)
        buckets.append(_bucket(actions_of(data, at + _BUCKET.size, end), watch_port, watch_group))
    whole = tuple(bucket for bucket in buckets if bucket is not None)
    return whole if len(whole) == len(buckets) else None


_common_buckets = lru_cache(maxsize=1 << 9)(_buckets)
"""Cached results of ``_buckets``, since groups to different destinations often have the same buckets."""


def _bucket(actions: tuple[Action, ...] | None, watch_port: int, watch_group: int) -> Bucket | None:
    if actions is None or len(actions) != 1 or not isinstance(actions[0], Output | ToGroup):
        return None
    return Bucket(
        actions[0],
        None if watch_port == ofp.OFPP_ANY else PortNo(watch_port),
        None if watch_group == ofp.OFPG_ANY else watch_group,
    )


def meter_configs(body: bytes) -> list[MeterRule]:
    """Return the meters (section 7.3.5.13)."""
    meters = []
    for at, end in structures(body, 0, len(body), "a meter", _METER_CONFIG.size):
        _, flags, meter_id = _METER_CONFIG.unpack_from(body, at)
        spans = structures(body, at + _METER_CONFIG.size, end, "a band", _BAND.size, length_at=2)
        bands = [_BAND.unpack_from(body, start) for start, _ in spans]
        ours = flags & (ofp.OFPMF_KBPS | _METER_FLAGS) == _METER_FLAGS and len(bands) == 1
        kind, _, rate, burst = bands[0] if ours else (None, 0, 0, 0)
        meters.append(MeterRule(meter_id, rate, burst) if kind == ofp.OFPMBT_DROP else MeterRule(meter_id, 0, 0))
    return meters


def meter_stats(body: bytes) -> list[MeterDrops]:
    """Return the packets that each meter has dropped (section 7.3.5.12)."""
    drops = []
    for at, end in structures(body, 0, len(body), "a meter", _METER_STATS.size, length_at=4):
        bands = body[at + _METER_STATS.size : end]
        if len(bands) % _METER_BAND_STATS.size:
            raise Malformed(f"a meter has the wrong length of {end - at} bytes")
        packets = [count for count, _ in _METER_BAND_STATS.iter_unpack(bands) if count != UNSUPPORTED]
        drops.append(MeterDrops(_U32.unpack_from(body, at)[0], min(UNSUPPORTED, sum(packets)) if packets else None))
    return drops


# ---- counts


def flow_count(body: bytes) -> int:
    """Return the number of flow entries (section 7.3.5.3)."""
    _, _, flows = _unpacked(_AGGREGATE, body, "a reply with aggregate statistics")
    return int(flows)


def table_stats(body: bytes) -> dict[Table, int]:
    """Return the number of entries in each table that the controller uses (section 7.3.5.4)."""
    if len(body) % _TABLE_STATS.size:
        raise Malformed(f"table statistics have {len(body)} bytes, not a multiple of {_TABLE_STATS.size}")
    return {_TABLES[table]: entries for table, entries in _TABLE_STATS.iter_unpack(body) if table in _TABLES}


def table_features(body: bytes) -> dict[Table, int]:
    """Return the capacity of each table that the controller uses (section 7.3.5.5.1). Other properties are skipped."""
    limits = {}
    for at, _ in structures(body, 0, len(body), "the features of a table", _TABLE_FEATURES.size):
        _, table, max_entries = _TABLE_FEATURES.unpack_from(body, at)
        if table in _TABLES:
            limits[_TABLES[table]] = max_entries
    return limits


def group_features(body: bytes) -> dict[OtherTable, int]:
    """Return the largest number of groups of each kind that the controller uses (section 7.3.5.11)."""
    _, select, _, fast_failover = _unpacked(_GROUP_FEATURES, body, "a reply with group features")
    return {OtherTable.SELECT_GROUPS: select, OtherTable.FAST_FAILOVER_GROUPS: fast_failover}


def meter_features(body: bytes) -> dict[OtherTable, int]:
    """Return the largest number of meters (section 7.3.5.14)."""
    (meters,) = _unpacked(_METER_FEATURES, body, "a reply with meter features")
    return {OtherTable.METERS: meters}


def port_stats(body: bytes) -> dict[PortNo, PortCount]:
    """Return the byte counters of each port, without reserved ports (section 7.3.5.6)."""
    if len(body) % _PORT_STATS.itemsize:
        raise Malformed(f"port statistics have {len(body)} bytes, not a multiple of {_PORT_STATS.itemsize}")
    stats = np.frombuffer(body, _PORT_STATS)
    rows = zip(stats["port"].tolist(), stats["tx_bytes"].tolist(), stats["rx_bytes"].tolist(), strict=True)
    return {
        PortNo(port): PortCount(None if tx == UNSUPPORTED else tx, None if rx == UNSUPPORTED else rx)
        for port, tx, rx in rows
        if port <= ofp.OFPP_MAX
    }


# ---- match fields


Field = tuple[int | None, bytes, bytes | None]
"""Match field: number in the basic OXM class (None for a field of another class), value, and mask if there is one."""


def match_fields(data: bytes, at: int, end: int) -> tuple[list[Field], int]:
    """Return the fields of the match that begins at ``at``, and the position after its padding (section 7.2.3.1)."""
    if end - at < 8:
        raise Malformed(f"{end - at} bytes are too few for a match")
    kind, length = _TWO_U16.unpack_from(data, at)
    padded = length + -length % 8
    if kind != ofp.OFPMT_OXM or length < 4 or padded > end - at:
        raise Malformed(f"a match of type {kind} and length {length} is no OXM match within the {end - at} bytes left")
    fields = list(_oxm_fields(data, at + 4, at + length))
    if len({number for number, _, _ in fields if number is not None}) < sum(f[0] is not None for f in fields):
        raise Malformed("a match names a field twice")
    return fields, at + padded


def _oxm_fields(data: bytes, at: int, end: int) -> Iterator[Field]:
    """Yield the fields of a match (section 7.2.3.2)."""
    while at < end:
        if end - at < _TLV.size:
            raise Malformed(f"{end - at} bytes are too few for the header of a match field")
        oxm_class, field, length = _TLV.unpack_from(data, at)
        at += _TLV.size
        if length > end - at:
            raise Malformed(f"a match field has the length {length}, but {end - at} bytes are left")
        number, masked = field >> 1, field & 1
        if oxm_class != ofp.OFPXMC_OPENFLOW_BASIC:
            yield None, b"", None
        else:
            if number in _FIELDS and length != _FIELDS[number][0] << masked:
                raise Malformed(f"match field {number} has the wrong length of {length} bytes")
            half = length >> masked
            yield number, data[at : at + half], data[at + half : at + length] if masked else None
        at += length


def match_of(fields: list[Field]) -> Match | None:
    """Return the match with these fields; None if a ``Match`` cannot express one of the fields or masks."""
    values: dict[str, Any] = {}
    for number, value, mask in fields:
        read = _FIELDS.get(number)
        if read is None:
            return None
        _, name, take = read
        taken = take(value, mask)
        if taken is None or name in values:
            return None
        values[name] = taken
        if number in _PROTOCOL and values.get("ip_proto") != _PROTOCOL[number]:
            return None
    return Match(**values)


def _plain(value: bytes, mask: bytes | None) -> int | None:
    return int.from_bytes(value, "big") if mask is None else None


def _mac(value: bytes, mask: bytes | None) -> str | None:
    return value.hex(":") if mask is None else None


def _prefix(value: bytes, mask: bytes | None) -> Prefix | None:
    length = 32 if mask is None else _LENGTHS.get(int.from_bytes(mask, "big"))
    return None if length is None else _address(value, length)


@lru_cache(maxsize=1 << 14)
def _address(value: bytes, length: int) -> Prefix:
    """Return a prefix.

    Equal prefixes are the same object, because many rules have few different addresses."""
    return Prefix(str(IPv4Address(value)), length)


def _ports(value: bytes, mask: bytes | None) -> PortClass:
    port = int.from_bytes(value, "big")
    return exactly(port) if mask is None else PortClass(port, int.from_bytes(mask, "big"))


_FIELDS: Mapping[int | None, tuple[int, str, Callable[[bytes, bytes | None], Any]]] = {
    ofp.OFPXMT_OFB_IN_PORT: (4, "in_port", _plain),
    ofp.OFPXMT_OFB_ETH_DST: (6, "eth_dst", _mac),
    ofp.OFPXMT_OFB_ETH_TYPE: (2, "eth_type", _plain),
    ofp.OFPXMT_OFB_IP_PROTO: (1, "ip_proto", _plain),
    ofp.OFPXMT_OFB_IPV4_SRC: (4, "ip_src", _prefix),
    ofp.OFPXMT_OFB_IPV4_DST: (4, "ip_dst", _prefix),
    ofp.OFPXMT_OFB_TCP_SRC: (2, "src_port", _ports),
    ofp.OFPXMT_OFB_TCP_DST: (2, "dst_port", _ports),
    ofp.OFPXMT_OFB_UDP_SRC: (2, "src_port", _ports),
    ofp.OFPXMT_OFB_UDP_DST: (2, "dst_port", _ports),
    ofp.OFPXMT_OFB_ARP_SPA: (4, "arp_spa", _prefix),
    ofp.OFPXMT_OFB_ARP_TPA: (4, "arp_tpa", _prefix),
}
"""Match fields by number: size of the value (and of a mask) in bytes, field of ``Match``, and decoder."""
_PROTOCOL: Mapping[int | None, int] = {
    ofp.OFPXMT_OFB_TCP_SRC: IP_TCP,
    ofp.OFPXMT_OFB_TCP_DST: IP_TCP,
    ofp.OFPXMT_OFB_UDP_SRC: IP_UDP,
    ofp.OFPXMT_OFB_UDP_DST: IP_UDP,
}


# ---- instructions and actions


Done = tuple[tuple[Action, ...], Table | None, int | None]


def instructions(data: bytes) -> Done | None:
    """Return actions, next table and meter (section 7.2.4); None when a ``FlowRule`` cannot express them."""
    actions: tuple[Action, ...] | None = None
    goto: Table | None = None
    meter: int | None = None
    understood, seen = True, set()
    for start, end in structures(data, 0, len(data), "an instruction", length_at=2):
        (kind,) = _U16.unpack_from(data, start)
        if kind in seen:
            raise Malformed(f"a flow entry has two instructions of type {kind}")
        seen.add(kind)
        if kind in (ofp.OFPIT_METER, ofp.OFPIT_GOTO_TABLE) and end - start != 8:
            raise Malformed(f"an instruction of type {kind} has the wrong length of {end - start} bytes")
        if kind == ofp.OFPIT_METER:
            (meter,) = _U32.unpack_from(data, start + 4)
        elif kind == ofp.OFPIT_GOTO_TABLE:
            goto = _TABLES.get(data[start + 4])
            understood &= goto is not None
        elif kind == ofp.OFPIT_APPLY_ACTIONS:
            actions = actions_of(data, start + 8, end)
            understood &= actions is not None
        else:
            understood = False
    return (actions or (), goto, meter) if understood else None


def actions_of(data: bytes, at: int, end: int) -> tuple[Action, ...] | None:
    """Return the actions (section 7.2.5); None when a ``FlowRule`` cannot express one of them."""
    actions: list[Action | None] = []
    for start, stop in structures(data, at, end, "an action", length_at=2):
        (kind,) = _U16.unpack_from(data, start)
        if (kind == ofp.OFPAT_OUTPUT and stop - start != 16) or (kind == ofp.OFPAT_GROUP and stop - start != 8):
            raise Malformed(f"an action of type {kind} has the wrong length of {stop - start} bytes")
        if kind == ofp.OFPAT_OUTPUT:
            port, max_len = _OUTPUT.unpack_from(data, start + 4)
            if port != ofp.OFPP_CONTROLLER:
                actions.append(Output(PortNo(port)))
            else:
                actions.append(ToController() if max_len == ofp.OFPCML_NO_BUFFER else None)
        elif kind == ofp.OFPAT_GROUP:
            actions.append(ToGroup(_U32.unpack_from(data, start + 4)[0]))
        else:
            actions.append(_OTHER_ACTIONS.get(data[start:stop]))
    whole = tuple(action for action in actions if action is not None)
    return whole if len(whole) == len(actions) else None


def structures(
    data: bytes, at: int, end: int, what: str, least: int = 8, length_at: int = 0
) -> Iterator[tuple[int, int]]:
    """Yield the start and end positions of consecutive structures. Raises ``Malformed``.

    ``what``: name of a structure in errors. ``least``: smallest size of a structure in bytes. ``length_at``: offset of
    the length field, whose value must be a multiple of 8."""
    while at < end:
        if end - at < least:
            raise Malformed(f"{end - at} bytes are too few for {what}")
        (length,) = _U16.unpack_from(data, at + length_at)
        if length < least or length % 8 or length > end - at:
            raise Malformed(f"the length of {what} is {length}, but {end - at} bytes are left")
        yield at, at + length
        at += length
