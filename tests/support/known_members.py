"""Membership without etcd: members that a test sets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from controller.store.members import Member, Members


@dataclass
class KnownMembers:
    """``Membership`` of one member, the first of ``all``, in a cluster of the members ``all``.

    ``leading``: id of the leader; empty for none. ``is_old``: whether the latest reading is too old to know it."""

    all: tuple[Member, ...]
    leading: str = ""
    began: float = 0.0
    draining: frozenset[str] = frozenset()
    absent: Mapping[str, float] = field(default_factory=dict)
    is_old: bool = False

    def __post_init__(self) -> None:
        self.changed: Callable[[], None] = lambda: None

    @property
    def own(self) -> Member:
        return self.all[0]

    @property
    def newest(self) -> Members:
        return Members(self.all, self._leader(), self.began, self.draining, self.absent)

    def leader(self) -> Member | None:
        return None if self.is_old else self._leader()

    def _leader(self) -> Member | None:
        return next((member for member in self.all if member.id == self.leading), None)

    def drain(self, name: str, drains: bool) -> None:
        self.draining = self.draining | {name} if drains else self.draining - {name}

    def forget(self, name: str) -> None:
        self.absent = {one: at for one, at in self.absent.items() if one != name}

    def lead(self, member: str) -> None:
        """Make the member with this id the leader; an empty id means that no member leads."""
        self.leading = member
        self.changed()


def only_member() -> KnownMembers:
    return KnownMembers((Member("1", "one", "", "1", 1e9),), "1", 100.0)
