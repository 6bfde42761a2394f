"""Inbox of the control loop, for any thread."""

from __future__ import annotations

import queue

from controller.core.messages import Message
from controller.southbound.limits import Backlog


class Inbox:
    """Queue of messages. It counts, for each switch connection, the messages that were added and that were taken."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Message, Backlog | None]] = queue.SimpleQueue()

    def put(self, message: Message, backlog: Backlog | None = None, /) -> None:
        """Add a message; never waits."""
        if backlog is not None:
            backlog.added += 1
        self._queue.put((message, backlog))

    def take(self, most: int, timeout_s: float) -> list[Message]:
        """Return the waiting messages, at most ``most``; wait for the first for at most ``timeout_s`` seconds."""
        messages: list[Message] = []
        try:
            message, backlog = self._queue.get(timeout=max(0.0, timeout_s))
            while True:
                messages.append(message)
                if backlog is not None:
                    backlog.taken += 1
                if len(messages) >= most:
                    break
                message, backlog = self._queue.get_nowait()
        except queue.Empty:
            pass
        return messages
