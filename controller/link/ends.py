"""Ends of links on the side of the control loop: packets to and from one southbound.

In: commands, and packets of the southbound. Out: packets for the southbound, and messages for the router. Each
connection has a number, so that packets of an earlier connection have no effect.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from controller.fabric.topology import Dpid
from controller.link.codec import Refused, first_ones, pack, packet
from controller.link.messages import FROM_SOUTHBOUND, Report, Taken, Welcome
from controller.link.routing import Router
from controller.store.members import LINK_FORMATS
from controller.tables.messages import Counters, FromSwitches, LearningCounters, ToSwitches

_SESSIONS = itertools.count(1)


class LinkEnd:
    """Link to one southbound, from ``begin`` to ``close``.

    ``write``: queues a packet; called by any thread. ``probe_key`` and ``known``: see ``Welcome``. ``member``: see
    ``End``. ``form``: format of the packets. ``same_clock``: whether the southbound uses this machine's monotonic
    clock."""

    def __init__(
        self,
        router: Router,
        probe_key: bytes,
        known: frozenset[Dpid],
        member: str,
        write: Callable[[bytes], None],
        form: int = LINK_FORMATS[1],
        same_clock: bool = False,
    ) -> None:
        self.member = member
        self._router = router
        self._write = write
        self._probe_key = probe_key
        self._known = known
        self._form = form
        self._same_clock = same_clock
        self._session = next(_SESSIONS)
        self._received = 0

    def begin(self) -> None:
        welcome = Welcome(self._session, self._probe_key, time.monotonic(), self._known, self._form)
        self._write(packet([pack(welcome)]))
        self._router.add(self)

    def close(self) -> None:
        self._router.remove(self)

    def send(self, commands: Iterable[ToSwitches]) -> None:
        waiting = list(map(pack, commands))
        while waiting:
            count = first_ones(waiting)
            self._write(packet(waiting[:count]))
            del waiting[:count]

    def received(self, data: bytes | None) -> None:
        """Handle a packet. Called by one thread. Raises ``Refused`` for bytes that are not a packet.

        ``data``: None if the southbound cannot read a packet of this process; None also raises ``Refused``."""
        if data is None:
            raise Refused("the southbound process cannot read a packet of this controller process")
        report, *messages = FROM_SOUTHBOUND.read(data) or [None]
        count, messages = len(messages), [message for message in messages if message is not None]
        if not isinstance(report, Report) or report.session != self._session:
            return
        if not self._same_clock:
            messages = [_with_converted_times(message, time.monotonic() - report.at) for message in messages]
        self._received += count
        self._router.received(self, messages, partial(self._taken, self._received))

    def _taken(self, count: int) -> None:
        self._write(packet([pack(Taken(count))]))


def _with_converted_times(message: FromSwitches, by_s: float) -> FromSwitches:
    match message:
        case Counters():
            return replace(message, at=message.at + by_s, due=None if message.due is None else message.due + by_s)
        case LearningCounters():
            return replace(message, at=message.at + by_s)
        case _:
            return message
