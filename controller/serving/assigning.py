"""Assignment of switches by the leader. A thread writes new holders to etcd when members or connections change.

In: the members that are alive or draining, and the switches to which each is connected. Out: assignments in etcd, which
every member reads (``store.etcd_assignments``). After a failed write, the assignment is computed and written again.

If a controller that is no member has taken a switch, the holder gets the switch again with a larger generation id. The
base of the new id is the larger one of two ids: the id from the clock, as at the start of a leader, and the id that the
switch has.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

import structlog

from controller.fabric.messages import SwitchesInReach
from controller.fabric.topology import Dpid
from controller.log_limit import LimitedLog
from controller.store.assignment import MOST_MOVES, Holder, Site, assign
from controller.store.members import Member, Members
from controller.store.store import epoch_at, is_ahead

log = structlog.get_logger(__name__)
limited_log = LimitedLog(log)

LOOK_S = 0.25
"""Seconds between two checks of members and connections."""
MOVES_S = 1.0
"""Seconds after a change of holders in which no switch is moved only to improve the assignment."""
AWAY_S = 2.0
"""A member that has no link for the duration of a lease plus these seconds loses its switches."""
BACK_S = 2.0
"""Seconds in which a restarted switch, which all members have lost, may connect to its holder again.

Also the seconds after an outage of etcd in which a member without a lease counts as alive if it reports."""
TAKEN_S = 60.0
"""Shortest time in seconds between two new assignments of a switch that another controller has taken."""
SAME_S = 2 * LOOK_S
"""Seconds for which a holder keeps a switch that it has lost while other members are still connected to it.

If the switch has restarted, all members report within this time that they have lost it."""

Reach = Mapping[Holder, SwitchesInReach]
"""Latest report of each member that is linked to the leader."""


class Assignments(Protocol):
    """Stored assignments (``store.etcd_assignments``)."""

    @property
    def is_read(self) -> bool: ...
    def holders(self) -> Mapping[Dpid, Holder]: ...
    def write(self, base: int, changes: Mapping[Dpid, Holder | None]) -> None: ...


@dataclass
class Connections:
    """Connections of switches to members.

    A holder whose connection or report is missing counts as connected for a while. ``away_s``: seconds within which a
    holder that is alive must report again. ``late_s``: longest interval in seconds between two readings of etcd in
    which members that are alive keep their leases. Pure; ``now`` is in monotonic seconds."""

    away_s: float
    late_s: float
    began: float
    """Time at which this leader started. A holder that has not reported yet counts as last seen at this time."""
    _living: dict[Holder, float] = field(default_factory=dict)
    _linked: dict[Holder, float] = field(default_factory=dict)
    """Time at which each member with a lease was last linked; before its first link, the time of the first check."""
    _seen: dict[Dpid, float] = field(default_factory=dict)
    _stayed: dict[Dpid, frozenset[Holder]] = field(default_factory=dict)
    """Members that have been connected to a switch ever since its holder lost it; empty if the switch has restarted."""
    _read_at: float = inf
    _late_at: float = -inf
    """Time of the latest reading of etcd that came more than ``late_s`` seconds after the previous reading."""

    def living(self, members: Collection[Holder], reach: Reach, read_at: float, now: float) -> frozenset[Holder]:
        """Return the members that count as alive: all with a lease and, after an outage of etcd, all that report.

        After an outage, etcd ends leases before their members can renew them. ``read_at``: time of the latest reading
        of etcd."""
        if read_at > self._read_at + self.late_s:
            self._late_at = now
        self._read_at = read_at
        self._living |= dict.fromkeys(members, now)
        if now >= self._late_at + BACK_S:
            return frozenset(members)
        return frozenset({*members, *(one for one in reach if now < self._living.get(one, -inf) + BACK_S)})

    def unlinked(self, members: Collection[Holder], reach: Reach, now: float) -> frozenset[Holder]:
        """Return the members without a link for ``away_s``. ``members``: all members with a lease."""
        self._linked = {one: now if one in reach else self._linked.get(one, now) for one in members}
        return frozenset(one for one, at in self._linked.items() if now >= at + self.away_s)

    def connected(self, reach: Reach, holders: Mapping[Dpid, Holder], now: float) -> dict[Dpid, set[Holder]]:
        """Return the members that count as connected to each switch."""
        found: defaultdict[Dpid, set[Holder]] = defaultdict(set)
        for member, report in reach.items():
            for dpid in report.dpids:
                found[dpid].add(member)
        for dpid, holder in holders.items():
            others = frozenset(found.get(dpid, ()))
            if holder in others:
                self._seen[dpid] = now
                self._stayed.pop(dpid, None)
                continue
            self._stayed[dpid] = self._stayed.get(dpid, others) & others
            if others and now < self._patient_until(dpid, holder, reach.get(holder)):
                found[dpid].add(holder)
        return found

    def _patient_until(self, dpid: Dpid, holder: Holder, report: SwitchesInReach | None) -> float:
        """Return the time until which the holder counts as connected, although its latest report lacks the switch."""
        if report is None:
            return self._linked.get(holder, -inf) + self.away_s
        if dpid in report.silent:  # the switch has not restarted
            return -inf
        return self._seen.get(dpid, self.began) + (SAME_S if self._stayed[dpid] else BACK_S)


class Assigning:
    """Thread of the leader that assigns switches while the context lasts.

    ``reach``: returns the connections that members report. ``base``: see ``EtcdAssignments.write``. ``lease_s``:
    duration of a member's lease in seconds. ``watch``: called at each check with the members, those without a link
    (``Connections.unlinked``), and the time. ``taken``: returns, by switch and reporting member, the generation id of
    each switch that another controller has claimed; 0 while the id is unknown."""

    def __init__(
        self,
        assignments: Assignments,
        members: Callable[[], Members],
        reach: Callable[[], Reach],
        base: int,
        lease_s: float,
        racks: Mapping[Dpid, str],
        watch: Callable[[Members, Collection[Holder], float], None] = lambda *_: None,
        taken: Callable[[], Mapping[tuple[Dpid, Holder], int]] = dict,
    ) -> None:
        self._assignments = assignments
        self._members = members
        self._reach = reach
        self._base = base
        self._racks = racks
        self._watch = watch
        self._taken = taken
        self._taken_until: dict[Dpid, float] = {}
        """Time from which a taken switch may be assigned to its holder once more."""
        self._connections = Connections(lease_s + AWAY_S, lease_s / 2, time.monotonic())
        self._moves_at = 0.0
        self._settled: Site | None = None
        """Latest inputs for which no switch had to move."""
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="assigning", daemon=True)

    def __enter__(self) -> Assigning:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._wake.set()
        self._thread.join()

    def look(self) -> None:
        """Check members and connections now. Any thread may call this."""
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(LOOK_S)
            self._wake.clear()
            try:
                self.assign(time.monotonic())
            except Exception as error:  # of etcd; or the channels are closed
                limited_log.warning("switches cannot be assigned", why=str(error) or repr(error))
                self._stopping.wait(LOOK_S)

    def assign(self, now: float) -> None:
        """Write the new holders of switches whose holder should change. Raises ``EtcdError``."""
        members, reach = self._members(), self._reach()
        self._watch(members, self._connections.unlinked(_holders(members.all), reach, now), now)
        if not self._assignments.is_read:
            return
        holders = self._assignments.holders()
        live = self._connections.living(_holders(members.linkable()), reach, members.began, now)
        connected = self._connections.connected(reach, holders, now)
        for dpid in self._assign_taken(holders, now):
            if holders[dpid] in live & connected.get(dpid, set()):
                connected[dpid] = {holders[dpid]}
        site = Site(live, connected, holders, members.draining, self._racks)
        if site == self._settled:
            return
        changes = assign(site, MOST_MOVES if now >= self._moves_at else 0)
        if changes:
            self._moves_at = now + MOVES_S
            self._assignments.write(self._base, changes)
            log.info("switches assigned", count=len(changes))
        elif now >= self._moves_at:
            self._settled = site

    def _assign_taken(self, holders: Mapping[Dpid, Holder], now: float) -> list[Dpid]:
        """Assign each taken switch to its holder again, so that the holder claims it with a larger generation id.

        Return the switches for which no id can be larger: they would refuse every other holder."""
        stuck = []
        for (dpid, member), newer in self._taken().items():
            if holders.get(dpid) != member:
                continue
            if is_ahead(newer, time.time()):
                stuck.append(dpid)
                continue
            if now < self._taken_until.get(dpid, -inf):
                continue
            self._assignments.write(max(self._base, epoch_at(time.time()), newer), {dpid: member})
            self._taken_until[dpid] = now + TAKEN_S
            limited_log.warning(
                "another controller became master of a switch; the assigned member claims the switch again",
                dpid=f"{dpid:#x}",
            )
        return stuck


def _holders(members: Iterable[Member]) -> list[Holder]:
    return [Holder(one.name, one.id) for one in members]
