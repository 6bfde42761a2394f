"""Judge of the messages that reached the switches: who wrote, who was allowed to, and when switches took a master.

In: the messages between every switch and every member, in the order of their times, as the switches' machine sent and
received them. Out: claims and writes. Pure.

A switch answers the messages of one connection in their order. A write without an error before the next barrier reply
was therefore accepted. After the reply that made another connection the master, every write must be refused.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from benchmarks.openflow_bytes import HEADER, Type, xid_of
from controller.fabric.topology import Dpid

WRITES = (Type.FLOW_MOD, Type.GROUP_MOD, Type.METER_MOD)
"""Messages that change rules of a switch."""

_ROLE = struct.Struct("!I4xQ")
_MASTER = 2


class Claim(NamedTuple):
    """Reply of a switch that made a member its master."""

    at: float
    member: str
    dpid: Dpid
    generation: int


class Verdict(Enum):
    """Verdict about a write."""

    WRITTEN = "sent by the master"
    DEPOSED = "accepted from a member that was not the master"
    REFUSED = "refused by the switch"
    UNANSWERED = "sent by another member, whose connection ended before an answer"


@dataclass(slots=True)
class Write:
    """Message that changes rules."""

    at: float
    member: str
    dpid: Dpid
    kind: Type
    xid: int
    is_master: bool
    """Whether the member was the switch's master, and the switch never had one with a larger generation id."""
    verdict: Verdict


@dataclass(slots=True)
class _Connection:
    open: list[Write] = field(default_factory=list)
    """Writes without an answer."""
    barriers: dict[int, list[Write]] = field(default_factory=dict)
    """Writes before each barrier request, by its transaction id."""


class Judge:
    """Record of one run. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.claims: list[Claim] = []
        self.writes: list[Write] = []
        self._connections: dict[tuple[str, Dpid], _Connection] = {}
        self._masters: dict[Dpid, tuple[_Connection, int]] = {}
        """Connection and generation id of the master of each switch."""
        self._newest: dict[Dpid, int] = {}
        """Largest generation id that each switch ever had; the switch forgets it when it restarts."""

    def message(self, member: str, at: float, dpid: Dpid, data: bytes) -> None:
        kind, xid = data[1], xid_of(data)
        if kind == Type.FEATURES_REPLY:
            self._connections[member, dpid] = _Connection()
        connection = self._connections.setdefault((member, dpid), _Connection())
        if kind == Type.ROLE_REPLY:
            self._role(Claim(at, member, dpid, _ROLE.unpack_from(data, HEADER.size)[1]), connection, data)
        elif kind in WRITES:
            is_master = self._is_master(connection, dpid)
            write = Write(
                at, member, dpid, Type(kind), xid, is_master, Verdict.WRITTEN if is_master else Verdict.UNANSWERED
            )
            connection.open.append(write)
            self.writes.append(write)
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
        if _ROLE.unpack_from(data, HEADER.size)[0] == _MASTER:
            self.claims.append(claim)
            self._masters[claim.dpid] = connection, claim.generation
            self._newest[claim.dpid] = max(claim.generation, self._newest.get(claim.dpid, 0))
        elif self._masters.get(claim.dpid, (None,))[0] is connection:
            del self._masters[claim.dpid]

    def _is_master(self, connection: _Connection, dpid: Dpid) -> bool:
        master, generation = self._masters.get(dpid, (None, 0))
        return master is connection and generation >= self._newest[dpid]

    def writes_in(self, start: float, end: float) -> list[Write]:
        return [write for write in self.writes if start <= write.at < end]

    def held_s(self, start: float, dpids: Collection[Dpid]) -> float | None:
        """Return the seconds from ``start`` until the last of the switches had a master; None if one never had."""
        first: dict[Dpid, float] = {}
        for claim in self.claims:
            if claim.at >= start:
                first.setdefault(claim.dpid, claim.at)
        return max(first[dpid] for dpid in dpids) - start if first.keys() >= set(dpids) else None
