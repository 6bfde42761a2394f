"""A flow of TCP between two hosts of a lab."""

from __future__ import annotations

import subprocess
import sys

from mininet_topos.lab.lab import Lab
from tests.support.lab.pings import address
from tests.support.waiting import line

PORT = 7000
_SINK = f"""
import socket, time
with socket.create_server(("", {PORT})) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    received, started = 0, None
    while data := connection.recv(65536):
        started = started or time.monotonic()
        received += len(data)
    print(received * 8 / (time.monotonic() - started) / 1e6)
"""
_SOURCE = f"""
import socket, sys
with socket.create_connection((sys.argv[1], {PORT})) as connection:
    connection.sendall(bytes(int(sys.argv[2])))
"""


def send(lab: Lab, source: str, sink: str, size: int) -> float:
    """Send ``size`` bytes, and return the rate in Mbit/s at which they arrived."""
    receiver = lab.popen(sink, [sys.executable, "-c", _SINK], stdout=subprocess.PIPE, text=True)
    try:
        assert line(receiver) == "ready\n"
        sender = lab.popen(source, [sys.executable, "-c", _SOURCE, address(lab, sink), str(size)])
        assert sender.wait(60) == 0
        return float(receiver.communicate(timeout=60)[0])
    finally:
        receiver.kill()
