"""Fibre pairs that are not connected as configured, detected from the places where probes arrive."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controller.circuits.fibres import Circuits, FibreState, cabling_of
from controller.fabric.topology import PortRef
from tests.support.optical_fabric import FIRST_OPTICAL, ref

SERVERS = 6
CABLING = cabling_of({(FIRST_OPTICAL + k, n): (n, 2 + k) for n in range(1, SERVERS + 1) for k in (0, 1)})
EVERY = frozenset(CABLING.fibre_of)
NONE: frozenset[tuple[PortRef, PortRef]] = frozenset()


def circuits(peers: Mapping[int, int], port: int = 2) -> dict[PortRef, PortRef]:
    return {ref(src, port): ref(dst, port) for src, dst in peers.items()}


RING = circuits({1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 6: 1})
PAIR = frozenset((ref(1, 2), ref(2, 2)))


def swapped(made: Circuits, one: PortRef, other: PortRef) -> Circuits:
    """Return the places where probes arrive when the fibres of these two interfaces are swapped."""
    at = {one: other, other: one}
    return {at.get(src, src): at.get(dst, dst) for src, dst in made.items()}


def looked(state: FibreState, made: Circuits, heard: Circuits, now: float = 0.0) -> FibreState:
    for tick in range(40):
        state.follow(made, NONE, heard, EVERY, False, now + tick / 10)
    return state


def test_optical_switches_are_read_before_anything_is_said_of_their_fibres() -> None:
    state = FibreState(CABLING)
    asked = [state.follow(RING, NONE, swapped(RING, *PAIR), EVERY, False, tick / 10) for tick in range(40)]
    assert [each for each in asked if each] == [{FIRST_OPTICAL}]
    others = circuits({1: 3, 3: 1, 2: 4, 4: 2})
    state = FibreState(CABLING)
    for tick in range(20):
        state.follow(RING, NONE, others, EVERY, False, tick / 10)
    looked(state, others, others, now=2.0)
    assert not state.swaps
    assert not state.misrouted


def test_swapped_fibre_pairs_are_found_and_nothing_else_is_said() -> None:
    state = looked(FibreState(CABLING), RING, swapped(RING, *PAIR))
    assert state.swaps == {PAIR}
    assert not state.misrouted
    assert state.partners() == {ref(1, 2): (ref(2, 2),), ref(2, 2): (ref(1, 2),)}
    heard = swapped(swapped(RING, *PAIR), ref(4, 2), ref(5, 2))
    assert looked(FibreState(CABLING), RING, heard).swaps == {PAIR, frozenset((ref(4, 2), ref(5, 2)))}


def test_what_other_swaps_would_explain_as_well_is_not_said_of_one() -> None:
    """Any two servers of a ring of three may be swapped to reverse its direction."""
    ring = circuits({1: 2, 2: 3, 3: 1})
    state = looked(FibreState(CABLING), ring, swapped(ring, *PAIR))
    assert len(state.swaps) == 3
    assert state.partners()[ref(1, 2)] == (ref(2, 2), ref(3, 2))
    other = circuits({1: 4, 4: 1, 2: 3, 3: 2})
    looked(state, other, swapped(other, *PAIR), now=10.0)
    assert state.swaps == {PAIR}, "other circuits tell which"


def test_what_no_swap_of_two_explains_is_told_as_it_is_heard() -> None:
    moved = swapped(swapped(RING, ref(1, 2), ref(3, 2)), ref(3, 2), ref(5, 2))
    state = looked(FibreState(CABLING), RING, moved)
    assert not state.swaps
    assert state.misrouted == {src: dst for src, dst in moved.items() if RING[src] != dst}


@pytest.mark.parametrize("heard", [{}, {ref(3, 2): ref(4, 2)}])
def test_a_change_of_circuits_neither_ends_nor_raises_what_was_found(heard: Circuits) -> None:
    state = looked(FibreState(CABLING), RING, swapped(RING, *PAIR))
    looked(state, circuits({1: 3, 3: 4, 4: 1}), heard, now=10.0)
    assert state.swaps == {PAIR}
    fresh = FibreState(CABLING)
    for tick in range(100):
        fresh.follow(RING, NONE, swapped(RING, *PAIR), EVERY, True, tick / 10)
    assert not fresh.swaps


def test_probes_that_arrive_as_configured_or_a_port_without_light_end_it() -> None:
    state = looked(FibreState(CABLING), RING, swapped(RING, *PAIR))
    looked(state, RING, RING, now=10.0)
    assert not state.swaps
    looked(state, RING, swapped(RING, *PAIR), now=20.0)
    state.follow(RING, NONE, {}, EVERY - {ref(2, 2)}, False, 30.0)
    assert not state.swaps


def test_a_circuit_by_which_no_probes_came_is_told_until_both_of_its_ends_are_heard_or_dark() -> None:
    state = FibreState(CABLING)
    lost = (ref(1, 2), ref(2, 2))
    state.follow(RING, frozenset([lost]), {}, EVERY, False, 0.0)
    others = circuits({1: 3, 3: 1, 4: 2})
    state.follow(others, NONE, circuits({3: 1, 4: 2}), EVERY, False, 10.0)
    assert state.silent == {lost}, "nothing was heard from server1"
    state.follow(others, NONE, others, EVERY, False, 20.0)
    assert not state.silent
    state.follow(RING, frozenset([lost]), {}, EVERY, False, 30.0)
    state.follow(RING, NONE, {}, EVERY - {ref(1, 2)}, False, 40.0)
    assert not state.silent, "that it has no light is told"
