"""Signals that reach all processes of a terminal or a unit, and that only the controller answers: it ends its children.

A child begins with the signals blocked, because it takes a while to import what it needs; from then on it ignores them.
Where the controller is killed, the kernel kills its children, also those that do nothing at the time.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

THE_CONTROLLERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
"""prctl(2): of the thread that has started the process."""


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
