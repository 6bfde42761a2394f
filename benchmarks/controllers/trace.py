"""Replay of a run of ``controllers`` against the model of assignments (tests/model/assignment.pml).

The input is what the run recorded: the messages between switches and members, the restarts of all switches, and the
assignments in etcd. The result is the steps that the model forbids:

- a claim of a generation id that was not assigned to the member;
- a write before the member's newest claim is confirmed, or a write that a switch accepts from another member than its
  newest master;
- an answer of a switch that differs from the model's.

After a partition TCP repeats the lost packets first. An answer of a switch may therefore be recorded seconds after it
was made, when the state has changed since. Such a late answer is checked only against rules that hold at any time. All
functions are pure.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.controllers.judge import MASTER, ROLE, Seen, Verdict
from benchmarks.openflow_bytes import HEADER, Type, xid_of
from controller.fabric.topology import Dpid

NO_CHANGE, EQUAL, SLAVE = 0, 1, 3
NO_GENERATION = (1 << 64) - 1
STALE = bytes([0, 11, 0, 0])
"""Type and code of a switch's error that it knows a larger generation id (OpenFlow 1.3.5, section 7.4.4)."""
NAMES = {NO_CHANGE: "none", EQUAL: "EQUAL", MASTER: "MASTER", SLAVE: "SLAVE"}


class Assigned(NamedTuple):
    """Assignment of a switch. ``holder``: name of the member; ``process``: random id of its process."""

    dpid: Dpid
    generation: int
    holder: str
    process: str


class Late(NamedTuple):
    """Period, in monotonic seconds, in which a member's answers from any switch may be recorded late."""

    member: str
    begins: float
    ends: float


class Step(NamedTuple):
    """Event of the run that the model forbids."""

    at: float
    what: str


@dataclass(slots=True)
class _Connection:
    role: int = EQUAL
    has_claimed: bool = False
    """Whether the member's newest request was a claim, and the switch has confirmed it."""
    asked: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Role and generation id of each request that has no answer yet, by its transaction id."""

    @property
    def has_open_claim(self) -> bool:
        """Whether the switch has yet to answer a request that changes the member's role."""
        return any(role != NO_CHANGE for role, _ in self.asked.values())


@dataclass(slots=True)
class _Switch:
    generation: int | None = None
    confirmed: int = 0
    """Largest generation id that the switch has confirmed, also before its restarts."""
    connections: dict[str, _Connection] = field(default_factory=dict)

    def is_stale(self, generation: int) -> bool:
        """Return whether the switch refuses the id as older than its own (section 6.3.6: 64 bits, wrapping)."""
        return self.generation is not None and (generation - self.generation) % (1 << 64) >= 1 << 63

    def find_claim(self, least: int, most: int, late: Collection[str]) -> None:
        """Count a claim as confirmed whose confirmation is late, if its generation id is from ``least`` to ``most``.

        Another answer has just shown that the switch has such an id. ``late``: members whose answers may be late."""
        for member in self.connections.keys() & late:
            connection = self.connections[member]
            for xid, (role, generation) in list(connection.asked.items()):
                if role == MASTER and least <= generation <= most and not self.is_stale(generation):
                    list(_confirmed((role, generation), self, connection))
                    connection.asked[xid] = NO_CHANGE, generation


def steps_not_in_model(
    seen: Iterable[Seen], restarts: Iterable[float], assigned: Sequence[Assigned], late: Collection[Late] = ()
) -> list[Step]:
    """Return the steps that the model forbids. ``restarts``: times in seconds at which all switches restarted."""
    found = [Step(0.0, text) for text in _ambiguous(assigned)]
    holders = {(each.dpid, each.generation): each.holder for each in assigned}
    switches: dict[Dpid, _Switch] = {}
    pending = sorted(restarts, reverse=True)
    for message in sorted(seen, key=lambda each: each.at):
        while pending and pending[-1] <= message.at:
            pending.pop()
            for switch in switches.values():
                switch.generation = None
                switch.connections.clear()
        switch = switches.setdefault(message.dpid, _Switch())
        if message.data[1] == Type.FEATURES_REPLY:
            switch.connections[message.member] = _Connection()
        elif connection := switch.connections.get(message.member):
            where = f"switch {message.dpid:#x}, {message.member}: "
            late_now = {each.member for each in late if each.begins <= message.at < each.ends}
            found += [Step(message.at, where + text) for text in _step(message, switch, connection, holders, late_now)]
    return found


def _ambiguous(assigned: Sequence[Assigned]) -> Iterator[str]:
    first: dict[tuple[Dpid, int], Assigned] = {}
    for each in assigned:
        if first.setdefault((each.dpid, each.generation), each) != each:
            yield f"switch {each.dpid:#x}: two holders have the generation id {each.generation}"


def _step(
    message: Seen,
    switch: _Switch,
    connection: _Connection,
    holders: Mapping[tuple[Dpid, int], str],
    late: Collection[str],
) -> Iterator[str]:
    """Update the state by one message, and yield a sentence for each rule of the model that the message breaks."""
    xid = xid_of(message.data)
    if message.write:
        yield from _written(message.write.verdict, switch, connection)
        return
    if message.data[1] == Type.ERROR:
        asked = connection.asked.pop(xid, None)
        if asked is None or message.data[HEADER.size : HEADER.size + len(STALE)] != STALE:
            return
        switch.find_claim(asked[1] + 1, NO_GENERATION, late)
        if not switch.is_stale(asked[1]):
            yield f"the switch refuses the generation id {asked[1]}, although it has {switch.generation}"
        return
    role, generation = ROLE.unpack_from(message.data, HEADER.size)
    if message.data[1] == Type.ROLE_REQUEST:
        connection.asked[xid] = role, generation
        connection.has_claimed &= role == NO_CHANGE  # a master also asks for its role now and then
        if role == MASTER:
            if holders.get((message.dpid, generation)) != message.member:
                yield f"claims the generation id {generation}, which no assignment gave to it"
        elif role == SLAVE and (switch.generation is None or generation > switch.generation):
            yield f"takes the role SLAVE with the generation id {generation}, and the switch has {switch.generation}"
        return
    asked = connection.asked.pop(xid, None)
    if asked is None:
        yield "the switch answers a request for a role that no controller has made"
    elif asked[0] == NO_CHANGE and message.member in late:
        pass
    elif asked[0] == NO_CHANGE:
        switch.find_claim(generation, generation, late)
        expected = connection.role, NO_GENERATION if switch.generation is None else switch.generation
        if (role, generation) != expected:
            yield (f"the switch reports {NAMES.get(role)} and {generation}, not {NAMES[expected[0]]} and {expected[1]}")
    elif message.member in late and switch.is_stale(asked[1]):
        connection.role, connection.has_claimed = SLAVE, asked[0] == MASTER and not connection.has_open_claim
    else:
        yield from _confirmed(asked, switch, connection)


def _confirmed(asked: tuple[int, int], switch: _Switch, connection: _Connection) -> Iterator[str]:
    role, generation = asked
    if switch.is_stale(generation):
        yield f"the switch confirms the generation id {generation}, although it has {switch.generation}"
    switch.generation = generation
    if role == MASTER:
        for other in switch.connections.values():
            other.role = SLAVE if other.role == MASTER else other.role
        if generation < switch.confirmed:
            yield f"is confirmed with the generation id {generation} after {switch.confirmed}"
        switch.confirmed = max(switch.confirmed, generation)
    connection.role, connection.has_claimed = role, role == MASTER and not connection.has_open_claim


def _written(verdict: Verdict, switch: _Switch, connection: _Connection) -> Iterator[str]:
    if not connection.has_claimed:
        yield "writes before the switch has confirmed its newest claim"
    is_accepted = verdict in (Verdict.WRITTEN, Verdict.DEPOSED)
    if is_accepted and (connection.role != MASTER or switch.generation != switch.confirmed):
        yield "the switch accepts a write of a member that is not its newest holder"
