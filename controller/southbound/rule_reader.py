"""Reads back the rules of a switch: the controller's flows, all groups and meters, and the keys of foreign flows.

In: requests to read, parts of replies. Out: requests through ``send``, ``SwitchRules`` messages. ``now`` is monotonic
seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import structlog

from controller.fabric.topology import Dpid
from controller.southbound import openflow_decode as decode
from controller.southbound import openflow_encode as encode
from controller.southbound.framework import ofp
from controller.southbound.given_rules import GivenRules
from controller.southbound.multipart import Gathered, Reply
from controller.tables.messages import SwitchRules
from controller.tables.rules import RuleSet

log = structlog.get_logger(__name__)

FOREIGN = {ofp.OFPMP_FLOW: decode.foreign_flow_keys}


@dataclass(slots=True)
class _Reading:
    """``read``: the answer without the keys of foreign flows, which are asked for last."""

    asked: Gathered
    deadline: float
    read: SwitchRules | None = None


class RuleReader:
    def __init__(
        self, timeout_s: float, send: encode.Send, put: Callable[[SwitchRules], None], given: GivenRules
    ) -> None:
        self._timeout_s = timeout_s
        self._send = send
        self._given = given
        self._put = put
        self._readings: dict[Dpid, _Reading] = {}

    def read(self, dpid: Dpid, now: float) -> None:
        """Asks for everything; replaces a read of the same switch that is not answered yet."""
        requests = {
            ofp.OFPMP_FLOW: encode.flow_stats_request(),
            ofp.OFPMP_AGGREGATE: encode.every_flow_request(ofp.OFPMP_AGGREGATE),
            ofp.OFPMP_GROUP_DESC: encode.all_request(ofp.OFPMP_GROUP_DESC),
            ofp.OFPMP_METER_CONFIG: encode.all_request(ofp.OFPMP_METER_CONFIG),
        }
        kinds = dict(zip(self._send(dpid, *requests.values()), requests, strict=True))
        self._given.read_begins(dpid)
        asked = Gathered(kinds, takes=partial(self._given.takes, dpid))
        self._readings[dpid] = _Reading(asked, now + self._timeout_s)

    def part(self, dpid: Dpid, reply: Reply) -> bool:
        """One part of a reply; False when it belongs to no read. Raises ``Malformed``."""
        reading = self._readings.get(dpid)
        if reading is None or not reading.asked.part(reply):
            return False
        self._finish(dpid, reading)
        return True

    def error(self, dpid: Dpid, xid: int) -> bool:
        """The switch refused a request; False when it belongs to no read. A switch that refuses meters has none; when
        it refuses another request its state is unknown and the read has failed."""
        reading = self._readings.get(dpid)
        refused = reading.asked.refused(xid) if reading else None
        if reading is None or refused is None:
            return False
        if refused == ofp.OFPMP_METER_CONFIG:
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
        if not reading.asked.complete or reading.deadline == -math.inf:
            return
        if reading.read is not None:
            keys = frozenset(key for part in reading.asked.of(ofp.OFPMP_FLOW) for key in part)
            self._report(replace(reading.read, foreign_keys=keys))
            return
        read = _read_rules(dpid, reading.asked)
        if not read.foreign:
            self._report(read)
            return
        (xid,) = self._send(dpid, encode.every_flow_request())
        reading.read = read
        reading.asked = Gathered({xid: ofp.OFPMP_FLOW}, FOREIGN, partial(self._given.takes_foreign, dpid))

    def _report(self, read: SwitchRules) -> None:
        del self._readings[read.dpid]
        self._given.read(read)
        self._put(read)


def _read_rules(dpid: Dpid, asked: Gathered) -> SwitchRules:
    flows = [count.rule for part in asked.of(ofp.OFPMP_FLOW) for count in part]
    groups = [rule for part in asked.of(ofp.OFPMP_GROUP_DESC) for rule in part]
    meters = [rule for part in asked.of(ofp.OFPMP_METER_CONFIG) for rule in part]
    unknown = flows.count(None)
    if unknown:
        log.warning("flows that the controller does not use", dpid=f"{dpid:#x}", count=unknown)
    rules = RuleSet.of(filter(None, flows), groups, meters)
    total = sum(asked.of(ofp.OFPMP_AGGREGATE)[:1])
    return SwitchRules(dpid, rules, max(0, total - len(rules.flows)))
