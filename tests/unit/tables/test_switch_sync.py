"""Rules sent to switches, and the controller's belief about their rules after each barrier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from msgspec import structs

from controller.circuits.optical_switches import changes
from controller.fabric.topology import Dpid, Fabric, Port, PortNo, Switch
from controller.tables import switch_sync
from controller.tables.messages import InstallStage, ReadRules, StageDone, SwitchResult, SwitchRules
from controller.tables.rules import (
    NARROW,
    Bucket,
    FlowKey,
    FlowRule,
    GroupRule,
    Match,
    MeterRule,
    Output,
    RuleMod,
    RuleSet,
    Stage,
    Table,
    ToGroup,
    cookie,
    mods_between,
    path_group_id,
    stages_between,
)
from controller.tables.switch_sync import HELD, MAX_PAUSE_S, REREAD_AFTER_S, RETRY_AFTER_S, SwitchSync
from tests.support.table_rules import LEAF, SPINE, flow, group, to_group

NO_FABRIC = Fabric()


def synced(sync: SwitchSync, **rules: RuleSet) -> SwitchSync:
    for name, held in rules.items():
        dpid = {"leaf": LEAF, "spine": SPINE}[name]
        sync.switch_connected(dpid)
        read_back(sync, dpid, held)
    return sync


def read_back(sync: SwitchSync, dpid: Dpid, held: RuleSet, now: float = 0) -> str:
    return sync.rules_read(SwitchRules(dpid, held, 0), NO_FABRIC, now)


def sent(sync: SwitchSync, desired: Mapping[Dpid, RuleSet]) -> InstallStage:
    stage = sync.next_stage(desired)
    assert stage
    return stage


def done(stage: InstallStage | None, **results: SwitchResult) -> StageDone:
    assert stage
    named = {{"leaf": LEAF, "spine": SPINE}[name]: result for name, result in results.items()}
    return StageDone(stage.change_id, {d: named.get(d, SwitchResult()) for d in stage.stage.mods})


def test_switches_that_are_not_read_back_are_left_alone() -> None:
    sync = SwitchSync()
    sync.switch_connected(LEAF)
    assert sync.next_stage({LEAF: RuleSet.of([flow(1)])}) is None
    assert not sync.all_read


def test_one_stage_at_a_time_until_nothing_differs() -> None:
    sync = synced(SwitchSync(), leaf=RuleSet(), spine=RuleSet())
    desired = {LEAF: RuleSet.of([flow(1, distance=2)]), SPINE: RuleSet.of([flow(1, distance=1)])}
    first = sync.next_stage(desired)
    assert sync.next_stage(desired) is None, "a stage is under way"
    sync.stage_done(done(first), 0)
    second = sent(sync, desired)
    assert list(second.stage.mods) == [LEAF]
    sync.stage_done(done(second), 0)
    assert sync.next_stage(desired) is None
    assert sync.settled == {LEAF, SPINE}
    assert sync.installed == desired


def test_the_stages_of_one_difference_are_found_once_unless_something_else_happens() -> None:
    found: list[int] = []

    def counted(*arguments: Any) -> list[Stage]:
        found.append(1)
        return stages_between(*arguments)

    sync = synced(SwitchSync(0.0, counted), leaf=RuleSet.of([flow(5, in_port=4)]), spine=RuleSet())
    desired = {LEAF: RuleSet.of([flow(1, distance=2)]), SPINE: RuleSet.of([flow(1, distance=1)])}
    for name in ("install 1", "install 2"):
        stage = sent(sync, desired)
        assert stage.stage.name == name
        sync.stage_done(done(stage), 0)
    assert sync.unsettled == {LEAF}, "its old rule is left"
    assert len(found) == 1
    assert sync.tick(0) == [ReadRules(LEAF)], "an audit"
    read_back(sync, LEAF, RuleSet())
    stage = sent(sync, desired)
    assert [mod.op for mod in stage.stage.mods[LEAF]] == ["add"], "an audit has found that both rules are gone"
    sync.stage_done(done(stage), 0)
    assert sync.next_stage(desired) is None
    assert sync.installed == desired


def test_a_repair_overtakes_a_switch_that_is_slow_to_answer() -> None:
    sync = synced(SwitchSync(), leaf=RuleSet.of(groups=[group(1, 2)]), spine=RuleSet())
    wide = {LEAF: RuleSet.of(groups=[group(1, 2)]), SPINE: RuleSet.of([flow(1)])}
    slow = sent(sync, wide)
    assert list(slow.stage.mods) == [SPINE]
    narrow = {LEAF: RuleSet.of([flow(1)], [group(1)]), SPINE: RuleSet.of([flow(2)])}
    repair = sent(sync, narrow)
    assert (repair.stage.name, list(repair.stage.mods)) == (NARROW, [LEAF])
    assert sync.next_stage(narrow) is None, "everything else waits for its turn"
    sync.stage_done(done(repair), 0)
    assert sync.next_stage(narrow) is None
    sync.stage_done(done(slow), 0)
    rest = sent(sync, narrow)
    assert set(rest.stage.mods) == {LEAF, SPINE}


def test_a_newer_wish_replaces_the_stages_that_were_left() -> None:
    sync = synced(SwitchSync(), leaf=RuleSet(), spine=RuleSet())
    first = sync.next_stage({LEAF: RuleSet.of([flow(1, distance=2)]), SPINE: RuleSet.of([flow(1, distance=1)])})
    sync.stage_done(done(first), 0)
    newer = sent(sync, {LEAF: RuleSet(), SPINE: RuleSet()})
    assert newer.stage.name == "delete flows"
    assert list(newer.stage.mods) == [SPINE]


def test_a_refused_rule_is_sent_again_only_when_it_changes() -> None:
    sync = synced(SwitchSync(), leaf=RuleSet())
    desired = {LEAF: RuleSet.of([flow(1), flow(1, in_port=2)])}
    stage = sent(sync, desired)
    refused = stage.stage.mods[LEAF][0]
    sync.stage_done(done(stage, leaf=SwitchResult(rejected=((refused, "table full"),))), 0)
    assert len(sync.installed[LEAF].flows) == 1
    assert sync.next_stage(desired) is None
    changed = sent(sync, {LEAF: RuleSet.of([flow(4), flow(4, in_port=2)])})
    assert len(changed.stage.mods[LEAF]) == 2


def test_a_switch_that_does_not_answer_is_read_back_before_anything_else() -> None:
    sync = synced(SwitchSync(), leaf=RuleSet(), spine=RuleSet())
    desired = {LEAF: RuleSet.of([flow(1)]), SPINE: RuleSet.of([flow(1)])}
    sync.stage_done(done(sync.next_stage(desired), leaf=SwitchResult(timed_out=True)), now=10)
    assert sync.next_stage(desired) is None
    assert sync.tick(10) == []
    assert [read.dpid for read in sync.tick(10 + REREAD_AFTER_S)] == [LEAF]
    read_back(sync, LEAF, desired[LEAF], 20)
    assert sync.next_stage(desired) is None
    assert sync.settled == {LEAF, SPINE}


def test_a_silent_switch_is_read_back_less_and_less_often_until_it_answers() -> None:
    sync, wanted, now = SwitchSync(), {LEAF: RuleSet.of([flow(1)])}, 0.0
    synced(sync, leaf=RuleSet())

    def pause_after_silence() -> float:
        """Return the seconds from an unanswered barrier to the next read; the switch then reports no rules."""
        nonlocal now
        since = now
        sync.stage_done(done(sync.next_stage(wanted), leaf=SwitchResult(timed_out=True)), now)
        while not sync.tick(now):
            now += 0.5
        read_back(sync, LEAF, RuleSet(), now)
        return now - since

    pauses = [pause_after_silence() for _ in range(8)]
    assert pauses[:3] == [REREAD_AFTER_S, 2 * REREAD_AFTER_S, 4 * REREAD_AFTER_S]
    assert pauses[-1] == MAX_PAUSE_S
    sync.stage_done(done(sync.next_stage(wanted)), now)
    wanted = {LEAF: RuleSet.of([flow(2)])}
    assert pause_after_silence() == REREAD_AFTER_S, "it has answered since"


def test_the_stages_that_are_left_are_not_sent_to_a_switch_that_has_left() -> None:
    sync = synced(SwitchSync(), leaf=RuleSet(), spine=RuleSet())
    wanted = {LEAF: RuleSet.of([flow(1, distance=2)]), SPINE: RuleSet.of([flow(1, distance=1)])}
    first = sent(sync, wanted)
    assert list(first.stage.mods) == [SPINE]
    sync.stage_done(done(first), 0)
    sync.switch_left(LEAF)
    assert sync.next_stage(wanted) is None
    assert sync.settled == {SPINE}


def test_a_switch_that_returns_gets_what_was_on_its_way_to_it_again() -> None:
    sync, wanted = synced(SwitchSync(), leaf=RuleSet.of(groups=[group(1, 2)])), {LEAF: RuleSet.of(groups=[group(1)])}
    lost = sent(sync, wanted)
    sync.switch_left(LEAF)
    synced(sync, leaf=RuleSet.of(groups=[group(1, 2)]))
    again = sent(sync, wanted)
    assert again.stage == lost.stage


def test_a_switch_that_returns_is_sent_what_it_refused_before() -> None:
    sync, wanted = synced(SwitchSync(), leaf=RuleSet()), {LEAF: RuleSet.of([flow(1)])}
    stage = sent(sync, wanted)
    sync.stage_done(refuse(stage, *stage.stage.mods[LEAF]), 0)
    assert sync.next_stage(wanted) is None
    synced(sync, leaf=RuleSet())
    assert sync.next_stage(wanted)


def test_a_switch_is_not_read_while_a_change_for_it_is_under_way() -> None:
    """The switch refused a rule and has to be read; other rules are sent to it first."""
    sync = synced(SwitchSync(), leaf=RuleSet())
    stage = sent(sync, {LEAF: RuleSet.of([flow(1)])})
    sync.stage_done(refuse(stage, *stage.stage.mods[LEAF]), 0)
    other = sync.next_stage({LEAF: RuleSet.of([flow(1), flow(1, in_port=2)])})
    assert sync.tick(1) == []
    sync.stage_done(done(other), 2)
    assert [read.dpid for read in sync.tick(3)] == [LEAF]


# ---- late switches


def test_a_late_switch_holds_up_nobody_but_itself() -> None:
    sync = synced(SwitchSync(), leaf=RuleSet(), spine=RuleSet())
    desired = {
        LEAF: RuleSet.of([flow(1, distance=1), flow(1, in_port=2, distance=2)]),
        SPINE: RuleSet.of([flow(1, distance=1), flow(1, in_port=2, distance=2)]),
    }
    first = sent(sync, desired)
    sync.stage_done(StageDone(first.change_id, {LEAF: SwitchResult()}), 0)
    assert not sync.busy
    second = sent(sync, desired)
    assert set(second.stage.mods) == {LEAF}
    sync.stage_done(done(second), 0)
    assert sync.next_stage(desired) is None
    assert sync.settled == {LEAF}
    assert sync.unsettled == {SPINE}
    sync.stage_done(StageDone(first.change_id, {SPINE: SwitchResult()}), 0)
    rest = sent(sync, desired)
    assert set(rest.stage.mods) == {SPINE}
    sync.stage_done(done(rest), 0)
    assert sync.next_stage(desired) is None
    assert sync.installed == desired


def test_a_repair_does_not_overtake_the_deletion_of_its_group() -> None:
    sync = synced(SwitchSync(), leaf=RuleSet.of([to_group()], [group(1, 2)]))
    sync.stage_done(done(sync.next_stage({LEAF: RuleSet()})), 0)
    deletion = sent(sync, {LEAF: RuleSet()})
    assert [mod.rule for mod in deletion.stage.mods[LEAF]] == [group(1, 2)]
    narrower = {LEAF: RuleSet.of(groups=[group(1)])}
    assert sync.next_stage(narrower) is None, "there will be no group to modify"
    sync.stage_done(done(deletion), 0)
    again = sent(sync, narrower)
    assert [mod.op for mod in again.stage.mods[LEAF]] == ["add"]


# ---- audits


def audited(sync: SwitchSync, now: float) -> list[Dpid]:
    return [read.dpid for read in sync.tick(now)]


def test_switches_are_read_back_one_after_the_other_each_once_in_the_interval() -> None:
    sync = synced(SwitchSync(audit_interval_s=60), leaf=RuleSet(), spine=RuleSet())
    read: list[tuple[float, Dpid]] = []
    for now in range(0, 240, 2):
        for dpid in audited(sync, now):
            read.append((now, dpid))
            assert read_back(sync, dpid, RuleSet(), now) == "same"
    assert [dpid for _, dpid in read] == [LEAF, SPINE] * 3 + [LEAF]
    assert {later - earlier for (earlier, _), (later, _) in pairwise(read)} == {30}


def test_no_audit_while_another_one_is_not_answered_or_the_switch_changes() -> None:
    sync = synced(SwitchSync(audit_interval_s=60), leaf=RuleSet(), spine=RuleSet())
    audited(sync, 0)
    stage = sync.next_stage({LEAF: RuleSet.of([flow(1)])})
    assert audited(sync, 30) == [SPINE]
    assert audited(sync, 90) == []
    read_back(sync, SPINE, RuleSet(), 91)
    assert audited(sync, 120) == [SPINE], "the leaf is changing"
    read_back(sync, SPINE, RuleSet(), 121)
    sync.stage_done(done(stage), 122)
    assert audited(sync, 150) == [LEAF]


def test_a_switch_that_others_may_have_changed_is_read_with_the_next_tick_and_once() -> None:
    sync = synced(SwitchSync(), leaf=RuleSet(), spine=RuleSet())
    assert sync.tick(5.0) == []
    sync.read_soon(LEAF, 5.0)
    sync.read_soon(Dpid(9), 5.0)
    assert sync.tick(5.0) == [ReadRules(LEAF)]
    sync.read_soon(LEAF, 5.1)
    assert sync.tick(5.1) == []
    read_back(sync, LEAF, RuleSet(), 5.2)
    assert sync.tick(5.2) == [ReadRules(LEAF)], "others may have changed it while it was read"


def test_what_leads_to_the_desired_rules_may_be_something_else_than_stages_that_are_safe_everywhere() -> None:
    def at_once(wanted: Mapping[Dpid, RuleSet], held: Mapping[Dpid, RuleSet]) -> list[Stage]:
        return [Stage("at once", {dpid: tuple(mods_between(rules, held[dpid])) for dpid, rules in wanted.items()})]

    sync = synced(SwitchSync(stages=at_once), leaf=RuleSet.of([flow(1), flow(1, in_port=2)]))
    (stage,) = sync.left_to_do({LEAF: RuleSet.of([flow(2)])})
    assert (stage.name, [mod.op for mod in stage.mods[LEAF]]) == ("at once", ["modify", "delete"])
    sent = sync.send(stage)
    assert sync.under_way == {sent.change_id}
    sync.stage_done(done(sent), 0.0)
    assert sync.installed[LEAF] == RuleSet.of([flow(2)])


def test_what_an_audit_finds_is_counted_and_put_right() -> None:
    wanted = {LEAF: RuleSet.of([flow(1), flow(1, in_port=2)], [group(1)])}
    sync = synced(SwitchSync(audit_interval_s=60), leaf=wanted[LEAF])
    assert sync.next_stage(wanted) is None
    audited(sync, 0)
    audited(sync, 60)
    found = RuleSet.of([flow(9), flow(1, in_port=3)], [group(1)])
    assert read_back(sync, LEAF, found, 60) == "changed"
    assert sync.healed[LEAF] == 3, "one changed, one missing, one more"
    sync.stage_done(done(sync.next_stage(wanted)), 61)
    sync.stage_done(done(sync.next_stage(wanted)), 61)
    assert sync.next_stage(wanted) is None
    assert sync.installed == wanted


# ---- refusals


def refuse(stage: InstallStage | None, *rejected: RuleMod) -> StageDone:
    return done(stage, leaf=SwitchResult(rejected=tuple((mod, "full") for mod in rejected)))


def test_a_refused_rule_is_tried_again_when_rules_were_deleted_there() -> None:
    sync = synced(SwitchSync(), leaf=RuleSet.of([flow(1)]))
    both = {LEAF: RuleSet.of([flow(1), flow(1, in_port=2)])}
    stage = sent(sync, both)
    sync.stage_done(refuse(stage, *stage.stage.mods[LEAF]), 0)
    assert sync.next_stage(both) is None
    other = {LEAF: RuleSet.of([flow(1, in_port=2)])}
    sync.stage_done(done(sync.next_stage(other)), 1)
    again = sent(sync, other)
    assert again.stage.mods == stage.stage.mods
    sync.stage_done(done(again), 1)
    assert sync.next_stage(other) is None
    assert not sync.refused


def test_refused_rules_are_tried_less_and_less_often() -> None:
    sync = synced(SwitchSync(), leaf=RuleSet())
    wanted = {LEAF: RuleSet.of([flow(1)])}
    tries = []
    for now in range(300):
        for read in sync.tick(now):
            read_back(sync, read.dpid, RuleSet(), now)
        if stage := sync.next_stage(wanted):
            tries.append(now)
            sync.stage_done(refuse(stage, *stage.stage.mods[LEAF]), now)
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert pauses[0] == RETRY_AFTER_S
    assert pauses == sorted(pauses)
    assert pauses[-1] == MAX_PAUSE_S


def test_a_group_whose_narrowing_and_deletion_are_refused_is_tried_again_after_pauses() -> None:
    fallback = Bucket(ToGroup(7), watch_group=7)
    planned = Bucket(Output(PortNo(3)), watch_port=PortNo(3))
    path_group = GroupRule(8, "fast_failover", (planned, fallback))
    wanted = {LEAF: RuleSet.of([to_group()], [group(1, 2)])}
    sync = synced(SwitchSync(), leaf=wanted[LEAF])
    sync.stage_done(done(sync.next_stage({LEAF: RuleSet.of([to_group()], [group(1, 2), path_group])})), 0)

    def tries(now: float) -> list[RuleMod]:
        """Let the switch refuse every change now, and return the changes."""
        found: list[RuleMod] = []
        while len(found) < 10 and (stage := sync.next_stage(wanted)):
            found += stage.stage.mods[LEAF]
            sync.stage_done(refuse(stage, *stage.stage.mods[LEAF]), now)
        return found

    first = tries(0)
    assert first == [RuleMod("modify", structs.replace(path_group, buckets=(fallback,))), RuleMod("delete", path_group)]
    assert len(sync.refused) == 1, "one rule is refused, by two changes"
    sync.tick(RETRY_AFTER_S)
    assert tries(RETRY_AFTER_S) == first
    sync.tick(2 * RETRY_AFTER_S)
    assert not tries(2 * RETRY_AFTER_S), "the second pause is longer"
    sync.tick(3 * RETRY_AFTER_S)
    for mod in first[0], structs.replace(first[1], rule=first[0].rule):
        stage = sent(sync, wanted)
        assert stage.stage.mods[LEAF] == (mod,)
        sync.stage_done(done(stage), 3 * RETRY_AFTER_S)
    assert sync.next_stage(wanted) is None
    assert not sync.refused
    assert not sync.retrying


@pytest.mark.parametrize(("refused", "held"), [("delete", [flow(2)]), ("add", []), ("both", [flow(1)])])
def test_each_of_two_changes_of_one_rule_is_refused_by_itself(refused: str, held: list[FlowRule]) -> None:
    def replaced(wanted: Mapping[Dpid, RuleSet], held: Mapping[Dpid, RuleSet]) -> list[Stage]:
        return [Stage("circuits", {dpid: changes(rules, held[dpid]) for dpid, rules in wanted.items()})]

    wanted = {LEAF: RuleSet.of([flow(2)])}
    sync = synced(SwitchSync(stages=replaced), leaf=RuleSet.of([flow(1)]))
    stage = sent(sync, wanted)
    assert stage.stage.mods[LEAF] == (RuleMod("delete", flow(1)), RuleMod("add", flow(2)))
    sync.stage_done(refuse(stage, *(mod for mod in stage.stage.mods[LEAF] if refused in (mod.op, "both"))), 0)
    assert sync.installed[LEAF] == RuleSet.of(held)
    assert sync.next_stage(wanted) is None


def test_rules_that_several_switches_refused_are_all_tried_again_when_their_pauses_end_together() -> None:
    sync = synced(SwitchSync(), leaf=RuleSet(), spine=RuleSet())
    wanted = {LEAF: RuleSet.of([flow(1)]), SPINE: RuleSet.of([flow(2)])}
    stage = sent(sync, wanted)
    rejected = {dpid: SwitchResult(rejected=((mods[0], "table full"),)) for dpid, mods in stage.stage.mods.items()}
    sync.stage_done(StageDone(stage.change_id, rejected), 0)
    assert sync.next_stage(wanted) is None
    assert not sync.retrying
    sync.tick(RETRY_AFTER_S)
    assert sync.retrying
    again = sent(sync, wanted)
    assert set(again.stage.mods) == {LEAF, SPINE}


def test_a_repair_that_was_refused_overtakes_a_slow_stage_again() -> None:
    sync = synced(SwitchSync(), leaf=RuleSet.of(groups=[group(1, 2)]))
    sent(sync, {LEAF: RuleSet.of([flow(1)], [group(1, 2)])})
    narrow = {LEAF: RuleSet.of([flow(1)], [group(1)])}
    repair = sent(sync, narrow)
    sync.stage_done(refuse(repair, *repair.stage.mods[LEAF]), 0)
    assert sync.next_stage(narrow) is None
    sync.tick(RETRY_AFTER_S)
    assert sent(sync, narrow).stage == repair.stage


def test_pauses_begin_anew_after_a_rule_that_was_refused_is_accepted() -> None:
    sync, now = synced(SwitchSync(), leaf=RuleSet()), 0.0

    def pause(wanted: dict[Dpid, RuleSet], refusals: int) -> float:
        """Return the seconds of the last pause before the switch accepts the rules."""
        nonlocal now
        tries = []
        while True:
            for read in sync.tick(now):
                read_back(sync, read.dpid, sync.installed[LEAF], now)
            if stage := sync.next_stage(wanted):
                tries.append(now)
                refused = stage.stage.mods[LEAF] if len(tries) <= refusals else ()
                sync.stage_done(refuse(stage, *refused), now)
                if not refused:
                    assert sync.next_stage(wanted) is None
                    return tries[-1] - tries[-2]
            now += 1

    assert pause({LEAF: RuleSet.of([flow(1)])}, refusals=4) > 2 * RETRY_AFTER_S
    assert pause({LEAF: RuleSet.of([flow(2)])}, refusals=1) == RETRY_AFTER_S


def test_a_group_is_not_deleted_while_a_rule_that_could_not_be_changed_sends_to_it() -> None:
    """The switch would delete the rule with the group."""
    sync = synced(SwitchSync(), leaf=RuleSet.of([to_group()], [group(1)]))
    wanted = {LEAF: RuleSet.of([structs.replace(to_group(), actions=(Output(PortNo(1)),))])}
    change = sent(sync, wanted)
    sync.stage_done(refuse(change, *change.stage.mods[LEAF]), 0)
    assert sync.next_stage(wanted) is None
    sync.tick(RETRY_AFTER_S)
    sync.stage_done(done(sync.next_stage(wanted)), RETRY_AFTER_S)
    deletion = sent(sync, wanted)
    assert [(mod.op, mod.rule) for mod in deletion.stage.mods[LEAF]] == [("delete", group(1))]
    behind = Bucket(ToGroup(7), watch_group=7)
    before, after = (GroupRule(8, "fast_failover", buckets) for buckets in ((behind,), group(2).buckets))
    sync = synced(
        SwitchSync(), leaf=RuleSet.of([structs.replace(to_group(), actions=(ToGroup(8),))], [group(1), before])
    )
    wanted = {LEAF: RuleSet.of(sync.installed[LEAF].flows.values(), [after])}
    change = sent(sync, wanted)
    sync.stage_done(refuse(change, *change.stage.mods[LEAF]), 0)
    assert sync.next_stage(wanted) is None, "a group sends to it"


def test_a_pin_whose_group_is_refused_stays_on_ecmp_until_there_is_room_for_the_group() -> None:
    pin = FlowRule(FlowKey(Table.PINNED, 100, Match(in_port=PortNo(1))), cookie(Table.PINNED), (ToGroup(7),))
    counting = FlowRule(pin.key, pin.cookie, goto=Table.DEFAULT)
    wanted = {LEAF: RuleSet.of([pin], [group(1)])}
    sync = synced(SwitchSync(), leaf=RuleSet.of([counting]))
    stage = sent(sync, wanted)
    add_group, add_pin = stage.stage.mods[LEAF]
    sync.stage_done(refuse(stage, add_group), 0)  # this switch accepts a pin to a missing group
    back = sent(sync, wanted)
    assert [mod.rule for mod in back.stage.mods[LEAF]] == [counting]
    sync.stage_done(done(back), 0)
    assert sync.next_stage(wanted) is None
    sync.tick(RETRY_AFTER_S)
    again = sent(sync, wanted)
    assert again.stage.mods[LEAF] == (add_group,), "the pin comes when its group is there"
    sync.stage_done(done(again), 6)
    last = sent(sync, wanted)
    assert last.stage.mods[LEAF] == (add_pin,)


# ---- foreign rules


def test_an_entry_of_somebody_else_is_not_overwritten() -> None:
    sync = SwitchSync(audit_interval_s=60)
    sync.switch_connected(LEAF)
    wanted = {LEAF: RuleSet.of([flow(1), flow(1, in_port=2)])}
    theirs = SwitchRules(LEAF, RuleSet(), 1, frozenset([flow(1).key]))
    sync.rules_read(theirs, NO_FABRIC, 0)
    stage = sent(sync, wanted)
    assert [mod.rule for mod in stage.stage.mods[LEAF]] == [flow(1, in_port=2)]
    sync.stage_done(done(stage), 0)
    assert sync.next_stage(wanted) is None
    assert [why.reason for why in sync.refused.values()] == [HELD]
    held = RuleSet.of([flow(1, in_port=2)])
    audited(sync, 0)
    assert audited(sync, 60) == [LEAF]
    assert sync.rules_read(replace(theirs, rules=held), NO_FABRIC, 60) == "same"
    assert sync.next_stage(wanted) is None
    assert audited(sync, 120) == [LEAF]
    assert read_back(sync, LEAF, held, 120) == "changed"
    assert sync.next_stage(wanted)


def test_groups_and_meters_that_nobody_of_ours_uses_are_left_alone() -> None:
    theirs = structs.replace(group(1), group_id=99)
    meter = MeterRule(44, 5, 5)
    sync = SwitchSync()
    sync.switch_connected(LEAF)
    read = RuleSet.of([to_group()], [group(1), theirs], [meter])
    read_back(sync, LEAF, read)
    wanted = {LEAF: RuleSet.of([to_group()], [group(1)])}
    assert sync.next_stage(wanted) is None
    assert sync.foreign == {LEAF: 2}
    more = {LEAF: RuleSet.of([to_group()], [group(1), structs.replace(group(1, 2), group_id=99)])}
    stage = sent(sync, more)
    assert [mod.op for mod in stage.stage.mods[LEAF]] == ["modify"], "an id that we need is ours"


def test_of_many_groups_and_meters_of_others_most_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wanted group that was not kept is found when the switch refuses to add it, and is then modified."""
    monkeypatch.setattr(switch_sync, "MOST_OTHERS", 10)
    theirs = [structs.replace(group(1), group_id=number) for number in range(1000)]
    sync = SwitchSync()
    sync.switch_connected(LEAF)
    read_back(sync, LEAF, RuleSet.of((), theirs, [MeterRule(number, 5, 5) for number in range(500)]))
    assert sync.foreign == {LEAF: 1500}
    assert sum(map(len, sync.held(LEAF))) == 20
    ours = structs.replace(group(2), group_id=999), MeterRule(499, 1, 1)
    wanted = {LEAF: RuleSet.of((), ours[:1], ours[1:])}
    stage = sent(sync, wanted)
    assert {mod.op for mod in stage.stage.mods[LEAF]} == {"add"}
    reasons = {GroupRule: "OFPGMFC_GROUP_EXISTS(0)", MeterRule: "OFPMMFC_METER_EXISTS(1)"}
    rejected = tuple((mod, reasons[type(mod.rule)]) for mod in stage.stage.mods[LEAF])
    sync.stage_done(StageDone(stage.change_id, {LEAF: SwitchResult(rejected)}), 0)
    assert not sync.refused
    ops = []
    while more := sync.next_stage(wanted):
        ops += [mod.op for mod in more.stage.mods[LEAF]]
        sync.stage_done(done(more), 0)
    assert ops == ["modify", "modify"]
    assert sync.settled == {LEAF}


def test_groups_that_a_partial_read_lacks_are_as_they_were() -> None:
    sync = SwitchSync(audit_interval_s=60)
    sync.switch_connected(LEAF)
    rules = RuleSet.of([to_group()], [group(1)])
    read_back(sync, LEAF, rules)
    audited(sync, 0)
    assert audited(sync, 60) == [LEAF]
    partial = SwitchRules(LEAF, RuleSet.of([to_group()]), 0, is_partial=True)
    assert sync.partly_read == set()
    assert sync.rules_read(partial, NO_FABRIC, 60) == "same"
    assert sync.partly_read == {LEAF}
    assert sync.next_stage({LEAF: rules}) is None
    assert audited(sync, 120) == [LEAF]
    assert sync.rules_read(replace(partial, is_partial=False), NO_FABRIC, 120) == "changed"
    assert sync.partly_read == set()


def test_a_group_that_only_we_can_have_made_is_ours_without_a_flow() -> None:
    """A controller was killed after it had deleted the pin and before it deleted the path group."""
    switch = Switch(LEAF, "leaf1", {PortNo(3): Port(PortNo(3), "eth3", "02:00:00:00:00:03", True, 1e9)})
    fabric = Fabric(switches={LEAF: switch, SPINE: Switch(SPINE, "leaf2", {})})
    orphan = structs.replace(group(3), group_id=path_group_id(SPINE, PortNo(3)))
    sync = SwitchSync()
    sync.switch_connected(LEAF)
    sync.rules_read(SwitchRules(LEAF, RuleSet.of(groups=[orphan]), 0), fabric, 0)
    stage = sent(sync, {LEAF: RuleSet()})
    assert [(mod.op, mod.rule) for mod in stage.stage.mods[LEAF]] == [("delete", orphan)]
