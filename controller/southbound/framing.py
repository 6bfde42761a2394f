"""Cuts the bytes of a connection into OpenFlow messages (OpenFlow 1.3.5 section 7.1).

Sans-IO. In: bytes as they arrive, in pieces of any size. Out: whole messages. What comes after a header that cannot be
true is not read: the end of that message is unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from controller.southbound.malformed import Malformed

HEADER = struct.Struct("!BBHI")
KINDS = 30
"""Message types are 0 to 29 (section 7.1, ``ofp_type``)."""


class Frame(NamedTuple):
    """One message. ``data`` is all of it, with its header."""

    version: int
    kind: int
    xid: int
    data: bytes

    @property
    def body(self) -> bytes:
        return self.data[HEADER.size :]


class Splitter:
    """Each byte is copied a constant number of times, also when a message comes byte by byte."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The messages that are complete now; what is left over waits for the next bytes. Exhaust it before the next
        call. Raises ``Malformed`` for a header with a version, type or length that OpenFlow does not have."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= HEADER.size:
            version, kind, length, xid = HEADER.unpack_from(buffer, start)
            if version == 0 or kind >= KINDS or length < HEADER.size:
                raise Malformed(f"no OpenFlow header: version {version}, type {kind}, length {length}")
            if len(buffer) - start < length:
                break
            yield Frame(version, kind, xid, bytes(memoryview(buffer)[start : start + length]))
            start += length
        del buffer[:start]
