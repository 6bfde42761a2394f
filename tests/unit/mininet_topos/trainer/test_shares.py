"""How bytes are divided over the connections to a peer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mininet_topos.trainer.announcer import RouteListener, shares_of
from mininet_topos.trainer.shares import PARTS, RoundRobin, SharesFile, weights_of
from mininet_topos.trainer.sockets import bind_in_class
from signalbox.jobs.subflows import PortClass, port_classes

DEADLINE_S = 30.0

some_weights = st.lists(st.integers(0, PARTS), min_size=1, max_size=16).filter(any)


@given(some_weights, st.integers(1, 300))
def test_slices_are_assigned_in_proportion_at_every_moment(weights: list[int], count: int) -> None:
    order, assigned = RoundRobin(len(weights)), [0] * len(weights)
    order.set(weights)
    for _ in range(count):
        assigned[order.next()] += 1
    for got, weight in zip(assigned, weights, strict=True):
        assert abs(got - count * weight / sum(weights)) < len(weights)
        assert weight or not got


@given(some_weights, some_weights)
def test_both_ends_agree_and_equal_weights_change_nothing(first: list[int], then: list[int]) -> None:
    then = (then * len(first))[: len(first)]
    then[0] += not any(then)
    sender, receiver = RoundRobin(len(first)), RoundRobin(len(first))
    for weights in (first, first, then):
        sender.set(weights)
        for _ in range(7):
            receiver.set(sender.weights)
            assert sender.next() == receiver.next()


def test_without_weights_the_first_connection_takes_all() -> None:
    order = RoundRobin(3)
    assert {order.next() for _ in range(10)} == {0}


def test_a_share_goes_to_the_connection_whose_port_is_in_its_class() -> None:
    classes = port_classes(3)
    ports = [40_000 & ~each.mask | each.value | 1 for each in classes]
    pieces = [(0.75, *classes[2]), (0.25, *classes[0])]
    assert weights_of(pieces, ports) == (250, 0, 750)
    assert weights_of([(0.9999, *classes[0]), (0.0001, *classes[1])], ports) == (1000, 1, 0), "no subflow is left out"
    assert weights_of([], ports) == (PARTS, 0, 0)
    assert weights_of([(1.0, 0x20, 0x20)], [0, 2]) == (PARTS, 0), "no connection has such a port"


def message(*subflows: tuple[float, int, int]) -> SimpleNamespace:
    """A message of the route stream, with one route."""
    return routes_of(
        SimpleNamespace(share=share, port_value=value, port_mask=mask, connections=[])
        for share, value, mask in subflows
    )


def reporting_message(*subflows: tuple[float, list[int]]) -> SimpleNamespace:
    """The same of a job that reports its connections: shares, and source ports."""
    return routes_of(
        SimpleNamespace(share=share, connections=[SimpleNamespace(src_port=port) for port in ports])
        for share, ports in subflows
    )


def routes_of(subflows: Iterable[SimpleNamespace]) -> SimpleNamespace:
    return SimpleNamespace(routes=[SimpleNamespace(src="10.0.1.1", dst="10.0.2.1", subflows=list(subflows))])


END_OF_STREAM = SimpleNamespace(routes=[])


def test_whole_and_unpinned_flows_are_not_divided() -> None:
    assert shares_of(message((1.0, 0, 0))) == shares_of(message()) == {}


def test_the_connections_of_a_subflow_have_equal_parts_of_its_share() -> None:
    told = reporting_message((0.6, [40_001, 40_004]), (0.4, [40_002, 50_000]))
    (pieces,) = shares_of(told).values()
    assert weights_of(pieces, [40_002, 40_001, 40_004]) == (200, 300, 300), "port 50000 is a listener's"


class Stream:
    """A controller whose route stream sends the messages of ``send``, and ends at ``END_OF_STREAM``."""

    def __init__(self) -> None:
        self.connections = 0
        self.queue: list[SimpleNamespace] = []
        self.changed = threading.Condition()

    def connect(self) -> Stream:
        self.connections += 1
        return self

    def watch_routes(self, _: str) -> Iterator[SimpleNamespace]:
        with self.changed:
            while True:
                self.changed.wait_for(lambda: bool(self.queue), DEADLINE_S)
                first = self.queue.pop(0)
                if first is END_OF_STREAM:
                    raise ConnectionError("the controller was killed")
                yield first

    def send(self, message: SimpleNamespace) -> None:
        with self.changed:
            self.queue.append(message)
            self.changed.notify_all()

    def close(self) -> None:
        self.send(END_OF_STREAM)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_ranks_read_what_the_listener_heard_and_shares_stay_when_the_controller_goes(
    tmp_path: Path,
) -> None:
    stream, shares, written = Stream(), SharesFile(tmp_path), SharesFile(tmp_path)
    assert not shares.read_again()
    with RouteListener(stream.connect, "job", lambda routes: written.write(shares_of(routes)), retry_s=0.01):
        stream.send(message((0.5, 0, 2), (0.5, 2, 2)))
        wait_until(shares.read_again)
        assert shares.subflows("10.0.1.1", "10.0.2.1") == [(0.5, 0, 2), (0.5, 2, 2)]
        assert shares.subflows("10.0.2.1", "10.0.1.1") == ()
        assert not shares.read_again(), "it did not change"
        stream.send(END_OF_STREAM)
        wait_until(lambda: stream.connections > 1)
        assert not shares.read_again()
        stream.send(message((1.0, 0, 0)))
        wait_until(shares.read_again)
        assert shares.subflows("10.0.1.1", "10.0.2.1") == ()


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
