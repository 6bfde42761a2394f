"""Switches that claim foreign dpids or masters, or send too many messages, ports and rules."""

import socket
import struct
from contextlib import ExitStack, suppress

from benchmarks.openflow_bytes import Multipart, Type, message, port_desc
from controller.core.messages import Message
from controller.fabric.messages import MastershipLost, PortChanged, SwitchConnected, SwitchFloods, SwitchLeft
from controller.fabric.topology import Dpid, PortNo
from controller.southbound.given_rules import MORE_BYTES
from controller.southbound.limits import AT_ONCE, MAX_SWITCH_PORTS
from controller.tables.messages import Counters, ReadRules, SwitchResult, SwitchRules
from controller.tables.rules import FlowKey, Match, MeterRule, RuleMod, Table, cookie
from tests.support.waiting import DEADLINE_S
from tests.support.wire.bench import Bench, running_bench
from tests.support.wire.fake_switch import EQUAL, NOCHANGE, PORT_DOWN, SLAVE, FakeSwitch, flow_stats
from tests.support.wire.openflow_controller import EPOCH

BAD_REQUEST, IS_SLAVE = 1, 10
EXPERIMENTER = 4
ROLE_REQUEST_FAILED, STALE = 11, 0
METER = RuleMod("add", MeterRule(1, 5, 5))


def error(switch: FakeSwitch, kind: int, code: int, xid: int) -> None:
    switch.send(Type.ERROR, struct.pack("!HH", kind, code) + b"\0" * 8, xid)


def greet(bench: Bench, dpid: int) -> FakeSwitch:
    """Connect a switch up to its role request."""
    switch = FakeSwitch(bench.port, dpid, mute=True).connect()
    switch.mute = False
    return switch


def test_a_second_switch_with_a_known_dpid_is_refused_while_the_first_is_alive(bench: Bench) -> None:
    with bench.switch(0x201) as old:
        since = bench.now
        newcomer = greet(bench, 0x201)
        asked = old.expect(Type.ECHO_REQUEST)
        while not asked.body:  # regular echo requests have no body
            old.send(Type.ECHO_REPLY, asked.body, asked.xid)
            asked = old.expect(Type.ECHO_REQUEST)
        old.send(Type.ECHO_REPLY, asked.body, asked.xid)
        newcomer.wait_closed()
        refused = bench.refused(since)
        assert (refused.dpid, refused.reason) == (0x201, "duplicate_dpid")
        assert refused.peer.startswith("127.0.0.1:")
        bench.install(201, [0x201], METER)
        old.send(Type.BARRIER_REPLY, b"", old.expect(Type.BARRIER_REQUEST).xid)
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
            silent.expect(Type.ECHO_REQUEST)
        bench.install(202, [0x202], METER)
        newcomer.send(Type.BARRIER_REPLY, b"", newcomer.expect(Type.BARRIER_REQUEST).xid)
        assert bench.results(202, 0x202) == {0x202: SwitchResult()}
        newcomer.close()


def test_nothing_is_written_before_the_role_is_known(bench: Bench) -> None:
    switch = greet(bench, 0x221)
    bench.install(221, [0x221], METER)
    assert bench.results(221, 0x221) == {0x221: SwitchResult(timed_out=True)}
    assert switch.hear().kind in (Type.ECHO_REQUEST, Type.ROLE_REQUEST)
    assert not any(isinstance(m, SwitchConnected) and m.dpid == 0x221 for m in bench.controller.received)
    switch.close()


def test_port_changes_before_the_role_is_known_are_reported_with_the_switch(bench: Bench) -> None:
    switch = greet(bench, 0x223)
    claim = switch.expect(Type.ROLE_REQUEST)
    switch.send(Type.PORT_STATUS, struct.pack("!B7x", 2) + port_desc(1, "eth1", PORT_DOWN))
    switch.send(Type.PORT_STATUS, struct.pack("!B7x", 0) + port_desc(2, "eth2"))
    switch.send(Type.ROLE_REPLY, claim.body, claim.xid)
    connected = bench.controller.first(SwitchConnected, dpid=0x223)
    assert {port.number: port.up for port in connected.ports} == {1: False, 2: True}
    switch.close()


def test_a_switch_with_a_newer_master_is_not_used_and_may_be_claimed_when_it_connects_again(bench: Bench) -> None:
    since = bench.now
    switch = greet(bench, 0x222)
    error(switch, ROLE_REQUEST_FAILED, STALE, switch.expect(Type.ROLE_REQUEST).xid)
    switch.send(Type.ROLE_REPLY, struct.pack("!I4xQ", EQUAL, EPOCH + 1), switch.expect(Type.ROLE_REQUEST).xid)
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
        error(switch, BAD_REQUEST, IS_SLAVE, switch.expect(Type.METER_MOD).xid)
        lost = bench.controller.first(MastershipLost, since)
        assert (lost.dpid, lost.name) == (0x224, "fake548")
        assert bench.results(224, 0x224) == {0x224: SwitchResult(timed_out=True)}
        bench.install(225, [0x224], METER)
        assert bench.results(225, 0x224) == {0x224: SwitchResult(timed_out=True)}
    bench.controller.first(SwitchLeft, since, dpid=0x224)
    with bench.switch(0x224):
        pass


def test_a_switch_that_reports_another_master_gets_no_more_messages(bench: Bench) -> None:
    with bench.switch(0x225) as switch:
        since = bench.now
        switch.send(EXPERIMENTER, struct.pack("!II", 0x4F4E_4600, 1912))  # another message, which is ignored
        switch.send(EXPERIMENTER, struct.pack("!IIIB3xQ", 0x4F4E_4600, 1911, SLAVE, 0, EPOCH + 1))
        lost = bench.controller.first(MastershipLost, since)
        assert (lost.dpid, lost.refused) == (0x225, False)
        bench.install(226, [0x225], METER)
        assert bench.results(226, 0x225) == {0x225: SwitchResult(timed_out=True)}
        assert struct.unpack("!I4xQ", switch.expect(Type.ROLE_REQUEST).body) == (NOCHANGE, 0)
    bench.controller.first(SwitchLeft, since, dpid=0x225)


ROUNDS, PORTS = 60, 500


def port_status(number: int, up: bool) -> bytes:
    desc = port_desc(number, f"eth{number}", 0 if up else PORT_DOWN)
    return message(Type.PORT_STATUS, 0, struct.pack("!B7x", 2) + desc)


def test_of_a_flood_of_port_changes_others_hear_the_latest_states_and_who_floods(bench: Bench) -> None:
    with bench.switch(0x401, ports=PORTS) as flooding, bench.switch(0x402, ports=2) as good:
        since = bench.now
        for number in range(ROUNDS):
            flooding.connection.send(b"".join(port_status(n, number % 2 == 1) for n in range(1, PORTS + 1)))
        good.connection.send(port_status(2, up=False))
        bench.controller.first(PortChanged, since, dpid=0x402)
        flooding.connection.send(port_status(1, up=False))
        states = {PortNo(n): n > 1 for n in range(1, PORTS + 1)}
        bench.controller.wait_for(lambda messages: latest(messages, 0x401) == states, since)
        changes = [m for m in bench.controller.received[since:] if isinstance(m, PortChanged) and m.dpid == 0x401]
        assert AT_ONCE < len(changes) < ROUNDS * PORTS / 2


def refused(bench: Bench, dpid: int, ports: int) -> None:
    switch = FakeSwitch(bench.port, dpid, mute=True).connect(ports)
    switch.wait_closed()
    switch.close()


def latest(messages: list[Message], dpid: int) -> dict[PortNo, bool]:
    return {m.port.number: m.port.up for m in messages if isinstance(m, PortChanged) and m.dpid == dpid}


def test_a_switch_with_too_many_ports_is_refused_and_says_which_limit() -> None:
    with running_bench(max_ports=MAX_SWITCH_PORTS + 10) as bench, ExitStack() as switches:
        since = bench.now
        refused(bench, 0x411, ports=MAX_SWITCH_PORTS)  # and its own port
        assert bench.refused(since).reason == "too_many_ports"
        switches.enter_context(bench.switch(0x412, ports=MAX_SWITCH_PORTS - 1))
        since = bench.now
        refused(bench, 0x413, ports=10)
        assert bench.refused(since).reason == "too_many_ports"
        switches.enter_context(bench.switch(0x414, ports=5))


def test_one_address_takes_no_more_than_its_share_of_connections() -> None:
    with running_bench(max_address_connections=2) as bench, bench.switch(0x421), bench.switch(0x422):
        since, at = bench.now, ("127.0.0.1", bench.port)
        with socket.create_connection(at, timeout=DEADLINE_S) as third:
            assert third.recv(1) == b""
        assert bench.refused(since).reason == "too_many_of_address"
        with socket.create_connection(at, timeout=DEADLINE_S, source_address=("127.0.0.2", 0)) as other:
            assert other.recv(1) != b""


def test_a_switch_that_was_there_before_finds_a_connection_although_strangers_have_come() -> None:
    with running_bench(known=[Dpid(0x431)], max_connections=4) as bench, ExitStack() as switches:
        for dpid in (0x441, 0x442, 0x443):
            switches.enter_context(bench.switch(dpid))
        since = bench.now
        refused(bench, 0x444, ports=1)
        assert bench.refused(since).reason == "too_many"
        comes(bench, 0x431)


def comes(bench: Bench, dpid: int) -> None:
    """Connect a switch repeatedly, as Open vSwitch does, until an earlier refused connection has ended."""
    while True:
        with suppress(EOFError, ConnectionError), bench.switch(dpid):
            return


def test_counters_of_rules_that_a_switch_was_not_given_are_not_taken_in(bench: Bench) -> None:
    ours = cookie(Table.DEFAULT)
    keys = [FlowKey(Table.DEFAULT, priority, Match()) for priority in (1, 2, 3)]
    with bench.switch(0x451) as switch:
        since = bench.now
        answer_poll(switch, b"".join(flow_stats(n, ours) for n in (1, 2, 3)))
        bench.controller.send(ReadRules(Dpid(0x451)))
        answer_read(switch, flow_stats(1, ours) + flow_stats(2, ours))
        counters = bench.controller.first(Counters, since, dpid=0x451)
        assert counters.flows is not None
        assert list(counters.flows) == keys[:2]
        kinds = [type(m) for m in bench.controller.received[since:] if isinstance(m, SwitchRules | Counters)]
        assert kinds[:2] == [SwitchRules, Counters]


def test_a_switch_that_invents_rules_is_named_and_most_are_not_read(bench: Bench) -> None:
    ours = cookie(Table.DEFAULT)
    with bench.switch(0x452) as switch:
        since = bench.now
        bench.controller.send(ReadRules(Dpid(0x452)))
        part = b"".join(flow_stats(1, ours) for _ in range(500))
        answer_read(switch, *[part] * (2 * MORE_BYTES // len(part)), flow_stats(2, ours))
        bench.controller.first(SwitchFloods, since, dpid=0x452)
        read = bench.controller.first(SwitchRules, since, dpid=0x452)
        assert [key.priority for key in read.rules.flows] == [1]


def answer_poll(switch: FakeSwitch, flows: bytes) -> None:
    for kind, body in ((Multipart.PORT_STATS, b""), (Multipart.FLOW, flows), (Multipart.METER, b"")):
        switch.reply_multipart(switch.expect_multipart(kind), kind, body)


def answer_read(switch: FakeSwitch, *parts: bytes) -> None:
    while (flows := switch.expect_multipart(Multipart.FLOW)).body[34] != 0:  # a poll: its cookie mask has this byte
        pass
    count, groups, meters = (
        switch.expect_multipart(kind) for kind in (Multipart.AGGREGATE, Multipart.GROUP_DESC, Multipart.METER_CONFIG)
    )
    for number, part in enumerate(parts, 1):
        switch.reply_multipart(flows, Multipart.FLOW, part, more=number < len(parts))
    switch.reply_multipart(count, Multipart.AGGREGATE, struct.pack("!QQI4x", 0, 0, 0))
    switch.reply_multipart(groups, Multipart.GROUP_DESC, b"")
    switch.reply_multipart(meters, Multipart.METER_CONFIG, b"")
