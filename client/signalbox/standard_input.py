"""Files that commands take: ``-`` is the standard input."""

from __future__ import annotations

import errno
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from signalbox.errors import InvalidInput

STANDARD_INPUT = Path("-")


MAX_BYTES = 64 << 20
"""Size limit of a file that is read whole, such as a workload."""


MAX_DEPTH = 32
"""How deep lists and objects may be nested, and how many parts a dotted key of TOML may have; a job spec needs 4."""

MAX_VALUES = 850_000
"""Values in one text, names of fields counted; the most transfers that a job may have, with all fields, are 720,896."""

MAX_LISTS = 200_000
"""Lists and objects in one text, each of which takes half a kilobyte; a job spec within its limits has fewer."""

MAX_FIELDS = 256
"""Fields of one object or table; no kind of file has one with a quarter of it. Each unknown field costs an error."""

MAX_DIGITS = 100
"""Digits of an integer: more than any field takes, and fewer than Python refuses to print."""


MAX_SMALL_BYTES = 4 << 20
"""Size limit of a file with certificates, a key or a token."""


def read_small(path: Path) -> bytes:
    """Return a regular file of at most ``MAX_SMALL_BYTES``: no device, which need not end, and no pipe, which cannot be
    read twice. Raises ``OSError``."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "is no regular file")
    return read_bytes(path, MAX_SMALL_BYTES)


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """Return the whole file. Raises ``OSError``, also for more than ``most`` bytes, ``MAX_BYTES`` by default."""
    most = MAX_BYTES if most is None else most
    with opened(path) as stream:
        found = stream.read(most + 1)
    if len(found) > most:
        raise OSError(errno.EFBIG, f"has more than {most >> 20} MiB")
    return found


def read_text(path: Path, most: int | None = None) -> str:
    """Return the text of a whole file in UTF-8. Raises ``InvalidInput``."""
    try:
        return read_bytes(path, most).decode("utf-8-sig")
    except OSError as error:
        raise InvalidInput.of(called(path), error.strerror or str(error)) from None
    except UnicodeDecodeError as error:
        raise InvalidInput.of(called(path), f"is not text in UTF-8, at byte {error.start + 1}") from None


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """For reading bit by bit. Raises ``OSError``."""
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer
    else:
        with path.open("rb") as stream:
            yield stream


def called(path: Path) -> str:
    """For messages."""
    return "standard input" if path == STANDARD_INPUT else str(path)
