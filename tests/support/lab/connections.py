"""Payload counters of TCP connections, read from the sockets: the true traffic of a job, without switches.

In: a network namespace. Out: the payload bytes per connection and per (source, destination), as counted at the
receiving end. This counter is complete when the program has received its data; that of the sending end counts only
acknowledged bytes. Closed connections lose their counters, so read them before a job ends.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mininet_topos.joining.mptcp import address_of

RECEIVED = re.compile(r"\bbytes_received:(\d+)")


class Connection(NamedTuple):
    """End of a TCP connection. ``received``: payload bytes so far (tcp(7), ``tcpi_bytes_received``)."""

    ip: str
    port: int
    peer_ip: str
    peer_port: int
    received: int


def read_connections(namespace: str | None = None) -> list[Connection]:
    """Return the established connections in a named network namespace, by default that of this process.

    Raises ``OSError`` and ``CalledProcessError``."""
    where = ["-N", namespace] if namespace else []
    listed = subprocess.run(
        ["ss", *where, "-tinH", "state", "established"], capture_output=True, text=True, check=True
    ).stdout
    return list(parsed(listed))


def parsed(listed: str) -> Iterator[Connection]:
    """Yield the connections in the output of ``ss -tinH state established``.

    Each connection has a line of addresses, then an indented line of counters. This line has no ``bytes_received``
    until the first byte is received."""
    ends: tuple[str, str] | None = None
    for line in listed.splitlines():
        if not line[:1].isspace():
            local, peer = line.split()[2:4]
            ends = local, peer
        elif ends:
            counted = RECEIVED.search(line)
            yield Connection(*address_of(ends[0]), *address_of(ends[1]), int(counted[1]) if counted else 0)
            ends = None


def received_from(connections: Iterable[Connection]) -> Counter[tuple[str, str]]:
    """Return the bytes of the connections per (sending address, receiving address)."""
    total: Counter[tuple[str, str]] = Counter()
    for connection in connections:
        total[connection.peer_ip, connection.ip] += connection.received
    return total
