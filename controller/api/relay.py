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

from controller.api.budget import SMALL, Bucket
from controller.api.connections import Connection, ConnectionLimits, Connections, Ended

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first (RFC 9113 section 3.4)."""
TLS_HANDSHAKE = b"\x16\x03"
"""Type and major version of the first TLS record (RFC 8446 section 5.1)."""

FRAME_HEAD = 9
HEADERS = 1

CALLS_AT_ONCE = 200
"""Calls that a client may begin in a moment before it has to keep to its calls per second."""
ACCEPTED_AT_ONCE = 32
ACCEPT_PAUSE_S = 0.1
"""After accepting has failed, which is for lack of descriptors."""
FLUSH_S = 5.0
"""How long a client may take to read what is left when its connection ends."""
CONNECT_S = 5.0
RECEIVED_BYTES = 65_536
SMALL_READ_BYTES = 4096
REFUSED_CALL_BYTES = 65_536

_UCRED = struct.Struct("3i")


class Listener(NamedTuple):
    """``address``: as in the configuration. ``backend``: the socket of gRPC that its connections go to."""

    sock: socket.socket
    address: str
    backend: str
    is_unix: bool


class CallsPerS(NamedTuple):
    of_client: float
    of_all: float


class CallCounter:
    """Counts the calls that a client begins: its HEADERS frames (RFC 9113 sections 4.1 and 6.2). ``left``: bytes of the
    frame that is not complete yet."""

    __slots__ = ("_head", "left")

    def __init__(self) -> None:
        self._head = b""
        self.left = len(PREFACE)

    def begun(self, data: bytes) -> int:
        """In the bytes that come next."""
        calls, at, size = 0, self.left, len(data)
        if self._head:
            data, at = self._head + data, 0
            size = len(data)
        while at + FRAME_HEAD <= size:
            calls += data[at + 3] == HEADERS
            at += FRAME_HEAD + int.from_bytes(data[at : at + 3], "big")
        self._head, self.left = (data[at:], 0) if at < size else (b"", at - size)
        return calls


class Relay:
    """``refused`` is called with a reason and the peer of each connection that is ended here. ``received``: where all
    connections receive, since what comes is passed on at once."""

    def __init__(
        self,
        limits: ConnectionLimits,
        client_bytes_per_s: float,
        calls_per_s: CallsPerS,
        refused: Callable[[str, str], None],
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
        if not number.isdigit() or prefix + "/" != f"unix-abstract:{self._name}":
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

    def end(self, connection: Connection, reason: str) -> None:
        """Break the connection off."""
        self._refused(reason, connection.peer)
        if connection.id in self._ends:
            self._ends[connection.id].abort()

    def punish(self, connection: Connection) -> None:
        """A call of the client was refused, which costs as much as one that is answered: it counts as many bytes, so
        that a client that goes on regardless is read from less and less."""
        self.too_fast_s(connection.client, REFUSED_CALL_BYTES, 0)

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
                self._refused("cannot_accept", error.strerror or str(error))
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener.sock)
                loop.call_later(ACCEPT_PAUSE_S, self._accept_again, listener)
                return
            client, peer = _client(sock, address, listener.address)
            now = time.monotonic()
            if self._is_too_new(client, now):
                sock.close()
                self._refused("connections_per_s", peer)
                continue
            sock.setblocking(False)
            connection, ended = self.connections.accepted(client, peer, now)
            self._end_all(ended)
            self._ends[connection.id] = ClientEnd(self, connection, sock, listener.backend)

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
            self._start(end.connect(f"\0{self._name}{end.connection.id}"))

    def gone(self, connection: Connection) -> None:
        self._ends.pop(connection.id, None)
        self.connections.gone(connection)

    def too_fast_s(self, client: str, size: int, calls: int) -> float:
        """How long to keep ``size`` bytes that the client has sent, which begin so many calls: gRPC would take in
        thousands at once, and all others would wait. Beyond what all clients may begin, those wait that have used more
        than a small share of their own."""
        now = time.monotonic()
        wait_s = _bucket(self._bytes, client, self._bytes_per_s, self._bytes_per_s, now).spend(size, now)
        if not calls:
            return wait_s
        own, all_s = self._calls_of(client, now), self._all_calls.spend(calls, now)
        wait_s = max(wait_s, own.spend(calls, now))
        return wait_s if own.left >= 1 - SMALL else max(wait_s, all_s)

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


class ClientEnd(asyncio.BufferedProtocol):
    """The client's side of one connection. It is not read from while the other side takes nothing, nor beyond the
    bytes that the client may send.

    It has no transport before the client has begun to speak, which would take more memory and time than all else that
    a silent connection needs."""

    __slots__ = (
        "_backend",
        "_calls",
        "_ended",
        "_held",
        "_relay",
        "_server",
        "_server_is_full",
        "_socket",
        "_too_fast",
        "_transport",
        "connection",
    )

    def __init__(self, relay: Relay, connection: Connection, sock: socket.socket, backend: str) -> None:
        self.connection = connection
        self._backend = backend
        self._relay = relay
        self._socket: socket.socket | None = sock  # until the transport has it
        self._transport: asyncio.Transport | None = None
        self._server: asyncio.Transport | None = None
        self._held = b""
        self._calls: CallCounter | None = None
        self._server_is_full = False
        self._too_fast = False
        self._ended = False
        asyncio.get_running_loop().add_reader(sock, self._first_bytes)

    async def connect(self, name: str) -> None:
        """To gRPC, from a socket of this name."""
        loop = asyncio.get_running_loop()
        own, self._socket = self._socket, None
        if own is None:
            return
        try:
            await loop.connect_accepted_socket(lambda: self, own)
            if sock := await self._at_server(name):
                await loop.create_unix_connection(lambda: _ServerEnd(self), sock=sock)
        except (OSError, TimeoutError):
            self.abort()

    async def _at_server(self, name: str) -> socket.socket | None:
        """A socket that is connected to gRPC; None when the connection has ended meanwhile."""
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.setblocking(False)
            sock.bind(name)
            async with asyncio.timeout(CONNECT_S):
                while not self._ended:
                    try:
                        sock.connect(self._backend)
                        return sock
                    except BlockingIOError:  # its backlog is full
                        await asyncio.sleep(0.01)
        except BaseException:
            sock.close()
            raise
        sock.close()
        return None

    def connected(self, server: asyncio.Transport) -> None:
        if self._ended:
            server.abort()
            return
        self._server = server
        self._pass_on()

    def finish(self) -> None:
        """Nothing more comes from the server: close when the client has read what is left."""
        self._ended = True
        if self._transport is None:
            self.abort()
            return
        self._transport.close()
        asyncio.get_running_loop().call_later(FLUSH_S, self._transport.abort)

    def abort(self) -> None:
        self._ended = True
        if self._server:
            self._server.abort()
        if self._transport:
            self._transport.abort()
        elif self._socket:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        self._relay.gone(self.connection)

    @property
    def received(self) -> memoryview:
        return self._relay.received

    def take(self, data: memoryview) -> None:
        """Bytes from the server."""
        if self._transport:
            self._transport.write(data)

    def server_is_full(self, full: bool) -> None:
        self._server_is_full = full
        self._read_or_wait()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._ended:
            transport.abort()
        else:
            self._read_or_wait()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Small, so that few calls come at once; what is left of a frame may come with it."""
        return self._relay.received[
            : min(RECEIVED_BYTES, SMALL_READ_BYTES + self._calls.left) if self._calls else RECEIVED_BYTES
        ]

    def buffer_updated(self, nbytes: int) -> None:
        new = bytes(self._relay.received[:nbytes])
        self._held += new
        self._count(new)
        self._pass_on()

    def pause_writing(self) -> None:
        if self._server:
            self._server.pause_reading()

    def resume_writing(self) -> None:
        if self._server:
            self._server.resume_reading()

    def connection_lost(self, _: Exception | None) -> None:
        self.abort()

    # ----

    def _first_bytes(self) -> None:
        """There are some, or the client has gone."""
        assert self._socket is not None
        try:
            data = self._socket.recv(SMALL_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.abort()
            return
        self._held += data
        if self._held.startswith(PREFACE):
            self._calls = CallCounter()
        elif not self._held.startswith(TLS_HANDSHAKE):
            if not PREFACE.startswith(self._held) and not TLS_HANDSHAKE.startswith(self._held):
                self._relay.end(self.connection, "not_http2")
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._count(self._held)
        self._relay.opened(self)

    def _count(self, data: bytes) -> None:
        """Against what the client may send and begin."""
        calls = self._calls.begun(data) if self._calls else 0
        wait_s = self._relay.too_fast_s(self.connection.client, len(data), calls)
        if wait_s:
            self._too_fast = True
            asyncio.get_running_loop().call_later(wait_s, self._in_time)

    def _in_time(self) -> None:
        self._too_fast = False
        self._pass_on()

    def _pass_on(self) -> None:
        if self._server and self._held and not self._too_fast:
            held, self._held = self._held, b""
            self._server.write(held)
        self._read_or_wait()

    def _read_or_wait(self) -> None:
        if self._transport is None or self._ended:
            return
        if self._server is None or self._server_is_full or self._too_fast:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


class _ServerEnd(asyncio.BufferedProtocol):
    """gRPC's side."""

    __slots__ = ("_client",)

    def __init__(self, client: ClientEnd) -> None:
        self._client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._client.connected(transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._client.received

    def buffer_updated(self, nbytes: int) -> None:
        self._client.take(self._client.received[:nbytes])

    def pause_writing(self) -> None:
        self._client.server_is_full(True)

    def resume_writing(self) -> None:
        self._client.server_is_full(False)

    def connection_lost(self, _: Exception | None) -> None:
        self._client.finish()


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
