"""A handshake has come to its end when the server accepts the client, however the bytes are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.relay.handshakes import Handshake

HELLO, CHANGE, ALERT, DATA = 22, 20, 21, 23
Records = list[tuple[str, int, int]]
"""Side, type and length of each record."""

NEW: Records = [
    ("c", HELLO, 500),
    ("s", HELLO, 90),
    ("s", CHANGE, 1),
    ("s", DATA, 900),
    ("c", CHANGE, 1),
    ("c", DATA, 53),
]
OLD: Records = [("c", HELLO, 200), ("s", HELLO, 900), ("c", HELLO, 200), ("c", CHANGE, 1), ("c", HELLO, 40)]
AGAIN: Records = [("c", HELLO, 500), ("s", HELLO, 90), ("s", CHANGE, 1), ("c", CHANGE, 1), *NEW]

STREAMS: dict[str, tuple[Records, bool]] = {
    "1.3": ([*NEW, ("s", DATA, 60)], True),
    "1.3, with another key share": ([*AGAIN, ("s", DATA, 60)], True),
    "1.3, server refuses": ([*NEW, ("c", DATA, 90), ("s", DATA, 19)], False),
    "1.3, another key share, server refuses": ([*AGAIN, ("s", DATA, 19)], False),
    "1.3, client refuses": ([*NEW[:4], ("c", DATA, 19)], False),
    "1.2": ([*OLD, ("s", CHANGE, 1), ("s", HELLO, 40), ("s", DATA, 60)], True),
    "1.2, server refuses": ([*OLD, ("s", ALERT, 2)], False),
    "1.2, client refuses": ([*OLD[:2], ("c", ALERT, 2)], False),
    "too old": ([("c", HELLO, 200), ("s", ALERT, 2)], False),
}


@pytest.mark.parametrize("name", STREAMS)
@given(cuts=st.lists(st.integers(1, 1000), max_size=20))
def test_only_what_the_server_accepts_is_accepted(name: str, cuts: list[int]) -> None:
    records, accepted = STREAMS[name]
    handshake = Handshake()
    for side, kind, size in records:
        assert not handshake.accepted
        record = bytes([kind, 3, 3]) + size.to_bytes(2) + bytes(size)
        show = handshake.client_sent if side == "c" else handshake.server_sent
        for begin, end in pairwise([0, *sorted({cut for cut in cuts if cut < len(record)}), len(record)]):
            show(record[begin:end])
    assert handshake.accepted == accepted


def test_what_is_no_tls_is_never_accepted() -> None:
    handshake = Handshake()
    handshake.client_sent(b"\x16\x03\x01\x02\x00" + bytes(512))
    handshake.server_sent(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18))
    assert not handshake.accepted
