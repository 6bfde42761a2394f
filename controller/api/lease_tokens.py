"""Lease tokens: a caller with the token of a registration may renew, change and end it.

A token is ``<uid>.<MAC>``: the registration's uid and base64url(HMAC-SHA256(secret, uid)) (RFC 2104, RFC 4648). So the
controller stores no tokens, only the secret (``Store.secret``). If the secret is lost, earlier tokens are invalid.
Neither tokens nor the secret may be logged or shown.
"""

from __future__ import annotations

import base64
import hmac
import secrets

MAX_CHARS = 256
"""Largest number of characters of a token; tokens that the controller issues are shorter."""
MAX_KNOWN = 10_000
"""Largest number of verified tokens to remember, so that their MACs need not be computed again.

Each computation of a MAC lets other threads use the interpreter, and thus delays the API's thread."""


RANDOM_BYTES = 32


class LeaseTokens:
    """Lease tokens that are derived from ``secret``; None: a random secret."""

    __slots__ = ("_known", "_secret")

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(RANDOM_BYTES)
        self._known: dict[str, str] = {}

    def token(self, uid: str) -> str:
        """Return the token of the registration."""
        mac = hmac.digest(self._secret, uid.encode(), "sha256")
        return f"{uid}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"

    def uid(self, token: str) -> str | None:
        """Return the uid of the registration that the token belongs to; None for an invalid token."""
        known = self._known.get(token)
        if known:
            return known
        uid, _, _ = token[:MAX_CHARS].rpartition(".")
        if not uid or not hmac.compare_digest(self.token(uid).encode(), token.encode()):
            return None
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[token] = uid
        return uid
