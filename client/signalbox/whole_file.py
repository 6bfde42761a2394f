"""Write files of commands completely or not at all. ``-`` is the standard output; devices and pipes work too."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from signalbox.standard_input import STANDARD_INPUT


def write(file: Path, data: bytes) -> None:
    """Write a file readable by its owner only; call it in the main thread. Raises ``OSError``."""
    if file == STANDARD_INPUT:
        sys.stdout.buffer.write(data)
        return
    try:
        if file.exists() and not file.is_file():
            file.write_bytes(data)
        else:
            with _ended_by_sigterm():
                _replace(Path(os.path.realpath(file)), data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Raise ``SystemExit`` at SIGTERM, so that an incomplete file is removed."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _replace(file: Path, data: bytes) -> None:
    made = file.with_name(f"{file.name}.{os.getpid()}")
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        try:
            opened.write(data)
            opened.flush()
            made.replace(file)
        except BaseException:
            made.unlink(missing_ok=True)
            raise
