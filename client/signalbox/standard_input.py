"""Files that commands take: ``-`` is the standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

STANDARD_INPUT = Path("-")


def read_bytes(path: Path) -> bytes:
    """Raises ``OSError``."""
    return sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()


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
