from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.southbound.framework import PROTOCOL, parse_message
from controller.southbound.framing import HEADER
from controller.southbound.malformed import Malformed
from controller.southbound.message_guard import (
    BARRIER_REPLY,
    CHECKS,
    ERROR,
    PORT_SIZE,
    PORT_STATUS,
    ROLE_REPLY,
    check,
)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (ERROR, struct.pack("!HH", 5, 3)),
        (ERROR, struct.pack("!HH", 5, 3) + bytes(64)),
        (ERROR, struct.pack("!HHI", 0xFFFF, 1, 0x4F4E4600)),
        (PORT_STATUS, struct.pack("!B7x", 2) + bytes(PORT_SIZE)),
        (BARRIER_REPLY, b""),
        (ROLE_REPLY, bytes(16)),
    ],
)
def test_what_the_specification_says_is_let_through(kind: int, body: bytes) -> None:
    check(kind, body)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (ERROR, b"\0\1\0"),
        (ERROR, struct.pack("!HHH", 0xFFFF, 1, 0)),
        (PORT_STATUS, bytes(8)),
        (PORT_STATUS, bytes(8 + PORT_SIZE - 1)),
        (PORT_STATUS, bytes(8 + PORT_SIZE + 1)),
        (PORT_STATUS, struct.pack("!B7x", 3) + bytes(PORT_SIZE)),
        (BARRIER_REPLY, b"\0"),
        (ROLE_REPLY, bytes(15)),
    ],
)
def test_what_it_does_not_say_is_malformed(kind: int, body: bytes) -> None:
    with pytest.raises(Malformed):
        check(kind, body)


@given(st.sampled_from(sorted(CHECKS)), st.binary(max_size=100) | st.sampled_from([8 + PORT_SIZE, 16]).map(bytes))
def test_whatever_is_let_through_can_be_parsed(kind: int, body: bytes) -> None:
    try:
        check(kind, body)
    except Malformed:
        return
    data = HEADER.pack(4, kind, HEADER.size + len(body), 1) + body
    assert parse_message(PROTOCOL, 4, kind, 1, data).msg_type == kind


def test_a_type_without_a_check_is_never_given_to_a_parser() -> None:
    with pytest.raises(KeyError):
        check(19, b"")
