"""Behaviour that Open vSwitch does not have: silent switches, malformed bytes, unanswered echoes."""

import signal
import socket
import struct
from collections.abc import Iterator

import pytest

from benchmarks.openflow_bytes import Multipart, Type, port_desc
from controller.fabric.messages import (
    ArpSeen,
    LinkLost,
    LinkSeen,
    PortChanged,
    SendArpReply,
    SendArpRequest,
    SwitchConnected,
    SwitchLeft,
)
from controller.fabric.topology import Dpid, Port, PortNo, PortRef
from controller.tables.messages import ReadRules, SwitchResult
from controller.tables.rules import MeterRule, RuleMod
from tests.support.wire.bench import Bench, config, running_bench
from tests.support.wire.fake_switch import PORT_DOWN
from tests.support.wire.openflow_controller import Southbound

METER_MOD_FAILED, OUT_OF_METERS = 12, 10


@pytest.fixture(scope="module", params=["ryu", "os_ken"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Run the southbound once on each framework; other modules use the one that the environment chooses."""
    with running_bench(request.param) as bench:
        yield bench


def test_a_switch_is_described_by_its_ports_and_leaves_when_its_connection_ends(bench: Bench) -> None:
    with bench.switch(0x11, ports=2) as switch:
        connected = bench.controller.first(SwitchConnected, dpid=0x11)
        port = Port(PortNo(1), "eth1", "02:00:00:00:00:01", True, 1e7)
        assert connected.name == "fake17"
        assert connected.ports[0] == port
        assert len(connected.ports) == 2
        switch.send(Type.PORT_STATUS, struct.pack("!B7x", 2) + port_desc(1, "eth1", PORT_DOWN))
        changed = bench.controller.first(PortChanged, dpid=0x11)
        assert (changed.port.up, changed.removed) == (False, False)
        switch.send(Type.PORT_STATUS, struct.pack("!B7x", 1) + port_desc(2, "eth2"))
        assert bench.controller.first(PortChanged, dpid=0x11, removed=True).port.number == 2
    bench.controller.first(SwitchLeft, dpid=0x11)


def test_a_silent_barrier_times_out_and_an_error_is_tied_to_its_mod(bench: Bench) -> None:
    mods = (RuleMod("add", MeterRule(1, 5, 5)), RuleMod("add", MeterRule(2, 5, 5)))
    with bench.switch(0x21) as silent, bench.switch(0x22) as answering:
        bench.install(1, (0x21, 0x22), *mods)
        answering.expect(Type.METER_MOD)
        second = answering.expect(Type.METER_MOD)
        # no message has the id of the first error
        answering.send(Type.ERROR, struct.pack("!HH", METER_MOD_FAILED, OUT_OF_METERS), 0xDEAD)
        answering.send(Type.ERROR, struct.pack("!HH", METER_MOD_FAILED, OUT_OF_METERS) + b"\0" * 64, second.xid)
        answering.send(Type.BARRIER_REPLY, b"", answering.expect(Type.BARRIER_REQUEST).xid)
        silent.expect(Type.BARRIER_REQUEST)
        results = bench.results(1, 0x21, 0x22)
        assert results[Dpid(0x21)] == SwitchResult(timed_out=True)
        ((mod, reason),) = results[Dpid(0x22)].rejected
        assert mod == mods[1]
        assert "OFPMMFC_OUT_OF_METERS" in reason


def test_a_switch_that_does_not_answer_a_read_is_disconnected(bench: Bench) -> None:
    with bench.switch(0x32) as switch:
        bench.controller.send(ReadRules(Dpid(0x32)))
        switch.expect_multipart(Multipart.AGGREGATE)
        switch.wait_closed()
        bench.controller.first(SwitchLeft, dpid=0x32)


def test_probes_make_links_and_silence_ends_them(bench: Bench) -> None:
    with bench.switch(0x61) as a, bench.switch(0x62) as b:
        port, frame = a.expect_frame()
        assert (port, frame[:6].hex()) == (1, "0180c200000e")
        b.packet_in(1, frame)
        link = (PortRef(Dpid(0x61), PortNo(1)), PortRef(Dpid(0x62), PortNo(1)))
        bench.controller.first(LinkSeen, src=link[0], dst=link[1])
        for _ in range(20):  # probes reach nothing, but both switches answer
            a.packet_in(1, ARP_REQUEST)
            b.packet_in(1, ARP_REQUEST)
            a.expect_frame()
            b.expect_frame()
        bench.controller.first(LinkLost, src=link[0], dst=link[1])


ARP_REQUEST = bytes.fromhex(
    "ffffffffffff 02000000000a 0806 0001 0800 06 04 0001 02000000000a 0a000102 000000000000 0a000202"
)


def test_arp_of_hosts_is_reported_and_arp_of_the_controller_is_sent(bench: Bench) -> None:
    at = PortRef(Dpid(0x71), PortNo(1))
    with bench.switch(0x71) as switch:
        switch.packet_in(1, ARP_REQUEST)
        seen = bench.controller.first(ArpSeen, at=at)
        assert seen == ArpSeen(at, "request", "10.0.1.2", "02:00:00:00:00:0a", "10.0.2.2")
        bench.controller.send(SendArpRequest("10.0.9.9", (at, PortRef(Dpid(0x999), PortNo(1)))))
        bench.controller.send(SendArpReply(at, "10.0.1.2", "02:00:00:00:00:0a", "10.0.2.2", "02:00:00:00:00:0b"))
        frames: list[tuple[int, str]] = []
        while len(frames) < 2:
            port, frame = switch.expect_frame()
            if frame[12:14].hex() == "0806":
                frames.append((port, frame[:42].hex()))
        probe = "ffffffffffff 025342000001 0806 0001 0800 06 04 0001 025342000001 00000000 000000000000 0a000909"
        reply = "02000000000a 02000000000b 0806 0001 0800 06 04 0002 02000000000b 0a000202 02000000000a 0a000102"
        assert frames == [(1, probe.replace(" ", "")), (1, reply.replace(" ", ""))]


def test_a_switch_that_does_not_read_delays_no_other(bench: Bench) -> None:
    many = tuple(RuleMod("add", MeterRule(number, 5, 5)) for number in range(15_000))
    with bench.switch(0x81), bench.switch(0x82) as quick:
        bench.install(4, (0x81,), *many)
        bench.install(5, (0x82,), *many[:100])
        quick.send(Type.BARRIER_REPLY, b"", quick.expect(Type.BARRIER_REQUEST).xid)
        assert bench.results(5, 0x82) == {0x82: SwitchResult()}
        assert bench.results(4, 0x81) == {0x81: SwitchResult(timed_out=True)}


def test_a_switch_that_stops_answering_echoes_is_disconnected_and_a_signal_ends_all_cleanly() -> None:
    with (
        running_bench(echo_interval_s=0.5, echo_misses=4) as bench,
        bench.switch(0x91) as mute,
        bench.switch(0x92) as alive,
    ):
        mute.mute = True
        for _ in range(6):
            asked = alive.expect(Type.ECHO_REQUEST)
            alive.send(Type.ECHO_REPLY, asked.body, asked.xid)
        bench.controller.first(SwitchLeft, dpid=0x91)
        assert not any(isinstance(m, SwitchLeft) and m.dpid == 0x92 for m in bench.controller.received)
        assert bench.controller.stop(signal.SIGINT) == 0
        alive.wait_closed()


def test_a_port_that_is_taken_is_an_error_and_not_shared() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as willing_to_share:
        second = Southbound(config(port=willing_to_share.getsockname()[1]))
        assert second.wait_end() == 1
