"""Connections over socket pairs, in the hub, without a switch at the other end."""

from __future__ import annotations

import gc
import socket
import struct
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace

import pytest

from controller.config import OpenFlowConfig
from controller.southbound import connection
from controller.southbound.connection import Connection
from controller.southbound.framework import Events, HubSocket, green_socket, kill, pause, spawn
from controller.southbound.limits import MOST_WAITING, Limits
from controller.southbound.openflow_framing import VERSION
from controller.southbound.outbox import Outbox

HELLO, ECHO_REQUEST, ECHO_REPLY, MULTIPART_REPLY = 0, 2, 3, 19
PORT_DESC, MORE = 13, 1


class Ends:
    """Ends of a connection.

    ``near``: the controller's end. ``far``: the peer's socket, which does not block."""

    def __init__(self) -> None:
        here, self.far = socket.socketpair()
        for end in (here, self.far):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            end.setblocking(False)
        self.outbox = Outbox()
        self.refused: list[str] = []
        self.sock = HubSocket(green_socket(fileno=here.detach()))
        settings = OpenFlowConfig()
        self.near = Connection(
            self.sock,
            "192.0.2.1",
            40_000,
            settings,
            None,
            Events(),
            lambda _, reason, why: self.refused.append(f"{reason}: {why}"),
            Counter(),
            Limits(settings),
            self.outbox,
        )

    def read(self, turns: int = 3) -> bytes:
        """Read at the peer until nothing more arrives."""
        heard, quiet = b"", 0
        while quiet < turns:
            pause()
            try:
                heard, quiet = heard + self.far.recv(1 << 16), 0
            except BlockingIOError:
                quiet += 1
        return heard

    def failure(self) -> list[object]:
        """Return the error of a greenlet, as the hub's main greenlet receives it."""
        self.outbox.stop()
        return list(self.outbox.receive(lambda _: None))


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.sock.close()
    ends.far.close()
    ends.outbox.close()


def test_messages_in_one_turn_to_a_peer_whose_socket_is_full_are_sent_once_and_in_order(ends: Ends) -> None:
    """The messages start a single greenlet. A second one would fail, and so end the process."""
    sent = [bytes([number]) * 50_000 for number in range(5)]
    for data in sent:
        ends.near.send_bytes(data)
    heard = ends.read()
    for data in sent[:2]:  # send again after the first greenlet has ended
        ends.near.send_bytes(data)
    heard += ends.read()
    assert heard == b"".join((*sent, *sent[:2]))
    assert ends.failure() == []


def test_an_error_in_a_greenlet_ends_the_process_and_one_that_has_not_begun_can_be_ended(ends: Ends) -> None:
    def body() -> None:
        raise KeyError("a fault")

    done: list[int] = []
    kill(spawn(ends.outbox, lambda: done.append(1)))
    spawn(ends.outbox, body)
    pause()
    assert done == []
    with pytest.raises(KeyError, match="a fault"):
        ends.failure()


@pytest.mark.parametrize("turns", [0, 20])
def test_a_connection_whose_peer_has_gone_leaves_nothing_to_collect(ends: Ends, turns: int) -> None:
    """The peer closes before the connection's greenlets begin, or while they wait, one of them to send."""
    left = weakref.ref(ends.near)
    ends.near.send_bytes(bytes(50_000))
    gc.disable()
    try:
        spawn(ends.outbox, ends.near.serve)
        del ends.near
        for _ in range(turns):
            pause()
        ends.far.close()
        for _ in range(20):
            pause()
        assert left() is None
    finally:
        gc.enable()
    assert ends.failure() == []


def test_a_closed_connection_is_shut_down_and_not_refused_again(ends: Ends) -> None:
    ends.near.close()
    ends.near.send_bytes(b"late")
    ends.near.refuse("malformed", "late")
    assert ends.far.recv(4) == b""
    assert ends.refused == []


def test_a_peer_is_not_read_while_the_control_loop_has_not_taken_in_what_it_sent(ends: Ends) -> None:
    backlog = ends.near.backlog
    serving = spawn(ends.outbox, ends.near.serve)
    backlog.added = MOST_WAITING + 1
    ends.far.sendall(struct.pack("!BBHI", VERSION, HELLO, 8, 0))
    ends.read()
    ends.far.sendall(struct.pack("!BBHI", VERSION, ECHO_REQUEST, 8, 7))
    assert ends.read(turns=200) == b""
    backlog.taken = backlog.added
    answer = b""
    while not answer:
        answer = ends.read()
    assert answer == struct.pack("!BBHI", VERSION, ECHO_REPLY, 8, 7)
    assert ends.near.take_held_s() > 0.0
    assert ends.near.take_held_s() == 0.0
    kill(serving)
    assert ends.failure() == []


@pytest.mark.parametrize("kind", [ECHO_REQUEST, MULTIPART_REPLY])
def test_a_peer_whose_messages_take_more_than_their_share_of_the_hub_is_read_less(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    """Each message takes 1 ms of processor time here, and 20 of them exceed a quarter of the time that passes.

    The messages are unfinished parts of an answer."""
    ticks = count()
    clock = SimpleNamespace(thread_time=lambda: next(ticks) / 1000, monotonic=time.monotonic)
    monkeypatch.setattr(connection, "time", clock)
    serving = spawn(ends.outbox, ends.near.serve)
    hello, last = struct.pack("!BBHI", VERSION, HELLO, 8, 0), struct.pack("!BBHI", VERSION, ECHO_REQUEST, 8, 99)
    messages = [struct.pack("!BBHIHH4x", VERSION, kind, 16, xid, PORT_DESC, MORE) for xid in range(20)]
    ends.far.sendall(b"".join((hello, *messages, last)))
    answers = b""
    while not answers.endswith(struct.pack("!BBHI", VERSION, ECHO_REPLY, 8, 99)):
        answers += ends.read()
    assert ends.near.take_held_s() >= 0.05
    kill(serving)
    assert ends.failure() == []
