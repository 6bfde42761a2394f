"""Byte stream of one connection, plain or with TLS.

In: a connected socket of the hub, and for TLS the configured context. Out: bytes; errors of the peer as ``OSError``
(``ssl.SSLError`` is a subclass). Receiving waits in the hub. Sending never waits: bytes that the socket does not accept
at once are kept and sent by ``drain``. TLS runs on buffers in memory, so that it needs no socket of its own.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Any

from controller.southbound.framework import HubSocket

CHUNK = 65536


class PlainTransport:
    """Transport without TLS. ``unsent``: bytes that the socket has not accepted yet."""

    def __init__(self, sock: HubSocket) -> None:
        self._socket = sock
        self.unsent = bytearray()

    def open(self) -> None:
        """Prepare the connection, before anything is sent or received."""

    def names(self) -> frozenset[str]:
        """Return the words of the common names and DNS names in the peer's certificate; empty without a certificate."""
        return frozenset()

    def receive(self) -> bytes:
        """Return received bytes, or no bytes once the peer has ended the connection."""
        return self._socket.receive(CHUNK)

    def send(self, data: bytes) -> None:
        if not self.unsent:
            sent = self._socket.send_now(data)
            if sent == len(data):
                return
            data = data[sent:]
        self.unsent += data

    def drain(self) -> None:
        """Send the kept bytes, and wait in the hub until all are sent."""
        while self.unsent:
            self._socket.wait_writable()
            with memoryview(self.unsent) as unsent:
                sent = self._socket.send_now(unsent[:CHUNK])
            del self.unsent[:sent]


class TlsTransport(PlainTransport):
    def __init__(self, sock: HubSocket, context: ssl.SSLContext) -> None:
        super().__init__(sock)
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_side=True)

    def open(self) -> None:
        """Perform the TLS handshake.

        Raises ``ssl.SSLError`` when the peer's certificate is missing or wrong, and sends the peer an alert."""
        try:
            while True:
                try:
                    self._tls.do_handshake()
                    return
                except ssl.SSLWantReadError:
                    self._send_tls()
                    self._receive_tls()
        finally:
            with suppress(OSError):
                self._send_tls()

    def names(self) -> frozenset[str]:
        certificate = self._tls.getpeercert() or {}
        subject: Any = certificate.get("subject", ())
        others: Any = certificate.get("subjectAltName", ())
        common = (value for part in subject for kind, value in part if kind == "commonName")
        dns = (value for kind, value in others if kind == "DNS")
        return frozenset(word for name in (*common, *dns) for word in name.split())

    def receive(self) -> bytes:
        while True:
            try:
                return self._tls.read(CHUNK)
            except ssl.SSLWantReadError:
                self._send_tls()
                self._receive_tls()
            except ssl.SSLZeroReturnError:
                return b""

    def send(self, data: bytes) -> None:
        self._tls.write(data)
        self._send_tls()

    def _send_tls(self) -> None:
        if self._to_send.pending:
            super().send(self._to_send.read())

    def _receive_tls(self) -> None:
        """Receive TLS records.

        Raises ``ConnectionResetError`` when the peer ended the connection without a TLS alert."""
        data = super().receive()
        if not data:
            raise ConnectionResetError("the connection ended")
        self._received.write(data)
