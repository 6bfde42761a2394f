"""A source port of a class, for a connection that is to be told apart from its siblings.

Owns the choice of the port. connect() would take the kernel's own: even ones, in the order of a hash, so that no mask
is met but by luck; therefore the socket is bound first, to a port that is tried at random until one is free.
"""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path

from controller.jobs.source_ports import PortClass

PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
TRIES = 256


def bind_in_class(sock: socket.socket, ip: str, ports: PortClass) -> int:
    """Bind to a free ephemeral port of the class; returns it. Raises ``OSError`` (EADDRINUSE) when none was found.

    A port in the ephemeral range does not collide with services that are started later at fixed ports. A port that is
    taken, also by a connection in TIME_WAIT, is simply not used: the next one is as good.
    """
    low, high = map(int, PORT_RANGE.read_text().split())
    for _ in range(TRIES):
        port = random.randint(low, high) & ~ports.mask | ports.value
        if not low <= port <= high:
            continue
        try:
            sock.bind((ip, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return port
    raise OSError(errno.EADDRINUSE, f"no free source port p with p & {ports.mask:#x} == {ports.value:#x}")
