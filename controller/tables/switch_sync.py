"""Synchronisation of every switch with its desired rules: reading rules, sending differences, and audits.

The rules of a switch are read after it has connected. When all switches have answered the barrier of a stage, the first
stage of the remaining difference is sent. A stage that only removes next hops does not wait for barriers, so a slow
switch delays no repair on other switches. If a switch does not answer in time, its rules are read before further
changes are sent.

A refused rule is sent again after other rules of the switch were deleted, and after growing pauses. Until the switch
accepts the rule, its flow uses ECMP. ``TableUses`` has the number of entries and the limit of each table, as far as
switches report them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Literal, NamedTuple

from controller.fabric.topology import Dpid, Fabric
from controller.shared_map import MemoPerKey, SharedMap, updated
from controller.tables.flow_tables import on_ecmp
from controller.tables.messages import InstallStage, ReadRules, StageDone, SwitchResult, SwitchRules, TablesRead
from controller.tables.rules import (
    NARROW,
    AnyTable,
    FlowRule,
    GroupRule,
    MeterRule,
    OtherTable,
    Rule,
    RuleMod,
    RuleSet,
    Stage,
    Table,
    ToGroup,
    applied,
    divided,
    mods_between,
    stages_between,
)

RuleId = tuple[Dpid, object]
"""Switch and key of a rule."""
StagesBetween = Callable[[Mapping[Dpid, RuleSet], Mapping[Dpid, RuleSet]], list[Stage]]
REREAD_AFTER_S = 2.0
"""Seconds until the rules of a switch that did not answer are read, doubled each time."""
RETRY_AFTER_S = 5.0
"""Seconds until a refused rule is sent again, doubled each time."""
MAX_PAUSE_S = 60.0
"""Longest pause in seconds before rules are read, or a refused rule is sent again."""
HELD = "a foreign rule with the same match or id exists"
MOST_OTHERS = 1 << 13
"""Largest number of foreign groups, and of foreign meters, of a switch that are remembered. Further ones are only
counted."""
EXISTS = ("OFPGMFC_GROUP_EXISTS", "OFPMMFC_METER_EXISTS")
"""Names of the OpenFlow errors for adding a group or meter that exists already (OpenFlow 1.3.5 section 7.4.4)."""


def _unknown_content(rule: Rule) -> Rule:
    """Return a group or meter that exists on the switch but was not read: same id, equal to no wanted rule."""
    if isinstance(rule, GroupRule):
        return GroupRule(rule.group_id, "other", ())
    return MeterRule(rule.meter_id, 0, 0) if isinstance(rule, MeterRule) else rule


@dataclass(frozen=True, slots=True)
class Refusal:
    """Changes of one rule that a switch refused."""

    mod: RuleMod
    """Latest refused change."""
    reason: str
    others: tuple[RuleMod, ...] = ()
    """Earlier refused changes that are still to be made, such as the deletion of the rule before its addition."""

    @property
    def mods(self) -> tuple[RuleMod, ...]:
        """All refused changes of the rule that are still to be made."""
        return (*self.others, self.mod)


@dataclass(slots=True)
class _Connected:
    """State of a connected switch, except its rules. Times are monotonic seconds; infinity means never."""

    sent: int = 0
    """Number of stages that were sent to the switch."""
    read_since: int | None = None
    """Value of ``sent`` when the switch's rules were last requested; None if the request was answered."""
    read_at: float = -math.inf
    reread_at: float = math.inf
    reread_after_s: float = REREAD_AFTER_S
    retry_at: float = math.inf
    retry_after_s: float = RETRY_AFTER_S
    foreign: SwitchRules | None = None
    """Latest answer to a request for rules, of which only the numbers and the keys of foreign rules are kept.

    The number ``foreign`` in the answer includes groups and meters that are not in ``others``."""
    others: RuleSet = field(default_factory=RuleSet)
    """Foreign groups and meters on the switch, up to ``MOST_OTHERS`` of each."""


class SwitchSync:
    """State of all switches, and the next messages that the control loop has to send to them.

    ``stages``: function of the desired rules and the installed rules that returns the stages of changes between
    them."""

    def __init__(self, audit_interval_s: float = math.inf, stages: StagesBetween = stages_between) -> None:
        self.installed: Mapping[Dpid, RuleSet] = {}
        """Rules of each switch whose rules are known; a new mapping on each change."""
        self.refused: dict[RuleId, Refusal] = {}
        """Changes that switches refused, by rule, and changes that would overwrite a foreign rule.

        A rule may have two changes, each of which may be refused. For example, an optical switch deletes and adds a
        cross-connect, and a path group loses a next hop before the group is deleted."""
        self.settled: frozenset[Dpid] = frozenset()
        """Switches without changes left to send at the last ``next_stage``."""
        self.unsettled: frozenset[Dpid] = frozenset()
        """Switches with changes left to send at the last ``next_stage``."""
        self.healed: Counter[Dpid] = Counter()
        """Number of Signalbox's rules that other programs or people removed, changed or added since the start, by
        switch."""
        self.audit_interval_s = audit_interval_s
        """Duration of one round of audits in seconds. In each round the rules of every switch are read once."""
        self._stages = stages
        self._audit_at = math.inf
        self._connected: dict[Dpid, _Connected] = {}
        self._under_way: dict[int, Stage] = {}
        self._late: set[int] = set()
        self._newest: defaultdict[Dpid, dict[object, tuple[int, RuleMod]]] = defaultdict(dict)
        """Latest unanswered change of each rule, with the number of its stage, by switch and rule key."""
        self._changes = 0
        self._like = MemoPerKey[Dpid, RuleSet, RuleSet, RuleSet](RuleSet.like)
        self._again: set[tuple[RuleId, RuleMod]] = set()
        self._next: tuple[Mapping[Dpid, RuleSet], list[Stage]] | None = None  # desired rules, and their later stages

    def take_audit_interval(self, audit_interval_s: float) -> None:
        """Set the duration of one round of audits in seconds. In each round the rules of every switch are read once."""
        self.audit_interval_s = audit_interval_s

    @property
    def busy(self) -> bool:
        """Whether the next stage must wait for a stage under way."""
        return self._under_way.keys() > self._late

    @property
    def under_way(self) -> Set[int]:
        """Numbers of the stages that not all switches have answered."""
        return self._under_way.keys()

    def changing(self, dpid: Dpid) -> RuleSet:
        """Return the flows and groups that are being changed, and that the switch may hold already."""
        rules = [mod.rule for stage in self._under_way.values() for mod in stage.mods.get(dpid, ())]
        flows = [rule for rule in rules if isinstance(rule, FlowRule)]
        return RuleSet.of(flows, [rule for rule in rules if isinstance(rule, GroupRule)])

    @property
    def retrying(self) -> bool:
        """Whether refused rules are due again; ``next_stage`` sends them."""
        return bool(self._again)

    @property
    def foreign(self) -> dict[Dpid, int]:
        """Number of foreign rules on each switch."""
        return {
            dpid: switch.foreign.foreign + len(switch.others)
            for dpid, switch in self._connected.items()
            if switch.foreign
        }

    @property
    def partly_read(self) -> frozenset[Dpid]:
        """Switches with so many groups or meters that some were not read.

        The values of these switches in ``foreign`` are lower bounds."""
        return frozenset(d for d, switch in self._connected.items() if switch.foreign and switch.foreign.is_partial)

    def held(self, dpid: Dpid) -> tuple[RuleSet, ...]:
        """Return Signalbox's rules on the switch, and foreign groups and meters; empty if the rules are unknown."""
        return (self.installed[dpid], self._connected[dpid].others) if dpid in self.installed else ()

    # ---- connections and read-backs

    def switch_connected(self, dpid: Dpid) -> ReadRules:
        self.switch_left(dpid)
        switch = self._connected[dpid] = _Connected()
        return self._read(dpid, switch)

    def moved(self, dpid: Dpid) -> list[ReadRules]:
        """Return a request to read the rules of a switch that has moved to another southbound.

        The former southbound does not answer an earlier request any more."""
        switch = self._connected.get(dpid)
        return [self._read(dpid, switch)] if switch else []

    def switch_left(self, dpid: Dpid) -> None:
        self._connected.pop(dpid, None)
        self._forget(dpid)
        for change in list(self._under_way):
            self._answered(change, [dpid])
        self._newest.pop(dpid, None)
        self.refused = {rule: why for rule, why in self.refused.items() if rule[0] != dpid}
        self._again = {(rule, mod) for rule, mod in self._again if rule[0] != dpid}

    def rules_read(
        self, message: SwitchRules, fabric: Fabric, now: float, known: Iterable[Dpid] = ()
    ) -> Literal["first", "changed", "same", "outdated"]:
        """Record the rules that were read from a switch, and return the result.

        - ``first``: the rules of the switch were not known before.
        - ``changed``: Signalbox's rules differ from those that were believed to be installed, or a foreign rule with
          the key of a wanted rule is gone.
        - ``outdated``: the message is ignored, because changes were sent to the switch meanwhile, or nothing was
          requested.
        - ``same``: Signalbox's rules are those that were believed to be installed.

        ``known``: as for ``rules.divided``."""
        dpid = message.dpid
        switch = self._connected.get(dpid)
        if switch is None or switch.read_since is None:
            return "outdated"
        outdated = switch.read_since != switch.sent or self._is_waited_for(dpid)
        switch.read_since = None
        if outdated:
            return "outdated"
        believed = self.installed.get(dpid)
        read = message.rules
        if message.is_partial and believed:  # what was not read is believed to be as it was
            read = RuleSet(read.flows, {**believed.groups, **read.groups}, {**believed.meters, **read.meters})
        ours, others = divided(dpid, read, believed or RuleSet(), fabric, known)
        groups, meters = islice(others.groups.items(), MOST_OTHERS), islice(others.meters.items(), MOST_OTHERS)
        switch.others = RuleSet({}, dict(groups), dict(meters))
        count = message.foreign + len(others) - len(switch.others)
        switch.foreign = replace(message, rules=RuleSet(), foreign=count)
        switch.read_at, self._next = now, None
        freed = {
            rule
            for rule, why in self.refused.items()
            if rule[0] == dpid and why.reason == HELD and rule[1] not in message.foreign_keys
        }
        self.refused = {rule: why for rule, why in self.refused.items() if rule not in freed}
        if believed is None:
            self._set_installed({dpid: ours})
            return "first"
        changes = sum(1 for _ in mods_between(believed, ours))
        if changes:
            self._set_installed({dpid: ours})
            self.healed[dpid] += changes
        return "changed" if changes or freed else "same"

    def read_soon(self, dpid: Dpid, now: float) -> None:
        """Read the rules of the switch soon, because another controller or a person may have changed them."""
        if switch := self._connected.get(dpid):
            switch.reread_at = min(switch.reread_at, now)

    def tick(self, now: float) -> list[ReadRules]:
        """Return requests to read rules that are due: scheduled ones, and one for an audit."""
        reads = []
        for dpid, switch in self._connected.items():
            if switch.retry_at <= now:
                self.retry(dpid)
            if switch.reread_at <= now and switch.read_since is None and not self._is_waited_for(dpid):
                reads.append(self._read(dpid, switch))
        return reads + self._audit(now)

    def _audit(self, now: float) -> list[ReadRules]:
        """Return a request to read the switch whose rules were read longest ago, if an audit is due.

        Audits are evenly spaced, so that each switch is read once in the audit interval."""
        pause_s = self.audit_interval_s / max(1, len(self.installed))
        self._audit_at = min(self._audit_at, now + pause_s)
        if now < self._audit_at or any(switch.read_since is not None for switch in self._connected.values()):
            return []
        idle = [dpid for dpid in self.installed if not self._is_waited_for(dpid)]
        if not idle:
            return []
        self._audit_at = max(now, self._audit_at + pause_s)
        due = min(idle, key=lambda dpid: self._connected[dpid].read_at)
        return [self._read(due, self._connected[due])]

    @staticmethod
    def _read(dpid: Dpid, switch: _Connected) -> ReadRules:
        switch.read_since, switch.reread_at = switch.sent, math.inf
        return ReadRules(dpid)

    def _is_waited_for(self, dpid: Dpid) -> bool:
        return any(dpid in stage.mods for stage in self._under_way.values())

    def _set_installed(self, rules: Mapping[Dpid, RuleSet]) -> None:
        if rules:
            self.installed = {**self.installed, **rules}

    def _forget(self, dpid: Dpid) -> None:
        self._next = None
        self.installed = {known: rules for known, rules in self.installed.items() if known != dpid}

    @property
    def all_read(self) -> bool:
        return self._connected.keys() == self.installed.keys()

    # ---- stages to send

    def next_stage(self, desired: Mapping[Dpid, RuleSet]) -> InstallStage | None:
        """Return the first stage of the remaining changes, or None if nothing can be sent now.

        While a stage is under way, only new changes that remove next hops are sent. A late switch delays only its own
        further changes."""
        known, self._next = self._next, None
        stages = known[1] if known and known[0] is desired and not self._under_way else []
        stages = stages or self.left_to_do(desired)
        self.unsettled = frozenset(dpid for stage in stages for dpid in stage.mods)
        self.settled = frozenset(self.installed) - self.unsettled
        if self._under_way:
            filtered = (s.only(self._may_overtake if s.name == NARROW else self._may_be_sent_now) for s in stages)
            stages = [stage for stage in filtered if stage.mods]
        elif not self.refused:
            self._next = desired, stages[1:]
        return self.send(stages[0]) if stages else None

    def left_to_do(self, desired: Mapping[Dpid, RuleSet]) -> list[Stage]:
        """Return the stages of the remaining changes.

        The result omits changes that would overwrite a foreign rule, refused changes that are not due again, and
        deletions of groups in use."""
        stages = self._stages(*self._with_differences(desired))
        # Most switches have neither refused rules nor foreign ones; the keys of their many rules need not be looked up.
        looked_at = {dpid for dpid, _ in self.refused} | {dpid for dpid, number in self.foreign.items() if number}
        left: dict[RuleId, tuple[RuleMod, ...]] = {}
        for dpid, mods in chain.from_iterable(stage.mods.items() for stage in stages):
            for mod in mods if dpid in looked_at else ():
                rule = dpid, mod.rule.key
                left[rule] = (*left.get(rule, ()), mod)
        held = {
            rule: Refusal(mod, HELD)
            for rule, mods in left.items()
            for mod in mods
            if self._is_held_by_others(rule[0], mod)
        }
        refused = {
            rule: replace(why, others=tuple(mod for mod in why.others if mod in left[rule]))
            for rule, why in self.refused.items()
            if rule in left
        }
        self._keep_refused(refused | held)
        possible = (stage.only(self._is_possible) for stage in stages) if self.refused else stages
        return [stage for stage in possible if stage.mods]

    def _with_differences(self, desired: Mapping[Dpid, RuleSet]) -> tuple[dict[Dpid, RuleSet], dict[Dpid, RuleSet]]:
        both = {dpid: (held, desired[dpid]) for dpid, held in self.installed.items() if dpid in desired}
        # From here on, equal rules are the same object on both sides, so that comparing them is quick.
        like = self._like(both)
        self._set_installed({dpid: rules for dpid, rules in like.items() if rules is not self.installed[dpid]})
        differing = [dpid for dpid, rules in like.items() if rules is not desired[dpid]]
        for dpid in differing:
            self._claim(dpid, desired[dpid])
        missing = self._missing_groups()
        wanted_of = {dpid: on_ecmp(desired[dpid], missing.get(dpid, ())) for dpid in differing}
        return wanted_of, {dpid: self.installed[dpid] for dpid in differing}

    def _missing_groups(self) -> dict[Dpid, set[int]]:
        """Return the ids of refused groups by switch; rules that send to such groups cannot be installed either."""
        missing: dict[Dpid, set[int]] = {}
        for (dpid, _), refusal in self.refused.items():
            rule = refusal.mod.rule
            if isinstance(rule, GroupRule) and rule.group_id not in self.installed.get(dpid, RuleSet()).groups:
                missing.setdefault(dpid, set()).add(rule.group_id)
        return missing

    def _claim(self, dpid: Dpid, wanted: RuleSet) -> None:
        """Treat foreign groups and meters on the switch as Signalbox's from now on, if their ids are wanted."""
        held = self.installed[dpid]
        ours, others = self._connected[dpid].others.divided(wanted.groups, wanted.meters)
        if ours:
            groups, meters = {**held.groups, **ours.groups}, {**held.meters, **ours.meters}
            self._set_installed({dpid: RuleSet(held.flows, groups, meters)})
            self._connected[dpid].others = others

    def _keep_refused(self, refused: dict[RuleId, Refusal]) -> None:
        self.refused = refused
        self._again = {
            (rule, mod)
            for rule, mod in self._again
            if rule in refused and refused[rule].reason != HELD and mod in refused[rule].mods
        }
        unhappy = {dpid for dpid, _ in refused}
        for dpid, switch in self._connected.items():
            if dpid not in unhappy:
                switch.retry_at, switch.retry_after_s = math.inf, RETRY_AFTER_S

    def send(self, stage: Stage) -> InstallStage:
        """Record a stage of ``left_to_do`` as sent, and return the message with the stage.

        Before another stage is sent, ``left_to_do`` must be called again."""
        self._changes += 1
        self._under_way[self._changes] = stage
        for dpid, mods in stage.mods.items():
            self._connected[dpid].sent += 1
            self._newest[dpid].update((mod.rule.key, (self._changes, mod)) for mod in mods)
            if self._again:
                self._again.difference_update(((dpid, mod.rule.key), mod) for mod in mods)
        return InstallStage(self._changes, stage)

    def _is_possible(self, dpid: Dpid, mod: RuleMod) -> bool:
        """Return whether the change may be sent: it was not refused or is due again, and deletes no group in use."""
        rule = dpid, mod.rule.key
        if mod.op == "delete" and isinstance(mod.rule, GroupRule) and self._is_still_used(dpid, mod.rule.group_id):
            return False
        refusal = self.refused.get(rule)
        return refusal is None or (refusal.reason != HELD and (mod not in refusal.mods or (rule, mod) in self._again))

    def _is_still_used(self, dpid: Dpid, group_id: int) -> bool:
        """Return whether an installed rule still sends to the group, because a change of this rule was refused.

        The switch would delete the rule with the group (OpenFlow 1.3.5, 6.7)."""
        held = self.installed[dpid]
        stuck = [refusal.mod.rule for rule, refusal in self.refused.items() if rule[0] == dpid]
        flows = [held.flows.get(rule.key) for rule in stuck if isinstance(rule, FlowRule)]
        groups = [held.groups.get(rule.group_id) for rule in stuck if isinstance(rule, GroupRule)]
        actions = [action for flow in flows if flow for action in flow.actions]
        actions += [bucket.action for group in groups if group for bucket in group.buckets]
        return ToGroup(group_id) in actions

    def _is_held_by_others(self, dpid: Dpid, mod: RuleMod) -> bool:
        """Return whether the change would overwrite a foreign flow with the same match (OpenFlow 1.3.5, 6.4)."""
        read = self._connected[dpid].foreign
        return (
            mod.op == "add"
            and isinstance(mod.rule, FlowRule)
            and read is not None
            and mod.rule.key in read.foreign_keys
        )

    def _may_overtake(self, dpid: Dpid, mod: RuleMod) -> bool:
        """Return whether a change may be sent before the changes under way are confirmed.

        A change may be sent early if it was not sent before, and no deletion of its rule is under way."""
        sent = self._newest[dpid].get(mod.rule.key)
        return sent is None or (sent[1] != mod and sent[1].op != "delete")

    def _may_be_sent_now(self, dpid: Dpid, _mod: RuleMod) -> bool:
        return not self.busy and not self._is_waited_for(dpid)

    # ---- results of stages

    def stage_done(self, message: StageDone, now: float) -> None:
        """Record the results of a stage.

        Results may arrive in any order. The result of a change is ignored if a newer change of the same rule was sent.
        Other switches do not wait any more for a switch without a result."""
        mods_of = self._under_way.get(message.change_id, Stage("", {})).mods
        for dpid, result in message.results.items():
            if dpid in mods_of:
                self._record(message.change_id, dpid, mods_of[dpid], result, now)
        self._late.add(message.change_id)
        self._answered(message.change_id, message.results)

    def _answered(self, change: int, dpids: Iterable[Dpid]) -> None:
        gone = set(dpids)
        if change in self._under_way:
            stage = self._under_way[change]
            left = {dpid: mods for dpid, mods in stage.mods.items() if dpid not in gone}
            self._under_way[change] = Stage(stage.name, left)
            if not left:
                del self._under_way[change]
        self._late &= self._under_way.keys()

    def _record(self, change: int, dpid: Dpid, mods: tuple[RuleMod, ...], result: SwitchResult, now: float) -> None:
        latest = self._newest[dpid]
        newest = [mod for mod in mods if latest.get(mod.rule.key, (None,))[0] == change]
        if len(newest) == len(latest):
            latest.clear()
        for mod in newest if latest else ():
            latest.pop(mod.rule.key, None)
        switch = self._connected[dpid]
        if result.timed_out:
            self._read_later(dpid, switch, now)
        elif dpid in self.installed:
            switch.reread_after_s = REREAD_AFTER_S
            exist = {
                mod
                for mod, reason in result.rejected
                if mod.op == "add" and not isinstance(mod.rule, FlowRule) and any(name in reason for name in EXISTS)
            }
            rejected = [(mod, reason) for mod, reason in result.rejected if mod not in exist]
            refused = {(mod.rule.key, mod.op) for mod, _ in rejected}
            accepted = [mod for mod in newest if (mod.rule.key, mod.op) not in refused] if refused else newest
            # A group or meter that exists already was not read, because the switch has very many. The next stage
            # modifies it.
            if exist:
                accepted = [RuleMod(mod.op, _unknown_content(mod.rule)) if mod in exist else mod for mod in accepted]
                self._next = None
            self._set_installed({dpid: applied(self.installed[dpid], accepted)})
            if refused:
                self._record_refusals(dpid, rejected, now)
            elif any(rule[0] == dpid for rule in self.refused) and any(mod.op == "delete" for mod in accepted):
                self.retry(dpid)

    def _record_refusals(self, dpid: Dpid, rejected: Iterable[tuple[RuleMod, str]], now: float) -> None:
        """Record refused changes, and schedule two things for the switch: reading its rules, and another attempt later.

        The pauses between attempts grow."""
        self._next, switch = None, self._connected[dpid]
        for mod, reason in rejected:
            rule = dpid, mod.rule.key
            before = self.refused[rule].mods if rule in self.refused else ()
            self.refused[rule] = Refusal(mod, reason, tuple(other for other in before if other.op != mod.op))
        if switch.retry_at == math.inf:
            switch.retry_at = now + switch.retry_after_s
            switch.retry_after_s = min(2 * switch.retry_after_s, MAX_PAUSE_S)
            switch.reread_at = min(switch.reread_at, now)

    def retry(self, dpid: Dpid) -> None:
        """Send the refused rules of the switch again with the next stage."""
        due = {rule: why for rule, why in self.refused.items() if rule[0] == dpid and why.reason != HELD}
        self._again |= {(rule, mod) for rule, why in due.items() for mod in why.mods}
        self._connected[dpid].retry_at = math.inf

    def _read_later(self, dpid: Dpid, switch: _Connected, now: float) -> None:
        """Forget the rules of the switch, and read them later; the pauses grow while the switch does not answer."""
        self._forget(dpid)
        switch.reread_at = now + switch.reread_after_s
        switch.reread_after_s = min(2 * switch.reread_after_s, MAX_PAUSE_S)


# ---- use of tables

FULL = ("OFPFMFC_TABLE_FULL", "OFPGMFC_OUT_OF_GROUPS", "OFPMMFC_OUT_OF_METERS")
"""Names of the OpenFlow errors of a switch that refuses a rule because a table is full (OpenFlow 1.3.5 section
7.4.4)."""


TABLES = (*Table, *OtherTable)


def is_full(reason: str) -> bool:
    """Return whether this reason of a refusal means that a table is full."""
    return any(name in reason for name in FULL)


class TableUse(NamedTuple):
    """Number of entries in a table, including foreign ones, and the table's capacity.

    Either number is None if the switch has not reported it."""

    table: AnyTable
    entries: int | None
    max_entries: int | None

    def is_at_least(self, fraction: float) -> bool:
        """Return whether the entries are known to take at least this fraction of the capacity."""
        return self.entries is not None and self.max_entries is not None and self.entries >= fraction * self.max_entries

    @property
    def name(self) -> str:
        """Number of a flow table, or name of another table."""
        return f"{self.table:d}" if isinstance(self.table, Table) else self.table.value


class FullTable(NamedTuple):
    """A table that is full or nearly full."""

    dpid: Dpid
    use: TableUse
    refused: int
    """Number of rules that the switch refused because the table is full."""


class TableUses:
    """Entries and capacities of all tables that Signalbox uses."""

    def __init__(self, alarm_fraction: float) -> None:
        """Start without reports.

        ``alarm_fraction``: a table is nearly full when its entries reach this fraction of its capacity."""
        self.of: Mapping[Dpid, tuple[TableUse, ...]] = SharedMap()
        """Reported use of the tables of each connected switch; a new mapping on each change."""
        self._alarm_fraction = alarm_fraction

    def record(self, message: TablesRead, held: Collection[RuleSet]) -> bool:
        """Record a report, and return whether a table that was full now has room.

        ``held``: see ``SwitchSync.held``."""
        known = self.of.get(message.dpid, ())
        entries: dict[AnyTable, int | None]
        entries = {use.table: use.entries for use in known} if message.entries is None else {**message.entries}
        entries |= _groups_and_meters(held)
        limits = {use.table: use.max_entries for use in known} if message.limits is None else message.limits
        now = (TableUse(table, entries.get(table), limits.get(table) or None) for table in TABLES)
        uses = tuple(use for use in now if use != _unknown(use.table))
        if uses != known:
            self.of = updated(self.of, {message.dpid: uses})
        full_before, full = ({use.table for use in some if use.is_at_least(1)} for some in (known, uses))
        return not full_before <= full

    def switch_left(self, dpid: Dpid) -> None:
        self.of = updated(self.of, {dpid: None} if dpid in self.of else {})

    def take_alarm_fraction(self, alarm_fraction: float) -> None:
        self._alarm_fraction = alarm_fraction

    def nearly_full(self, refused: Iterable[tuple[Dpid, Refusal]]) -> Iterator[FullTable]:
        """Yield each full or nearly full table once. ``refused``: refused rules of all switches."""
        without_room = Counter(
            (dpid, _table_of(refusal.mod.rule))
            for dpid, refusal in refused
            if is_full(refusal.reason) and refusal.mod.op != "delete"
        )
        for dpid, uses in self.of.items():
            for use in uses:
                if use.is_at_least(self._alarm_fraction):
                    yield FullTable(dpid, use, without_room.pop((dpid, use.table), 0))
        for (dpid, table), number in without_room.items():
            known = (use for use in self.of.get(dpid, ()) if use.table == table)
            yield FullTable(dpid, next(known, _unknown(table)), number)


def _unknown(table: AnyTable) -> TableUse:
    return TableUse(table, None, None)


def _table_of(rule: Rule) -> AnyTable:
    match rule:
        case FlowRule():
            return rule.key.table
        case GroupRule():
            return OtherTable(f"{rule.kind}_groups")
        case _:
            return OtherTable.METERS


def _groups_and_meters(held: Collection[RuleSet]) -> dict[AnyTable, int]:
    """Return the number of entries in the group table and in the meter table; empty if the rules are unknown."""
    kinds = Counter(group.kind for rules in held for group in rules.groups.values())
    numbers: dict[AnyTable, int] = {
        OtherTable.SELECT_GROUPS: kinds["select"],
        OtherTable.FAST_FAILOVER_GROUPS: kinds["fast_failover"],
        OtherTable.METERS: sum(len(rules.meters) for rules in held),
    }
    return numbers if held else {}
