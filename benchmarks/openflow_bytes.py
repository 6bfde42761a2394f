"""Minimal codec of OpenFlow 1.3 for the benchmarks, independent of the controller's codec.

The input is messages as on the wire, the result is the changes of groups and flows as plain tuples. Only the fields
that an observer needs are read. Section numbers are those of the OpenFlow switch specification 1.3.5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

VERSION = 4
HEADER = struct.Struct("!BBHI")
"""Version, type, length and transaction id (section 7.1)."""
ANY_TABLE = 0xFF
OFPPR_DELETE = 1
MORE = 1
"""Flag that is set in every part of a multipart reply except the last."""

_FLOW_MOD = struct.Struct("!QQBBHHHIIIH2x")
_GROUP_MOD = struct.Struct("!HBxI")
_BUCKET = struct.Struct("!HHII4x")
_PAIR = struct.Struct("!HH")
_OUTPUT, _GROUP_ACTION = 0, 22
_GOTO, _WRITE_ACTIONS, _APPLY_ACTIONS = 1, 3, 4
_IPV4_DST, _IPV4_DST_MASKED = 0x8000_1804, 0x8000_1908
_FLOW_MOD_DELETES = (3, 4)
_GROUP_MOD_DELETE = 2


class Type(IntEnum):
    """Message types (section 7.1)."""

    HELLO = 0
    ERROR = 1
    ECHO_REQUEST = 2
    ECHO_REPLY = 3
    FEATURES_REQUEST = 5
    FEATURES_REPLY = 6
    GET_CONFIG_REQUEST = 7
    GET_CONFIG_REPLY = 8
    PACKET_IN = 10
    PORT_STATUS = 12
    PACKET_OUT = 13
    FLOW_MOD = 14
    GROUP_MOD = 15
    MULTIPART_REQUEST = 18
    MULTIPART_REPLY = 19
    BARRIER_REQUEST = 20
    BARRIER_REPLY = 21
    ROLE_REQUEST = 24
    ROLE_REPLY = 25
    METER_MOD = 29


class Multipart(IntEnum):
    """Bodies of multipart messages (section 7.3.5)."""

    DESC = 0
    FLOW = 1
    AGGREGATE = 2
    PORT_STATS = 4
    GROUP_DESC = 7
    GROUP_FEATURES = 8
    METER = 9
    METER_CONFIG = 10
    METER_FEATURES = 11
    PORT_DESC = 13


class GroupChange(NamedTuple):
    """Change of a group. ``ports``: outputs of its buckets, in order. ``groups``: groups to which its buckets lead."""

    group_id: int
    deleted: bool
    ports: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()


class FlowChange(NamedTuple):
    """Change of a flow entry."""

    cookie: int
    table: int
    priority: int
    match: bytes
    """Match as on the wire; with table and priority it identifies the entry."""
    deleted: bool
    ipv4_dst: int | None
    """Destination address that is matched (the first address of a prefix); None without such a match."""
    ports: tuple[int, ...]
    groups: tuple[int, ...]


def port_desc(number: int, name: str, config: int = 0) -> bytes:
    """Return the description of a port of 10 Gbit/s (section 7.2.1)."""
    mac = bytes.fromhex("020000000001")
    return struct.pack("!I4x6s2x16s8I", number, mac, name.encode(), config, 0, 0, 0, 0, 0, 10_000, 0)


def message(kind: Type, xid: int, body: bytes = b"") -> bytes:
    return HEADER.pack(VERSION, kind, HEADER.size + len(body), xid) + body


def messages(data: bytes | bytearray) -> Iterator[tuple[int, int, int]]:
    """Yield (type, start, end) of every complete message. Raises ``ValueError`` for a length below the header's."""
    at, ends = 0, len(data)
    while at + HEADER.size <= ends:
        _, kind, length, _ = HEADER.unpack_from(data, at)
        if length < HEADER.size:
            raise ValueError(f"a message of {length} bytes")
        if at + length > ends:
            return
        yield kind, at, at + length
        at += length


def xid_of(data: bytes) -> int:
    """Return the transaction id of a message."""
    xid: int = HEADER.unpack_from(data)[3]
    return xid


def multipart_kind(data: bytes) -> int:
    """Return the type of body of a multipart request or reply (section 7.3.5)."""
    kind: int = struct.unpack_from("!H", data, HEADER.size)[0]
    return kind


def group_change(data: bytes) -> GroupChange:
    """Return the change of a GROUP_MOD (section 7.3.4.3), given with its header."""
    command, _, group_id = _GROUP_MOD.unpack_from(data, HEADER.size)
    if command == _GROUP_MOD_DELETE:
        return GroupChange(group_id, deleted=True)
    ports: list[int] = []
    groups: list[int] = []
    at = HEADER.size + _GROUP_MOD.size
    while at + _BUCKET.size <= len(data):
        length = max(_BUCKET.unpack_from(data, at)[0], _BUCKET.size)
        _read_actions(data, at + _BUCKET.size, at + length, ports, groups)
        at += length
    return GroupChange(group_id, False, tuple(ports), tuple(groups))


def flow_change(data: bytes) -> FlowChange:
    """Return the change of a FLOW_MOD (section 7.3.4.1), given with its header."""
    cookie, _, table, command, _, _, priority, *_ = _FLOW_MOD.unpack_from(data, HEADER.size)
    start = HEADER.size + _FLOW_MOD.size
    match_length = _PAIR.unpack_from(data, start)[1]
    match = bytes(data[start : start + match_length])
    ports: list[int] = []
    groups: list[int] = []
    at = start + (match_length + 7) // 8 * 8
    while at + _PAIR.size <= len(data):
        kind, length = _PAIR.unpack_from(data, at)
        if kind in (_WRITE_ACTIONS, _APPLY_ACTIONS):
            _read_actions(data, at + 8, at + length, ports, groups)
        at += max(length, 8)
    deleted = command in _FLOW_MOD_DELETES
    return FlowChange(cookie, table, priority, match, deleted, _ipv4_dst(match), tuple(ports), tuple(groups))


def _read_actions(data: bytes, at: int, end: int, ports: list[int], groups: list[int]) -> None:
    while at + 8 <= end:
        kind, length, argument = struct.unpack_from("!HHI", data, at)
        if kind == _OUTPUT:
            ports.append(argument)
        elif kind == _GROUP_ACTION:
            groups.append(argument)
        at += max(length, 8)


def _ipv4_dst(match: bytes) -> int | None:
    at = _PAIR.size
    while at + 4 <= len(match):
        (head,) = struct.unpack_from("!I", match, at)
        if head in (_IPV4_DST, _IPV4_DST_MASKED):
            (address,) = struct.unpack_from("!I", match, at + 4)
            return int(address)
        at += 4 + (head & 0xFF)
    return None
