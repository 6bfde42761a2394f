"""Waiting room of a standby: it answers switches, asks them for nothing, and frees the port at its end."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from benchmarks.openflow_bytes import HEADER, Type, message
from controller.config import OpenFlowConfig
from controller.southbound.framework import ofp
from controller.southbound.waiting_room import waiting_room
from controller.tls import TlsContext
from mininet_topos.controller_process import reserve_port
from tests.support.waiting import until

NO_TLS = TlsContext("openflow", None)


@pytest.fixture
def openflow() -> OpenFlowConfig:
    return OpenFlowConfig(port=reserve_port(), max_connections=2)


@pytest.fixture
def room(openflow: OpenFlowConfig) -> Iterator[int]:
    with waiting_room(openflow, NO_TLS):
        until(lambda: connects(openflow.port))
        yield openflow.port


def connects(port: int) -> bool:
    with suppress(OSError):
        connected(port).close()
        return True
    return False


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def received(switch: socket.socket) -> tuple[int, int, bytes]:
    """Return type, transaction id and body of the next message; -1 at the end of the connection."""
    try:
        head = switch.recv(HEADER.size, socket.MSG_WAITALL)
    except ConnectionResetError:
        head = b""
    if not head:
        return -1, 0, b""
    _, kind, length, xid = HEADER.unpack(head)
    return kind, xid, switch.recv(length - HEADER.size, socket.MSG_WAITALL) if length > HEADER.size else b""


def greeted(port: int) -> socket.socket:
    """Return a connection that was answered; connections that just ended may still count."""
    while True:
        switch = connected(port)
        if received(switch)[0] == Type.HELLO:
            return switch
        switch.close()


def test_a_switch_is_answered_and_asked_for_nothing(room: int) -> None:
    with closing(greeted(room)) as switch:
        switch.sendall(message(Type.HELLO, 1) + message(Type.ECHO_REQUEST, 7, b"body"))
        kind, _, masks = received(switch)
        assert (kind, set(masks)) == (ofp.OFPT_SET_ASYNC, {0})
        assert received(switch) == (Type.ECHO_REPLY, 7, b"body")


def test_connections_beyond_the_limit_and_broken_ones_end(room: int) -> None:
    with closing(greeted(room)) as first, closing(greeted(room)) as second:
        with closing(connected(room)) as third:
            assert received(third)[0] == -1
        first.sendall(bytes(8))
        assert received(first)[0] == -1
        second.sendall(message(Type.ECHO_REQUEST, 1))
        assert received(second)[0] == Type.ECHO_REPLY


def test_the_port_is_free_at_the_end_and_connections_have_ended(openflow: OpenFlowConfig) -> None:
    with waiting_room(openflow, NO_TLS):
        until(lambda: connects(openflow.port))
        switch = greeted(openflow.port)
    assert received(switch)[0] == -1
    switch.close()
    socket.create_server(("127.0.0.1", openflow.port)).close()


def test_a_port_of_another_controller_is_left_alone(openflow: OpenFlowConfig) -> None:
    with socket.create_server(("127.0.0.1", openflow.port)), waiting_room(openflow, NO_TLS):
        pass
