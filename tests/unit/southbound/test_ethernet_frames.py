from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.southbound.ethernet_frames import Arp, ProbeFrames, arp_frame, arp_probe, arp_reply, parse_arp
from controller.tables.rules import BROADCAST_MAC, CONTROLLER_MAC

HOST, ASKER = "02:00:00:00:00:0a", "02:00:00:00:00:0b"


def test_a_probe_is_a_broadcast_that_claims_no_address() -> None:
    frame = arp_probe("10.0.1.2")
    assert frame[:6] == b"\xff" * 6
    assert parse_arp(frame) == Arp("request", CONTROLLER_MAC, "0.0.0.0", "00:00:00:00:00:00", "10.0.1.2")
    assert len(frame) == 60
    rfc_826 = "0806 0001 0800 06 04 0001 025342000001 00000000 000000000000 0a000102"
    assert frame[12:42] == bytes.fromhex(rfc_826)


def test_a_reply_has_the_addresses_of_the_owner_and_goes_to_the_asker() -> None:
    frame = arp_reply("10.0.1.2", HOST, "10.0.2.2", ASKER)
    assert frame[:6] == bytes.fromhex(ASKER.replace(":", ""))
    assert parse_arp(frame) == Arp("reply", HOST, "10.0.1.2", ASKER, "10.0.2.2")


def test_a_sender_that_is_not_the_station_or_has_a_group_address_is_refused() -> None:
    spoofed = arp_frame(BROADCAST_MAC, ASKER, Arp("request", HOST, "10.0.1.2", ASKER, "10.0.1.3"))
    assert parse_arp(spoofed) is None
    group = arp_frame(BROADCAST_MAC, BROADCAST_MAC, Arp("reply", BROADCAST_MAC, "10.0.1.2", ASKER, "10.0.1.3"))
    assert parse_arp(group) is None


def test_every_truncation_and_every_foreign_header_is_refused() -> None:
    frame = arp_probe("10.0.1.2")[:42]
    assert all(parse_arp(frame[:length]) is None for length in range(42))
    for offset in range(12, 22):
        changed = frame[:offset] + bytes([frame[offset] ^ 0x40]) + frame[offset + 1 :]
        assert parse_arp(changed) is None


@given(st.binary(max_size=80))
def test_no_bytes_make_the_parser_fail(frame: bytes) -> None:
    parse_arp(frame)
    parse_arp(struct.pack("!6s6sH", b"\0" * 6, b"\0" * 6, 0x0806) + frame)


def test_a_probe_is_lldp_with_chassis_port_and_time_to_live() -> None:
    """IEEE 802.1AB, section 8.1: type in 7 bits, length in 9, and an end of two zeros."""
    frames = ProbeFrames()
    frame = frames.frame(frames.head(PortRef(Dpid(0xAB), PortNo(7))), 1)
    assert frame[12:14] == b"\x88\xcc"
    at, found = 14, []
    while at < len(frame):
        (header,) = struct.unpack_from("!H", frame, at)
        kind, length = header >> 9, header & 0x1FF
        found.append((kind, frame[at + 2 : at + 2 + length]))
        at += 2 + length
    assert at == len(frame)
    assert [kind for kind, _ in found] == [1, 2, 3, 127, 0]
    assert [value[1:] for _, value in found[:2]] == [b"dpid:00000000000000ab", b"7"]
