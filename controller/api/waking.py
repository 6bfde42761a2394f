"""Wake-ups of the API's loop when the control loop, which runs in another thread, has replied."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress


class Bursts:
    """Queue of events to be set in the API's loop; many events need only one wake-up of the loop.

    A wake-up is a system call, during which the calling thread lets other threads use the interpreter."""

    def __init__(self) -> None:
        self._due: deque[asyncio.Event] = deque()
        self._woken = False

    def set(self, loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
        """Set the event soon. Any thread may call this, always with the same loop."""
        self._due.append(event)
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # a closed loop needs no wake-up
                loop.call_soon_threadsafe(self._set_all)

    def _set_all(self) -> None:
        self._woken = False  # before the loop: an event that is added after it may need another wake-up
        while self._due:
            self._due.popleft().set()
