"""Regular polls of each switch: counters of ports and of counted flow entries, and the use of its tables.

In: the time (``now``, monotonic seconds), parts of replies. Out: requests through ``send``; ``Counters``,
``LearningCounters`` and ``TablesRead`` messages.

All switches are polled at the same moment, once per interval. The controller compares the traffic of a link with
counters of its flows on other switches. One of ``METERS_EVERY`` polls also reads how many packets the meters of the
control table have dropped. Learning rules, which count pairs of hosts to learn the traffic of a job, are polled more
often.

Capacities of tables (*limits*) are part of the table features, a reply of 1.2 MB in Open vSwitch. Limits are read from
one switch after another. A poll of counters never reads limits, because the time of a poll is that of its last reply.
Switches with little room are read more often, and a switch that has refused a rule because a table is full is read
soon.

A request that a switch refuses is not repeated while the switch is connected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from controller.fabric.topology import Dpid, PortNo
from controller.southbound import openflow_encode as encode
from controller.southbound.discovery import phase
from controller.southbound.framework import ofp
from controller.southbound.given_rules import GivenRules
from controller.southbound.multipart import Gathered, Requests
from controller.tables.messages import Counters, LearningCounters, PortCount, RuleCount, TablesRead
from controller.tables.rules import AnyTable, FlowKey

METERS_EVERY = 5
"""Interval, in polls, between two readings of the meters. Meters count only while a host floods the controller."""
PATIENCE = 3
"""Number of intervals after which a poll without a reply is abandoned."""
TIMES = 4
"""Number of polls of learning rules per interval.

More polls would be useless, since Open vSwitch updates its counters at most every half second."""


@dataclass(slots=True)
class _Polled:
    """Polls of one switch's counters. Times are monotonic seconds."""

    next_at: float
    """Due time of the next regular poll."""
    due: float = 0.0
    waited: int = 0
    """Number of intervals that have begun since the latest poll."""
    halfway_at: float = math.inf
    """Due time of an additional poll; infinite if there is none."""
    meters: bool = True
    """Whether the meters are read; False once the switch has refused the request."""
    polls: int = 0


class CounterPoller(Requests):
    """Regular polls of all switches.

    A switch has at most one open poll. The next poll waits until the switch has answered the open one. After a few
    intervals without an answer the open poll is abandoned, and the replies that have arrived are reported.

    ``zero``: polls are due at this time plus multiples of the interval. Southbounds with the same ``zero`` poll at the
    same moments."""

    def __init__(
        self,
        interval_s: float,
        send: encode.Send,
        put: Callable[[Counters], None],
        given: GivenRules,
        zero: float = 0.0,
    ) -> None:
        super().__init__(send)
        self._zero = zero
        self._given = given
        self._interval_s = interval_s
        self._put = put
        self._switches: dict[Dpid, _Polled] = {}
        self._requests = {
            ofp.OFPMP_PORT_STATS: encode.all_request(ofp.OFPMP_PORT_STATS),
            ofp.OFPMP_FLOW: encode.counted_flows_request(),
            ofp.OFPMP_METER: encode.all_request(ofp.OFPMP_METER),
        }

    def switch_connected(self, dpid: Dpid, now: float) -> None:
        self._switches[dpid] = _Polled(self._zero + self._interval_s * (1 + (now - self._zero) // self._interval_s))

    def switch_left(self, dpid: Dpid) -> None:
        super().switch_left(dpid)
        self._switches.pop(dpid, None)

    def poll_halfway(self) -> None:
        """Poll every switch one more time, half an interval before its next regular poll."""
        for polled in self._switches.values():
            polled.halfway_at = polled.next_at - self._interval_s / 2

    def tick(self, now: float) -> None:
        """Send the polls that are due."""
        for dpid, polled in self._switches.items():
            if polled.halfway_at <= now:
                due, polled.halfway_at = polled.halfway_at, math.inf
                if dpid not in self._asked and now < polled.next_at:
                    self._poll(dpid, polled, due, now)
            if polled.next_at > now:
                continue
            polled.next_at += self._interval_s * (1 + (now - polled.next_at) // self._interval_s)
            polled.waited += 1
            if dpid in self._asked and polled.waited >= PATIENCE:
                self._finish(dpid, self._asked[dpid])
            if dpid not in self._asked:
                self._poll(dpid, polled, polled.next_at - self._interval_s, now)

    def _poll(self, dpid: Dpid, polled: _Polled, due: float, now: float) -> None:
        meters = polled.meters and polled.polls % METERS_EVERY == 0
        requests = {kind: one for kind, one in self._requests.items() if meters or kind != ofp.OFPMP_METER}
        self.ask(dpid, requests, now, math.inf, partial(self._given.takes, dpid))
        polled.due, polled.waited = due, 0
        polled.polls += 1

    def _refused(self, dpid: Dpid, kind: int) -> None:
        """Remember that the switch refuses requests for meters; it may still answer the other requests."""
        self._switches[dpid].meters &= kind != ofp.OFPMP_METER

    def _finish(self, dpid: Dpid, asked: Gathered) -> None:
        del self._asked[dpid]
        ports: dict[PortNo, PortCount] = {}
        for part in asked.of(ofp.OFPMP_PORT_STATS):
            ports |= part
        drops = {
            PortNo(meter.meter_id): meter.packets
            for part in asked.of(ofp.OFPMP_METER)
            for meter in part
            if meter.packets is not None
        }
        ports_read, flows_read = asked.answered(ofp.OFPMP_PORT_STATS), asked.answered(ofp.OFPMP_FLOW)
        if ports_read or flows_read or drops:
            known = ports if ports_read else None, _rule_counts(asked) if flows_read else None
            self._put(Counters(dpid, asked.at, *known, drops, self._switches[dpid].due))


class LearningPoller(Requests):
    """Polls of learning rules. A learning rule counts one pair of hosts, to learn the traffic of a job.

    The job's traffic uses ECMP until the controller knows which pairs send. All switches are polled at the same time,
    so that their replies together show all pairs of one collective. ``interval_s``, ``zero``: as in
    ``CounterPoller``."""

    def __init__(
        self,
        interval_s: float,
        send: encode.Send,
        put: Callable[[LearningCounters], None],
        given: GivenRules,
        zero: float = 0.0,
    ) -> None:
        super().__init__(send)
        self._given = given
        self._interval_s = interval_s
        self._put = put
        self._connected: set[Dpid] = set()
        self._polled: frozenset[Dpid] = frozenset()
        self._next_at = zero
        self._requests = {ofp.OFPMP_FLOW: encode.learning_flows_request()}

    def switch_connected(self, dpid: Dpid) -> None:
        self._connected.add(dpid)

    def switch_left(self, dpid: Dpid) -> None:
        super().switch_left(dpid)
        self._connected.discard(dpid)

    def poll(self, dpids: frozenset[Dpid]) -> None:
        """Poll the learning rules of these switches, and of no others, from now on."""
        self._polled = dpids

    def tick(self, now: float) -> None:
        """Send the polls that are due. A switch that does not reply is polled again after a few intervals."""
        if now < self._next_at:
            return
        every_s = self._interval_s / TIMES
        self._next_at += every_s * (1 + (now - self._next_at) // every_s)
        for dpid in sorted(self._polled & self._connected):
            if dpid not in self._asked or now >= self._asked[dpid].until:
                until = now + PATIENCE * self._interval_s
                self.ask(dpid, self._requests, now, until, partial(self._given.takes, dpid))

    def _finish(self, dpid: Dpid, asked: Gathered) -> None:
        del self._asked[dpid]
        if asked.answered(ofp.OFPMP_FLOW):
            self._put(LearningCounters(dpid, asked.at, _rule_counts(asked)))


def _rule_counts(asked: Gathered) -> dict[FlowKey, RuleCount]:
    return {
        count.rule.key: RuleCount(count.bytes, count.packets)
        for part in asked.of(ofp.OFPMP_FLOW)
        for count in part
        if count.rule is not None and count.bytes is not None
    }


# ---- tables


TABLES_EVERY = 2
"""Time between two readings of the numbers of entries, as a multiple of the interval of counter polls."""
LIMITS_EVERY_S = 60.0
"""Seconds between two readings of the limits of one switch, which hardly ever change."""
LIMITS_SOON_S = 7.0
"""Seconds after which the limits of a switch with little room may be read again, ahead of ``LIMITS_EVERY_S``.

These early readings wait while another switch is due. With the default interval, 7 s is every second reading of the
numbers of entries."""
LITTLE_ROOM = 0.5
"""A table has little room when its entries fill at least this fraction of its capacity."""
LIMITS_APART_S = 0.5
"""Smallest number of seconds between readings of the limits of two switches."""
TABLES_PATIENCE_S = 30.0
"""Seconds after which a poll without a reply is abandoned."""

ENTRIES = ofp.OFPMP_TABLE
LIMITS = (ofp.OFPMP_TABLE_FEATURES, ofp.OFPMP_GROUP_FEATURES, ofp.OFPMP_METER_FEATURES)
"""Kinds of requests for limits."""


@dataclass(slots=True)
class _Tables:
    """Polls of one switch's tables. Times are monotonic seconds."""

    next_at: float
    """Time of the next reading of the numbers of entries."""
    limits_at: float
    """Time from which on the next poll also reads the limits."""
    refused: set[int] = field(default_factory=set)
    entries: Mapping[AnyTable, int] = field(default_factory=dict)
    limits: Mapping[AnyTable, int] = field(default_factory=dict)

    @property
    def has_little_room(self) -> bool:
        return any(limit and self.entries.get(table, 0) >= LITTLE_ROOM * limit for table, limit in self.limits.items())


class TablePoller(Requests):
    """Polls of the tables of all switches. ``interval_s``: interval of counter polls."""

    def __init__(self, interval_s: float, send: encode.Send, put: Callable[[TablesRead], None]) -> None:
        super().__init__(send)
        self._every_s = TABLES_EVERY * interval_s
        self._put = put
        self._switches: dict[Dpid, _Tables] = {}
        self._limits_at = 0.0

    def switch_connected(self, dpid: Dpid, now: float) -> None:
        self._switches[dpid] = _Tables(now + self._every_s * phase(dpid), now)

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

    def _poll(self, dpid: Dpid, polled: _Tables, now: float) -> None:
        kinds = [ENTRIES]
        if self._limits_due(polled, now):
            kinds.extend(LIMITS)
            polled.limits_at, self._limits_at = now + LIMITS_EVERY_S, now + LIMITS_APART_S
        kinds = [kind for kind in kinds if kind not in polled.refused]
        if kinds:
            self.ask(dpid, {kind: encode.all_request(kind) for kind in kinds}, now, now + TABLES_PATIENCE_S)

    def _limits_due(self, polled: _Tables, now: float) -> bool:
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
    """Return the number of entries, or the capacity, of each table, from the replies of these kinds.

    Returns None if the switch answered no request of these kinds."""
    if not any(map(asked.answered, kinds)):
        return None
    return {table: number for kind in kinds for part in asked.of(kind) for table, number in part.items()}
