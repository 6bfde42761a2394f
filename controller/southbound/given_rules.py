"""Reading the rules of each switch, and the entries that the switch may hold.

``RuleReader`` reads the controller's flows, all groups and meters, and the keys of foreign flows. In: requests to read,
parts of replies. Out: requests through ``send``, ``SwitchRules`` messages.

``GivenRules`` knows the entries that a switch may hold: entries that were read, and entries that were sent after the
reading. In: read rules, changes as they are sent and confirmed, sizes of replies. Out: the counters of these entries,
and whether a part of a reply is too large for them. So entries, groups and meters that a switch invents cost the
control loop next to nothing. ``now`` is in monotonic seconds.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import NamedTuple

from controller.fabric.topology import Dpid
from controller.southbound import openflow_decode as decode
from controller.southbound import openflow_encode as encode
from controller.southbound.framework import ofp
from controller.southbound.limits import MAX_SWITCH_PORTS, limited_log
from controller.southbound.multipart import Gathered, Requests
from controller.tables.messages import HashedKeys, RuleCount, SwitchRules, key_hash
from controller.tables.rules import FlowKey, FlowRule, GroupRule, RuleMod, RuleSet

ENTRY_BYTES = 256
"""Bytes allowed per flow entry: twice the size of an entry of the controller."""
GROUP_BYTES, BUCKET_BYTES = 16, 64
"""Bytes allowed per group, and per bucket of a group: twice their sizes."""
BYTES_PER_PORT = {ofp.OFPMP_PORT_STATS: 112, ofp.OFPMP_METER: 64, ofp.OFPMP_METER_CONFIG: 32}
"""Bytes allowed per port of the switch, by kind of reply.

A reply has one entry of this size per port, or per meter. A port has at most one meter."""
MORE_BYTES = 1 << 18
"""Largest number of bytes by which a reply may exceed the expected size: about 2,000 flow entries.

8,000 entries that a switch invented blocked the control loop for 0.9 s."""
ROOM_BYTES = 1 << 12
MOST_BEYOND = 1 << 21
"""Largest number of unexpected bytes in the latest replies of all switches together.

The unexpected bytes of a reply are those beyond its expected size; up to ``ROOM_BYTES`` per reply do not count. The
limit protects memory: decoded entries take ten times as many bytes, and thousands of switches may send endless
replies."""
MOST_LEFT = 4096
"""Largest number of disconnected switches that are remembered: those with the most flow entries."""


class _Size(NamedTuple):
    flows: int
    groups: int


@dataclass(slots=True)
class _Switch:
    is_read: bool = False
    flows: dict[FlowKey, None] = field(default_factory=dict)
    """Keys of the entries that the switch may hold."""
    groups: dict[int, int] = field(default_factory=dict)
    """Bytes allowed for each group that the switch may hold. Deleted groups stay until the rules are read again."""
    deleting: dict[FlowKey, RuleMod] = field(default_factory=dict)
    since: list[RuleMod] | None = None
    """Changes sent since the rules were requested; None while no request is open."""

    def note(self, mods: Iterable[RuleMod]) -> None:
        for mod in mods:
            if isinstance(mod.rule, FlowRule):
                self.flows[mod.rule.key] = None
                self.deleting.pop(mod.rule.key, None)
                if mod.op == "delete":
                    self.deleting[mod.rule.key] = mod
            elif isinstance(mod.rule, GroupRule):
                self.groups[mod.rule.group_id] = _group_bytes(mod.rule)

    def size(self, flows: int) -> _Size:
        return _Size(flows * ENTRY_BYTES, sum(self.groups.values()))


def _group_bytes(group: GroupRule) -> int:
    return GROUP_BYTES + BUCKET_BYTES * len(group.buckets)


class GivenRules:
    """Flow entries that each switch may hold.

    ``known``: switches that may have entries of a previous process, so that their first replies may have any size.
    Other switches have no entries of the controller when they connect for the first time. ``ports``: function that
    returns the number of ports of a connected switch."""

    def __init__(self, known: Iterable[Dpid] = (), ports: Callable[[Dpid], int] = lambda _: MAX_SWITCH_PORTS) -> None:
        self._ports = ports
        self._beyond: Counter[tuple[Dpid, int]] = Counter()
        """Bytes by which the latest reply exceeds the expected size, by switch and kind, if more than
        ``ROOM_BYTES``."""
        self._all_beyond = 0
        self._switches: dict[Dpid, _Switch] = {}
        self._unknown = set(known)
        self._left: dict[Dpid, _Size] = {}
        """Size of the controller's rules on each switch when it last disconnected."""
        self._slow: set[Dpid] = set()
        self._invented: set[Dpid] = set()

    def expect(self, known: Iterable[Dpid]) -> None:
        """Accept first replies of any size from these switches too.

        Other controllers may have sent rules to these switches."""
        self._unknown.update(known)

    def read_begins(self, dpid: Dpid) -> None:
        self._switches.setdefault(dpid, _Switch()).since = []

    def read(self, message: SwitchRules) -> None:
        """Record that the switch holds these rules, and perhaps rules that were sent after the request."""
        before, rules = self._switches[message.dpid], message.rules
        used = rules.groups_of(rules.flows.values()).values()
        groups = {**(before.groups if message.is_partial else {}), **{one.group_id: _group_bytes(one) for one in used}}
        switch = self._switches[message.dpid] = _Switch(True, dict.fromkeys(rules.flows), groups)
        switch.note(before.since or ())

    def sent(self, dpid: Dpid, mods: Iterable[RuleMod]) -> None:
        switch = self._switches.setdefault(dpid, _Switch())
        switch.note(mods)
        if switch.since is not None:
            switch.since.extend(mods)

    def confirmed(self, dpid: Dpid, mods: Iterable[RuleMod]) -> None:
        """Record that the switch has executed these changes.

        Entries that were deleted, and not sent again since then, are forgotten."""
        switch = self._switches.setdefault(dpid, _Switch())
        for mod in mods:
            if isinstance(mod.rule, FlowRule) and switch.deleting.get(mod.rule.key) is mod:
                del switch.deleting[mod.rule.key], switch.flows[mod.rule.key]

    def switch_left(self, dpid: Dpid) -> None:
        self._slow.discard(dpid)
        self._invented.discard(dpid)
        for kind in (*BYTES_PER_PORT, ofp.OFPMP_FLOW, ofp.OFPMP_GROUP_DESC):
            self._count_beyond(dpid, kind, 0)
        switch = self._switches.pop(dpid, None)
        if switch and switch.is_read:
            self._unknown.discard(dpid)
            self._left[dpid] = switch.size(len(switch.flows) - len(switch.deleting))
            if len(self._left) > MOST_LEFT:
                del self._left[min(self._left, key=self._left.__getitem__)]

    def is_read(self, dpid: Dpid) -> bool:
        """Return whether the rules of the switch have been read."""
        return dpid in self._switches and self._switches[dpid].is_read

    def of_given(self, dpid: Dpid, counts: Mapping[FlowKey, RuleCount]) -> Mapping[FlowKey, RuleCount]:
        """Return the counters of entries that the switch may hold; ``counts`` itself if it may hold all of them."""
        invented = set(counts).difference(self._switches[dpid].flows)
        return {key: count for key, count in counts.items() if key not in invented} if invented else counts

    # ---- sizes of replies

    def takes(self, dpid: Dpid, kind: int, size: int) -> bool:
        """Return whether to decode a part of a reply. A part that is too large for the known rules is skipped.

        ``kind``: OFPMP_*. Only kinds with an entry per rule or per port are limited. ``size``: bytes of this kind in
        the reply, up to the end of this part. Flow entries in the reply must be the controller's own; ``takes_foreign``
        handles foreign entries."""
        expected = None if size <= ROOM_BYTES else self._expected(dpid, kind)
        beyond = 0 if expected is None else size - expected
        others = self._all_beyond - self._beyond.get((dpid, kind), 0)
        if beyond <= ROOM_BYTES or (beyond <= MORE_BYTES and others + beyond <= MOST_BEYOND):
            self._count_beyond(dpid, kind, beyond if beyond > ROOM_BYTES else 0)
            return True
        self._invented.add(dpid)
        self._slow.add(dpid)
        return False

    def _expected(self, dpid: Dpid, kind: int) -> int | None:
        if kind in BYTES_PER_PORT:
            return BYTES_PER_PORT[kind] * self._ports(dpid)
        if kind not in (ofp.OFPMP_FLOW, ofp.OFPMP_GROUP_DESC):
            return None
        switch = self._switches.get(dpid)
        left = None if dpid in self._unknown else self._left.get(dpid, _Size(0, 0))
        known = switch.size(len(switch.flows)) if switch and switch.is_read else left
        if known is None:
            return None
        return known.flows if kind == ofp.OFPMP_FLOW else known.groups

    def _count_beyond(self, dpid: Dpid, kind: int, size: int) -> None:
        self._all_beyond += size - self._beyond.pop((dpid, kind), 0)
        if size:
            self._beyond[dpid, kind] = size

    def takes_foreign(self, dpid: Dpid, kind: int, size: int) -> bool:  # noqa: ARG002
        """Mark the switch as slow to read if the reply has many entries, and return True: the part is always decoded.

        ``kind``: OFPMP_FLOW. ``size``: bytes of all entries in the reply, up to the end of this part. The entries may
        be foreign, and their number is not limited."""
        if size > MORE_BYTES:
            self._slow.add(dpid)
        return True

    def take_slow(self, dpid: Dpid) -> bool:
        """Return whether the switch was marked as slow to read since the last call.

        The processing time of a part of a marked switch counts against the switch's share of the hub's time."""
        is_slow = dpid in self._slow
        self._slow.discard(dpid)
        return is_slow

    def take_invented(self, dpid: Dpid) -> bool:
        """Return whether parts of the switch's replies were skipped since the last call."""
        has_invented = dpid in self._invented
        self._invented.discard(dpid)
        return has_invented


FOREIGN = {ofp.OFPMP_FLOW: lambda body: array("q", map(key_hash, decode.foreign_flow_keys(body)))}
"""Decoder of foreign flow entries to the hashes of their keys, because a switch may have a great many entries."""


class RuleReader(Requests):
    def __init__(
        self, timeout_s: float, send: encode.Send, put: Callable[[SwitchRules], None], given: GivenRules
    ) -> None:
        super().__init__(send)
        self._timeout_s = timeout_s
        self._given = given
        self._put = put
        self._read: dict[Dpid, SwitchRules] = {}
        """Rules of switches for which only the last reply, with the keys of foreign flows, is still missing."""

    def read(self, dpid: Dpid, now: float) -> None:
        """Request the flows, groups and meters of a switch, and abandon earlier requests to it."""
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
        """Return the switches that have refused a request, or whose answer is overdue; each is returned once."""
        failed = [dpid for dpid, asked in self._asked.items() if asked.until <= now]
        for dpid in failed:
            self.switch_left(dpid)
        return failed

    def _refused(self, dpid: Dpid, kind: int) -> None:
        """Record the failure, unless the request was for meters: a switch that refuses this request has no meters."""
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
        limited_log.warning(
            "switch holds flow entries of a kind that the controller does not know", dpid=f"{dpid:#x}", count=unknown
        )
    rules = RuleSet.of(filter(None, flows), groups, meters)
    total = sum(asked.of(ofp.OFPMP_AGGREGATE)[:1])
    is_partial = not asked.skipped.isdisjoint((ofp.OFPMP_GROUP_DESC, ofp.OFPMP_METER_CONFIG))
    return SwitchRules(dpid, rules, max(0, total - len(rules.flows)), is_partial=is_partial)
