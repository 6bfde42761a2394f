"""The TCP connections between the ranks of one job, pumped by one thread.

Owns the sockets. In: arrays to send and arrays to fill. Out: filled arrays, and when each was complete. Nothing
blocks but ``receive`` and ``flush``, and while they wait everything queued for any peer goes on being sent, so two
ranks that both have much to say cannot wait for each other.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from mininet_topos import rendezvous

HELLO = struct.Struct("!I")
SEND_BUFFER_BYTES = 64 * 1024
MAX_GATHERED = 64
CONNECT_ATTEMPT_S = 5.0


class PeerLostError(Exception):
    """A peer closed its connection, or neither sent nor took a byte for the stall time-out."""


class Connection:
    """One TCP connection to ``peer``: what is still to be sent, in order."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        self.sock = sock
        self.peer = peer
        self.unsent: deque[memoryview] = deque()

    def send_some(self) -> None:
        """Hand the kernel as much as it takes. Raises ``PeerLostError``."""
        try:
            sent = self.sock.sendmsg([self.unsent[i] for i in range(min(len(self.unsent), MAX_GATHERED))])
        except BlockingIOError:
            return
        except OSError as error:
            raise PeerLostError(f"{self.peer}: {error.strerror}") from error
        while sent:
            head = self.unsent.popleft()
            if sent < len(head):
                self.unsent.appendleft(head[sent:])
                return
            sent -= len(head)

    def receive_some(self, view: memoryview) -> int:
        """Bytes written to the start of ``view``; 0 when there are none yet. Raises ``PeerLostError``."""
        try:
            got = self.sock.recv_into(view)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerLostError(f"{self.peer}: {error.strerror}") from error
        if got == 0:
            raise PeerLostError(f"{self.peer} closed the connection")
        return got


class Mesh:
    """The connections of rank ``rank`` of ``size``: ``to[p]`` was opened by this rank, ``from_[p]`` by rank p; both
    carry bytes in both directions. ``arrivals``: monotonic time when each receive of data was complete, since the
    list was last taken."""

    def __init__(
        self,
        rank: int,
        size: int,
        to: Mapping[int, Connection],
        from_: Mapping[int, Connection],
        stall_timeout_s: float = 60.0,
    ) -> None:
        self.rank = rank
        self.size = size
        self.to = to
        self.from_ = from_
        self.stall_timeout_s = stall_timeout_s
        self.arrivals: list[float] = []
        self._connections = (*to.values(), *from_.values())

    def send(self, connection: Connection, data: memoryview | bytes) -> None:
        """Queue ``data``, which must not change before it was sent, and send what the socket takes now."""
        view = memoryview(data).cast("B")
        if len(view):
            connection.unsent.append(view)
            if len(connection.unsent) == 1:
                connection.send_some()

    def receive(self, connection: Connection, into: memoryview | bytearray, note_arrival: bool = False) -> None:
        """Fill ``into``. Raises ``PeerLostError``."""
        rest = memoryview(into).cast("B")
        while len(rest):
            got = connection.receive_some(rest)
            rest = rest[got:]
            if not got:
                # Wake up once per slice, not per packet: five times less work for a shared processor.
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(rest))
                self._wait(connection)
        if note_arrival:
            self.arrivals.append(time.monotonic())

    def flush(self) -> None:
        """Return when the kernel has taken everything. Raises ``PeerLostError``."""
        while any(connection.unsent for connection in self._connections):
            self._wait(None)

    def take_arrivals(self) -> list[float]:
        arrivals, self.arrivals = self.arrivals, []
        return arrivals

    def _wait(self, source: Connection | None) -> None:
        """Wait until ``source`` is readable or a socket takes more, and send."""
        poller = select.poll()
        sockets = {connection.sock.fileno(): connection for connection in self._connections}
        for fileno, connection in sockets.items():
            events = (select.POLLIN if connection is source else 0) | (select.POLLOUT if connection.unsent else 0)
            if events:
                poller.register(fileno, events)
        ready = poller.poll(self.stall_timeout_s * 1000)
        if not ready:
            waited_for = source.peer if source else ", ".join(c.peer for c in self._connections if c.unsent)
            raise PeerLostError(f"{waited_for}: not a byte for {self.stall_timeout_s:.0f} s")
        for fileno, _ in ready:
            if sockets[fileno].unsent:
                sockets[fileno].send_some()

    def close(self) -> None:
        for connection in self._connections:
            connection.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(
    directory: Path,
    rank: int,
    addresses: Sequence[str],
    to: Iterable[int],
    from_: Iterable[int],
    *,
    timeout_s: float = 60.0,
    stall_timeout_s: float = 60.0,
) -> Mesh:
    """Open this rank's connections: ``to`` the ranks it connects to, ``from_`` the ranks that connect to it.

    ``addresses``: one IP per rank; ``directory`` is shared by the ranks of this job and of no other. Raises
    ``TimeoutError`` when a rank does not turn up in ``timeout_s`` seconds.
    """
    deadline = time.monotonic() + timeout_s
    with socket.create_server((addresses[rank], 0), backlog=len(addresses)) as listener:
        rendezvous.publish(directory, f"rank-{rank}", listener.getsockname()[:2])
        opened = {peer: _open(directory, rank, peer, addresses, deadline) for peer in to}
        accepted = _accept(listener, set(from_), addresses, deadline)
    return Mesh(rank, len(addresses), opened, accepted, stall_timeout_s)


def prepare_sender(sock: socket.socket) -> None:
    """A short queue, and Linux's own default congestion control whatever the machine's setting is: BBR, which some
    machines prefer, pauses every flow for 0.2 s every 10 s, and in a ring everybody waits for each pause."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")


def _open(directory: Path, rank: int, peer: int, addresses: Sequence[str], deadline: float) -> Connection:
    while True:
        address = rendezvous.find(directory, f"rank-{peer}", deadline - time.monotonic())
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        prepare_sender(sock)
        sock.settimeout(CONNECT_ATTEMPT_S)
        try:
            sock.connect(address)
            sock.sendall(HELLO.pack(rank))
            return Connection(sock, f"rank {peer} ({addresses[peer]})")
        except OSError as error:
            sock.close()
            if time.monotonic() > deadline:
                raise TimeoutError(f"rank {peer} ({addresses[peer]}) cannot be reached: {error}") from error
            time.sleep(rendezvous.POLL_S)


def _accept(
    listener: socket.socket, expected: set[int], addresses: Sequence[str], deadline: float
) -> dict[int, Connection]:
    accepted: dict[int, Connection] = {}
    while missing := expected - accepted.keys():
        listener.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            sock, _ = listener.accept()
        except TimeoutError:
            raise TimeoutError(f"no connection from ranks {sorted(missing)}") from None
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        hello = sock.recv(HELLO.size, socket.MSG_WAITALL)
        peer = HELLO.unpack(hello)[0] if len(hello) == HELLO.size else -1
        if peer in missing:
            accepted[peer] = Connection(sock, f"rank {peer} ({addresses[peer]})")
        else:
            sock.close()
    return accepted
