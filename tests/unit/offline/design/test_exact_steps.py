"""The best steps of circulant wirings, and the bound of hops, against brute force and random wirings."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.circuits.wiring.circuits import UNREACHED, Wiring, hops_between, hops_by_offset, mean_hops
from controller.circuits.wiring.rings import chosen_steps
from offline.design.exact import best_steps, least_mean_hops
from tests.unit.circuits.wiring.test_circuits import wirings


@given(wirings(), st.integers(0, 9))
def test_no_wiring_is_below_the_bound_of_hops(wiring: Wiring, seed: int) -> None:
    weights = np.random.default_rng(seed).integers(0, 5, (wiring.servers, wiring.servers)).astype(float)
    np.fill_diagonal(weights, 0.0)
    assert least_mean_hops(weights, wiring.interfaces) <= mean_hops(hops_between(wiring), weights) + 1e-9


def test_the_bound_of_hops_is_reached_where_servers_send_to_their_neighbours() -> None:
    weights = np.roll(np.eye(5), 1, axis=1) + np.roll(np.eye(5), 2, axis=1) / 2
    assert least_mean_hops(weights, 2) == 1.0
    assert least_mean_hops(weights, 1) == pytest.approx((1 + 2 * 0.5) / 1.5)


def brute_force(servers: int, interfaces: int, rings: int, weights: list[float]) -> tuple[float, int]:
    """Return the smallest mean of hops over all choices of steps, and the smallest diameter with that mean."""
    best = (math.inf, 0)
    for steps in combinations(range(1, servers), min(interfaces, servers - 1)):
        hops = hops_by_offset(servers, steps)
        enough = sum(math.gcd(step, servers) == 1 for step in steps) >= rings
        if enough and UNREACHED not in hops:
            mean = sum(h * w for h, w in zip(hops, weights, strict=True)) / sum(weights[1:])
            best = min(best, (round(mean, 9), max(hops)))
    return best


@pytest.mark.parametrize(("servers", "interfaces", "rings"), [(8, 2, 1), (10, 2, 0), (12, 3, 3)])
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
    with pytest.raises(ValueError, match=r"the exact search supports 2 to|the number of ring steps must be"):
        best_steps(*wrong)
