"""Difference between desired and installed rules in safe stages, cookies, and the groups and meters that are ours."""

from __future__ import annotations

from controller.fabric.topology import Dpid, Fabric, Port, PortNo, Switch
from controller.tables.rules import (
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    Output,
    RuleMod,
    RuleSet,
    Table,
    ToGroup,
    cookie,
    cookie_owner,
    divided,
    dropped_cookie,
    ecmp_group_id,
    is_ours,
    learning_cookie,
    stages_between,
)
from tests.support.table_rules import LEAF, SPINE, flow, group, to_group


def test_equal_flows_and_groups_need_nothing_whatever_their_distance() -> None:
    """No switch stores the distance: rules that are read back have none."""
    wanted = RuleSet.of([to_group(2)], [group(1, 2, distance=2)])
    assert not stages_between({LEAF: wanted}, {LEAF: RuleSet.of([to_group()], [group(1, 2)])})


def test_downstream_comes_before_ingress_and_groups_before_flows() -> None:
    desired = {
        LEAF: RuleSet.of([to_group(2)], [group(1, 2, distance=2)]),
        SPINE: RuleSet.of([flow(3, distance=1)]),
    }
    stages = stages_between(desired, {LEAF: RuleSet(), SPINE: RuleSet()})
    assert [(stage.name, list(stage.mods)) for stage in stages] == [("install 1", [SPINE, LEAF]), ("install 2", [LEAF])]
    assert [type(mod.rule) for stage in stages for mod in stage.mods.get(LEAF, ())] == [GroupRule, FlowRule]


def test_a_group_is_there_before_one_that_points_at_it_from_nearer_to_the_destination() -> None:
    """A pinned path over circuits may have fewer hops than the longest path of the pin's fallback group."""
    pin = GroupRule(8, "fast_failover", (Bucket(Output(PortNo(1)), PortNo(1)), Bucket(ToGroup(7), None, 7)), 1)
    stages = stages_between({LEAF: RuleSet.of([to_group(2)], [group(1, 2, distance=2), pin])}, {LEAF: RuleSet()})
    added = [mod.rule for stage in stages for mod in stage.mods[LEAF]]
    assert [rule.group_id for rule in added if isinstance(rule, GroupRule)] == [7, 8]


def test_the_last_switch_has_its_rule_before_those_that_lead_there_whatever_groups_are_added() -> None:
    desired = {
        LEAF: RuleSet.of([flow(1, distance=0)], [group(7, 1, distance=1)]),
        SPINE: RuleSet.of([flow(3, distance=1)]),
    }
    stages = stages_between(desired, {LEAF: RuleSet(), SPINE: RuleSet()})
    assert [list(stage.mods) for stage in stages] == [[LEAF], [SPINE]]
    assert [type(mod.rule) for mod in stages[0].mods[LEAF]] == [GroupRule, FlowRule]


def test_the_entry_for_a_miss_is_there_before_a_table_can_be_full() -> None:
    miss = FlowRule(FlowKey(Table.PINNED, 0, Match()), cookie(Table.PINNED), goto=Table.DEFAULT)
    rules = RuleSet.of([flow(1), flow(1, in_port=2), miss])
    (added,) = stages_between({LEAF: rules}, {LEAF: RuleSet()})
    assert added.mods[LEAF][0].rule == miss
    (deleted,) = stages_between({LEAF: RuleSet()}, {LEAF: rules})
    assert deleted.mods[LEAF][-1].rule == miss


def test_a_repair_that_only_takes_away_goes_first() -> None:
    desired = {LEAF: RuleSet.of([flow(1)], [group(1, distance=2)]), SPINE: RuleSet.of([flow(3)])}
    stages = stages_between(desired, {LEAF: RuleSet.of(groups=[group(1, 2)]), SPINE: RuleSet()})
    assert [stage.name for stage in stages] == ["narrow", "install"]
    assert list(stages[0].mods) == [LEAF]
    failover = GroupRule(7, "fast_failover", group(1, 2).buckets, 2)
    for wanted, held in ((group(1, 3, distance=2), group(1, 2)), (group(1, distance=2), failover)):
        stages = stages_between({LEAF: RuleSet.of(groups=[wanted])}, {LEAF: RuleSet.of(groups=[held])})
        assert [stage.name for stage in stages] == ["install 2"]


def test_flows_are_deleted_before_their_groups_and_after_everything_else() -> None:
    stages = stages_between(
        {LEAF: RuleSet.of([flow(1)])}, {LEAF: RuleSet.of([to_group()], [group(1)]), SPINE: RuleSet()}
    )
    assert [stage.name for stage in stages] == ["install", "delete flows", "delete groups"]
    stages = stages_between({LEAF: RuleSet.of(groups=[group(1)])}, {LEAF: RuleSet.of([flow(1)])})
    assert [stage.name for stage in stages] == ["install", "delete flows"]


def test_a_rule_that_passes_to_another_owner_is_added_anew() -> None:
    """A modified flow keeps its cookie."""
    key = FlowKey(Table.PINNED, 10, Match(in_port=PortNo(1)))
    before, after = (FlowRule(key, cookie(Table.PINNED, owner), goto=Table.DEFAULT) for owner in (1, 2))
    (stage,) = stages_between({LEAF: RuleSet.of([after])}, {LEAF: RuleSet.of([before])})
    assert stage.mods[LEAF] == (RuleMod("add", after),)


def test_groups_that_point_at_groups_come_after_those_and_are_deleted_before_them() -> None:
    """A path group has one bucket with an output port and one with its fallback group."""
    hop = Bucket(Output(PortNo(1)), watch_port=PortNo(1))
    path_group = GroupRule(8, "fast_failover", (hop, Bucket(ToGroup(7), watch_group=7)))
    rules = RuleSet.of(groups=[path_group, group(1)])
    (added,) = stages_between({LEAF: rules}, {LEAF: RuleSet()})
    (deleted,) = stages_between({LEAF: RuleSet()}, {LEAF: rules})
    assert [mod.rule for mod in added.mods[LEAF]] == [group(1), path_group]
    assert [mod.rule for mod in deleted.mods[LEAF]] == [path_group, group(1)]


def test_the_tables_are_three_in_the_order_in_which_packets_pass_them() -> None:
    """OpenFlow 1.3.5, 5.1: a packet continues only to a table with a larger number."""
    assert [int(table) for table in (Table.CONTROL, Table.PINNED, Table.DEFAULT)] == [0, 1, 2]


def test_a_cookie_is_the_same_in_every_release_and_says_what_the_rule_is_for_and_whose() -> None:
    """A restarted controller reads the rules of the previous process."""
    owner = 0xFF_FFFF_FFFE
    assert cookie(Table.DEFAULT) == 0x5B17_02_0000000000
    assert [cookie(table, owner) - owner for table in Table] == [0x5B17_00_0000000000 + (t << 40) for t in Table]
    of_owner = [learning_cookie(owner), *(cookie(table, owner) for table in Table)]
    assert [cookie_owner(each) for each in of_owner] == [owner] * len(of_owner)
    every = [*of_owner, dropped_cookie()]
    assert all(map(is_ours, every))
    assert len({each >> 40 for each in every}) == len(every)
    assert learning_cookie(owner) >> 40 & 0xFF == 255
    assert not is_ours(0x5B18_02_0000000000)


def test_a_path_group_that_goes_first_loses_a_next_hop_that_leads_away() -> None:
    """The pins are deleted last; until then the group would send packets back to switches with new routes."""
    fallback = Bucket(ToGroup(7), watch_group=7)

    def path_group(port: int) -> GroupRule:
        return GroupRule(8, "fast_failover", (Bucket(Output(PortNo(port)), watch_port=PortNo(port)), fallback))

    desired = RuleSet.of([to_group()], [group(1, 2)])
    for port, expected in ((3, ["narrow", "delete groups"]), (2, ["delete groups"])):
        installed = RuleSet.of([to_group()], [group(1, 2), path_group(port)])
        found = stages_between({LEAF: desired}, {LEAF: installed})
        assert [stage.name for stage in found] == expected
        if len(found) > 1:
            assert found[0].mods[LEAF] == (RuleMod("modify", GroupRule(8, "fast_failover", (fallback,))),)


DPID, PORT = Dpid(1), PortNo(3)
CONNECTED = Switch(DPID, "leaf1", {PORT: Port(PORT, "eth3", "", True, 1e9)})
FABRIC = Fabric(switches={DPID: CONNECTED, Dpid(2): Switch(Dpid(2), "leaf2", {})})


def other_group(group_id: int, to: int | None = None) -> GroupRule:
    return GroupRule(group_id, "select", (Bucket(ToGroup(to)),) if to else ())


def flow_to(group_id: int, meter: int | None = None) -> FlowRule:
    return FlowRule(FlowKey(Table.DEFAULT, 10, Match()), cookie(Table.DEFAULT), (ToGroup(group_id),), meter=meter)


def ours(read: RuleSet, believed: RuleSet | None = None, fabric: Fabric = FABRIC) -> tuple[set[int], set[int]]:
    mine, others = divided(DPID, read, believed or RuleSet(), fabric)
    assert mine.groups.keys() | others.groups.keys() == read.groups.keys()
    assert mine.meters.keys() | others.meters.keys() == read.meters.keys()
    assert (mine.flows, others.flows) == (read.flows, {})
    return set(mine.groups), set(mine.meters)


def test_groups_that_our_flows_reach_are_ours_over_other_groups_too() -> None:
    other = FlowRule(FlowKey(Table.DEFAULT, 11, Match()), cookie(Table.DEFAULT), (ToGroup(20),))
    chain = [other_group(10, 11), other_group(11, 12), other_group(12), other_group(13, 10)]
    read = RuleSet.of([flow_to(10), other], [*chain, other_group(20, 21), other_group(21), other_group(30)])
    assert ours(read) == ({10, 11, 12, 20, 21}, set())
    pointing_at_each_other = [other_group(10, 11), other_group(11, 10), other_group(12)]
    assert ours(RuleSet.of([flow_to(10)], pointing_at_each_other)) == ({10, 11}, set())


def test_ids_that_this_fabric_or_a_known_switch_that_has_not_connected_gives_are_ours() -> None:
    read = RuleSet.of((), [other_group(ecmp_group_id(Dpid(2))), other_group(99)])
    assert ours(read) == ({ecmp_group_id(Dpid(2))}, set())
    assert ours(read, fabric=Fabric()) == (set(), set())
    mine, others = divided(DPID, read, RuleSet(), Fabric(switches={DPID: CONNECTED}), [Dpid(2)])
    assert ({*mine.groups}, {*others.groups}) == ({ecmp_group_id(Dpid(2))}, {99})


def test_meters_numbered_like_ports_or_used_by_our_flows_and_what_we_put_there_are_ours() -> None:
    meters = [MeterRule(number, 5, 5) for number in (3, 4, 5)]
    assert ours(RuleSet.of([flow_to(10, meter=4)], [], meters)) == (set(), {3, 4})
    read = RuleSet.of((), [other_group(99), other_group(98)], [MeterRule(77, 5, 5), MeterRule(78, 5, 5)])
    assert ours(read, RuleSet.of((), [other_group(99)], [MeterRule(77, 5, 5)])) == ({99}, {77})


def test_a_read_back_that_is_all_ours_is_not_copied() -> None:
    read = RuleSet.of([flow_to(10)], [other_group(10)], [MeterRule(3, 5, 5)])
    assert divided(DPID, read, RuleSet(), FABRIC)[0] is read
