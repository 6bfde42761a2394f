"""The owner of a dpid is one connection, and a switch has one master."""

from __future__ import annotations

import struct

import pytest

from controller.fabric.messages import ConnectionRefused, MastershipLost, SwitchConnected, SwitchLeft
from controller.fabric.topology import Dpid, PortNo
from controller.tables.messages import InstallStage, StageDone, SwitchResult
from controller.tables.rules import Bucket, GroupRule, MeterRule, Output, RuleMod, Stage
from tests.support.wire.bench import Bench, bench, config
from tests.support.wire.fake_switch import (
    BARRIER_REPLY,
    BARRIER_REQUEST,
    ECHO_REPLY,
    ECHO_REQUEST,
    EQUAL,
    ERROR,
    GROUP_MOD,
    METER_MOD,
    PORT_DOWN,
    PORT_STATUS,
    ROLE_REPLY,
    ROLE_REQUEST,
    FakeSwitch,
    port_desc,
)
from tests.support.wire.openflow_controller import southbound

__all__ = ["bench"]

BAD_REQUEST, IS_SLAVE = 1, 10
ROLE_REQUEST_FAILED, STALE, UNSUPPORTED = 11, 0, 1
GROUP_MOD_FAILED, OUT_OF_GROUPS = 6, 3
METER = RuleMod("add", MeterRule(1, 5, 5))


def error(switch: FakeSwitch, kind: int, code: int, xid: int) -> None:
    switch.send(ERROR, struct.pack("!HH", kind, code) + b"\0" * 8, xid)


def install(bench: Bench, change_id: int, dpid: int, *mods: RuleMod) -> None:
    bench.controller.send(InstallStage(change_id, Stage("test", {Dpid(dpid): mods})))


def greet(bench: Bench, dpid: int) -> FakeSwitch:
    """Connect a switch up to its role request."""
    switch = FakeSwitch(bench.port, dpid, mute=True).connect()
    switch.mute = False
    return switch


# ---- two connections with one dpid


def test_a_second_switch_with_a_known_dpid_is_refused_while_the_first_is_alive(bench: Bench) -> None:
    with bench.switch(0x201) as old:
        since = len(bench.controller.received)
        newcomer = greet(bench, 0x201)
        asked = old.expect(ECHO_REQUEST)
        while not asked.body:  # regular echo requests have no body
            old.send(ECHO_REPLY, asked.body, asked.xid)
            asked = old.expect(ECHO_REQUEST)
        old.send(ECHO_REPLY, asked.body, asked.xid)
        newcomer.wait_closed()
        refused = bench.controller.first(ConnectionRefused, since)
        assert (refused.dpid, refused.reason) == (0x201, "duplicate_dpid")
        assert refused.peer.startswith("127.0.0.1:")
        install(bench, 201, 0x201, METER)
        old.send(BARRIER_REPLY, b"", old.expect(BARRIER_REQUEST).xid)
        assert bench.controller.first(StageDone, change_id=201).results == {0x201: SwitchResult()}
        assert not any(isinstance(m, SwitchLeft | SwitchConnected) for m in bench.controller.received[since:])
        newcomer.close()


def test_a_half_open_connection_is_replaced_once_it_has_missed_its_echo_requests() -> None:
    settings = config(echo_interval_s=0.2, echo_misses=3)
    with southbound(settings) as controller:
        bench = Bench(controller, settings.openflow.port)
        with bench.switch(0x202) as silent:
            since = len(bench.controller.received)
            newcomer = greet(bench, 0x202)
            assert newcomer.accept_master(5) == 6
            connected = bench.controller.first(SwitchConnected, since, dpid=0x202)
            before = bench.controller.received[since : bench.controller.received.index(connected, since)]
            assert SwitchLeft(Dpid(0x202)) in before
            for _ in range(3):
                silent.expect(ECHO_REQUEST)
            install(bench, 202, 0x202, METER)
            newcomer.send(BARRIER_REPLY, b"", newcomer.expect(BARRIER_REQUEST).xid)
            assert bench.controller.first(StageDone, change_id=202).results == {0x202: SwitchResult()}
            newcomer.close()


def test_a_switch_that_connects_again_is_not_taken_for_a_second_one(bench: Bench) -> None:
    since = len(bench.controller.received)
    with bench.switch(0x203):
        pass
    with bench.switch(0x203):
        assert not any(isinstance(m, ConnectionRefused) for m in bench.controller.received[since:])


# ---- one master


@pytest.mark.parametrize(("generation", "claimed"), [((1 << 64) - 1, 0), (7, 8), ((1 << 63) - 1, 1 << 63)])
def test_the_claimed_generation_follows_that_of_the_switch(bench: Bench, generation: int, claimed: int) -> None:
    switch = greet(bench, 0x211 + claimed % 97)
    assert switch.accept_master(generation) == claimed
    bench.controller.first(SwitchConnected, dpid=0x211 + claimed % 97)
    switch.close()


def test_nothing_is_written_before_the_role_is_known(bench: Bench) -> None:
    switch = greet(bench, 0x221)
    install(bench, 221, 0x221, METER)
    assert bench.controller.first(StageDone, change_id=221).results == {0x221: SwitchResult(timed_out=True)}
    assert switch.hear().kind in (ECHO_REQUEST, ROLE_REQUEST)
    assert not any(isinstance(m, SwitchConnected) and m.dpid == 0x221 for m in bench.controller.received)
    switch.close()


def test_port_changes_before_the_role_is_known_are_reported_with_the_switch(bench: Bench) -> None:
    switch = greet(bench, 0x223)
    asked = switch.expect(ROLE_REQUEST)
    down, added = (
        struct.pack("!B7x", 2) + port_desc(1, "eth1", PORT_DOWN),
        struct.pack("!B7x", 0) + port_desc(2, "eth2"),
    )
    switch.send(PORT_STATUS, down)
    switch.send(PORT_STATUS, added)
    switch.send(ROLE_REPLY, struct.pack("!I4xQ", EQUAL, 3), asked.xid)
    claim = switch.expect(ROLE_REQUEST)
    switch.send(ROLE_REPLY, claim.body, claim.xid)
    connected = bench.controller.first(SwitchConnected, dpid=0x223)
    assert {port.number: port.up for port in connected.ports} == {1: False, 2: True}
    switch.close()


def test_a_claim_that_is_stale_is_made_again(bench: Bench) -> None:
    switch = greet(bench, 0x222)
    asked = switch.expect(ROLE_REQUEST)
    switch.send(ROLE_REPLY, struct.pack("!I4xQ", EQUAL, 3), asked.xid)
    error(switch, ROLE_REQUEST_FAILED, STALE, switch.expect(ROLE_REQUEST).xid)
    assert switch.accept_master(9) == 10
    bench.controller.first(SwitchConnected, dpid=0x222)
    switch.close()


def test_a_switch_without_roles_is_used(bench: Bench) -> None:
    switch = greet(bench, 0x223)
    error(switch, ROLE_REQUEST_FAILED, UNSUPPORTED, switch.expect(ROLE_REQUEST).xid)
    bench.controller.first(SwitchConnected, dpid=0x223)
    switch.close()


def test_a_switch_with_another_master_gets_no_more_messages(bench: Bench) -> None:
    with bench.switch(0x224) as switch:
        since = len(bench.controller.received)
        install(bench, 224, 0x224, METER)
        error(switch, BAD_REQUEST, IS_SLAVE, switch.expect(METER_MOD).xid)
        lost = bench.controller.first(MastershipLost, since)
        assert (lost.dpid, lost.name) == (0x224, "fake548")
        assert bench.controller.first(StageDone, change_id=224).results == {0x224: SwitchResult(timed_out=True)}
        install(bench, 225, 0x224, METER)
        assert bench.controller.first(StageDone, change_id=225).results == {0x224: SwitchResult(timed_out=True)}
    bench.controller.first(SwitchLeft, since, dpid=0x224)
    with bench.switch(0x224):
        pass


def test_a_full_group_table_is_reported_with_the_refused_group(bench: Bench) -> None:
    groups = [GroupRule(n, "select", (Bucket(Output(PortNo(1)), watch_port=PortNo(1)),)) for n in (1, 2)]
    with bench.switch(0x225) as switch:
        install(bench, 226, 0x225, *(RuleMod("add", group) for group in groups))
        switch.expect(GROUP_MOD)
        error(switch, GROUP_MOD_FAILED, OUT_OF_GROUPS, switch.expect(GROUP_MOD).xid)
        switch.send(BARRIER_REPLY, b"", switch.expect(BARRIER_REQUEST).xid)
        ((mod, reason),) = bench.controller.first(StageDone, change_id=226).results[Dpid(0x225)].rejected
        assert mod.rule == groups[1]
        assert "OFPGMFC_OUT_OF_GROUPS" in reason
