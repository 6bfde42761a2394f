"""Link of a southbound to a control loop in another process, joined to the loop's end without sockets."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from controller.fabric.messages import SwitchConnected, SwitchFloods
from controller.fabric.topology import Dpid
from controller.link import codec
from controller.link.codec import Refused, pack, packet
from controller.link.ends import LinkEnd
from controller.link.messages import Welcome
from controller.link.routing import Router
from controller.southbound.limits import Backlog
from controller.southbound.outbox import Outbox
from controller.southbound.uplink import MOST_AHEAD, MOST_TOGETHER, Uplink
from controller.tables.messages import Counters, PollHalfway, PollLearning

A = Dpid(1)


class Commands(Outbox):
    def __init__(self) -> None:
        super().__init__()
        self.all: list[Any] = []
        self.close()

    def send(self, commands: Any) -> None:
        self.all += commands


class Link:
    """Link with both ends, whose packets arrive when the test wants it."""

    def __init__(self, same_clock: bool = True) -> None:
        self.heard: list[Any] = []
        self.not_taken: deque[Any] = deque()
        self.same_clock = same_clock
        self.router = Router(self._put, 5.0, 10.0)
        self.outbox = Commands()
        self.up: deque[bytes] = deque()
        self.down: deque[bytes] = deque()
        self.uplink = Uplink(self.up.append, self.outbox, self._later)
        self.soon: list[Callable[[], None]] = []
        self.connect()

    def connect(self) -> None:
        self.end = LinkEnd(self.router, b"key", frozenset(), "one/1", self.down.append, same_clock=self.same_clock)
        self.end.begin()
        self.arrive()

    def _later(self, body: Callable[[], None]) -> None:
        self.soon.append(body)

    def _put(self, message: Any, counted_by: Any = None) -> None:
        self.heard.append(message)
        if counted_by:
            self.not_taken.append(counted_by)

    def take(self) -> None:
        while self.not_taken:
            self.not_taken.popleft().take()

    def arrive(self) -> None:
        while self.soon or self.up or self.down:
            for body in self.soon[:]:
                self.soon.remove(body)
                body()
            while self.up:
                self.end.received(self.up.popleft())
            while self.down:
                self.uplink.received(self.down.popleft())


@pytest.fixture
def link() -> Link:
    link = Link()
    link.uplink.put(SwitchConnected(A, "a", ()))
    link.arrive()
    link.take()
    link.arrive()
    return link


def test_messages_and_commands_arrive_in_order(link: Link) -> None:
    link.uplink.put(SwitchFloods(A))
    link.router.send([PollHalfway()])
    link.arrive()
    assert link.heard == [SwitchConnected(A, "a", ()), SwitchFloods(A)]
    welcome, *commands = link.outbox.all
    assert isinstance(welcome, Welcome)
    assert commands == [PollLearning(frozenset()), PollHalfway()]


def test_the_southbound_is_at_most_so_far_ahead_of_the_loop(link: Link) -> None:
    backlog = Backlog()
    for _ in range(MOST_AHEAD + 10):
        link.uplink.put(SwitchFloods(A), backlog)
    link.arrive()
    assert len(link.heard) == 1 + MOST_AHEAD
    assert backlog.waiting == MOST_AHEAD + 10
    link.take()
    link.arrive()
    assert len(link.heard) == 1 + MOST_AHEAD + 10
    assert backlog.waiting == 10
    link.take()
    link.arrive()
    assert backlog.waiting == 0


def test_messages_share_packets(link: Link) -> None:
    for _ in range(MOST_TOGETHER + 1):
        link.uplink.put(SwitchFloods(A))
    (flush,) = link.soon
    flush()
    assert len(link.up) == 2


def test_large_messages_have_packets_of_their_own(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "USUAL_BYTES", 0)
    for _ in range(2):
        link.uplink.put(SwitchFloods(A))
    link.soon.pop()()
    link.router.send([PollHalfway(), PollHalfway()])
    assert (len(link.up), len(link.down)) == (2, 2)
    link.arrive()
    assert link.outbox.all[-2:] == [PollHalfway(), PollHalfway()]


def test_a_break_drops_messages_and_counts_them_as_taken(link: Link) -> None:
    backlog = Backlog()
    for _ in range(MOST_AHEAD + 10):
        link.uplink.put(SwitchFloods(A), backlog)
    link.arrive()
    link.uplink.broken()
    assert backlog.waiting == 0
    link.uplink.put(SwitchFloods(A), backlog)
    assert backlog.waiting == 0
    link.connect()
    link.take()
    link.arrive()
    assert len(link.heard) == 1 + MOST_AHEAD, "counts of the time before the break have no effect"


@dataclass
class SwitchRejoices:
    """Message of a newer version."""


def test_messages_that_only_a_newer_version_knows_are_counted_and_ignored(link: Link) -> None:
    backlog = Backlog()
    newer: Any = SwitchRejoices()
    link.uplink.put(newer, backlog)
    link.uplink.put(SwitchConnected(A, "a", ()), backlog)
    link.uplink.received(packet([pack(newer)]))
    link.arrive()
    assert link.heard == [SwitchConnected(A, "a", ())] * 2
    link.take()
    link.arrive()
    assert backlog.waiting == 0


def test_packets_of_an_earlier_connection_are_dropped(link: Link) -> None:
    link.uplink.put(SwitchFloods(A))
    link.soon.pop()()
    late = link.up.popleft()
    link.end.close()
    link.connect()
    link.end.received(late)
    assert SwitchFloods(A) not in link.heard


def test_a_welcome_replaces_the_connection_before_it(link: Link) -> None:
    link.connect()
    link.uplink.put(SwitchConnected(A, "a", ()))
    link.arrive()
    assert [type(command) for command in link.outbox.all].count(Welcome) == 2


def test_times_of_another_machine_count_from_the_arrival_of_the_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(same_clock=False)
    link.uplink.put(SwitchConnected(A, "a", ()))
    link.uplink.put(Counters(A, 999.0, None, None, due=998.0))
    monkeypatch.setattr("time.monotonic", lambda: 1000.0)  # of the southbound
    link.soon.pop()()
    monkeypatch.setattr("time.monotonic", lambda: 50.0)  # of the control loop
    link.end.received(link.up.popleft())
    assert link.heard[-1] == Counters(A, 49.0, None, None, due=48.0)


def test_other_bytes_are_refused(link: Link) -> None:
    with pytest.raises(Refused):
        link.end.received(b"?")
    with pytest.raises(Refused):
        link.uplink.received(b"?")
