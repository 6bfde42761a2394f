"""The relay process: accepts connections, and limits what clients send by their addresses.

In: listening sockets; what the API's thread has decided. Out: bytes at gRPC's sockets and back; what has become of each
connection. gRPC sees the names of the relay's own sockets, by whose numbers the API's thread finds the client. Bytes
are passed on as they are, so TLS ends in gRPC.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
import time
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from controller import child
from controller.api.budget import Bucket
from controller.api.relay.channel import (
    Accepted,
    Channel,
    Connect,
    End,
    Failed,
    Finish,
    FromProcess,
    Gone,
    LetIn,
    Opened,
    Ping,
    Pong,
    Punish,
    Refused,
    StopListening,
    ToProcess,
)
from controller.api.relay.passing import RECEIVED_BYTES, ClientEnd, Shares

CALLS_AT_ONCE = 200
"""Calls that a client may begin in a moment before it has to keep to its calls per second."""
CATCHING_UP = 0.5
"""A client that has this share of them left does not wait for calls that others have begun: one that was held up for a
moment sends together what was due meanwhile."""
ACCEPTED_AT_ONCE = 32
ACCEPT_PAUSE_S = 0.1
"""After accepting has failed, which is for lack of descriptors, and while the API's thread is behind."""
REFUSED_CALL_BYTES = 65_536
MAX_WHY = 1000
"""Characters of a fault that are told: a packet that the channel cannot send would hold up all that follow."""
TICK_S = 1.0
FINISH_S = 1.0
"""For clients to read what is left to send."""

SHARE_CALLS = 20.0
SHARE_S = 1 / 128
"""What one connection may send at once: so many calls, and bytes of its client's for so long."""

EARLY_BYTES, EARLY_REFILL_PER_S = 2048, 1024.0
"""What a connection may send after its TLS handshake before it is known who its client is: enough for a call; and
again, for those that only ask for the health of the controller."""
EARLY_BYTES_PER_S = 16_384.0
"""Beyond that, all such connections of a client together. Eight kilobytes of compressed header fields can be 16 MB."""

_UCRED = struct.Struct("3i")


class Listener(NamedTuple):
    """``address``: as in the configuration. ``backend``: the socket of gRPC that its connections go to. ``has_tls``:
    which speaks TLS."""

    sock: socket.socket
    address: str
    backend: str
    is_unix: bool
    has_tls: bool


class Pace(NamedTuple):
    """Of one client: bytes and calls per second, ``connections`` at once and new ones per second; calls per second
    of all."""

    bytes_per_s: float
    calls_per_s: float
    all_calls_per_s: float
    connections: int
    connections_per_s: float


def work(sock: socket.socket, listeners: Sequence[Listener], pace: Pace, name: str, first_id: int) -> None:
    """The process. ``sock``: of the channel. ``name``: what the names of its sockets begin with. Ends when the
    controller does."""
    child.leave_to_controller()
    asyncio.run(Accepting(pace, name, first_id).run(sock, listeners))


class Accepting:
    """``received``: where all connections receive, since what comes is passed on at once."""

    def __init__(self, pace: Pace, name: str, first_id: int = 1) -> None:
        self._pace = pace
        self._name = name
        self._next_id = first_id
        self._ends: dict[int, ClientEnd] = {}
        self.received = memoryview(bytearray(RECEIVED_BYTES))
        self._bytes: dict[str, Bucket] = {}
        self._early: dict[str, Bucket] = {}
        self._new: dict[str, Bucket] = {}
        self._calls: dict[str, Bucket] = {}
        self._all_calls = Bucket(pace.all_calls_per_s, time.monotonic(), CALLS_AT_ONCE)
        self._listeners: list[Listener] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._channel: Channel[FromProcess, ToProcess]
        self._finishing = asyncio.Event()

    async def run(self, sock: socket.socket, listeners: Sequence[Listener]) -> None:
        """Until the API's thread says ``Finish`` or has gone."""
        loop = asyncio.get_running_loop()
        self._channel = Channel(sock, self._take, lambda: os._exit(0))
        loop.set_exception_handler(self._failed)
        self._channel.send(Pong())
        self._listeners = list(listeners)
        for listener in listeners:
            listener.sock.setblocking(False)
            loop.add_reader(listener.sock, self._accept, listener)
        ticking = asyncio.create_task(self._tick())
        await self._finishing.wait()
        await self._finish()
        ticking.cancel()

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._channel.send(Failed(f"{context['message']}: {context.get('exception')!r}"[:MAX_WHY]))

    def _take(self, message: ToProcess) -> None:
        match message:
            case Connect(number):
                if end := self._ends.get(number):
                    # Any process can see such names, and take one that it can foresee.
                    self._start(end.connect(f"\0{self._name}{secrets.token_hex(8)}/{number}"))
            case End(number):
                if end := self._ends.get(number):
                    end.abort()
            case LetIn(number):
                if end := self._ends.get(number):
                    end.let_in()
            case Punish(number):
                end = self._ends.get(number)
                if end and end.share:
                    self.too_fast_s(end.connection.client, end.share, REFUSED_CALL_BYTES, 0)
            case Ping():
                self._channel.send(Pong())
            case StopListening():
                self._stop_listening()
            case Finish():
                self._finishing.set()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            for buckets in (self._bytes, self._early, self._new, self._calls):
                for client in [client for client, bucket in buckets.items() if bucket.is_full(now)]:
                    del buckets[client]

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener.sock)
            listener.sock.close()
        self._listeners = []

    async def _finish(self) -> None:
        """gRPC has closed its connections: what it wrote before that is passed on first."""
        self._stop_listening()
        deadline = time.monotonic() + FINISH_S
        while self._ends and time.monotonic() < deadline - FINISH_S / 2:
            await asyncio.sleep(0.01)
        for end in list(self._ends.values()):
            end.finish()
        while self._ends and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for end in list(self._ends.values()):
            end.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.sleep(0)

    # ---- one connection

    def _accept(self, listener: Listener) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if self._channel.is_behind:
                self._pause(listener)
                return
            try:
                sock, address = listener.sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._refuse("cannot_accept", listener.address, error.strerror or str(error))
                self._pause(listener)
                return
            client, peer = _client(sock, address, listener.address)
            if self._is_too_new(client, time.monotonic()):
                sock.close()
                self._refuse("connections_per_s", peer, "")
                continue
            sock.setblocking(False)
            connection = Accepted(self._next_id, client, peer)
            self._next_id += 1
            self._channel.send(connection)
            self._ends[connection.id] = ClientEnd(self, connection, sock, listener.backend, listener.has_tls)

    def _pause(self, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener.sock)
        loop.call_later(ACCEPT_PAUSE_S, self._accept_again, listener)

    def _accept_again(self, listener: Listener) -> None:
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener.sock, self._accept, listener)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refuse(self, reason: str, peer: str, why: str) -> None:
        self._channel.send(Refused(reason, peer, why))

    # ---- what a connection asks

    def opened(self, end: ClientEnd) -> None:
        """The client has begun to speak."""
        self._channel.send(Opened(end.connection.id))

    def end(self, connection: Accepted, reason: str, why: str = "") -> None:
        """Break the connection off."""
        self._refuse(reason, connection.peer, why)
        self._ends[connection.id].abort()

    def not_shaken(self, connection: Accepted, why: str) -> None:
        """It ends before its TLS handshake did."""
        self._refuse("tls", connection.peer, why)

    def gone(self, connection: Accepted) -> None:
        """It has ended; a second time does nothing."""
        if self._ends.pop(connection.id, None):
            self._channel.send(Gone(connection.id))

    def too_fast_s(self, client: str, share: Shares, size: int, calls: int) -> float:
        """How long to keep ``size`` bytes that the client has sent, which begin so many calls: gRPC would take in
        thousands at once, and all others would wait. Beyond what all clients may begin, those wait that have used more
        than half of their own. ``share``: of the connection, of what its client may send: within it the connection
        waits for no other one, as the programs behind one address need not know each other. Before a call of the
        connection was let in it may send little."""
        now, early_s = time.monotonic(), 0.0
        if share.early and share.early.spend(size, now):
            early_s = _bucket(self._early, client, EARLY_BYTES_PER_S, EARLY_BYTES_PER_S, now).spend(size, now)
        return max(early_s, self._beyond_pace_s(client, share, size, calls, now))

    def _beyond_pace_s(self, client: str, share: Shares, size: int, calls: int, now: float) -> float:
        """As ``too_fast_s``, of a connection that was let in."""
        per_s = self._pace.bytes_per_s
        wait_s = _bucket(self._bytes, client, per_s, per_s, now).spend(size, now)
        if share.bytes.spend(size, now) == 0:
            wait_s = 0.0
        if not calls:
            return wait_s
        own = _bucket(self._calls, client, self._pace.calls_per_s, CALLS_AT_ONCE, now)
        own_s, all_s = own.spend(calls, now), self._all_calls.spend(calls, now)
        if share.calls.spend(calls, now) == 0:
            return wait_s
        wait_s = max(wait_s, own_s)
        return wait_s if own.left >= CATCHING_UP else max(wait_s, all_s)

    def share(self) -> Shares:
        """Of one connection, if its client has as many as it may."""
        pace, now = self._pace, time.monotonic()
        return Shares(
            Bucket(pace.bytes_per_s / pace.connections, now, pace.bytes_per_s * SHARE_S),
            Bucket(pace.calls_per_s / pace.connections, now, SHARE_CALLS),
            Bucket(EARLY_REFILL_PER_S, now, EARLY_BYTES),
        )

    def _is_too_new(self, client: str, now: float) -> bool:
        """Whether the client has opened too many connections of late."""
        per_s, at_once = self._pace.connections_per_s, self._pace.connections
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
