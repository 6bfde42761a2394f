"""Between a connection's handshake and its being a switch of ours: is there one like it, and are we its master.

Sans-IO. In: connections, what comes by them. Out: calls of ``admit`` with connections that may be used. A dpid belongs
to whoever has it: when another connection comes with it, the one that is there is asked for a sign of life, and the
newcomer is refused when it gives one, and takes its place when it does not. ``now`` is monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from controller.fabric.messages import RefusalReason
from controller.southbound.framework import PROTOCOL, ofp_parser
from controller.southbound.mastership import Mastership

log = structlog.get_logger(__name__)

ALIVE_WITHIN_S = 1.0
ROLES_WITHIN_S = 1.0


class Arrival(Protocol):
    """A connection whose handshake is done."""

    id: Any
    peer: str

    def send(self, message: Any) -> int: ...
    def refuse(self, reason: RefusalReason, why: str) -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class _Place:
    """Who has a dpid. ``roles``: of a holder that is not admitted yet. ``waiting``: others that came with the dpid,
    the newest last. ``asked``: the echo request that the holder has to answer until ``deadline``."""

    holder: Arrival
    roles: Mastership | None
    deadline: float
    waiting: list[Arrival] = field(default_factory=list)
    asked: int | None = None


class Arrivals:
    def __init__(self, admit: Callable[[Any], None]) -> None:
        self._admit = admit
        self._places: dict[int, _Place] = {}

    def arrived(self, connection: Arrival, now: float) -> None:
        place = self._places.get(connection.id)
        if place is None:
            self._take_place(connection, [], now)
        else:
            place.waiting.append(connection)
            self._ask_holder(place, now)

    def gone(self, connection: Arrival, now: float) -> None:
        """The connection has ended."""
        place = self._places.get(connection.id)
        if place is None:
            return
        if place.holder is connection:
            self._vacate(place, now)
        elif connection in place.waiting:
            place.waiting.remove(connection)

    def echo_reply(self, connection: Arrival, xid: int) -> None:
        place = self._places.get(connection.id)
        if place is None or place.holder is not connection or place.asked != xid:
            return
        place.asked = None
        for newcomer in place.waiting:
            newcomer.refuse("duplicate_dpid", f"{connection.peer} has dpid {connection.id:#x} and is alive")
        place.waiting.clear()

    def role_reply(self, connection: Arrival, xid: int, role: int, generation: int, now: float) -> None:
        place = self._places.get(connection.id)
        if place and place.holder is connection and place.roles:
            place.roles.reply(xid, role, generation)
            self._admit_when_known(place, now)

    def error(self, connection: Arrival, xid: int, code: tuple[int, int] | None, reason: str, now: float) -> None:
        place = self._places.get(connection.id)
        if place and place.holder is connection and place.roles:
            place.roles.error(xid, code, reason)
            self._admit_when_known(place, now)

    def tick(self, now: float) -> None:
        for place in list(self._places.values()):
            if place.deadline > now:
                continue
            if place.roles:
                place.roles.state, place.roles.why = "refused", "no answer to a role request"
                self._admit_when_known(place, now)
            elif place.asked is not None:
                log.warning("half-open connection; another takes its place", dpid=f"{place.holder.id:#x}")
                place.holder.close()
                self._vacate(place, now)

    def _take_place(self, connection: Arrival, waiting: list[Arrival], now: float) -> None:
        roles = Mastership(connection.send)
        self._places[connection.id] = _Place(connection, roles, now + ROLES_WITHIN_S, waiting)

    def _vacate(self, place: _Place, now: float) -> None:
        """The newest of those that wait comes next: the others may be half-open as well."""
        del self._places[place.holder.id]
        if place.waiting:
            *others, newest = place.waiting
            self._take_place(newest, others, now)

    def _admit_when_known(self, place: _Place, now: float) -> None:
        roles = place.roles
        if roles is None or roles.state == "asking":
            return
        if roles.state == "refused":
            log.warning("used without being its master", dpid=f"{place.holder.id:#x}", why=roles.why)
        place.roles = None
        self._admit(place.holder)
        if place.waiting:
            self._ask_holder(place, now)

    def _ask_holder(self, place: _Place, now: float) -> None:
        if place.roles is None and place.asked is None:
            place.asked = place.holder.send(ofp_parser.OFPEchoRequest(PROTOCOL, b"signalbox"))
            place.deadline = now + ALIVE_WITHIN_S
