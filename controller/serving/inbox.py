"""Inbox of the control loop, for any thread.

Messages of switches have a queue of their own, so that a client's request need not wait behind many messages of
thousands of switches.
"""

from __future__ import annotations

import queue
from collections import deque

from controller.core.messages import Message
from controller.southbound.limits import Backlog
from controller.tables.messages import FromSwitches


class Inbox:
    """Two queues of messages: one for messages of switches, and one for all other messages. Each queue keeps its order.

    For each connection of a switch, the inbox counts the messages that were added and that were taken."""

    def __init__(self) -> None:
        self._added: queue.SimpleQueue[None] = queue.SimpleQueue()
        """Queue with an entry for each message in either queue, with which ``take`` can wait for both."""
        self._others = deque[Message]()
        self._of_switches = deque[tuple[Message, Backlog | None]]()

    def put(self, message: Message, backlog: Backlog | None = None, /) -> None:
        """Add a message; never waits."""
        if backlog is not None:
            backlog.add()
        if isinstance(message, FromSwitches):
            self._of_switches.append((message, backlog))
        else:
            self._others.append(message)
        self._added.put(None)

    def take(self, most: int, timeout_s: float) -> list[Message]:
        """Wait at most ``timeout_s`` seconds for a message, and return at most ``most`` waiting messages.

        If more messages wait, messages of switches get at least half of the places."""
        messages: list[Message] = []
        try:
            self._added.get(timeout=max(0.0, timeout_s))
            while True:
                if self._others and (2 * len(messages) < most or not self._of_switches):
                    messages.append(self._others.popleft())
                else:
                    message, backlog = self._of_switches.popleft()
                    messages.append(message)
                    if backlog is not None:
                        backlog.take()
                if len(messages) >= most:
                    break
                self._added.get_nowait()
        except queue.Empty:
            pass
        return messages
