"""Members: the controllers that share a state in etcd. One has the claim of the state, the others stand by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

LinkFormats = tuple[int, int]
"""Oldest and newest format of the packets between members (``controller.link``) that a member reads and writes."""

LINK_FORMATS: LinkFormats = (1, 1)
"""Formats of this version.

A version raises the newest one if the other end must understand a change. While it may be linked to the version before
it, it also writes the format of that version. A change that the other end may ignore needs no new format: a message of
a new type, or a new field with a default. Messages of ``NamedTuple`` cannot have new fields."""


def common_format(one: LinkFormats, other: LinkFormats) -> int | None:
    """Return the newest format that both members read and write; None if there is none."""
    newest = min(one[1], other[1])
    return newest if newest >= max(one[0], other[0]) else None


@dataclass(frozen=True, slots=True)
class Member:
    """Controller that shares a state in etcd with others.

    ``id``: random text that identifies the process; when the process claims the state, the claim contains this text.
    ``api``: address at which it takes calls that other members forward while it is the leader, or empty. ``since``:
    start of the process in seconds since 1970, or 0 if unknown."""

    id: str
    name: str
    api: str
    version: str
    since: float
    format: int = 0
    """Newest format of the state that the member reads; 0 if unknown."""
    link: LinkFormats = (1, 1)
    alive: str = field(default="", compare=False)
    """Address of its sign of life (``store.sign_of_life``); empty if unknown."""


@dataclass(frozen=True, slots=True)
class Members:
    """Members at one moment.

    ``all``: those with a lease, ordered by name. ``leader``: member with the claim, as the claim describes it; None
    when nobody has it. ``began``: monotonic time in seconds just before the list was read. ``draining``: names of
    members that should hold no switch, also of absent members. ``absent``: for each member that was known and has no
    lease now, when it was seen last, in seconds since 1970."""

    all: tuple[Member, ...]
    leader: Member | None
    began: float
    draining: frozenset[str] = frozenset()
    absent: Mapping[str, float] = field(default_factory=dict)

    def linkable(self) -> list[Member]:
        """Return the members that read a format of the leader's packets, and so can hold switches."""
        leader = next((one for one in self.all if self.leader and one.id == self.leader.id), None)
        return [one for one in self.all if leader is None or common_format(one.link, leader.link)]


@dataclass(frozen=True, slots=True)
class MissingMembers:
    """Members that should be there. The leader's control loop gets this message when one is missing, or back.

    ``absent``: see ``Members``; without those that drain. ``unlinked``: names of members that have a lease, and no link
    to the leader."""

    absent: Mapping[str, float] = field(default_factory=dict)
    unlinked: frozenset[str] = frozenset()


NONE_MISSING = MissingMembers()

NO_MEMBERS = Members((), None, float("-inf"))
"""Members before the first reading."""


class Membership(Protocol):
    """Membership of this controller, readable by any thread."""

    changed: Callable[[], None]
    """Called after each reading, by the thread that reads."""

    @property
    def own(self) -> Member:
        """Member that this controller is."""

    @property
    def newest(self) -> Members:
        """Members when they were read last; empty before that."""

    def leader(self) -> Member | None:
        """Return the member with the claim, as the claim describes it.

        Returns None if nobody has the claim, or if the last reading is older than a lease."""

    def drain(self, name: str, drains: bool) -> None:
        """Save whether members of this name should hold no switch, and return when ``newest`` shows it.

        Only the leader may call it. Raises ``InvalidInput`` for an unknown name, ``Conflict`` if no other member would
        be left to hold switches, and ``Unavailable`` when etcd does not save it."""

    def forget(self, name: str) -> None:
        """Forget an absent member, and that it should hold no switch; return when ``newest`` shows it.

        Only the leader may call it. Raises ``InvalidInput`` for an unknown name, ``Conflict`` for a member that is
        there, and ``Unavailable`` when etcd does not save it."""
