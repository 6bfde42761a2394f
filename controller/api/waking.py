"""Replies of the control loop, which wake the API's loop from its thread."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress


class Bursts:
    """Sets the events of a burst with one wake-up of the loop: each is a system call, with which the thread that makes
    it gives the interpreter away."""

    def __init__(self) -> None:
        self._due: deque[asyncio.Event] = deque()
        self._woken = False

    def set(self, loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
        """From any thread; always of the same loop."""
        self._due.append(event)
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # a closed loop needs no wake-up
                loop.call_soon_threadsafe(self._set_all)

    def _set_all(self) -> None:
        self._woken = False  # before: what is added from now on may come too late for this time
        while self._due:
            self._due.popleft().set()
