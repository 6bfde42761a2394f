"""Cross-connects of an optical switch as rules of the bridge that emulates it: only ``in_port`` → ``output``.

In: for each input port the port by which its light leaves. Out: rules of the bridge's only table. The inverse is
``connected_by``. A port that gets another connection is dark in between: its rule is deleted first, and the new rule is
added later."""

from __future__ import annotations

from collections.abc import Mapping

from controller.fabric.topology import PortNo
from controller.tables.rules import (
    FlowKey,
    FlowRule,
    Match,
    Output,
    RuleMod,
    RuleSet,
    Table,
    cookie,
    mods_between,
)

PRIORITY = 100


def cross_connects(connected: Mapping[PortNo, PortNo]) -> RuleSet:
    return RuleSet.of(
        FlowRule(FlowKey(Table.CONTROL, PRIORITY, Match(in_port=src)), cookie(Table.CONTROL), (Output(dst),))
        for src, dst in connected.items()
    )


def connected_by(rules: RuleSet) -> Mapping[PortNo, PortNo]:
    """Return the cross-connects of these rules.

    Rules of other forms do not count as cross-connects. They differ from all wanted rules, so the controller deletes
    them."""
    found = {}
    for key, rule in rules.flows.items():
        src = key.match.in_port
        if src is not None and key == FlowKey(Table.CONTROL, PRIORITY, Match(in_port=src)) and len(rule.actions) == 1:
            (action,) = rule.actions
            if isinstance(action, Output):
                found[src] = action.port
    return found


def changes(wanted: RuleSet, held: RuleSet) -> tuple[RuleMod, ...]:
    """Return the modifications from ``held`` to ``wanted``: all deletions, then all additions.

    A rule whose actions change is deleted and added again."""
    mods = list(mods_between(wanted, held))
    new = {mod.rule.key: mod.rule for mod in mods if mod.op != "delete" and isinstance(mod.rule, FlowRule)}
    gone = (rule for key, rule in held.flows.items() if key in new or key not in wanted.flows)
    return (*(RuleMod("delete", rule) for rule in gone), *(RuleMod("add", rule) for rule in new.values()))
