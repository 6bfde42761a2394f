"""Missing members: the leader finds members that have been absent for too long or have no link to it.

In: the present members, the absent members, and the members without a link. Out: a message to the control loop, which
raises the alarms, whenever missing members change. ``now`` is in monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from controller.store.assignment import Holder
from controller.store.members import NONE_MISSING, Members, MissingMembers

OVERDUE_S = 30.0
"""Seconds for which a member may be absent, or a new process without a link, before the member counts as missing."""


class MissingMembersWatch:
    """Detection of missing members by the leader. ``put``: tells the control loop which members are missing."""

    def __init__(self, put: Callable[[MissingMembers], object]) -> None:
        self._put = put
        self._absent_at: dict[str, float] = {}
        self._present_at: dict[Holder, float] = {}
        self._published = NONE_MISSING

    def look(self, members: Members, unlinked: Collection[Holder], now: float) -> None:
        """Tell the control loop which members are missing, if the set of missing members has changed.

        ``unlinked``: members that have had no link for too long. A process that has just appeared is given more time,
        because its southbound may start slowly."""
        present = (Holder(one.name, one.id) for one in members.all)
        self._present_at = {one: self._present_at.get(one, now) for one in present}
        self._absent_at = {name: self._absent_at.get(name, now) for name in members.absent}
        overdue = (name for name, since in self._absent_at.items() if now >= since + OVERDUE_S)
        missing = MissingMembers(
            {name: members.absent[name] for name in overdue if name not in members.draining},
            frozenset(one.name for one, at in self._present_at.items() if one in unlinked and now >= at + OVERDUE_S),
        )
        if missing != self._published:
            self._published = missing
            self._put(missing)
