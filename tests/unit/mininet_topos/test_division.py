"""How bytes are divided over the connections to a peer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.source_ports import PortClass, port_classes
from mininet_topos.trainer.division import PARTS, Deal, Division, weights_of
from mininet_topos.trainer.route_listener import RouteListener, shares_of
from mininet_topos.trainer.source_port import bind_in_class

DEADLINE_S = 30.0

some_weights = st.lists(st.integers(0, PARTS), min_size=1, max_size=16).filter(any)


@given(some_weights, st.integers(1, 300))
def test_slices_are_dealt_in_proportion_at_every_moment(weights: list[int], count: int) -> None:
    deal, dealt = Deal(len(weights)), [0] * len(weights)
    deal.set(weights)
    for _ in range(count):
        dealt[deal.next()] += 1
    for got, weight in zip(dealt, weights, strict=True):
        assert abs(got - count * weight / sum(weights)) < len(weights)
        assert weight or not got


@given(some_weights, some_weights)
def test_both_ends_deal_alike_and_what_was_known_before_changes_nothing(first: list[int], then: list[int]) -> None:
    then = (then * len(first))[: len(first)]
    then[0] += not any(then)
    sender, receiver = Deal(len(first)), Deal(len(first))
    for weights in (first, first, then):
        sender.set(weights)
        for _ in range(7):
            receiver.set(sender.weights)  # every header says them
            assert sender.next() == receiver.next()


def test_before_anything_is_told_the_first_connection_takes_all() -> None:
    deal = Deal(3)
    assert {deal.next() for _ in range(10)} == {0}


def test_a_share_goes_to_the_connection_whose_port_is_in_its_class() -> None:
    classes = port_classes(3)
    ports = [40_000 & ~each.mask | each.value | 1 for each in classes]
    pieces = [(0.75, *classes[2]), (0.25, *classes[0])]
    assert weights_of(pieces, ports) == (250, 0, 750)
    assert weights_of([(0.9999, *classes[0]), (0.0001, *classes[1])], ports) == (1000, 1, 0), "nothing told is left out"
    assert weights_of([], ports) == (PARTS, 0, 0)
    assert weights_of([(1.0, 0x20, 0x20)], [0, 2]) == (PARTS, 0), "no connection has such a port"


@dataclass
class Piece:
    share: float
    port_value: int
    port_mask: int


@dataclass
class Told:
    """A message of the route stream, and a route in it."""

    routes: list[Told] = field(default_factory=list)
    src: str = ""
    dst: str = ""
    subflows: list[Piece] = field(default_factory=list)


def told(*subflows: tuple[float, int, int]) -> Told:
    return Told([Told(src="10.0.1.1", dst="10.0.2.1", subflows=[Piece(*each) for each in subflows])])


def test_whole_and_unpinned_flows_are_not_divided() -> None:
    assert shares_of(told((1.0, 0, 0))) == shares_of(told()) == {}


class Stream:
    """A controller that tells routes when it is asked to, and breaks off."""

    def __init__(self) -> None:
        self.connections = 0
        self.say: list[Told] = []
        self.changed = threading.Condition()

    def connect(self) -> Stream:
        self.connections += 1
        return self

    def watch_routes(self, _: str) -> Iterator[Told]:
        with self.changed:
            while True:
                self.changed.wait_for(lambda: bool(self.say), DEADLINE_S)
                word = self.say.pop(0)
                if not word.routes:
                    raise ConnectionError("the controller was killed")
                yield word

    def tell(self, *words: Told) -> None:
        with self.changed:
            self.say += words
            self.changed.notify_all()

    def close(self) -> None:
        self.tell(Told())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_ranks_read_what_the_listener_heard_and_nothing_changes_when_the_controller_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mininet_topos.trainer.route_listener.RETRY_S", 0.01)
    stream, division = Stream(), Division(tmp_path / "ports")
    assert not division.look()
    with RouteListener(stream.connect, "job", tmp_path / "ports"):
        stream.tell(told((0.5, 0, 2), (0.5, 2, 2)))
        wait_until(division.look)
        assert division.pieces("10.0.1.1", "10.0.2.1") == [(0.5, 0, 2), (0.5, 2, 2)]
        assert division.pieces("10.0.2.1", "10.0.1.1") == ()
        assert not division.look(), "nothing new"
        stream.tell(Told())
        wait_until(lambda: stream.connections > 1)
        assert not division.look()
        stream.tell(told((1.0, 0, 0)))
        wait_until(division.look)
        assert division.pieces("10.0.1.1", "10.0.2.1") == ()


@pytest.mark.parametrize("ports", port_classes(16)[::5])
def test_sockets_get_ports_of_their_class(ports: PortClass) -> None:
    with socket.socket() as first, socket.socket() as second:
        taken = bind_in_class(first, "127.0.0.1", ports)
        other = bind_in_class(second, "127.0.0.1", ports)
        assert first.getsockname()[1] == taken != other
        assert ports.holds(taken)
        assert ports.holds(other)


def test_a_class_without_a_free_port_is_an_error() -> None:
    with socket.socket() as one, socket.socket() as other:
        taken = PortClass(bind_in_class(one, "127.0.0.1", PortClass(0, 2)), 0xFFFF)
        with pytest.raises(OSError, match="no free source port"):
            bind_in_class(other, "127.0.0.1", taken)
