"""Steps of rings and the hops over them: published figures, breadth-first search, brute force and CP-SAT."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.design.exact import best_steps, least_mean_hops
from controller.wiring.circuits import Wiring, circulant
from controller.wiring.hops import (
    UNREACHED,
    diameter,
    hops_between,
    hops_by_offset,
    mean_hops,
    total_and_most,
)
from controller.wiring.rings import chosen_steps, geometric_steps, ring_order, totient_steps
from tests.unit.wiring.test_circuits import wirings


def graph_of(wiring: Wiring) -> nx.MultiDiGraph[int]:
    graph: nx.MultiDiGraph[int] = nx.MultiDiGraph()
    graph.add_nodes_from(range(wiring.servers))
    graph.add_edges_from((circuit.src.server, circuit.dst.server) for circuit in wiring.circuits)
    return graph


@pytest.mark.parametrize(
    ("servers", "steps", "most", "mean"),
    [
        (12, (1, 5), 5, 2.73),
        (12, (1, 5, 7), 4, 2.18),
        (12, (1, 5, 7, 11), 3, 1.82),
        (16, (1, 3, 7), 4, 2.27),
        (128, (1, 5, 25), 12, 6.05),
        (128, (1, 3, 11, 37), 8, 4.52),
    ],
)
def test_published_steps_have_their_published_hops(
    servers: int, steps: tuple[int, ...], most: int, mean: float
) -> None:
    hops = hops_between(circulant(servers, steps))
    assert (diameter(hops), round(mean_hops(hops), 2)) == (most, mean)
    found = total_and_most(servers, steps)
    assert found == (sum(hops_by_offset(servers, steps)), most)


@pytest.mark.parametrize(
    ("servers", "steps"), [(12, (1, 5)), (16, (1, 3, 7)), (128, (1, 5, 25)), (128, (1, 3, 11, 37)), (7, (1,))]
)
def test_near_geometric_steps_are_the_published_ones(servers: int, steps: tuple[int, ...]) -> None:
    assert geometric_steps(servers, len(steps)) == steps


def test_where_there_are_fewer_steps_than_rings_they_come_again() -> None:
    assert totient_steps(6) == (1, 5)
    assert sorted(geometric_steps(6, 5)) == [1, 1, 1, 5, 5]
    assert geometric_steps(2, 3) == (1, 1, 1)


@given(wirings())
def test_hops_are_those_of_a_breadth_first_search(wiring: Wiring) -> None:
    expected = dict(nx.all_pairs_shortest_path_length(graph_of(wiring)))
    found = hops_between(wiring)
    for a in range(wiring.servers):
        assert found[a].tolist() == [expected[a].get(b, UNREACHED) for b in range(wiring.servers)]


@given(st.integers(2, 40), st.lists(st.integers(1, 39), min_size=1, max_size=4))
def test_hops_of_a_circulant_wiring_too(servers: int, numbers: list[int]) -> None:
    steps = [1 + number % (servers - 1) for number in numbers]
    expected = nx.single_source_shortest_path_length(graph_of(circulant(servers, steps)), 0)
    by_offset = hops_by_offset(servers, steps)
    assert by_offset == tuple(expected.get(offset, UNREACHED) for offset in range(servers))
    every = total_and_most(servers, steps)
    assert every == (None if UNREACHED in by_offset else (sum(by_offset), max(by_offset)))


@given(wirings(), st.integers(0, 9))
def test_no_wiring_is_below_the_bound_of_hops(wiring: Wiring, seed: int) -> None:
    weights = np.random.default_rng(seed).integers(0, 5, (wiring.servers, wiring.servers)).astype(float)
    np.fill_diagonal(weights, 0.0)
    assert least_mean_hops(weights, wiring.interfaces) <= mean_hops(hops_between(wiring), weights) + 1e-9


def test_the_bound_of_hops_is_reached_where_servers_send_to_their_neighbours() -> None:
    weights = np.roll(np.eye(5), 1, axis=1) + np.roll(np.eye(5), 2, axis=1) / 2
    assert least_mean_hops(weights, 2) == 1.0
    assert least_mean_hops(weights, 1) == pytest.approx((1 + 2 * 0.5) / 1.5)


@given(st.integers(2, 40), st.integers(1, 5))
def test_every_chosen_ring_visits_all_servers(servers: int, rings: int) -> None:
    found = chosen_steps(servers, rings)
    assert found is not None
    assert len(found.all) == rings
    for step in found.rings:
        assert sorted(ring_order(range(servers), step)) == list(range(servers))
    hops = hops_between(circulant(servers, found.all))
    assert diameter(hops) == found.most
    assert mean_hops(hops) == pytest.approx(found.mean)
    published = total_and_most(servers, geometric_steps(servers, rings))
    assert published is not None
    assert found.mean <= published[0] / (servers - 1) + 1e-9


def test_a_step_that_divides_a_group_is_no_ring() -> None:
    assert ring_order((10, 20, 30, 40, 50), 2) == (10, 30, 50, 20, 40)
    with pytest.raises(ValueError, match="several rings"):
        ring_order(range(6), 2)


def brute_force(servers: int, interfaces: int, rings: int, weights: list[float]) -> tuple[float, int]:
    """The least mean and then the least diameter of any steps."""
    best = (math.inf, 0)
    for steps in combinations(range(1, servers), min(interfaces, servers - 1)):
        hops = hops_by_offset(servers, steps)
        enough = sum(math.gcd(step, servers) == 1 for step in steps) >= rings
        if enough and UNREACHED not in hops:
            mean = sum(h * w for h, w in zip(hops, weights, strict=True)) / sum(weights[1:])
            best = min(best, (round(mean, 9), max(hops)))
    return best


@pytest.mark.parametrize(("servers", "interfaces", "rings"), [(7, 2, 2), (8, 2, 1), (9, 3, 1), (10, 2, 0), (12, 3, 3)])
def test_exact_steps_are_those_of_brute_force(servers: int, interfaces: int, rings: int) -> None:
    found, proven = best_steps(servers, interfaces, rings)
    assert proven
    assert len(found.rings) == rings
    assert all(math.gcd(step, servers) == 1 for step in found.rings)
    assert (round(found.mean, 9), found.most) == brute_force(servers, interfaces, rings, [0.0] + [1.0] * (servers - 1))


def test_exact_steps_for_weights_are_those_of_brute_force() -> None:
    weights = [0.0, 1.0, 2.0, 50.0, 2.0, 1.0, 1.0, 40.0, 3.0]
    found, proven = best_steps(9, 2, 1, weights)
    assert proven
    assert (round(found.mean, 9), found.most) == brute_force(9, 2, 1, weights)
    assert set(found.all) == {3, 7}


@pytest.mark.parametrize(("servers", "interfaces"), [(12, 2), (12, 3), (12, 4)])
def test_chosen_steps_are_the_best_of_rings_on_twelve_servers(servers: int, interfaces: int) -> None:
    found = chosen_steps(servers, interfaces)
    assert found is not None
    best, proven = best_steps(servers, interfaces, interfaces)
    assert proven
    assert found.mean == pytest.approx(best.mean)


@pytest.mark.parametrize("wrong", [(1, 1, 1), (25, 2, 1), (12, 2, 3), (12, 0, 0)])
def test_exact_steps_have_limits(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="exact steps are for"):
        best_steps(*wrong)


@settings(max_examples=20)
@given(st.integers(4, 16), st.integers(1, 3), st.integers(0, 9))
def test_steps_follow_the_weights(servers: int, others: int, seed: int) -> None:
    weights: Any = np.random.default_rng(seed).integers(0, 9, servers).astype(float)
    weights[0], weights[-1] = 0.0, 100.0
    found = chosen_steps(servers, 1, others, weights.tolist())
    alike = chosen_steps(servers, 1, others)
    assert found is not None
    assert alike is not None
    hops = np.array(hops_by_offset(servers, alike.all))
    assert found.mean <= hops @ weights / weights.sum() + 1e-9
    assert found.mean == pytest.approx(np.array(hops_by_offset(servers, found.all)) @ weights / weights.sum())
