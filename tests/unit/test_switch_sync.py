"""Differences in safe stages, and what is believed after each barrier."""

from __future__ import annotations

from controller.fabric.topology import Dpid, Fabric, PortNo
from controller.messages import InstallStage, StageDone, SwitchResult, SwitchRules
from controller.tables import rules_diff
from controller.tables.rules import (
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    Output,
    RuleSet,
    Table,
    ToGroup,
    cookie,
)
from controller.tables.switch_sync import REREAD_AFTER_S, SwitchSync

LEAF, SPINE = Dpid(1), Dpid(2)
NO_FABRIC = Fabric()


def flow(port: int, in_port: int = 1, distance: int = 0) -> FlowRule:
    key = FlowKey(Table.DEFAULT, 10, Match(in_port=PortNo(in_port)))
    return FlowRule(key, cookie(Table.DEFAULT), (Output(PortNo(port)),), distance=distance)


def group(*ports: int, distance: int = 0) -> GroupRule:
    buckets = tuple(Bucket(Output(PortNo(p)), watch_port=PortNo(p)) for p in ports)
    return GroupRule(7, "select", buckets, distance)


def to_group(distance: int = 0) -> FlowRule:
    key = FlowKey(Table.DEFAULT, 10, Match(in_port=PortNo(9)))
    return FlowRule(key, cookie(Table.DEFAULT), (ToGroup(7),), distance=distance)


def synced(sync: SwitchSync, **rules: RuleSet) -> None:
    for name, held in rules.items():
        dpid = {"leaf": LEAF, "spine": SPINE}[name]
        sync.connected(dpid)
        sync.rules_read(SwitchRules(dpid, held, 0), NO_FABRIC, 0)


def done(stage: InstallStage | None, **results: SwitchResult) -> StageDone:
    assert stage
    named = {{"leaf": LEAF, "spine": SPINE}[name]: result for name, result in results.items()}
    return StageDone(stage.change_id, {d: named.get(d, SwitchResult()) for d in stage.stage.mods})


def test_equal_rules_need_nothing_whatever_their_distance() -> None:
    assert not rules_diff.stages({LEAF: RuleSet.of([flow(1, distance=2)])}, {LEAF: RuleSet.of([flow(1)])})


def test_downstream_comes_before_ingress_and_groups_before_flows() -> None:
    desired = {
        LEAF: RuleSet.of([to_group(2)], [group(1, 2, distance=2)]),
        SPINE: RuleSet.of([flow(3, distance=1)]),
    }
    stages = rules_diff.stages(desired, {LEAF: RuleSet(), SPINE: RuleSet()})
    assert [(stage.name, list(stage.mods)) for stage in stages] == [("install 1", [SPINE]), ("install 2", [LEAF])]
    assert [type(mod.rule) for mod in stages[1].mods[LEAF]] == [GroupRule, FlowRule]


def test_a_repair_that_only_takes_away_goes_first() -> None:
    desired = {LEAF: RuleSet.of([flow(1)], [group(1, distance=2)]), SPINE: RuleSet.of([flow(3)])}
    stages = rules_diff.stages(desired, {LEAF: RuleSet.of(groups=[group(1, 2)]), SPINE: RuleSet()})
    assert [stage.name for stage in stages] == ["narrow", "install"]
    assert list(stages[0].mods) == [LEAF]


def test_a_group_that_gains_and_loses_is_no_repair() -> None:
    stages = rules_diff.stages(
        {LEAF: RuleSet.of(groups=[group(1, 3, distance=2)])}, {LEAF: RuleSet.of(groups=[group(1, 2)])}
    )
    assert [stage.name for stage in stages] == ["install 2"]


def test_flows_are_deleted_before_their_groups_and_after_everything_else() -> None:
    stages = rules_diff.stages(
        {LEAF: RuleSet.of([flow(1)])}, {LEAF: RuleSet.of([to_group()], [group(1)]), SPINE: RuleSet()}
    )
    assert [stage.name for stage in stages] == ["install", "delete flows", "delete groups"]


def test_switches_that_are_not_read_back_are_left_alone() -> None:
    sync = SwitchSync()
    sync.connected(LEAF)
    assert sync.next_stage({LEAF: RuleSet.of([flow(1)])}) is None
    assert not sync.all_read


def test_one_stage_at_a_time_until_nothing_differs() -> None:
    sync = SwitchSync()
    synced(sync, leaf=RuleSet(), spine=RuleSet())
    desired = {LEAF: RuleSet.of([flow(1, distance=2)]), SPINE: RuleSet.of([flow(1, distance=1)])}
    first = sync.next_stage(desired)
    assert sync.next_stage(desired) is None, "a stage is under way"
    sync.stage_done(done(first), 0)
    second = sync.next_stage(desired)
    assert second
    assert list(second.stage.mods) == [LEAF]
    sync.stage_done(done(second), 0)
    assert sync.next_stage(desired) is None
    assert sync.settled == {LEAF, SPINE}
    assert sync.installed == desired


def test_a_repair_overtakes_a_switch_that_is_slow_to_answer() -> None:
    sync = SwitchSync()
    synced(sync, leaf=RuleSet.of(groups=[group(1, 2)]), spine=RuleSet())
    wide = {LEAF: RuleSet.of(groups=[group(1, 2)]), SPINE: RuleSet.of([flow(1)])}
    slow = sync.next_stage(wide)
    assert slow
    assert list(slow.stage.mods) == [SPINE]
    narrow = {LEAF: RuleSet.of([flow(1)], [group(1)]), SPINE: RuleSet.of([flow(2)])}
    repair = sync.next_stage(narrow)
    assert repair
    assert (repair.stage.name, list(repair.stage.mods)) == (rules_diff.NARROW, [LEAF])
    assert sync.next_stage(narrow) is None, "everything else waits for its turn"
    sync.stage_done(done(repair), 0)
    assert sync.next_stage(narrow) is None
    sync.stage_done(done(slow), 0)
    rest = sync.next_stage(narrow)
    assert rest
    assert set(rest.stage.mods) == {LEAF, SPINE}


def test_a_repair_that_is_confirmed_before_the_change_it_overtook_is_what_counts() -> None:
    """One stage widens the leaf's group and waits for a silent spine; the repair of the same group comes back first."""
    sync = SwitchSync()
    synced(sync, leaf=RuleSet.of(groups=[group(1, 2)]), spine=RuleSet.of([flow(2)]))
    slow = sync.next_stage({LEAF: RuleSet.of(groups=[group(2)]), SPINE: RuleSet.of([flow(2)])})
    newer = {LEAF: RuleSet.of(groups=[group(1)]), SPINE: RuleSet.of([flow(2)])}
    repair = sync.next_stage(newer)
    assert repair
    sync.stage_done(done(repair), 0)
    sync.stage_done(done(slow), 0)
    assert sync.installed == newer
    assert sync.next_stage(newer) is None


def test_a_newer_wish_replaces_the_stages_that_were_left() -> None:
    sync = SwitchSync()
    synced(sync, leaf=RuleSet(), spine=RuleSet())
    first = sync.next_stage({LEAF: RuleSet.of([flow(1, distance=2)]), SPINE: RuleSet.of([flow(1, distance=1)])})
    sync.stage_done(done(first), 0)
    newer = sync.next_stage({LEAF: RuleSet(), SPINE: RuleSet()})
    assert newer
    assert newer.stage.name == "delete flows"
    assert list(newer.stage.mods) == [SPINE]


def test_a_refused_rule_is_sent_again_only_when_it_changes() -> None:
    sync = SwitchSync()
    synced(sync, leaf=RuleSet())
    desired = {LEAF: RuleSet.of([flow(1), flow(1, in_port=2)])}
    stage = sync.next_stage(desired)
    assert stage
    refused = stage.stage.mods[LEAF][0]
    sync.stage_done(done(stage, leaf=SwitchResult(rejected=((refused, "table full"),))), 0)
    assert len(sync.installed[LEAF].flows) == 1
    assert sync.next_stage(desired) is None
    changed = sync.next_stage({LEAF: RuleSet.of([flow(4), flow(4, in_port=2)])})
    assert changed
    assert len(changed.stage.mods[LEAF]) == 2


def test_a_switch_that_does_not_answer_is_read_back_before_anything_else() -> None:
    sync = SwitchSync()
    synced(sync, leaf=RuleSet(), spine=RuleSet())
    desired = {LEAF: RuleSet.of([flow(1)]), SPINE: RuleSet.of([flow(1)])}
    sync.stage_done(done(sync.next_stage(desired), leaf=SwitchResult(timed_out=True)), now=10)
    assert sync.next_stage(desired) is None
    assert sync.tick(10) == []
    assert [read.dpid for read in sync.tick(10 + REREAD_AFTER_S)] == [LEAF]
    sync.rules_read(SwitchRules(LEAF, desired[LEAF], 0), NO_FABRIC, 20)
    assert sync.next_stage(desired) is None
    assert sync.settled == {LEAF, SPINE}


def test_a_switch_that_left_in_mid_stage_is_forgotten() -> None:
    sync = SwitchSync()
    synced(sync, leaf=RuleSet())
    stage = sync.next_stage({LEAF: RuleSet.of([flow(1)])})
    sync.left(LEAF)
    sync.stage_done(done(stage, leaf=SwitchResult(timed_out=True)), 0)
    assert not sync.busy
    assert not sync.installed
    assert sync.tick(100) == []


def test_what_was_equal_once_is_compared_again_when_either_side_is_new() -> None:
    sync, wanted = SwitchSync(), {LEAF: RuleSet.of([flow(1)])}
    synced(sync, leaf=RuleSet.of([flow(1)]))
    assert sync.next_stage(wanted) is None
    assert sync.next_stage(wanted) is None
    assert sync.settled == {LEAF}
    sync.connected(LEAF)
    sync.rules_read(SwitchRules(LEAF, RuleSet(), 0), NO_FABRIC, 0)
    assert done(sync.next_stage(wanted)), "somebody took the rule away"
    assert sync.unsettled == {LEAF}
    other = SwitchSync()
    synced(other, leaf=RuleSet.of([flow(1)]))
    assert other.next_stage(wanted) is None
    assert done(other.next_stage({LEAF: RuleSet.of([flow(2)])}))
