"""Decoder of OpenFlow 1.3 match fields, instructions and actions, which several kinds of messages contain.

In: bytes, and the position to read at. Out: ``Match``, actions, next table and meter, or None for a foreign entry that
these types cannot express. The only error raised is ``Malformed``. Every step advances by at least one header, so
decoding ends. Section numbers are those of OpenFlow 1.3.5.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Any

from controller.fabric.topology import PortNo
from controller.southbound.framework import ofp
from controller.southbound.openflow_encode import CLEAR_IN_PORT
from controller.southbound.openflow_framing import Malformed
from controller.tables.rules import (
    IP_TCP,
    IP_UDP,
    Action,
    AnyPort,
    Match,
    Output,
    Prefix,
    Table,
    ToController,
    ToGroup,
)
from signalbox.jobs.subflows import PortClass, exactly

_TABLES = {int(table): table for table in Table}
_LENGTHS = {((1 << length) - 1) << (32 - length): length for length in range(33)}

_U16 = struct.Struct("!H")
_U32 = struct.Struct("!I")
_TWO_U16 = struct.Struct("!HH")
_TLV = struct.Struct("!HBB")
_OUTPUT = struct.Struct("!IH6x")


# ---- match fields


Field = tuple[int | None, bytes, bytes | None]
"""Match field: number in the basic OXM class (None for a field of another class), value, and mask if there is one."""


def match_fields(data: bytes, at: int, end: int) -> tuple[list[Field], int]:
    """Return the fields of the match at ``at``, and the position after its padding (section 7.2.3.1)."""
    if end - at < 8:
        raise Malformed("no room for a match")
    kind, length = _TWO_U16.unpack_from(data, at)
    padded = length + -length % 8
    if kind != ofp.OFPMT_OXM or length < 4 or padded > end - at:
        raise Malformed(f"a match of type {kind} with {length} bytes where {end - at} are left")
    fields = list(_oxm_fields(data, at + 4, at + length))
    if len({number for number, _, _ in fields if number is not None}) < sum(f[0] is not None for f in fields):
        raise Malformed("a match names a field twice")
    return fields, at + padded


def _oxm_fields(data: bytes, at: int, end: int) -> Iterator[Field]:
    """Yield the fields of a match (section 7.2.3.2)."""
    while at < end:
        if end - at < _TLV.size:
            raise Malformed("a match field without a whole header")
        oxm_class, field, length = _TLV.unpack_from(data, at)
        at += _TLV.size
        if length > end - at:
            raise Malformed(f"a match field of {length} bytes where {end - at} are left")
        number, masked = field >> 1, field & 1
        if oxm_class != ofp.OFPXMC_OPENFLOW_BASIC:
            yield None, b"", None
        else:
            if number in _FIELDS and length != _FIELDS[number][0] << masked:
                raise Malformed(f"match field {number} with {length} bytes")
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
    """Return a prefix; equal prefixes share one object, because there are many rules and few addresses."""
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
            raise Malformed(f"two instructions of type {kind}")
        seen.add(kind)
        if kind in (ofp.OFPIT_METER, ofp.OFPIT_GOTO_TABLE) and end - start != 8:
            raise Malformed(f"an instruction of type {kind} with {end - start} bytes")
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
            raise Malformed(f"an action of type {kind} with {stop - start} bytes")
        if kind == ofp.OFPAT_OUTPUT:
            port, max_len = _OUTPUT.unpack_from(data, start + 4)
            if port != ofp.OFPP_CONTROLLER:
                actions.append(Output(PortNo(port)))
            else:
                actions.append(ToController() if max_len == ofp.OFPCML_NO_BUFFER else None)
        elif kind == ofp.OFPAT_GROUP:
            actions.append(ToGroup(_U32.unpack_from(data, start + 4)[0]))
        elif data[start:stop] == CLEAR_IN_PORT:
            actions.append(AnyPort())
        else:
            actions.append(None)
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
            raise Malformed(f"{end - at} bytes are not {what}")
        (length,) = _U16.unpack_from(data, at + length_at)
        if length < least or length % 8 or length > end - at:
            raise Malformed(f"{what} of {length} bytes where {end - at} are left")
        yield at, at + length
        at += length
