"""Wirings that have lost interfaces: rings get their circuits back, and no working circuit is given up needlessly."""

from __future__ import annotations

import numpy as np

from controller.circuits.wiring.circuits import (
    UNREACHED,
    Circuit,
    Floats,
    Port,
    Wiring,
    circulant,
    hops_between,
    spread,
)
from controller.circuits.wiring.mending import mended


def ring(servers: int, step: int, size: float) -> Floats:
    sent = np.zeros((servers, servers))
    for server in range(servers):
        sent[server, (server + step) % servers] = size
    return sent


def everywhere(servers: int, size: float) -> Floats:
    return size * (1 - np.eye(servers))


def fullest(sent: Floats, wiring: Wiring) -> float:
    return float(spread(wiring, hops_between(wiring), sent).max())


def test_a_circuit_kept_for_pairs_repairs_a_ring() -> None:
    wiring = circulant(6, [1, 5, 2])
    sent = {0: everywhere(6, 1.0), 1: ring(6, 1, 100.0)}
    assert mended(sent, wiring, (), ()) == wiring, "nothing is lost"
    dead = {Port(2, 0)}
    found = mended(sent, wiring, (), dead)
    assert all(circuit.src not in dead and circuit.dst not in dead for circuit in found.circuits)
    hops = hops_between(found)
    assert fullest(sent[1], found) == 100.0
    assert [hops[n, (n + 1) % 6] for n in range(6)] == [1] * 6, "neighbours in the ring stay neighbours"
    assert not (hops == UNREACHED).any()


def test_what_is_left_on_the_optical_switch_is_joined() -> None:
    wiring = circulant(5, [1])
    found = mended({0: ring(5, 1, 1.0)}, wiring, (), {Port(3, 0)})
    assert found.peers == ((1, 2, 4, None, 0),)


def test_a_circuit_that_is_dark_one_way_is_not_made_again() -> None:
    wiring = circulant(4, [1, 3])
    lost = Circuit(Port(0, 0), Port(1, 0))
    found = mended({0: ring(4, 1, 1.0)}, wiring, [lost], ())
    assert lost not in found.circuits
    assert fullest(ring(4, 1, 1.0), found) == 1.0


def test_when_half_of_an_optical_switch_is_dead_the_other_half_is_joined_in_a_ring() -> None:
    wiring = circulant(12, [1, 5])
    found = mended({0: everywhere(12, 1.0)}, wiring, (), {Port(server, 0) for server in range(0, 12, 2)})
    assert sum(peer is not None for peer in found.peers[0]) == 6
    assert not (hops_between(found) == UNREACHED).any()


def test_nothing_is_made_at_an_optical_switch_that_is_fixed() -> None:
    wiring = circulant(5, [1, 2])
    found = mended({0: ring(5, 1, 1.0)}, wiring, (), {Port(1, 0), Port(3, 1)}, {1})
    assert found.peers[1] == (2, None, 4, None, 1)
    assert found.peers[0] == (2, None, 3, 4, 0)
