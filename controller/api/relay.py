"""Stands before the gRPC server: accepts the connections of clients and passes their bytes on to its private socket.

gRPC itself limits neither the connections of a client nor the bytes that it sends, and does not know which of its
connections to end when there are too many. ``connections`` decides that here, and what is ended never reaches gRPC.

In: listening sockets, bytes. Out: bytes, and who is behind each call: gRPC sees the names of the relay's own sockets,
``peer`` finds the client by them. Bytes are passed on as they are, so TLS ends in gRPC. Runs in the API's thread.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from controller.api.budget import Bucket
from controller.api.connections import Connection, ConnectionLimits, Connections, Ended
from controller.api.relayed import RECEIVED_BYTES, ClientEnd, Shares

CALLS_AT_ONCE = 200
"""Calls that a client may begin in a moment before it has to keep to its calls per second."""
CATCHING_UP = 0.5
"""A client that has this share of them left does not wait for calls that others have begun: one that was held up for a
moment sends together what was due meanwhile."""
ACCEPTED_AT_ONCE = 32
ACCEPT_PAUSE_S = 0.1
"""After accepting has failed, which is for lack of descriptors."""
REFUSED_CALL_BYTES = 65_536

_UCRED = struct.Struct("3i")


class Listener(NamedTuple):
    """``address``: as in the configuration. ``backend``: the socket of gRPC that its connections go to. ``has_tls``:
    which speaks TLS."""

    sock: socket.socket
    address: str
    backend: str
    is_unix: bool
    has_tls: bool


class CallsPerS(NamedTuple):
    of_client: float
    of_all: float


SHARE_CALLS = 20.0
SHARE_S = 1 / 128
"""What one connection may send at once: so many calls, and bytes of its client's for so long."""


class Relay:
    """``refused`` is called with a reason, the peer and more words, if there are any, for each connection that is ended
    here, or ended before its TLS handshake did. ``received``: where all connections receive, since what comes is passed
    on at once."""

    def __init__(
        self,
        limits: ConnectionLimits,
        client_bytes_per_s: float,
        calls_per_s: CallsPerS,
        refused: Callable[[str, str, str], None],
    ) -> None:
        self.connections = Connections(limits)
        self._bytes_per_s = client_bytes_per_s
        self._refused = refused
        self._name = f"signalbox/{os.getpid()}-{secrets.token_hex(4)}/"
        self._ends: dict[int, ClientEnd] = {}
        self._limits = limits
        self.received = memoryview(bytearray(RECEIVED_BYTES))
        self._bytes: dict[str, Bucket] = {}
        self._new: dict[str, Bucket] = {}
        self._calls: dict[str, Bucket] = {}
        self._calls_per_s = calls_per_s
        self._all_calls = Bucket(calls_per_s.of_all, time.monotonic(), CALLS_AT_ONCE)
        self._listeners: list[Listener] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, listeners: Sequence[Listener]) -> None:
        """Take the sockets over and accept from now on. In the loop that runs."""
        self._listeners = list(listeners)
        for listener in listeners:
            listener.sock.setblocking(False)
            asyncio.get_running_loop().add_reader(listener.sock, self._accept, listener)

    def stop_listening(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener.sock)
            listener.sock.close()
        self._listeners = []

    async def close(self) -> None:
        """End all connections; what is left to send has a moment to leave."""
        self.stop_listening()
        for end in list(self._ends.values()):
            end.finish()
        deadline = time.monotonic() + 1.0
        while self._ends and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for end in list(self._ends.values()):
            end.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.sleep(0)

    def peer(self, grpc_peer: str) -> Connection | None:
        """The connection with this name in gRPC (``context.peer()``); None once it has ended."""
        prefix, _, number = grpc_peer.rpartition("/")
        if not number.isdigit() or not prefix.startswith(f"unix-abstract:{self._name}"):
            return None
        return self.connections.get(int(number))

    def name(self, grpc_peer: str) -> str:
        """Of the client behind it, in gRPC's form: ``ipv4:``, ``ipv6:`` or ``unix:`` before it; ``unknown:`` once its
        connection has ended."""
        connection = self.peer(grpc_peer)
        if connection is None:
            return "unknown:"
        if connection.peer.startswith("unix:"):
            return connection.peer
        return f"ipv6:{connection.peer}" if connection.peer.startswith("[") else f"ipv4:{connection.peer}"

    def end(self, connection: Connection, reason: str, why: str = "") -> None:
        """Break the connection off."""
        self._refused(reason, connection.peer, why)
        if connection.id in self._ends:
            self._ends[connection.id].abort()

    def not_shaken(self, connection: Connection, why: str) -> None:
        """It ends before its TLS handshake did."""
        self._refused("tls", connection.peer, why)

    def punish(self, connection: Connection) -> None:
        """A call of the client was refused, which costs as much as one that is answered: it counts as many bytes, so
        that a client that goes on regardless is read from less and less."""
        end = self._ends.get(connection.id)
        if end and end.share:
            self.too_fast_s(connection.client, end.share, REFUSED_CALL_BYTES, 0)

    def tick(self, now: float) -> None:
        """Ends connections that do nothing; to be called every second or so."""
        self._end_all(self.connections.overdue(now))
        self._bytes = {client: bucket for client, bucket in self._bytes.items() if not bucket.is_full(now)}
        self._new = {client: bucket for client, bucket in self._new.items() if not bucket.is_full(now)}
        self._calls = {client: bucket for client, bucket in self._calls.items() if not bucket.is_full(now)}

    def _end_all(self, ended: Sequence[Ended]) -> None:
        for connection, reason in ended:
            self.end(connection, reason)

    # ---- one connection

    def _accept(self, listener: Listener) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, address = listener.sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._refused("cannot_accept", listener.address, error.strerror or str(error))
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener.sock)
                loop.call_later(ACCEPT_PAUSE_S, self._accept_again, listener)
                return
            client, peer = _client(sock, address, listener.address)
            now = time.monotonic()
            if self._is_too_new(client, now):
                sock.close()
                self._refused("connections_per_s", peer, "")
                continue
            sock.setblocking(False)
            connection, ended = self.connections.accepted(client, peer, now)
            self._end_all(ended)
            self._ends[connection.id] = ClientEnd(self, connection, sock, listener.backend, listener.has_tls)

    def _accept_again(self, listener: Listener) -> None:
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener.sock, self._accept, listener)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def opened(self, end: ClientEnd) -> None:
        """The client has begun to speak."""
        self._end_all(self.connections.opened(end.connection, time.monotonic()))
        if end.connection.id in self._ends:
            # Any process can see such names, and take one that it can foresee.
            self._start(end.connect(f"\0{self._name}{secrets.token_hex(8)}/{end.connection.id}"))

    def gone(self, connection: Connection) -> None:
        self._ends.pop(connection.id, None)
        self.connections.gone(connection)

    def too_fast_s(self, client: str, share: Shares, size: int, calls: int) -> float:
        """How long to keep ``size`` bytes that the client has sent, which begin so many calls: gRPC would take in
        thousands at once, and all others would wait. Beyond what all clients may begin, those wait that have used more
        than half of their own. ``share``: of the connection, of what its client may send: within it the connection
        waits for no other one, as the programs behind one address need not know each other."""
        now = time.monotonic()
        wait_s = _bucket(self._bytes, client, self._bytes_per_s, self._bytes_per_s, now).spend(size, now)
        if share.bytes.spend(size, now) == 0:
            wait_s = 0.0
        if not calls:
            return wait_s
        own, all_s = self._calls_of(client, now), self._all_calls.spend(calls, now)
        own_s = own.spend(calls, now)
        if share.calls.spend(calls, now) == 0:
            return wait_s
        wait_s = max(wait_s, own_s)
        return wait_s if own.left >= CATCHING_UP else max(wait_s, all_s)

    def share(self) -> Shares:
        """Of one connection, if its client has as many as it may."""
        most, now = self._limits.of_client, time.monotonic()
        return Shares(
            Bucket(self._bytes_per_s / most, now, self._bytes_per_s * SHARE_S),
            Bucket(self._calls_per_s.of_client / most, now, SHARE_CALLS),
        )

    def _calls_of(self, client: str, now: float) -> Bucket:
        return _bucket(self._calls, client, self._calls_per_s.of_client, CALLS_AT_ONCE, now)

    def _is_too_new(self, client: str, now: float) -> bool:
        """Whether the client has opened too many connections of late."""
        per_s, at_once = self._limits.of_client_per_s, self._limits.of_client
        return not _bucket(self._new, client, per_s, max(per_s, at_once), now).take(now)


def _bucket(buckets: dict[str, Bucket], client: str, per_s: float, at_once: float, now: float) -> Bucket:
    bucket = buckets.get(client)
    if bucket is None:
        bucket = buckets[client] = Bucket(per_s, now, at_once)
    return bucket


def _client(sock: socket.socket, address: Any, listened: str) -> tuple[str, str]:
    """Who is counted together, and the name for people: of a Unix socket the user who has connected to it (unix(7),
    SO_PEERCRED), else the address."""
    if sock.family == socket.AF_UNIX:
        pid, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        client = f"{listened} user {uid}"
        return client, f"{client} process {pid}"
    host, port = address[:2]
    host = host.removeprefix("::ffff:") if "." in host else host
    return host, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
