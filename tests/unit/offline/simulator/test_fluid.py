"""Rates are max-min fair, and connections end when their bits are sent."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline.simulator import fluid
from offline.simulator.fluid import Fluid

Case = tuple[list[float], list[dict[int, float]], list[float]]


@st.composite
def networks(draw: st.DrawFn) -> Case:
    """Draw capacities, links of each connection, and weights: few values, so that ties are common."""
    capacities = draw(st.lists(st.sampled_from([0.5, 1.0, 1.0, 3.0, 10.0]), min_size=1, max_size=8))
    part = st.sampled_from([1.0, 1.0, 1.0, 0.5, 0.03])
    used = st.dictionaries(st.integers(0, len(capacities) - 1), part, min_size=1, max_size=4)
    uses = draw(st.lists(used, min_size=1, max_size=40))
    weight = st.sampled_from([1.0, 1.0, 0.25, 2.0]) | st.floats(0.01, 5.0)
    weights = draw(st.lists(weight, min_size=len(uses), max_size=len(uses)))
    return capacities, uses, weights


def loads(case: Case, rates: list[float]) -> list[float]:
    capacities, uses, _ = case
    return [
        sum(rate * used.get(link, 0) for used, rate in zip(uses, rates, strict=True)) for link in range(len(capacities))
    ]


def assert_max_min(case: Case, rates: list[float]) -> None:
    """Assert the certificate of max-min fairness (Bertsekas and Gallager, section 6.5.2).

    No link carries too much, and every connection uses a full link on which no other connection has a higher rate per
    weight."""
    capacities, uses, weights = case
    load = loads(case, rates)
    assert all(carried <= capacity * (1 + 1e-9) for carried, capacity in zip(load, capacities, strict=True))
    normal = [rate / weight for rate, weight in zip(rates, weights, strict=True)]
    most = [
        max((rate for rate, used in zip(normal, uses, strict=True) if link in used), default=0)
        for link in range(len(capacities))
    ]
    for used, mine in zip(uses, normal, strict=True):
        assert any(load[link] >= capacities[link] * (1 - 1e-9) and mine >= most[link] * (1 - 1e-9) for link in used)


def rates_of(case: Case, few: int = 0) -> list[float]:
    """Return the rates when all connections send; up to ``few`` of them are computed without numpy."""
    capacities, uses, weights = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fluid, "FEW", few)
        network = Fluid(capacities)
        for used, weight in zip(uses, weights, strict=True):
            network.start(network.connect(used, weight), 1.0)
        return list(network.rates_bps().values())


@given(networks())
def test_rates_carry_the_max_min_certificate(case: Case) -> None:
    assert_max_min(case, rates_of(case))


@pytest.mark.parametrize("few", [0, 1000])
@pytest.mark.parametrize("reach", [0, 1000])
def test_a_common_queue_is_empty_when_its_connections_together_have_sent_it(
    few: int, reach: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two connections send 2 and 3 bit/s from the queue.

    From 1 s on a third connection has half of the narrow link, until it has sent 2 bits."""
    monkeypatch.setattr(fluid, "FEW", few)
    monkeypatch.setattr(fluid, "REACH", reach)
    network = Fluid([2.0, 3.0])
    narrow, wide, other = (network.connect({link: 1.0}) for link in (0, 1, 0))
    network.start(narrow, 18.0, [wide])
    assert network.rates_bps() == {narrow: 5.0}
    assert network.advance(1.0) == []
    network.start(other, 2.0)
    assert network.rates_bps() == {narrow: 4.0, other: 1.0}
    assert network.advance(math.inf) == [other]
    assert network.now_s == pytest.approx(3.0)
    assert network.advance(math.inf) == [narrow]
    assert network.now_s == pytest.approx(4.0)
    network.start(wide, 3.0)
    assert network.rates_bps() == {wide: 3.0}, "a helper is idle afterwards"
    network.start(narrow, 8.0)
    network.stop(wide)
    network.start(narrow := network.connect({0: 1.0}), 4.0, [wide])
    assert network.stop(narrow) == 4.0
    assert set(network.rates_bps()) == {0}


@given(networks(), st.data())
def test_only_what_an_event_reaches_is_computed_and_it_is_right(case: Case, data: st.DataObject) -> None:
    """After any starts, stops and ends, the rates of the sending connections carry the certificate."""
    capacities, uses, weights = case
    network = Fluid(capacities)
    numbers = [network.connect(used, weight) for used, weight in zip(uses, weights, strict=True)]
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
            on = (capacities, [uses[n] for n in order], [weights[n] for n in order])
            assert_max_min(on, [rates[n] for n in order])


@pytest.mark.parametrize(("few", "reach"), [(0, 0), (1000, 0), (1000, 1000)])
@given(case=networks())
@settings(max_examples=20)
def test_both_ways_to_compute_agree(few: int, reach: int, case: Case) -> None:
    expected = rates_of(case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fluid, "REACH", reach)
        assert rates_of(case, few) == pytest.approx(expected, rel=1e-9)


def test_the_clock_stops_at_the_given_time() -> None:
    network = Fluid([1.0])
    connection = network.connect({0: 1.0})
    network.start(connection, 5.0)
    assert network.advance(2.0) == []
    assert network.now_s == 2.0
    assert network.stop(connection) == 3.0
    assert network.stop(connection) == 0.0
    with pytest.raises(ValueError, match="nothing is sending"):
        network.advance(math.inf)


def test_a_connection_is_rerouted_only_when_idle() -> None:
    network = Fluid([1.0, 4.0, 4.0])
    connection = network.connect({0: 1.0})
    network.start(connection, 8.0)
    with pytest.raises(ValueError, match="is sending"):
        network.route(connection, {1: 1.0})
    with pytest.raises(ValueError, match="at least one link"):
        network.connect({})
    network.stop(connection)
    network.route(connection, {1: 1.0, 2: 1.0}, 3.0)
    network.start(connection, 8.0)
    assert network.advance(math.inf) == [connection]
    assert network.now_s == 2.0


@given(networks(), st.lists(st.floats(0.1, 10.0), min_size=40, max_size=40))
def test_every_bit_arrives_once(case: Case, sizes: list[float]) -> None:
    """The sum over the intervals of rate x time is what each connection had to send."""
    capacities, uses, weights = case
    network = Fluid(capacities)
    left = {network.connect(used, weight): size for used, weight, size in zip(uses, weights, sizes, strict=False)}
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
