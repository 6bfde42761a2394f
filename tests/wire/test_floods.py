"""Switches that send or claim too much: what others are told, how often, and in which order."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack

from controller.core.messages import Message
from controller.fabric.messages import ConnectionRefused, PortChanged, SwitchConnected, SwitchFloods
from controller.fabric.topology import Dpid, PortNo
from controller.southbound.limits import MAX_SWITCH_PORTS
from controller.southbound.port_changes import AT_ONCE
from tests.support.wire.bench import Bench, bench, config
from tests.support.wire.fake_switch import (
    ECHO_REPLY,
    ECHO_REQUEST,
    PORT_DOWN,
    PORT_STATUS,
    FakeSwitch,
    port_desc,
)
from tests.support.wire.openflow_controller import DEADLINE_S, southbound

__all__ = ["bench"]

ROUNDS, PORTS = 60, 500


def port_status(number: int, up: bool) -> bytes:
    body = struct.pack("!B7x", 2) + port_desc(number, f"eth{number}", 0 if up else PORT_DOWN)
    return struct.pack("!BBHI", 4, PORT_STATUS, 8 + len(body), 0) + body


def test_of_a_flood_of_port_changes_others_hear_the_latest_states_and_who_floods(bench: Bench) -> None:
    with bench.switch(0x401, ports=PORTS) as flooding, bench.switch(0x402, ports=2) as good:
        since = len(bench.controller.received)
        for number in range(ROUNDS):
            flooding.socket.sendall(b"".join(port_status(n, number % 2 == 1) for n in range(1, PORTS + 1)))
        good.socket.sendall(port_status(2, up=False))
        bench.controller.first(PortChanged, since, dpid=0x402)
        flooding.socket.sendall(port_status(1, up=False))
        states = {PortNo(n): n > 1 for n in range(1, PORTS + 1)}
        bench.controller.wait_for(lambda messages: latest(messages, 0x401) == states, since)
        changes = [m for m in bench.controller.received[since:] if isinstance(m, PortChanged) and m.dpid == 0x401]
        assert AT_ONCE < len(changes) < ROUNDS * PORTS / 2


def refused(bench: Bench, dpid: int, ports: int) -> None:
    """A switch whose connection the controller ends after the handshake."""
    switch = FakeSwitch(bench.port, dpid, mute=True).connect(ports)
    switch.wait_closed()
    switch.close()


def latest(messages: list[Message], dpid: int) -> dict[PortNo, bool]:
    return {m.port.number: m.port.up for m in messages if isinstance(m, PortChanged) and m.dpid == dpid}


def test_a_switch_that_goes_on_flooding_is_named(bench: Bench) -> None:
    with bench.switch(0x403, ports=PORTS) as flooding:
        since, number = len(bench.controller.received), 0
        while not any(isinstance(m, SwitchFloods) for m in bench.controller.received[since:]):
            number += 1
            flooding.socket.sendall(b"".join(port_status(n, number % 2 == 1) for n in range(1, PORTS + 1)))
            flooding.send(ECHO_REQUEST, b"", number)
            while flooding.expect(ECHO_REPLY).xid != number:
                pass
            bench.controller.take_in()
        assert bench.controller.first(SwitchFloods, since).dpid == 0x403


def test_a_switch_with_too_many_ports_is_refused_and_says_which_limit() -> None:
    settings = config(max_ports=MAX_SWITCH_PORTS + 10)
    with southbound(settings) as controller, ExitStack() as switches:
        bench = Bench(controller, settings.openflow.port)
        since = len(controller.received)
        refused(bench, 0x411, ports=MAX_SWITCH_PORTS)  # and its own port
        assert controller.first(ConnectionRefused, since).reason == "too_many_ports"
        switches.enter_context(bench.switch(0x412, ports=MAX_SWITCH_PORTS - 1))
        since = len(controller.received)
        refused(bench, 0x413, ports=10)
        assert controller.first(ConnectionRefused, since).reason == "too_many_ports"
        switches.enter_context(bench.switch(0x414, ports=5))


def test_one_address_takes_no_more_than_its_share_of_connections() -> None:
    settings = config(max_address_connections=2)
    with southbound(settings) as controller:
        bench = Bench(controller, settings.openflow.port)
        with bench.switch(0x421), bench.switch(0x422):
            since = len(controller.received)
            with socket.create_connection(("127.0.0.1", bench.port), timeout=DEADLINE_S) as third:
                assert third.recv(1) == b""
            assert controller.first(ConnectionRefused, since).reason == "too_many_of_address"
            with socket.create_connection(
                ("127.0.0.1", bench.port), timeout=DEADLINE_S, source_address=("127.0.0.2", 0)
            ) as other:
                assert other.recv(1) != b""


def test_a_switch_that_was_there_before_finds_a_connection_although_strangers_have_come() -> None:
    settings = config(max_connections=4)
    with southbound(settings, known=[Dpid(0x431)]) as controller:
        bench = Bench(controller, settings.openflow.port)
        with bench.switch(0x441), bench.switch(0x442), bench.switch(0x443):
            since = len(controller.received)
            refused(bench, 0x444, ports=1)
            assert controller.first(ConnectionRefused, since).reason == "too_many"
            with bench.switch(0x431):
                assert controller.first(SwitchConnected, since).dpid == 0x431
