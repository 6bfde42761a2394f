"""Admission of connections after their handshake: one per dpid, with the controller as master.

Sans-IO. In: connections, and their replies. Out: calls of ``admit`` with the connections that may be used. When a
second connection claims the dpid of an existing connection, the controller sends an echo request over the existing one.
If a reply arrives, the second connection is refused. Otherwise the existing connection ends after the usual number of
echo requests, and the second replaces it. A switch that replies late, because it is busy with its rules, thus does not
lose its dpid to another switch. Only one controller may write to a switch, so the controller claims the role of its
master (OpenFlow 1.3.5 sections 6.3.5 and 7.3.9). ``now`` is in monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import structlog

from controller.log_limit import LimitedLog
from controller.southbound import openflow_encode as encode
from controller.southbound.connection import Connection
from controller.southbound.framework import ofp
from controller.southbound.openflow_framing import message

limited_log = LimitedLog(structlog.get_logger(__name__))
"""Limited log, because anybody can connect any number of switches."""

ROLES_WITHIN_S = 1.0
ATTEMPTS = 3
"""Largest number of attempts to become the master.

Another controller may claim the switch at the same moment: the later generation id wins."""
MASTERSHIP_LOST = (ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_IS_SLAVE)
"""Type and code of the error of a switch whose master is now another controller."""

_GENERATIONS = 1 << 64
_STALE = (ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE)


class Mastership:
    """Claim of the master role for one switch.

    ``state`` is ``asking``, then ``master`` or ``refused``. A switch that does not support roles refuses, and is used
    nevertheless. ``why``: reason of the refusal.

    The controller first requests the present generation id, and then claims the role with the next one. The generation
    id grows with every change of masters, has 64 bits that wrap around, and is all ones in Open vSwitch before the
    first change."""

    def __init__(self, connection: Connection) -> None:
        self.state: Literal["asking", "master", "refused"] = "asking"
        self.why = ""
        self._connection = connection
        self._left = ATTEMPTS
        self._claimed = False
        self._xid = self._ask(ofp.OFPCR_ROLE_NOCHANGE, 0)

    def _ask(self, role: int, generation: int) -> int:
        self._claimed = role == ofp.OFPCR_ROLE_MASTER
        return self._connection.send(encode.role_request(role, generation))[0]

    def reply(self, xid: int, role: int, generation: int) -> None:
        if xid != self._xid or self.state != "asking":
            return
        if self._claimed:
            self.state = "master" if role == ofp.OFPCR_ROLE_MASTER else "refused"
            self.why = f"the switch replied to the role request with role {role}"
        else:
            self._xid = self._ask(ofp.OFPCR_ROLE_MASTER, (generation + 1) % _GENERATIONS)

    def error(self, xid: int, code: tuple[int, int] | None, reason: str) -> None:
        """Handle an error message. ``code``: error type and error code. ``reason``: their names."""
        if xid != self._xid or self.state != "asking":
            return
        self._left -= 1
        if code == _STALE and self._claimed and self._left:
            self._xid = self._ask(ofp.OFPCR_ROLE_NOCHANGE, 0)
        else:
            self.state, self.why = "refused", reason


@dataclass(slots=True)
class _Dpid:
    """Connections that claim one dpid."""

    holder: Connection
    """Connection that has the dpid."""
    roles: Mastership | None
    """Claim of the master role; None once the holder is admitted."""
    deadline: float
    """Monotonic time at which the holder is admitted even if the switch has not answered the claim."""
    waiting: list[Connection] = field(default_factory=list)
    """Later connections with the same dpid, the newest last."""
    asked: int | None = None
    """Transaction id of the echo request that the holder must answer; None if there is no such request."""


class Admission:
    def __init__(self, admit: Callable[[Connection], None]) -> None:
        self._admit = admit
        self._dpids: dict[int, _Dpid] = {}

    def arrived(self, connection: Connection, now: float) -> None:
        entry = self._dpids.get(connection.id)
        if entry is None:
            self._take_dpid(connection, [], now)
        else:
            entry.waiting.append(connection)
            self._ask_holder(entry)

    def gone(self, connection: Connection, now: float) -> None:
        """Forget a connection that has ended."""
        entry = self._dpids.get(connection.id)
        if entry is None:
            return
        if entry.holder is connection:
            self._give_up(entry, now)
        elif connection in entry.waiting:
            entry.waiting.remove(connection)

    def echo_reply(self, connection: Connection, xid: int) -> None:
        entry = self._dpids.get(connection.id)
        if entry is None or entry.holder is not connection or entry.asked != xid:
            return
        entry.asked = None
        for newcomer in entry.waiting:
            newcomer.refuse("duplicate_dpid", f"{connection.peer} has dpid {connection.id:#x} and is alive")
        entry.waiting.clear()

    def role_reply(self, connection: Connection, xid: int, role: int, generation: int) -> None:
        entry = self._dpids.get(connection.id)
        if entry and entry.holder is connection and entry.roles:
            entry.roles.reply(xid, role, generation)
            self._admit_when_known(entry)

    def error(self, connection: Connection, xid: int, code: tuple[int, int] | None, reason: str) -> None:
        entry = self._dpids.get(connection.id)
        if entry and entry.holder is connection and entry.roles:
            entry.roles.error(xid, code, reason)
            self._admit_when_known(entry)

    def tick(self, now: float) -> None:
        limited_log.summarise()
        for entry in list(self._dpids.values()):
            if entry.roles and entry.deadline <= now:
                entry.roles.state, entry.roles.why = "refused", "no answer to a role request"
                self._admit_when_known(entry)

    def _take_dpid(self, connection: Connection, waiting: list[Connection], now: float) -> None:
        self._dpids[connection.id] = _Dpid(connection, Mastership(connection), now + ROLES_WITHIN_S, waiting)

    def _give_up(self, entry: _Dpid, now: float) -> None:
        """Assign the dpid to the newest waiting connection: older connections may be half-open as well."""
        del self._dpids[entry.holder.id]
        if entry.waiting:
            *others, newest = entry.waiting
            self._take_dpid(newest, others, now)

    def _admit_when_known(self, entry: _Dpid) -> None:
        roles = entry.roles
        if roles is None or roles.state == "asking":
            return
        if roles.state == "refused":
            limited_log.warning(
                "controller uses a switch whose master it is not", dpid=f"{entry.holder.id:#x}", why=roles.why
            )
        entry.roles = None
        self._admit(entry.holder)
        if entry.waiting:
            self._ask_holder(entry)

    def _ask_holder(self, entry: _Dpid) -> None:
        if entry.roles is None and entry.asked is None:
            entry.asked = entry.holder.send(message(ofp.OFPT_ECHO_REQUEST, b"signalbox"))[0]
