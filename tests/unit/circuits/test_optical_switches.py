"""Optical switches that other programs change, that refuse, disconnect and return, and controllers that are killed."""

from __future__ import annotations

from contextlib import suppress

import pytest
from msgspec.structs import replace

from controller.alarms import text
from controller.circuits.fibres import cabling_of
from controller.circuits.optical_switches import PRIORITY, OpticalSwitches, cross_connects
from controller.fabric.messages import GenerationRaised, LinkLost, LinkSeen, MastershipLost
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.jobs.messages import DeregisterJob
from controller.tables.messages import ReadRules, SwitchRules
from controller.tables.rules import FlowKey, FlowRule, Match, RuleSet, Table
from signalbox.jobs.spec import JobId
from signalbox.words import AlarmKind
from tests.support.optical_fabric import FIRST_OPTICAL, OpticalFabric, reach, ref, started, wired, with_job


def test_what_others_take_away_and_what_an_optical_switch_has_lost_is_made_again() -> None:
    fabric = with_job(4, 2)
    before = fabric.circuits
    (src, dst), *_ = sorted(before.items())
    fibre = fabric.switches[Dpid(src[0])].peers[PortNo(src[1])]
    assert fibre
    mirrors = fabric.switches[fibre.dpid]
    mirrors.flows = {key: rule for key, rule in mirrors.flows.items() if key.match.in_port != fibre.port}
    assert fabric.circuits != before
    fabric.send(LinkLost(ref(*src), ref(*dst)))
    fabric.run(2)
    assert fabric.circuits == before
    assert fabric.job().state == "pinned"
    fabric.lose(Dpid(0x101))
    assert fabric.circuits == before
    fabric.switches[Dpid(0x101)].forget_rules()
    fabric.reconnect(0x101)
    fabric.run(2)
    assert fabric.circuits == before
    assert fabric.job().state == "pinned"
    assert len(fabric.asked) == 1


def test_probes_that_came_before_an_optical_switch_was_read_count() -> None:
    fabric = with_job(4, 2)
    fabric.send(DeregisterJob(JobId("one")))
    fabric.run(1)
    mirrors = [Dpid(0x101), Dpid(0x102)]
    fabric.start(late=mirrors)
    for switch in fabric.switches.values():
        for at in (PortRef(switch.dpid, port) for port in switch.peers if switch.dpid not in mirrors):
            if dst := fabric.arrives(at):
                fabric.send(LinkSeen(at, dst))
    fabric.run(1)
    assert not fabric.status.fabric.links
    for dpid in mirrors:
        fabric.reconnect(dpid)
    fabric.run(1)
    assert len(fabric.status.fabric.links) == 8


def test_an_optical_switch_that_refuses_is_told_again_after_a_while() -> None:
    fabric = started(4, 2)
    mirrors = fabric.switches[Dpid(0x102)]
    refused = FlowKey(Table.CONTROL, PRIORITY, Match(in_port=PortNo(2)))
    mirrors.refuses.add(refused)
    fabric.register("one", [1, 2, 3, 4])
    assert len(fabric.circuits) == 7
    assert reach(fabric, [1, 2, 3, 4])
    assert sum(mod.rule.key == refused for mod in mirrors.mods if isinstance(mod.rule, FlowRule)) <= 3
    mirrors.refuses.clear()
    fabric.run(4)
    assert len(fabric.circuits) == 8
    assert fabric.job().state == "pinned"


def test_a_circuit_that_is_refused_for_long_is_lost() -> None:
    fabric = started(4, 2)
    mirrors = fabric.switches[Dpid(0x102)]
    mirrors.refuses.add(FlowKey(Table.CONTROL, PRIORITY, Match(in_port=PortNo(2))))
    fabric.register("one", [1, 2, 3, 4], lease_s=600, run_s=10)
    job = fabric.job()
    assert ref(2, 3) not in {src for src, _ in wired(job).circuits}
    assert wired(job).planned_s == 2.4, "not 1.2 s on eight circuits"
    fabric.run(60)
    assert len(fabric.asked) == 2
    assert len(mirrors.mods) < 20


def test_a_circuit_whose_deletion_and_addition_are_refused_is_tried_again_after_pauses() -> None:
    fabric = with_job(4, 1)
    fabric.send(DeregisterJob(JobId("one")))
    fabric.run(1)
    before, mirrors = fabric.circuits, fabric.switches[Dpid(0x101)]
    refused = FlowKey(Table.CONTROL, PRIORITY, Match(in_port=PortNo(1)))
    mirrors.refuses.add(refused)
    mirrors.mods.clear()
    fabric.register("two", [1, 3], run_s=3)

    def tries() -> list[str]:
        return [mod.op for mod in mirrors.mods if isinstance(mod.rule, FlowRule) and mod.rule.key == refused]

    assert tries() == ["delete", "add"], "one try before the first pause ends"
    assert fabric.circuits[1, 2] == before[1, 2]
    fabric.run(5)
    assert tries() == ["delete", "add"] * 2, "one more try after the pause"
    mirrors.refuses.clear()
    fabric.run(15)
    assert tries() == ["delete", "add"] * 3
    assert fabric.circuits[1, 2] == (3, 2)
    assert fabric.job("two").state == "pinned"


def test_of_two_circuits_that_others_have_made_to_one_port_one_stays() -> None:
    fabric = started(4, 1)
    mirrors = fabric.switches[Dpid(0x101)]
    for rule in cross_connects({PortNo(1): PortNo(3), PortNo(2): PortNo(3)}).flows.values():
        mirrors.flows[rule.key] = rule
    fabric.reconnect(0x101)
    fabric.run(2)
    assert len(fabric.circuits) == 1


def test_where_probes_arrived_before_a_circuit_was_changed_says_nothing_after_it() -> None:
    fabric = with_job(4, 1)
    fabric.send(DeregisterJob(JobId("one")))
    fabric.run(1)
    before = fabric.circuits

    def probe() -> None:
        change = fabric.extension.optical.change
        if change and change.number is not None:
            for src, dst in before.items():
                fabric.loop.handle([LinkSeen(ref(*src), ref(*dst))], fabric.now)

    fabric.after_each_mod = probe
    fabric.register("two", [1, 3])
    fabric.after_each_mod = lambda: None
    fabric.run(2)
    assert fabric.circuits != before
    assert not fabric.status.alarms


def test_a_circuit_that_another_program_has_changed_is_a_link_also_when_probes_came_before_the_read() -> None:
    fabric = with_job(4, 1)
    fabric.send(DeregisterJob(JobId("one")))
    fabric.run(1)
    before, mirrors = fabric.circuits, fabric.switches[Dpid(0x101)]
    opposite = (1, 2), before[before[1, 2]]  # two of four interfaces in a ring
    one, two = (FlowKey(Table.CONTROL, PRIORITY, Match(in_port=PortNo(server))) for server, _ in opposite)
    actions = {one: mirrors.flows[two].actions, two: mirrors.flows[one].actions}
    mirrors.flows |= {key: replace(mirrors.flows[key], actions=of) for key, of in actions.items()}
    for src in opposite:
        fabric.send(LinkLost(ref(*src), ref(*before[src])))
        fabric.send(LinkSeen(ref(*src), ref(*fabric.circuits[src])))
    fabric.run(4)
    links = fabric.status.fabric.links.values()
    assert {(link.src, link.dst) for link in links} == {(ref(*src), ref(*dst)) for src, dst in fabric.circuits.items()}
    assert fabric.circuits != before
    assert not fabric.status.alarms


INSTANTS = [*range(0, 20, 5), *(pytest.param(n, marks=pytest.mark.long) for n in range(20) if n % 5)]


@pytest.mark.parametrize("instant", INSTANTS)
def test_a_controller_that_is_killed_in_a_change_is_followed_by_one_that_completes_it(instant: int) -> None:
    fabric = started(6, 3)
    fabric.register("one", [1, 2, 3])
    fabric.after_each_mod = Killed(instant)
    with suppress(InterruptedError):
        fabric.register("two", [4, 5, 6], all_to_all=100_000)
    fabric.after_each_mod = lambda: None
    assert reach(fabric, [1, 2, 3])
    fabric.start()
    fabric.run(20)
    assert reach(fabric, [1, 2, 3])
    assert reach(fabric, [4, 5, 6])
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
    owned = [circuit for job in fabric.status.jobs.values() for circuit in wired(job).circuits]
    assert {(ref(*src), ref(*dst)) for src, dst in fabric.circuits.items()} == {*owned}
    fabric.count_rules({}, {}, of=[Dpid(n) for n in range(1, 7)])
    assert not fabric.status.alarms


class Killed:
    """Hook that lets ``after`` rule changes pass, and ends the controller at the next one."""

    def __init__(self, after: int) -> None:
        self._left = after

    def __call__(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise InterruptedError


def test_an_optical_switch_that_is_away_for_a_while_raises_an_alarm_and_nothing_new_is_made_there() -> None:
    fabric = started(6, 3)
    fabric.lose(Dpid(0x102))
    fabric.run(5)
    assert not fabric.status.alarms
    fabric.run(12)
    assert text(fabric.status.alarms[AlarmKind.SWITCH_DOWN, "optical2"]) == "switch optical2 (0x102) is down"
    fabric.register("one", [1, 2, 3, 4], all_to_all=10_000, lease_s=600, run_s=3)
    assert fabric.job().state == "pinned"
    assert {port for _, port in fabric.circuits} == {2, 4}
    fabric.reconnect(0x102)
    fabric.register("two", [5, 6], lease_s=600, run_s=3)
    assert (AlarmKind.SWITCH_DOWN, "optical2") not in fabric.status.alarms
    assert {port for server, port in fabric.circuits if server > 4} == {2, 3, 4}


def test_an_optical_switch_that_another_controller_took_is_one_alarm_until_it_is_claimed_again() -> None:
    fabric = started(6, 3)
    for message, kind in (
        (GenerationRaised(Dpid(0x102), "optical2", 1 << 61, is_ahead=True), AlarmKind.GENERATION_AHEAD),
        (MastershipLost(Dpid(0x102), "optical2"), AlarmKind.MASTERSHIP_LOST),
    ):
        fabric.send(message)
        fabric.run(17)
        assert {found for found in fabric.status.alarms if found[1] == "optical2"} == {(kind, "optical2")}
        fabric.reconnect(0x102)
        fabric.run(1)
        assert (kind, "optical2") not in fabric.status.alarms


def test_what_optical_switches_connect_is_told_also_while_they_are_away() -> None:
    fabric = OpticalFabric(4, 2)
    fabric.start(late=[Dpid(0x102)])
    fabric.run(3)
    first, second = fabric.published_optical[Dpid(0x101)], fabric.published_optical[Dpid(0x102)]
    assert (first.name, first.connected, [fibre.up for fibre in first.fibres]) == ("optical1", True, [True] * 4)
    assert (second.name, second.connected, [fibre.up for fibre in second.fibres]) == ("0x102", False, [False] * 4)
    assert [fibre.interface for fibre in first.fibres] == [ref(n, 2) for n in range(1, 5)]
    assert {fibre.out_port for each in (first, second) for fibre in each.fibres} == {None}

    fabric.reconnect(0x102)
    fabric.register("one", [1, 2, 3, 4])
    assert told(fabric) == fabric.circuits
    optical = fabric.status.extension.switches
    fabric.run(2)
    assert fabric.status.extension.switches is optical, "nothing has changed"
    fabric.lose(Dpid(0x101))
    fabric.run(1)
    assert told(fabric) == fabric.circuits, "also while a switch is away"
    assert not any(fibre.up for fibre in fabric.published_optical[Dpid(0x101)].fibres)
    assert fabric.published_optical[Dpid(0x102)] is optical[Dpid(0x102)]
    fabric.set_carrier(2, 3, up=False)
    fabric.run(1)
    assert [fibre.port for fibre in fabric.published_optical[Dpid(0x102)].fibres if not fibre.up] == [2]


def told(fabric: OpticalFabric) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the circuits that the optical switches publish: receiving interface by sending interface."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for optical in fabric.published_optical.values():
        at = {fibre.port: (int(fibre.interface.dpid), int(fibre.interface.port)) for fibre in optical.fibres}
        found |= {at[fibre.port]: at[fibre.out_port] for fibre in optical.fibres if fibre.out_port}
    return found


# ---- the state without a fabric

MIRROR = Dpid(FIRST_OPTICAL)
AUDIT_S = 10.0


def made() -> OpticalSwitches:
    """Return the state of one optical switch with two fibres that has not connected yet."""
    cabling = cabling_of({(FIRST_OPTICAL, n): (n, 2) for n in (1, 2)})
    return OpticalSwitches(cabling, 0.1, 0.1, AUDIT_S, {MIRROR: 0.0})


def test_an_optical_switch_is_unable_and_without_a_name_until_it_has_connected() -> None:
    state = made()
    assert (state.unable, state.name(MIRROR)) == (frozenset({MIRROR}), "0x101")
    assert state.switch_connected(MIRROR, "mirror1", ()) == ReadRules(MIRROR)
    assert (state.unable, state.name(MIRROR)) == (frozenset(), "mirror1")


def test_an_optical_switch_is_read_once_an_interval_and_once_until_it_answers() -> None:
    state = made()
    state.switch_connected(MIRROR, "mirror1", ())
    assert state.tick(0.0) == [], "it was asked when it connected"
    for begun_at in (0.0, AUDIT_S):
        state.rules_read(SwitchRules(MIRROR, RuleSet(), 0), begun_at)
        assert state.tick(begun_at + AUDIT_S - 0.1) == []
        assert state.tick(begun_at + AUDIT_S) == [ReadRules(MIRROR)]
        assert state.tick(begun_at + AUDIT_S + 0.1) == []
