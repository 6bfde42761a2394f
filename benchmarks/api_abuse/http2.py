"""Bytes of HTTP/2 frames that carry gRPC calls, as a hostile client may send them (RFC 9113, RFC 7541).

Header fields are sent in full, without the compression that needs a table of earlier fields (HPACK's "literals without
indexing"). Only ``inflated`` uses the table.
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
"""Header name ``content-type`` in HPACK: index 31, in four bits that are all 1 (15) and a second byte (31 - 15)."""


_LONG_BYTES, _LONG = 4056, b"\xd9\x1e"
"""Length of a large header value, and the bytes that follow the all-ones prefix in its code (RFC 7541 section 5.1)."""


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
    """Return the first bytes of a client. ``window``: bytes that it accepts per stream; None means 65,535."""
    settings = b"" if window is None else struct.pack("!HI", INITIAL_WINDOW_SIZE, window)
    return PREFACE + frame(Kind.SETTINGS, payload=settings)


def headers(stream: int, path: str) -> bytes:
    """Return the frame that begins a call. ``stream``: an odd number, larger than that of the call before."""
    fields = b"\x83\x86" + b"\x04" + _text(path.encode()) + b"\x01" + _text(b"signalbox")
    fields += _CONTENT_TYPE + _text(b"application/grpc") + b"\x00" + _text(b"te") + _text(b"trailers")
    return frame(Kind.HEADERS, END_HEADERS, stream, fields)


def inflated(stream: int) -> bytes:
    """Return a call with header fields of 8 kB on the wire, which the server decodes to 16 MB.

    The call defines one field of 4 kB, and then repeats it 4,100 times by its one-byte index (RFC 7541)."""
    fields = headers(1, "/a/B")[_HEAD.size :]
    # Index 62 is the field that was added to the table last.
    field = b"\x40" + _text(b"a") + b"\x7f" + _LONG + b"x" * _LONG_BYTES
    return frame(Kind.HEADERS, END_HEADERS, stream, fields + field + b"\xbe" * 4100)


def request(stream: int, message: bytes) -> bytes:
    """Return the frame that carries the request of a call. It is the last frame of the client on this stream."""
    return frame(Kind.DATA, END_STREAM, stream, b"\0" + struct.pack("!I", len(message)) + message)


def frames(sock: socket.socket) -> Iterator[Frame]:
    """Yield the frames that arrive on a socket until the peer ends the connection.

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
