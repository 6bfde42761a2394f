"""Dropped packets: a rule for each kind, below everything that forwards."""

from __future__ import annotations

from controller.planning.problem import FlowId
from controller.tables import default_table
from controller.tables.pinned_table import Pin
from controller.tables.pipeline import Pipeline, PipelineSettings
from controller.tables.rules import COUNTED_BIT, Match, Table, is_ours
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
    assert len({(key.priority, key.match.eth_type) for key in KEYS}) == len(KEYS), "no packet meets two of one priority"
    assert min(KEYS, key=lambda key: key.priority).match == Match(), "the last one takes everything"


def test_the_counters_of_pinned_and_dropping_rules_are_read_and_no_others() -> None:
    for rules in RULES.values():
        for key, rule in rules.flows.items():
            assert is_ours(rule.cookie)
            assert bool(rule.cookie & COUNTED_BIT) == (key.table == Table.PINNED or key in KEYS)
