"""Admission of connections after their handshake: one per dpid, with the controller as master. Sans-IO.

In: connections, and their replies. Out: calls of ``admit`` with the connections that may be used. ``now`` is in
monotonic seconds.

When a second connection has the dpid of an existing one, the controller sends an echo request over the existing one. If
a reply arrives, the second connection is refused. Without a reply, the existing connection ends after the usual number
of echo requests, and the second connection replaces it. So a busy switch that replies late does not lose its dpid to
another switch.

Only one controller, the *holder* of a switch, may write to it. The holder claims the role MASTER (OpenFlow 1.3.5
sections 6.3.5 and 7.3.9) with the generation id in ``Holding``. The holder writes nothing before the switch has
confirmed the role. Any other controller requests the role SLAVE. docs/explanation/several-controllers.md#assignment
explains the rules; ``tests/model`` is their model. Three rules decide most of the code:

- A holder that may have been replaced (``Holding.may_claim``) first asks the switch for its generation id. The holder
  claims the switch only if the switch answers the holder's own id. A switch that restarts forgets its id, but a restart
  ends the connection: the answer is still valid when the claim arrives.
- A lost switch is claimed again, over the same connection, only when its generation id in ``Holding`` changes.
- Until a switch has a generation id, its connection keeps the role EQUAL and is not used.

A switch that does not support roles accepts the messages of every controller. If several controllers divide the
switches (``Holding.is_shared``), its connections are ended.
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
"""Seconds after which the log names a switch that has not answered the claim, or cannot be claimed yet."""

CHECK_S = 30.0
"""Seconds between two requests that ask a switch of this controller for its present master and generation id."""

LOOK_AGAIN_S = 1.0
"""Seconds until a controller that is not the holder repeats its request to a switch without a generation id."""

MASTERSHIP_LOST = (ofp.OFPET_BAD_REQUEST, ofp.OFPBRC_IS_SLAVE)
"""Type and code of the error with which a switch refuses a write, because its master is another controller."""

NO_GENERATION = (1 << 64) - 1
"""Generation id in the reply of a switch that has none (section 7.3.9)."""

_STALE = (ofp.OFPET_ROLE_REQUEST_FAILED, ofp.OFPRRFC_STALE)


class Mastership:
    """Claim of the master role for one switch.

    ``state`` has one of these values:

    - ``waiting``: the controller may not claim the switch yet.
    - ``asking``: the switch has not answered a request yet.
    - ``master``: the switch has confirmed the role.
    - ``lost``: a controller with a newer generation id has claimed the switch. ``newer`` is this id.
    - ``unsupported``: the switch does not support roles.

    ``why``: reason of the states ``lost`` and ``unsupported``. ``may_claim``: see ``Holding``."""

    def __init__(self, connection: Connection, generation: int, may_claim: bool) -> None:
        self.state: Literal["waiting", "asking", "master", "lost", "unsupported"] = "asking"
        self.why = ""
        self.newer = 0
        self._connection = connection
        self._generation = generation
        self._is_stale = False
        self._looks = not may_claim
        """Whether the request under way only reads the generation id of the switch."""
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
    """Request for the role SLAVE, by a controller that is not the holder.

    ``state`` has one of these values:

    - ``asking``: the switch has not answered a request yet.
    - ``aside``: the switch has given this controller the role SLAVE.
    - ``waiting``: the switch has no generation id yet, or this controller is still its master.
    - ``unsupported``: the switch does not support roles; ``why`` is the reason."""

    def __init__(self, connection: Connection) -> None:
        self.state: Literal["waiting", "asking", "aside", "unsupported"] = "asking"
        self.why = ""
        self._connection = connection
        self._looks = True
        """Whether the request under way only reads role and generation id."""
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
    """Request for the generation id of a switch that has refused a write.

    ``newer``: the id that the switch has answered."""

    def __init__(self, connection: Connection) -> None:
        self.state: Literal["asking", "known"] = "asking"
        self.newer = 0
        self._xid = _ask(connection, ofp.OFPCR_ROLE_NOCHANGE)

    def reply(self, xid: int, role: int, generation: int) -> None:  # noqa: ARG002
        if xid == self._xid:
            self.state, self.newer = "known", generation

    def error(self, xid: int, code: tuple[int, int] | None, reason: str) -> None:
        """Ignore an error message, since the switch stays lost."""


def _ask(connection: Connection, role: int, generation: int = 0) -> int:
    return connection.send(encode.role_request(role, generation))[0]


@dataclass(slots=True)
class _Dpid:
    """Connections that have the same dpid."""

    holder: Connection
    since: float
    """Monotonic time since which this connection has certainly existed."""
    generation: int | None
    """Generation id of the newest claim; None if this controller is not the holder of the switch."""
    roles: Mastership | Standing | Loss | None
    """Request under way about the role of this controller; None once its result is known."""
    late_at: float
    """Monotonic time at which the log names the switch, if it has not answered the request by then."""
    ends_at: float
    """Monotonic time at which the connection ends, if the switch has not answered the request by then."""
    waiting: list[Connection] = field(default_factory=list)
    asked: int | None = None
    """Transaction id of the echo request that the connection with the dpid must answer; None if there is none."""
    newer: int = 0
    """Generation id of a lost switch; 0 while it is unknown."""
    is_raised: bool = False
    """Whether the switch has answered the latest check with another id than this controller's."""
    checked: int | None = None
    """Transaction id of the latest check (``CHECK_S``); None if there is none, or it was answered."""
    check_at: float = inf
    """Monotonic time of the next check."""
    is_admitted: bool = False
    """Whether the connection was admitted, and neither lost nor released since then."""
    is_named: bool = False
    """Whether the connection was admitted or lost, and not released since then."""
    is_confirmed: bool = False
    """Whether the latest role reply has confirmed the master role with ``generation``."""


class Admission:
    """Admission of all connections.

    ``holding``: generation ids of all claims. ``patience_s``: seconds after which a connection ends if the switch has
    not answered a request. ``is_ahead``: returns whether a generation id is larger than any controller's.

    These functions are called with a connection:

    - ``admit``: the connection may be used from now on.
    - ``lost``: the switch's master is another controller. The second argument is whether the switch has refused a claim
      or a write of this controller. The function is called a second time if ``is_ahead`` is true for the switch's
      generation id.
    - ``paused``: the connection was admitted, and its switch is being claimed anew. Another holder may have written
      meanwhile, so nothing may be written until ``admit`` or ``lost`` is called.
    - ``released``: the connection was admitted or lost, and this controller is no longer the holder.
    - ``raised``: this controller is the switch's master, but another one has changed the switch's generation id to the
      second argument. The function is called once more when the id is this controller's again.

    Connections stay open after all of these calls."""

    def __init__(
        self,
        holding: Holding,
        patience_s: float,
        admit: Callable[[Connection], None],
        lost: Callable[[Connection, bool], None],
        paused: Callable[[Connection], None],
        released: Callable[[Connection], None],
        raised: Callable[[Connection, int], None],
        is_ahead: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._holding = holding
        self._is_ahead = is_ahead
        self._patience_s = patience_s
        self._admit = admit
        self._lost = lost
        self._paused = paused
        self._released = released
        self._raised = raised
        self._dpids: dict[int, _Dpid] = {}
        self._version = holding.version

    @property
    def connected(self) -> frozenset[Dpid]:
        """Switches that have completed the handshake, even those whose master is another controller."""
        return frozenset(map(Dpid, self._dpids))

    def generation(self, dpid: Dpid) -> int:
        """Return the generation id of the newest claim of a switch; 0 if there is none."""
        entry = self._dpids.get(dpid)
        return entry.generation or 0 if entry else 0

    def asks(self, dpid: Dpid) -> bool:
        """Return whether the switch has a request about roles to answer."""
        entry = self._dpids.get(dpid)
        return bool(entry and entry.roles and entry.roles.state == "asking")

    def connection(self, dpid: Dpid) -> Connection | None:
        """Return the connection with the dpid, even if it may not be used."""
        entry = self._dpids.get(dpid)
        return entry.holder if entry else None

    def is_master(self, dpid: Dpid) -> bool:
        """Return whether the switch has confirmed this controller as its master, with the present generation id."""
        entry = self._dpids.get(dpid)
        return bool(entry and entry.is_confirmed and entry.generation == self._holding.generation(dpid))

    def newer(self, dpid: Dpid) -> int:
        """Return the generation id of a lost switch; 0 while it is unknown."""
        entry = self._dpids.get(dpid)
        return entry.newer if entry else 0

    def ahead(self, dpid: Dpid) -> int:
        """Return the generation id of a lost switch if it is larger than any controller's; else 0."""
        newer = self.newer(dpid)
        return newer if self._is_ahead(newer) else 0

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
                "duplicate_dpid",
                f"the switch at {connection.peer} already has the dpid {connection.id:#x} and still answers",
            )
        entry.waiting.clear()

    def role_reply(self, connection: Connection, xid: int, role: int, generation: int) -> None:
        entry = self._dpids.get(connection.id)
        if entry is None or entry.holder is not connection:
            return
        if entry.checked == xid:
            entry.checked = None
            self._decide_check(entry, role, generation)
        elif entry.roles:
            entry.roles.reply(xid, role, generation)
            self._decide(entry)

    def error(self, connection: Connection, xid: int, code: tuple[int, int] | None, reason: str) -> None:
        entry = self._dpids.get(connection.id)
        if entry is None or entry.holder is not connection:
            return
        if code == MASTERSHIP_LOST and entry.is_admitted and entry.roles is None:
            self._has_other_master(entry, refused=True)
        elif entry.roles:
            entry.roles.error(xid, code, reason)
            self._decide(entry)

    def demoted(self, connection: Connection) -> None:
        """Handle the report of a switch that its master is another controller now."""
        entry = self._dpids.get(connection.id)
        if entry and entry.holder is connection and entry.is_admitted and entry.roles is None:
            self._has_other_master(entry, refused=False)

    def tick(self, now: float) -> None:
        if self._version != self._holding.version:
            self._version = self._holding.version
            for entry in self._dpids.values():
                self._follow(entry, now)
        for entry in list(self._dpids.values()):
            roles = entry.roles
            if roles is None:
                if entry.is_confirmed and entry.check_at <= now:
                    entry.checked, entry.check_at = _ask(entry.holder, ofp.OFPCR_ROLE_NOCHANGE), now + CHECK_S
            elif roles.state == "waiting":
                self._claim_or_ask_again(entry, now)
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
        """Begin a new request if the generation id in ``Holding`` has grown; a smaller id is outdated and ignored."""
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

    def _claim_or_ask_again(self, entry: _Dpid, now: float) -> None:
        if isinstance(entry.roles, Mastership):
            if self._may_claim(entry):
                entry.roles.claim()
                entry.late_at, entry.ends_at = now + ROLES_WITHIN_S, now + self._patience_s
            elif entry.late_at <= now:
                entry.late_at = inf
                limited_log.warning(
                    "switch not claimed yet: it may have been assigned to another controller",
                    dpid=f"{entry.holder.id:#x}",
                )
        elif isinstance(entry.roles, Standing) and entry.late_at <= now:
            entry.roles.look()
            entry.late_at, entry.ends_at = now + LOOK_AGAIN_S, now + self._patience_s

    def _may_claim(self, entry: _Dpid) -> bool:
        """Return whether this controller is certain that it may claim the switch with the entry's generation id.

        The id is compared after the call of ``Holding.may_claim``, because another thread may change the id during the
        call."""
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
        entry.newer, entry.is_raised, entry.checked, entry.check_at = 0, False, None, now + CHECK_S
        entry.late_at, entry.ends_at = now + ROLES_WITHIN_S, now + self._patience_s

    def _give_up(self, entry: _Dpid, now: float) -> None:
        """Assign the dpid to the newest waiting connection, since older ones may be half-open."""
        del self._dpids[entry.holder.id]
        if entry.waiting:
            *others, newest = entry.waiting
            self._take_dpid(newest, others, now)

    def _decide(self, entry: _Dpid) -> None:
        roles = entry.roles
        if roles is None or roles.state in ("asking", "waiting"):
            return
        entry.roles = None
        if not isinstance(roles, Standing) and roles.newer != NO_GENERATION:
            entry.newer = roles.newer
        if isinstance(roles, Loss):
            if self._is_ahead(entry.newer):
                self._stop_using(entry, refused=False)
        elif roles.state == "unsupported" and self._holding.is_shared:
            entry.holder.refuse(
                "no_roles",
                f"the switch does not support OpenFlow roles, which several controllers need: {roles.why}",
            )
        elif isinstance(roles, Mastership):
            dpid = f"{entry.holder.id:#x}"
            if roles.state == "lost":
                limited_log.warning("switch has a newer master", dpid=dpid, why=roles.why)
                self._stop_using(entry, refused=True)
            else:
                if roles.state == "unsupported":
                    what = "switch does not support OpenFlow roles, so any controller can write to it"
                    limited_log.warning(what, dpid=dpid, why=roles.why)
                entry.is_admitted, entry.is_confirmed = True, roles.state == "master"
                entry.is_named = True
                self._admit(entry.holder)
        if entry.waiting:
            self._ask_holder(entry)

    def _decide_check(self, entry: _Dpid, role: int, generation: int) -> None:
        if not entry.is_confirmed or entry.roles:
            return
        if role != ofp.OFPCR_ROLE_MASTER:
            self._has_other_master(entry, refused=False)
        elif generation != entry.generation or entry.is_raised:
            entry.is_raised = generation != entry.generation
            self._raised(entry.holder, generation)

    def _has_other_master(self, entry: _Dpid, refused: bool) -> None:
        self._stop_using(entry, refused)
        entry.roles, entry.late_at, entry.ends_at = Loss(entry.holder), inf, inf

    def _stop_using(self, entry: _Dpid, refused: bool) -> None:
        """Stop using a switch until its generation id in ``Holding`` grows, or the switch connects again."""
        entry.is_admitted = entry.is_confirmed = False
        entry.is_named = True
        self._lost(entry.holder, refused)

    def _ask_holder(self, entry: _Dpid) -> None:
        if entry.asked is None:
            entry.asked = entry.holder.send(message(ofp.OFPT_ECHO_REQUEST, b"signalbox"))[0]
