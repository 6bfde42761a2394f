"""A flow that is divided over several connections (docs/how-to/announce-a-job.md#split-flows)."""

import errno
import random
import socket
from collections.abc import Sequence

from signalbox.route_following import Share


def connect_from(class_value: int, class_mask: int, source_ip: str, peer: tuple[str, int]) -> socket.socket:
    """Connect from a source port of the port class, such as 0, 2 or 4 of the mask 0x6 with ``max_subflows`` 3."""
    while True:
        port = random.randint(32768, 60999) & ~class_mask | class_value
        sock = socket.socket()
        try:
            sock.bind((source_ip, port))
        except OSError as error:
            sock.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            sock.connect(peer)
            return sock


def shares_of(connections: Sequence[socket.socket], subflows: Sequence[Share]) -> list[float]:
    """Return the share of each connection in the bytes of the flow, which is whole or not pinned without subflows."""
    if not subflows:
        return [1.0] + [0.0] * (len(connections) - 1)
    shares = [0.0] * len(connections)
    ports = [connection.getsockname()[1] for connection in connections]
    for subflow in subflows:
        i = next(i for i, port in enumerate(ports) if port & subflow.port_mask == subflow.port_value)
        shares[i] = subflow.share
    return shares
