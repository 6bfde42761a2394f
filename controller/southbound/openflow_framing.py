"""Framing of OpenFlow: splits a stream into messages, and builds messages (OpenFlow 1.3.5 section 7.1).

Sans-IO. In: received bytes, in chunks of any size. Out: whole messages. After an invalid header nothing more is read,
because the end of its message is unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

VERSION = 4
"""Version number of OpenFlow 1.3 on the wire."""
HEADER = struct.Struct("!BBHI")
KINDS = 30
"""Number of message types: 0 to 29 (section 7.1, ``ofp_type``)."""


class Malformed(ValueError):
    """A message of a switch violates the specification. The text of the exception describes how, and is logged.

    This exception ends only the connection of the switch. Any other exception is a fault of the controller and stops
    the process."""


class Frame(NamedTuple):
    """OpenFlow message. ``kind``: message type. ``data``: the whole message with its header."""

    version: int
    kind: int
    xid: int
    data: bytes

    @property
    def body(self) -> bytes:
        return self.data[HEADER.size :]


class Splitter:
    """Splitter of one connection's byte stream into messages.

    The time is linear in the number of bytes, even if a message arrives byte by byte."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the messages that are now complete. Remaining bytes are kept for the next call.

        The generator must be exhausted before the next call. Raises ``Malformed`` for a header with an invalid version,
        type or length."""
        rest = self._rest
        stream: bytes | bytearray = data
        if rest:
            rest += data
            stream = rest
        start, end = 0, len(stream)
        while end - start >= HEADER.size:
            version, kind, length, xid = HEADER.unpack_from(stream, start)
            if version == 0 or kind >= KINDS or length < HEADER.size:
                raise Malformed(f"a header is not valid: version {version}, type {kind}, length {length}")
            if end - start < length:
                break
            yield Frame(version, kind, xid, bytes(stream[start : start + length]))
            start += length
        if stream is rest:
            del rest[:start]
        else:
            rest += stream[start:]


def message(kind: int, body: bytes = b"", xid: int = 0) -> bytes:
    """Return an OpenFlow 1.3 message with its header. Raises ``struct.error`` above 65,535 bytes."""
    return HEADER.pack(VERSION, kind, HEADER.size + len(body), xid) + body
