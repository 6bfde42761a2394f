"""Judgement of ``controllers``: faults to make, who wrote without being the master, and what must hold after a case.

``Judge`` gets the messages between each switch and each member, in the order of their times on the switches' machine.
It relies on two facts of OpenFlow. A switch answers the messages of a connection in order, so a write is accepted if no
error arrives before the next barrier reply. A switch has one master; once the switch has confirmed a new master, it
must refuse every write of the former master.

Only the answer to a request for the role MASTER confirms a master. The answer to a question for the present role shows
the generation id of the switch, which any other client of the switch may have raised.

A case is one fault, or two that overlap. A *victim* is a member that cannot keep its switches because of a fault, so
that other members must take them over. Members can take over only while etcd has a majority, and an etcd with a new
leader restarts all leases. The time limits therefore count from the latest of three times: the fault of the victim, the
return of etcd's majority, and the failure of etcd's leader.

All functions are pure.
"""

import random
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Literal, NamedTuple

from benchmarks.openflow_bytes import HEADER, Type, xid_of
from controller.fabric.topology import Dpid
from signalbox.errors import InvalidInput

WRITES = (Type.FLOW_MOD, Type.GROUP_MOD, Type.METER_MOD)

ROLE = struct.Struct("!I4xQ")
MASTER = 2


class Claim(NamedTuple):
    """Confirmation by a switch that a member is its master."""

    at: float
    member: str
    dpid: Dpid
    generation: int


class Verdict(Enum):
    """Outcome of a write."""

    WRITTEN = "sent by the master"
    DEPOSED = "accepted from a member that was not the master"
    REFUSED = "refused by the switch"
    UNANSWERED = "sent by another member, whose connection ended before an answer"


@dataclass(slots=True)
class Write:
    """Message that changes rules of a switch."""

    at: float
    member: str
    dpid: Dpid
    kind: Type
    xid: int
    is_master: bool
    """Whether the sender was the switch's master, with the largest generation id that the switch has ever confirmed."""
    verdict: Verdict


class Seen(NamedTuple):
    """Message that ``trace`` replays. ``write``: set for a message that changes rules."""

    at: float
    member: str
    dpid: Dpid
    data: bytes
    write: Write | None = None


@dataclass(slots=True)
class _Connection:
    open: list[Write] = field(default_factory=list)
    """Writes after which no barrier request was sent yet."""
    barriers: dict[int, list[Write]] = field(default_factory=dict)
    """Writes before each barrier request that has no reply yet, by the request's transaction id."""
    claimed: set[int] = field(default_factory=set)
    """Transaction ids of the requests for the role MASTER that have no answer yet."""


class Judge:
    """All claims and writes of one run. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.claims: list[Claim] = []
        self.writes: list[Write] = []
        self.seen: list[Seen] = []
        self._connections: dict[tuple[str, Dpid], _Connection] = {}
        self._masters: dict[Dpid, _Connection] = {}
        """Connection whose claim each switch has confirmed with its newest generation id."""
        self._newest: dict[Dpid, int] = {}
        """Largest generation id that each switch has confirmed, also before its restarts."""

    def message(self, member: str, at: float, dpid: Dpid, data: bytes) -> None:
        kind, xid = data[1], xid_of(data)
        if kind in (Type.FEATURES_REPLY, Type.ROLE_REQUEST, Type.ROLE_REPLY, Type.ERROR):
            self.seen.append(Seen(at, member, dpid, data))
        if kind == Type.FEATURES_REPLY:
            self._connections[member, dpid] = _Connection()
        connection = self._connections.setdefault((member, dpid), _Connection())
        if kind == Type.ROLE_REQUEST:
            if ROLE.unpack_from(data, HEADER.size)[0] == MASTER:
                connection.claimed.add(xid)
        elif kind == Type.ROLE_REPLY:
            self._role(Claim(at, member, dpid, ROLE.unpack_from(data, HEADER.size)[1]), connection, data)
        elif kind in WRITES:
            is_master = self._masters.get(dpid) is connection
            write = Write(
                at, member, dpid, Type(kind), xid, is_master, Verdict.WRITTEN if is_master else Verdict.UNANSWERED
            )
            connection.open.append(write)
            self.writes.append(write)
            self.seen.append(Seen(at, member, dpid, data[: HEADER.size], write))
        elif kind == Type.BARRIER_REQUEST:
            connection.barriers[xid], connection.open = connection.open, []
        elif kind == Type.BARRIER_REPLY:
            for write in connection.barriers.pop(xid, ()):
                if write.verdict is Verdict.UNANSWERED:
                    write.verdict = Verdict.DEPOSED
        elif kind == Type.ERROR:
            for writes in (connection.open, *connection.barriers.values()):
                for write in writes:
                    if write.xid == xid:
                        write.verdict = Verdict.REFUSED

    def _role(self, claim: Claim, connection: _Connection, data: bytes) -> None:
        is_claim = xid_of(data) in connection.claimed
        connection.claimed.discard(xid_of(data))
        if ROLE.unpack_from(data, HEADER.size)[0] != MASTER:
            if self._masters.get(claim.dpid) is connection:
                del self._masters[claim.dpid]
        elif is_claim:
            self.claims.append(claim)
            if claim.generation >= self._newest.get(claim.dpid, 0):
                self._masters[claim.dpid], self._newest[claim.dpid] = connection, claim.generation

    def writes_in(self, start: float, end: float) -> list[Write]:
        return [write for write in self.writes if start <= write.at < end]

    def held_s(self, start: float, victims: Collection[str]) -> float | None:
        """Return the seconds from ``start`` until all switches of victims had a new master; None if one never had.

        A new master is a member whose claim, with a larger generation id, a switch confirmed at ``start`` or later."""
        before = {claim.dpid: claim for claim in self.claims if claim.at < start}
        lost = {dpid: claim.generation for dpid, claim in before.items() if claim.member in victims}
        first: dict[Dpid, float] = {}
        for claim in self.claims:
            if claim.at >= start and claim.generation > lost.get(claim.dpid, inf):
                first.setdefault(claim.dpid, claim.at)
        return max(first.values(), default=start) - start if first.keys() == lost.keys() else None


Who = Literal["leader", "standby", "etcd follower", "etcd leader", "etcd majority", "etcd", "Open vSwitch"]

PARTITIONS = ("cut off from", "mute to", "deaf to")
"""Ways to cut a member off from a peer: in both directions, or only for its own packets (mute) or the peer's (deaf)."""
TO_MEMBERS = tuple(f"{how} members" for how in PARTITIONS)
CUT_OFF = (*(f"{how} {peer}" for how in PARTITIONS for peer in ("etcd", "switches")), "cut off from all")
"""Partitions during which a member cannot keep its switches."""
CLOCKS = ("clock + 1 h", "clock - 1 h")

OF_MEMBERS = ("killed", "paused", *CUT_OFF, *TO_MEMBERS, *CLOCKS)
OF_ETCD = ("killed", "paused")
RESTORED = "restored"
"""Fault of etcd: a snapshot is saved, a member is killed, and then etcd and all members restart from the snapshot."""

KINDS: Sequence[tuple[Who, Sequence[str], int]] = (
    ("leader", OF_MEMBERS, 8),
    ("standby", OF_MEMBERS, 5),
    ("etcd follower", OF_ETCD, 1),
    ("etcd leader", OF_ETCD, 2),
    ("etcd majority", OF_ETCD, 2),
    ("etcd", (RESTORED,), 1),
    ("Open vSwitch", ("restarted",), 1),
)
"""Component that fails, its possible faults, and its weight in the random choice."""

BOTH = 1 / 3
"""Share of the cases that have two faults."""
LATEST_S = 2.0
"""Seconds from the first fault of a case until the second begins, at most."""
PAST_LEASE_S = (2.0, 5.0)
"""Range of the seconds by which a fault outlasts the lease; a member is paused for ``PAUSE_S`` instead."""
PAUSE_S = 30.0

ANSWER_S, HELD_S, WITH_ETCD_S = 2.0, 3.0, 5.0
"""Limits in seconds after the leader is killed: ``ANSWER_S`` for the first answer, ``HELD_S`` for all takeovers.

Both limits are at least ``WITH_ETCD_S`` if etcd's leader or majority fails."""
PAST_LIMIT_S = 1.0
"""Seconds after the end of a lease by which other members must have taken over from a member that does not run."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of a component. ``starts_s``: seconds after the case began. ``lasts_s``: seconds until the repair."""

    who: Who
    what: str
    starts_s: float
    lasts_s: float

    def __str__(self) -> str:
        return f"{self.who} {self.what}"

    @property
    def replaces(self) -> bool:
        """Whether the faulty member is a victim, whose switches other members must take over."""
        return self.who in ("leader", "standby") and self.what in ("killed", "paused", *CUT_OFF)

    @property
    def ends_s(self) -> float:
        return self.starts_s + self.lasts_s


Case = tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    replaced_s: float
    """Seconds after the start of the case at which the last victim fails."""
    since_s: float
    """Seconds after the start of the case at which the limits begin to count."""
    answer_s: float
    held_s: float | None
    """Limit in seconds until all switches of victims have a new master; None if no takeover is required."""


def draw(seed: int, count: int, lease_s: float) -> list[Case]:
    """Return ``count`` random cases. ``lease_s``: seconds until etcd ends a claim that is not renewed."""
    rng = random.Random(seed)
    return [_case(rng, lease_s) for _ in range(count)]


def single(text: str, lease_s: float) -> Case:
    """Return a case of the one fault that ``text`` names, such as "leader killed". Raises ``InvalidInput``."""
    for who, faults, _ in KINDS:
        for what in faults:
            fault = Fault(who, what, 0.0, _lasts_s(who, what, lease_s + PAST_LEASE_S[0]))
            if str(fault) == text:
                return (fault,)
    known = ", ".join(f"{who} {what}" for who, faults, _ in KINDS for what in faults)
    raise InvalidInput.of("only", f"{text!r} is no fault; choose from: {known}")


def _case(rng: random.Random, lease_s: float) -> Case:
    first = _fault(rng, lease_s, 0.0, ())
    if rng.random() >= BOTH or first.what == RESTORED:
        return (first,)
    return first, _fault(rng, lease_s, round(rng.uniform(0, LATEST_S), 1), (first.who,))


def _fault(rng: random.Random, lease_s: float, starts_s: float, taken: Collection[Who]) -> Fault:
    etcd = any(who.startswith("etcd") for who in taken)
    left = [kind for kind in KINDS if kind[0] not in taken and not (etcd and kind[0].startswith("etcd"))]
    left = [kind for kind in left if not (taken and RESTORED in kind[1])]
    [(who, faults, _)] = rng.choices(left, [weight for *_, weight in left])
    what = rng.choice(faults)
    return Fault(who, what, starts_s, _lasts_s(who, what, round(lease_s + rng.uniform(*PAST_LEASE_S), 1)))


def _lasts_s(who: Who, what: str, usual_s: float) -> float:
    return PAUSE_S if what == "paused" and who in ("leader", "standby") else usual_s


def limits(case: Case, lease_s: float) -> Limits:
    replaced = [fault for fault in case if fault.replaces]
    without_etcd = max((fault.ends_s for fault in case if fault.who in ("etcd majority", "etcd")), default=0.0)
    replaced_s = max((fault.starts_s for fault in replaced), default=0.0)
    new_leader = max((fault.starts_s for fault in case if fault.who == "etcd leader"), default=0.0)
    since_s = max(replaced_s, without_etcd, new_leader)
    if is_restored(case):
        return Limits(replaced_s, since_s, inf, None)  # all members start again
    slow = [fault for fault in replaced if (fault.who, fault.what) != ("leader", "killed")]
    answer_s = lease_s + PAST_LIMIT_S if any(fault.who == "leader" for fault in slow) else ANSWER_S
    held_s = lease_s + PAST_LIMIT_S if slow else HELD_S
    if any(fault.who in ("etcd leader", "etcd majority") for fault in case):
        answer_s, held_s = max(answer_s, WITH_ETCD_S), max(held_s, WITH_ETCD_S)
    # A victim that returns within the limit may keep its switches.
    gone = any(fault.what == "killed" or fault.ends_s > since_s + held_s for fault in replaced)
    return Limits(replaced_s, since_s, answer_s, held_s if gone and not rewrites(case) else None)


def is_restored(case: Case) -> bool:
    """Return whether etcd is restored from a snapshot, so that changes acknowledged since the snapshot are lost."""
    return any(fault.what == RESTORED for fault in case)


def loses_openflow(fault: Fault) -> bool:
    """Return whether the fault drops packets between a member and its switches."""
    return fault.what.endswith((" switches", " all"))


def rewrites(case: Case) -> bool:
    """Return whether switches restart: rules are then written again, flows may move, and packets are lost."""
    return any(fault.who == "Open vSwitch" for fault in case)


@dataclass(frozen=True, slots=True)
class Outcome:
    case: Case
    answered_s: float | None
    """Seconds from ``Limits.since_s`` until the first answer to a change requested since then; None without one."""
    held_s: float | None
    """Seconds from ``Limits.since_s`` until all switches of victims had a new master; None if a switch never had."""
    settled_s: float | None
    """Seconds from the last repair until everything was in order again; None if that never happened."""
    deposed: int
    """Number of writes that a switch accepted from a member that was not its master."""
    refused: int
    unanswered: int
    """Number of writes of members that were not the master, whose connections ended before the switch answered."""
    written: int
    """Number of rules that masters wrote, including groups and meters."""
    changed: Sequence[str]
    """Rules with their switches that existed only before the case (begins with ``-``) or only after it (``+``)."""
    jobs: Sequence[str]
    """Sentences about acknowledged registrations and changes that were lost."""
    handovers: int = 0
    """Number of confirmed claims."""
    not_in_model: Sequence[str] = ()
    """Descriptions of the steps that the model of assignments forbids (``trace``)."""
    sent: int = 0
    lost: int = 0
    """Number of the ``sent`` packets between hosts that did not arrive."""


def broken(outcome: Outcome, lease_s: float) -> list[str]:
    """Return a sentence for each requirement that the case violated."""
    within = limits(outcome.case, lease_s)
    found = []
    if outcome.deposed:
        found.append(f"{outcome.deposed} writes of a deposed member accepted")
    found += [*outcome.jobs, *outcome.not_in_model]
    if not rewrites(outcome.case):
        found += [f"{len(outcome.changed)} rules differ"] * bool(outcome.changed)
        found += [f"{outcome.written} rules written"] * bool(outcome.written)
        found += [f"{outcome.lost} packets lost"] * bool(outcome.lost)
    if outcome.answered_s is None:
        found.append(f"no change answered within {within.answer_s:g} s")
    elif outcome.answered_s > within.answer_s:
        found.append(f"first change answered after {outcome.answered_s:.1f} s, later than {within.answer_s:g} s")
    if within.held_s is not None and outcome.held_s is None:
        found.append(f"a switch has no new master within {within.held_s:g} s")
    elif within.held_s is not None and outcome.held_s is not None and outcome.held_s > within.held_s:
        found.append(f"the last switch has a new master after {outcome.held_s:.1f} s, later than {within.held_s:g} s")
    if outcome.settled_s is None:
        found.append("the site has not settled again")
    return found
