"""Polls counters: per switch and interval, port counters and the pinned table's flow counters, asked for together.

In: the time, replies in parts. Out: requests through ``send``, ``Counters`` messages. Switches are polled at
staggered moments; one whose last poll is unanswered is skipped. ``now`` is monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from controller.fabric.topology import Dpid
from controller.messages import Counters
from controller.southbound import openflow_codec as codec
from controller.southbound.discovery import GOLDEN
from controller.southbound.multipart import Gathered
from controller.tables.rules import Table

Request = Literal["ports", "flows"]


@dataclass(slots=True)
class _Polled:
    next_at: float
    asked: Gathered[Request] | None = None


class CounterPoller:
    def __init__(self, interval_s: float, send: Callable[[Dpid, Any], int], put: Callable[[Counters], None]) -> None:
        self._interval_s = interval_s
        self._send = send
        self._put = put
        self._switches: dict[Dpid, _Polled] = {}

    def switch_connected(self, dpid: Dpid, now: float) -> None:
        self._switches[dpid] = _Polled(now + self._interval_s * (dpid * GOLDEN % 1.0))

    def switch_left(self, dpid: Dpid) -> None:
        self._switches.pop(dpid, None)

    def tick(self, now: float) -> None:
        """Sends the polls that are due."""
        for dpid, polled in self._switches.items():
            if polled.next_at > now:
                continue
            polled.next_at += self._interval_s * (1 + (now - polled.next_at) // self._interval_s)
            if polled.asked is None:
                ports = self._send(dpid, codec.port_stats_request())
                flows = self._send(dpid, codec.flow_stats_request(Table.PINNED))
                polled.asked = Gathered({ports: "ports", flows: "flows"})

    def part(self, dpid: Dpid, xid: int, body: Any, more: bool, now: float) -> bool:
        """One part of a reply; False when it answers no poll."""
        polled = self._switches.get(dpid)
        if polled is None or polled.asked is None or not polled.asked.part(xid, body, more):
            return False
        bodies = polled.asked.bodies
        if bodies is not None:
            polled.asked = None
            rules = [(codec.flow_rule(stats), stats.byte_count) for stats in bodies["flows"]]
            flows = {rule.key: byte_count for rule, byte_count in rules if rule}
            self._put(Counters(dpid, now, codec.port_counts(bodies["ports"]), flows))
        return True

    def error(self, dpid: Dpid, xid: int) -> bool:
        """The switch refused a poll: nothing of it is reported; False when it was none."""
        polled = self._switches.get(dpid)
        if polled is None or polled.asked is None or polled.asked.refused(xid) is None:
            return False
        polled.asked = None
        return True
