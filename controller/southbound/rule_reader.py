"""Read-back of the rules of a switch: the controller's flows, all groups and meters, and the keys of foreign flows.

In: requests to read, parts of replies. Out: requests through ``send``, ``SwitchRules`` messages. ``now`` is in
monotonic seconds.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain

from controller.fabric.topology import Dpid
from controller.southbound import openflow_decode as decode
from controller.southbound import openflow_encode as encode
from controller.southbound.framework import ofp
from controller.southbound.given_rules import GivenRules
from controller.southbound.limits import limited_log
from controller.southbound.multipart import Gathered, Requests
from controller.tables.messages import HashedKeys, SwitchRules
from controller.tables.rules import RuleSet

FOREIGN = {ofp.OFPMP_FLOW: lambda body: array("q", map(hash, decode.foreign_flow_keys(body)))}
"""Decoder of foreign flow entries: returns the hashes of their keys, because a switch may have a great many."""


class RuleReader(Requests):
    def __init__(
        self, timeout_s: float, send: encode.Send, put: Callable[[SwitchRules], None], given: GivenRules
    ) -> None:
        super().__init__(send)
        self._timeout_s = timeout_s
        self._given = given
        self._put = put
        self._read: dict[Dpid, SwitchRules] = {}
        """Rules read from switches whose foreign flow keys, which are requested last, have not arrived yet."""

    def read(self, dpid: Dpid, now: float) -> None:
        """Request the flows, groups and meters of a switch, and abandon an open read of the switch."""
        requests = {
            ofp.OFPMP_FLOW: encode.flow_stats_request(),
            ofp.OFPMP_AGGREGATE: encode.every_flow_request(ofp.OFPMP_AGGREGATE),
            ofp.OFPMP_GROUP_DESC: encode.all_request(ofp.OFPMP_GROUP_DESC),
            ofp.OFPMP_METER_CONFIG: encode.all_request(ofp.OFPMP_METER_CONFIG),
        }
        self._read.pop(dpid, None)
        self._given.read_begins(dpid)
        self.ask(dpid, requests, now, now + self._timeout_s, partial(self._given.takes, dpid))

    def switch_left(self, dpid: Dpid) -> None:
        super().switch_left(dpid)
        self._read.pop(dpid, None)

    def failed(self, now: float) -> list[Dpid]:
        """Return the switches whose read was refused or is overdue; each is returned once."""
        failed = [dpid for dpid, asked in self._asked.items() if asked.until <= now]
        for dpid in failed:
            self.switch_left(dpid)
        return failed

    def _refused(self, dpid: Dpid, kind: int) -> None:
        """Fail the read, unless the refused request is for meters: a switch that refuses meters has none."""
        if kind != ofp.OFPMP_METER_CONFIG:
            self._asked[dpid].until = -math.inf

    def _finish(self, dpid: Dpid, asked: Gathered) -> None:
        if asked.until == -math.inf:
            return
        if read := self._read.pop(dpid, None):
            read = replace(read, foreign_keys=HashedKeys(chain.from_iterable(asked.of(ofp.OFPMP_FLOW))))
        else:
            read = _read_rules(dpid, asked)
            if read.foreign:
                self._read[dpid] = read
                requests = {ofp.OFPMP_FLOW: encode.every_flow_request()}
                self.ask(dpid, requests, asked.at, asked.until, partial(self._given.takes_foreign, dpid), FOREIGN)
                return
        del self._asked[dpid]
        self._given.read(read)
        self._put(read)


def _read_rules(dpid: Dpid, asked: Gathered) -> SwitchRules:
    flows = [count.rule for part in asked.of(ofp.OFPMP_FLOW) for count in part]
    groups = [rule for part in asked.of(ofp.OFPMP_GROUP_DESC) for rule in part]
    meters = [rule for part in asked.of(ofp.OFPMP_METER_CONFIG) for rule in part]
    unknown = flows.count(None)
    if unknown:
        limited_log.warning("flow entries that the controller cannot express", dpid=f"{dpid:#x}", count=unknown)
    rules = RuleSet.of(filter(None, flows), groups, meters)
    total = sum(asked.of(ofp.OFPMP_AGGREGATE)[:1])
    is_partial = not asked.skipped.isdisjoint((ofp.OFPMP_GROUP_DESC, ofp.OFPMP_METER_CONFIG))
    return SwitchRules(dpid, rules, max(0, total - len(rules.flows)), is_partial=is_partial)
