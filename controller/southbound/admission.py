"""Admission of connections after their handshake: one per dpid, with the controller as master.

Sans-IO. In: connections, and their replies. Out: calls of ``admit`` with the connections that may be used. When a
second connection claims the dpid of an existing connection, the controller sends an echo request over the existing one.
If a reply arrives, the second connection is refused. Otherwise the existing connection ends after the usual number of
echo requests, and the second replaces it. A switch that replies late, because it is busy with its rules, thus does not
lose its dpid to another switch. ``now`` is in monotonic seconds.

Only one controller may write to a switch, so the controller claims the role of its master (OpenFlow 1.3.5 sections
6.3.5 and 7.3.9). ``Holding`` names the generation id of each claim. A switch refuses the claims and the messages of a
controller with a smaller id. Such a controller never takes the switch back by itself, and nothing is written before the
switch has confirmed the role. When the generation id changes, the connection stays, and the switch is claimed anew.

A switch that has restarted has forgotten its generation id, and would accept an older one. So while this controller is
not certain that it still holds the switch (``Holding.may_claim``), it claims only a switch that has its generation id.
A switch cannot restart on an open connection, so the check stays right until the claim arrives (``tests/model``).

A switch that this controller does not hold gets the role SLAVE, with the generation id that the switch has already.
Another id could bring a replaced holder back. Until the switch has an id, its connection stays EQUAL and unused.

A switch that does not know roles accepts the messages of every controller. It is used by a single controller only:
where several divide the switches (``Holding.is_shared``), its connections end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from controller.fabric.topology import Dpid
from controller.southbound import openflow_encode as encode
from controller.southbound.connection import Connection
from controller.southbound.framework import ofp
from controller.southbound.holding import Holding
from controller.southbound.limits import limited_log
from controller.southbound.openflow_framing import message

ROLES_WITHIN_S = 1.0
"""Seconds until the log names a switch that has not answered the claim, or that cannot be claimed yet."""

LOOK_AGAIN_S = 1.0
"""Seconds after which a switch without a generation id is asked again, while this controller does not hold it."""

MASTERSHIP_LOST = (ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_IS_SLAVE)
"""Type and code of the error of a switch whose master is now another controller."""

NO_GENERATION = (1 << 64) - 1
"""Generation id in the reply of a switch that has none (section 7.3.9)."""

_STALE = (ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE)


class Mastership:
    """Claim of the master role for one switch.

    ``state`` is ``waiting`` until the controller may claim the switch, then ``asking``. It ends as ``master``, ``lost``
    to a controller with a newer generation id, or ``unsupported`` by the switch. ``why``: reason of the two last
    states. After a lost claim, the switch is first asked for its generation id, which ``why`` names and ``newer`` is.
    ``may_claim``: see ``Holding``."""

    def __init__(self, connection: Connection, generation: int, may_claim: bool) -> None:
        self.state: Literal["waiting", "asking", "master", "lost", "unsupported"] = "asking"
        self.why = ""
        self.newer = 0
        self._connection = connection
        self._generation = generation
        self._is_stale = False
        self._looks = not may_claim
        """Whether the request under way only asks whether the switch has this generation id."""
        self._xid = (
            _ask(connection, ofp.OFPCR_ROLE_MASTER, generation)
            if may_claim
            else _ask(connection, ofp.OFPCR_ROLE_NOCHANGE)
        )

    def claim(self) -> None:
        self.state, self._looks = "asking", False
        self._xid = _ask(self._connection, ofp.OFPCR_ROLE_MASTER, self._generation)

    def reply(self, xid: int, role: int, generation: int) -> None:
        if xid != self._xid or self.state != "asking":
            return
        if self._looks and generation == self._generation:
            self.claim()
        elif self._looks:
            self.state = "waiting"
        elif (role, generation) == (ofp.OFPCR_ROLE_MASTER, self._generation):
            self.state = "master"
        else:
            self.state, self.newer = "lost", generation
            self.why = f"its generation id is {generation}, but that of this controller is {self._generation}"

    def error(self, xid: int, code: tuple[int, int] | None, reason: str) -> None:
        """Handle an error message. ``code``: error type and error code. ``reason``: their names."""
        if xid != self._xid or self.state != "asking":
            return
        if self._looks:
            self.state = "waiting"
        elif code == _STALE and not self._is_stale:
            self._is_stale = True
            self._xid = _ask(self._connection, ofp.OFPCR_ROLE_NOCHANGE)
        else:
            self.state, self.why = "lost" if self._is_stale else "unsupported", reason


class Standing:
    """Role of a controller that does not hold the switch.

    ``state`` is ``asking`` until the switch has answered. It ends as ``aside``, as ``unsupported`` by the switch, or as
    ``waiting`` while the switch has no generation id, or while this controller is still its master. ``why``: reason of
    the state ``unsupported``."""

    def __init__(self, connection: Connection) -> None:
        self.state: Literal["waiting", "asking", "aside", "unsupported"] = "asking"
        self.why = ""
        self._connection = connection
        self._looks = True
        """Whether the request under way only asks for role and generation id."""
        self._xid = _ask(connection, ofp.OFPCR_ROLE_NOCHANGE)

    def look(self) -> None:
        self.state, self._looks = "asking", True
        self._xid = _ask(self._connection, ofp.OFPCR_ROLE_NOCHANGE)

    def reply(self, xid: int, role: int, generation: int) -> None:
        if xid != self._xid or self.state != "asking":
            return
        if role == ofp.OFPCR_ROLE_SLAVE:
            self.state = "aside"
        elif self._looks and role == ofp.OFPCR_ROLE_EQUAL and generation != NO_GENERATION:
            self._looks = False
            self._xid = _ask(self._connection, ofp.OFPCR_ROLE_SLAVE, generation)
        else:
            self.state = "waiting"

    def error(self, xid: int, code: tuple[int, int] | None, reason: str) -> None:
        """Handle an error message, as ``Mastership.error`` does."""
        if xid == self._xid and self.state == "asking":
            self.state, self.why = ("waiting", "") if code == _STALE else ("unsupported", reason)


class Loss:
    """Question for the generation id of a switch that has refused a write: ``asking``, then ``known`` as ``newer``."""

    def __init__(self, connection: Connection) -> None:
        self.state: Literal["asking", "known"] = "asking"
        self.newer = 0
        self._xid = _ask(connection, ofp.OFPCR_ROLE_NOCHANGE)

    def reply(self, xid: int, role: int, generation: int) -> None:  # noqa: ARG002
        if xid == self._xid:
            self.state, self.newer = "known", generation

    def error(self, xid: int, code: tuple[int, int] | None, reason: str) -> None:
        """Ignore an error message: the switch stays lost."""


def _ask(connection: Connection, role: int, generation: int = 0) -> int:
    return connection.send(encode.role_request(role, generation))[0]


@dataclass(slots=True)
class _Dpid:
    """Connections that claim one dpid."""

    holder: Connection
    """Connection that has the dpid."""
    since: float
    """Monotonic time since which the holder's connection exists for certain."""
    generation: int | None
    """Generation id of the newest claim; None if this controller does not hold the switch."""
    roles: Mastership | Standing | Loss | None
    """Claim of the master role, request for the role SLAVE or for the id after a loss; None once it is decided."""
    late_at: float
    """Monotonic time at which the log names the switch, unless it has answered the claim."""
    ends_at: float
    """Monotonic time at which the holder's connection ends, unless the switch has answered the claim."""
    waiting: list[Connection] = field(default_factory=list)
    """Later connections with the same dpid, the newest last."""
    asked: int | None = None
    """Transaction id of the echo request that the holder must answer; None if there is no such request."""
    ahead: int = 0
    """Generation id of the switch if it was lost and no controller can have such an id; else 0."""
    is_admitted: bool = False
    """Whether the holder's connection was admitted, and neither lost nor released since."""
    is_named: bool = False
    """Whether the holder's connection was admitted or lost, and not released since."""
    is_confirmed: bool = False
    """Whether the latest role reply confirmed the master role with ``generation``."""


class Admission:
    """Admission of all connections.

    ``holding``: generation ids of all claims. ``admit`` is called with each connection that may be used. ``lost`` is
    called with each connection to a switch whose master is another controller, and with whether the switch has refused
    a claim or a write of this one. Of the connections that were admitted, ``paused`` is called with one over which the
    switch is claimed anew: another holder may have written meanwhile, so nothing is written until ``admit`` or ``lost``
    is called. Of those that were admitted or lost, ``released`` is called with one whose switch this controller no
    longer holds. All these connections stay open. ``patience_s``: seconds after which a connection without an answer
    to the claim ends. ``is_ahead``: whether a generation id is too large for any controller. If that becomes known only
    after a loss, ``lost`` is called again."""

    def __init__(
        self,
        holding: Holding,
        patience_s: float,
        admit: Callable[[Connection], None],
        lost: Callable[[Connection, bool], None],
        paused: Callable[[Connection], None],
        released: Callable[[Connection], None],
        is_ahead: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._holding = holding
        self._is_ahead = is_ahead
        self._patience_s = patience_s
        self._admit = admit
        self._lost = lost
        self._paused = paused
        self._released = released
        self._dpids: dict[int, _Dpid] = {}
        self._version = holding.version

    @property
    def connected(self) -> frozenset[Dpid]:
        """Switches that have completed the handshake, held or not."""
        return frozenset(map(Dpid, self._dpids))

    def generation(self, dpid: Dpid) -> int:
        """Return the generation id of the newest claim of a switch; 0 if there is none."""
        entry = self._dpids.get(dpid)
        return entry.generation or 0 if entry else 0

    def connection(self, dpid: Dpid) -> Connection | None:
        """Return the connection that has the dpid, whether or not it may be used."""
        entry = self._dpids.get(dpid)
        return entry.holder if entry else None

    def is_master(self, dpid: Dpid) -> bool:
        """Return whether the switch has confirmed this controller as its master, with the present generation id."""
        entry = self._dpids.get(dpid)
        return bool(entry and entry.is_confirmed and entry.generation == self._holding.generation(dpid))

    def ahead(self, dpid: Dpid) -> int:
        """Return the generation id of a lost switch if no controller can have such an id; else 0."""
        entry = self._dpids.get(dpid)
        return entry.ahead if entry else 0

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
            newcomer.refuse(
                "duplicate_dpid", f"the switch at {connection.peer} has this dpid, {connection.id:#x}, and answers"
            )
        entry.waiting.clear()

    def role_reply(self, connection: Connection, xid: int, role: int, generation: int) -> None:
        entry = self._dpids.get(connection.id)
        if entry and entry.holder is connection and entry.roles:
            entry.roles.reply(xid, role, generation)
            self._decide(entry)

    def error(self, connection: Connection, xid: int, code: tuple[int, int] | None, reason: str) -> None:
        entry = self._dpids.get(connection.id)
        if entry is None or entry.holder is not connection:
            return
        if code == MASTERSHIP_LOST and entry.is_admitted and entry.roles is None:
            self._is_outbid(entry, refused=True)
        elif entry.roles:
            entry.roles.error(xid, code, reason)
            self._decide(entry)

    def demoted(self, connection: Connection) -> None:
        """Handle the report of a switch that it has another master now."""
        entry = self._dpids.get(connection.id)
        if entry and entry.holder is connection and entry.is_admitted and entry.roles is None:
            self._is_outbid(entry, refused=False)

    def tick(self, now: float) -> None:
        if self._version != self._holding.version:
            self._version = self._holding.version
            for entry in self._dpids.values():
                self._follow(entry, now)
        for entry in list(self._dpids.values()):
            roles = entry.roles
            if roles is None:
                continue
            if roles.state == "waiting":
                self._go_on(entry, now)
            elif entry.ends_at <= now:
                entry.holder.refuse(
                    "silent", f"no answer to the request for the master role within {self._patience_s:g} s"
                )
            elif entry.late_at <= now:
                entry.late_at = inf
                limited_log.warning(
                    "switch did not answer the request for the master role, and is not used",
                    dpid=f"{entry.holder.id:#x}",
                )

    def _follow(self, entry: _Dpid, now: float) -> None:
        """Begin a claim if the generation id has changed; ignore a smaller id, which is an outdated reading."""
        generation = self._holding.generation(Dpid(entry.holder.id))
        if generation == entry.generation or (generation or inf) < (entry.generation or 0):
            return
        entry.generation = generation
        if entry.is_admitted and generation is not None:
            self._paused(entry.holder)
        elif entry.is_named and generation is None:
            entry.is_admitted = entry.is_named = False
            self._released(entry.holder)
        self._begin(entry, now)

    def _go_on(self, entry: _Dpid, now: float) -> None:
        """Claim the switch, if that is possible by now, or ask it again for its generation id."""
        if isinstance(entry.roles, Mastership):
            if self._may_claim(entry):
                entry.roles.claim()
                entry.late_at, entry.ends_at = now + ROLES_WITHIN_S, now + self._patience_s
            elif entry.late_at <= now:
                entry.late_at = inf
                limited_log.warning(
                    "switch not claimed yet: it is not certain that this controller holds it",
                    dpid=f"{entry.holder.id:#x}",
                )
        elif isinstance(entry.roles, Standing) and entry.late_at <= now:
            entry.roles.look()
            entry.late_at, entry.ends_at = now + LOOK_AGAIN_S, now + self._patience_s

    def _may_claim(self, entry: _Dpid) -> bool:
        """Return whether the entry's generation id is certain. A thread may change it, so it is compared last."""
        dpid = Dpid(entry.holder.id)
        return self._holding.may_claim(dpid, entry.since) and self._holding.generation(dpid) == entry.generation

    def _take_dpid(self, connection: Connection, waiting: list[Connection], now: float) -> None:
        generation = self._holding.generation(Dpid(connection.id))
        entry = self._dpids[connection.id] = _Dpid(connection, now, generation, None, inf, inf, waiting)
        self._begin(entry, now)

    def _begin(self, entry: _Dpid, now: float) -> None:
        entry.is_confirmed = False
        if entry.generation is None:
            entry.roles = Standing(entry.holder)
        else:
            entry.roles = Mastership(entry.holder, entry.generation, self._may_claim(entry))
        entry.ahead, entry.late_at, entry.ends_at = 0, now + ROLES_WITHIN_S, now + self._patience_s

    def _give_up(self, entry: _Dpid, now: float) -> None:
        """Assign the dpid to the newest waiting connection: older connections may be half-open as well."""
        del self._dpids[entry.holder.id]
        if entry.waiting:
            *others, newest = entry.waiting
            self._take_dpid(newest, others, now)

    def _decide(self, entry: _Dpid) -> None:
        roles = entry.roles
        if roles is None or roles.state in ("asking", "waiting"):
            return
        entry.roles = None
        if not isinstance(roles, Standing) and roles.newer != NO_GENERATION and self._is_ahead(roles.newer):
            entry.ahead = roles.newer
        if isinstance(roles, Loss):
            if entry.ahead:
                self._is_lost(entry, refused=False)
        elif roles.state == "unsupported" and self._holding.is_shared:
            entry.holder.refuse(
                "no_roles",
                f"the switch has no roles, which it needs because several controllers divide the switches: {roles.why}",
            )
        elif isinstance(roles, Mastership):
            dpid = f"{entry.holder.id:#x}"
            if roles.state == "lost":
                limited_log.warning("switch has a newer master", dpid=dpid, why=roles.why)
                self._is_lost(entry, refused=True)
            else:
                if roles.state == "unsupported":
                    what = "switch has no roles, so any controller can write to it"
                    limited_log.warning(what, dpid=dpid, why=roles.why)
                entry.is_admitted, entry.is_confirmed = True, roles.state == "master"
                entry.is_named = True
                self._admit(entry.holder)
        if entry.waiting:
            self._ask_holder(entry)

    def _is_outbid(self, entry: _Dpid, refused: bool) -> None:
        """End the use of a switch that has another master, and ask it for its generation id."""
        self._is_lost(entry, refused)
        entry.roles, entry.late_at, entry.ends_at = Loss(entry.holder), inf, inf

    def _is_lost(self, entry: _Dpid, refused: bool) -> None:
        """End the use of a switch until its generation id here has grown, or it connects again."""
        entry.is_admitted = entry.is_confirmed = False
        entry.is_named = True
        self._lost(entry.holder, refused)

    def _ask_holder(self, entry: _Dpid) -> None:
        if entry.asked is None:
            entry.asked = entry.holder.send(message(ofp.OFPT_ECHO_REQUEST, b"signalbox"))[0]
