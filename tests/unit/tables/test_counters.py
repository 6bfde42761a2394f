"""Counters of switches become bytes of links and flows, and drops at the limits of ports become an alarm."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.demand.pair_counters import PairCounters
from controller.fabric.counter_samples import Counted
from controller.fabric.link_load import LinkLoad
from controller.fabric.topology import Dpid, Fabric, LinkId, PortNo, PortRef
from controller.planning.problem import FlowId
from controller.tables import flow_tables
from controller.tables.counters import CounterIntake
from controller.tables.flow_tables import Dropped, pin_key
from controller.tables.messages import Counters, LearningCounters, PortCount, RuleCount
from controller.tables.rules import FlowKey, Match, Table
from offline.scenarios.fabrics import leaf_spine
from tests.support.link_figures import background_of, bytes_total

FABRIC = leaf_spine(2, 2, 2, 1e9, 1e9)
LEAF, SPINE = Dpid(1), Dpid(3)
UPLINK, HOST_PORT = PortNo(1), PortNo(3)
HERE, THERE = "10.0.0.1", "10.0.1.1"
BOTH = PortCount(100, 200)


class Counts:
    """Intake of counters that arrive every two seconds."""

    def __init__(self) -> None:
        self.load = LinkLoad(6, 0.1)
        self.intake = CounterIntake(self.load, PairCounters(), 2.0)
        self.now = 0.0
        self.intake.switch_connected(LEAF, 0.0)

    def add(
        self,
        ports: dict[PortNo, PortCount] | None = None,
        flows: dict[FlowKey, int] | None = None,
        drops: dict[PortNo, int] | None = None,
        dpid: Dpid = LEAF,
        fabric: Fabric = FABRIC,
        later_s: float = 2,
    ) -> None:
        self.now += later_s
        counted = {key: RuleCount(total, 1) for key, total in (flows or {}).items()}
        self.intake.add(fabric, Counters(dpid, self.now, ports or {}, counted, drops or {}))

    def take_packets(self, packets: dict[FlowKey, int]) -> None:
        self.now += 2
        flows = {key: RuleCount(100 * count, count) for key, count in packets.items()}
        self.intake.add(FABRIC, Counters(LEAF, self.now, {}, flows))

    def dropped(self) -> dict[PortRef, tuple[int, float]]:
        return {at: (drops.packets, drops.seconds) for at, drops in self.intake.drops.items() if drops.packets}


@pytest.fixture
def counts() -> Counts:
    return Counts()


def test_a_port_counts_the_link_out_of_it_and_a_hosts_port_the_one_into_it(counts: Counts) -> None:
    counts.add({UPLINK: BOTH, HOST_PORT: BOTH})
    assert bytes_total(counts.load, LinkId(LEAF, UPLINK)) == 100
    assert bytes_total(counts.load, LinkId(LEAF, UPLINK, "in")) is None, "the switch at its other end counts that"
    assert bytes_total(counts.load, LinkId(LEAF, HOST_PORT)) == 100
    assert bytes_total(counts.load, LinkId(LEAF, HOST_PORT, "in")) == 200
    counts.add({HOST_PORT: PortCount(None, 300), UPLINK: BOTH})
    assert bytes_total(counts.load, LinkId(LEAF, HOST_PORT)) == 100, "this counter is not there"
    assert bytes_total(counts.load, LinkId(LEAF, HOST_PORT, "in")) == 300


def test_ports_and_switches_that_the_fabric_does_not_have_count_nothing(counts: Counts) -> None:
    counts.add({PortNo(99): BOTH})
    counts.add({UPLINK: BOTH}, dpid=Dpid(77))
    assert bytes_total(counts.load, LinkId(LEAF, PortNo(99))) is None
    assert bytes_total(counts.load, LinkId(Dpid(77), UPLINK)) is None
    assert list(counts.intake.read) == [LEAF]


def test_a_port_that_vanishes_and_a_host_that_moves_are_followed(counts: Counts) -> None:
    counts.add({HOST_PORT: BOTH})
    leaf = FABRIC.switches[LEAF]
    ports = {number: port for number, port in leaf.ports.items() if number != UPLINK}
    moved = replace(FABRIC.hosts[HERE], at=PortRef(LEAF, PortNo(2)))
    changed = replace(
        FABRIC,
        switches={**FABRIC.switches, LEAF: replace(leaf, ports=ports)},
        hosts={**FABRIC.hosts, HERE: moved},
    )
    counts.add({UPLINK: BOTH, PortNo(2): BOTH, HOST_PORT: PortCount(300, 400)}, fabric=changed)
    assert bytes_total(counts.load, LinkId(LEAF, UPLINK)) is None
    assert bytes_total(counts.load, LinkId(LEAF, PortNo(2), "in")) == 200
    assert bytes_total(counts.load, LinkId(LEAF, HOST_PORT)) == 300
    assert bytes_total(counts.load, LinkId(LEAF, HOST_PORT, "in")) == 200, "no host is there any more"


def test_a_host_that_is_found_later_counts_from_then_on(counts: Counts) -> None:
    """The switch and its rules stay the same."""
    flow = {pin_key(FlowId(HERE, THERE)): 100}
    before = replace(FABRIC, hosts={ip: host for ip, host in FABRIC.hosts.items() if ip != HERE})
    at = FABRIC.hosts[HERE].at.port
    counts.load.routes_changed(0.0, lambda: {"job": {Counted(HERE, THERE): (frozenset({LinkId(LEAF, UPLINK)}),)}})
    counts.add({at: BOTH}, flow, fabric=before)
    assert bytes_total(counts.load, LinkId(LEAF, at, "in")) is None
    for total in range(1, 8):
        counts.add({at: BOTH, UPLINK: PortCount(2 * total * 10**6, 0)}, dict.fromkeys(flow, total * 10**6))
    assert bytes_total(counts.load, LinkId(LEAF, at, "in")) == 200
    counts.load.update(counts.now, {LinkId(LEAF, UPLINK): 1e7})
    assert background_of(counts.load) == {LinkId(LEAF, UPLINK): pytest.approx(4e6)}, "half of it is the flow"


def test_rules_count_flows_only_at_the_switch_that_they_begin_at(counts: Counts) -> None:
    miss = FlowKey(Table.PINNED, 0, Match())
    forth, back = pin_key(FlowId(HERE, THERE)), pin_key(FlowId(THERE, HERE))
    uses = {Counted(HERE, THERE): (frozenset({LinkId(LEAF, UPLINK)}),), Counted(THERE, HERE): ()}
    counts.load.routes_changed(0.0, lambda: {"job": uses})
    for total in range(1, 8):
        flows = {miss: 10**9, forth: total * 10**6, back: total * 10**9}
        counts.add({UPLINK: PortCount(total * 10**6, 0)}, flows if total % 2 else dict(reversed(flows.items())))
    counts.load.update(counts.now, {LinkId(LEAF, UPLINK): 1e7})
    assert background_of(counts.load) == {}, "all that the link carried is the flow that begins here"


def test_a_rule_that_counts_a_flow_elsewhere_on_its_path_says_nothing_of_the_flow(counts: Counts) -> None:
    """The flow comes from the other leaf; packets on another path do not pass the rule here."""
    back, far_leaf = pin_key(FlowId(THERE, HERE)), FABRIC.hosts[THERE].at.dpid
    for dpid in (SPINE, far_leaf):
        counts.intake.switch_connected(dpid, 0.0)
    counts.load.routes_changed(0.0, lambda: {"job": {Counted(THERE, HERE): (frozenset({LinkId(SPINE, PortNo(1))}),)}})
    for total in range(1, 20):
        counts.add({}, {back: total * 10**6}, dpid=far_leaf)
        counts.add({}, {back: 0}, dpid=LEAF, later_s=0)
        counts.add({PortNo(1): PortCount(2 * total * 10**6, 0)}, dpid=SPINE, later_s=0)
    counts.load.update(counts.now, {LinkId(SPINE, PortNo(1)): 1e7})
    assert background_of(counts.load) == {LinkId(SPINE, PortNo(1)): pytest.approx(8e6 / 2)}, "half of it is the flow"


def test_drops_at_a_ports_limit_are_those_between_two_readings(counts: Counts) -> None:
    counts.add(drops={HOST_PORT: 50, UPLINK: 0})
    assert counts.dropped() == {}, "they may be from long ago"
    counts.add()
    counts.add(drops={HOST_PORT: 950, UPLINK: 0})
    assert counts.dropped() == {PortRef(LEAF, HOST_PORT): (900, 4.0)}
    counts.add({UPLINK: BOTH})
    assert counts.dropped(), "not every poll asks for them"
    counts.add(drops={HOST_PORT: 950, UPLINK: 0})
    assert counts.dropped() == {}
    assert counts.intake.drops[PortRef(LEAF, HOST_PORT)].total == 950


def test_meters_of_ports_that_the_switch_does_not_have_count_nothing(counts: Counts) -> None:
    """A hostile switch may report any number of meters, and other meters each time."""
    for turn in range(3):
        counts.add(drops={HOST_PORT: 50 * turn, **{PortNo(1000 * turn + n): 7 for n in range(500, 900)}})
    assert counts.intake.drops.keys() == {PortRef(LEAF, HOST_PORT)}


def test_drops_that_are_read_twice_at_one_moment_are_no_new_reading_and_a_new_meter_counts_from_nothing(
    counts: Counts,
) -> None:
    for total, later_s in ((50, 2), (950, 2), (950, 0)):
        counts.add(drops={HOST_PORT: total}, later_s=later_s)
    assert counts.dropped() == {PortRef(LEAF, HOST_PORT): (900, 2.0)}
    counts.add(drops={HOST_PORT: 7})
    assert counts.dropped() == {PortRef(LEAF, HOST_PORT): (7, 2.0)}


def test_counters_of_a_switch_that_left_are_forgotten_and_its_next_drops_may_be_from_long_ago(counts: Counts) -> None:
    counts.add({UPLINK: BOTH}, drops={HOST_PORT: 1})
    counts.intake.switch_left(LEAF)
    assert (counts.intake.read, counts.intake.drops) == ({}, {})
    counts.intake.switch_connected(LEAF, counts.now)
    counts.add(drops={HOST_PORT: 950})
    assert counts.dropped() == {}


def test_counters_that_come_after_their_switch_has_left_are_not_waited_for_again(counts: Counts) -> None:
    """A switch that has left stays in the fabric for a moment; its last answers arrive with the next tick."""
    intake = counts.intake
    intake.switch_connected(SPINE, 0.0)
    intake.switch_left(SPINE)
    counts.add(dpid=SPINE)
    intake.add_learning(FABRIC, LearningCounters(SPINE, counts.now, {}))
    intake.rounds.evaluated(counts.now)
    counts.add()
    assert list(intake.read) == [LEAF]
    assert intake.rounds.is_over(counts.now)


def rule_for(kind: Dropped) -> FlowKey:
    keys, one = (rule.key for rule in flow_tables.DROP_RULES), RuleCount(100, 1)
    return next(key for key in keys if flow_tables.dropped_packets({key: one}) == {kind: 1})


def test_what_a_switch_drops_is_known_from_its_first_reading_until_it_leaves(counts: Counts) -> None:
    counts.add({UPLINK: BOTH})
    assert counts.intake.dropped == {}, "unknown is not zero"
    counts.take_packets({rule.key: 0 for rule in flow_tables.DROP_RULES})
    assert counts.intake.dropped == {LEAF: dict.fromkeys(Dropped, 0)}
    counts.take_packets({rule.key: 9 for rule in flow_tables.DROP_RULES})
    assert counts.intake.dropped[LEAF][Dropped.UNKNOWN_HOST] == 18, "ARP and IP"
    counts.take_packets({rule.key: 2**63 for rule in flow_tables.DROP_RULES})
    assert counts.intake.dropped[LEAF][Dropped.UNKNOWN_HOST] == 2**64 - 1, "the API sends 64 bits"
    counts.take_packets({rule_for(Dropped.IPV6): 5, pin_key(FlowId(HERE, THERE)): 9})
    assert counts.intake.dropped == {LEAF: {Dropped.IPV6: 5}}, "it counts from 0 again"
    counts.add({UPLINK: BOTH})
    assert counts.intake.dropped == {LEAF: {Dropped.IPV6: 5}}, "this reply had no flows"
    counts.intake.switch_left(LEAF)
    assert counts.intake.dropped == {}


def test_a_switch_that_answers_late_belongs_to_the_evaluation_before(counts: Counts) -> None:
    """The late answer must not end the next poll before the other switches have answered."""
    intake = counts.intake
    for dpid in (LEAF, SPINE):
        intake.switch_connected(dpid, 0.0)
    intake.rounds.evaluated(0.0)
    intake.add(FABRIC, Counters(LEAF, 2.0, {}, {}, due=2.0))
    assert not intake.rounds.is_over(2.0)
    assert intake.rounds.is_over(2.5), "it was waited for"
    intake.rounds.evaluated(2.5)
    intake.add(FABRIC, Counters(SPINE, 3.9, {}, {}, due=2.0))
    assert not intake.rounds.is_over(3.9)
    intake.add(FABRIC, Counters(LEAF, 4.0, {}, {}, due=4.0))
    assert not intake.rounds.is_over(4.0)
    intake.add(FABRIC, Counters(SPINE, 4.1, {}, {}, due=4.0))
    assert intake.rounds.is_over(4.1)


def test_counters_are_evaluated_when_none_come(counts: Counts) -> None:
    counts.intake.switch_connected(LEAF, 0.0)
    counts.intake.rounds.evaluated(0.0)
    assert [now for now in range(10) if counts.intake.rounds.is_over(now)] == [*range(4, 10)]


def test_a_poll_halfway_is_evaluated_and_so_is_the_regular_one_after_it(counts: Counts) -> None:
    intake = counts.intake
    intake.switch_connected(LEAF, 0.0)
    for due, halfway in ((2.0, False), (3.0, True), (4.0, False), (6.0, False)):
        intake.add(FABRIC, Counters(LEAF, due + 0.1, {}, {}, due=due))
        assert intake.rounds.is_over(due + 0.1)
        assert intake.rounds.is_halfway is halfway
        intake.rounds.evaluated(due + 0.1)
        assert not intake.rounds.is_over(due + 0.9)
