"""Locks of lab tests that run in several processes: a test that must run alone waits for the others, and they for it.

The locked files are never written. A lock ends with the process that holds it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

QUEUE, RUNNING = Path(__file__).parent, Path(__file__)


@contextmanager
def turn(alone: bool) -> Iterator[None]:
    """Wait until this test may run, and lock out the tests that must not run beside it while the block runs.

    ``alone``: whether no other test may run beside it. A waiting process also locks the queue, so that later processes
    do not overtake it."""
    with _opened(RUNNING) as running:
        with _opened(QUEUE) as queue:
            fcntl.flock(queue, fcntl.LOCK_EX)
            fcntl.flock(running, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY)
    try:
        yield file
    finally:
        os.close(file)
