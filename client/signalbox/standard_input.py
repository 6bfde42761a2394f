"""Read files that commands get as arguments; ``-`` is the standard input."""

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
"""Largest size in bytes of a file that is read whole, such as a workload."""


MAX_DEPTH = 32
"""Largest depth of nested lists and objects, and number of parts in a dotted TOML key; a job spec needs 4."""

MAX_VALUES = 850_000
"""Largest number of values in one text, names of fields included; one job's transfers may consist of 720,896 values."""

MAX_LISTS = 200_000
"""Largest number of lists and objects in one text. Each takes half a kilobyte; a valid job spec has fewer."""

MAX_FIELDS = 256
"""Largest number of fields of one object or table: over four times what any file needs.

The limit also bounds the number of errors, since each unknown field is one."""

MAX_DIGITS = 100
"""Largest number of digits of an integer: more than any field needs, and few enough for Python to print it."""


MAX_SMALL_BYTES = 4 << 20
"""Largest size in bytes of a file with certificates, a key or a token."""


def read_small(path: Path) -> bytes:
    """Return the bytes of a regular file of at most ``MAX_SMALL_BYTES``. Raises ``OSError``.

    Devices, which may have no end, and pipes, which cannot be read twice, are refused."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "is not a regular file")
    return read_bytes(path, MAX_SMALL_BYTES)


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """Return the whole file. Raises ``OSError``, also for more than ``most`` bytes (default ``MAX_BYTES``)."""
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
    """Open the file for reading in parts. Raises ``OSError``."""
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer
    else:
        with path.open("rb") as stream:
            yield stream


def called(path: Path) -> str:
    """Return the name of the file for messages."""
    return "standard input" if path == STANDARD_INPUT else str(path)
