"""Limits on connections, ports and port changes of one switch or one address."""

from __future__ import annotations

import pytest

from controller.config import OpenFlowConfig
from controller.fabric.topology import Dpid, Port, PortNo
from controller.southbound.limits import (
    AT_ONCE,
    MAX_SWITCH_PORTS,
    MOST_IN_ALL,
    MOST_WAITING,
    PERIOD_S,
    Backlog,
    Limits,
    PortChanges,
)

ONE, OTHER = "192.0.2.1", "192.0.2.2"
SWITCHES = [Dpid(number) for number in range(1, 5)]


def limits(*known: Dpid, most: int = 8, of_address: int = 8, ports: int = 10_000) -> Limits:
    settings = OpenFlowConfig(max_connections=most, max_address_connections=of_address, max_ports=ports)
    return Limits(settings, known)


def enter(taken: Limits, address: str, *switches: Dpid) -> None:
    for switch in switches:
        assert taken.connect(address) is None
        assert taken.identify(switch) == ""


def test_an_address_and_all_together_take_no_more_connections_than_their_limits() -> None:
    taken = limits(of_address=2)
    assert [taken.connect(ONE), taken.connect(ONE)] == [None, None]
    refused = taken.connect(ONE)
    assert refused is not None
    assert refused[0] == "too_many_of_address"
    assert "max_address_connections = 2" in refused[1]
    assert taken.connect(OTHER) is None
    taken.leave(ONE, None, 0)
    assert taken.connect(ONE) is None
    taken = limits(most=3)
    assert [taken.connect(address) for address in (ONE, ONE, OTHER)] == [None] * 3
    refused = taken.connect("192.0.2.3")
    assert refused is not None
    assert refused[0] == "too_many"


def test_the_last_connections_are_kept_for_switches_that_were_there_before() -> None:
    taken = limits(*SWITCHES[:2], most=4)
    enter(taken, ONE, Dpid(101), Dpid(102))
    assert taken.connect(ONE) is None
    assert "reserved for known switches" in taken.identify(Dpid(103))
    taken.leave(ONE, None, 0)
    enter(taken, OTHER, *SWITCHES[:2])


def test_a_switch_that_was_admitted_finds_its_place_again() -> None:
    taken = limits(most=4)
    enter(taken, ONE, SWITCHES[0])
    taken.leave(ONE, SWITCHES[0], 0)
    enter(taken, OTHER, Dpid(101), Dpid(102), Dpid(103))
    taken.connect(OTHER)
    assert "reserved for known switches" in taken.identify(Dpid(104))
    taken.leave(OTHER, None, 0)
    enter(taken, ONE, SWITCHES[0])


def test_whoever_makes_up_dpids_leaves_half_of_the_connections_to_new_switches() -> None:
    taken = limits(most=8)
    for number in range(100):
        enter(taken, ONE, Dpid(1000 + number))
        taken.leave(ONE, Dpid(1000 + number), 0)
    enter(taken, OTHER, *SWITCHES)


def test_a_second_connection_of_a_known_switch_keeps_its_place_until_both_have_ended() -> None:
    taken = limits(SWITCHES[0], most=4)
    enter(taken, ONE, SWITCHES[0], SWITCHES[0])
    taken.leave(ONE, SWITCHES[0], 0)
    enter(taken, OTHER, Dpid(101), Dpid(102), Dpid(103))  # the known switch is connected: nothing is kept for it


def test_a_switch_and_all_together_have_only_so_many_ports_and_give_them_back() -> None:
    assert not limits().take_ports(0, MAX_SWITCH_PORTS)
    assert limits().take_ports(MAX_SWITCH_PORTS, 1)
    taken = limits(ports=100)
    taken.connect(ONE)
    assert taken.take_ports(0, 99) == ""
    assert taken.take_ports(0, 1) == ""
    assert "openflow.max_ports" in taken.take_ports(0, 1)
    taken.port_removed()
    assert taken.take_ports(0, 1) == ""
    taken.leave(ONE, None, 99)
    assert taken.take_ports(0, 99) == ""


A, B = Dpid(1), Dpid(2)


@pytest.fixture
def changes() -> PortChanges:
    return PortChanges()


def port(number: int, up: bool = True) -> Port:
    return Port(PortNo(number), f"eth{number}", "02:00:00:00:00:01", up, 1e9)


def flap(changes: PortChanges, count: int, now: float, dpid: Dpid = A) -> int:
    return sum(len(changes.changed(dpid, port(n % 10, up=n // 10 % 2 == 1), False, now)) for n in range(count))


def test_changes_are_handed_on_at_once_and_states_that_wait_in_turn() -> None:
    (change,) = PortChanges().changed(A, port(1, up=False), False, 10.0)
    assert (change.dpid, change.port.up, change.removed) == (A, False, False)
    changes = PortChanges()
    handed_on = [c for n in range(1, 1001) for c in changes.changed(A, port(n), False, 10.0)]
    turns = [[change.port.number for change in changes.tick(10.0 + turn * PERIOD_S)] for turn in range(5)]
    assert [change.port.number for change in handed_on] == list(range(1, AT_ONCE + 1))
    assert [len(turn) for turn in turns] == [0, AT_ONCE, AT_ONCE, 1000 - 3 * AT_ONCE, 0]
    assert [number for turn in turns for number in turn] == list(range(AT_ONCE + 1, 1001))


def test_of_a_flood_the_latest_state_of_each_port_is_handed_on_once_in_a_period(changes: PortChanges) -> None:
    assert flap(changes, 20_000, 10.0) == AT_ONCE
    assert list(changes.tick(10.0 + PERIOD_S / 2)) == []
    changes.changed(A, port(3), True, 10.0 + PERIOD_S / 2)
    latest = list(changes.tick(10.0 + PERIOD_S))
    assert sorted(change.port.number for change in latest) == list(range(10))
    assert {change.port.number for change in latest if change.removed} == {3}
    assert all(change.port.up for change in latest)  # the last of the 20,000 changes set the ports up
    assert flap(changes, 100, 10.0 + 1.5 * PERIOD_S) == 0
    assert len(list(changes.tick(10.0 + 2 * PERIOD_S))) == 10
    assert list(changes.tick(30.0)) == []


def test_a_change_does_not_overtake_one_that_waits(changes: PortChanges) -> None:
    flap(changes, AT_ONCE + 1, 10.0)
    assert changes.changed(A, port(1, up=False), False, 10.0 + 2 * PERIOD_S) == []  # the changes still wait
    assert not {change.port.up for change in changes.tick(12.0) if change.port.number == 1}.pop()


def test_another_switch_is_not_delayed_and_quiet_ends_it(changes: PortChanges) -> None:
    flap(changes, 10_000, 10.0)
    assert flap(changes, 1, 10.0, B) == 1
    list(changes.tick(11.0))
    assert flap(changes, 1, 12.5) == 1


def test_a_switch_floods_when_its_changes_wait_again_and_again(changes: PortChanges) -> None:
    seen = []
    for step in range(40):
        flap(changes, 1000, 10.0 + step / 10)
        list(changes.tick(10.0 + step / 10))
        seen.append(changes.floods(A))
    assert not any(seen[:11])
    assert any(seen[20:])
    assert not changes.floods(B)
    changes.switch_left(A)
    assert not changes.floods(A)
    assert list(changes.tick(100.0)) == []


def test_fewer_messages_of_each_connection_wait_while_many_of_all_do() -> None:
    of_all = Backlog()
    one, other = Backlog(of_all), Backlog(of_all)
    for _ in range(MOST_WAITING):
        one.add()
    assert not one.exceeds()
    assert one.exceeds(0.5)
    for _ in range(MOST_IN_ALL):
        other.add()
    assert one.exceeds()
    assert other.exceeds()
    for _ in range(MOST_WAITING):
        one.take()
    assert not one.exceeds(), "all messages of its peer were taken"
    one.add()
    assert not one.exceeds()
