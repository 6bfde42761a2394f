"""Probes between hosts: numbered UDP packets at fixed intervals.

The program runs inside a host's namespace. One process per host sends to any number of others and records what arrives:

    python -m mininet_topos.probe --bind 10.0.1.1 --out h1_1.json

Standard input has a line ``ADDRESS INTERVAL_S BYTES`` per change. From then on the process sends a frame of that many
bytes (as the links count them) to that host at that interval; interval 0 ends the sending. The process prints a line
``ready`` when it listens. ``LINGER_S`` seconds after the end of the input it writes the report as JSON:
``{"ip", "sent": {to: [at, ...]}, "received": {from: [[number, at], ...]}, "overflows"}``. The n-th time of ``sent`` is
that of packet number n. ``overflows`` counts packets that arrived and were dropped because this process was late. Times
are seconds on CLOCK_MONOTONIC, which all namespaces share.
"""

import argparse
import json
import os
import selectors
import socket
import struct
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

PORT = 7199
"""UDP port of the probes; a host's namespace has no other services."""
HEADERS_BYTES = 14 + 20 + 8
"""Bytes of the headers: Ethernet without its checksum, IPv4, UDP."""
NUMBER = struct.Struct("!Q")
MIN_FRAME_BYTES = 60
"""Bytes of the smallest Ethernet frame (IEEE 802.3), without its checksum."""
LINGER_S = 1.0
BUFFER_BYTES = 4 << 20
SO_RCVBUFFORCE = getattr(socket, "SO_RCVBUFFORCE", 33)
"""Socket option for a receive buffer above the system's limit, for root (socket(7)); Python names it since 3.12."""
SNMP = Path("/proc/self/net/snmp")


@dataclass
class _Target:
    """Destination of probes. ``due``: time of its next packet."""

    address: tuple[str, int]
    padding: bytes
    interval_s: float
    due: float


@dataclass
class Prober:
    """Sender, receiver and recorder of probes. Single-threaded."""

    sock: socket.socket
    port: int = PORT
    sent: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    received: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    _targets: dict[str, _Target] = field(default_factory=dict)

    def change(self, line: str) -> None:
        """Apply a line ``ADDRESS INTERVAL_S BYTES``. Raises ``ValueError`` for any other line."""
        ip, interval_s, frame_bytes = line.split()
        if float(interval_s) <= 0:
            self._targets.pop(ip, None)
            return
        padding = bytes(max(int(frame_bytes), MIN_FRAME_BYTES) - HEADERS_BYTES - NUMBER.size)
        self._targets[ip] = _Target((ip, self.port), padding, float(interval_s), time.monotonic())

    def wait_s(self) -> float | None:
        """Return the seconds until the next packet is due; None without destinations."""
        due = min((target.due for target in self._targets.values()), default=None)
        return None if due is None else max(0.0, due - time.monotonic())

    def send_due(self) -> None:
        """Send every packet that is due.

        A delay causes no burst: one packet per destination is sent, and then its interval begins."""
        now = time.monotonic()
        for ip, target in self._targets.items():
            if target.due <= now:
                times = self.sent[ip]
                times.append(time.monotonic())
                with suppress(OSError):  # no neighbour or no carrier: the network lost the packet
                    self.sock.sendto(NUMBER.pack(len(times) - 1) + target.padding, target.address)
                target.due = max(target.due + target.interval_s, now)

    def receive(self) -> None:
        """Record all packets that have arrived."""
        while True:
            try:
                packet, (ip, _) = self.sock.recvfrom(2048)
            except BlockingIOError:
                return
            self.received[ip].append((NUMBER.unpack_from(packet)[0], time.monotonic()))


def overflows(snmp: str) -> int:
    """Return the number of UDP packets dropped by full receive buffers, from the text of ``/proc/net/snmp``.

    For UDP the text has a line of names, then a line of values."""
    names, values = (line.split() for line in snmp.splitlines() if line.startswith("Udp:"))
    return int(dict(zip(names, values, strict=True))["RcvbufErrors"])


def run(ip: str, port: int, tos: int, control: int) -> dict[str, object]:
    """Send the probes that are requested by lines from the file descriptor ``control``.

    Return the report when no more lines can arrive."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, selectors.DefaultSelector() as ready:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        sock.bind((ip, port))
        sock.setblocking(False)
        print("ready", flush=True)  # noqa: T201
        prober = Prober(sock, port)
        ready.register(sock, selectors.EVENT_READ)
        ready.register(control, selectors.EVENT_READ)
        commands = b""
        while True:
            events = [key.fd for key, _ in ready.select(prober.wait_s())]
            if control in events:
                if not (more := os.read(control, 4096)):
                    break
                *lines, commands = (commands + more).split(b"\n")
                for line in lines:
                    prober.change(line.decode())
            if sock.fileno() in events:
                prober.receive()
            prober.send_due()
        deadline = time.monotonic() + LINGER_S
        ready.unregister(control)
        while (left := deadline - time.monotonic()) > 0:
            if ready.select(left):
                prober.receive()
        return {
            "ip": ip,
            "sent": {to: [round(at, 6) for at in times] for to, times in prober.sent.items()},
            "received": {who: [(n, round(at, 6)) for n, at in seen] for who, seen in prober.received.items()},
            "overflows": overflows(SNMP.read_text()),
        }


def main() -> None:
    """Run one probing process.

    The program does not import typer, because a benchmark starts it in every host of an emulated fabric on two
    cores."""
    parser = argparse.ArgumentParser("python -m mininet_topos.probe", description="Probe other hosts.")
    parser.add_argument("--bind", required=True, help="Address of this host.")
    parser.add_argument("--port", type=int, default=PORT, help="UDP port, the same in every host")
    parser.add_argument("--tos", type=int, default=0, help="Type of service in the header of every packet.")
    parser.add_argument("--out", required=True, type=Path, help="File for the report.")
    options = parser.parse_args()
    report = run(options.bind, options.port, options.tos, control=0)
    options.out.write_text(json.dumps(report, separators=(",", ":")))
