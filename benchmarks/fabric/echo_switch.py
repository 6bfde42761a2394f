"""A process with a switch that measures how long the controller takes to answer echo requests.

The switch has no ports. In: port, dpid and interval in seconds on the command line. Out: at the end of stdin one line
of JSON, a list of [monotonic seconds when a request was sent, seconds until the answer]; requests that are still open
count with the time that they have waited.

    python -m benchmarks.fabric.echo_switch PORT DPID INTERVAL_S
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time

from benchmarks.openflow_bytes import Type, message, messages
from benchmarks.openflow_switch import PlainSwitch

READ_BYTES = 1 << 16


def run(port: int, dpid: int, interval_s: float) -> list[tuple[float, float]]:
    """Until stdin ends. Raises ``OSError`` when no controller listens at ``port``, ``ConnectionError`` when it ends the
    connection."""
    switch = PlainSwitch(dpid)
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
    switch: PlainSwitch,
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
