"""Rates are max-min fair, and connections end when their bits are sent."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.simulator import fluid
from controller.simulator.fluid import Fluid, max_min_rates

Case = tuple[list[float], list[tuple[int, ...]], list[float]]


@st.composite
def networks(draw: st.DrawFn, most_connections: int = 40) -> Case:
    """Capacities, paths over them, weights: few values, so that ties are common."""
    capacities = draw(st.lists(st.sampled_from([0.5, 1.0, 1.0, 3.0, 10.0]), min_size=1, max_size=8))
    path = st.lists(st.integers(0, len(capacities) - 1), min_size=1, max_size=4, unique=True).map(tuple)
    paths = draw(st.lists(path, min_size=1, max_size=most_connections))
    weight = st.sampled_from([1.0, 1.0, 0.25, 2.0]) | st.floats(0.01, 5.0)
    weights = draw(st.lists(weight, min_size=len(paths), max_size=len(paths)))
    return capacities, paths, weights


def assert_max_min(case: Case, rates: list[float]) -> None:
    """The certificate (Bertsekas and Gallager, section 6.5.2): no link carries too much, and every connection crosses a
    full link on which nobody has more per weight."""
    capacities, paths, weights = case
    load = [
        sum(rate for path, rate in zip(paths, rates, strict=True) if link in path) for link in range(len(capacities))
    ]
    assert all(used <= capacity * (1 + 1e-9) for used, capacity in zip(load, capacities, strict=True))
    normal = [rate / weight for rate, weight in zip(rates, weights, strict=True)]
    for path, mine in zip(paths, normal, strict=True):
        assert any(
            load[link] >= capacities[link] * (1 - 1e-9)
            and all(mine >= other * (1 - 1e-9) for other, its in zip(normal, paths, strict=True) if link in its)
            for link in path
        )


@given(networks())
def test_rates_carry_the_max_min_certificate(case: Case) -> None:
    capacities, paths, weights = case
    assert_max_min(case, max_min_rates(capacities, paths, np.array(weights)).tolist())


@given(networks(most_connections=5))
@settings(max_examples=50)
def test_rates_are_lexicographically_largest(case: Case) -> None:
    """Brute force: in whatever order links fill up, nobody's smallest share is larger."""
    capacities, paths, weights = case
    best = sorted(max_min_rates(capacities, paths, np.array(weights)) / weights)
    for order in itertools.permutations(range(len(capacities)), min(4, len(capacities))):
        left, rates = list(capacities), [0.0] * len(paths)
        for link in (*order, *range(len(capacities))):
            on_it = [i for i, path in enumerate(paths) if link in path and not rates[i]]
            for i in on_it:
                rates[i] = weights[i] * min(
                    left[hop] / sum(weights[j] for j, path in enumerate(paths) if hop in path and not rates[j])
                    for hop in paths[i]
                )
                for hop in paths[i]:
                    left[hop] -= rates[i]
        other = sorted(rate / weight for rate, weight in zip(rates, weights, strict=True))
        assert not any(
            theirs > mine * (1 + 1e-9) and all(math.isclose(a, b) for a, b in zip(other[:at], best[:at], strict=True))
            for at, (theirs, mine) in enumerate(zip(other, best, strict=True))
        )


def test_equal_weights_share_a_link_and_leave_the_rest_to_others() -> None:
    """The classical chain: two share the narrow link, the third takes what is left of the wide one."""
    assert max_min_rates([1.0, 2.0], [(0,), (0, 1), (1,)], np.ones(3)).tolist() == [0.5, 0.5, 1.5]


def test_a_connection_without_links_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one link"):
        max_min_rates([1.0], [()], np.ones(1))
    with pytest.raises(ValueError, match="at least one link"):
        Fluid([1.0]).connect(())


@given(networks(), st.data())
def test_only_what_an_event_reaches_is_computed_and_it_is_right(case: Case, data: st.DataObject) -> None:
    """After any starts, stops and ends, the rates of those that still send carry the certificate."""
    capacities, paths, weights = case
    network = Fluid(capacities)
    numbers = [network.connect(path, weight) for path, weight in zip(paths, weights, strict=True)]
    sending: set[int] = set()
    for number in data.draw(st.lists(st.sampled_from(numbers), max_size=30)):
        if number in sending:
            network.stop(number)
            sending.remove(number)
        else:
            network.start(number, data.draw(st.sampled_from([1.0, 1.0, 2.5])))
            sending.add(number)
        if data.draw(st.booleans()):
            sending -= set(network.advance(network.now_s + 0.4))
        rates = network.rates_bps()
        assert set(rates) == sending
        order = sorted(rates)
        if order:
            on = (capacities, [paths[n] for n in order], [weights[n] for n in order])
            assert_max_min(on, [rates[n] for n in order])


@pytest.mark.parametrize("few", [0, 1000])
@pytest.mark.parametrize("reach", [0, 1000])
@given(case=networks())
@settings(max_examples=30)
def test_both_ways_to_compute_agree(few: int, reach: int, case: Case) -> None:
    capacities, paths, weights = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fluid, "FEW", few)
        patch.setattr(fluid, "REACH", reach)
        network = Fluid(capacities)
        for path, weight in zip(paths, weights, strict=True):
            network.start(network.connect(path, weight), 1.0)
        expected = max_min_rates(capacities, paths, np.array(weights))
        assert list(network.rates_bps().values()) == pytest.approx(expected.tolist(), rel=1e-9)


def test_the_one_that_stays_takes_what_the_other_leaves() -> None:
    network = Fluid([10.0])
    short, long = network.connect((0,)), network.connect((0,))
    network.start(short, 10.0)
    network.start(long, 30.0)
    assert network.advance(math.inf) == [short]
    assert network.now_s == 2.0
    assert network.rates_bps() == {long: 10.0}
    assert network.advance(math.inf) == [long]
    assert network.now_s == 4.0


def test_equal_connections_end_together() -> None:
    network = Fluid([3.0])
    trio = [network.connect((0,)) for _ in range(3)]
    for connection in trio:
        network.start(connection, 0.1)
    assert network.advance(math.inf) == trio
    assert network.now_s == pytest.approx(0.1)


def test_the_clock_stops_where_it_is_told_to() -> None:
    network = Fluid([1.0])
    connection = network.connect((0,))
    network.start(connection, 5.0)
    assert network.advance(2.0) == []
    assert network.now_s == 2.0
    assert network.stop(connection) == 3.0
    assert network.stop(connection) == 0.0
    with pytest.raises(ValueError, match="nothing is sending"):
        network.advance(math.inf)


def test_a_connection_is_rerouted_only_when_idle() -> None:
    network = Fluid([1.0, 4.0, 4.0])
    connection = network.connect((0,))
    network.start(connection, 8.0)
    with pytest.raises(ValueError, match="is sending"):
        network.route(connection, (1,))
    network.stop(connection)
    network.route(connection, (1, 2), 3.0)
    network.start(connection, 8.0)
    assert network.advance(math.inf) == [connection]
    assert network.now_s == 2.0


@given(networks(), st.lists(st.floats(0.1, 10.0), min_size=40, max_size=40))
def test_every_bit_arrives_once(case: Case, sizes: list[float]) -> None:
    """Sum over the intervals of rate x time is what each had to send."""
    capacities, paths, weights = case
    network = Fluid(capacities)
    left = {network.connect(path, weight): size for path, weight, size in zip(paths, weights, sizes, strict=False)}
    size_of = dict(left)
    for connection, size in left.items():
        network.start(connection, size)
    carried = dict.fromkeys(left, 0.0)
    while left:
        before, rates = network.now_s, network.rates_bps()
        for connection in network.advance(math.inf):
            del left[connection]
            carried[connection] += rates[connection] * (network.now_s - before)
            assert carried[connection] == pytest.approx(size_of[connection], rel=1e-6)
        for connection in left:
            carried[connection] += rates[connection] * (network.now_s - before)
