"""The period in which the rules that switches hold take precedence over the state of the controller."""

from __future__ import annotations

import pytest

from controller.core.sending import MOST_PATIENCES, Adoption
from controller.fabric.topology import Dpid, Fabric, PortNo
from controller.tables.rules import Bucket, FlowKey, FlowRule, GroupRule, Match, Output, RuleSet, Table

GROUP = GroupRule(1, "select", (Bucket(Output(PortNo(1))),))


def adoption() -> Adoption:
    return Adoption(patience_s=15, orphan_lease_s=60, expects_rules=False, now=0.0)


def test_the_lease_of_unknown_rules_is_over_once() -> None:
    first = adoption()
    assert not first.lease_over(1000.0), "nothing is adopted yet"
    assert first.is_complete(Fabric(), {}, True, False, 1.0)
    first.end(1.0)
    assert [first.lease_over(60.9), first.is_first] == [False, True]
    assert [first.lease_over(now) for now in (61.0, 61.1, 1000.0)] == [True, False, False]
    assert not first.is_first


def test_a_switch_that_cannot_be_read_is_waited_for_only_so_long() -> None:
    """A switch that connects again and again does not renew the deadline; only new switches do."""
    first = adoption()
    for now in range(0, 20, 2):
        first.switch_connected(Dpid(1), float(now))
        if now == 10:
            first.switch_connected(Dpid(2), 10.0)
    assert not first.is_complete(Fabric(), {}, False, False, 24.9)
    assert first.is_complete(Fabric(), {}, False, False, 25.0)


def test_ever_new_switches_renew_the_patience_only_so_often() -> None:
    first, most_s = adoption(), MOST_PATIENCES * 15.0
    for number in range(2 * MOST_PATIENCES):
        first.switch_connected(Dpid(number), 10.0 * number)
        assert first.is_complete(Fabric(), {}, False, False, 10.0 * number) is (10.0 * number >= most_s)


@pytest.mark.parametrize(("connects", "until"), [([], 115.0), ([105.0], 120.0)])
def test_another_adoption_has_a_patience_of_its_own_and_waits_for_all_switches_again(
    connects: list[float], until: float
) -> None:
    second = adoption()
    second.switch_connected(Dpid(1), 0.0)
    second.end(1.0)
    second.begin(100.0)
    for now in connects:
        second.switch_connected(Dpid(1), now)
    assert not second.is_complete(Fabric(), {}, False, False, until - 0.1)
    assert second.is_complete(Fabric(), {}, False, False, until)


def test_after_a_restart_one_switch_without_rules_does_not_delay_the_adoption_of_the_others() -> None:
    restarted = Adoption(patience_s=15, orphan_lease_s=60, expects_rules=True, now=0.0)
    held, empty = RuleSet.of(groups=[GROUP]), RuleSet()
    assert not restarted.is_complete(Fabric(), {Dpid(1): empty, Dpid(2): empty}, True, False, 1.0)
    assert restarted.is_complete(Fabric(), {Dpid(1): held, Dpid(2): empty}, True, False, 1.0)


def test_after_a_restart_all_known_switches_without_rules_get_rules_at_once() -> None:
    restarted, empty = Adoption(patience_s=15, orphan_lease_s=60, expects_rules=True, now=0.0), RuleSet()
    assert restarted.is_complete(Fabric(), {Dpid(1): empty, Dpid(2): empty}, True, True, 1.0)
    assert not restarted.is_complete(Fabric(), {Dpid(1): empty}, False, True, 1.0)


def test_a_switch_begins_another_adoption_only_when_it_is_read_for_the_first_time_with_rules_within_the_lease() -> None:
    def asks_for_another(dpid: int, rules: RuleSet, now: float) -> bool:
        return started.rules_read(Dpid(dpid), rules, now)

    started, held = adoption(), RuleSet.of([FlowRule(FlowKey(Table.DEFAULT, 0, Match()), 0)])
    started.end(1.0)
    assert asks_for_another(1, held, 2.0)
    assert not asks_for_another(1, held, 3.0), "it was read before"
    assert not asks_for_another(2, RuleSet(), 4.0), "nothing depends on it"
    assert started.lease_over(61.0)
    assert not asks_for_another(3, held, 62.0), "the lease is over"
