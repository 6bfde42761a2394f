"""Detection of Signalbox's groups and meters on a switch, which carry no mark of their owner."""

from __future__ import annotations

from controller.fabric.topology import Dpid, Fabric, Port, PortNo, Switch
from controller.tables.rules import (
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    RuleSet,
    Table,
    ToGroup,
    cookie,
    divided,
    ecmp_group_id,
)

DPID, PORT = Dpid(1), PortNo(3)
SWITCH = Switch(DPID, "leaf1", {PORT: Port(PORT, "eth3", "", True, 1e9)})
FABRIC = Fabric(switches={DPID: SWITCH, Dpid(2): Switch(Dpid(2), "leaf2", {})})


def group(group_id: int, to: int | None = None) -> GroupRule:
    return GroupRule(group_id, "select", (Bucket(ToGroup(to)),) if to else ())


def flow(group_id: int, meter: int | None = None) -> FlowRule:
    return FlowRule(FlowKey(Table.DEFAULT, 10, Match()), cookie(Table.DEFAULT), (ToGroup(group_id),), meter=meter)


def ours(read: RuleSet, believed: RuleSet | None = None, fabric: Fabric = FABRIC) -> tuple[set[int], set[int]]:
    """Return the ids of groups and meters that are ours; the rest belong to others."""
    mine, others = divided(DPID, read, believed or RuleSet(), fabric)
    assert mine.groups.keys() | others.groups.keys() == read.groups.keys()
    assert mine.meters.keys() | others.meters.keys() == read.meters.keys()
    assert (mine.flows, others.flows) == (read.flows, {})
    return set(mine.groups), set(mine.meters)


def test_groups_that_our_flows_reach_are_ours_over_other_groups_too() -> None:
    other = FlowRule(FlowKey(Table.DEFAULT, 11, Match()), cookie(Table.DEFAULT), (ToGroup(20),))
    chain = [group(10, 11), group(11, 12), group(12), group(13, 10)]
    read = RuleSet.of([flow(10), other], [*chain, group(20, 21), group(21), group(30)])
    assert ours(read) == ({10, 11, 12, 20, 21}, set())
    pointing_at_each_other = [group(10, 11), group(11, 10), group(12)]
    assert ours(RuleSet.of([flow(10)], pointing_at_each_other)) == ({10, 11}, set())


def test_ids_that_this_fabric_or_a_known_switch_that_has_not_connected_gives_are_ours() -> None:
    read = RuleSet.of((), [group(ecmp_group_id(Dpid(2))), group(99)])
    assert ours(read) == ({ecmp_group_id(Dpid(2))}, set())
    assert ours(read, fabric=Fabric()) == (set(), set())
    mine, others = divided(DPID, read, RuleSet(), Fabric(switches={DPID: SWITCH}), [Dpid(2)])
    assert ({*mine.groups}, {*others.groups}) == ({ecmp_group_id(Dpid(2))}, {99})


def test_meters_numbered_like_ports_or_used_by_our_flows_and_what_we_put_there_are_ours() -> None:
    meters = [MeterRule(number, 5, 5) for number in (3, 4, 5)]
    assert ours(RuleSet.of([flow(10, meter=4)], [], meters)) == (set(), {3, 4})
    read = RuleSet.of((), [group(99), group(98)], [MeterRule(77, 5, 5), MeterRule(78, 5, 5)])
    assert ours(read, RuleSet.of((), [group(99)], [MeterRule(77, 5, 5)])) == ({99}, {77})


def test_a_read_back_that_is_all_ours_is_not_copied() -> None:
    read = RuleSet.of([flow(10)], [group(10)], [MeterRule(3, 5, 5)])
    assert divided(DPID, read, RuleSet(), FABRIC)[0] is read
