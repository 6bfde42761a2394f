"""ARP over Ethernet as bytes (RFC 826, probes as in RFC 5227). Pure.

In: addresses. Out: whole frames; and from a frame that a switch handed up, what it says, or None.
"""

from __future__ import annotations

import struct
from ipaddress import IPv4Address
from typing import Literal, NamedTuple

from controller.tables.rules import BROADCAST_MAC, CONTROLLER_MAC, ETH_ARP

_ETHERNET = struct.Struct("!6s6sH")
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


def probe(ip: str) -> bytes:
    """A broadcast request for ``ip`` that claims no address itself, so that nobody's neighbour table changes."""
    return build(BROADCAST_MAC, CONTROLLER_MAC, Arp("request", CONTROLLER_MAC, "0.0.0.0", _UNKNOWN_MAC, ip))


def reply(ip: str, mac: str, asker_ip: str, asker_mac: str) -> bytes:
    """Tells the asker that ``ip`` is at ``mac``, as if the owner had."""
    return build(asker_mac, mac, Arp("reply", mac, ip, asker_mac, asker_ip))


def build(eth_dst: str, eth_src: str, packet: Arp) -> bytes:
    """The frame, padded to Ethernet's shortest."""
    body = _ARP.pack(
        1,
        0x0800,
        6,
        4,
        1 if packet.op == "request" else 2,
        mac_bytes(packet.sender_mac),
        IPv4Address(packet.sender_ip).packed,
        mac_bytes(packet.target_mac),
        IPv4Address(packet.target_ip).packed,
    )
    return (_ETHERNET.pack(mac_bytes(eth_dst), mac_bytes(eth_src), ETH_ARP) + body).ljust(_FRAME_BYTES, b"\0")


def parse(frame: bytes) -> Arp | None:
    """None when the frame is not a whole, untagged ARP request or reply for IPv4 over Ethernet, or when its sender is
    a group address or is not the station that sent the frame."""
    if len(frame) < _ETHERNET.size + _ARP.size:
        return None
    _, eth_src, eth_type = _ETHERNET.unpack_from(frame)
    hardware, protocol, hardware_len, protocol_len, op, sha, spa, tha, tpa = _ARP.unpack_from(frame, _ETHERNET.size)
    header = (eth_type, hardware, protocol, hardware_len, protocol_len)
    if header != (ETH_ARP, 1, 0x0800, 6, 4) or op not in _OPS or sha != eth_src or sha[0] & 1:
        return None
    return Arp(_OPS[op], mac_text(sha), str(IPv4Address(spa)), mac_text(tha), str(IPv4Address(tpa)))


def mac_bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def mac_text(raw: bytes) -> str:
    return raw.hex(":")
