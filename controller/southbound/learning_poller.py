"""Polls the rules that count pairs of jobs which are being learnt, more often than everything else.

What such a job sends is hashed until it is known which of its pairs carry traffic. All switches that are asked are
asked at once: their answers show the pairs of one collective together.

In: the switches, the time, parts of replies. Out: requests through ``send``, ``LearningCounters`` messages. ``now`` is
monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from controller.fabric.topology import Dpid
from controller.southbound import openflow_encode as encode
from controller.southbound.counter_poller import PATIENCE, rule_counts
from controller.southbound.framework import ofp
from controller.southbound.given_rules import GivenRules
from controller.southbound.multipart import Gathered, Reply
from controller.tables.messages import LearningCounters

TIMES = 4
"""Polls per interval of counters. Open vSwitch brings its counters up to date every half second at most."""


class LearningPoller:
    """``interval_s``: of counters."""

    def __init__(
        self, interval_s: float, send: encode.Send, put: Callable[[LearningCounters], None], given: GivenRules
    ) -> None:
        self._given = given
        self._interval_s = interval_s
        self._send = send
        self._put = put
        self._connected: set[Dpid] = set()
        self._polled: frozenset[Dpid] = frozenset()
        self._open: dict[Dpid, tuple[Gathered, float]] = {}
        self._next_at = 0.0
        self._request = encode.learning_flows_request()

    def switch_connected(self, dpid: Dpid) -> None:
        self._connected.add(dpid)

    def switch_left(self, dpid: Dpid) -> None:
        self._connected.discard(dpid)
        self._open.pop(dpid, None)

    def poll(self, dpids: frozenset[Dpid]) -> None:
        """Poll these switches from now on, no others."""
        self._polled = dpids

    def tick(self, now: float) -> None:
        """Send the polls that are due. A switch that does not answer is asked again after a few intervals."""
        if now < self._next_at:
            return
        every_s = self._interval_s / TIMES
        self._next_at += every_s * (1 + (now - self._next_at) // every_s)
        for dpid in sorted(self._polled & self._connected):
            if dpid not in self._open or now >= self._open[dpid][1]:
                (xid,) = self._send(dpid, self._request)
                asked = Gathered({xid: ofp.OFPMP_FLOW}, takes=partial(self._given.takes, dpid))
                self._open[dpid] = asked, now + PATIENCE * self._interval_s

    def part(self, dpid: Dpid, reply: Reply, now: float) -> bool:
        """One part of a reply; False when it belongs to no poll. Raises ``Malformed``."""
        asked = self._open[dpid][0] if dpid in self._open else None
        if asked is None or not asked.part(reply):
            return False
        if asked.complete:
            del self._open[dpid]
            self._put(LearningCounters(dpid, now, rule_counts(asked)))
        return True

    def error(self, dpid: Dpid, xid: int) -> bool:
        """The switch refused a request; False when it belongs to no poll."""
        asked = self._open[dpid][0] if dpid in self._open else None
        if asked is None or asked.refused(xid) is None:
            return False
        del self._open[dpid]
        return True
