"""Messages of OpenFlow 1.3 and a correct switch, for the benchmarks, without the code of the controller.

Only the fields that an observer needs are decoded: ``group_change`` and ``flow_change`` return plain tuples. Section
numbers are those of the OpenFlow switch specification 1.3.5.

``EchoingSwitch`` also measures how long the controller takes to answer echo requests. As a program the module runs an
``EchoingSwitch`` without ports:

    python -m benchmarks.openflow_bytes PORT DPID INTERVAL_S

At the end of stdin it prints a JSON list of [monotonic seconds of a request, seconds until its answer]. A request
without an answer has the seconds since it was sent. The exit status is 1 when the controller ended the connection.
"""

import json
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from itertools import count
from typing import NamedTuple, Self

VERSION = 4
HEADER = struct.Struct("!BBHI")
ANY_TABLE = 0xFF
OFPPR_DELETE = 1
MORE = 1
"""Flag of every part of a multipart reply except the last."""

_FLOW_MOD = struct.Struct("!QQBBHHHIIIH2x")
_GROUP_MOD = struct.Struct("!HBxI")
_BUCKET = struct.Struct("!HHII4x")
_PAIR = struct.Struct("!HH")
_OUTPUT, _GROUP_ACTION = 0, 22
_WRITE_ACTIONS, _APPLY_ACTIONS = 3, 4
_IPV4_DST, _IPV4_DST_MASKED = 0x8000_1804, 0x8000_1908
_FLOW_MOD_DELETES = (3, 4)
_GROUP_MOD_DELETE = 2


class Type(IntEnum):
    """Message types (section 7.1)."""

    HELLO = 0
    ERROR = 1
    ECHO_REQUEST = 2
    ECHO_REPLY = 3
    FEATURES_REQUEST = 5
    FEATURES_REPLY = 6
    GET_CONFIG_REQUEST = 7
    GET_CONFIG_REPLY = 8
    PACKET_IN = 10
    PORT_STATUS = 12
    PACKET_OUT = 13
    FLOW_MOD = 14
    GROUP_MOD = 15
    MULTIPART_REQUEST = 18
    MULTIPART_REPLY = 19
    BARRIER_REQUEST = 20
    BARRIER_REPLY = 21
    ROLE_REQUEST = 24
    ROLE_REPLY = 25
    METER_MOD = 29


class Multipart(IntEnum):
    """Types of the body of a multipart message (section 7.3.5)."""

    DESC = 0
    FLOW = 1
    AGGREGATE = 2
    PORT_STATS = 4
    GROUP_DESC = 7
    GROUP_FEATURES = 8
    METER = 9
    METER_CONFIG = 10
    METER_FEATURES = 11
    PORT_DESC = 13


class GroupChange(NamedTuple):
    """Group-mod. ``ports``, ``groups``: ports and groups that its buckets output to, in order."""

    group_id: int
    deleted: bool
    ports: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()


class FlowChange(NamedTuple):
    cookie: int
    table: int
    priority: int
    match: bytes
    """Match in bytes. Together with table and priority it identifies a flow."""
    deleted: bool
    ipv4_dst: int | None
    """Destination address in the match, or the first address of a prefix; None if there is neither."""
    ports: tuple[int, ...]
    groups: tuple[int, ...]


def port_desc(number: int, name: str, config: int = 0) -> bytes:
    """Return the description of a port of 10 Gbit/s (section 7.2.1)."""
    mac = bytes.fromhex("020000000001")
    return struct.pack("!I4x6s2x16s8I", number, mac, name.encode(), config, 0, 0, 0, 0, 0, 10_000, 0)


def message(kind: int, xid: int, body: bytes = b"") -> bytes:
    return HEADER.pack(VERSION, kind, HEADER.size + len(body), xid) + body


def messages(data: bytes | bytearray) -> Iterator[tuple[int, int, int]]:
    """Yield (type, start, end) of every complete message in ``data``.

    Raises ``ValueError`` for a length that is shorter than a header."""
    at, ends = 0, len(data)
    while at + HEADER.size <= ends:
        _, kind, length, _ = HEADER.unpack_from(data, at)
        if length < HEADER.size:
            raise ValueError(f"a message of {length} bytes")
        if at + length > ends:
            return
        yield kind, at, at + length
        at += length


def xid_of(data: bytes) -> int:
    xid: int = HEADER.unpack_from(data)[3]
    return xid


def multipart_kind(data: bytes) -> int:
    """Return the type of the body of a multipart message, given with its header."""
    kind: int = struct.unpack_from("!H", data, HEADER.size)[0]
    return kind


def group_change(data: bytes) -> GroupChange:
    """Decode a group-mod, given with its header (section 7.3.4.3)."""
    command, _, group_id = _GROUP_MOD.unpack_from(data, HEADER.size)
    if command == _GROUP_MOD_DELETE:
        return GroupChange(group_id, deleted=True)
    ports: list[int] = []
    groups: list[int] = []
    at = HEADER.size + _GROUP_MOD.size
    while at + _BUCKET.size <= len(data):
        length = max(_BUCKET.unpack_from(data, at)[0], _BUCKET.size)
        _read_actions(data, at + _BUCKET.size, at + length, ports, groups)
        at += length
    return GroupChange(group_id, False, tuple(ports), tuple(groups))


def flow_change(data: bytes) -> FlowChange:
    """Decode a flow-mod, given with its header (section 7.3.4.1)."""
    cookie, _, table, command, _, _, priority, *_ = _FLOW_MOD.unpack_from(data, HEADER.size)
    start = HEADER.size + _FLOW_MOD.size
    match_length = _PAIR.unpack_from(data, start)[1]
    match = bytes(data[start : start + match_length])
    ports: list[int] = []
    groups: list[int] = []
    at = start + (match_length + 7) // 8 * 8
    while at + _PAIR.size <= len(data):
        kind, length = _PAIR.unpack_from(data, at)
        if kind in (_WRITE_ACTIONS, _APPLY_ACTIONS):
            _read_actions(data, at + 8, at + length, ports, groups)
        at += max(length, 8)
    deleted = command in _FLOW_MOD_DELETES
    return FlowChange(cookie, table, priority, match, deleted, _ipv4_dst(match), tuple(ports), tuple(groups))


def _read_actions(data: bytes, at: int, end: int, ports: list[int], groups: list[int]) -> None:
    while at + 8 <= end:
        kind, length, argument = struct.unpack_from("!HHI", data, at)
        if kind == _OUTPUT:
            ports.append(argument)
        elif kind == _GROUP_ACTION:
            groups.append(argument)
        at += max(length, 8)


def _ipv4_dst(match: bytes) -> int | None:
    at = _PAIR.size
    while at + 4 <= len(match):
        (head,) = struct.unpack_from("!I", match, at)
        if head in (_IPV4_DST, _IPV4_DST_MASKED):
            (address,) = struct.unpack_from("!I", match, at + 4)
            return int(address)
        at += 4 + (head & 0xFF)
    return None


_FLOW_STATS = struct.Struct("!HBxIIHHHH4xQQQ")
_DESC_BYTES = 1056
_PART_BYTES = 60_000
_CAPABILITIES = 0x4F
_UNDEFINED_GENERATION = (1 << 64) - 1
READ_BYTES = 1 << 16
QUIET_S = 15.0
"""Seconds without a message from the controller, after which an echoing switch counts as disconnected."""


class PlainSwitch:
    """Switch that answers every request and stores its flows. ``ports``: number of its ports eth1, eth2 and so on."""

    def __init__(self, dpid: int, ports: int = 0) -> None:
        self._dpid = dpid
        self._ports = [port_desc(number, f"eth{number}") for number in range(1, ports + 1)]
        self._flows: dict[tuple[int, int, bytes], tuple[FlowChange, bytes]] = {}
        self._role = struct.pack("!I4xQ", 1, _UNDEFINED_GENERATION)

    def answer(self, data: bytes) -> bytes:
        """Return the answer to a message; empty if it needs none."""
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

    def _keep(self, data: bytes) -> FlowChange:
        flow = flow_change(data)
        key = (flow.table, flow.priority, flow.match)
        if flow.deleted:
            self._flows.pop(key, None)
        else:
            self._flows[key] = (flow, data[48:])
        return flow

    def _multipart_reply(self, xid: int, request: bytes) -> bytes:
        """Return the reply to a multipart request, in as many parts as it needs."""
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
    """Connection to port ``port`` of loopback, through TLS when there is a context.

    Its methods raise ``OSError``, for example when the controller sends nothing for ``timeout_s``."""

    def __init__(self, port: int, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            self.socket = tls.wrap_socket(self.socket)
        self._rest = bytearray()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def hear(self) -> bytes:
        """Return the next message. Raises ``EOFError`` at the end of the connection."""
        size = HEADER.size
        while len(self._rest) < size or len(self._rest) < (size := HEADER.unpack_from(self._rest)[2]):
            got = self.socket.recv(READ_BYTES)
            if not got:
                raise EOFError
            self._rest += got
        heard = bytes(self._rest[:size])
        del self._rest[:size]
        return heard

    def shut(self) -> None:
        """End the connection, and with it a call of ``hear`` in another thread."""
        self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.socket.close()


class EchoingSwitch:
    """``PlainSwitch`` that is connected while the block runs, and sends an echo request every ``interval_s``."""

    def __init__(self, port: int, dpid: int, ports: int = 0, interval_s: float = 0.01) -> None:
        self.connection_lost = False
        self.answered: list[tuple[float, float]] = []
        """Monotonic seconds of each echo request that was answered, and the seconds until its answer."""
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
        """Monotonic seconds of each echo request that has no answer yet."""
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


def echo_times(port: int, dpid: int, interval_s: float) -> list[tuple[float, float]]:
    """Send echo requests until the end of stdin, and return them as described in the module.

    Raises ``OSError`` when no controller listens on ``port``."""
    with EchoingSwitch(port, dpid, interval_s=interval_s) as switch:
        sys.stdin.read()
        if switch.connection_lost:
            sys.exit("the controller ended the connection")
        now = time.monotonic()
        return switch.answered + [(at, now - at) for at in switch.unanswered]


if __name__ == "__main__":
    print(json.dumps(echo_times(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))  # noqa: T201  # for the parent
