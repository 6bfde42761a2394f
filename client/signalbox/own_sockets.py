"""Sockets of a library inside a program that manages its file descriptors itself.

A program may close all descriptors, or move its output to a descriptor that was free. A descriptor of the library then
belongs to another file, which the library must neither write to nor close. This module detects such a change, and makes
it rare: the sockets of the library have high numbers, because programs use 0 to 2 and the lowest free numbers.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import select
import socket
from contextlib import suppress
from typing import Any

ABOVE_ALL = 1024
"""Limit of the descriptors of these sockets: this and higher numbers do not fit into the sets of select(2)."""
AT_MOST = 64
"""Number of descriptors just below the limit that are tried first. Each client needs one descriptor."""


class OwnSocket(socket.socket):
    """Socket that raises ``OSError`` once its descriptor belongs to another file.

    ``recv`` and ``sendall`` also notice a change while they wait, because they wait in poll(2), not in recv(2) or
    send(2)."""

    def __init__(self, of: socket.socket) -> None:
        """Make a duplicate of the socket ``of`` with a high descriptor. ``of`` is closed in any case.

        Raises ``OSError`` when no descriptor is free."""
        with of:
            super().__init__(of.family, of.type, of.proto, _high_duplicate(of.fileno()))
        self._file = self._now()
        self._timeout_s: float | None = None

    def _now(self) -> tuple[int, int]:
        found = os.fstat(self.fileno())
        return found.st_dev, found.st_ino

    def check(self) -> None:
        if self._now() != self._file:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def settimeout(self, value: float | None) -> None:
        self._timeout_s = value

    def _wait(self, event: int) -> None:
        self.check()
        waiting = select.poll()
        waiting.register(self.fileno(), event)
        if not waiting.poll(None if self._timeout_s is None else self._timeout_s * 1000):
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        self.check()

    def recv(self, size: int, flags: int = 0) -> bytes:
        self._wait(select.POLLIN)
        return super().recv(size, flags | socket.MSG_DONTWAIT)

    def sendall(self, data: Any, flags: int = 0) -> None:
        left = memoryview(data)
        while left:
            self._wait(select.POLLOUT)
            left = left[super().send(left, flags | socket.MSG_DONTWAIT) :]

    def send(self, data: Any, flags: int = 0) -> int:
        self.check()
        return super().send(data, flags)

    def recvmsg(self, *given: Any) -> Any:
        self.check()
        return super().recvmsg(*given)

    def shutdown(self, how: int) -> None:
        self.check()
        super().shutdown(how)

    def close(self) -> None:
        with suppress(OSError):
            self.check()
            super().close()
        if self.fileno() != -1:
            self.detach()


def pair(kind: socket.SocketKind = socket.SOCK_STREAM) -> tuple[OwnSocket, OwnSocket]:
    """Return a pair of connected sockets, as ``socket.socketpair`` does. Raises ``OSError``."""
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    with other:
        own = OwnSocket(one)
        try:
            return own, OwnSocket(other)
        except OSError:
            own.close()
            raise


def _high_duplicate(descriptor: int) -> int:
    """Return a duplicate of the descriptor with a high number. Raises ``OSError`` when no number is free."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = ABOVE_ALL if soft == resource.RLIM_INFINITY else min(soft, ABOVE_ALL)
    for least in (limit - AT_MOST, 3):
        try:
            return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(3, least))
        except OSError as error:  # EMFILE: no number is free from there on; EINVAL: the limit is lower
            found = error
    raise found
