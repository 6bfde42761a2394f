"""Members that should be there: the leader finds those that are overdue, and those without a link to it.

In: the members that live or were known, and the links to their southbounds. Out: a message to the control loop, which
raises the alarms, whenever a member is missing or back. ``now`` is in monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from controller.store.members import NONE_MISSING, Members, MissingMembers

OVERDUE_S = 30.0
"""Seconds that a member may be absent, so that its process can be started again."""


class MissingMembersWatch:
    """Watch of the leader over all members.

    ``linked``: returns the members with a link to the leader as NAME/ID. ``link_s``: seconds that a member may be
    without a link."""

    def __init__(
        self, linked: Callable[[], Collection[str]], put: Callable[[MissingMembers], object], link_s: float
    ) -> None:
        self._linked = linked
        self._put = put
        self._link_s = link_s
        self._absent_at: dict[str, float] = {}
        """Time since which each absent member is absent."""
        self._linked_at: dict[str, float] = {}
        """Time at which each member was linked last, by its id; the first look counts as a link."""
        self._published = NONE_MISSING

    def look(self, members: Members, now: float) -> None:
        """Publish which members are missing, if that has changed."""
        linked = {member.rpartition("/")[2] for member in self._linked()}
        self._absent_at = {name: self._absent_at.get(name, now) for name in members.absent}
        self._linked_at = {one.id: now if one.id in linked else self._linked_at.get(one.id, now) for one in members.all}
        overdue = (name for name, since in self._absent_at.items() if now >= since + OVERDUE_S)
        missing = MissingMembers(
            {name: members.absent[name] for name in overdue if name not in members.draining},
            frozenset(one.name for one in members.all if now >= self._linked_at[one.id] + self._link_s),
        )
        if missing != self._published:
            self._published = missing
            self._put(missing)
