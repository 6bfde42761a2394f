"""Signals that reach all processes of a terminal or a unit, and that only the controller answers: it ends its children.

A child begins with the signals blocked, because it takes a while to import what it needs; from then on it ignores them.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

THE_CONTROLLERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def kept_from_child() -> Iterator[None]:
    """Around the start of a process, which inherits what this thread has blocked (execve(2))."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, THE_CONTROLLERS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore() -> None:
    """To be called in the child; also those that have come meanwhile."""
    for number in THE_CONTROLLERS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, THE_CONTROLLERS)
