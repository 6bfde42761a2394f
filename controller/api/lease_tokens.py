"""Lease tokens: whoever has the token of a registration may renew, change and end it.

A token is ``<uid>.<MAC>``: the registration's uid and base64url(HMAC-SHA256(secret, uid)) (RFC 2104, RFC 4648).
Therefore the controller stores no token, and refuses a wrong token without a look-up. Owns the secret: 32 random bytes
in the state directory, in a file that only its owner can read. A checksum follows the bytes, because one wrong bit
would make every token wrong. Without a state directory, or with a new one, earlier tokens are invalid. Neither tokens
nor the secret may be logged or shown.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from pathlib import Path

from controller.store.disk import full, sync_directory
from signalbox.errors import InvalidInput
from signalbox.secret_files import of_another_user, open_to_others

SECRET_BYTES = 32
CHECKSUM_BYTES = 8
FILE = "lease.key"
MAX_CHARS = 256
"""Largest number of characters of a token; tokens that the controller issues are shorter."""
MAX_KNOWN = 10_000
"""Verified tokens that are remembered. Computing the MAC again would make the API's thread release the interpreter to
other threads."""


class LeaseTokens:
    """Lease tokens derived from one secret."""

    __slots__ = ("_known", "_secret")

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._known: dict[str, str] = {}

    @classmethod
    def of(cls, state_dir: Path | None, in_use: bool = False) -> LeaseTokens:
        """Return the tokens derived from the secret in the state directory; without a directory, from a random secret.

        ``in_use``: whether tokens of the secret are in use; otherwise a missing secret is created. A secret without a
        checksum, from an older version or made by hand, gets one. The caller must have claimed the directory. Raises
        ``InvalidInput``."""
        return cls(_kept(state_dir / FILE, in_use) if state_dir else secrets.token_bytes(SECRET_BYTES))

    def token(self, uid: str) -> str:
        """Return the token of the registration."""
        mac = hmac.digest(self._secret, uid.encode(), "sha256")
        return f"{uid}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"

    def uid(self, token: str) -> str | None:
        """Return the uid of the registration that the token belongs to; None for anything else."""
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


def check(state_dir: Path | None, in_use: bool) -> None:
    """Raise ``InvalidInput`` where ``LeaseTokens.of`` would, without creating anything.

    The directory may be claimed by another process."""
    if state_dir:
        _found(state_dir / FILE, in_use)


def _kept(path: Path, in_use: bool) -> bytes:
    found = _found(path, in_use) or secrets.token_bytes(SECRET_BYTES)
    secret = found[:SECRET_BYTES]
    if found == secret:
        try:
            _make(path, secret)
        except OSError as error:
            raise _cannot(path, error) from None
    return secret


def _found(path: Path, in_use: bool) -> bytes:
    """Return the contents of the file: the secret, and its checksum if the file has one. Raises ``InvalidInput``.

    The result is empty when there is no file."""
    try:
        if not path.exists():
            if in_use:
                why = "is missing, and jobs are registered whose owners could not renew them without it"
                raise InvalidInput.of("state_dir", _instructions(path, why))
            return b""
        found, problem = path.read_bytes(), of_another_user(path) or open_to_others(path)
    except OSError as error:
        raise _cannot(path, error) from None
    if problem:
        raise InvalidInput.of("state_dir", f"{path}, the secret of lease tokens: {problem}")
    if len(found) != SECRET_BYTES and found != _checked(found[:SECRET_BYTES]):
        why = "is damaged, so no lease token would be valid"
        raise InvalidInput.of("state_dir", _instructions(path, why))
    return found


def _cannot(path: Path, error: OSError) -> InvalidInput:
    return InvalidInput.of(
        "state_dir", f"{path} cannot be read or made: {full(path.parent, error) or error.strerror or error}"
    )


def _checked(secret: bytes) -> bytes:
    """Return the secret with its checksum, as it is in the file."""
    return secret + hashlib.blake2b(secret, digest_size=CHECKSUM_BYTES).digest()


def _instructions(path: Path, why: str) -> str:
    return (
        f"{path} {why}. Nothing was changed. Restore it from a copy. To continue without it, create a new one as "
        "the controller's user, and let the owners take over their jobs: "
        f"(umask 077; head -c {SECRET_BYTES} /dev/urandom > {path})"
    )


def _make(path: Path, secret: bytes) -> None:
    """Write the file completely or not at all, even if power fails."""
    made = path.with_suffix(".new")
    made.unlink(missing_ok=True)
    with open(made, "xb", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(_checked(secret))
        os.fsync(file)
    made.replace(path)
    sync_directory(path.parent)
