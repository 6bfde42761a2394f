"""Thread that calls a function repeatedly beside the training; the function returns the seconds until its next call."""

from __future__ import annotations

import logging
import random
import signal
import threading
from collections.abc import Callable

FIRST_PAUSE_S = 1.0
LEAVE_S = 1.0
"""Seconds that a program waits for the last round when the program ends."""

_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGSYS}
"""Signals that the kernel sends to the thread that has caused them; threads of this module do not block them."""

log = logging.getLogger("signalbox")


def start_deaf(thread: threading.Thread) -> None:
    """Start a thread that receives no signals. Raises ``RuntimeError`` when the system allows no further thread.

    A program that waits for a signal (sigwait(3)) blocks it in its own threads. A thread of this package that does not
    block the signal would receive it, and the signal's default action would end the program."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def pause_after(failures: int, most_s: float) -> float:
    """Return the seconds to wait after ``failures`` failures in a row.

    The pause doubles with each failure up to ``most_s``. A random part, up to a quarter, is subtracted, so that the
    clients of a controller do not all call again at the same time."""
    return min(FIRST_PAUSE_S * 2.0 ** min(failures - 1, 20), most_s) * random.uniform(0.75, 1.0)


class Rounds:
    """Thread that calls ``one`` until ``one`` returns None or ``leave`` is called. Then the thread calls ``last``.

    An exception of ``one`` is logged, and ends the thread without a call of ``last``."""

    def __init__(self, name: str, one: Callable[[], float | None], last: Callable[[], None] = lambda: None) -> None:
        self._one = one
        self._last = last
        self._leaving = False
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. Raises ``RuntimeError`` when the system allows no further thread."""
        start_deaf(self._thread)

    def hurry(self) -> None:
        """Begin the next round now, or as soon as the present round has ended."""
        self._due.set()

    def wait(self, pause_s: float) -> None:
        """Pause inside a round: return after ``pause_s`` seconds, or when ``hurry`` or ``leave`` is called."""
        self._due.wait(pause_s)

    def leave(self) -> None:
        """End the rounds: ``last`` is called when no round is under way. Return at once."""
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
                if pause_s is not None and not self._leaving:  # ``leave`` may have been called before ``clear``
                    self._due.wait(pause_s)
            self._last()
        except Exception:
            log.exception("%s has ended; the training continues", self._thread.name)
