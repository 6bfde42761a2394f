"""Addresses of a lab's hosts, echo requests between them, and a flow of TCP."""

import subprocess
import sys

from mininet_topos.lab.lab import Lab
from tests.support.waiting import line


def address(lab: Lab, host: str) -> str:
    return next(h.ip for h in lab.hosts if h.name == host)


def assert_pings(lab: Lab, source: str, target: str, count: int | None = None) -> None:
    """Assert that the target answers at least one echo request.

    ``count``: requests to send. Without it the first answer is enough, within some seconds: on a busy machine a single
    echo may be late."""
    # With -w, ping sends until it has -c answers.
    how_many = ["-c", "1", "-w", "20"] if count is None else ["-c", str(count), "-W", "3"]
    argv = ["ping", *how_many, "-i", "0.2", address(lab, target)]
    out = lab.popen(source, argv, stdout=subprocess.PIPE, text=True).communicate()[0]
    assert " bytes from " in out, f"{source} does not reach {target}:\n{out}"


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
