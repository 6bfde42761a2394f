"""The bytes of one connection, plain or through TLS.

In: a connected socket that waits without holding up others (the framework's), and for TLS the context of the
configuration. Out: bytes, and what the peer did wrong as ``OSError`` (``ssl.SSLError`` is one). One greenlet receives
and one sends; TLS runs on buffers in memory, so that neither ever does the other's work on the socket.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

CHUNK = 65536


class PlainWire:
    def __init__(self, sock: Any) -> None:
        self._socket = sock

    def open(self) -> None:
        """Must be done before anything is sent or received."""
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive(self) -> bytes:
        """What has come, empty once the peer has ended."""
        return bytes(self._socket.recv(CHUNK))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def shut_down(self) -> None:
        """Whoever waits in ``receive`` or ``send`` finds the connection ended."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


class TlsWire(PlainWire):
    """``wake``: has the sender call ``send`` with nothing, because TLS itself has something to say."""

    def __init__(self, sock: Any, context: ssl.SSLContext, wake: Callable[[], None]) -> None:
        super().__init__(sock)
        self._wake = wake
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_side=True)

    def open(self) -> None:
        """The TLS handshake. Raises ``ssl.SSLError`` when the peer's certificate is missing or wrong, and also tells
        the peer."""
        super().open()
        try:
            while True:
                try:
                    self._tls.do_handshake()
                    return
                except ssl.SSLWantReadError:
                    super().send(self._to_send.read())
                    self._take_in()
        finally:
            with suppress(OSError):
                super().send(self._to_send.read())

    def receive(self) -> bytes:
        while True:
            try:
                return self._tls.read(CHUNK)
            except ssl.SSLWantReadError:
                if self._to_send.pending:
                    self._wake()
                self._take_in()
            except ssl.SSLZeroReturnError:
                return b""

    def send(self, data: bytes) -> None:
        if data:
            self._tls.write(data)
        super().send(self._to_send.read())

    def _take_in(self) -> None:
        """Raises ``ConnectionResetError`` when the peer has ended without saying so in TLS."""
        data = super().receive()
        if not data:
            raise ConnectionResetError("the connection ended")
        self._received.write(data)
