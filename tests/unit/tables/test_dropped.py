"""Dropped packets: a rule for each kind, below everything that forwards."""

from __future__ import annotations

from dataclasses import replace

from controller.planning.problem import FlowId
from controller.tables import default_table
from controller.tables.pinned_table import Pin
from controller.tables.pipeline import Pipeline, PipelineSettings
from controller.tables.rules import COUNTED_BIT, FlowKey, FlowRule, Match, RuleSet, Table, is_ours, stages_between
from offline.scenarios.fabrics import leaf_spine

FABRIC = leaf_spine(2, 2, 2, 1e9, 1e9)
PINS = (
    Pin(FlowId("10.0.0.1", "10.0.1.1"), 7, None),
    Pin(FlowId("10.0.0.2", "10.0.1.1"), 8, None, learning=True),
)
RULES = Pipeline(PipelineSettings(punt_rate_pps=50, leaf_prefix_length=24)).desired(FABRIC, PINS, {})
KEYS = {rule.key for rule in default_table.DROP_RULES}


def test_every_switch_drops_by_kind_below_all_that_forwards() -> None:
    for rules in RULES.values():
        forwarding = {key.priority for key in rules.flows if key.table == Table.DEFAULT} - {k.priority for k in KEYS}
        assert rules.flows.keys() >= KEYS
        assert all(not rules.flows[key].actions and rules.flows[key].goto is None for key in KEYS)
        assert min(key.priority for key in KEYS) > 0
        assert max(key.priority for key in KEYS) < min(forwarding)


def test_no_packet_meets_two_of_one_priority() -> None:
    taken = [(key.priority, key.match.eth_type) for key in KEYS]
    assert len(taken) == len({*taken})


def test_the_last_one_takes_everything() -> None:
    assert min(KEYS, key=lambda key: key.priority).match == Match()


def test_the_counters_of_pinned_and_dropping_rules_are_read_and_no_others() -> None:
    for rules in RULES.values():
        for key, rule in rules.flows.items():
            assert is_ours(rule.cookie)
            assert bool(rule.cookie & COUNTED_BIT) == (key.table == Table.PINNED or key in KEYS)


def test_switches_with_the_rules_of_a_version_without_them_get_only_them() -> None:
    older = {dpid: replace(rules, flows=_without(rules)) for dpid, rules in RULES.items()}
    (stage,) = stages_between(RULES, older)
    assert {(mod.op, mod.rule) for mods in stage.mods.values() for mod in mods} == {
        ("add", r) for r in default_table.DROP_RULES
    }
    (stage,) = stages_between(older, RULES)
    assert {mod.op for mods in stage.mods.values() for mod in mods} == {"delete"}


def _without(rules: RuleSet) -> dict[FlowKey, FlowRule]:
    return {key: rule for key, rule in rules.flows.items() if key not in KEYS}
