"""The division of bytes over the connections to a peer."""

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mininet_topos.trainer.sockets import PARTS, RoundRobin, SharesFile, bind_in_class, weights_of
from signalbox.jobs.subflows import PortClass, port_classes

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


def test_a_share_goes_to_the_connection_whose_port_is_in_its_class() -> None:
    classes = port_classes(3)
    ports = [40_000 & ~each.mask | each.value | 1 for each in classes]
    subflows = [(0.75, *classes[2]), (0.25, *classes[0])]
    assert weights_of(subflows, ports) == (250, 0, 750)
    assert weights_of([(0.9999, *classes[0]), (0.0001, *classes[1])], ports) == (1000, 1, 0), "no subflow is left out"
    assert weights_of([], ports) == (PARTS, 0, 0)
    assert weights_of([(1.0, 0x20, 0x20)], [0, 2]) == (PARTS, 0), "no connection has such a port"
    several = [(0.3, 40_001, 0xFFFF), (0.3, 40_004, 0xFFFF), (0.2, 40_002, 0xFFFF), (0.2, 50_000, 0xFFFF)]
    assert weights_of(several, [40_002, 40_001, 40_004]) == (200, 300, 300), "port 50000 is a listener's"


def test_ranks_read_what_was_written_last(tmp_path: Path) -> None:
    shares, written = SharesFile(tmp_path), SharesFile(tmp_path)
    assert not shares.read_again()
    written.write({"10.0.1.1>10.0.2.1": [(0.5, 0, 2), (0.5, 2, 2)]})
    assert shares.read_again()
    assert shares.subflows("10.0.1.1", "10.0.2.1") == [(0.5, 0, 2), (0.5, 2, 2)]
    assert shares.subflows("10.0.2.1", "10.0.1.1") == ()
    assert not shares.read_again(), "it did not change"
    written.write({})
    assert shares.read_again()
    assert shares.subflows("10.0.1.1", "10.0.2.1") == ()


@pytest.mark.parametrize("ports", port_classes(16)[::8])
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
