"""Members: controllers that share a state in etcd. The leader has the claim of the state, and the others stand by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

LinkFormats = tuple[int, int]
"""Oldest and newest format of packets between members (``controller.link``) that a member can read and write."""

LINK_FORMATS: LinkFormats = (1, 1)
"""Packet formats that this version can read and write.

A change that the other end of a link must understand needs a new format: the newest format is raised by 1. The new
version must still be able to write the format of the previous version, for links to members that have not been upgraded
yet. A change that the other end may ignore (a new type of message, or a new field with a default) needs no new format.
Messages that are ``NamedTuple`` cannot have new fields."""


def common_format(one: LinkFormats, other: LinkFormats) -> int | None:
    """Return the newest format that both members can read and write; None if there is none."""
    newest = min(one[1], other[1])
    return newest if newest >= max(one[0], other[0]) else None


@dataclass(frozen=True, slots=True)
class Member:
    """Controller that shares a state in etcd with others.

    ``id``: random text that identifies the process, also in its claim. ``api``: address for calls that other members
    forward while this member is the leader; empty if it has none. ``since``: start of the process in seconds since
    1970; 0 if unknown."""

    id: str
    name: str
    api: str
    version: str
    since: float
    format: int = 0
    """Newest format of the saved state that the member can read; 0 if unknown."""
    link: LinkFormats = (1, 1)
    alive: str = field(default="", compare=False)
    """Address of the member's sign of life (``store.sign_of_life``); empty if unknown."""


@dataclass(frozen=True, slots=True)
class Members:
    """Members at one moment.

    - ``all``: members with a lease, ordered by name.
    - ``leader``: member that has the claim of the state; None if no member has it. Only the fields ``id``, ``name`` and
      ``api`` are set, because the claim contains no others.
    - ``began``: monotonic time in seconds at which reading the members began.
    - ``draining``: names of members, present or absent, that should be the holder of no switch.
    - ``absent``: for each known member without a lease, by name, the time when it was last present, in seconds since
      1970."""

    all: tuple[Member, ...]
    leader: Member | None
    began: float
    draining: frozenset[str] = frozenset()
    absent: Mapping[str, float] = field(default_factory=dict)

    def linkable(self) -> list[Member]:
        """Return the members that have a packet format in common with the leader, and so can be holders of switches."""
        leader = next((one for one in self.all if self.leader and one.id == self.leader.id), None)
        return [one for one in self.all if leader is None or common_format(one.link, leader.link)]


@dataclass(frozen=True, slots=True)
class MissingMembers:
    """Missing members. The leader's control loop receives this message whenever they change.

    ``absent``: see ``Members``; draining members are left out. ``unlinked``: names of members with a lease, but without
    a link to the leader."""

    absent: Mapping[str, float] = field(default_factory=dict)
    unlinked: frozenset[str] = frozenset()


NONE_MISSING = MissingMembers()

NO_MEMBERS = Members((), None, float("-inf"))
"""Members before the first reading."""


class Membership(Protocol):
    """Membership of this controller, readable by any thread."""

    changed: Callable[[], None]
    """Function that the reading thread calls after each reading."""

    @property
    def own(self) -> Member:
        """Member that represents this controller."""

    @property
    def newest(self) -> Members:
        """Members at the latest reading; empty before the first one."""

    def leader(self) -> Member | None:
        """Return the leader: the member that has the claim of the state.

        The fields of the result are as in ``Members.leader``. Returns None if no member has the claim, or if the latest
        reading is older than the duration of a lease."""

    def drain(self, name: str, drains: bool) -> None:
        """Save whether members of this name are draining, and return when ``newest`` shows the change.

        A draining member should be the holder of no switch. Only the leader may call this. Raises ``InvalidInput`` for
        an unknown name, ``Conflict`` if no other member could be a holder, and ``Unavailable`` if etcd does not save
        the change."""

    def forget(self, name: str) -> None:
        """Forget an absent member and its draining. Return when ``newest`` no longer shows the member.

        Only the leader may call this. Raises ``InvalidInput`` for an unknown name, ``Conflict`` for a present member,
        and ``Unavailable`` if etcd does not save the change."""
