"""The difference of desired and installed rules, as stages that are safe in every intermediate state.

This is the only way by which rules reach a switch. First what only takes next hops away (repairs: quick, and never
wrong), then additions and changes by distance to the destination, downstream first, groups before the flows that point
at them, flows deleted after everything that replaces them, groups after the flows that used them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from controller.fabric.topology import Dpid
from controller.tables.rules import FlowRule, GroupRule, MeterRule, Rule, RuleMod, RuleSet, Stage, ToGroup

NARROW = "narrow"
"""The stage that only takes next hops away, safe at any time."""


def mods(desired: RuleSet, installed: RuleSet) -> Iterator[RuleMod]:
    """What turns the installed rules of one switch into the desired ones."""
    pairs: tuple[tuple[Mapping[object, Rule], Mapping[object, Rule]], ...] = (
        (desired.meters, installed.meters),  # type: ignore[assignment]
        (desired.groups, installed.groups),
        (desired.flows, installed.flows),
    )
    for wanted, held in pairs:
        if wanted is held or wanted == held:  # quick: most rules are the same objects as before
            continue
        for key, rule in wanted.items():
            before = held.get(key)
            if before is None:
                yield RuleMod("add", rule)
            elif before is not rule and before != rule:
                yield RuleMod("add" if _other_owner(rule, before) else "modify", rule)
        yield from (RuleMod("delete", rule) for key, rule in held.items() if key not in wanted)


def _other_owner(rule: Rule, held: Rule) -> bool:
    """A modified flow keeps its cookie (OpenFlow 1.3.5, 6.4); only an added one replaces it, counters and all."""
    return isinstance(rule, FlowRule) and isinstance(held, FlowRule) and rule.cookie != held.cookie


def stages(desired: Mapping[Dpid, RuleSet], installed: Mapping[Dpid, RuleSet]) -> list[Stage]:
    """The stages, in order, for every switch that is in both; empty when nothing differs."""
    staged: dict[tuple[int, int], dict[Dpid, list[RuleMod]]] = defaultdict(lambda: defaultdict(list))
    for dpid, rules in desired.items():
        if dpid in installed:
            for mod in mods(rules, installed[dpid]):
                staged[_order(mod, installed[dpid])][dpid].append(mod)
                if mod.op == "delete" and (blunt := _blunt(mod.rule, rules)):
                    staged[0, 0][dpid].append(RuleMod("modify", blunt))
    names = (NARROW, "install", "delete flows", "delete groups")
    return [
        Stage(
            f"{names[rank]} {distance}".removesuffix(" 0"),
            {dpid: tuple(sorted(changes, key=_within_switch)) for dpid, changes in staged[rank, distance].items()},
        )
        for rank, distance in sorted(staged)
    ]


def _order(mod: RuleMod, installed: RuleSet) -> tuple[int, int]:
    rule = mod.rule
    if mod.op == "delete":
        return (2, 0) if isinstance(rule, FlowRule) else (3, 0)
    if isinstance(rule, MeterRule):
        return (1, 0)
    if isinstance(rule, GroupRule) and mod.op == "modify":
        before = installed.groups[rule.group_id]
        if before.kind == rule.kind and set(rule.buckets) < set(before.buckets):
            return (0, 0)
    return (1, rule.distance)


def _blunt(rule: Rule, desired: RuleSet) -> GroupRule | None:
    """What is left of a path group that goes, when its next hop leads away from the destination by now; None when it
    does not. Pins are deleted last: until then this one would send packets back to switches that have new routes."""
    if not isinstance(rule, GroupRule):
        return None
    fallback = tuple(bucket for bucket in rule.buckets if isinstance(bucket.action, ToGroup))
    ahead = {
        bucket.action
        for ecmp in fallback
        if isinstance(ecmp.action, ToGroup) and ecmp.action.group_id in desired.groups
        for bucket in desired.groups[ecmp.action.group_id].buckets
    }
    if ahead and not ahead.issuperset(bucket.action for bucket in rule.buckets if bucket not in fallback):
        return replace(rule, buckets=fallback)
    return None


def _within_switch(mod: RuleMod) -> tuple[float, float]:
    """Meters, groups that point at ports, groups that point at groups, flows, the most specific first; deletions the
    other way round. What every other packet depends on, the entry for a miss (priority 0), comes before all flows: a
    table that gets full must have it."""
    rule = mod.rule
    order: tuple[float, float]
    if isinstance(rule, FlowRule):
        order = (3, -rule.key.priority or -math.inf)
    elif isinstance(rule, GroupRule):
        order = (2 if any(isinstance(bucket.action, ToGroup) for bucket in rule.buckets) else 1, 0)
    else:
        order = (0, 0)
    return (-order[0], -order[1]) if mod.op == "delete" else order
