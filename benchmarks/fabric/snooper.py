"""Writes down what passes between switches and controllers: a process of its own, so that it takes no time of theirs.

Open vSwitch copies every OpenFlow message of a bridge, both ways, to whoever connects to ``BRIDGE.snoop``
(ovs-ofctl(8), "snoop"). In: the paths of these sockets on the command line, after the file to write. Out: a line on
stdout once every bridge listens to us, then records in the file: ``RECORD`` (monotonic nanoseconds of arrival, place
of the bridge on the command line, bytes that follow) and the message, cut to what the figures need. Packets and echoes,
the bulk, are left out. The end of stdin ends it.

    python -m benchmarks.fabric.snooper FILE SOCKET...
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from benchmarks.openflow_bytes import HEADER, Type, message, messages

RECORD = struct.Struct("<QHH")
FLUSH_S = 0.02
CONNECT_S = 10.0
URGENT = -10
"""The priority that ovs-ctl gives ovs-vswitchd: what waits here to be read would seem to come late."""
READ_BYTES = 1 << 18

_WHOLE = 0xFFFF
KEPT = {
    Type.ERROR: 84,
    Type.FEATURES_REPLY: 16,
    Type.PORT_STATUS: 24,
    Type.FLOW_MOD: _WHOLE,
    Type.GROUP_MOD: _WHOLE,
    Type.MULTIPART_REQUEST: 16,
    Type.MULTIPART_REPLY: 16,
    Type.BARRIER_REQUEST: HEADER.size,
    Type.BARRIER_REPLY: HEADER.size,
    Type.ROLE_REQUEST: 24,
    Type.METER_MOD: 16,
}
"""Bytes of each type that are written down; other types are not."""


class Stream:
    """One bridge's messages, cut into records."""

    def __init__(self, place: int) -> None:
        self._place = place
        self._rest = bytearray()

    def received(self, data: bytes, now_ns: int, into: bytearray) -> None:
        """Appends the records of what is complete to ``into``. Raises ``ValueError`` for what is no OpenFlow."""
        self._rest += data
        done = 0
        for kind, start, end in messages(self._rest):
            done = end
            kept = KEPT.get(kind)  # type: ignore[call-overload]  # a plain number finds the member
            if kept is not None:
                body = self._rest[start : min(end, start + kept)]
                into += RECORD.pack(now_ns, self._place, len(body)) + body
        del self._rest[:done]


def run(file: Path, sockets: list[str]) -> None:
    with suppress(PermissionError):
        os.nice(URGENT)
    selector = selectors.DefaultSelector()
    for place, path in enumerate(sockets):
        bridge = _connect(path)
        bridge.sendall(message(Type.HELLO, 1))
        selector.register(bridge, selectors.EVENT_READ, Stream(place))
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
    with file.open("wb") as out:
        print("listening", flush=True)  # noqa: T201  # the parent waits for it
        _copy(selector, out)


def _connect(path: str) -> socket.socket:
    """A bridge has its socket a moment after its controller. Raises ``OSError`` when it has none for ``CONNECT_S``."""
    bridge = socket.socket(socket.AF_UNIX)
    ends = time.monotonic() + CONNECT_S
    while True:
        try:
            bridge.connect(path)
        except FileNotFoundError as error:
            if time.monotonic() > ends:
                raise FileNotFoundError(error.errno, error.strerror, path) from None
            time.sleep(FLUSH_S)
        else:
            return bridge


def _copy(selector: selectors.BaseSelector, out: BinaryIO) -> None:
    records = bytearray()
    flush_at = time.monotonic()
    while True:
        for key, _ in selector.select(FLUSH_S):
            if key.data is None:
                out.write(records)
                return
            bridge = key.fileobj
            assert isinstance(bridge, socket.socket)
            data = bridge.recv(READ_BYTES)
            if data:
                key.data.received(data, time.monotonic_ns(), records)
            else:
                selector.unregister(bridge)
        now = time.monotonic()
        if records and now >= flush_at:
            flush_at = now + FLUSH_S
            out.write(records)
            out.flush()
            records.clear()


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
