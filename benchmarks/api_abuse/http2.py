"""Frames of gRPC in bytes (RFC 9113, RFC 7541), as a hostile client may send them.

Header fields are literals without indexing, so that no header table has to be kept.
"""

import socket
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
END_STREAM = 1
END_HEADERS = 4
MAX_CONCURRENT_STREAMS = 3
INITIAL_WINDOW_SIZE = 4
_HEAD = struct.Struct("!HBBBI")
_CONTENT_TYPE = b"\x0f\x10"
"""Name ``content-type``: entry 31 of the static table, encoded as 15 in the first byte and 16 in the second."""


_LONG_BYTES, _LONG = 4056, b"\xd9\x1e"
"""Length of a field's value, and its encoding after the first seven bits (RFC 7541 section 5.1)."""


class Kind(IntEnum):
    """Types of frames (RFC 9113 section 6)."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    GOAWAY = 7


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def hello(window: int | None = None) -> bytes:
    """Return the first bytes that a client sends. ``window``: bytes that it accepts per stream; None means 65,535."""
    settings = b"" if window is None else struct.pack("!HI", INITIAL_WINDOW_SIZE, window)
    return PREFACE + frame(Kind.SETTINGS, payload=settings)


def headers(stream: int, path: str) -> bytes:
    """Return the frame that begins a call. ``stream`` is odd and increases from call to call."""
    fields = b"\x83\x86" + b"\x04" + _text(path.encode()) + b"\x01" + _text(b"signalbox")
    fields += _CONTENT_TYPE + _text(b"application/grpc") + b"\x00" + _text(b"te") + _text(b"trailers")
    return frame(Kind.HEADERS, END_HEADERS, stream, fields)


def inflated(stream: int) -> bytes:
    """Return a call whose header fields have 8 kB on the wire and 16 MB when decoded.

    One field of 4 kB is added to the header table and referred to again and again (RFC 7541)."""
    fields = headers(1, "/a/B")[_HEAD.size :]
    # Index 62 is the field that was added to the table last.
    field = b"\x40" + _text(b"a") + b"\x7f" + _LONG + b"x" * _LONG_BYTES
    return frame(Kind.HEADERS, END_HEADERS, stream, fields + field + b"\xbe" * 4100)


def request(stream: int, message: bytes) -> bytes:
    """Return the frame with the request of a call, which also ends the client's side."""
    return frame(Kind.DATA, END_STREAM, stream, b"\0" + struct.pack("!I", len(message)) + message)


def frames(sock: socket.socket) -> Iterator[Frame]:
    """Yield the frames from a socket until the peer ends the connection.

    Raises ``TimeoutError`` when the socket has a timeout and nothing arrives within it."""
    held = b""
    while True:
        while len(held) >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(held)
            size = _HEAD.size + (high << 8 | low)
            if len(held) < size:
                break
            yield Frame(kind, flags, stream, held[_HEAD.size : size])
            held = held[size:]
        try:
            got = sock.recv(65536)
        except ConnectionError:
            return
        if not got:
            return
        held += got


def _text(value: bytes) -> bytes:
    assert len(value) < 127
    return bytes([len(value)]) + value
