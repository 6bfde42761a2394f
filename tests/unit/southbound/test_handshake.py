"""Messages in a byte stream, and the handshake of a connection."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.southbound.handshake import Handshake, NoCommonVersion, TooManyPorts
from controller.southbound.openflow_framing import HEADER, Frame, Malformed, Splitter, message

HELLO, ERROR, FEATURES_REQUEST, FEATURES_REPLY, PORT_STATUS = 0, 1, 5, 6, 12
MULTIPART_REQUEST, MULTIPART_REPLY = 18, 19
FEATURES = struct.pack("!QIBB2xII", 0xABCD, 0, 254, 0, 0x4F, 0)
MORE, LAST = 1, 0


def frame(kind: int, body: bytes = b"", version: int = 4) -> Frame:
    (only,) = Splitter().feed(message(kind, body))
    return only._replace(version=version)


def kind_of(answer: bytes) -> int:
    return answer[1]


def ports(count: int, flags: int = LAST, kind: int = 13) -> Frame:
    return frame(MULTIPART_REPLY, struct.pack("!HH4x", kind, flags) + bytes(64 * count))


def bitmap(*versions: int) -> bytes:
    return struct.pack("!HHI", 1, 8, sum(1 << version for version in versions))


def described() -> Handshake:
    """Return a handshake that has the features of the switch and waits for its ports."""
    handshake = Handshake()
    handshake.take(frame(HELLO))
    handshake.take(frame(FEATURES_REPLY, FEATURES))
    return handshake


def test_hello_features_ports() -> None:
    handshake = Handshake()
    assert kind_of(handshake.begin()) == HELLO
    assert kind_of(handshake.take(frame(HELLO))) == FEATURES_REQUEST
    assert kind_of(handshake.take(frame(FEATURES_REPLY, FEATURES))) == MULTIPART_REQUEST
    assert handshake.take(ports(3, MORE)) == b""
    assert not handshake.done
    assert handshake.take(ports(2)) == b""
    assert handshake.done
    assert (handshake.dpid, len(handshake.ports)) == (0xABCD, 5 * 64)


@pytest.mark.parametrize(
    ("version", "body", "spoken"),
    [
        (4, b"", True),
        (6, b"", True),
        (1, b"", False),
        (6, bitmap(1, 4, 6), True),
        (6, bitmap(1, 6), False),
        (4, struct.pack("!HH4x", 9, 8) + bitmap(4), True),
        (6, struct.pack("!HHB3x", 9, 5, 1) + bitmap(5), False),
    ],
)
def test_the_bitmap_of_a_hello_decides_and_without_one_the_smaller_version(
    version: int, body: bytes, spoken: bool
) -> None:
    """Section 6.3.1 of OpenFlow 1.3.5 defines this negotiation."""
    handshake = Handshake()
    if spoken:
        assert kind_of(handshake.take(frame(HELLO, body, version))) == FEATURES_REQUEST
    else:
        with pytest.raises(NoCommonVersion) as error:
            handshake.take(frame(HELLO, body, version))
        assert error.value.answer[:2] == bytes((4, ERROR))


@pytest.mark.parametrize(
    "body",
    [
        struct.pack("!HH", 1, 0),
        struct.pack("!HH", 1, 3),
        struct.pack("!HH", 1, 12),
        struct.pack("!HHH", 1, 6, 0),
        b"\0\1",
        bitmap(4) + b"\0\1\0",
    ],
)
def test_a_hello_with_wrong_elements_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        Handshake().take(frame(HELLO, body))


@pytest.mark.parametrize(
    ("first", "error", "why"),
    [
        (frame(ERROR, struct.pack("!HH", 0, 0) + b"no"), NoCommonVersion, "refuses"),
        (frame(ERROR, b"\0"), Malformed, "error"),
        (frame(FEATURES_REPLY, FEATURES), Malformed, "before hello"),
        (ports(1), Malformed, "before hello"),
        (frame(PORT_STATUS, bytes(72)), Malformed, "before hello"),
    ],
)
def test_only_a_refusal_of_our_version_may_come_before_hello(first: Frame, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        Handshake().take(first)


@pytest.mark.parametrize(
    "body", [FEATURES[:-1], FEATURES + b"\0", b"", struct.pack("!QIBB2xII", 1, 0, 254, 7, 0x4F, 0)]
)
def test_wrong_features_are_malformed(body: bytes) -> None:
    handshake = Handshake()
    handshake.take(frame(HELLO))
    with pytest.raises(Malformed):
        handshake.take(frame(FEATURES_REPLY, body))


@pytest.mark.parametrize("reply", [b"", b"\0\x0d\0\0", struct.pack("!HH4x", 13, 0) + bytes(63)])
def test_wrong_port_descriptions_are_malformed(reply: bytes) -> None:
    with pytest.raises(Malformed):
        described().take(frame(MULTIPART_REPLY, reply))


def test_a_switch_with_ports_without_end_is_refused_before_they_are_kept() -> None:
    handshake = described()
    for _ in range(4):
        handshake.take(ports(1000, MORE))
    with pytest.raises(TooManyPorts, match="more than 4096 ports"):
        handshake.take(ports(1000, MORE))


def test_ports_before_features_and_features_twice_change_nothing() -> None:
    handshake = Handshake()
    handshake.take(frame(HELLO))
    assert handshake.take(ports(1)) == b""
    handshake.take(frame(FEATURES_REPLY, FEATURES))
    assert handshake.take(frame(FEATURES_REPLY, bytes(24))) == b""
    assert handshake.dpid == 0xABCD
    assert not handshake.done


def test_messages_that_may_come_at_any_time_are_ignored_but_not_another_version_or_an_error() -> None:
    handshake = described()
    assert handshake.take(frame(PORT_STATUS, bytes(72))) == b""
    assert handshake.take(ports(1, kind=1)) == b""
    assert not handshake.done
    with pytest.raises(Malformed, match="version 6"):
        described().take(ports(1)._replace(version=6))
    with pytest.raises(Malformed, match="error"):
        described().take(frame(ERROR, bytes(4)))


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
