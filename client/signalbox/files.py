"""Read and write files of commands, and check who can read or change files with secrets.

The path ``-`` is the standard input or output. The checks of files with secrets return None, or what is wrong and how
to correct it. They look only at modes and owners: an access control list appears in the mode as the permissions of the
group.
"""

from __future__ import annotations

import errno
import os
import pwd
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from signalbox.errors import InvalidInput

STANDARD_INPUT = Path("-")


MAX_BYTES = 64 << 20
"""Largest size in bytes of a file that is read whole, such as a workload."""


MAX_DEPTH = 32
"""Largest depth of nested lists and objects, and largest number of parts in a dotted TOML key. A job spec needs 4."""

MAX_VALUES = 850_000
"""Largest number of values in one text, counting names of fields too.

The transfers of one job may have 720,896 values."""

MAX_LISTS = 200_000
"""Largest number of lists and objects in one text. Each takes half a kilobyte of memory; a valid job spec has fewer."""

MAX_FIELDS = 256
"""Largest number of fields of one object or table. The limit is over four times what any file needs.

It also bounds the number of errors, because each unknown field is an error."""

MAX_DIGITS = 100
"""Largest number of digits of an integer. No field needs more, and Python can print integers of this length."""


MAX_SMALL_BYTES = 4 << 20
"""Largest size in bytes of a file with certificates, a key or a token."""


def read_small(path: Path) -> bytes:
    """Return the bytes of a regular file of at most ``MAX_SMALL_BYTES``. Raises ``OSError``.

    Devices are refused, because they may have no end, and pipes, because they cannot be read twice."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "is not a regular file")
    return read_bytes(path, MAX_SMALL_BYTES)


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """Return the bytes of the whole file.

    Raises ``OSError``, also when it has more than ``most`` (or ``MAX_BYTES``) bytes."""
    most = MAX_BYTES if most is None else most
    with opened(path) as stream:
        found = stream.read(most + 1)
    if len(found) > most:
        raise OSError(errno.EFBIG, f"has more than {most >> 20} MiB")
    return found


def read_text(path: Path, most: int | None = None) -> str:
    """Return the text of the whole file, which is in UTF-8. Raises ``InvalidInput``."""
    try:
        return read_bytes(path, most).decode("utf-8-sig")
    except OSError as error:
        raise InvalidInput.of(called(path), error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise InvalidInput.of(called(path), f"is not text in UTF-8, at byte {error.start + 1}") from None


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open the file for reading in parts. Raises ``OSError``."""
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer
    else:
        with path.open("rb") as stream:
            yield stream


def called(path: Path) -> str:
    """Return the name of the file for messages."""
    return "standard input" if path == STANDARD_INPUT else str(path)


def write(file: Path, data: bytes) -> None:
    """Write a file that only its owner can read. Only the main thread may call this function. Raises ``OSError``."""
    if file == STANDARD_INPUT:
        sys.stdout.buffer.write(data)
        return
    try:
        if file.exists() and not file.is_file():
            file.write_bytes(data)
        else:
            with _ended_by_sigterm():
                replace_file(Path(os.path.realpath(file)), data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def replace_file(file: Path, data: bytes) -> None:
    """Replace a regular file, or leave it unchanged after an error. Only the owner can read it. Raises ``OSError``."""
    made = file.with_name(f"{file.name}.{os.getpid()}")
    made.unlink(missing_ok=True)
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        try:
            opened.write(data)
            opened.flush()
            made.replace(file)
        except BaseException:
            made.unlink(missing_ok=True)
            raise


_NOBODY = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP


def open_to_others(path: Path) -> str | None:
    """Return what is wrong when other users have access to the file, else None. Raises ``OSError``.

    A file of this process's user must be accessible to this user only, as ssh requires. A file of root or of another
    user may also be readable by its group, which allows keys that are shared with the group ``ssl-cert``. PostgreSQL
    checks its key by the same rule (be-secure-common.c, ``check_ssl_key_file_permissions``)."""
    found = path.stat()
    ours = found.st_uid == os.geteuid()
    shared = not ours or found.st_uid == 0
    if not found.st_mode & (_NOBODY if shared else _NOBODY | stat.S_IRGRP):
        return None
    return f"other users have access to it (mode {_mode(found)}): chmod {600 if ours else 640} {path}"


def of_another_user(path: Path) -> str | None:
    """Return what is wrong when the file belongs neither to root nor to this process's user, else None.

    Root should not own the files of a controller that runs as another user. Raises ``OSError``."""
    owner, own = path.stat().st_uid, os.geteuid()
    if owner in (0, own):
        return None
    if own:
        return f"belongs to another user: chown {own} {path}"
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = str(owner)
    return f"belongs to the user {name}: run this as that user, for example with runuser -u {name}"


def replaceable(directory: Path) -> str | None:
    """Return what is wrong when other users can write in the directory, else None. Raises ``OSError``.

    A user who can write in a directory can replace a file there, even a file that this user can neither read nor
    change."""
    found = directory.stat()
    if not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    return f"other users can write in {directory} (mode {_mode(found)}): chmod go-w {directory}"


def _mode(found: os.stat_result) -> str:
    return f"{stat.S_IMODE(found.st_mode):04o}"
