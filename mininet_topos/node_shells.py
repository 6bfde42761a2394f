"""Shells of Mininet's nodes that raise an error when they have ended; Mininet alone would wait for them for ever.

A signal to the process group, such as that of a closed terminal, can end a shell in the moment before it leaves the
group.
"""

from __future__ import annotations

import select
from typing import Any

LOOK_MS = 500


class ShellThatEnds:
    """Mixin before Mininet's class that raises ``OSError`` instead of waiting for a shell that has ended."""

    def read(self: Any, size: int = 1024) -> str:
        output = select.poll()
        output.register(self.stdout, select.POLLIN)
        while not output.poll(LOOK_MS):
            if self.shell.poll() is not None:
                raise OSError(f"the shell of {self.name} has ended with status {self.shell.returncode}")
        return str(super().read(size))  # type: ignore[misc]
