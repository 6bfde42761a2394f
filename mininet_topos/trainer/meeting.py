"""Meeting point of all ranks of a job, where they wait for each other and learn from rank 0 whether to continue.

The ranks use Unix sockets in a directory that they share, so a meeting causes no traffic in the network. This module
owns the sockets.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from mininet_topos.trainer.mesh import PeerLostError
from mininet_topos.trainer.sockets import POLL_S

NAME = "meeting"
GO_ON, STOP = b"\x00", b"\x01"


class Meeting:
    """Meeting point: rank 0 is connected to every other rank, and all other ranks to rank 0 only.

    Raises ``TimeoutError`` on entry when a rank is missing after ``timeout_s`` seconds."""

    def __init__(self, directory: Path, rank: int, size: int, timeout_s: float = 60.0) -> None:
        self._directory, self._rank, self._size = directory, rank, size
        self._deadline = time.monotonic() + timeout_s
        self._peers: list[socket.socket] = []
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as undo, _short_path(self._directory) as path:
            if self._rank:
                self._peers.append(undo.enter_context(self._connected(path)))
            else:
                self._peers.extend(undo.enter_context(peer) for peer in self._accepted(path))
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def meet(self, stop: bool = False) -> bool:
        """Wait until all ranks have called this method, and return the ``stop`` of rank 0 on every rank.

        Raises ``PeerLostError`` when a rank has ended."""
        told = STOP if stop else GO_ON
        try:
            if self._rank:
                self._peers[0].sendall(told)
            heard = [peer.recv(1) for peer in self._peers]
            if b"" in heard:
                raise PeerLostError("a rank has ended")
            if self._rank:
                return heard[0] == STOP
            for peer in self._peers:
                peer.sendall(told)
        except ConnectionError as error:
            raise PeerLostError(f"a rank has ended: {error.strerror}") from error
        return stop

    def _connected(self, path: str) -> socket.socket:
        while True:
            peer = socket.socket(socket.AF_UNIX)
            try:
                peer.connect(path)
                return peer
            except OSError:
                peer.close()
                if time.monotonic() > self._deadline:
                    raise TimeoutError("rank 0 could not be reached in time") from None
                time.sleep(POLL_S)

    def _accepted(self, path: str) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(self._size)
            for missing in range(self._size - 1, 0, -1):
                listener.settimeout(max(0.001, self._deadline - time.monotonic()))
                try:
                    yield listener.accept()[0]
                except TimeoutError:
                    raise TimeoutError(f"{missing} ranks did not connect to rank 0 in time") from None


@contextmanager
def _short_path(directory: Path) -> Iterator[str]:
    """Yield a short path of the socket in the directory.

    The address of a Unix socket has at most 108 bytes (unix(7))."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{NAME}"
    finally:
        os.close(descriptor)
