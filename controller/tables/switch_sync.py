"""Keeps every switch at its desired rules: read back after each connect, deltas after that.

Owns what each switch is believed to hold and the stages that are under way. No queue of stages is kept: after each
barrier the difference to the newest desired rules is taken again and its first stage sent. What only takes next hops
away does not wait even for that: no switch that is slow to answer delays a repair on the others. A rule that a switch
refuses is not sent again until it changes or the switch reconnects; a switch that does not answer is read back before
anything else is sent to it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controller.fabric.topology import Dpid
from controller.messages import InstallStage, ReadRules, StageDone, SwitchResult, SwitchRules
from controller.tables import rules_diff
from controller.tables.rules import FlowRule, GroupRule, MeterRule, Rule, RuleMod, RuleSet, Stage

RuleId = tuple[Dpid, object]
REREAD_AFTER_S = 2.0
MAX_REREAD_AFTER_S = 60.0


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
        self._reread_after_s: dict[Dpid, float] = {}
        self._under_way: dict[int, Stage] = {}
        self._newest: dict[RuleId, tuple[int, RuleMod]] = {}
        self._changes = 0
        self._equal: dict[Dpid, tuple[RuleSet, RuleSet]] = {}

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
        self._equal.pop(dpid, None)
        self.foreign.pop(dpid, None)
        self._reread_at.pop(dpid, None)
        self._reread_after_s.pop(dpid, None)
        self._under_way = {
            change: Stage(stage.name, {d: mods for d, mods in stage.mods.items() if d != dpid})
            for change, stage in self._under_way.items()
        }
        self._newest = {rule: sent for rule, sent in self._newest.items() if rule[0] != dpid}
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
        """The first stage of what is left to do; while another is under way, only what takes next hops away and is not
        on its way yet. None when there is none."""
        stages = rules_diff.stages(*self._unequal(desired))
        left = {rule_id(dpid, mod.rule) for stage in stages for dpid, mods in stage.mods.items() for mod in mods}
        self.refused = {rule: why for rule, why in self.refused.items() if rule in left}
        stages = [stage for stage in (_filtered(stage, self._is_refused) for stage in stages) if stage.mods]
        self.unsettled = frozenset(dpid for stage in stages for dpid in stage.mods)
        self.settled = frozenset(self.installed) - self.unsettled
        if self._under_way:
            repairs = (_filtered(stage, self._is_sent) for stage in stages if stage.name == rules_diff.NARROW)
            stages = [stage for stage in repairs if stage.mods]
        return self._send(stages[0]) if stages else None

    def _unequal(self, desired: Mapping[Dpid, RuleSet]) -> tuple[dict[Dpid, RuleSet], dict[Dpid, RuleSet]]:
        """Desired and installed rules of the switches where they differ; the others are compared once, not again."""
        for dpid, held in self.installed.items():
            wanted = desired.get(dpid)
            before = self._equal.get(dpid)
            if before and before[0] is wanted and before[1] is held:
                continue
            if wanted is not None and wanted == held:
                # From here on most rules are the same objects on both sides, which compare at once.
                self.installed[dpid] = wanted
                self._equal[dpid] = wanted, wanted
            else:
                self._equal.pop(dpid, None)
        differing = [dpid for dpid in self.installed if dpid in desired and dpid not in self._equal]
        return {dpid: desired[dpid] for dpid in differing}, {dpid: self.installed[dpid] for dpid in differing}

    def _send(self, stage: Stage) -> InstallStage:
        self._changes += 1
        self._under_way[self._changes] = stage
        for dpid, mods in stage.mods.items():
            self._newest |= {rule_id(dpid, mod.rule): (self._changes, mod) for mod in mods}
        return InstallStage(self._changes, stage)

    def _is_refused(self, dpid: Dpid, mod: RuleMod) -> bool:
        refusal = self.refused.get(rule_id(dpid, mod.rule))
        return refusal is not None and refusal.mod == mod

    def _is_sent(self, dpid: Dpid, mod: RuleMod) -> bool:
        sent = self._newest.get(rule_id(dpid, mod.rule))
        return sent is not None and sent[1] == mod

    def stage_done(self, message: StageDone, now: float) -> None:
        """Take over what the switches confirmed, unless something newer was sent for the same rule meanwhile, which may
        even have been confirmed before."""
        stage = self._under_way.pop(message.change_id, Stage("", {}))
        for dpid, mods in stage.mods.items():
            result = message.results.get(dpid, SwitchResult(timed_out=True))
            newest = [mod for mod in mods if self._newest.get(rule_id(dpid, mod.rule)) == (message.change_id, mod)]
            for mod in newest:
                del self._newest[rule_id(dpid, mod.rule)]
            if result.timed_out:
                self._read_later(dpid, now)
            elif dpid in self.installed:
                self._reread_after_s.pop(dpid, None)
                refusals = {rule_id(dpid, mod.rule): Refusal(mod, reason) for mod, reason in result.rejected}
                self.refused |= refusals
                accepted = [mod for mod in newest if rule_id(dpid, mod.rule) not in refusals]
                self.installed[dpid] = _apply(self.installed[dpid], accepted)

    def _read_later(self, dpid: Dpid, now: float) -> None:
        """What the switch holds is not known any more; ask it, less and less often while it stays silent."""
        self.installed.pop(dpid, None)
        pause_s = self._reread_after_s.get(dpid, REREAD_AFTER_S)
        self._reread_after_s[dpid] = min(2 * pause_s, MAX_REREAD_AFTER_S)
        self._reread_at[dpid] = now + pause_s


def _filtered(stage: Stage, unwanted: Callable[[Dpid, RuleMod], bool]) -> Stage:
    mods = {dpid: tuple(mod for mod in mods if not unwanted(dpid, mod)) for dpid, mods in stage.mods.items()}
    return Stage(stage.name, {dpid: left for dpid, left in mods.items() if left})


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
