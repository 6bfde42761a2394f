"""Whether a TLS handshake that is relayed comes to its end: gRPC, where TLS ends, says nothing of one that fails.

In: the bytes of both sides. Out: whether the server has accepted the client. Only the heads of records are read, which
nobody encrypts (RFC 8446 section 5.1, RFC 5246 section 6.2.1). Before TLS 1.3 a server sends application data, HTTP/2's
settings, only to a client that it accepts. In TLS 1.3 the rest of the handshake, application data and alerts look
alike, but for the length of an alert; there a server that accepts a client answers its data with more than an alert.
Clients change ciphers before the server where TLS is older, and after it, for the eyes of others, in TLS 1.3 (RFC 5246
section 7.3, RFC 8446 appendix D.4).
"""

from __future__ import annotations

from collections.abc import Iterator

HEAD = 5
CHANGE_CIPHER_SPEC = 20
APPLICATION_DATA = 23
ENCRYPTED_ALERT_BYTES = 19
"""In TLS 1.3: two, a type, and 16 for its authentication (RFC 8446 sections 5.2 and 6)."""


class _Records:
    """Of one side."""

    __slots__ = ("_head", "_left")

    def __init__(self) -> None:
        self._head = b""
        self._left = 0

    def begun(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Type and length of the records that begin in the bytes that come next."""
        at = self._left
        if self._head:
            data, at = self._head + data, 0
        while at + HEAD <= len(data):
            size = int.from_bytes(data[at + 3 : at + HEAD])
            yield data[at], size
            at += HEAD + size
        self._head, self._left = (data[at:], 0) if at < len(data) else (b"", at - len(data))


class Handshake:
    """``accepted``: the server has accepted the client; nothing more needs to be shown to it."""

    __slots__ = ("_before_1_3", "_client", "_client_has_data", "_server", "_server_has_changed", "accepted")

    def __init__(self) -> None:
        self.accepted = False
        self._client = _Records()
        self._server = _Records()
        self._before_1_3 = False
        self._client_has_data = False
        self._server_has_changed = False

    def client_sent(self, data: bytes) -> None:
        for kind, _ in self._client.begun(data):
            self._client_has_data |= kind == APPLICATION_DATA
            self._before_1_3 |= kind == CHANGE_CIPHER_SPEC and not self._server_has_changed

    def server_sent(self, data: bytes) -> None:
        for kind, size in self._server.begun(data):
            self._server_has_changed |= kind == CHANGE_CIPHER_SPEC
            if kind == APPLICATION_DATA:
                answers = self._client_has_data and size != ENCRYPTED_ALERT_BYTES
                self.accepted |= self._before_1_3 or answers
