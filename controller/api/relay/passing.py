"""One connection that is relayed: the protocols at its two ends, and the calls that its client begins.

In: an accepted socket. Out: its bytes at gRPC's socket and back, as fast as the limits allow. What becomes of the
connection is decided by its ``Owner``. Runs in the relay process.
"""

from __future__ import annotations

import asyncio
import socket
from typing import NamedTuple, Protocol

from controller.api.budget import Bucket
from controller.api.relay.channel import Accepted
from controller.api.relay.handshakes import Handshake

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first (RFC 9113 section 3.4)."""
TLS_HANDSHAKE = b"\x16\x03"
"""Type and major version of the first TLS record (RFC 8446 section 5.1)."""

FRAME_HEAD = 9
HEADERS = 1

FLUSH_S = 5.0
"""How long a client may take to read what is left when its connection ends."""
CONNECT_S = 5.0
RECEIVED_BYTES = 65_536
SMALL_READ_BYTES = 4096


class Owner(Protocol):
    """What a connection needs of the relay. ``received``: where all connections receive."""

    received: memoryview

    def opened(self, end: ClientEnd) -> None:
        """The client has begun to speak."""

    def end(self, connection: Accepted, reason: str, why: str = "") -> None:
        """Break the connection off."""

    def not_shaken(self, connection: Accepted, why: str) -> None:
        """It ends before its TLS handshake did."""

    def gone(self, connection: Accepted) -> None:
        """It has ended."""

    def too_fast_s(self, client: str, share: Shares, size: int, calls: int) -> float:
        """How long to keep so many bytes, which begin so many calls."""

    def share(self) -> Shares:
        """Of a connection that begins to send."""


class Shares(NamedTuple):
    """What one connection may send without waiting for others of its client. ``early``: before a call of it was let in;
    None from then on."""

    bytes: Bucket
    calls: Bucket
    early: Bucket | None = None


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


class ClientEnd(asyncio.BufferedProtocol):
    """The client's side of one connection. It is not read from while the other side takes nothing, nor beyond the
    bytes that the client may send.

    It has no transport before the client has begun to speak, which would take more memory and time than all else that
    a silent connection needs. ``share``: None until it has sent something."""

    __slots__ = (
        "_backend",
        "_calls",
        "_ended",
        "_handshake",
        "_has_tls",
        "_held",
        "_relay",
        "_server",
        "_server_is_full",
        "_socket",
        "_too_fast",
        "_transport",
        "connection",
        "share",
    )

    def __init__(self, relay: Owner, connection: Accepted, sock: socket.socket, backend: str, has_tls: bool) -> None:
        self.connection = connection
        self._has_tls = has_tls
        self._handshake: Handshake | None = None  # until it has come to its end
        self._backend = backend
        self._relay = relay
        self._socket: socket.socket | None = sock  # until the transport has it
        self._transport: asyncio.Transport | None = None
        self._server: asyncio.Transport | None = None
        self._held = b""
        self._calls: CallCounter | None = None
        self.share: Shares | None = None
        self._server_is_full = False
        self._too_fast = False
        self._ended = False
        asyncio.get_running_loop().add_reader(sock.fileno(), self._first_bytes)

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

    def server_lost(self) -> None:
        self._say_not_shaken("the handshake was refused" if self._has_tls else "there is no TLS at this address")
        self.finish()

    def finish(self) -> None:
        """Nothing more comes from the server: close when the client has read what is left."""
        if self._ended:
            return
        self._ended = True
        if self._transport is None:
            self.abort()
            return
        self._transport.close()
        asyncio.get_running_loop().call_later(FLUSH_S, self._transport.abort)

    def abort(self) -> None:
        self._ended = True
        self._handshake = None
        if self._server:
            self._server.abort()
        if self._transport:
            self._transport.abort()
        elif self._socket:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        self._relay.gone(self.connection)

    @property
    def received(self) -> memoryview:
        return self._relay.received

    def take(self, data: memoryview) -> None:
        """Bytes from the server."""
        if self._handshake:
            self._handshake.server_sent(bytes(data))
            if self._handshake.accepted:
                self._handshake = None
        if self._transport:
            self._transport.write(data)

    def let_in(self) -> None:
        """Its client is known: it may send as much as that may."""
        if self.share and self.share.early:
            self.share = self.share._replace(early=None)
            self._in_time()

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
        if self._calls:
            return self._relay.received[: min(RECEIVED_BYTES, SMALL_READ_BYTES + self._calls.left)]
        return self._relay.received[: SMALL_READ_BYTES if self.share and self.share.early else RECEIVED_BYTES]

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
        self._say_not_shaken("the client ended the handshake")
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
            if self._has_tls:
                self._relay.end(self.connection, "tls", "the client does not speak TLS")
                return
            self._calls = CallCounter()
        elif not self._held.startswith(TLS_HANDSHAKE):
            if not PREFACE.startswith(self._held) and not TLS_HANDSHAKE.startswith(self._held):
                self._relay.end(self.connection, "not_http2")
            return
        else:
            self._handshake = Handshake()
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._count(self._held)
        self._relay.opened(self)

    def _count(self, data: bytes) -> None:
        """Against what the client may send and begin."""
        if self._handshake:
            self._handshake.client_sent(data)
        calls = self._calls.begun(data) if self._calls else 0
        self.share = self.share or self._relay.share()
        share = self.share._replace(early=None) if self._handshake else self.share
        wait_s = self._relay.too_fast_s(self.connection.client, share, len(data), calls)
        if wait_s:
            self._too_fast = True
            asyncio.get_running_loop().call_later(wait_s, self._in_time)

    def _say_not_shaken(self, why: str) -> None:
        if self._handshake and not self._ended:
            self._relay.not_shaken(self.connection, why)
        self._handshake = None

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
        self._client.server_lost()
