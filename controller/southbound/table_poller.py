"""Polls of the use and the capacity of each switch's flow, group and meter tables.

In: the time, parts of replies. Out: requests through ``send``, ``TablesRead`` messages. A request that a switch refuses
is not repeated while the switch is connected. ``now`` is in monotonic seconds.

Capacities are part of the table features, which are 1.2 MB in Open vSwitch. The capacities of switches are therefore
read one switch after another. They are not read together with counters, because the counters would get the time at
which the whole reply has arrived. If a switch refuses a rule because a table is full, its capacities are read with its
next poll. Capacities of switches with little room are read more often than those of other switches, so that the
controller notices soon when there is more room.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from controller.fabric.topology import Dpid
from controller.southbound import openflow_encode as encode
from controller.southbound.discovery import phase
from controller.southbound.framework import ofp
from controller.southbound.multipart import Gathered, Requests
from controller.tables.messages import TablesRead
from controller.tables.rules import AnyTable

EVERY = 2
"""Time between two reads of the numbers of entries, as a multiple of the interval of the counter polls."""
LIMITS_EVERY_S = 60.0
"""Seconds between two reads of the limits of one switch; limits are configured and hardly ever change."""
LIMITS_SOON_S = 7.0
"""Seconds after which the limits of a switch with little room are read again, while no other switch is due.

By default, this is with every second poll of entries."""
LITTLE_ROOM = 0.5
"""Fraction of a table's capacity; a table that is full to at least this fraction has little room."""
LIMITS_APART_S = 0.5
"""Smallest number of seconds between reads of the limits of two switches."""
PATIENCE_S = 30.0
"""Seconds after which a poll without a reply is abandoned."""

ENTRIES = ofp.OFPMP_TABLE
LIMITS = (ofp.OFPMP_TABLE_FEATURES, ofp.OFPMP_GROUP_FEATURES, ofp.OFPMP_METER_FEATURES)
"""Kinds of requests for limits."""


@dataclass(slots=True)
class _Polled:
    """State of the polls of one switch. Times are monotonic seconds."""

    next_at: float
    """Time of the next read of the numbers of entries."""
    limits_at: float
    """Time from which the limits are read with a poll."""
    refused: set[int] = field(default_factory=set)
    """Kinds of requests that the switch refuses."""
    entries: Mapping[AnyTable, int] = field(default_factory=dict)
    """Number of entries in each table, as read last."""
    limits: Mapping[AnyTable, int] = field(default_factory=dict)
    """Capacity of each table, as read last."""

    @property
    def has_little_room(self) -> bool:
        return any(limit and self.entries.get(table, 0) >= LITTLE_ROOM * limit for table, limit in self.limits.items())


class TablePoller(Requests):
    """Polls of the tables of all switches. ``interval_s``: interval of the polls of counters."""

    def __init__(self, interval_s: float, send: encode.Send, put: Callable[[TablesRead], None]) -> None:
        super().__init__(send)
        self._every_s = EVERY * interval_s
        self._put = put
        self._switches: dict[Dpid, _Polled] = {}
        self._limits_at = 0.0

    def switch_connected(self, dpid: Dpid, now: float) -> None:
        self._switches[dpid] = _Polled(now + self._every_s * phase(dpid), now)

    def switch_left(self, dpid: Dpid) -> None:
        super().switch_left(dpid)
        self._switches.pop(dpid, None)

    def table_full(self, dpid: Dpid, now: float) -> None:
        """Read the limits of a switch with the next poll, because it has refused a rule for lack of room."""
        polled = self._switches.get(dpid)
        if polled is not None:
            polled.limits_at = min(polled.limits_at, now)

    def tick(self, now: float) -> None:
        """Send the polls that are due."""
        for dpid, polled in self._switches.items():
            if polled.next_at > now:
                continue
            polled.next_at += self._every_s * (1 + (now - polled.next_at) // self._every_s)
            if dpid not in self._asked or now >= self._asked[dpid].until:
                self._poll(dpid, polled, now)

    def _poll(self, dpid: Dpid, polled: _Polled, now: float) -> None:
        kinds = [ENTRIES]
        if self._limits_due(polled, now):
            kinds.extend(LIMITS)
            polled.limits_at, self._limits_at = now + LIMITS_EVERY_S, now + LIMITS_APART_S
        kinds = [kind for kind in kinds if kind not in polled.refused]
        if kinds:
            self.ask(dpid, {kind: encode.all_request(kind) for kind in kinds}, now, now + PATIENCE_S)

    def _limits_due(self, polled: _Polled, now: float) -> bool:
        if now < self._limits_at:
            return False
        soon_at = polled.limits_at - (LIMITS_EVERY_S - LIMITS_SOON_S) if polled.has_little_room else math.inf
        return now >= polled.limits_at or (
            now >= soon_at and all(now < other.limits_at for other in self._switches.values())
        )

    def _refused(self, dpid: Dpid, kind: int) -> None:
        self._switches[dpid].refused.add(kind)

    def _finish(self, dpid: Dpid, asked: Gathered) -> None:
        del self._asked[dpid]
        polled = self._switches[dpid]
        entries, limits = _by_table(asked, (ENTRIES,)), _by_table(asked, LIMITS)
        polled.entries = polled.entries if entries is None else entries
        polled.limits = polled.limits if limits is None else limits
        if entries is not None or limits is not None:
            self._put(TablesRead(dpid, entries, limits))


def _by_table(asked: Gathered, kinds: Collection[int]) -> dict[AnyTable, int] | None:
    """Return the numbers in the replies of these kinds, by table; None if no request of these kinds was answered."""
    if not any(map(asked.answered, kinds)):
        return None
    return {table: number for kind in kinds for part in asked.of(kind) for table, number in part.items()}
