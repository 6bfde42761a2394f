"""Child process of the controller, and the connection to it.

Long work runs in child processes (``answerer``, ``planning.process``), so that it does not share an interpreter with
OpenFlow, the control loop and the API. A terminal or systemd sends signals to all processes of the controller. Only the
controller itself acts on them, and ends its children. When it is killed, the kernel kills them too.
"""

from __future__ import annotations

import atexit
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
"""Signals that only the controller handles, and its children ignore."""
NICENESS = 10
"""Niceness of children. OpenFlow, the control loop and the API take precedence on a machine with few processors."""
_PR_SET_PDEATHSIG = 1
"""Option of prctl(2) that sends a signal when the thread that started the process ends."""


class Child:
    """A process and the connection to it. Any thread may send, and one thread receives."""

    def __init__(self, name: str, work: Callable[..., None], *arguments: object, niceness: int = NICENESS) -> None:
        """Start a process that calls ``work`` with its end of the connection and the arguments.

        The function and all arguments are pickled. Raises ``OSError`` when the process cannot be started."""
        processes = multiprocessing.get_context("spawn")  # a fork would copy locks that other threads hold
        self._connection, theirs = processes.Pipe()
        self._sending = threading.Lock()
        self.process: BaseProcess = processes.Process(
            target=_begin, args=(theirs, work, arguments, niceness), name=name, daemon=True
        )
        with theirs, kept_from_child():
            self.process.start()

    def send(self, *messages: object) -> None:
        """Send the messages in order. Do nothing if the process has ended."""
        with suppress(OSError), self._sending:
            for message in messages:
                self._connection.send(message)

    def send_packed(self, message: memoryview) -> None:
        """Send a message that is already pickled."""
        with suppress(OSError), self._sending:
            self._connection.send_bytes(message)

    def answers_within(self, seconds: float) -> bool:
        """Wait for a message for at most ``seconds``, and return whether one can be received.

        Raises ``OSError`` when the process has ended."""
        return self._connection.poll(seconds)

    def receive(self) -> Any:
        """Return the next message. Raises ``EOFError`` or ``OSError`` when the process has ended."""
        return self._connection.recv()

    def end(self, within_s: float = 0.0) -> int | None:
        """Wait ``within_s`` seconds for the end of the process, then kill it. Return its exit status."""
        self.process.join(within_s)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        return self.process.exitcode

    def close(self) -> None:
        """Close the connection. No thread may use it during this call."""
        self._connection.close()


def _begin(connection: Connection, work: Callable[..., None], arguments: tuple[object, ...], niceness: int) -> None:
    leave_to_controller()
    os.nice(niceness)
    work(connection, *arguments)


@atexit.register
def _kill_children() -> None:
    """Kill the children that are left, for which ``multiprocessing`` would wait: they ignore its SIGTERM."""
    for process in multiprocessing.active_children():
        process.kill()


# ---- signals


@contextmanager
def kept_from_child() -> Iterator[None]:
    """Block the controller's signals while a child starts: the child inherits the blocked signals (execve(2)).

    ``multiprocessing`` starts a resource tracker before the first child, which unblocks two of the signals. The tracker
    is therefore started here first."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, THE_CONTROLLERS)
    try:
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, THE_CONTROLLERS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_to_controller() -> None:
    """Ignore the controller's signals in this child, and make the kernel kill the child when the controller ends.

    Blocked signals that have already arrived are ignored too. If the controller has already ended, this call ends the
    child, because the kernel would not."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    controller = multiprocessing.parent_process()
    if controller and controller.pid != os.getppid():
        os._exit(0)
    for number in THE_CONTROLLERS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, THE_CONTROLLERS)
