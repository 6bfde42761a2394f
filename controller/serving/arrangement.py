"""Arrangement of a controller: it controls all switches from its own hub, or, as a member, some switches.

``alone`` is for a single controller, and for a standby that shares a state directory. ``member`` is for controllers
that share a state in etcd and divide the switches among themselves (``members.api``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from controller.api.server import MemberPort
from controller.fabric.topology import Dpid
from controller.southbound.limits import Backlog
from controller.southbound.outbox import Outbox
from controller.store.members import MissingMembers
from controller.tables.messages import FromSwitches, ToSwitches


class PutAlso(Protocol):
    """``Put`` that also accepts the leader's message about missing members."""

    def __call__(self, message: FromSwitches | MissingMembers, backlog: Backlog | None = None, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Begun:
    """Facts about the control loop that is about to run, for the southbound."""

    put: PutAlso
    """Inbox of the control loop."""
    outbox: Outbox
    """Commands to the hub in the main thread, and requests to end the process."""
    epoch: int
    """Generation id of this process (``Store.begin``)."""
    secret: bytes | None
    """Secret of lease tokens; None if nothing is saved."""
    known: frozenset[Dpid]
    """Switches of the fabric."""
    racks: Mapping[Dpid, str]
    """Racks of the switches that have one (``Declared.rack_of``)."""


@dataclass(frozen=True, slots=True)
class Control:
    """Connection between the control loop and the switches."""

    send: Callable[[Iterable[ToSwitches]], None]
    """Function that queues commands for switches without waiting."""
    run: Callable[[Callable[[], None]], None]
    """Function for the main thread that serves the switches until ``Outbox.stop``. The function calls its argument when
    switches can connect.

    It raises ``ListenError``, the exception of a handler, or the error that was given to ``Outbox.fail``."""
    port: MemberPort | None = None
    """Server for other members; None if there are none."""


class Arrangement(Protocol):
    """Way in which this process controls switches, and its work while it stands by."""

    def standing_by(self) -> AbstractContextManager[None]:
        """Do the work of a standby while the context lasts.

        Raises ``OSError`` and ``InvalidInput`` if the process cannot listen on an address."""

    def control(self, begun: Begun) -> Control:
        """Return the connection to the switches. The API starts between this call and ``Control.run``."""
