"""Bytes of HTTP/2 frames that carry gRPC calls, as a hostile client may send them (RFC 9113, RFC 7541).

Header fields are sent in full, without the compression that needs a table of earlier fields (HPACK's "literals without
indexing"). Only ``inflated`` uses the table.
"""

import socket
import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
END_STREAM = 1
END_HEADERS = 4
MAX_CONCURRENT_STREAMS = 3
INITIAL_WINDOW_SIZE = 4
_HEAD = struct.Struct("!HBBBI")
_LONG_BYTES = 4056

Header = tuple[bytes, bytes]


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


def usual(path: bytes) -> list[Header]:
    """Return the header fields of a correct call."""
    named = ((b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"signalbox"))
    return [*named, (b"content-type", b"application/grpc"), (b"te", b"trailers")]


def headers_frame(stream: int, fields: Iterable[Header], flags: int = END_HEADERS) -> bytes:
    block = b"".join(b"\0" + text(name) + text(value) for name, value in fields)
    return frame(Kind.HEADERS, flags, stream, block)


def headers(stream: int, path: str) -> bytes:
    """Return the frame that begins a call. ``stream``: an odd number, larger than that of the call before."""
    return headers_frame(stream, usual(path.encode()))


def inflated(stream: int) -> bytes:
    """Return a call with header fields of 8 kB on the wire, which the server decodes to 16 MB.

    The call defines one field of 4 kB, and then repeats it 4,100 times by its one-byte index (RFC 7541)."""
    fields = headers(1, "/a/B")[_HEAD.size :]
    # Index 62 is the field that was added to the table last.
    field = b"\x40" + text(b"a") + text(b"x" * _LONG_BYTES)
    return frame(Kind.HEADERS, END_HEADERS, stream, fields + field + b"\xbe" * 4100)


def request(
    stream: int, message: bytes, compressed: int = 0, size: int | None = None, flags: int = END_STREAM
) -> bytes:
    """Return the frame that carries the request of a call; by default it is the last frame of the client.

    ``compressed`` and ``size``: statements about the message, which may be wrong."""
    head = struct.pack("!BI", compressed, len(message) if size is None else size)
    return frame(Kind.DATA, flags, stream, head + message)


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


def text(value: bytes) -> bytes:
    """Return a text after its length, which is an integer in the encoding of RFC 7541 section 5.1."""
    left = len(value)
    if left < 127:
        return bytes([left]) + value
    code, left = bytearray([127]), left - 127
    while left > 127:
        code.append(left & 127 | 128)
        left >>= 7
    return bytes((*code, left)) + value
