"""Mutants: OpenFlow messages of a switch that are built correctly and then broken. ``mutant`` is a pure function.

Ryu's serialisers build the bodies where Ryu has them. Many mutations change lengths, because wrong lengths cause
endless loops and overruns.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.openflow_bytes import port_desc
from controller.southbound.framework import ofp
from controller.southbound.framework import ofp_parser as parser
from controller.tables.rules import Table, cookie

MULTIPART = {
    "flow stats": ofp.OFPMP_FLOW,
    "aggregate stats": ofp.OFPMP_AGGREGATE,
    "port stats": ofp.OFPMP_PORT_STATS,
    "group desc": ofp.OFPMP_GROUP_DESC,
    "meter config": ofp.OFPMP_METER_CONFIG,
    "meter stats": ofp.OFPMP_METER,
    "table stats": ofp.OFPMP_TABLE,
    "table features": ofp.OFPMP_TABLE_FEATURES,
    "group features": ofp.OFPMP_GROUP_FEATURES,
    "meter features": ofp.OFPMP_METER_FEATURES,
}
"""Multipart requests that the controller sends to a connected switch."""

PORT_DESC = "port desc"
INSTEAD_OF_HELLO = ("hello", "early error")
HANDSHAKE = (*INSTEAD_OF_HELLO, "features reply", PORT_DESC)
_MORE_SHARE = 0.95
_LENGTHS = (0, 1, 3, 4, 7, 8, 16, 0x7FFF, 0xFFFF)


@dataclass(frozen=True, slots=True)
class Mutant:
    kind: str
    data: bytes
    """Whole message; ``numbered`` sets its transaction id."""
    ends: bool
    """Whether the header announces more bytes than there are. The connection must then end for the message to end."""

    def numbered(self, xid: int) -> bytes:
        return self.data[:4] + struct.pack("!I", xid) + self.data[8:]


def mutant(seed: int, number: int) -> Mutant:
    """Return mutant ``number`` of a seed, always the same one."""
    rng = Random(f"{seed}/{number}")
    kind = rng.choice(KINDS)
    number_on_wire, build = _MESSAGES[kind]
    body = build(rng)
    if kind in MULTIPART or kind == PORT_DESC:
        more = rng.random() < _MORE_SHARE and kind != PORT_DESC
        part = struct.pack("!HH4x", MULTIPART.get(kind, ofp.OFPMP_PORT_DESC), more)
        body = mutated(rng, part + body) if rng.random() < 0.03 else part + mutated(rng, body)
    else:
        body = mutated(rng, body)
    body = body[: 0xFFFF - 8]
    header = [4, number_on_wire, 8 + len(body)]
    if rng.random() < 0.03:
        which = rng.randrange(3)
        header[which] = rng.choice((*_LENGTHS, rng.getrandbits(16))) & (0xFFFF if which == 2 else 0xFF)
    return Mutant(kind, struct.pack("!BBHI", *header, 0) + body, header[2] > 8 + len(body))


# ---- breaking

_MUTATIONS = (
    *6 * ("length",),
    *4 * ("bits",),
    *3 * ("word",),
    "zero",
    "truncate",
    "cut",
    "repeat",
    "add",
    "grow",
    "random",
)


def mutated(rng: Random, body: bytes) -> bytes:
    """Return the body with one to three mutations, or in one of eight cases unchanged."""
    broken = bytearray(body)
    if rng.random() >= 0.125:
        for _ in range(rng.choice((1, 1, 2, 3))):
            _mutate(rng.choice(_MUTATIONS), rng, broken)
    return bytes(broken)


def _mutate(how: str, rng: Random, body: bytearray) -> None:
    at = rng.randrange(len(body) + 1)
    match how:
        case "length":
            _wrong_length(rng, body)
        case "bits":
            for _ in range(rng.randint(1, 4) if body else 0):
                body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
        case "word" if len(body) >= 4:
            word = rng.choice((0, 0xFFFFFFFF, rng.getrandbits(32)))
            struct.pack_into("!I", body, rng.randrange(len(body) - 3), word)
        case "zero":
            size = rng.randint(1, 32)
            body[at : at + size] = bytes(len(body[at : at + size]))
        case "truncate":
            del body[at:]
        case "cut":
            del body[at : at + rng.randint(1, 24)]
        case "repeat":
            body[at:at] = body[at : at + rng.randint(1, 64)]
        case "add":
            body += rng.randbytes(rng.randint(1, 64))
        case "grow":
            body *= rng.randint(2, 400)
            del body[0xFFF0:]
        case "random":
            body[:] = rng.randbytes(rng.choice((0, 1, 7, 8, 16, 24, 64, 300, 4000)))


def _wrong_length(rng: Random, body: bytearray) -> None:
    """Replace a 16-bit number that may be a length, because it is at most the size of the body, by a wrong one."""
    places = [at for at in range(len(body) - 1) if 4 <= int.from_bytes(body[at : at + 2], "big") <= len(body)]
    if not places:
        return
    at = rng.choice(places)
    value = int.from_bytes(body[at : at + 2], "big")
    wrong = rng.choice((*_LENGTHS, value - 1, value + 1, value - 8, value + 8, 2 * value, len(body) - at))
    struct.pack_into("!H", body, at, wrong & 0xFFFF)


# ---- building


def _serialized(part: Any) -> bytes:
    buffer = bytearray()
    part.serialize(buffer, 0)
    return bytes(buffer)


def _address(rng: Random) -> str:
    return f"10.{rng.randrange(4)}.{rng.randrange(256)}.{rng.randrange(256)}"


def _match(rng: Random) -> bytes:
    """Return a match, as a rule of the controller or a foreign rule may have."""
    fields: dict[str, Any] = {}
    if rng.random() < 0.5:
        fields["in_port"] = rng.choice((1, 2, 0xFFFFFFFE, rng.getrandbits(32)))
    match rng.randrange(6):
        case 0:
            fields |= {"eth_type": 0x88CC, "eth_dst": "01:80:c2:00:00:0e"}
        case 1:
            fields |= {"eth_type": 0x0806, "arp_tpa": (_address(rng), "255.255.255.0")}
        case 2:
            protocol = rng.choice((("tcp", 6), ("udp", 17)))
            port = rng.choice((4791, (2, 14)))
            fields |= {"eth_type": 0x0800, "ip_proto": protocol[1], f"{protocol[0]}_{rng.choice(('src', 'dst'))}": port}
            fields |= {"ipv4_src": _address(rng), "ipv4_dst": (_address(rng), rng.choice(("255.255.0.0", "0.0.0.1")))}
        case 3:
            fields |= {"eth_type": 0x86DD, "ipv6_dst": "2001:db8::1", "vlan_vid": 0x1005, "metadata": (7, 15)}
        case 4:
            fields |= {"eth_type": 0x0800, "ipv4_dst": _address(rng), "tunnel_id": 9, "ip_dscp": 3}
    return _serialized(parser.OFPMatch(**fields))


def _action(rng: Random) -> Any:
    port = rng.choice((1, 2, ofp.OFPP_CONTROLLER, rng.getrandbits(32)))
    return rng.choice(
        (
            parser.OFPActionOutput(port, rng.choice((0, ofp.OFPCML_NO_BUFFER))),
            parser.OFPActionGroup(rng.getrandbits(32)),
            parser.OFPActionPushVlan(),
            parser.OFPActionSetField(ipv4_dst=_address(rng)),
            parser.OFPActionDecNwTtl(),
        )
    )


def _instructions(rng: Random) -> bytes:
    some = [
        parser.OFPInstructionMeter(rng.getrandbits(8)),
        parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, [_action(rng) for _ in range(rng.randrange(4))]),
        parser.OFPInstructionActions(ofp.OFPIT_WRITE_ACTIONS, [_action(rng)]),
        parser.OFPInstructionGotoTable(rng.randrange(4)),
        parser.OFPInstructionWriteMetadata(1, 2),
    ]
    return b"".join(_serialized(part) for part in rng.sample(some, rng.randrange(4)))


def _flow_stats(rng: Random) -> bytes:
    entries = b""
    for _ in range(rng.randint(0, 5)):
        rest = _match(rng) + _instructions(rng)
        table = rng.choice((0, 1, 2, 7))
        owner = rng.choice((cookie(Table.PINNED), cookie(Table.DEFAULT), 0, rng.getrandbits(64)))
        times = rng.choice((0, 0, 0, 5)), 0
        counts = owner, rng.getrandbits(32), rng.getrandbits(40)
        head = struct.pack("!HBxIIHHHH4xQQQ", 48 + len(rest), table, 9, 0, rng.getrandbits(16), *times, 0, *counts)
        entries += head + rest
    return entries


def _group_desc(rng: Random) -> bytes:
    groups = b""
    for _ in range(rng.randint(0, 4)):
        buckets = b""
        for _ in range(rng.randint(0, 4)):
            watch = rng.choice((1, ofp.OFPP_ANY)), rng.choice((ofp.OFPG_ANY, 5))
            actions = [_action(rng) for _ in range(rng.choice((1, 1, 2)))]
            buckets += _serialized(parser.OFPBucket(rng.randrange(3), *watch, actions))
        groups += struct.pack("!HBxI", 8 + len(buckets), rng.randrange(4), rng.getrandbits(32)) + buckets
    return groups


def _meter_config(rng: Random) -> bytes:
    meters = b""
    for _ in range(rng.randint(0, 4)):
        bands = b"".join(
            _serialized(rng.choice((parser.OFPMeterBandDrop(50, 50), parser.OFPMeterBandDscpRemark(1, 2, 3))))
            for _ in range(rng.choice((1, 1, 2)))
        )
        flags = rng.choice((ofp.OFPMF_PKTPS | ofp.OFPMF_BURST, ofp.OFPMF_KBPS))
        meters += struct.pack("!HHI", 8 + len(bands), flags, rng.getrandbits(16)) + bands
    return meters


def _meter_stats(rng: Random) -> bytes:
    meters = b""
    for _ in range(rng.randint(0, 4)):
        bands = b"".join(struct.pack("!QQ", rng.getrandbits(40), 0) for _ in range(rng.randrange(3)))
        meters += struct.pack("!IH6xIQQII", rng.getrandbits(16), 40 + len(bands), 1, 2, 3, 4, 5) + bands
    return meters


def _port_stats(rng: Random) -> bytes:
    return b"".join(struct.pack("!I4x", rng.randrange(5)) + rng.randbytes(104) for _ in range(rng.randrange(4)))


def _table_stats(rng: Random) -> bytes:
    return b"".join(
        struct.pack("!B3xIQQ", rng.randrange(5), rng.getrandbits(20), 3, 2) for _ in range(rng.randrange(5))
    )


def _table_features(rng: Random) -> bytes:
    """Return table features, each followed by random properties, which the controller does not read."""
    tables = b""
    for _ in range(rng.randrange(5)):
        more = rng.randbytes(8 * rng.randrange(9))
        head = 64 + len(more), rng.randrange(5), b"table", 0, 0, 0, rng.getrandbits(20)
        tables += struct.pack("!HB5x32sQQII", *head) + more
    return tables


def _packet_in(rng: Random) -> bytes:
    arp = bytes.fromhex("ffffffffffff02000000000a08060001080006040001") + rng.randbytes(20)
    lldp = bytes.fromhex("0180c200000e02000000000a88cc") + rng.randbytes(60)
    frame = rng.choice((arp, lldp, rng.randbytes(60)))
    return struct.pack("!IHBBQ", 0xFFFFFFFF, len(frame), 1, 0, 0) + _match(rng) + b"\0\0" + frame


def _port(rng: Random) -> bytes:
    name = rng.choice(("eth1", "a long name", "\N{SNOWMAN}"))[:15]
    return port_desc(rng.choice((1, 2, 0xFFFFFFFE, rng.getrandbits(32))), name, rng.getrandbits(3))


def _error(rng: Random) -> bytes:
    kind = rng.choice((0, 1, 5, 6, 12, 0xFFFF, rng.getrandbits(16)))
    return struct.pack("!HH", kind, rng.randrange(12)) + rng.randbytes(rng.choice((0, 4, 64)))


def _bytes(*sizes: int) -> Callable[[Random], bytes]:
    return lambda rng: rng.randbytes(rng.choice(sizes))


_MESSAGES: Mapping[str, tuple[int, Callable[[Random], bytes]]] = {
    "hello": (ofp.OFPT_HELLO, lambda rng: struct.pack("!HHI", 1, 8, 0x10 | rng.getrandbits(6))),
    "early error": (ofp.OFPT_ERROR, lambda _: struct.pack("!HH", ofp.OFPET_HELLO_FAILED, 0) + b"no"),
    "features reply": (
        ofp.OFPT_FEATURES_REPLY,
        lambda rng: struct.pack("!QIBB2xII", rng.choice((2, 3, rng.getrandbits(64))), 0, 254, 0, 0x4F, 0),
    ),
    PORT_DESC: (ofp.OFPT_MULTIPART_REPLY, lambda rng: b"".join(_port(rng) for _ in range(rng.randrange(5)))),
    "flow stats": (ofp.OFPT_MULTIPART_REPLY, _flow_stats),
    "aggregate stats": (ofp.OFPT_MULTIPART_REPLY, lambda rng: struct.pack("!QQI4x", 1, 2, rng.getrandbits(8))),
    "port stats": (ofp.OFPT_MULTIPART_REPLY, _port_stats),
    "group desc": (ofp.OFPT_MULTIPART_REPLY, _group_desc),
    "meter config": (ofp.OFPT_MULTIPART_REPLY, _meter_config),
    "meter stats": (ofp.OFPT_MULTIPART_REPLY, _meter_stats),
    "table stats": (ofp.OFPT_MULTIPART_REPLY, _table_stats),
    "table features": (ofp.OFPT_MULTIPART_REPLY, _table_features),
    "group features": (ofp.OFPT_MULTIPART_REPLY, _bytes(40)),
    "meter features": (ofp.OFPT_MULTIPART_REPLY, _bytes(16)),
    "packet-in": (ofp.OFPT_PACKET_IN, _packet_in),
    "port status": (ofp.OFPT_PORT_STATUS, lambda rng: struct.pack("!B7x", rng.randrange(3)) + _port(rng)),
    "error": (ofp.OFPT_ERROR, _error),
    "barrier reply": (ofp.OFPT_BARRIER_REPLY, _bytes(0)),
    "role reply": (ofp.OFPT_ROLE_REPLY, _bytes(16)),
    "echo": (ofp.OFPT_ECHO_REQUEST, _bytes(0, 8, 5000)),
    "echo reply": (ofp.OFPT_ECHO_REPLY, _bytes(0, 8)),
    "flow removed": (ofp.OFPT_FLOW_REMOVED, lambda rng: rng.randbytes(40) + _match(rng)),
    "unasked": (ofp.OFPT_QUEUE_GET_CONFIG_REPLY, _bytes(0, 8, 80)),
    "request": (ofp.OFPT_FLOW_MOD, _bytes(0, 48)),
}
_OFTEN = ("flow stats", "group desc", "packet-in", "meter config", "meter stats", "port stats", "port status")
KINDS = (*_MESSAGES, *_OFTEN, *_OFTEN)
