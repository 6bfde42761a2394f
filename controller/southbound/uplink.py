"""Link of this southbound to the control loop in another process; all code here runs in the hub.

In: messages of the app, through ``put``; packets of the control loop. Out: packets, and the commands in received
packets.

At most ``MOST_AHEAD`` sent messages may lack an acknowledgement of the control loop. The control loop begins with a
``Welcome``. Until the ``Welcome`` arrives, and again after the link has broken, messages are dropped. Every switch is
announced anew after a ``Welcome``.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import islice

import structlog

from controller.link.codec import Packed, Refused, first_ones, pack, packet
from controller.link.messages import TO_SOUTHBOUND, Report, Taken, Welcome
from controller.southbound.limits import Backlog
from controller.southbound.outbox import Outbox
from controller.southbound.process_messages import Broken
from controller.tables.messages import FromSwitches

log = structlog.get_logger(__name__)

MOST_AHEAD = 1000
"""Largest number of sent messages that the control loop has not acknowledged."""
MOST_TOGETHER = 200
"""Largest number of messages in one packet."""


class Uplink:
    """Sender of messages to the control loop.

    ``write``: queues a packet, and never waits. ``later``: calls a function soon. ``between``: called between the parts
    of a large packet to let other greenlets run."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        outbox: Outbox,
        later: Callable[[Callable[[], None]], object],
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self._between = between
        self._write = write
        self._outbox = outbox
        self._later = later
        self._flushes = False
        self._session: int | None = None
        self._waiting: deque[tuple[Packed, Backlog | None]] = deque()
        self._sent: deque[Backlog | None] = deque()
        self._taken = 0

    def put(self, message: FromSwitches, backlog: Backlog | None = None, /) -> None:
        """Queue a message, and send it soon, together with other messages. See ``limits.Put``."""
        if self._session is None:
            return
        try:
            packed = pack(message)
        except Refused as error:
            log.error("a message for the control loop is lost", why=str(error))
            return
        if backlog:
            backlog.add()
        self._waiting.append((packed, backlog))
        if not self._flushes:
            self._flushes = True
            self._later(self._flush)

    def _flush(self) -> None:
        self._flushes = False
        while self._session is not None and self._waiting and len(self._sent) < MOST_AHEAD:
            most = min(MOST_TOGETHER, MOST_AHEAD - len(self._sent))
            now = first_ones(packed for packed, _ in islice(self._waiting, most))
            together = [self._waiting.popleft() for _ in range(now)]
            self._sent += [backlog for _, backlog in together]
            report = pack(Report(self._session, time.monotonic()))
            self._write(packet([report, *(packed for packed, _ in together)]))

    def received(self, data: bytes) -> None:
        """Handle a packet of the control loop. Raises ``Refused`` for bytes that are not a packet."""
        for command in TO_SOUTHBOUND.read(data, self._between):
            if command is None:
                continue
            if isinstance(command, Taken):
                self._take(command.count - self._taken)
                self._taken = max(self._taken, command.count)
                self._flush()
                continue
            if isinstance(command, Welcome):
                self._drop()
                self._session, self._taken = command.session, 0
            self._outbox.send([command])

    def broken(self) -> None:
        """Drop all messages until the next ``Welcome``, and report the break."""
        self._drop()
        self._outbox.send([Broken()])

    def _drop(self) -> None:
        self._take(len(self._sent))
        for _, backlog in self._waiting:
            if backlog:
                backlog.take()
        self._waiting.clear()
        self._session = None

    def _take(self, count: int) -> None:
        for backlog in list(islice(self._sent, max(0, count))):
            self._sent.popleft()
            if backlog:
                backlog.take()
