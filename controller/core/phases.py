"""The phases of the controller, as a table, and what moves it from one to the next. Pure.

*Adopting*: after a start, what switches hold counts for more than what the controller knows, and nothing is deleted or
narrowed until every link that installed rules name has been seen, or no further switch has connected for
``adoption_patience_s``. Rules that lead to unknown hosts stay for one lease more
(docs/explanation/restart-and-repair.md). The same holds after a large part of the switches has left together: a switch
that dies takes its ports down, which its neighbours report at once, but a connection may also end because of the
control network, while packets still flow. So a switch is given up ``GRACE_S`` after its connection ended, and
when many leave together none is given up.

*Steady*: rules follow from the fabric and the routes. After links were lost, first *removing next hops*, then
*repairing*: rules are not derived anew meanwhile, for ``HURRY_S`` at most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum, auto

from controller.fabric.topology import Dpid, Fabric, Link, LinkId, PortRef, is_up
from controller.histogram import Histogram
from controller.tables.rules import RuleSet

HURRY_S = 0.1
"""How long the full derivation of rules waits, at most, for the switches to confirm the removal of lost next hops, and
then for a repair of the routes."""
GRACE_S = 0.1
"""From the end of a connection until its switch is given up."""
TOGETHER_S = 1.0
"""Switches that leave within this time leave together."""
MANY_FRACTION = 0.25
MANY_AT_LEAST = 3
MOST_PATIENCES = 8
"""The longest adoption, in multiples of its patience. Every new switch starts the patience again, so a peer that
connects with one dpid after another could otherwise keep the controller from planning for ever."""


class Phase(Enum):
    ADOPTING = auto()
    STEADY = auto()
    REMOVING_NEXT_HOPS = auto()
    REPAIRING = auto()


class Input(Enum):
    """What moves the controller from phase to phase."""

    ADOPTION_NEEDED = auto()
    ADOPTED = auto()
    NEXT_HOPS_REMOVED = auto()
    REPAIR_ASKED = auto()
    REPAIR_ANSWERED = auto()
    ALL_CONFIRMED = auto()
    TIME_OVER = auto()


_A, _S, _N, _R = Phase.ADOPTING, Phase.STEADY, Phase.REMOVING_NEXT_HOPS, Phase.REPAIRING

NEXT: Mapping[tuple[Phase, Input], Phase] = {
    (_A, Input.ADOPTION_NEEDED): _A,
    (_A, Input.ADOPTED): _S,
    (_S, Input.ADOPTION_NEEDED): _A,
    (_S, Input.NEXT_HOPS_REMOVED): _N,
    (_S, Input.REPAIR_ASKED): _R,
    (_N, Input.ADOPTION_NEEDED): _A,
    (_N, Input.NEXT_HOPS_REMOVED): _N,
    (_N, Input.ALL_CONFIRMED): _S,
    (_N, Input.TIME_OVER): _S,
    (_R, Input.ADOPTION_NEEDED): _A,
    (_R, Input.NEXT_HOPS_REMOVED): _N,
    (_R, Input.REPAIR_ANSWERED): _N,
    (_R, Input.TIME_OVER): _S,
}
"""The legal transitions. Any other pair is a bug of the caller."""


class IllegalTransition(RuntimeError):
    """The input cannot happen in the phase of the controller."""


class Phases:
    """Which phase the controller is in. ``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self.phase = Phase.ADOPTING
        self._hurry_until = math.inf

    @property
    def adopting(self) -> bool:
        return self.phase is Phase.ADOPTING

    @property
    def urgent(self) -> bool:
        """Lost links are being answered: what can wait does."""
        return self.phase in (Phase.REMOVING_NEXT_HOPS, Phase.REPAIRING)

    @property
    def awaits_confirmation(self) -> bool:
        """Whether rules are derived again as soon as the switches have confirmed that next hops are gone."""
        return self.phase is Phase.REMOVING_NEXT_HOPS

    @property
    def awaits_repair(self) -> bool:
        """Whether rules are derived again after the answer of the planner."""
        return self.phase is Phase.REPAIRING

    def take(self, happened: Input, now: float) -> None:
        """Go to the next phase. Raises ``IllegalTransition`` for an input that the present one does not have."""
        if (self.phase, happened) not in NEXT:
            raise IllegalTransition(f"{happened.name} in the phase {self.phase.name}")
        self.phase = NEXT[self.phase, happened]
        if happened in (Input.NEXT_HOPS_REMOVED, Input.REPAIR_ASKED):
            self._hurry_until = now + HURRY_S

    def pass_time(self, now: float) -> None:
        """Ends what has lasted for ``HURRY_S``."""
        if self.urgent and now >= self._hurry_until:
            self.take(Input.TIME_OVER, now)


class Adoption:
    """``unknown_kept_until``: monotonic seconds until which rules that lead to unknown hosts are kept; infinite until
    the first adoption is over, minus infinite after that lease. ``expects_rules``: the saved state shows that this is a
    restart."""

    def __init__(self, patience_s: float, orphan_lease_s: float, expects_rules: bool, now: float) -> None:
        self.unknown_kept_until = math.inf
        self._patience_s = patience_s
        self._orphan_lease_s = orphan_lease_s
        self._expects_rules = expects_rules
        self._begun = self._since = now
        self._connected_since: set[Dpid] = set()
        self._read: set[Dpid] = set()

    @property
    def is_first(self) -> bool:
        """The lease that began with the first adoption is not over."""
        return self.unknown_kept_until > -math.inf

    def begin(self, now: float) -> None:
        self._begun = self._since = now
        self._connected_since.clear()

    def switch_connected(self, dpid: Dpid, now: float) -> None:
        """Others may follow: the patience begins anew. A switch that connects again and again counts once."""
        if dpid not in self._connected_since:
            self._connected_since.add(dpid)
            self._since = now

    def rules_read(self, dpid: Dpid, rules: RuleSet, now: float) -> bool:
        """Whether another adoption has to begin: a switch that is read for the first time holds rules that others may
        depend on, and the lease of the first adoption is not over."""
        late = dpid not in self._read
        self._read.add(dpid)
        return late and bool(rules.flows) and now < self.unknown_kept_until

    def is_complete(self, fabric: Fabric, installed: Mapping[Dpid, RuleSet], all_read: bool, now: float) -> bool:
        """Whether what the switches hold can be adopted: every link that rules name has been seen, or the patience is
        over. ``installed``: of every switch that was read; ``all_read``: these are all that are connected. After a
        restart empty switches are not complete: the others with rules are still to come."""
        held = {dpid: rules.group_ports for dpid, rules in installed.items()}
        links_seen = all(
            LinkId(dpid, port) in fabric.links or not is_up(fabric.switches, PortRef(dpid, port))
            for dpid, ports in held.items()
            for port in ports
        )
        complete = all_read and links_seen and (any(held.values()) or not self._expects_rules)
        return complete or now >= min(self._since + self._patience_s, self._begun + MOST_PATIENCES * self._patience_s)

    def end(self, now: float) -> None:
        if self.unknown_kept_until == math.inf:
            self.unknown_kept_until = now + self._orphan_lease_s

    def lease_over(self, now: float) -> bool:
        """True once, when rules that no registered job has claimed need not be kept any more."""
        over = -math.inf < self.unknown_kept_until <= now
        if over:
            self.unknown_kept_until = -math.inf
        return over


class Departures:
    """Switches whose connection has ended and whose links are not given up yet. ``now`` is monotonic seconds."""

    def __init__(self) -> None:
        self._waiting: dict[Dpid, float] = {}
        self._left_at: dict[Dpid, float] = {}

    def left(self, dpid: Dpid, fabric: Fabric, now: float) -> bool:
        """Whether a large part of the ``fabric``, which still has this switch, has left together. A switch without a
        link does not count: one that connects and leaves again and again could otherwise stop all planning."""
        self._waiting[dpid] = now
        self._left_at = {dpid: at for dpid, at in self._left_at.items() if at > now - TOGETHER_S}
        if not any(link.dpid == dpid for link in fabric.links):
            return False
        self._left_at[dpid] = now
        return len(self._left_at) >= max(MANY_AT_LEAST, MANY_FRACTION * len(fabric.switches))

    @property
    def waiting(self) -> bool:
        """Some switches have left and are not given up yet."""
        return bool(self._waiting)

    def returned(self, dpid: Dpid) -> None:
        self._waiting.pop(dpid, None)

    def due(self, now: float) -> list[Dpid]:
        """The switches to give up now."""
        due = [dpid for dpid, at in self._waiting.items() if at <= now - GRACE_S]
        for dpid in due:
            del self._waiting[dpid]
        return due


class LinkLosses:
    """``before``: the links before the last call of ``lost``. ``repair_s``: from the moment that a loss was known until
    the switches had confirmed the repaired routes, None until then; ``repair_times``: all of these. ``now`` is
    monotonic seconds."""

    def __init__(self) -> None:
        self.before: Mapping[LinkId, Link] = {}
        self.repair_s: float | None = None
        self.repair_times = Histogram()
        self._links: Mapping[LinkId, Link] = {}
        self._unrouted: frozenset[LinkId] = frozenset()
        self._broken_since: float | None = None

    def lost(self, links: Mapping[LinkId, Link]) -> list[LinkId]:
        """The links that have been lost since the last call."""
        self.before, self._links = self._links, links
        return [] if self.before is links else [link for link in self.before if link not in links]

    @property
    def broken(self) -> bool:
        """Since a loss the switches have not confirmed routes without lost links."""
        return self._broken_since is not None

    def break_more_routes(self, unrouted: frozenset[LinkId], now: float) -> bool:
        """Whether routes use more lost links than at the last call. ``unrouted``: all that they use."""
        more, self._unrouted = unrouted - self._unrouted, unrouted
        if more and self._broken_since is None:
            self.repair_s, self._broken_since = None, now
        return bool(more)

    def all_confirmed(self, now: float) -> None:
        """The switches hold what they should."""
        if not self._unrouted and self._broken_since is not None:
            self.repair_s, self._broken_since = now - self._broken_since, None
            self.repair_times = self.repair_times.observed(self.repair_s)
