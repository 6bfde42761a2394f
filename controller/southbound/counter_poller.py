"""Polls of the counters of ports and of counted flow entries, every interval.

One in ``METERS_EVERY`` polls also reads the packets that the meters of the control table dropped. Rules of jobs that
are being learnt are polled more often. In: the time, parts of replies. Out: requests through ``send``, ``Counters`` and
``LearningCounters`` messages. All switches are polled at the same moment, because the controller compares the traffic
of a link with counters of its flows on other switches. ``now`` is in monotonic seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from controller.fabric.topology import Dpid, PortNo
from controller.southbound import openflow_encode as encode
from controller.southbound.framework import ofp
from controller.southbound.given_rules import GivenRules
from controller.southbound.multipart import Gathered, Requests
from controller.tables.messages import Counters, LearningCounters, PortCount, RuleCount
from controller.tables.rules import FlowKey

METERS_EVERY = 5
"""Number of polls per reading of the meters, whose counts change only while a host floods the controller."""
PATIENCE = 3
"""Number of intervals after which a poll without a reply is abandoned."""
TIMES = 4
"""Number of polls per interval of the rules that count pairs of jobs being learnt.

Open vSwitch updates its counters at most every half second."""


@dataclass(slots=True)
class _Polled:
    """State of the polls of one switch. Times are monotonic seconds."""

    next_at: float
    """Due time of the next regular poll."""
    due: float = 0.0
    """Due time of the latest poll."""
    waited: int = 0
    """Number of intervals that have begun since the latest poll."""
    halfway_at: float = math.inf
    """Due time of an additional poll; infinite if there is none."""
    meters: bool = True
    """Whether the meters may be read; False once the switch has refused the request."""
    polls: int = 0
    """Number of polls so far."""


class CounterPoller(Requests):
    """Regular polls of all switches.

    A switch has one open poll at a time. The next poll waits until the open one is answered or, after a few intervals,
    abandoned. When a poll is abandoned, the replies that did arrive are reported."""

    def __init__(
        self, interval_s: float, send: encode.Send, put: Callable[[Counters], None], given: GivenRules
    ) -> None:
        super().__init__(send)
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
        self._switches[dpid] = _Polled(self._interval_s * (1 + now // self._interval_s))

    def switch_left(self, dpid: Dpid) -> None:
        super().switch_left(dpid)
        self._switches.pop(dpid, None)

    def poll_halfway(self) -> None:
        """Poll every switch once more, half an interval before its next poll."""
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
        """Remember that the switch refuses to read meters; the other requests may still be answered."""
        self._switches[dpid].meters &= kind != ofp.OFPMP_METER

    def _finish(self, dpid: Dpid, asked: Gathered) -> None:
        """Report the counters of a poll that is complete or abandoned."""
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
    """Polls of the rules that count pairs of jobs that are being learnt.

    The traffic of such a job uses ECMP until the controller knows the pairs that carry traffic. All switches are polled
    at the same time, so that the replies show all pairs of one collective. ``interval_s``: interval of the
    regular polls."""

    def __init__(
        self, interval_s: float, send: encode.Send, put: Callable[[LearningCounters], None], given: GivenRules
    ) -> None:
        super().__init__(send)
        self._given = given
        self._interval_s = interval_s
        self._put = put
        self._connected: set[Dpid] = set()
        self._polled: frozenset[Dpid] = frozenset()
        self._next_at = 0.0
        self._requests = {ofp.OFPMP_FLOW: encode.learning_flows_request()}

    def switch_connected(self, dpid: Dpid) -> None:
        self._connected.add(dpid)

    def switch_left(self, dpid: Dpid) -> None:
        super().switch_left(dpid)
        self._connected.discard(dpid)

    def poll(self, dpids: frozenset[Dpid]) -> None:
        """Poll the learning rules of only these switches from now on."""
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
    """Return the counters of the rules in the replies, without foreign rules."""
    return {
        count.rule.key: RuleCount(count.bytes, count.packets)
        for part in asked.of(ofp.OFPMP_FLOW)
        for count in part
        if count.rule is not None and count.bytes is not None
    }
