"""Child process of the controller, and the connection to it.

Long work runs in separate processes, so that OpenFlow, the control loop and the API do not share an interpreter with
it. ``answerer`` answers questions there, and ``planning.process`` plans.

Signals to all processes of a terminal or systemd unit are meant for the controller only, which ends its children. A
child begins with these signals blocked, because its imports take a while, and ignores them afterwards. When the
controller is killed, the kernel kills its children, idle ones included.
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
"""Signals that only the controller handles."""
NICENESS = 10
"""Niceness of children: OpenFlow, the control loop and the API have priority where processors are few."""
_PR_SET_PDEATHSIG = 1
"""Option of prctl(2) that sends a signal when the thread that started the process ends."""


class Child:
    """A process and the connection to it. Any thread may send, and one thread receives."""

    def __init__(self, name: str, work: Callable[..., None], *arguments: object) -> None:
        """Start the process, which calls ``work`` with its end of the connection and the arguments.

        The function and all arguments are pickled. Raises ``OSError`` when the process cannot be started."""
        processes = multiprocessing.get_context("spawn")  # a fork would copy locks that other threads hold
        self._connection, theirs = processes.Pipe()
        self._sending = threading.Lock()
        self.process: BaseProcess = processes.Process(
            target=_begin, args=(theirs, work, arguments), name=name, daemon=True
        )
        with theirs, kept_from_child():
            self.process.start()

    def send(self, *messages: object) -> None:
        """Send the messages in order; to a process that has ended, nothing is sent."""
        with suppress(OSError), self._sending:
            for message in messages:
                self._connection.send(message)

    def send_packed(self, message: memoryview) -> None:
        """Send a message that is already pickled."""
        with suppress(OSError), self._sending:
            self._connection.send_bytes(message)

    def answers_within(self, seconds: float) -> bool:
        """Return whether there is something to receive, after waiting for at most ``seconds``.

        Raises ``OSError`` when the process has ended."""
        return self._connection.poll(seconds)

    def receive(self) -> Any:
        """Return the next message. Raises ``EOFError`` or ``OSError`` when the process has ended."""
        return self._connection.recv()

    def end(self, within_s: float = 0.0) -> int | None:
        """Return the exit status of the process; kill it unless it ends by itself within ``within_s`` seconds."""
        self.process.join(within_s)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        return self.process.exitcode

    def close(self) -> None:
        """Close the connection. No thread may be using it."""
        self._connection.close()


def _begin(connection: Connection, work: Callable[..., None], arguments: tuple[object, ...]) -> None:
    """Prepare the new process as a child of the controller, and call ``work``."""
    leave_to_controller()
    os.nice(NICENESS)
    work(connection, *arguments)


# ---- signals


@contextmanager
def kept_from_child() -> Iterator[None]:
    """Block the controller's signals while a child starts, because it inherits blocked signals (execve(2)).

    The very first start would also start the resource tracker of ``multiprocessing``, which unblocks two of the signals
    again, so the tracker is started first."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, THE_CONTROLLERS)
    try:
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, THE_CONTROLLERS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_to_controller() -> None:
    """Leave the controller's signals to the controller, and die with it. Called in the child.

    Signals that arrived before are ignored too. Does not return when the controller has already ended, which the kernel
    does not report."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    controller = multiprocessing.parent_process()
    if controller and controller.pid != os.getppid():
        os._exit(0)
    for number in THE_CONTROLLERS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, THE_CONTROLLERS)
