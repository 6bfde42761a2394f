"""Decoder of switch messages: OpenFlow 1.3 bytes to rules, counters, ports, errors and frames.

In: bodies of messages and of multipart replies, whole packet-ins. Out: rules, or None for a foreign rule that the
controller's own types cannot express; counts; frames. Every length is checked; ``Malformed`` is the only error raised.
Section numbers are those of OpenFlow 1.3.5.

The same flow entries are read every few seconds, so decoded rules are cached, up to a bound.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from controller.fabric.topology import Port, PortNo
from controller.southbound.framework import ofp
from controller.southbound.openflow_framing import Malformed
from controller.southbound.openflow_parts import actions_of, instructions, match_fields, match_of, structures
from controller.tables.messages import PortCount
from controller.tables.rules import (
    Action,
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    MeterRule,
    OtherTable,
    Output,
    Table,
    ToGroup,
    is_ours,
)

UNSUPPORTED = (1 << 64) - 1
"""Value of a counter that the switch does not have: all bits are set (section 7.3.5)."""

REMEMBERED = 1 << 15
REMEMBERED_SIZE = 256
"""Largest number of cached flow entries, and their largest size in bytes; they limit the memory of the cache."""

COMMON_SIZE = 2048
"""Largest size in bytes of a cached group."""

_TABLES = {int(table): table for table in Table}
_GROUP_KINDS: dict[int, Literal["select", "fast_failover", "other"]] = {
    ofp.OFPGT_SELECT: "select",
    ofp.OFPGT_FF: "fast_failover",
}
_METER_FLAGS = ofp.OFPMF_PKTPS | ofp.OFPMF_BURST

_PORT = struct.Struct("!I4x6s2x16sII16xII")
_PORT_STATUS = struct.Struct("!B7x")
_PORT_REASONS = 3
_ERROR = struct.Struct("!HH")
_EXPERIMENTER_ERROR = struct.Struct("!HHI")
_ROLE = struct.Struct("!I4xQ")
_PACKET_IN = struct.Struct("!IHBBQ")
_PACKET_IN_AT = 8
_ONLY_IN_PORT = bytes.fromhex("0001000c80000004")
"""First bytes of the match of nearly every packet-in: 12 bytes, of which 8 are the field ``in_port``."""
_U32 = struct.Struct("!I")
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

    ``packets`` and ``bytes`` are totals so far, None where the switch does not count them."""

    rule: FlowRule | None
    """Rule of the entry; None if the entry is foreign or a ``FlowRule`` cannot express it."""
    packets: int | None
    bytes: int | None


class MeterDrops(NamedTuple):
    """Packets that the bands of one meter have dropped so far; None where the switch does not count them."""

    meter_id: int
    packets: int | None


# ---- ports, errors, roles, packets


def _unpacked(layout: struct.Struct, data: bytes, what: str) -> tuple[Any, ...]:
    if len(data) != layout.size:
        raise Malformed(f"{what} of {len(data)} bytes")
    return layout.unpack(data)


def port_desc(data: bytes) -> Port:
    """Return the port that a port description defines (section 7.2.1).

    Reserved ports, such as the switch's local port, are allowed. ``curr_speed`` in the description is in kbit/s."""
    number, mac, name, config, state, curr_speed, _ = _unpacked(_PORT, data, "a port description")
    up = not config & ofp.OFPPC_PORT_DOWN and not state & ofp.OFPPS_LINK_DOWN
    return Port(PortNo(number), _printable(name), mac.hex(":"), up, curr_speed * 1000.0)


def _printable(name: bytes) -> str:
    """Return the name with control characters replaced, which a terminal or a log viewer could execute."""
    text = name.rstrip(b"\0").decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def port_status(body: bytes) -> tuple[Port, bool]:
    """Return the port, and whether it was removed (section 7.4.3)."""
    if len(body) != _PORT_STATUS.size + _PORT.size:
        raise Malformed(f"port status of {len(body)} bytes; it must have {_PORT_STATUS.size + _PORT.size}")
    (reason,) = _PORT_STATUS.unpack_from(body)
    if reason >= _PORT_REASONS:
        raise Malformed(f"port status with reason {reason}")
    return port_desc(body[_PORT_STATUS.size :]), reason == ofp.OFPPR_DELETE


def error(body: bytes) -> tuple[tuple[int, int] | None, str]:
    """Return type and code of an error, and a text such as ``OFPET_BAD_ACTION(2): OFPBAC_BAD_OUT_GROUP(9)``.

    For an experimenter's error, None is returned instead of type and code (section 7.4.4)."""
    if len(body) < _ERROR.size:
        raise Malformed(f"error message of {len(body)} bytes; it needs at least {_ERROR.size}")
    kind, code = _ERROR.unpack_from(body)
    if kind != ofp.OFPET_EXPERIMENTER:
        return (kind, code), f"{ofp.ofp_error_type_to_str(kind)}: {ofp.ofp_error_code_to_str(kind, code)}"
    if len(body) < _EXPERIMENTER_ERROR.size:
        raise Malformed(f"experimenter error of {len(body)} bytes; it needs at least {_EXPERIMENTER_ERROR.size}")
    _, number, experimenter = _EXPERIMENTER_ERROR.unpack_from(body)
    return None, f"experimenter error {experimenter:#x}/{number}"


def role_reply(body: bytes) -> tuple[int, int]:
    """Return the role and the generation id (section 7.3.9)."""
    role, generation = _unpacked(_ROLE, body, "role reply")
    return role, generation


def barrier_reply(body: bytes) -> None:
    """Check that the body is empty (section 7.3.8)."""
    if body:
        raise Malformed(f"barrier reply of {len(body)} bytes")


def packet_in(message: bytes) -> tuple[PortNo | None, bytes]:
    """Return the ingress port (None if it is not given) and the frame of a whole packet-in message (section 7.4.1)."""
    at = _PACKET_IN_AT + _PACKET_IN.size
    if message.startswith(_ONLY_IN_PORT, at) and len(message) >= at + 18:
        return PortNo(_U32.unpack_from(message, at + 8)[0]), message[at + 18 :]
    fields, end = match_fields(message, at, len(message))
    if end + 2 > len(message):
        raise Malformed("a packet-in that ends within its padding")
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
            raise Malformed(f"{end - at} bytes are no flow entry")
        length, table, identity, packets, total = _FLOW_PARTS.unpack_from(body, at)
        if length < _FLOW.size + 8 or length % 8 or length > end - at:
            raise Malformed(f"a flow entry of {length} bytes where {end - at} are left")
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

    ``entry``: bytes of the entry without length, duration and counters, as ``flow_stats`` combines them. Foreign
    entries are checked too."""
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


_common_buckets = lru_cache(maxsize=1 << 11)(_buckets)
"""Cached ``_buckets``: groups to different destinations have the same buckets."""


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
            raise Malformed(f"a meter of {end - at} bytes")
        packets = [count for count, _ in _METER_BAND_STATS.iter_unpack(bands) if count != UNSUPPORTED]
        drops.append(MeterDrops(_U32.unpack_from(body, at)[0], min(UNSUPPORTED, sum(packets)) if packets else None))
    return drops


# ---- counts


def flow_count(body: bytes) -> int:
    """Return the number of flow entries (section 7.3.5.3)."""
    _, _, flows = _unpacked(_AGGREGATE, body, "aggregate statistics")
    return int(flows)


def table_stats(body: bytes) -> dict[Table, int]:
    """Return the number of entries in each table that the controller uses (section 7.3.5.4)."""
    if len(body) % _TABLE_STATS.size:
        raise Malformed(f"table statistics of {len(body)} bytes")
    return {_TABLES[table]: entries for table, entries in _TABLE_STATS.iter_unpack(body) if table in _TABLES}


def table_features(body: bytes) -> dict[Table, int]:
    """Return the capacity of each table that the controller uses (section 7.3.5.5.1); properties are skipped."""
    limits = {}
    for at, _ in structures(body, 0, len(body), "features of a table", _TABLE_FEATURES.size):
        _, table, max_entries = _TABLE_FEATURES.unpack_from(body, at)
        if table in _TABLES:
            limits[_TABLES[table]] = max_entries
    return limits


def group_features(body: bytes) -> dict[OtherTable, int]:
    """Return the largest number of groups of each kind that the controller uses (section 7.3.5.11)."""
    _, select, _, fast_failover = _unpacked(_GROUP_FEATURES, body, "group features")
    return {OtherTable.SELECT_GROUPS: select, OtherTable.FAST_FAILOVER_GROUPS: fast_failover}


def meter_features(body: bytes) -> dict[OtherTable, int]:
    """Return the largest number of meters (section 7.3.5.14)."""
    (meters,) = _unpacked(_METER_FEATURES, body, "meter features")
    return {OtherTable.METERS: meters}


def port_stats(body: bytes) -> dict[PortNo, PortCount]:
    """Return the byte counters of each port, without reserved ports (section 7.3.5.6)."""
    if len(body) % _PORT_STATS.itemsize:
        raise Malformed(f"port statistics of {len(body)} bytes")
    stats = np.frombuffer(body, _PORT_STATS)
    rows = zip(stats["port"].tolist(), stats["tx_bytes"].tolist(), stats["rx_bytes"].tolist(), strict=True)
    return {
        PortNo(port): PortCount(None if tx == UNSUPPORTED else tx, None if rx == UNSUPPORTED else rx)
        for port, tx, rx in rows
        if port <= ofp.OFPP_MAX
    }
