"""Correct OpenFlow 1.3 switch that reads and writes plain bytes, for the echo and fuzzing benchmarks.

The input is messages of a controller. The results are the switch's answers, and how long the controller took to answer
echo requests.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress
from itertools import count
from typing import Self

from benchmarks.openflow_bytes import (
    ANY_TABLE,
    HEADER,
    FlowChange,
    Multipart,
    Type,
    flow_change,
    message,
    port_desc,
    xid_of,
)

_FLOW_STATS = struct.Struct("!HBxIIHHHH4xQQQ")
_DESC_BYTES = 1056
_PART_BYTES = 60_000
_CAPABILITIES = 0x4F
_UNDEFINED_GENERATION = (1 << 64) - 1
READ_BYTES = 1 << 16
QUIET_S = 15.0
"""Seconds without a message from the controller after which an echoing switch counts its connection as lost."""


class PlainSwitch:
    """Switch that answers every request and keeps its flows; its ``ports`` are named eth1, eth2 and so on."""

    def __init__(self, dpid: int, ports: int = 0) -> None:
        self._dpid = dpid
        self._ports = [port_desc(number, f"eth{number}") for number in range(1, ports + 1)]
        self._flows: dict[tuple[int, int, bytes], tuple[FlowChange, bytes]] = {}
        self._role = struct.pack("!I4xQ", 1, _UNDEFINED_GENERATION)

    def answer(self, data: bytes) -> bytes:
        """Return the answer to one message; empty if none is needed."""
        _, kind, _, xid = HEADER.unpack_from(data)
        body = data[HEADER.size :]
        match kind:
            case Type.FEATURES_REQUEST:
                features = struct.pack("!QIBB2xII", self._dpid, 0, 254, 0, _CAPABILITIES, 0)
                return message(Type.FEATURES_REPLY, xid, features)
            case Type.ECHO_REQUEST:
                return message(Type.ECHO_REPLY, xid, body)
            case Type.BARRIER_REQUEST:
                return message(Type.BARRIER_REPLY, xid)
            case Type.GET_CONFIG_REQUEST:
                return message(Type.GET_CONFIG_REPLY, xid, struct.pack("!HH", 0, 0xFFFF))
            case Type.ROLE_REQUEST:
                if struct.unpack_from("!I", body)[0]:
                    self._role = body
                return message(Type.ROLE_REPLY, xid, self._role)
            case Type.MULTIPART_REQUEST:
                return self._multipart_reply(xid, body)
            case Type.FLOW_MOD:
                self._keep(data)
        return b""

    def _keep(self, data: bytes) -> None:
        flow = flow_change(data)
        key = (flow.table, flow.priority, flow.match)
        if flow.deleted:
            self._flows.pop(key, None)
        else:
            self._flows[key] = (flow, data[48:])

    def _multipart_reply(self, xid: int, request: bytes) -> bytes:
        """Return the reply in as many parts as it needs (section 7.3.5)."""
        parts = [b""]
        for entry in self._entries(request):
            if len(parts[-1]) + len(entry) > _PART_BYTES:
                parts.append(b"")
            parts[-1] += entry
        more = [True] * (len(parts) - 1) + [False]
        return b"".join(
            message(Type.MULTIPART_REPLY, xid, request[:2] + struct.pack("!H4x", flag) + part)
            for flag, part in zip(more, parts, strict=True)
        )

    def _entries(self, request: bytes) -> list[bytes]:
        (kind,) = struct.unpack_from("!H", request)
        if kind == Multipart.DESC:
            return [b"\0" * _DESC_BYTES]
        if kind == Multipart.PORT_DESC:
            return self._ports
        if kind in (Multipart.GROUP_FEATURES, Multipart.METER_FEATURES):
            return [b"\0" * (40 if kind == Multipart.GROUP_FEATURES else 16)]
        if kind not in (Multipart.FLOW, Multipart.AGGREGATE):
            return []
        table, _, _, cookie, mask = struct.unpack_from("!B3xII4xQQ", request, 8)
        found = [
            (flow, rest)
            for flow, rest in self._flows.values()
            if table in (ANY_TABLE, flow.table) and flow.cookie & mask == cookie & mask
        ]
        if kind == Multipart.AGGREGATE:
            return [struct.pack("!QQI4x", 0, 0, len(found))]
        return [
            _FLOW_STATS.pack(_FLOW_STATS.size + len(rest), flow.table, 0, 0, flow.priority, 0, 0, 0, flow.cookie, 0, 0)
            + rest
            for flow, rest in found
        ]


class Connection:
    """Connection to the controller at ``port`` on loopback.

    Raises ``OSError``, also when the controller sends nothing for ``timeout_s``."""

    def __init__(self, port: int, timeout_s: float) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = bytearray()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def hear(self) -> bytes:
        """Return the next message. Raises ``EOFError`` when the controller has ended the connection."""
        size = HEADER.size
        while len(self._rest) < size or len(self._rest) < (size := HEADER.unpack_from(self._rest)[2]):
            got = self._socket.recv(READ_BYTES)
            if not got:
                raise EOFError
            self._rest += got
        heard = bytes(self._rest[:size])
        del self._rest[:size]
        return heard

    def shut(self) -> None:
        """End a ``hear`` that waits in another thread."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


class EchoingSwitch:
    """``PlainSwitch`` that is connected while the context lasts, and sends an echo request every ``interval_s``."""

    def __init__(self, port: int, dpid: int, ports: int = 0, interval_s: float = 0.01) -> None:
        self.connection_lost = False
        self.answered: list[tuple[float, float]] = []
        """Monotonic time in seconds of each answered echo request, and the seconds until its answer."""
        self._interval_s = interval_s
        self._switch = PlainSwitch(dpid, ports)
        self._connection = Connection(port, QUIET_S)
        self._sending = threading.Lock()
        self._stopping = threading.Event()
        self._asked_at: dict[int, float] = {}
        self._threads = [threading.Thread(target=self._listen), threading.Thread(target=self._speak)]

    def __enter__(self) -> Self:
        self._send(message(Type.HELLO, 0))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._threads[1].join()
        with suppress(OSError):
            self._connection.shut()
        self._threads[0].join()
        self._connection.close()

    @property
    def unanswered(self) -> list[float]:
        """Monotonic seconds at which the unanswered requests were sent."""
        return [*self._asked_at.values()]

    def _listen(self) -> None:
        try:
            while True:
                heard = self._connection.hear()
                self._take(heard, time.monotonic())
        except (EOFError, OSError):
            self.connection_lost = not self._stopping.is_set()

    def _take(self, heard: bytes, now: float) -> None:
        if heard[1] == Type.ECHO_REPLY and (asked_at := self._asked_at.pop(xid_of(heard), None)):
            self.answered.append((asked_at, now - asked_at))
        elif answer := self._switch.answer(heard):
            self._send(answer)

    def _speak(self) -> None:
        for turn in count(1):
            if self._stopping.wait(self._interval_s) or self.connection_lost:
                return
            self._asked_at[turn] = time.monotonic()
            self._send(message(Type.ECHO_REQUEST, turn))

    def _send(self, data: bytes) -> None:
        with self._sending, suppress(OSError):  # ``_listen`` notices the end of a connection
            self._connection.send(data)
