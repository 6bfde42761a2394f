"""Secret of lease tokens in a state directory: 32 random bytes, in a file that only its owner can read.

A checksum follows the bytes, because a single wrong bit would make all tokens invalid.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

from controller.store.disk import full, sync_directory
from signalbox.errors import InvalidInput
from signalbox.files import of_another_user, open_to_others

SECRET_BYTES = 32
CHECKSUM_BYTES = 8
FILE = "lease.key"


def secret_in(directory: Path, in_use: bool) -> bytes:
    """Return the secret in the directory, which the caller must have claimed. Raises ``InvalidInput``.

    ``in_use``: whether clients have tokens of the secret; if not, a missing secret is created. A secret without a
    checksum, from an older version or made by hand, gets one."""
    path = directory / FILE
    found = _found(path, in_use) or secrets.token_bytes(SECRET_BYTES)
    secret = found[:SECRET_BYTES]
    if found == secret:
        try:
            make(path, secret)
        except OSError as error:
            raise _cannot(path, error) from None
    return secret


def check(directory: Path, in_use: bool) -> None:
    """Raise ``InvalidInput`` where ``secret_in`` would, without creating anything.

    Another process may have claimed the directory."""
    _found(directory / FILE, in_use)


def _found(path: Path, in_use: bool) -> bytes:
    """Return the contents of the file: the secret, and its checksum if the file has one.

    The result is empty when there is no file. Raises ``InvalidInput``."""
    try:
        if not path.exists():
            if in_use:
                why = "is missing, and without it the owners of registered jobs cannot renew their leases"
                raise InvalidInput.of("state_dir", _instructions(path, why))
            return b""
        found, problem = path.read_bytes(), of_another_user(path) or open_to_others(path)
    except OSError as error:
        raise _cannot(path, error) from None
    if problem:
        raise InvalidInput.of("state_dir", f"{path}, the secret of lease tokens: {problem}")
    if len(found) != SECRET_BYTES and found != _with_checksum(found[:SECRET_BYTES]):
        why = "is damaged, so no lease token would be valid"
        raise InvalidInput.of("state_dir", _instructions(path, why))
    return found


def _cannot(path: Path, error: OSError) -> InvalidInput:
    return InvalidInput.of(
        "state_dir", f"{path} cannot be read or made: {full(path.parent, error) or error.strerror or error}"
    )


def _with_checksum(secret: bytes) -> bytes:
    return secret + hashlib.blake2b(secret, digest_size=CHECKSUM_BYTES).digest()


def _instructions(path: Path, why: str) -> str:
    return (
        f"{path} {why}. Nothing was changed. Restore it from a copy. To continue without it, create a new one as "
        "the controller's user, and let the owners take over their jobs: "
        f"(umask 077; head -c {SECRET_BYTES} /dev/urandom > {path})"
    )


def make(path: Path, secret: bytes) -> None:
    """Write the file, completely or not at all even if power fails. Raises ``OSError``."""
    made = path.with_suffix(".new")
    made.unlink(missing_ok=True)
    with open(made, "xb", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(_with_checksum(secret))
        os.fsync(file)
    made.replace(path)
    sync_directory(path.parent)
