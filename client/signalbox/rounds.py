"""Work that is repeated in a thread beside the training.

Owns the thread, and how long it waits after failures. In: a function that does one round and returns how many seconds
later the next one is due.
"""

from __future__ import annotations

import logging
import random
import signal
import threading
from collections.abc import Callable

FIRST_PAUSE_S = 1.0
LEAVE_S = 1.0
"""How long the end of a program waits for the last round."""

_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGSYS}
"""Of the thread that gets them."""

log = logging.getLogger("signalbox")


def start_deaf(thread: threading.Thread) -> None:
    """Start a thread that gets no signals: a program that waits for one (sigwait(3)), and so has blocked it in its own
    threads, would be ended by it. Raises ``RuntimeError`` when there can be no more threads."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _FAULTS)
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def pause_after(failures: int, most_s: float) -> float:
    """Seconds after so many failures in a row: twice as long each time up to ``most_s``, and up to a quarter less, so
    that the clients of a controller do not all come back at once."""
    return min(FIRST_PAUSE_S * 2.0 ** min(failures - 1, 20), most_s) * random.uniform(0.75, 1.0)


class Rounds:
    """Calls ``one`` until it returns None or raises, or until ``leave``; then ``last``."""

    def __init__(self, name: str, one: Callable[[], float | None], last: Callable[[], None] = lambda: None) -> None:
        self._one = one
        self._last = last
        self._leaving = False
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Raises ``RuntimeError`` when there can be no more threads."""
        start_deaf(self._thread)

    def hurry(self) -> None:
        """The next round is due now."""
        self._due.set()

    def wait(self, pause_s: float) -> None:
        """Inside a round: returns after so many seconds, or when the next round is due."""
        self._due.wait(pause_s)

    def leave(self) -> None:
        """Returns at once; ``last`` follows the round that is under way."""
        self._leaving = True
        self._due.set()

    def join(self, timeout_s: float) -> None:
        """Return when ``last`` has returned, or the time is over."""
        if self._thread is not threading.current_thread():
            self._thread.join(max(0.0, timeout_s))

    def _run(self) -> None:
        try:
            pause_s: float | None = 0.0
            while not self._leaving and pause_s is not None:
                self._due.clear()
                pause_s = self._one()
                if pause_s is not None and not self._leaving:  # that may have begun before the event was cleared
                    self._due.wait(pause_s)
            self._last()
        except Exception:
            log.exception("%s has ended, the training goes on", self._thread.name)
