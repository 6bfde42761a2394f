"""The flow entries that each switch may hold: those that were read back, and those that were sent to it since.

In: read-backs, mods as they are sent and confirmed, sizes of answers. Out: which counters are of such entries, which
parts of answers are more than the switch may hold. What a switch invents costs the control loop next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.fabric.topology import Dpid
from controller.tables.messages import RuleCount, SwitchRules
from controller.tables.rules import FlowKey, FlowRule, RuleMod

ENTRY_BYTES = 256
"""The size of a flow entry of ours is half of it."""
MORE_BYTES = 1 << 18
"""Bytes that an answer may have beyond the entries that are known: some 2,000 entries. Four times as many held the
control loop for 0.9 s when a switch invented them."""
MOST_LEFT = 4096
"""Switches that have left whose number of entries is remembered, those with most."""


class _Before:
    """How many entries of ours a switch had when it was there last."""

    def __init__(self, known: Iterable[Dpid]) -> None:
        self._known = set(known)
        self._left: dict[Dpid, int] = {}

    def get(self, dpid: Dpid) -> int | None:
        """Return the number of entries, None for a switch that was there before this process started."""
        return None if dpid in self._known else self._left.get(dpid, 0)

    def note(self, dpid: Dpid, entries: int) -> None:
        self._known.discard(dpid)
        self._left[dpid] = entries
        if len(self._left) > MOST_LEFT:
            del self._left[min(self._left, key=self._left.__getitem__)]


@dataclass(slots=True)
class _Switch:
    """``is_read``: a read-back was complete. ``flows``: the switch may hold these. ``deleting``: the latest mod of
    those whose deletion it has not confirmed. ``since``: what was sent since a read-back began, None while there is
    none."""

    is_read: bool = False
    flows: dict[FlowKey, None] = field(default_factory=dict)
    deleting: dict[FlowKey, RuleMod] = field(default_factory=dict)
    since: list[RuleMod] | None = None

    def note(self, mods: Iterable[RuleMod]) -> None:
        for mod in mods:
            if isinstance(mod.rule, FlowRule):
                self.flows[mod.rule.key] = None
                self.deleting.pop(mod.rule.key, None)
                if mod.op == "delete":
                    self.deleting[mod.rule.key] = mod


class GivenRules:
    """``known``: switches that hold what the process before gave them: their first answers may be of any size. All
    other switches have nothing of ours when they come for the first time."""

    def __init__(self, known: Iterable[Dpid] = ()) -> None:
        self._switches: dict[Dpid, _Switch] = {}
        self._before = _Before(known)
        self._slow: set[Dpid] = set()
        self._invented: set[Dpid] = set()

    def read_begins(self, dpid: Dpid) -> None:
        self._switches.setdefault(dpid, _Switch()).since = []

    def read(self, message: SwitchRules) -> None:
        """The switch holds these rules, and may hold what was sent to it meanwhile."""
        since = self._switches[message.dpid].since or ()
        switch = self._switches[message.dpid] = _Switch(True, dict.fromkeys(message.rules.flows))
        switch.note(since)

    def sent(self, dpid: Dpid, mods: Iterable[RuleMod]) -> None:
        switch = self._switches.setdefault(dpid, _Switch())
        switch.note(mods)
        if switch.since is not None:
            switch.since.extend(mods)

    def confirmed(self, dpid: Dpid, mods: Iterable[RuleMod]) -> None:
        """The switch has carried these out: what was deleted, and not sent again since, is gone."""
        switch = self._switches.setdefault(dpid, _Switch())
        for mod in mods:
            if isinstance(mod.rule, FlowRule) and switch.deleting.get(mod.rule.key) is mod:
                del switch.deleting[mod.rule.key], switch.flows[mod.rule.key]

    def switch_left(self, dpid: Dpid) -> None:
        self._slow.discard(dpid)
        self._invented.discard(dpid)
        switch = self._switches.pop(dpid, None)
        if switch and switch.is_read:
            self._before.note(dpid, len(switch.flows) - len(switch.deleting))

    def is_read(self, dpid: Dpid) -> bool:
        """Whether it is known what the switch holds."""
        return dpid in self._switches and self._switches[dpid].is_read

    def of_given(self, dpid: Dpid, counts: Mapping[FlowKey, RuleCount]) -> Mapping[FlowKey, RuleCount]:
        """Return the counters of entries that the switch may hold; the same object when these are all."""
        invented = set(counts).difference(self._switches[dpid].flows)
        return {key: count for key, count in counts.items() if key not in invented} if invented else counts

    # ---- sizes of answers

    def takes(self, dpid: Dpid, size: int) -> bool:
        """Whether a part of an answer is to be read. ``size``: bytes of entries of ours until its end."""
        switch = self._switches.get(dpid)
        entries = len(switch.flows) if switch and switch.is_read else self._before.get(dpid)
        is_taken = entries is None or size <= MORE_BYTES + entries * ENTRY_BYTES
        if not is_taken:
            self._invented.add(dpid)
            self._slow.add(dpid)
        return is_taken

    def takes_foreign(self, dpid: Dpid, size: int) -> bool:
        """The same of all entries. Others may have made any number: those of a switch with many are read slowly."""
        if size > MORE_BYTES:
            self._slow.add(dpid)
        return True

    def take_slow(self, dpid: Dpid) -> bool:
        """Whether a part is to be charged to its sender, since this was asked last."""
        is_slow = dpid in self._slow
        self._slow.discard(dpid)
        return is_slow

    def take_invented(self, dpid: Dpid) -> bool:
        """Whether parts of answers were not read, since this was asked last."""
        has_invented = dpid in self._invented
        self._invented.discard(dpid)
        return has_invented
