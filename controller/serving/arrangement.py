"""Arrangement of a controller: whether it controls all switches from its own hub, or some of them as a member.

``alone`` is the arrangement of a single controller, and of a standby that shares a state directory. ``member`` is that
of controllers which share a state in etcd and divide the switches among themselves (``members.api``).
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
    """``Put`` that also queues the leader's message about missing members."""

    def __call__(self, message: FromSwitches | MissingMembers, backlog: Backlog | None = None, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Begun:
    """Control loop that is about to run, as the southbound needs it."""

    put: PutAlso
    """Inbox of the control loop."""
    outbox: Outbox
    """Commands to the hub in the main thread; and whatever ends the process."""
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
    """Control of the switches by a control loop."""

    send: Callable[[Iterable[ToSwitches]], None]
    """Queues commands for switches; never waits."""
    run: Callable[[Callable[[], None]], None]
    """Serves the switches until ``Outbox.stop``; for the main thread. Calls its argument once switches can connect.

    Raises ``ListenError``, the exception of a handler, or the error given to ``Outbox.fail``."""
    port: MemberPort | None = None
    """Port for other members."""


class Arrangement(Protocol):
    """Control of switches by this process, and what it does before."""

    def standing_by(self) -> AbstractContextManager[None]:
        """Do what a standby does while the context lasts: another controller is active.

        Raises ``OSError`` and ``InvalidInput`` when an address cannot be listened on."""

    def control(self, begun: Begun) -> Control:
        """Return the control of the switches. The API starts between this call and ``Control.run``."""
