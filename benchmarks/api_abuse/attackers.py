"""Processes of the ``api-abuse`` benchmark that attack the API, each from its own address.

    .venv/bin/python -m benchmarks.api_abuse.attackers HOST:PORT SOURCE PER_S SILENT GREETED HALF_OPEN WATCHERS

A process opens at most ``PER_S`` connections a second. The last five arguments are the numbers of

- connections that send nothing;
- connections that begin HTTP/2 and make no call;
- calls that send no request;
- watchers that read nothing;
- connections that send header fields of 16 MB.

When the server ends a connection, the process opens it again, until the process is stopped. Once a second it prints a
line of JSON: by kind, how many connections and calls are open, and how many have ended. It runs with the lowest
priority, so that it takes no processor time from the controller under test, even on a small machine.
"""

import json
import os
import resource
import selectors
import socket
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.api_abuse import http2

CALLS_PER_CONNECTION = 50
STATUS = "/signalbox.v1.ControllerService/GetStatus"
ROUTES = "/signalbox.v1.JobService/WatchRoutes"
WATCHED = "watched"
"""Id of the registered job whose routes the watchers request."""
LOWEST = 19
"""Niceness with the lowest priority (nice(2))."""
AUTOGROUP = Path("/proc/self/autogroup")
"""File that sets the priority of a session relative to other sessions (sched(7))."""


@dataclass(eq=False)
class Attack:
    """Connection that an attacker opens, and opens again whenever it ends."""

    kind: str
    opening: bytes
    """Bytes that are sent as soon as the connection is open."""
    calls: int = 1


def attacks(silent: int, greeted: int, half_open: int, watchers: int) -> list[Attack]:
    calls = b"".join(http2.headers(1 + 2 * number, STATUS) for number in range(CALLS_PER_CONNECTION))
    watch = http2.headers(1, ROUTES) + http2.request(1, b"\x0a" + bytes([len(WATCHED)]) + WATCHED.encode())
    return [
        *(Attack("watchers", http2.hello(window=0) + watch) for _ in range(watchers)),
        *(
            Attack("half_open", http2.hello() + calls, CALLS_PER_CONNECTION)
            for _ in range(half_open // CALLS_PER_CONNECTION)
        ),
        *(Attack("greeted", http2.hello()) for _ in range(greeted)),
        *(Attack("silent", b"") for _ in range(silent)),
    ]


class Attackers:
    def __init__(self, address: tuple[str, int], source: str, per_s: float, waiting: list[Attack]) -> None:
        self._per_s = per_s
        self._address = address
        self._source = source
        self._waiting = waiting
        self._selector = selectors.DefaultSelector()
        self.open: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    def run(self) -> None:
        next_at = told_at = time.monotonic()
        while True:
            now = time.monotonic()
            while self._waiting and now >= next_at:
                next_at = max(next_at, now - 0.1) + 1 / self._per_s
                self._begin(self._waiting.pop(0))
            for key, _ in self._selector.select(0.01):
                self._look(key)
            if now >= told_at + 1:
                told_at = now
                sys.stdout.write(json.dumps({"open": self.open, "ended": self.ended}) + "\n")
                sys.stdout.flush()

    def _begin(self, attack: Attack) -> None:
        sock = socket.socket()
        try:
            sock.bind((self._source, 0))
            sock.settimeout(1.0)
            sock.connect(self._address)
            sock.sendall(attack.opening)
            sock.setblocking(False)
        except OSError:
            sock.close()
            self._end(attack)
            return
        self.open[attack.kind] += attack.calls
        self._selector.register(sock, selectors.EVENT_READ, attack)

    def _look(self, key: selectors.SelectorKey) -> None:
        """Read from a connection, and queue it to be opened again if the server has ended it.

        The server cannot send messages to watchers, because their flow-control window is 0."""
        attack, sock = key.data, key.fileobj
        assert isinstance(sock, socket.socket)
        got = b""
        with suppress(OSError):
            got = sock.recv(65536)
        if not got or (attack.kind == "half_open" and _ends_a_call(got)):
            self._selector.unregister(sock)
            sock.close()
            self.open[attack.kind] -= attack.calls
            self._end(attack)

    def _end(self, attack: Attack) -> None:
        self.ended[attack.kind] += attack.calls
        self._waiting.append(attack)


def _ends_a_call(data: bytes) -> bool:
    """Return whether the data begin with an HTTP/2 frame that ends a call.

    The attacker then opens the whole connection again, with all its calls."""
    return len(data) > 9 and data[3] in (http2.Kind.HEADERS, http2.Kind.RST_STREAM, http2.Kind.GOAWAY)


def main(address: str, source: str, per_s: str, *numbers: str) -> None:
    os.nice(LOWEST)
    with suppress(OSError):
        AUTOGROUP.write_text(str(LOWEST))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    host, _, port = address.rpartition(":")
    Attackers((host, int(port)), source, float(per_s), attacks(*map(int, numbers))).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
