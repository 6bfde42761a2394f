"""A switch of its own that asks the controller for signs of life: how long does it leave its switches unanswered?

It has no ports. It connects, answers whatever it is asked, keeps the flows that it is given, and sends an echo request
at intervals. In: port, dpid and interval in seconds on the command line. Out: at the end of stdin one line of JSON, a
list of [monotonic seconds when it was sent, seconds until the answer]; requests that are still open count with the time
that they have waited.

    python -m benchmarks.fabric.echo_switch PORT DPID INTERVAL_S
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time

from benchmarks.openflow_bytes import (
    ANY_TABLE,
    HEADER,
    FlowChange,
    Multipart,
    Type,
    flow_change,
    message,
    messages,
)

_FLOW_STATS = struct.Struct("!HBxIIHHHH4xQQQ")
_DESC_BYTES = 1056
_CAPABILITIES = 0x4F
_UNDEFINED_GENERATION = (1 << 64) - 1
READ_BYTES = 1 << 16


class EchoSwitch:
    """What it answers, without a socket."""

    def __init__(self, dpid: int) -> None:
        self._dpid = dpid
        self._flows: dict[tuple[int, int, bytes], tuple[FlowChange, bytes]] = {}
        self._role = struct.pack("!I4xQ", 1, _UNDEFINED_GENERATION)

    def answer(self, data: bytes) -> bytes:
        """To one message; empty when it needs none."""
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
                return message(Type.MULTIPART_REPLY, xid, body[:2] + b"\0" * 6 + self._told(body))
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

    def _told(self, request: bytes) -> bytes:
        """The body of a multipart reply (section 7.3.5)."""
        (kind,) = struct.unpack_from("!H", request)
        if kind == Multipart.DESC:
            return b"\0" * _DESC_BYTES
        if kind not in (Multipart.FLOW, Multipart.AGGREGATE):
            return b""
        table, _, _, cookie, mask = struct.unpack_from("!B3xII4xQQ", request, 8)
        found = [
            (flow, rest)
            for flow, rest in self._flows.values()
            if table in (ANY_TABLE, flow.table) and flow.cookie & mask == cookie & mask
        ]
        if kind == Multipart.AGGREGATE:
            return struct.pack("!QQI4x", 0, 0, len(found))
        return b"".join(
            _FLOW_STATS.pack(_FLOW_STATS.size + len(rest), flow.table, 0, 0, flow.priority, 0, 0, 0, flow.cookie, 0, 0)
            + rest
            for flow, rest in found
        )


def run(port: int, dpid: int, interval_s: float) -> list[tuple[float, float]]:
    """Until stdin ends. Raises ``OSError`` when nobody listens at ``port``, ``ConnectionError`` when it is left."""
    switch = EchoSwitch(dpid)
    sent: dict[int, float] = {}
    answered: list[tuple[float, float]] = []
    rest = bytearray()
    with socket.create_connection(("127.0.0.1", port)) as controller, selectors.DefaultSelector() as selector:
        controller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        controller.sendall(message(Type.HELLO, 0))
        selector.register(controller, selectors.EVENT_READ)
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        due = time.monotonic() + interval_s
        while True:
            ready = selector.select(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            if any(key.fileobj is not controller for key, _ in ready):
                return answered + [(at, now - at) for at in sent.values()]
            if ready:
                data = controller.recv(READ_BYTES)
                if not data:
                    raise ConnectionError("the controller ended the connection")
                rest += data
                _react(switch, controller, rest, sent, answered)
            if now >= due:
                due = max(due + interval_s, now)
                xid = 1 + len(answered) + len(sent)
                sent[xid] = time.monotonic()
                controller.sendall(message(Type.ECHO_REQUEST, xid))


def _react(
    switch: EchoSwitch,
    controller: socket.socket,
    rest: bytearray,
    sent: dict[int, float],
    answered: list[tuple[float, float]],
) -> None:
    now = time.monotonic()
    done = 0
    for kind, start, end in messages(rest):
        done = end
        if kind == Type.ECHO_REPLY:
            (xid,) = struct.unpack_from("!I", rest, start + 4)
            if xid in sent:
                at = sent.pop(xid)
                answered.append((at, now - at))
        elif answer := switch.answer(bytes(rest[start:end])):
            controller.sendall(answer)
    del rest[:done]


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))  # noqa: T201  # for the parent
