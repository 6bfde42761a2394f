"""Reads back what a switch holds: our flows, all groups and meters, and how many flows are somebody else's.

In: requests to read, replies in parts. Out: requests through ``send``, ``SwitchRules`` messages. ``now`` is monotonic
seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import structlog

from controller.fabric.topology import Dpid
from controller.messages import SwitchRules
from controller.southbound import openflow_codec as codec
from controller.southbound.multipart import Gathered
from controller.tables.rules import RuleSet

log = structlog.get_logger(__name__)

Request = Literal["flows", "count", "groups", "meters"]


@dataclass(slots=True)
class _Reading:
    asked: Gathered[Request]
    deadline: float


class RuleReader:
    def __init__(self, timeout_s: float, send: Callable[[Dpid, Any], int], put: Callable[[SwitchRules], None]) -> None:
        self._timeout_s = timeout_s
        self._send = send
        self._put = put
        self._readings: dict[Dpid, _Reading] = {}

    def read(self, dpid: Dpid, now: float) -> None:
        """Asks for everything; takes the place of a read of the same switch that is not answered yet."""
        requests: dict[Request, Any] = {
            "flows": codec.flow_stats_request(),
            "count": codec.flow_count_request(),
            "groups": codec.group_desc_request(),
            "meters": codec.meter_config_request(),
        }
        asked = Gathered({self._send(dpid, request): name for name, request in requests.items()})
        self._readings[dpid] = _Reading(asked, now + self._timeout_s)

    def part(self, dpid: Dpid, xid: int, body: Any, more: bool) -> bool:
        """One part of a reply; False when it answers no read."""
        reading = self._readings.get(dpid)
        if reading is None or not reading.asked.part(xid, body, more):
            return False
        self._finish(dpid, reading)
        return True

    def error(self, dpid: Dpid, xid: int) -> bool:
        """The switch refused a request: without meters it has none, without the rest its state is unknown and the
        read has failed. False when it was no request of a read."""
        reading = self._readings.get(dpid)
        refused = reading.asked.refused(xid) if reading else None
        if reading is None or refused is None:
            return False
        if refused == "meters":
            self._finish(dpid, reading)
        else:
            reading.deadline = -math.inf
        return True

    def switch_left(self, dpid: Dpid) -> None:
        self._readings.pop(dpid, None)

    def failed(self, now: float) -> list[Dpid]:
        """Switches whose read was refused or is overdue; each is named once."""
        failed = [dpid for dpid, reading in self._readings.items() if reading.deadline <= now]
        for dpid in failed:
            del self._readings[dpid]
        return failed

    def _finish(self, dpid: Dpid, reading: _Reading) -> None:
        bodies = reading.asked.bodies
        if bodies is None:
            return
        del self._readings[dpid]
        flows = [codec.flow_rule(stats) for stats in bodies["flows"]]
        groups = [codec.group_rule(stats) for stats in bodies["groups"]]
        meters = [codec.meter_rule(config) for config in bodies["meters"]]
        strange = sum(rule is None for rule in (*flows, *groups, *meters))
        if strange:
            log.warning("rules that are not ours to understand", dpid=f"{dpid:#x}", count=strange)
        rules = RuleSet.of(filter(None, flows), filter(None, groups), filter(None, meters))
        total = sum(stats.flow_count for stats in bodies["count"][:1])
        self._put(SwitchRules(dpid, rules, max(0, total - len(rules.flows))))
