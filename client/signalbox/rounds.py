"""Repeat work in a thread beside the training.

``Rounds`` calls a function again and again; each call returns how many seconds later the next one is due."""

from __future__ import annotations

import logging
import random
import signal
import threading
from collections.abc import Callable

FIRST_PAUSE_S = 1.0
LEAVE_S = 1.0
"""Seconds that a program waits for the last round when it ends."""

_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGSYS}
"""Signals that concern only the thread that raises them."""

log = logging.getLogger("signalbox")


def start_deaf(thread: threading.Thread) -> None:
    """Start a thread that receives no signals. Raises ``RuntimeError`` when no further thread is possible.

    A program that waits for a signal (sigwait(3)) blocks it in its own threads. A further thread that does not block
    the signal would receive it, and the default action of the signal would end the program."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def pause_after(failures: int, most_s: float) -> float:
    """Return the seconds to wait after ``failures`` failures in a row.

    The pause doubles with each failure up to ``most_s``. It is shortened by up to a quarter at random, so that the
    clients of a controller do not all return at once."""
    return min(FIRST_PAUSE_S * 2.0 ** min(failures - 1, 20), most_s) * random.uniform(0.75, 1.0)


class Rounds:
    """Thread that calls ``one`` until it returns None or ``leave`` is called, and then calls ``last``.

    An exception of ``one`` is logged and ends the thread without ``last``."""

    def __init__(self, name: str, one: Callable[[], float | None], last: Callable[[], None] = lambda: None) -> None:
        self._one = one
        self._last = last
        self._leaving = False
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. Raises ``RuntimeError`` when no further thread is possible."""
        start_deaf(self._thread)

    def hurry(self) -> None:
        """Make the next round due now."""
        self._due.set()

    def wait(self, pause_s: float) -> None:
        """Pause inside a round; return after ``pause_s`` seconds, or when the next round is due."""
        self._due.wait(pause_s)

    def leave(self) -> None:
        """End the rounds; return at once. ``last`` follows the round that is under way."""
        self._leaving = True
        self._due.set()

    def join(self, timeout_s: float) -> None:
        """Wait until ``last`` has returned, at most ``timeout_s`` seconds."""
        if self._thread is not threading.current_thread():
            self._thread.join(max(0.0, timeout_s))

    def _run(self) -> None:
        try:
            pause_s: float | None = 0.0
            while not self._leaving and pause_s is not None:
                self._due.clear()
                pause_s = self._one()
                if pause_s is not None and not self._leaving:  # ``leave`` may precede ``clear``
                    self._due.wait(pause_s)
            self._last()
        except Exception:
            log.exception("%s has ended; the training continues", self._thread.name)
