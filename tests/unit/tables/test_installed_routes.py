"""Routes and hosts are read back from the rules that were made for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.fabric.shortest_paths import CandidatePaths
from controller.fabric.topology import Dpid, Fabric, Path
from controller.planning.problem import FlowId
from controller.tables.pinned_table import Pin, pin_key
from controller.tables.pipeline import Pipeline, PipelineSettings
from controller.tables.rules import GroupRule, RuleSet
from controller.tables.running_routes import installed_hosts, installed_pins
from offline.scenarios.fabrics import leaf_spine

SETTINGS = PipelineSettings(punt_rate_pps=50, leaf_prefix_length=24)
FABRIC = leaf_spine(2, 2, 2, 1e9, 1e9)
TWO_CABLES = leaf_spine(2, 1, 1, 1e9, 1e9, cables=2)
LEAF, FAR_LEAF = Dpid(1), Dpid(2)
FLOW = FlowId("10.0.0.1", "10.0.1.1")
OWNER = 7


def paths(fabric: Fabric) -> list[Path]:
    """Return the paths from the first leaf to the second."""
    return [*CandidatePaths(fabric, 64).between(LEAF, FAR_LEAF)]


def installed(fabric: Fabric, *pins: Pin) -> dict[Dpid, RuleSet]:
    return dict(Pipeline(SETTINGS).desired(fabric, pins, {}))


def test_hosts_are_where_their_own_switch_delivers_to_them() -> None:
    assert dict(installed_hosts(installed(FABRIC))) == {ip: host.at for ip, host in FABRIC.hosts.items()}


def test_pins_are_read_back_with_their_paths_parallel_cables_too() -> None:
    for fabric in (FABRIC, TWO_CABLES):
        for path in paths(fabric):
            pin = Pin(FLOW, OWNER, path)
            assert list(installed_pins(fabric, installed(fabric, pin))) == [pin]


def test_a_pin_is_not_followed_where_its_next_hop_is_not_known() -> None:
    """The spine has two cables to the leaf and lost its table row: the packets may take either cable."""
    path = paths(TWO_CABLES)[0]
    rules = installed(TWO_CABLES, Pin(FLOW, OWNER, path))
    spine = path[1].dpid
    flows = {key: rule for key, rule in rules[spine].flows.items() if key != pin_key(FLOW)}
    rules[spine] = replace(rules[spine], flows=flows)
    assert list(installed_pins(TWO_CABLES, rules)) == [Pin(FLOW, OWNER, None)]


def test_a_pin_over_a_link_that_is_not_there_has_no_path() -> None:
    path = paths(FABRIC)[0]
    rules = installed(FABRIC, Pin(FLOW, OWNER, path))
    left = replace(FABRIC, links={key: link for key, link in FABRIC.links.items() if key != path[1]})
    assert list(installed_pins(left, rules)) == [Pin(FLOW, OWNER, None)]


@pytest.mark.parametrize("there", [False, True])
def test_a_pin_whose_path_group_is_not_there_or_empty_has_no_path(there: bool) -> None:
    rules = installed(FABRIC, Pin(FLOW, OWNER, paths(FABRIC)[0]))
    left = {number: GroupRule(number, "fast_failover", ()) for number in rules[LEAF].groups} if there else {}
    rules[LEAF] = replace(rules[LEAF], groups=left)
    assert list(installed_pins(FABRIC, rules)) == [Pin(FLOW, OWNER, None)]
