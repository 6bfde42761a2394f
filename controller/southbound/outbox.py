"""Outbox: passes commands from other threads, and from signal handlers, to the hub in the main thread.

The hub is the event loop of the OpenFlow framework. This module does not import the framework, because the import takes
long, and the outbox must exist before it.
"""

from __future__ import annotations

import select
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from controller.link.messages import Welcome
from controller.southbound.process_messages import Broken
from controller.tables.messages import ToSwitches

Command = ToSwitches | Welcome | Broken


class Outbox:
    """Commands for the hub, from any thread or signal handler: a queue, and a socket that wakes the hub."""

    def __init__(self) -> None:
        self._commands: deque[Command] = deque()
        self._stopping = False
        self._failure: BaseException | None = None
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)

    def send(self, commands: Iterable[Command]) -> None:
        """Queue the commands, in order."""
        self._commands.extend(commands)
        self._ring()

    def stop(self) -> None:
        """End ``run_hub``, and drop the commands that are still queued."""
        self._stopping = True
        self._ring()

    def fail(self, error: BaseException) -> None:
        """Make ``run_hub`` raise this error."""
        self._failure = self._failure or error
        self.stop()

    def receive(self, wait: Callable[[socket.socket], None]) -> Iterator[Command]:
        """Yield the commands until ``stop`` is called. For use in the hub.

        ``wait``: returns when the socket is readable. Raises the error that was given to ``fail``."""
        while True:
            while self._commands and not self._stopping:
                yield self._commands.popleft()
            if self._stopping:
                break
            wait(self._woken)
            with suppress(BlockingIOError):
                self._woken.recv(4096)
        if self._failure:
            raise self._failure

    def wait(self) -> None:
        """Wait, without a hub, until ``stop`` is called, dropping commands.

        Raises the error that was given to ``fail``."""

        def readable(woken: socket.socket) -> None:
            select.select([woken], [], [])

        for _ in self.receive(readable):
            pass

    def close(self) -> None:
        """Close the sockets. Commands sent later are dropped."""
        self._woken.close()
        self._wake.close()

    def _ring(self) -> None:
        # Errors are harmless: a full socket has unread bytes that wake the hub, and with a closed socket no hub waits.
        with suppress(OSError):
            self._wake.send(b"\0")


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` on SIGTERM and SIGINT while the context is active."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("signals come to the main thread only")
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
