"""Table rows that a switch may hold, and the limit of reading its answers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controller.fabric.topology import Dpid, PortNo
from controller.southbound import given_rules
from controller.southbound.framework import ofp
from controller.southbound.given_rules import (
    BUCKET_BYTES,
    BYTES_PER_PORT,
    ENTRY_BYTES,
    GROUP_BYTES,
    MORE_BYTES,
    MOST_BEYOND,
    ROOM_BYTES,
    GivenRules,
)
from controller.tables.messages import RuleCount, SwitchRules
from controller.tables.rules import (
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    Output,
    RuleMod,
    RuleSet,
    Table,
    ToGroup,
    cookie,
)

A, B = Dpid(1), Dpid(2)
FLOWS, GROUPS, METERS = ofp.OFPMP_FLOW, ofp.OFPMP_GROUP_DESC, ofp.OFPMP_METER_CONFIG
PORTS, DROPS, AGGREGATE = ofp.OFPMP_PORT_STATS, ofp.OFPMP_METER, ofp.OFPMP_AGGREGATE
COUNT = RuleCount(1, 1)


def rule(priority: int) -> FlowRule:
    return FlowRule(FlowKey(Table.PINNED, priority, Match()), cookie(Table.PINNED))


def read(given: GivenRules, *priorities: int, dpid: Dpid = A) -> GivenRules:
    given.read_begins(dpid)
    given.read(SwitchRules(dpid, RuleSet.of(map(rule, priorities)), 0))
    return given


def counted(given: GivenRules) -> list[int]:
    """Return the priorities (0 to 9) of the rows whose counters are used when a switch reports all ten rows."""
    counts = {rule(priority).key: COUNT for priority in range(10)}
    return [key.priority for key in given.of_given(A, counts)]


def test_entries_count_that_were_read_back_or_sent_since() -> None:
    given = GivenRules()
    assert not given.is_read(A)
    given = read(given, 1, 2)
    assert given.is_read(A)
    given.sent(A, [RuleMod("add", rule(3)), RuleMod("modify", rule(2))])
    assert counted(given) == [1, 2, 3]
    counts = {rule(1).key: COUNT}
    assert given.of_given(A, counts) is counts, "as they are when all entries are known"


def test_what_is_deleted_counts_until_the_switch_confirms_it_and_on_if_it_was_sent_again() -> None:
    given = read(GivenRules(), 1, 2)
    deletions = [RuleMod("delete", rule(1)), RuleMod("delete", rule(2))]
    given.sent(A, deletions)
    assert counted(given) == [1, 2]
    given.sent(A, [RuleMod("add", rule(2))])
    given.confirmed(A, deletions)
    assert counted(given) == [2]


def test_a_read_back_replaces_what_was_known_but_not_what_was_sent_while_it_was_read() -> None:
    given = read(GivenRules(), 1, 2)
    given.read_begins(A)
    given.sent(A, [RuleMod("add", rule(3)), RuleMod("delete", rule(4))])
    given.read(SwitchRules(A, RuleSet.of([rule(1), rule(4)]), 0))
    assert counted(given) == [1, 3, 4]


def test_no_more_is_read_than_the_switch_was_given_and_some() -> None:
    given = read(GivenRules(), 1)
    most = MORE_BYTES + ENTRY_BYTES
    assert given.takes(A, FLOWS, most)
    assert not given.take_invented(A)
    assert not given.takes(A, FLOWS, most + 1)
    assert given.take_invented(A)
    assert given.take_slow(A), "what is not read is charged as well"
    given.sent(A, [RuleMod("add", rule(2))])
    assert given.takes(A, FLOWS, most + ENTRY_BYTES)


def group(number: int) -> GroupRule:
    return GroupRule(number, "select", (Bucket(Output(PortNo(1))),) * 2)


def test_groups_count_that_flows_use_or_that_were_sent() -> None:
    given, most = GivenRules(), MORE_BYTES + GROUP_BYTES + 2 * BUCKET_BYTES
    given.read_begins(A)
    uses = replace(rule(1), actions=(ToGroup(1),))
    given.read(SwitchRules(A, RuleSet.of([uses], [group(1), group(2)]), 0))
    assert given.takes(A, GROUPS, most)
    assert not given.takes(A, GROUPS, most + 1)
    assert given.take_invented(A)
    given.sent(A, [RuleMod("add", group(3))])
    assert given.takes(A, GROUPS, most + 1)
    given.read_begins(A)
    given.read(SwitchRules(A, RuleSet.of([uses]), 0, is_partial=True))
    assert given.takes(A, GROUPS, most + 1), "groups that were not read"
    given.switch_left(A)
    assert given.takes(A, GROUPS, most + 1)


@pytest.mark.parametrize("kind", [PORTS, METERS, DROPS])
def test_a_reply_with_an_entry_per_port_is_read_up_to_the_number_of_ports(kind: int) -> None:
    given, most = GivenRules(ports=lambda _: 100), 100 * BYTES_PER_PORT[kind] + MORE_BYTES
    assert given.takes(A, kind, most)
    assert not given.take_invented(A)
    assert not given.takes(A, kind, most + 1)
    assert given.take_invented(A)


def test_all_switches_together_have_limited_bytes_beyond_the_expected_ones() -> None:
    given, switches = GivenRules(), [Dpid(number) for number in range(100, 100 + MOST_BEYOND // MORE_BYTES)]
    assert all(given.takes(dpid, FLOWS, MORE_BYTES) for dpid in switches)
    assert not given.takes(A, FLOWS, ROOM_BYTES + 1)
    assert given.takes(A, FLOWS, ROOM_BYTES), "a few are always read"
    assert given.takes(A, AGGREGATE, 2 * MORE_BYTES)
    given.sent(B, [RuleMod("add", rule(1))])
    given.read_begins(B)
    given.read(SwitchRules(B, RuleSet.of([rule(1)]), 0))
    assert given.takes(B, FLOWS, ENTRY_BYTES + ROOM_BYTES), "expected entries are"
    assert given.takes(switches[0], FLOWS, 10)
    assert given.takes(A, FLOWS, ROOM_BYTES + 1), "the next reply of that switch was small"
    given.switch_left(switches[1])
    assert given.takes(A, FLOWS, MORE_BYTES)


def test_only_switches_of_before_may_have_many_entries_when_they_come_first() -> None:
    given, many = GivenRules([A]), 2 * MORE_BYTES
    assert given.takes(A, FLOWS, many)
    assert not given.takes(B, FLOWS, many)
    read(given, 1)
    given.switch_left(A)
    assert not given.takes(A, FLOWS, many)


def test_a_switch_that_comes_back_may_have_what_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given_rules, "MOST_LEFT", 1)
    given = read(read(GivenRules(), 1, 2), 1, dpid=B)
    given.sent(A, [RuleMod("delete", rule(1)), RuleMod("add", rule(3))])
    given.switch_left(A)
    given.switch_left(B)  # other switches that connect and disconnect change nothing
    assert given.takes(A, FLOWS, MORE_BYTES + 2 * ENTRY_BYTES)
    assert not given.takes(A, FLOWS, MORE_BYTES + 2 * ENTRY_BYTES + 1)
    assert not given.takes(B, FLOWS, MORE_BYTES + 1)


def test_foreign_entries_are_read_however_many_but_slowly() -> None:
    given = read(GivenRules(), 1)
    assert given.takes_foreign(A, FLOWS, MORE_BYTES)
    assert not given.take_slow(A)
    assert given.takes_foreign(A, FLOWS, 100 * MORE_BYTES)
    assert given.take_slow(A)
    assert not given.take_slow(A)
    assert not given.take_invented(A)
