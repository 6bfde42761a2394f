"""The owner of a dpid is one connection, and a switch has one master."""

from __future__ import annotations

import struct

from controller.fabric.messages import MastershipLost, SwitchConnected, SwitchLeft
from controller.fabric.topology import Dpid
from controller.tables.messages import SwitchResult
from controller.tables.rules import MeterRule, RuleMod
from tests.support.wire.bench import Bench, bench, running_bench
from tests.support.wire.fake_switch import (
    BARRIER_REPLY,
    BARRIER_REQUEST,
    ECHO_REPLY,
    ECHO_REQUEST,
    EQUAL,
    ERROR,
    METER_MOD,
    PORT_DOWN,
    PORT_STATUS,
    ROLE_REPLY,
    ROLE_REQUEST,
    FakeSwitch,
    port_desc,
)
from tests.support.wire.openflow_controller import EPOCH

__all__ = ["bench"]

BAD_REQUEST, IS_SLAVE = 1, 10
ROLE_REQUEST_FAILED, STALE = 11, 0
METER = RuleMod("add", MeterRule(1, 5, 5))


def error(switch: FakeSwitch, kind: int, code: int, xid: int) -> None:
    switch.send(ERROR, struct.pack("!HH", kind, code) + b"\0" * 8, xid)


def greet(bench: Bench, dpid: int) -> FakeSwitch:
    """Connect a switch up to its role request."""
    switch = FakeSwitch(bench.port, dpid, mute=True).connect()
    switch.mute = False
    return switch


# ---- two connections with one dpid


def test_a_second_switch_with_a_known_dpid_is_refused_while_the_first_is_alive(bench: Bench) -> None:
    with bench.switch(0x201) as old:
        since = bench.now
        newcomer = greet(bench, 0x201)
        asked = old.expect(ECHO_REQUEST)
        while not asked.body:  # regular echo requests have no body
            old.send(ECHO_REPLY, asked.body, asked.xid)
            asked = old.expect(ECHO_REQUEST)
        old.send(ECHO_REPLY, asked.body, asked.xid)
        newcomer.wait_closed()
        refused = bench.refused(since)
        assert (refused.dpid, refused.reason) == (0x201, "duplicate_dpid")
        assert refused.peer.startswith("127.0.0.1:")
        bench.install(201, [0x201], METER)
        old.send(BARRIER_REPLY, b"", old.expect(BARRIER_REQUEST).xid)
        assert bench.results(201, 0x201) == {0x201: SwitchResult()}
        assert not any(isinstance(m, SwitchLeft | SwitchConnected) for m in bench.controller.received[since:])
        newcomer.close()


def test_a_half_open_connection_is_replaced_once_it_has_missed_its_echo_requests() -> None:
    with running_bench(echo_interval_s=0.5, echo_misses=3) as bench, bench.switch(0x202) as silent:
        since = bench.now
        newcomer = greet(bench, 0x202)
        assert newcomer.accept_master() == EPOCH
        connected = bench.controller.first(SwitchConnected, since, dpid=0x202)
        before = bench.controller.received[since : bench.controller.received.index(connected, since)]
        assert SwitchLeft(Dpid(0x202)) in before
        for _ in range(3):
            silent.expect(ECHO_REQUEST)
        bench.install(202, [0x202], METER)
        newcomer.send(BARRIER_REPLY, b"", newcomer.expect(BARRIER_REQUEST).xid)
        assert bench.results(202, 0x202) == {0x202: SwitchResult()}
        newcomer.close()


# ---- one master


def test_nothing_is_written_before_the_role_is_known(bench: Bench) -> None:
    switch = greet(bench, 0x221)
    bench.install(221, [0x221], METER)
    assert bench.results(221, 0x221) == {0x221: SwitchResult(timed_out=True)}
    assert switch.hear().kind in (ECHO_REQUEST, ROLE_REQUEST)
    assert not any(isinstance(m, SwitchConnected) and m.dpid == 0x221 for m in bench.controller.received)
    switch.close()


def test_port_changes_before_the_role_is_known_are_reported_with_the_switch(bench: Bench) -> None:
    switch = greet(bench, 0x223)
    claim = switch.expect(ROLE_REQUEST)
    switch.send(PORT_STATUS, struct.pack("!B7x", 2) + port_desc(1, "eth1", PORT_DOWN))
    switch.send(PORT_STATUS, struct.pack("!B7x", 0) + port_desc(2, "eth2"))
    switch.send(ROLE_REPLY, claim.body, claim.xid)
    connected = bench.controller.first(SwitchConnected, dpid=0x223)
    assert {port.number: port.up for port in connected.ports} == {1: False, 2: True}
    switch.close()


def test_a_switch_with_a_newer_master_is_not_used_and_may_be_claimed_when_it_connects_again(bench: Bench) -> None:
    since = bench.now
    switch = greet(bench, 0x222)
    error(switch, ROLE_REQUEST_FAILED, STALE, switch.expect(ROLE_REQUEST).xid)
    switch.send(ROLE_REPLY, struct.pack("!I4xQ", EQUAL, EPOCH + 1), switch.expect(ROLE_REQUEST).xid)
    assert bench.controller.first(MastershipLost, since).dpid == 0x222
    bench.install(222, [0x222], METER)
    assert bench.results(222, 0x222) == {0x222: SwitchResult(timed_out=True)}
    assert not any(isinstance(m, SwitchConnected) for m in bench.controller.received[since:])
    switch.close()
    bench.controller.first(SwitchLeft, since, dpid=0x222)
    with bench.switch(0x222):
        pass


def test_a_switch_with_another_master_gets_no_more_messages(bench: Bench) -> None:
    with bench.switch(0x224) as switch:
        since = bench.now
        bench.install(224, [0x224], METER)
        error(switch, BAD_REQUEST, IS_SLAVE, switch.expect(METER_MOD).xid)
        lost = bench.controller.first(MastershipLost, since)
        assert (lost.dpid, lost.name) == (0x224, "fake548")
        assert bench.results(224, 0x224) == {0x224: SwitchResult(timed_out=True)}
        bench.install(225, [0x224], METER)
        assert bench.results(225, 0x224) == {0x224: SwitchResult(timed_out=True)}
    bench.controller.first(SwitchLeft, since, dpid=0x224)
    with bench.switch(0x224):
        pass
