"""Ethernet frames that the controller sends and reads: ARP for IPv4, and LLDP probes of links. Pure.

ARP follows RFC 826, and its probes RFC 5227. A link probe is an LLDP frame (IEEE 802.1AB) that names the port from
which it was sent. An organisationally specific TLV contains the port, a counter, and a tag over both: BLAKE2s (RFC
7693) with a secret key. So a host can neither invent nor change a probe. Probes with another key, such as that of an
earlier process, are refused. ``discovery`` decides whether a counter is still fresh.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from hashlib import blake2s
from ipaddress import IPv4Address
from typing import Literal, NamedTuple

from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.tables.rules import BROADCAST_MAC, CONTROLLER_MAC, ETH_ARP, ETH_LLDP

_ETHERNET = struct.Struct("!6s6sH")

# ---- ARP

_ARP = struct.Struct("!HHBBH6s4s6s4s")
_FRAME_BYTES = 60
_OPS: dict[int, Literal["request", "reply"]] = {1: "request", 2: "reply"}
_UNKNOWN_MAC = "00:00:00:00:00:00"


class Arp(NamedTuple):
    op: Literal["request", "reply"]
    sender_mac: str
    sender_ip: str
    target_mac: str
    target_ip: str


def arp_probe(ip: str) -> bytes:
    """Return a broadcast request for ``ip`` without a sender address, so that no neighbour table changes."""
    return arp_frame(BROADCAST_MAC, CONTROLLER_MAC, Arp("request", CONTROLLER_MAC, "0.0.0.0", _UNKNOWN_MAC, ip))


def arp_reply(ip: str, mac: str, asker_ip: str, asker_mac: str) -> bytes:
    """Return the reply that the owner of ``ip`` would send: ``ip`` is at ``mac``."""
    return arp_frame(asker_mac, mac, Arp("reply", mac, ip, asker_mac, asker_ip))


def arp_frame(eth_dst: str, eth_src: str, packet: Arp) -> bytes:
    """Return the frame, padded to the minimum size of Ethernet."""
    body = _ARP.pack(
        1,
        0x0800,
        6,
        4,
        1 if packet.op == "request" else 2,
        _mac_bytes(packet.sender_mac),
        IPv4Address(packet.sender_ip).packed,
        _mac_bytes(packet.target_mac),
        IPv4Address(packet.target_ip).packed,
    )
    return (_ETHERNET.pack(_mac_bytes(eth_dst), _mac_bytes(eth_src), ETH_ARP) + body).ljust(_FRAME_BYTES, b"\0")


def parse_arp(frame: bytes) -> Arp | None:
    """Return the ARP packet in a frame; None for an unusable frame.

    A usable frame is a whole, untagged ARP request or reply for IPv4 over Ethernet. The sender's MAC address in the
    packet must not be a group address, and must be the source address of the frame."""
    if len(frame) < _ETHERNET.size + _ARP.size:
        return None
    _, eth_src, eth_type = _ETHERNET.unpack_from(frame)
    hardware, protocol, hardware_len, protocol_len, op, sha, spa, tha, tpa = _ARP.unpack_from(frame, _ETHERNET.size)
    header = (eth_type, hardware, protocol, hardware_len, protocol_len)
    if header != (ETH_ARP, 1, 0x0800, 6, 4) or op not in _OPS or sha != eth_src or sha[0] & 1:
        return None
    return Arp(_OPS[op], sha.hex(":"), str(IPv4Address(spa)), tha.hex(":"), str(IPv4Address(tpa)))


def _mac_bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


# ---- link probes

Unread = Literal["foreign", "malformed", "forged"]
"""Reason to refuse an LLDP frame.

- ``foreign``: the frame is not marked as a probe.
- ``malformed``: the frame is marked as a probe, but incomplete.
- ``forged``: the probe is complete, but not signed with the key."""

# The destination is the nearest-bridge group address of IEEE 802.1AB; the source is locally administered.
_LLDP = bytes.fromhex("0180c200000e") + bytes.fromhex("025342000002") + struct.pack("!H", ETH_LLDP)
_LOCALLY_ASSIGNED = 7
_CHASSIS, _PORT_ID, _TTL, _END, _ORGANISATIONAL = 1, 2, 3, 0, 127
_TTL_S = 120
_PORT = struct.Struct("!QI")
_TAG_BYTES = 16
_SIGNED_BYTES = 20
_BODY = struct.Struct(f"!QIQ{_TAG_BYTES}s")
_OURS = bytes.fromhex("025342") + bytes([1])  # organisation (locally administered), then subtype
_MARK = struct.pack("!H", _ORGANISATIONAL << 9 | len(_OURS) + _BODY.size) + _OURS


class ProbeFrames:
    """Writer and reader of probes that are signed with ``key``: up to 32 bytes, random by default."""

    def __init__(self, key: bytes | None = None) -> None:
        self.key = key or secrets.token_bytes(32)

    @staticmethod
    def head(at: PortRef) -> bytes:
        """Return the part of the frame before the counter, which is the same in all probes of a port."""
        return b"".join(
            (
                _LLDP,
                _tlv(_CHASSIS, bytes([_LOCALLY_ASSIGNED]) + f"dpid:{at.dpid:016x}".encode()),
                _tlv(_PORT_ID, bytes([_LOCALLY_ASSIGNED]) + str(at.port).encode()),
                _tlv(_TTL, struct.pack("!H", _TTL_S)),
                _MARK,
                _PORT.pack(*at),
            )
        )

    def frame(self, head: bytes, counter: int) -> bytes:
        """Return the frame of a probe for a port's ``head``; the frame is longer than Ethernet's minimum."""
        number = counter.to_bytes(8, "big")
        return head + number + self._tag(head[-_PORT.size :] + number) + b"\0\0"

    def read(self, frame: bytes) -> tuple[PortRef, int] | Unread:
        """Return the sending port and the counter of a genuine probe, or the reason why the frame is refused.

        The function searches for the TLV by its mark, without parsing the TLVs before it, since only the tag
        matters."""
        if frame[12:14] != _LLDP[12:14]:
            return "foreign"
        start = frame.find(_MARK, len(_LLDP))
        if start < 0:
            return "malformed" if _OURS in frame else "foreign"
        start += len(_MARK)
        if len(frame) < start + _BODY.size:
            return "malformed"
        dpid, port, counter, tag = _BODY.unpack_from(frame, start)
        if not hmac.compare_digest(tag, self._tag(frame[start : start + _SIGNED_BYTES])):
            return "forged"
        return PortRef(Dpid(dpid), PortNo(port)), counter

    def _tag(self, signed: bytes) -> bytes:
        return blake2s(signed, digest_size=_TAG_BYTES, key=self.key).digest()


def _tlv(kind: int, value: bytes) -> bytes:
    return struct.pack("!H", kind << 9 | len(value)) + value
