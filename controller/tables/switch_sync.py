"""Keeps every switch at its desired rules: read back after each connect, deltas after that.

Owns what each switch is believed to hold and the stages that are under way. No queue of stages is kept: after each
barrier the difference to the newest desired rules is taken again and its first stage sent. What only takes next hops
away does not wait even for that: no switch that is slow to answer delays a repair on the others. A rule that a switch
refuses is not sent again until it changes or the switch reconnects; a switch that does not answer is read back before
anything else is sent to it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.fabric.topology import Dpid
from controller.messages import InstallStage, ReadRules, StageDone, SwitchResult, SwitchRules
from controller.tables import rules_diff
from controller.tables.rules import FlowRule, GroupRule, MeterRule, Rule, RuleMod, RuleSet, Stage

RuleId = tuple[Dpid, object]
REREAD_AFTER_S = 2.0


def rule_id(dpid: Dpid, rule: Rule) -> RuleId:
    """Which rule of which switch, whatever it says."""
    if isinstance(rule, FlowRule):
        return dpid, rule.key
    return dpid, ("group", rule.group_id) if isinstance(rule, GroupRule) else ("meter", rule.meter_id)


@dataclass(frozen=True, slots=True)
class Refusal:
    mod: RuleMod
    reason: str


class SwitchSync:
    """State for all switches; the control loop asks it what to send next.

    ``settled`` and ``unsettled``: as of the last ``next_stage``, the switches with nothing left to send, and the rest.
    """

    def __init__(self) -> None:
        self.installed: dict[Dpid, RuleSet] = {}
        self.foreign: dict[Dpid, int] = {}
        self.refused: dict[RuleId, Refusal] = {}
        self.settled: frozenset[Dpid] = frozenset()
        self.unsettled: frozenset[Dpid] = frozenset()
        self._connected: set[Dpid] = set()
        self._reread_at: dict[Dpid, float] = {}
        self._under_way: dict[int, InstallStage] = {}
        self._changes = 0

    @property
    def busy(self) -> bool:
        """A stage is on its way."""
        return bool(self._under_way)

    def connected(self, dpid: Dpid) -> ReadRules:
        self.left(dpid)
        self._connected.add(dpid)
        return ReadRules(dpid)

    def left(self, dpid: Dpid) -> None:
        self._connected.discard(dpid)
        self.installed.pop(dpid, None)
        self.foreign.pop(dpid, None)
        self._reread_at.pop(dpid, None)
        self.refused = {rule: why for rule, why in self.refused.items() if rule[0] != dpid}

    def rules_read(self, message: SwitchRules) -> None:
        if message.dpid in self._connected:
            self.installed[message.dpid] = message.rules
            self.foreign[message.dpid] = message.foreign

    def due_reads(self, now: float) -> list[ReadRules]:
        """Read-backs of switches that did not answer earlier."""
        due = [dpid for dpid, at in self._reread_at.items() if at <= now]
        for dpid in due:
            del self._reread_at[dpid]
        return [ReadRules(dpid) for dpid in due]

    @property
    def all_read(self) -> bool:
        """Every connected switch has been read back."""
        return self._connected == self.installed.keys()

    def next_stage(self, desired: Mapping[Dpid, RuleSet]) -> InstallStage | None:
        """The first stage of what is left to do; while another is under way, only a repair of other switches. None when
        there is none."""
        stages = [s for s in map(self._worth_sending, rules_diff.stages(desired, self.installed)) if s.mods]
        self.unsettled = frozenset(dpid for stage in stages for dpid in stage.mods)
        self.settled = frozenset(self.installed) - self.unsettled
        if self._under_way:
            answering = {dpid for sent in self._under_way.values() for dpid in sent.stage.mods}
            stages = [
                _without(s, answering) for s in stages if s.name == rules_diff.NARROW and not s.mods.keys() <= answering
            ]
        if not stages:
            return None
        self._changes += 1
        self._under_way[self._changes] = InstallStage(self._changes, 0, stages[0])
        return self._under_way[self._changes]

    def stage_done(self, message: StageDone, now: float) -> None:
        """Take over what the switches confirmed."""
        stage = self._under_way.pop(message.change_id, None)
        if stage is None:
            return
        for dpid, mods in stage.stage.mods.items():
            result = message.results.get(dpid, SwitchResult(timed_out=True))
            if result.timed_out and dpid in self._connected:
                self.installed.pop(dpid, None)
                self._reread_at[dpid] = now + REREAD_AFTER_S
            elif dpid in self.installed:
                for mod, reason in result.rejected:
                    self.refused[rule_id(dpid, mod.rule)] = Refusal(mod, reason)
                refused = {rule_id(dpid, mod.rule) for mod, _ in result.rejected}
                accepted = [mod for mod in mods if rule_id(dpid, mod.rule) not in refused]
                self.installed[dpid] = _apply(self.installed[dpid], accepted)

    def _worth_sending(self, stage: Stage) -> Stage:
        """Without what the switches have refused already."""

        def refused(dpid: Dpid, mod: RuleMod) -> bool:
            refusal = self.refused.get(rule_id(dpid, mod.rule))
            return refusal is not None and refusal.mod == mod

        mods = {dpid: tuple(mod for mod in changes if not refused(dpid, mod)) for dpid, changes in stage.mods.items()}
        return Stage(stage.name, {dpid: changes for dpid, changes in mods.items() if changes})


def _without(stage: Stage, dpids: set[Dpid]) -> Stage:
    return Stage(stage.name, {dpid: mods for dpid, mods in stage.mods.items() if dpid not in dpids})


def _apply(rules: RuleSet, mods: list[RuleMod]) -> RuleSet:
    flows, groups, meters = dict(rules.flows), dict(rules.groups), dict(rules.meters)
    for mod in mods:
        match mod.op, mod.rule:
            case "delete", FlowRule(key=key):
                flows.pop(key, None)
            case "delete", GroupRule(group_id=group_id):
                groups.pop(group_id, None)
            case "delete", MeterRule(meter_id=meter_id):
                meters.pop(meter_id, None)
            case _, FlowRule() as flow:
                flows[flow.key] = flow
            case _, GroupRule() as group:
                groups[group.group_id] = group
            case _, MeterRule() as meter:
                meters[meter.meter_id] = meter
    return RuleSet(flows, groups, meters)
