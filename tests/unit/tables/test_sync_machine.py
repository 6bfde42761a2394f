"""Every switch ends up at its desired rules, except those that it refuses, whatever switches, networks and people do.

A hypothesis state machine drives the test. Switches answer in any order, late or never; they connect and disconnect,
have full tables, and others change them. Messages to one switch keep their order, as in TCP; other messages do not."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from controller.fabric.topology import Dpid, Fabric, PortNo
from controller.tables.flow_tables import on_ecmp
from controller.tables.messages import InstallStage, ReadRules, StageDone, SwitchResult, SwitchRules
from controller.tables.rules import (
    Action,
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
from controller.tables.switch_sync import HELD, SwitchSync

DPIDS = (Dpid(1), Dpid(2))
KEYS = tuple(FlowKey(table, 10, Match(in_port=PortNo(n))) for table in (Table.PINNED, Table.DEFAULT) for n in (1, 2))
GROUPS = (7, 8)
OTHERS = FlowKey(Table.DEFAULT, 99, Match())
AUDIT_S = 60.0


def group(group_id: int, ports: frozenset[int], distance: int) -> GroupRule:
    return GroupRule(
        group_id, "select", tuple(Bucket(Output(PortNo(p)), watch_port=PortNo(p)) for p in sorted(ports)), distance
    )


@st.composite
def rule_sets(draw: st.DrawFn) -> RuleSet:
    ports = st.frozensets(st.integers(1, 3), min_size=1)
    distances = st.integers(0, 2)
    groups = [group(g, draw(ports), draw(distances)) for g in draw(st.sets(st.sampled_from(GROUPS)))]
    actions: st.SearchStrategy[Action] = st.sampled_from(
        [Output(PortNo(1)), Output(PortNo(2)), *(ToGroup(g.group_id) for g in groups)]
    )
    flows = [
        FlowRule(key, cookie(key.table, draw(st.integers(0, 1))), (draw(actions),), distance=draw(distances))
        for key in draw(st.sets(st.sampled_from(KEYS)))
    ]
    return RuleSet.of(flows, groups)


Sent = tuple[int, RuleMod | None] | ReadRules
"""Message on the connection: a rule change, its barrier (None), or a request for all rules."""


@dataclass
class Switch:
    """Switch behind one connection, which behaves like Open vSwitch.

    It refuses a flow that names a missing group, and deletes a group's flows with the group. To modify a missing group,
    or to add an existing one, is an error. Other commands that find nothing are no errors."""

    flows: dict[FlowKey, FlowRule] = field(default_factory=dict)
    groups: dict[int, GroupRule] = field(default_factory=dict)
    foreign: set[FlowKey] = field(default_factory=set)
    wire: deque[Sent] = field(default_factory=deque)
    rejected: dict[int, list[tuple[RuleMod, str]]] = field(default_factory=dict)
    room: int = 99
    group_room: int = 99
    connected: bool = False

    def apply(self, mod: RuleMod) -> str | None:
        rule = mod.rule
        if isinstance(rule, GroupRule):
            return self._apply_group(mod.op, rule)
        assert isinstance(rule, FlowRule)
        if mod.op == "delete":
            self.flows.pop(rule.key, None)
            return None
        if any(isinstance(a, ToGroup) and a.group_id not in self.groups for a in rule.actions):
            return "no such group"
        if mod.op == "modify":
            if rule.key in self.flows:
                self.flows[rule.key] = replace(rule, cookie=self.flows[rule.key].cookie)
            return None
        if rule.key not in self.flows and len(self.flows) + len(self.foreign) >= self.room:
            return "table full"
        self.flows[rule.key] = rule
        self.foreign.discard(rule.key)
        return None

    def _apply_group(self, op: str, rule: GroupRule) -> str | None:
        there = rule.group_id in self.groups
        if op == "delete":
            self.groups.pop(rule.group_id, None)
            gone = [k for k, f in self.flows.items() if ToGroup(rule.group_id) in f.actions]
            for key in gone:
                del self.flows[key]
        elif there != (op == "modify"):
            return "group exists" if there else "unknown group"
        elif not there and len(self.groups) >= self.group_room:
            return "out of groups"
        else:
            self.groups[rule.group_id] = rule
        return None

    def rules(self) -> RuleSet:
        return RuleSet(dict(self.flows), dict(self.groups))


class Syncing(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.sync = SwitchSync(AUDIT_S)
        self.switches = {dpid: Switch() for dpid in DPIDS}
        self.desired = {dpid: RuleSet() for dpid in DPIDS}
        self.open: dict[int, tuple[set[Dpid], dict[Dpid, SwitchResult]]] = {}
        self.inbox: deque[StageDone | SwitchRules] = deque()
        self.others: dict[Dpid, frozenset[FlowKey]] = {}
        self.meddled: set[Dpid] = set()

    # ---- the controller, as the control loop and the installer work

    def _send(self, stage: InstallStage | None) -> None:
        if stage is None:
            return
        assert all(stage.stage.mods.values())
        self.open[stage.change_id] = set(stage.stage.mods), {}
        for dpid, mods in stage.stage.mods.items():
            switch = self.switches[dpid]
            added = {mod.rule.key for mod in mods if isinstance(mod.rule, FlowRule) and mod.op == "add"}
            assert not added & self.others[dpid], "a foreign rule would be overwritten"
            if switch.connected:
                switch.wire.extend((stage.change_id, mod) for mod in mods)
                switch.wire.append((stage.change_id, None))
            else:
                self._result(stage.change_id, dpid, SwitchResult(timed_out=True))

    def _ask(self, read: ReadRules) -> None:
        if self.switches[read.dpid].connected:
            self.switches[read.dpid].wire.append(read)

    def _result(self, change: int, dpid: Dpid, result: SwitchResult) -> None:
        if change not in self.open:
            return
        missing, results = self.open[change]
        if dpid not in missing:
            return
        missing.discard(dpid)
        results[dpid] = result
        if not missing:
            self.inbox.append(StageDone(change, results))
            del self.open[change]

    def _next(self) -> None:
        self._send(self.sync.next_stage(self.desired))

    @initialize(first=rule_sets(), second=rule_sets())
    def begin(self, first: RuleSet, second: RuleSet) -> None:
        """Connect the switches first, so that they are connected in most of the later steps."""
        self.desired = dict(zip(DPIDS, (first, second), strict=True))
        for dpid in DPIDS:
            self._connect(dpid)
        self._answer_all()

    @rule(dpid=st.sampled_from(DPIDS), rules=rule_sets())
    def want(self, dpid: Dpid, rules: RuleSet) -> None:
        self.desired = {**self.desired, dpid: rules}
        self._next()

    @rule(dpid=st.sampled_from(DPIDS), port=st.integers(1, 3))
    def lose_next_hop(self, dpid: Dpid, port: int) -> None:
        """Remove a port from every group, as a repair does."""
        wanted = self.desired[dpid]
        fewer = {
            number: replace(g, buckets=left) if (left := tuple(b for b in g.buckets if b.watch_port != port)) else g
            for number, g in wanted.groups.items()
        }
        self.desired = {**self.desired, dpid: RuleSet(wanted.flows, fewer)}
        self._next()

    @precondition(lambda self: self.inbox)
    @rule()
    def hear(self) -> None:
        message = self.inbox.popleft()
        if isinstance(message, StageDone):
            self.sync.stage_done(message, self.now)
        elif self.sync.rules_read(message, Fabric(), self.now) != "outdated":
            assert isinstance(message.foreign_keys, frozenset)
            self.others[message.dpid] = message.foreign_keys
        self._next()

    @rule(seconds=st.sampled_from([0.1, 2.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for read in self.sync.tick(self.now):
            self._ask(read)
        self._next()

    # ---- the switches

    @rule(dpid=st.sampled_from(DPIDS), steps=st.integers(1, 4))
    def work(self, dpid: Dpid, steps: int) -> None:
        for _ in range(steps):
            self._step(dpid, self.switches[dpid])

    def _step(self, dpid: Dpid, switch: Switch) -> None:
        if not switch.wire:
            return
        sent = switch.wire.popleft()
        if isinstance(sent, ReadRules):
            self.inbox.append(SwitchRules(dpid, switch.rules(), len(switch.foreign), frozenset(switch.foreign)))
            return
        change, mod = sent
        if mod is None:
            self._result(change, dpid, SwitchResult(tuple(switch.rejected.pop(change, ()))))
        elif reason := switch.apply(mod):
            switch.rejected.setdefault(change, []).append((mod, reason))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """Let the barrier time out on every switch that has not answered; the messages may still arrive."""
        change = data.draw(st.sampled_from(sorted(self.open)))
        for dpid in list(self.open[change][0]):
            self._result(change, dpid, SwitchResult(timed_out=True))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def report_early(self, data: st.DataObject) -> None:
        """Report the switches that have answered; the others are late."""
        change = data.draw(st.sampled_from(sorted(self.open)))
        missing, results = self.open[change]
        self.open[change] = missing, {}
        self.inbox.append(StageDone(change, results))

    @rule(dpid=st.sampled_from(DPIDS), how=st.sampled_from(["again", "rebooted", "away"]))
    def come_and_go(self, dpid: Dpid, how: str) -> None:
        """Disconnect and reconnect; messages on the old connection are lost, and a rebooted switch is empty."""
        switch = self.switches[dpid]
        self._hang_up(dpid, switch)
        if how == "rebooted":
            switch.flows, switch.groups, switch.foreign = {}, {}, set()
        if how == "away":
            self._drain()
            self.sync.switch_left(dpid)
        else:
            self._connect(dpid)
        self._next()

    def _connect(self, dpid: Dpid) -> None:
        self.switches[dpid].connected = True
        self._drain()
        self._ask(self.sync.switch_connected(dpid))

    def _hang_up(self, dpid: Dpid, switch: Switch) -> None:
        switch.connected = False
        switch.wire.clear()
        switch.rejected.clear()
        for change in list(self.open):
            self._result(change, dpid, SwitchResult(timed_out=True))

    def _drain(self) -> None:
        """Deliver the messages of the old connection before the news of the next one."""
        while self.inbox:
            self.hear()

    @rule(dpid=st.sampled_from(DPIDS), room=st.sampled_from([1, 2, 99]), group_room=st.sampled_from([0, 1, 99]))
    def limit(self, dpid: Dpid, room: int, group_room: int) -> None:
        self.switches[dpid].room, self.switches[dpid].group_room = room, group_room

    # ---- other programs

    @rule(
        dpid=st.sampled_from(DPIDS),
        key=st.sampled_from([*KEYS, OTHERS]),
        what=st.sampled_from(["delete", "forge", "take"]),
    )
    def meddle_with_flow(self, dpid: Dpid, key: FlowKey, what: str) -> None:
        """Change a flow.

        ``forge``: add one with our cookie. ``take``: add one with another cookie, over ours if it exists."""
        self.meddled.add(dpid)
        switch = self.switches[dpid]
        if what == "take":
            switch.flows.pop(key, None)
            switch.foreign.add(key)
        elif what == "delete":
            switch.flows.pop(key, None)
        elif key not in switch.foreign:
            switch.flows[key] = FlowRule(key, cookie(key.table), (Output(PortNo(3)),))

    @rule(dpid=st.sampled_from(DPIDS), group_id=st.sampled_from(GROUPS), ports=st.frozensets(st.integers(1, 3)))
    def meddle_with_group(self, dpid: Dpid, group_id: int, ports: frozenset[int]) -> None:
        self.meddled.add(dpid)
        mod = RuleMod("modify" if ports else "delete", group(group_id, ports, 0))
        self.switches[dpid].apply(mod)

    # ---- invariants

    @rule()
    def come_to_a_stop(self) -> None:
        """Answer everything; the belief then equals the rules without any audit, unless other programs changed them."""
        self._answer_all()
        for dpid, believed in self.sync.installed.items():
            if dpid not in self.meddled:
                held = self.switches[dpid].rules()
                assert believed.flows == held.flows
                assert believed.groups == {g: rule for g, rule in held.groups.items() if g in believed.groups}
                assert held.groups.keys() - believed.groups.keys() <= self._left_alone(dpid)

    @invariant()
    def late_switches_hold_up_nobody(self) -> None:
        assert self.sync.settled.isdisjoint(self.sync.unsettled)
        assert self.sync.installed.keys() <= {d for d, s in self.switches.items() if s.connected}

    def _left_alone(self, dpid: Dpid) -> set[int]:
        """Return the groups that are not desired; the controller keeps those that no flow used when it read them."""
        return set(GROUPS) - self.desired[dpid].groups.keys()

    def teardown(self) -> None:
        self.come_to_a_stop()
        self._come_to_rest(2 * AUDIT_S)
        for dpid, switch in self.switches.items():
            if not switch.connected:
                continue
            held, believed = switch.rules(), self.sync.installed[dpid]
            assert believed.flows == held.flows
            assert {g: held.groups[g] for g in believed.groups} == believed.groups
            self._check_desired(dpid, held)
        for switch in self.switches.values():
            switch.room = switch.group_room = 99
            switch.foreign &= {OTHERS}
        self._come_to_rest(6 * AUDIT_S)
        assert not self.sync.refused
        for dpid, switch in self.switches.items():
            if switch.connected:
                wanted, held = self.desired[dpid], switch.rules()
                assert held.flows == wanted.flows
                assert {g: held.groups[g] for g in wanted.groups} == wanted.groups
                assert dpid in self.sync.settled
        stage = self.sync.next_stage(self.desired)
        assert stage is None

    def _check_desired(self, dpid: Dpid, held: RuleSet) -> None:
        """Assert that the switch holds exactly the desired rules, except for refused ones."""
        refused = {number for (where, number) in self.sync.refused if where == dpid}
        groupless = {g for g in GROUPS if ("group", g) in refused and g not in held.groups}
        wanted = on_ecmp(self.desired[dpid], groupless)
        for key in wanted.flows.keys() | held.flows.keys():
            assert key in refused or held.flows.get(key) == wanted.flows.get(key)
        for number in wanted.groups:
            assert ("group", number) in refused or held.groups.get(number) == wanted.groups[number]
        for (where, what), why in self.sync.refused.items():
            assert why.reason != HELD or what in self.switches[where].foreign

    def _come_to_rest(self, seconds: float) -> None:
        """Answer everything, for as long as every audit and every retry takes."""
        until = self.now + seconds
        while self.now < until or self.inbox or self.open:
            assert self.now < until + 60, "it never comes to rest"
            self._answer_all()
            self.wait(5.0)

    def _answer_all(self) -> None:
        for _ in range(1000):
            for dpid, switch in self.switches.items():
                while switch.wire:
                    self._step(dpid, switch)
            if not self.inbox:
                return
            self._drain()
        raise AssertionError("it never comes to an end")


Syncing.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=50,
    suppress_health_check=list(HealthCheck),
)
TestSyncing = Syncing.TestCase
