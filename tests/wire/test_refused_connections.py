"""Peers that are not switches or break the protocol: only their own connection ends, with a reason."""

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from benchmarks.openflow_bytes import Type
from controller.fabric.messages import ConnectionRefused, SwitchConnected, SwitchLeft
from controller.southbound.run_hub import MAX_HANDSHAKES
from tests.support.waiting import DEADLINE_S
from tests.support.wire.bench import Bench, running_bench
from tests.support.wire.fake_switch import FakeSwitch

FEATURES = struct.pack("!QIBB2xII", 0x99, 0, 254, 0, 0x4F, 0)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with running_bench(echo_interval_s=0.5, echo_misses=2) as bench:
        yield bench


@pytest.mark.parametrize("begins", [False, True])
def test_a_peer_without_a_handshake_is_disconnected(bench: Bench, begins: bool) -> None:
    since = bench.now
    peer = FakeSwitch(bench.port, 0x11)
    if begins:
        peer.send(Type.HELLO, b"")
        asked = peer.expect(Type.FEATURES_REQUEST)
        peer.send(Type.FEATURES_REPLY, FEATURES, asked.xid)
    peer.wait_closed()
    refused = bench.refused(since)
    assert refused.reason == "silent"
    assert refused.peer == "{}:{}".format(*peer.connection.socket.getsockname())
    peer.close()


def test_a_switch_of_another_version_gets_an_error_before_it_is_disconnected(bench: Bench) -> None:
    since = bench.now
    switch = FakeSwitch(bench.port, 0x21)
    switch.connection.send(bytes.fromhex("01 00 0008 00000001"))
    answer = switch.expect(Type.ERROR)
    assert answer.body[:4] == struct.pack("!HH", 0, 0)
    switch.wait_closed()
    assert bench.refused(since).reason == "version"
    switch.close()


@pytest.mark.parametrize("wrong", [
    bytes.fromhex("04 0a 0000 00000001"), bytes.fromhex("01 0a 0008 00000001"),
    bytes.fromhex("04 13 000c 00000001 00010000"), struct.pack("!BBHI", 4, Type.PORT_STATUS, 12, 1) + bytes(4),
])  # fmt: skip
def test_a_switch_that_breaks_the_protocol_is_disconnected_and_named(bench: Bench, wrong: bytes) -> None:
    since = bench.now
    switch = FakeSwitch(bench.port, 0x31).connect()
    switch.connection.send(wrong)
    switch.wait_closed()
    bench.controller.first(SwitchLeft, since, dpid=0x31)
    refused = bench.refused(since)
    assert (refused.reason, refused.dpid) == ("malformed", 0x31)
    switch.close()


def test_a_switch_that_never_reads_is_disconnected(bench: Bench) -> None:
    since = bench.now
    greedy = FakeSwitch(bench.port, 0x41).connect()
    bench.controller.first(SwitchConnected, since, dpid=0x41)
    with suppress(OSError):
        for _ in range(10_000):
            greedy.send(Type.ECHO_REQUEST, bytes(60_000))
    refused = bench.refused(since)
    assert (refused.reason, refused.dpid) == ("not_reading", 0x41)
    greedy.close()


def test_of_too_many_connections_without_handshake_the_oldest_is_ended_and_a_switch_can_connect(bench: Bench) -> None:
    since = bench.now
    with ExitStack() as open_sockets:
        peers = [
            open_sockets.enter_context(socket.create_connection(("127.0.0.1", bench.port), timeout=DEADLINE_S))
            for _ in range(MAX_HANDSHAKES + 1)
        ]
        oldest = "{}:{}".format(*peers[0].getsockname())
        assert bench.refused(since) == ConnectionRefused(oldest, None, "silent")
        switch = FakeSwitch(bench.port, 0x51).connect()
        bench.controller.first(SwitchConnected, since, dpid=0x51)
        switch.close()
