"""How processes in different network namespaces find each other's ports: files in a directory they share.

Owns nothing but the files. A listener binds any free port and publishes ``IP PORT`` under its name; whoever wants
to connect waits for the file. So no port is ever chosen by hand, and the kernel's hash over ports sees ordinary
ephemeral ones.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

POLL_S = 0.02


def publish(directory: Path, name: str, address: tuple[str, int]) -> None:
    """Make ``address`` (IP, port) known as ``name``; readers see the whole entry or none."""
    directory.mkdir(parents=True, exist_ok=True)
    draft = directory / f".{name}.{os.getpid()}"
    draft.write_text(f"{address[0]} {address[1]}\n")
    draft.replace(directory / name)


def find(directory: Path, name: str, timeout_s: float) -> tuple[str, int]:
    """The address published as ``name``. Raises ``TimeoutError`` when nobody publishes it in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            ip, port = (directory / name).read_text().split()
            return ip, int(port)
        except FileNotFoundError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"'{name}' did not appear in {directory} within {timeout_s:.0f} s") from None
            time.sleep(POLL_S)
