"""Files that commands take: ``-`` is the standard input."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

STANDARD_INPUT = Path("-")


MAX_BYTES = 64 << 20
"""Of a file that is read whole: no job spec within its limits has more."""


def read_bytes(path: Path) -> bytes:
    """Raises ``OSError``, also for more than ``MAX_BYTES``."""
    with opened(path) as stream:
        found = stream.read(MAX_BYTES + 1)
    if len(found) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"has more than {MAX_BYTES >> 20} MiB")
    return found


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
