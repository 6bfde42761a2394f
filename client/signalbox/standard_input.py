"""Files that commands take: ``-`` is the standard input."""

from __future__ import annotations

import sys
from pathlib import Path

STANDARD_INPUT = Path("-")


def read_bytes(path: Path) -> bytes:
    """Raises ``OSError``."""
    return sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()


def called(path: Path) -> str:
    """For messages."""
    return "standard input" if path == STANDARD_INPUT else str(path)
