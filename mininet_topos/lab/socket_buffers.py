"""Room in Open vSwitch's own sockets, so that a busy machine delays packets where it would lose them.

Without its kernel module Open vSwitch forwards in one process, which reads every port through a packet socket and sends
for all ports through a single one. Both have the system's default buffers: a seventh of a second of one port in, a few
queues of all ports out. When the process waits for a processor longer than that, packets vanish that no counter of a
link or switch shows (seen as losses of all pairs at once, 1 to 9 ms long). Owns the two system settings while it is
entered; sockets keep what they were made with, so enter it before Open vSwitch sends its first packet.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mininet_topos.lab.record import LabError

ROOM_BYTES = 16 << 20
SETTINGS = tuple(Path(f"/proc/sys/net/core/{name}_default") for name in ("rmem", "wmem"))
"""socket(7): buffer sizes of sockets that do not ask for any. TCP has its own (tcp(7))."""


@contextmanager
def roomy_sockets() -> Iterator[None]:
    """Raise the defaults that are lower and put them back. Raises ``LabError`` where they cannot be set: without root,
    or in a network namespace that is not the first."""
    with ExitStack() as undo:
        for path in SETTINGS:
            if int(before := path.read_text()) < ROOM_BYTES:
                _set(path)
                undo.callback(path.write_text, before)
        yield


def _set(path: Path) -> None:
    try:
        path.write_text(f"{ROOM_BYTES}\n")
    except OSError as error:
        setting = f"net.core.{path.name}={ROOM_BYTES}"
        raise LabError(f"{path}: {error.strerror}; run 'sysctl -w {setting}' in the first network namespace") from None
