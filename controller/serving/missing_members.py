"""Missing members: the leader finds members that have been absent for too long or have no link to it.

In: the present and the absent members, and the links to their southbounds. Out: a message to the control loop, which
raises the alarms, whenever missing members change. ``now`` is in monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from controller.store.members import NONE_MISSING, Members, MissingMembers

OVERDUE_S = 30.0
"""Seconds for which a member may be absent before it counts as missing, for example to start its process again."""


class MissingMembersWatch:
    """Detection of missing members by the leader.

    ``linked``: returns the members with a link to the leader, as NAME/ID. ``link_s``: seconds for which a member may be
    without a link."""

    def __init__(
        self, linked: Callable[[], Collection[str]], put: Callable[[MissingMembers], object], link_s: float
    ) -> None:
        self._linked = linked
        self._put = put
        self._link_s = link_s
        self._absent_at: dict[str, float] = {}
        self._linked_at: dict[str, float] = {}
        """Time at which each member was last linked, by its id; before its first link, the time of the first check."""
        self._published = NONE_MISSING

    def look(self, members: Members, now: float) -> None:
        """Tell the control loop which members are missing, if these have changed."""
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
