"""Polls counters: per switch and interval the port counters and the counters of flow entries that count together, and
every few polls the packets that the meters of the control table dropped.

In: the time, parts of replies. Out: requests through ``send``, ``Counters`` messages. Switches are polled at one
moment: what a link carried is compared with what switches elsewhere counted of its flows in the same time. A switch has
one poll at a time: the next waits until the last is answered, or is given up after a few intervals, when the replies
that did come are reported. ``now`` is monotonic seconds.
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
from controller.southbound.multipart import Gathered, Reply
from controller.tables.messages import Counters, PortCount, RuleCount
from controller.tables.rules import FlowKey

METERS_EVERY = 5
"""Polls after which the meters are read again: they change only while a host floods the controller."""
PATIENCE = 3
"""Intervals after which a poll that is not answered is given up."""


@dataclass(slots=True)
class _Polled:
    """``due``: when the open poll was due. ``answered_at``: when its last complete reply came in, or when it was asked.
    ``waited``: intervals that it has taken so far. ``halfway_at``: when it is polled once more. ``meters``: False once
    the switch has refused to read them. ``polls``: their number so far."""

    next_at: float
    asked: Gathered | None = None
    due: float = 0.0
    answered_at: float = 0.0
    waited: int = 0
    halfway_at: float = math.inf
    meters: bool = True
    polls: int = 0


class CounterPoller:
    def __init__(
        self, interval_s: float, send: encode.Send, put: Callable[[Counters], None], given: GivenRules
    ) -> None:
        self._given = given
        self._interval_s = interval_s
        self._send = send
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
        self._switches.pop(dpid, None)

    def poll_halfway(self) -> None:
        """Poll every switch once more, half an interval before its next poll."""
        for polled in self._switches.values():
            polled.halfway_at = polled.next_at - self._interval_s / 2

    def tick(self, now: float) -> None:
        """Sends the polls that are due."""
        for dpid, polled in self._switches.items():
            if polled.halfway_at <= now:
                due, polled.halfway_at = polled.halfway_at, math.inf
                if polled.asked is None and now < polled.next_at:
                    self._ask(dpid, polled, due, now)
            if polled.next_at > now:
                continue
            polled.next_at += self._interval_s * (1 + (now - polled.next_at) // self._interval_s)
            polled.waited += 1
            if polled.asked is not None and polled.waited >= PATIENCE:
                self._report(dpid, polled)
            if polled.asked is None:
                self._ask(dpid, polled, polled.next_at - self._interval_s, now)

    def _ask(self, dpid: Dpid, polled: _Polled, due: float, now: float) -> None:
        meters = polled.meters and polled.polls % METERS_EVERY == 0
        kinds = [kind for kind in self._requests if meters or kind != ofp.OFPMP_METER]
        xids = self._send(dpid, *(self._requests[kind] for kind in kinds))
        polled.asked = Gathered(dict(zip(xids, kinds, strict=True)), takes=partial(self._given.takes, dpid))
        polled.due, polled.answered_at, polled.waited = due, now, 0
        polled.polls += 1

    def part(self, dpid: Dpid, reply: Reply, now: float) -> bool:
        """One part of a reply; False when it belongs to no poll. Raises ``Malformed``."""
        polled = self._switches.get(dpid)
        if polled is None or polled.asked is None or not polled.asked.part(reply):
            return False
        if not reply.more:
            polled.answered_at = now
        if polled.asked.complete:
            self._report(dpid, polled)
        return True

    def error(self, dpid: Dpid, xid: int) -> bool:
        """The switch refused a request; False when it belongs to no poll. The others may still be answered."""
        polled = self._switches.get(dpid)
        refused = polled.asked.refused(xid) if polled and polled.asked else None
        if polled is None or polled.asked is None or refused is None:
            return False
        polled.meters &= refused != ofp.OFPMP_METER
        if polled.asked.complete:
            self._report(dpid, polled)
        return True

    def _report(self, dpid: Dpid, polled: _Polled) -> None:
        asked, polled.asked = polled.asked, None
        assert asked is not None
        ports: dict[PortNo, PortCount] = {}
        for part in asked.of(ofp.OFPMP_PORT_STATS):
            ports |= part
        flows = rule_counts(asked)
        drops = {
            PortNo(meter.meter_id): meter.packets
            for part in asked.of(ofp.OFPMP_METER)
            for meter in part
            if meter.packets is not None
        }
        ports_read, flows_read = asked.answered(ofp.OFPMP_PORT_STATS), asked.answered(ofp.OFPMP_FLOW)
        if ports_read or flows_read or drops:
            known = ports if ports_read else None, flows if flows_read else None
            self._put(Counters(dpid, polled.answered_at, *known, drops, polled.due))


def rule_counts(asked: Gathered) -> dict[FlowKey, RuleCount]:
    """The counters of the rules in the replies, without rules that are not the controller's."""
    return {
        count.rule.key: RuleCount(count.bytes, count.packets)
        for part in asked.of(ofp.OFPMP_FLOW)
        for count in part
        if count.rule is not None and count.bytes is not None
    }
