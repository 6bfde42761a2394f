"""TCP connections between the ranks of one job, driven by one thread.

Two ranks have one connection, or one per subflow when the job may split its flows. The mesh sends arrays, fills arrays
with received data, and notes the time at which each was complete. Only ``receive``, ``receive_each`` and ``flush``
block. While they wait, all data queued for any peer are sent, so two ranks that both send much cannot block each other.
"""

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from mininet_topos.trainer import sockets
from mininet_topos.trainer.sockets import RoundRobin
from signalbox.jobs.subflows import PortClass

HELLO = struct.Struct("!IB")
MAX_GATHERED = 64
CONNECT_ATTEMPT_S = 5.0


class PeerLostError(Exception):
    """A peer closed its connection, or neither sent nor received a byte for the stall time-out."""


class Connection:
    """TCP connection to ``peer``, with its queue of unsent data."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        self.sock = sock
        self.peer = peer
        self.unsent: deque[memoryview] = deque()

    @property
    def source_port(self) -> int:
        return int(self.sock.getsockname()[1])

    @property
    def ends(self) -> tuple[str, int, str, int]:
        """Address and port of this rank, then address and port of the peer."""
        return (*self.sock.getsockname()[:2], *self.sock.getpeername()[:2])

    def send_some(self) -> None:
        """Hand as much of the queued data to the kernel as it accepts. Raises ``PeerLostError``."""
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
        """Receive into the start of ``view``, and return the number of bytes; 0 when none have arrived.

        Raises ``PeerLostError``."""
        try:
            got = self.sock.recv_into(view)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerLostError(f"{self.peer}: {error.strerror}") from error
        if got == 0:
            raise PeerLostError(f"{self.peer} closed the connection")
        return got


class Bundle:
    """Connections to one peer, one per subflow; the first one also carries headers and confirmations.

    ``outgoing`` assigns slices to connections. ``incoming`` does so for received slices, with the weights in the peer's
    headers."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self.connections = tuple(connections)
        self.outgoing = RoundRobin(len(self.connections))
        self.incoming = RoundRobin(len(self.connections))

    @property
    def peer(self) -> str:
        return self.first.peer

    @property
    def first(self) -> Connection:
        return self.connections[0]

    def next_out(self) -> Connection:
        """Return the connection on which to send the next slice."""
        return self.connections[self.outgoing.next()]

    def next_in(self) -> Connection:
        """Return the connection on which the next slice arrives."""
        return self.connections[self.incoming.next()]


class Mesh:
    """Connections of rank ``rank`` of ``size``.

    ``to[p]``: connections to rank p that this rank opened. ``from_[p]``: connections that rank p opened. All of them
    carry bytes in both directions. ``arrivals``: monotonic times at which data were received completely, since the last
    ``take_arrivals``."""

    def __init__(
        self,
        rank: int,
        size: int,
        to: Mapping[int, Bundle],
        from_: Mapping[int, Bundle],
        stall_timeout_s: float = 60.0,
    ) -> None:
        self.rank = rank
        self.size = size
        self.to = to
        self.from_ = from_
        self.stall_timeout_s = stall_timeout_s
        self.arrivals: list[float] = []
        self._connections = tuple(one for bundle in (*to.values(), *from_.values()) for one in bundle.connections)

    def send(self, connection: Connection, data: memoryview | bytes) -> None:
        """Queue ``data``, which must not change until it is sent, and send as much of it as the kernel accepts now."""
        view = memoryview(data).cast("B")
        if len(view):
            connection.unsent.append(view)
            if len(connection.unsent) == 1:
                connection.send_some()

    def receive(self, connection: Connection, into: memoryview | bytearray, note_arrival: bool = False) -> None:
        """Fill ``into`` with the next bytes of the connection. Raises ``PeerLostError``."""
        rest = memoryview(into).cast("B")
        while len(rest):
            got = connection.receive_some(rest)
            rest = rest[got:]
            if not got:
                # One wake-up per slice instead of per packet saves a fifth of the processor time.
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(rest))
                self._wait((connection,))
        if note_arrival:
            self.arrivals.append(time.monotonic())

    def receive_each(self, into: Mapping[Connection, Iterable[memoryview]]) -> None:
        """Fill the views of each connection in their order, as data arrive, and note the arrivals.

        Raises ``PeerLostError``."""
        missing = {connection: deque(view.cast("B") for view in views) for connection, views in into.items()}
        readable: Collection[Connection] = tuple(missing)
        while missing := {connection: views for connection, views in missing.items() if views}:
            for connection in readable:
                while (views := missing.get(connection)) and (got := connection.receive_some(views[0])):
                    views[0] = views[0][got:]
                    if not views[0]:
                        views.popleft()
                        self.arrivals.append(time.monotonic())
                if views:
                    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(views[0]))
            if waiting := [connection for connection, views in missing.items() if views]:
                readable = self._wait(waiting)

    def flush(self) -> None:
        """Return when the kernel has accepted the queued data of all connections. Raises ``PeerLostError``."""
        while any(connection.unsent for connection in self._connections):
            self._wait(())

    @property
    def opened(self) -> list[tuple[str, int, str, int]]:
        """Ends of the connections that this rank has opened."""
        return [one.ends for bundle in self.to.values() for one in bundle.connections]

    def take_arrivals(self) -> list[float]:
        arrivals, self.arrivals = self.arrivals, []
        return arrivals

    def _wait(self, sources: Collection[Connection]) -> list[Connection]:
        """Wait for a readable source or a socket that accepts data; send, and return the readable sources."""
        poller = select.poll()
        sockets = {connection.sock.fileno(): connection for connection in self._connections}
        for fileno, connection in sockets.items():
            events = (select.POLLIN if connection in sources else 0) | (select.POLLOUT if connection.unsent else 0)
            if events:
                poller.register(fileno, events)
        ready = poller.poll(self.stall_timeout_s * 1000)
        if not ready:
            waited_for = ", ".join(c.peer for c in sources or [c for c in self._connections if c.unsent])
            raise PeerLostError(f"{waited_for}: not a byte for {self.stall_timeout_s:.0f} s")
        for fileno, _ in ready:
            if sockets[fileno].unsent:
                sockets[fileno].send_some()
        return [sockets[fileno] for fileno, events in ready if events != select.POLLOUT]

    def shut(self) -> None:
        """Make every call that blocks in another thread, or on a peer, raise ``PeerLostError``."""
        for connection in self._connections:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

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
    classes: Sequence[PortClass | None] = (None,),
    *,
    timeout_s: float = 60.0,
    stall_timeout_s: float = 60.0,
) -> Mesh:
    """Open this rank's connections: ``to`` the ranks it connects to, ``from_`` the ranks that connect to it.

    ``addresses``: one IP address per rank. ``directory`` is shared by the ranks of this job only. ``classes``: classes
    of the source ports, one per connection to a peer; None for any port. Raises ``TimeoutError`` when a rank is not
    connected within ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    with socket.create_server((addresses[rank], 0), backlog=len(addresses) * len(classes)) as listener:
        sockets.publish(directory, f"rank-{rank}", listener.getsockname()[:2])
        opened = {
            peer: Bundle(
                [
                    _open(directory, HELLO.pack(rank, number), (addresses[rank], ports), peer, addresses, deadline)
                    for number, ports in enumerate(classes)
                ]
            )
            for peer in to
        }
        accepted = _accept(listener, set(from_), len(classes), addresses, deadline)
    return Mesh(rank, len(addresses), opened, accepted, stall_timeout_s)


def _open(
    directory: Path,
    hello: bytes,
    source: tuple[str, PortClass | None],
    peer: int,
    addresses: Sequence[str],
    deadline: float,
) -> Connection:
    """Return one connection to ``peer`` from the ``source`` address, and from a port of the class if one is given."""
    ip, ports = source
    while True:
        address = sockets.find(directory, f"rank-{peer}", deadline - time.monotonic())
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sockets.prepare_sender(sock)
        sock.settimeout(CONNECT_ATTEMPT_S)
        try:
            if ports:
                sockets.bind_in_class(sock, ip, ports)
            sock.connect(address)
            sock.sendall(hello)
            return Connection(sock, f"rank {peer} ({addresses[peer]})")
        except OSError as error:
            sock.close()
            if time.monotonic() > deadline:
                raise TimeoutError(f"rank {peer} ({addresses[peer]}) cannot be reached: {error}") from error
            time.sleep(sockets.POLL_S)


def _accept(
    listener: socket.socket, peers: set[int], count: int, addresses: Sequence[str], deadline: float
) -> dict[int, Bundle]:
    """Return ``count`` connections from each of the peers."""
    accepted: dict[tuple[int, int], Connection] = {}
    expected = {(peer, number) for peer in peers for number in range(count)}
    while missing := expected - accepted.keys():
        listener.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            sock, _ = listener.accept()
        except TimeoutError:
            ranks = sorted({peer for peer, _ in missing})
            raise TimeoutError(f"connections are missing from ranks {ranks}") from None
        sock.settimeout(max(0.001, deadline - time.monotonic()))
        hello = sock.recv(HELLO.size, socket.MSG_WAITALL)
        which = HELLO.unpack(hello) if len(hello) == HELLO.size else (-1, 0)
        if which in missing:
            accepted[which] = Connection(sock, f"rank {which[0]} ({addresses[which[0]]})")
        else:
            sock.close()
    return {peer: Bundle([accepted[peer, number] for number in range(count)]) for peer in peers}
