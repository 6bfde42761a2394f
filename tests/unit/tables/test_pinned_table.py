"""Table rows of pins (rules for the path of one flow): their keys, their switches, and both directions of a flow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.fabric.topology import Dpid, LinkId, PortNo
from controller.planning.problem import FlowId, Subflow, whole
from controller.tables.flow_tables import (
    Announcement,
    Part,
    Pin,
    Way,
    both_directions,
    counting_rule,
    miss_rule,
    on_ecmp,
    pin_key,
    pin_rule,
    read_pin,
)
from controller.tables.rules import FlowKey, FlowRule, Match, RuleSet, Table, ToGroup
from signalbox.jobs.spec import Transport
from signalbox.jobs.subflows import port_classes

FLOW, BACK = FlowId("10.0.1.1", "10.0.2.1"), FlowId("10.0.2.1", "10.0.1.1")
OWNER = 7
UP, DOWN = LinkId(Dpid(1), PortNo(2)), LinkId(Dpid(9), PortNo(3))
PATH = (UP, DOWN)
CLASSES = port_classes(4)
PARTS = [
    *(Part(Transport.TCP, ports) for ports in CLASSES),
    *(Part(Transport.TCP, ports, answers=True) for ports in CLASSES),
    *(Part(Transport.ROCE_V2, ports) for ports in CLASSES),
]


@pytest.mark.parametrize("part", [None, *PARTS])
def test_an_entry_says_what_it_was_made_for(part: Part | None) -> None:
    pin = Pin(FLOW, OWNER, None, part)
    assert read_pin(counting_rule(pin, 0)) == pin


def test_every_part_has_an_entry_of_its_own_with_a_priority_of_its_own_that_wins_over_the_whole_flow() -> None:
    keys = [pin_key(FLOW, part) for part in PARTS]
    assert len(set(keys)) == len(keys)
    assert min(key.priority for key in keys) > pin_key(FLOW).priority
    rule = counting_rule(Pin(FLOW, OWNER, None, PARTS[0]), 0)
    assert read_pin(replace(rule, key=rule.key._replace(priority=rule.key.priority + 1))) is None


def test_packets_of_no_flow_go_on_by_the_entry_for_a_miss() -> None:
    """Section 5.4 of OpenFlow 1.3.5: the row has priority 0 and only wildcards. It is installed before all others."""
    assert (miss_rule().key, miss_rule().goto) == (FlowKey(Table.PINNED, 0, Match()), Table.DEFAULT)


def test_only_pins_to_groups_that_are_missing_are_left_to_the_default_table() -> None:
    refused, fine = (FlowRule(pin_key(flow), OWNER, (ToGroup(to),)) for flow, to in ((FLOW, 1), (BACK, 2)))
    default = FlowRule(FlowKey(Table.DEFAULT, 10, Match()), OWNER, (ToGroup(1),))
    changed = on_ecmp(RuleSet.of([refused, fine, default]), {1})
    assert list(changed.flows.values()) == [FlowRule(refused.key, OWNER, goto=Table.DEFAULT), fine, default]


def port_of(dpid: int, next_hops: tuple[LinkId, ...]) -> PortNo | None:
    """Return the port that the pin uses at a switch; None where it has no table row."""
    rule = pin_rule(Pin(FLOW, OWNER, PATH), Dpid(dpid), next_hops, lambda port: port)
    if rule is None:
        return None
    (action,) = rule.actions
    assert isinstance(action, ToGroup)
    return PortNo(action.group_id)


def test_a_pin_stands_at_its_source_and_where_the_default_table_may_choose_another_way() -> None:
    other = LinkId(Dpid(9), PortNo(4))
    assert port_of(1, (UP,)) == UP.port, "the source's switch counts the flow"
    assert port_of(9, (DOWN,)) is None
    assert port_of(9, (DOWN, other)) == DOWN.port
    assert port_of(9, (other,)) == DOWN.port
    assert port_of(5, ()) is None
    at_source, behind = (pin_rule(Pin(FLOW, OWNER, PATH), Dpid(dpid), (DOWN, other), int) for dpid in (1, 9))
    assert at_source
    assert behind
    assert (at_source.distance, behind.distance) == (2, 1), "it is installed at the end of its path first"


def test_acknowledgements_ride_on_a_flow_unless_the_other_direction_is_announced() -> None:
    announced = Announcement(OWNER, ())
    back = (LinkId(Dpid(2), PortNo(1)),)
    pins = both_directions([Way(FLOW, whole(PATH), (back,))], announced, answered=False)
    assert pins == (Pin(FLOW, OWNER, PATH), Pin(BACK, OWNER, back))
    assert both_directions([Way(FLOW, whole(PATH), (back,))], announced, answered=True) == pins[:1]


def test_a_split_flow_has_a_pin_per_subflow_and_one_that_counts_the_rest() -> None:
    parts = PARTS[:4]
    announced = Announcement(OWNER, tuple((part,) for part in parts))
    other = (LinkId(Dpid(1), PortNo(3)),)
    route = (Subflow(PATH, 0.5), Subflow(other, 0.5))
    pins = both_directions([Way(FLOW, route, (None, None))], announced, answered=True)
    assert pins == (Pin(FLOW, OWNER, None), Pin(FLOW, OWNER, PATH, parts[0]), Pin(FLOW, OWNER, other, parts[1]))
