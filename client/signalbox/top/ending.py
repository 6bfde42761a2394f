"""End ``signalbox top`` on a signal, or when its terminal closes, whatever its other threads do.

One thread receives the signals and all others block them, because the main thread may be blocked writing to a terminal
that nobody reads."""

from __future__ import annotations

import os
import select
import signal
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

SIGNALS = frozenset({signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
LOOK_S = 0.3
"""Seconds between two checks of the terminal."""
GRACE_S = 1.0
"""Seconds that the process has to end by itself; after that it is ended without cleanup."""


@contextmanager
def signals_kept() -> Iterator[None]:
    """Block the signals for ``ended_by_signals``, also in threads that are started later."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def ended_by_signals(end: Callable[[], None], terminal: int) -> Iterator[None]:
    """Call ``end`` from another thread after a signal, or when the ``terminal`` (a descriptor) has closed.

    A process that still runs ``GRACE_S`` later is ended, with its terminal settings restored."""
    settings = termios.tcgetattr(terminal)
    over = Event()

    def watch() -> None:
        received = None
        while received is None and not _closed(terminal):
            received = signal.sigtimedwait(SIGNALS, LOOK_S)
            if over.is_set():
                return
        end()
        time.sleep(GRACE_S)
        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, settings)
        os._exit(128 + (received.si_signo if received else signal.SIGHUP))

    Thread(target=watch, name="ending", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _closed(terminal: int) -> bool:
    """Return whether the other end of the terminal is closed."""
    poll = select.poll()
    poll.register(terminal, 0)
    return bool(poll.poll(0))
