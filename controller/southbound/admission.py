"""Admission of connections after their handshake: one per dpid, with the controller as master.

Sans-IO. In: connections, and their replies. Out: calls of ``admit`` with the connections that may be used. When a
second connection claims the dpid of an existing connection, the controller sends an echo request over the existing one.
If a reply arrives, the second connection is refused. Otherwise the existing connection ends after the usual number of
echo requests, and the second replaces it. A switch that replies late, because it is busy with its rules, thus does not
lose its dpid to another switch. ``now`` is in monotonic seconds.

Only one controller may write to a switch, so the controller claims the role of its master (OpenFlow 1.3.5 sections
6.3.5 and 7.3.9). The generation id of all its claims is its epoch, which the store gives to no other process
(``Store.begin``). A switch refuses the claims and the messages of a controller with an older epoch. Such a controller
never takes the switch back, and nothing is written before the switch has confirmed the role.

A switch that has restarted has forgotten the epochs, and would accept an older one. So while the store does not vouch
for this controller (``Store.is_claimed``), only switches that still have its epoch are claimed; others wait. A switch
cannot restart on an open connection, so the check stays right until the claim arrives (``tests/model``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from controller.southbound import openflow_encode as encode
from controller.southbound.connection import Connection
from controller.southbound.framework import ofp
from controller.southbound.limits import limited_log
from controller.southbound.openflow_framing import message

ROLES_WITHIN_S = 1.0
"""Seconds after which the log names a switch that has not answered the claim."""

MASTERSHIP_LOST = (ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_IS_SLAVE)
"""Type and code of the error of a switch whose master is now another controller."""

_STALE = (ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE)


class Mastership:
    """Claim of the master role for one switch.

    ``state`` is ``waiting`` until the controller may claim the switch, then ``asking``. It ends as ``master``, ``lost``
    to a controller with a newer epoch, or ``unsupported`` by the switch. ``why``: reason of the two last states. A lost
    claim first asks for the generation id of the switch, which ``why`` names. ``may_claim``: see ``Admission``."""

    def __init__(self, connection: Connection, epoch: int, may_claim: bool) -> None:
        self.state: Literal["waiting", "asking", "master", "lost", "unsupported"] = "asking"
        self.why = ""
        self._connection = connection
        self._epoch = epoch
        self._is_stale = False
        self._looks = not may_claim
        """Whether the request under way only asks whether the switch has this epoch."""
        self._xid = self._ask(ofp.OFPCR_ROLE_MASTER, epoch) if may_claim else self._ask(ofp.OFPCR_ROLE_NOCHANGE, 0)

    def _ask(self, role: int, generation: int) -> int:
        return self._connection.send(encode.role_request(role, generation))[0]

    def claim(self) -> None:
        self.state, self._looks = "asking", False
        self._xid = self._ask(ofp.OFPCR_ROLE_MASTER, self._epoch)

    def reply(self, xid: int, role: int, generation: int) -> None:
        if xid != self._xid or self.state != "asking":
            return
        if self._looks and generation == self._epoch:
            self.claim()
        elif self._looks:
            self.state = "waiting"
        elif (role, generation) == (ofp.OFPCR_ROLE_MASTER, self._epoch):
            self.state = "master"
        else:
            self.state = "lost"
            self.why = f"its generation id is {generation}, and the epoch of this controller is {self._epoch}"

    def error(self, xid: int, code: tuple[int, int] | None, reason: str) -> None:
        """Handle an error message. ``code``: error type and error code. ``reason``: their names."""
        if xid != self._xid or self.state != "asking":
            return
        if self._looks:
            self.state = "waiting"
        elif code == _STALE and not self._is_stale:
            self._is_stale = True
            self._xid = self._ask(ofp.OFPCR_ROLE_NOCHANGE, 0)
        else:
            self.state, self.why = "lost" if self._is_stale else "unsupported", reason


@dataclass(slots=True)
class _Dpid:
    """Connections that claim one dpid."""

    holder: Connection
    """Connection that has the dpid."""
    roles: Mastership | None
    """Claim of the master role; None once it is decided."""
    late_at: float
    """Monotonic time at which the log names the switch, unless it has answered the claim."""
    ends_at: float
    """Monotonic time at which the holder's connection ends, unless the switch has answered the claim."""
    waiting: list[Connection] = field(default_factory=list)
    """Later connections with the same dpid, the newest last."""
    asked: int | None = None
    """Transaction id of the echo request that the holder must answer; None if there is no such request."""


class Admission:
    """Admission of all connections.

    ``epoch``: generation id of all claims. ``may_claim``: whether no other controller can have the state now. ``admit``
    is called with each connection that may be used, and ``lost`` with each connection to a switch whose master is
    another controller; that connection stays open and is not used. ``patience_s``: seconds after which a connection
    without an answer to the claim ends."""

    def __init__(
        self,
        epoch: int,
        may_claim: Callable[[], bool],
        patience_s: float,
        admit: Callable[[Connection], None],
        lost: Callable[[Connection], None],
    ) -> None:
        self._epoch = epoch
        self._may_claim = may_claim
        self._patience_s = patience_s
        self._admit = admit
        self._lost = lost
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
            self._decide(entry)

    def error(self, connection: Connection, xid: int, code: tuple[int, int] | None, reason: str) -> None:
        entry = self._dpids.get(connection.id)
        if entry and entry.holder is connection and entry.roles:
            entry.roles.error(xid, code, reason)
            self._decide(entry)

    def tick(self, now: float) -> None:
        for entry in list(self._dpids.values()):
            if entry.roles and entry.roles.state == "waiting":
                if self._may_claim():
                    entry.roles.claim()
                    entry.late_at, entry.ends_at = now + ROLES_WITHIN_S, now + self._patience_s
            elif entry.roles and entry.ends_at <= now:
                entry.holder.refuse("silent", f"no answer to the claim of the master within {self._patience_s:g} s")
            elif entry.roles and entry.late_at <= now:
                entry.late_at = inf
                limited_log.warning(
                    "switch did not answer the request for the master role, and is not used",
                    dpid=f"{entry.holder.id:#x}",
                )

    def _take_dpid(self, connection: Connection, waiting: list[Connection], now: float) -> None:
        self._dpids[connection.id] = _Dpid(
            connection,
            Mastership(connection, self._epoch, self._may_claim()),
            now + ROLES_WITHIN_S,
            now + self._patience_s,
            waiting,
        )

    def _give_up(self, entry: _Dpid, now: float) -> None:
        """Assign the dpid to the newest waiting connection: older connections may be half-open as well."""
        del self._dpids[entry.holder.id]
        if entry.waiting:
            *others, newest = entry.waiting
            self._take_dpid(newest, others, now)

    def _decide(self, entry: _Dpid) -> None:
        roles = entry.roles
        if roles is None or roles.state == "asking":
            return
        dpid = f"{entry.holder.id:#x}"
        if roles.state == "waiting":
            limited_log.warning("switch is not claimed before the claim of the state is renewed", dpid=dpid)
            return
        entry.roles = None
        if roles.state == "lost":
            limited_log.warning("switch has a newer master", dpid=dpid, why=roles.why)
            self._lost(entry.holder)
        else:
            if roles.state == "unsupported":
                limited_log.warning("switch has no roles, so any controller can write to it", dpid=dpid, why=roles.why)
            self._admit(entry.holder)
        if entry.waiting:
            self._ask_holder(entry)

    def _ask_holder(self, entry: _Dpid) -> None:
        if entry.asked is None:
            entry.asked = entry.holder.send(message(ofp.OFPT_ECHO_REQUEST, b"signalbox"))[0]
