"""Wirings: the limits of optical switches, parts of a fabric, and the changes between two wirings."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from controller.circuits.wiring.circuits import Circuit, Port, Wiring, circulant


@st.composite
def wirings(draw: st.DrawFn) -> Wiring:
    """Draw a wiring of partial permutations in which no server sends to itself."""
    count = draw(st.integers(2, 9))
    layers = []
    for _ in range(draw(st.integers(1, 4))):
        order = draw(st.permutations(range(count)))
        dark = draw(st.sets(st.integers(0, count - 1)))
        layers.append(tuple(None if peer == server or server in dark else peer for server, peer in enumerate(order)))
    return Wiring(count, tuple(layers))


def test_a_circuit_is_from_one_interface_to_the_same_interface_over_the_switch_of_its_number() -> None:
    wiring = Wiring(3, ((1, None, 0), (None, 2, None)))
    assert wiring.circuits == (
        Circuit(Port(0, 0), Port(1, 0)),
        Circuit(Port(2, 0), Port(0, 0)),
        Circuit(Port(1, 1), Port(2, 1)),
    )
    assert [circuit.switch for circuit in wiring.circuits] == [0, 0, 1]
    assert wiring.successors == ((1,), (2,), (0,))
    assert wiring.steps is None


@pytest.mark.parametrize(
    ("servers", "peers", "message"),
    [
        (3, ((1, 1, None),), "two servers send to the same server through interface 0"),
        (3, ((1, 2, 0), (None, 1, None)), "a server sends to itself through interface 1"),
        (3, ((1, 2),), "interface 0 needs a receiving server from 0 to 2"),
        (3, ((1, 2, 3),), "interface 0 needs a receiving server from 0 to 2"),
        (0, (), "at least one server"),
    ],
)
def test_what_no_optical_switch_can_do_is_refused(
    servers: int, peers: tuple[tuple[int | None, ...], ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Wiring(servers, peers)


def test_the_steps_of_a_circulant_wiring_are_known() -> None:
    assert circulant(12, [1, 5]).steps == (1, 5)
    assert circulant(12, [1, 5]).successors[11] == (0, 4)
    with pytest.raises(ValueError, match="to itself"):
        circulant(12, [12])


def test_two_jobs_are_wired_beside_each_other_without_a_common_port() -> None:
    fabric = circulant(3, [1]).placed([4, 0, 2], 6).beside(circulant(2, [1]).placed([1, 5], 6))
    assert fabric.peers == ((2, 5, 4, None, 0, 1),)
    assert {circuit.src for circuit in fabric.circuits}.isdisjoint({Port(3, 0)})
    with pytest.raises(ValueError, match="both wirings send through the same port"):
        fabric.beside(circulant(2, [1]).placed([5, 3], 6))
    with pytest.raises(ValueError, match="different sizes"):
        fabric.beside(circulant(6, [1, 5]))
    for at in ([0, 0], [0], [0, 6]):
        with pytest.raises(ValueError, match="2 different server numbers from 0 to 5"):
            circulant(2, [1]).placed(at, 6)
