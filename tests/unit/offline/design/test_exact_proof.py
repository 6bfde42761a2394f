"""Best steps of a wiring, and their proof."""

import math
import random
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.circuits.wiring.circuits import UNREACHED, Wiring, hops_between, hops_by_offset, mean_hops
from controller.circuits.wiring.rings import chosen_steps
from offline.design.bandwidth import fastest
from offline.design.box import box
from offline.design.exact import best_steps, least_mean_hops
from offline.design.proof import Design, Floats
from offline.design.question import Limits, Question, Relation, Term
from offline.design.time_cost import best_product
from signalbox.errors import InvalidInput
from tests.unit.circuits.wiring.test_circuits import wirings

BITS = 400


def root(value: Fraction) -> Fraction:
    """Return a number that is at most the square root, and near to it."""
    return Fraction(math.isqrt((value.numerator << 2 * BITS) // value.denominator), 1 << BITS)


def exact_time(question: Question, gbps: tuple[float, ...]) -> Fraction:
    found = Fraction()
    for term in question.terms:
        times = [Fraction(a) / Fraction(b) for a, b in zip(term.gigabits, gbps, strict=True) if a]
        found += Fraction(term.weight) * max([Fraction(term.floor_s), *times])
    return found


def exact_bound(question: Question, design: Design, least: Floats, most: Floats) -> Fraction:
    """Return the bound that the design's prices prove.

    Shares whose digits do not sum up to 1 are divided by their sum."""
    limits, proof = question.limits, design.proof
    sums = [
        Fraction(f) + sum(map(Fraction, row))
        for f, row in zip(proof.floor.tolist(), proof.shares.tolist(), strict=True)
    ]
    found = sum(
        (
            Fraction(term.weight) * Fraction(term.floor_s) * Fraction(share) / whole
            for term, share, whole in zip(question.terms, proof.floor.tolist(), sums, strict=True)
        ),
        Fraction(),
    )
    for d, (low, high) in enumerate(zip(map(Fraction, least.tolist()), map(Fraction, most.tolist()), strict=True)):
        load = sum(
            Fraction(term.weight) * Fraction(term.gigabits[d]) * Fraction(float(row[d])) / whole
            for term, row, whole in zip(question.terms, proof.shares, sums, strict=True)
        )
        price = Fraction(proof.total_s) + Fraction(proof.budget_s) * Fraction(limits.cost[d])
        price += sum(
            Fraction(s) * Fraction(r.factors[d]) for s, r in zip(proof.relations_s, limits.relations, strict=True)
        )
        if price > 0 and load > 0 and price * low * low < load < price * high * high:
            found += 2 * root(load * price)
            continue
        at = high if price <= 0 or load > price * low * low else low
        found += (load / at if load else 0) + price * at
    found -= Fraction(proof.total_s) * Fraction(limits.total or 0)
    found -= Fraction(proof.budget_s) * Fraction(limits.budget or 0)
    for price_s, relation in zip(proof.relations_s, limits.relations, strict=True):
        if price_s:
            found -= Fraction(price_s) * Fraction(relation.most if price_s > 0 else relation.least)
    return found


def unequal(chance: random.Random, related: bool) -> Question:
    """Return a question of up to 8 dimensions and 10 terms, whose numbers differ by up to 14 powers of ten."""
    n, span = chance.randint(1, 8), chance.choice([1, 4, 14])

    def some(share: float = 1.0) -> float:
        return float(10 ** chance.uniform(-span / 2 * share, span / 2 * share))

    terms = tuple(
        Term(some(), tuple(chance.choice([0, 1, 1]) * some() for _ in range(n)), chance.choice([1e-9, 1]) * some())
        for _ in range(chance.choice([1, 2, 10]))
    )
    total = 10 ** chance.uniform(-1, 4)
    least = tuple(max(1e-6, chance.choice([0, 0, 1]) * total / n * 10 ** chance.uniform(-4, 0)) for _ in range(n))
    most = tuple(chance.choice([math.inf, max(low, total * 10 ** chance.uniform(-3, 0))]) for low in least)
    cost = tuple(some(0.5) for _ in range(n))
    cheap = sum(c * low for c, low in zip(cost, least, strict=True))
    budget = chance.choice([None, cheap + total * min(cost) * 10 ** chance.uniform(-1, 1)])
    relations = [Relation(tuple(chance.choice([0.0, 1.0, -2.0]) for _ in range(n)), 0.0) for _ in range(2 * related)]
    used = tuple(each for each in relations if any(each.factors))
    return Question(tuple("abcdefgh"[:n]), terms, Limits(least, most, cost, total, budget, used))


@pytest.mark.parametrize("related", [False, True])
@pytest.mark.parametrize("number", [40, pytest.param(200, marks=pytest.mark.long)])
def test_no_gap_is_smaller_than_what_fractions_say(number: int, related: bool) -> None:
    chance, answered = random.Random(5), 0
    for _ in range(number):
        question = unequal(chance, related)
        try:
            design = fastest(question)
        except InvalidInput:
            continue
        answered += 1
        time_s = exact_time(question, design.gbps)
        bound_s = exact_bound(question, design, *box(question))
        assert design.time_s == pytest.approx(float(time_s), rel=1e-12)
        assert 1 - bound_s / time_s <= design.gap + 1e-11
        assert design.gap <= 1e-6
        assert question.limits.allow(design.gbps)
    assert answered > number / 6


@pytest.mark.parametrize("number", [8, pytest.param(40, marks=pytest.mark.long)])
def test_time_x_cost_is_within_the_limits_or_refused(number: int) -> None:
    """A question is refused when its budget does not pay for all of the total."""
    chance, answered = random.Random(6), 0
    for _ in range(number):
        question = unequal(chance, related=False)
        try:
            design = best_product(question).design
        except InvalidInput:
            continue
        answered += 1
        assert question.limits.allow(design.gbps)
        assert math.fsum(design.gbps) == pytest.approx(question.limits.total, rel=1e-8)
    assert answered > number / 4


def test_a_budget_below_the_cheapest_use_of_the_total_is_refused() -> None:
    """Dimension a takes 5, its limit, of the total of 10. Dimension b takes the rest, so the cost is 5 * 1 + 5 * 3.

    The free dimension takes none, because it sends nothing."""
    limits = Limits((0.0,) * 3, (5.0, math.inf, math.inf), (1.0, 3.0, 0.0), total=10.0, budget=19.0)
    with pytest.raises(InvalidInput) as error:
        best_product(Question(("a", "b", "free"), (Term(1.0, (1.0, 1.0, 0.0)),), limits))
    (problem,) = error.value.problems
    assert (problem.path, "at least the cost of all total_gbps, 20 (" in problem.message) == ("budget", True)


def test_what_is_not_short_is_worth_nothing() -> None:
    """The first question's upper limits add up to less than the total. The second's lower limits use up the total."""
    terms = (Term(1.0, (12.0, 1.0)),)
    spare = fastest(Question(("a", "b"), terms, Limits((0.0, 0.0), (4.0, 4.0), (0.0, 0.0), total=20.0)))
    assert (spare.proof.total_s, spare.gap <= 1e-9) == (0, True)
    used = fastest(Question(("a", "b"), terms, Limits((4.0, 4.0), (math.inf,) * 2, (0.0, 0.0), total=8.0)))
    assert used.proof.total_s == pytest.approx(12 / 4**2)
    assert used.gap <= 1e-9


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
