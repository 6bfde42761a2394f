from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.southbound.openflow_framing import HEADER, Frame, Malformed, Splitter

frames = st.builds(
    lambda kind, xid, body: Frame(4, kind, xid, HEADER.pack(4, kind, HEADER.size + len(body), xid) + body),
    st.integers(0, 29),
    st.integers(0, 0xFFFFFFFF),
    st.binary(max_size=40),
)


@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 400), max_size=8))
def test_messages_come_out_whole_however_their_bytes_are_cut(sent: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(frame.data for frame in sent)
    ends = [*sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    splitter = Splitter()
    received = [
        frame for start, end in zip([0, *ends], ends, strict=False) for frame in splitter.feed(stream[start:end])
    ]
    assert received == sent


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("04 0a 0000 00000001", "length 0"),
        ("04 0a 0007 00000001", "length 7"),
        ("04 1e 0008 00000001", "type 30"),
        ("00 00 0008 00000001", "version 0"),
    ],
)
def test_a_wrong_header_is_malformed_and_the_message_before_it_is_not(header: str, why: str) -> None:
    splitter = Splitter()
    stream = splitter.feed(bytes.fromhex("04 15 0008 00000007") + bytes.fromhex(header))
    assert next(stream).xid == 7
    with pytest.raises(Malformed, match=why):
        next(stream)
