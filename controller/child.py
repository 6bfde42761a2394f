"""A child process of the controller, and the connection to it.

Work that takes long has a process of its own, so that OpenFlow, the control loop and the API do not share an
interpreter with it: ``answerer`` answers questions there, ``planning.process`` plans.

Signals that reach all processes of a terminal or a unit are only for the controller, which ends its children. A child
begins with the signals blocked, because it takes a while to import what it needs; from then on it ignores them. Where
the controller is killed, the kernel kills its children, also those that do nothing at the time.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

THE_CONTROLLERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NICENESS = 10
"""Niceness of children: OpenFlow, the control loop and the API have priority where processors are few."""
_PR_SET_PDEATHSIG = 1
"""prctl(2): of the thread that has started the process."""


class Child:
    """A process and the connection to it. Any thread may send, one receives."""

    def __init__(self, name: str, work: Callable[..., None], *arguments: object) -> None:
        """Start the process, which calls ``work`` with its end of the connection and the arguments; all are pickled.
        Raises ``OSError`` when it cannot be started."""
        processes = multiprocessing.get_context("spawn")  # a fork would copy locks that other threads hold
        self._connection, theirs = processes.Pipe()
        self._sending = threading.Lock()
        self.process: BaseProcess = processes.Process(
            target=_begin, args=(theirs, work, arguments), name=name, daemon=True
        )
        with theirs, kept_from_child():
            self.process.start()

    def send(self, *messages: object) -> None:
        """Send the messages, one after the other; to a process that has gone nothing is sent."""
        with suppress(OSError), self._sending:
            for message in messages:
                self._connection.send(message)

    def send_packed(self, message: memoryview) -> None:
        """Send a message that is pickled already."""
        with suppress(OSError), self._sending:
            self._connection.send_bytes(message)

    def answers_within(self, seconds: float) -> bool:
        """Whether there is something to receive, waiting for it so long. Raises ``OSError`` when the process has
        gone."""
        return self._connection.poll(seconds)

    def receive(self) -> Any:
        """Return the next message. Raises ``EOFError`` or ``OSError`` when the process has gone."""
        return self._connection.recv()

    def end(self, within_s: float = 0.0) -> int | None:
        """Kill the process unless it ends by itself within so many seconds. Returns its exit status."""
        self.process.join(within_s)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        return self.process.exitcode

    def close(self) -> None:
        """Close the connection; nobody may be using it."""
        self._connection.close()


def _begin(connection: Connection, work: Callable[..., None], arguments: tuple[object, ...]) -> None:
    """The process."""
    leave_to_controller()
    os.nice(NICENESS)
    work(connection, *arguments)


# ---- signals


@contextmanager
def kept_from_child() -> Iterator[None]:
    """Around the start of a process, which inherits what this thread has blocked (execve(2)). The first start of all
    would start the resource tracker of ``multiprocessing`` too, which unblocks two of them again when it runs."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, THE_CONTROLLERS)
    try:
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, THE_CONTROLLERS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_to_controller() -> None:
    """To be called in the child. Signals that have come meanwhile are ignored too. Does not return when the controller
    has ended already, of which the kernel tells nothing."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    controller = multiprocessing.parent_process()
    if controller and controller.pid != os.getppid():
        os._exit(0)
    for number in THE_CONTROLLERS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, THE_CONTROLLERS)
