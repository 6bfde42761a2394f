"""The best bandwidths: closed forms, limits, the value of the next Gbit/s, and proofs that need no solver."""

import math
from typing import Any

import numpy as np
import pytest

from offline.design.bandwidth import fastest
from offline.design.question import Limits, Question, Relation, Term
from offline.design.time_cost import best_product
from signalbox.errors import InvalidInput


def question(*terms: Term, **limits: Any) -> Question:
    n = len(terms[0].gigabits)
    defaults = {"least": (0.0,) * n, "most": (math.inf,) * n, "cost": (1.0,) * n}
    return Question(tuple("abcd"[:n]), terms, Limits(**defaults | limits))


X, Y = Term(1.0, (9.0, 0.0)), Term(1.0, (0.0, 1.0))


def related(*relations: Relation, **limits: Any) -> Question:
    """Return a question with these relations; without them 9 / x + 1 / y has its minimum at (6, 2), where x + y = 8."""
    return question(X, Y, relations=relations, **limits)


def refused(asked: Question) -> tuple[str, str]:
    with pytest.raises(InvalidInput) as error:
        fastest(asked)
    problem = error.value.problems[0]
    return problem.path, problem.message


HALF, FREE = Relation((1.0, -2.0), most=0.0), math.inf
THREE = Term(1.0, (9.0, 0.0, 0.0)), Term(1.0, (0.0, 9.0, 0.0)), Term(1.0, (0.0, 0.0, 4.0))
BEST = {
    "one collective: in proportion to what it sends": (
        question(Term(2.0, (30.0, 6.0, 4.0)), total=100.0), (75, 15, 10), 2 * 0.4),
    "what follows each other: to the roots; 9 / x + 1 / (8 - x) is least at 6": (related(total=8.0), (6, 2), 2),
    "computing for 3 s overlaps: 10 Gbit/s are enough for 30 Gbit": (
        question(Term(1.0, (30.0, 0.0), 3.0), Term(1.0, (0.0, 40.0)), total=50.0), (10, 40), 4),
    "a budget: the minimum of 9 / x + 1 / y under x + 4y <= 5 is at x = 3, y = 1/2": (
        related(cost=(1.0, 4.0), budget=5.0), (3, 0.5), 5),
    "limits of dimensions hold and the rest is divided": (
        question(*THREE, least=(0.0, 0.0, 5.0), most=(2.0, FREE, FREE), total=10.0), (2, 3, 5), 8.3),
    "a relation may be all limits that a dimension has": (related(HALF, most=(FREE, 3.0)), (6, 3), 11 / 6),
}  # fmt: skip


@pytest.mark.parametrize(("asked", "gbps", "time_s"), BEST.values(), ids=BEST)
def test_the_best_bandwidths_are_those_of_closed_forms(asked: Question, gbps: tuple[float, ...], time_s: float) -> None:
    design = fastest(asked)
    assert design.gbps == pytest.approx(gbps, rel=1e-5)
    assert design.time_s == pytest.approx(time_s)
    assert design.gap < 1e-9


def test_nothing_that_is_sent_needs_no_bandwidth() -> None:
    design = fastest(question(Term(1.0, (0.0, 0.0), 7.0), least=(0.0, 3.0), total=8.0))
    assert (design.gbps, design.time_s, design.gap) == ((0, 3), 7, 0)


@pytest.mark.parametrize("limit", ["total", "budget"])
def test_a_price_is_what_the_next_unit_takes_off_the_time(limit: str) -> None:
    terms = Term(1.0, (9.0, 2.0)), Term(3.0, (0.0, 1.0)), Term(0.5, (4.0, 4.0), 0.1)
    asked, more, less = (question(*terms, cost=(1.0, 3.0), **{limit: 8.0 + d}) for d in (0, 1e-3, -1e-3))
    price = getattr(fastest(asked).proof, f"{limit}_s")
    assert price == pytest.approx((fastest(less).time_s - fastest(more).time_s) / 2e-3, rel=1e-4)


@pytest.mark.parametrize(("limits", "path", "message"), [
    ({}, "dimensions[0]", "'a' has no limit: give total_gbps, max_gbps, or a budget and cost_per_gbps"),
    ({"total": 8.0, "least": (5.0, 4.0)}, "total_gbps",
     "must be at least the sum of the least bandwidths, 9 (given: 8)"),
    ({"budget": 8.0, "least": (5.0, 4.0)}, "budget", "must be at least the cost of the least bandwidths, 9 (given: 8)"),
    ({"total": 5.0, "least": (5.0, 0.0)}, "dimensions[1]", "the limits leave no bandwidth for 'b', in which jobs send"),
    ({"total": 8.0, "relations": (Relation((1.0, -1.0), least=10.0),)},
     "relations", "leave no bandwidths within the other limits"),
])  # fmt: skip
def test_limits_that_leave_no_answer_are_refused(limits: dict[str, Any], path: str, message: str) -> None:
    assert refused(question(Term(1.0, (9.0, 2.0)), **limits)) == (path, message)


# ---- relations between dimensions


@pytest.mark.parametrize("relations", [
    [Relation((1.0, -2.0), most=0.0)],
    [Relation((-0.5, 1.0), least=0.0)],
    [Relation((1.0, -2.0), 0.0, 0.0)],
    [Relation((1.0, -2.0), most=0.0), Relation((1.0, -1.0), least=0.0)],
], ids=["at most", "at least", "equal", "two"])  # fmt: skip
def test_a_relation_holds_and_has_a_price(relations: list[Relation]) -> None:
    """The relation x = 2 y gives 16/3 and 8/3.

    The prices l of the total and p of the relation solve 9/x^2 = l + p and 1/y^2 = l - 2 p."""
    design = fastest(related(*relations, total=8.0))
    assert design.gbps == pytest.approx((16 / 3, 8 / 3), rel=1e-5)
    assert design.time_s == pytest.approx(27 / 16 + 3 / 8)
    assert design.gap < 1e-9
    price = design.proof.relations_s[0] * relations[0].factors[0]
    assert price == pytest.approx((81 / 256 - 9 / 64) / 3, rel=1e-3)


def test_a_dimension_in_which_no_job_sends_cannot_be_in_a_relation() -> None:
    path, message = refused(question(*THREE[:2], relations=(Relation((1.0, 0.0, -1.0), 0.0),), total=8.0))
    assert (path, message) == ("relations[0]", "no job sends in 'c', so this dimension cannot be in a relation")


def test_time_x_cost_keeps_relations() -> None:
    """The time is 9 / x + 1 / y and the cost x + 4 y = 14; x = 2 y is as near to the best x = 6 y as allowed."""
    tradeoff = best_product(related(Relation((1.0, -2.0), most=0.0), cost=(1.0, 4.0), total=7.0))
    assert tradeoff.design.gbps == pytest.approx((14 / 3, 7 / 3), rel=1e-5)
    assert tradeoff.product == pytest.approx((27 / 14 + 3 / 7) * 14)
    assert tradeoff.gap < 1e-6


@pytest.mark.parametrize("seed", range(20))
def test_no_random_bandwidths_are_better_than_the_answers(seed: int) -> None:
    """Amounts of data span four powers of ten; every second question has limits and a relation in some dimension."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 5))
    sent = 10 ** rng.uniform(-2, 2, (int(rng.integers(1, 8)), n)) * (rng.random(n) < 0.7)
    sent[0] = np.maximum(sent[0], 0.01)
    floors = np.where(rng.random(len(sent)) < 0.3, 10 ** rng.uniform(-3, 1, len(sent)), 0.0)
    terms = [
        Term(float(rng.uniform(0.1, 3)), tuple(each.tolist()), float(s)) for each, s in zip(sent, floors, strict=True)
    ]
    cost = tuple((10 ** rng.uniform(0, 2, n)).tolist())
    inside, points = 100 * rng.dirichlet(np.ones(n)), 100 * rng.dirichlet(np.ones(n), 20_000)
    limits: dict[str, Any] = {"cost": cost, "total": 100.0}
    if seed % 2:
        limits |= {"least": (0.5 * inside[0], *(0.0,) * (n - 1)), "most": (*(math.inf,) * (n - 1), 1.5 * inside[-1])}
        limits |= {"relations": (Relation((1.0, -inside[0] / inside[1], *(0.0,) * (n - 2)), least=0.0),)}
        points = points[(points[:, 0] >= 0.5 * inside[0]) & (points[:, -1] <= 1.5 * inside[-1])]
        points = points[points[:, 0] >= points[:, 1] * inside[0] / inside[1]]
    asked = question(*terms, **limits)
    times = np.maximum(floors, (sent / points[:, None, :]).max(axis=2)) @ [term.weight for term in terms]
    design, tradeoff = fastest(asked), best_product(asked)
    assert max(design.gap, tradeoff.gap) < 1e-6
    assert design.time_s <= times.min() * (1 + 1e-6)
    assert tradeoff.product <= (times * (points @ cost)).min() * (1 + 1e-6)
    assert design.time_s == pytest.approx(asked.time_s(design.gbps))
    gbps = tradeoff.design.gbps
    assert tradeoff.product == pytest.approx(asked.time_s(gbps) * asked.limits.cost_of(gbps))


# ---- time x cost


def test_time_x_cost_is_least_among_all_splits() -> None:
    terms = Term(1.0, (9.0, 1.0), 0.2), Term(2.0, (0.5, 1.0)), Term(1.0, (0.0, 0.0), 1.5)
    asked = question(*terms, cost=(1.0, 7.0), total=7.0)
    tradeoff = best_product(asked)
    splits = [(first, 7.0 - first) for first in np.linspace(0.001, 6.999, 5000)]
    least = min(asked.time_s(split) * asked.limits.cost_of(split) for split in splits)
    assert tradeoff.bound <= tradeoff.product <= least * (1 + 1e-9)
    assert tradeoff.gap < 1e-6


@pytest.mark.parametrize("objective", [fastest, best_product])
def test_a_dimension_in_which_nothing_is_sent_gets_what_it_must(objective: Any) -> None:
    asked = question(Term(1.0, (9.0, 0.0, 1.0)), least=(0.0, 0.5, 0.0), cost=(2.0, 1.0, 3.0), total=8.0, budget=23.0)
    found = objective(asked)
    assert (found if objective is fastest else found.design).gbps[1] == 0.5
    assert found.gap < 1e-6


def test_time_x_cost_needs_a_total_and_the_cost_of_what_is_used() -> None:
    with pytest.raises(InvalidInput, match=r"dimensions\[1\].cost_per_gbps: is needed for time x cost"):
        best_product(question(Term(1.0, (9.0, 1.0, 0.0)), cost=(2.0, 0.0, 0.0), total=7.0))
    with pytest.raises(InvalidInput, match="total_gbps: is needed for time x cost: without it the smallest network"):
        best_product(question(Term(1.0, (9.0, 1.0)), budget=7.0))


# ---- value of the next Gbit/s of the total for time x cost

_SENDS = (Term(1.0, (40.0, 8.0, 12.0)), Term(1.0, (3.0, 20.0, 5.0), 0.4))
_HALF_OF = Relation((1.0, -2.0, 0.0), most=0.0)


@pytest.mark.parametrize(
    ("computing_s", "limits"),
    [
        pytest.param(2.0, {"cost": (1.0, 3.0, 9.0)}, id="no other limits"),
        pytest.param(2.0, {"cost": (1.0, 3.0, 9.0), "most": (30.0, math.inf, math.inf)}, id="one has what it may have"),
        pytest.param(900.0, {"cost": (1.0, 9.0, 300.0), "least": (0.0, 15.0, 11.0)}, id="the cheapest network is best"),
        pytest.param(2.0, {"cost": (1.0, 3.0, 9.0), "relations": (_HALF_OF,)}, id="a relation"),
        pytest.param(2.0, {"cost": (5.0, 3.0, 1.0), "budget": 230.0}, id="the budget is too low for the best"),
    ],
)
def test_the_next_gbps_of_a_total_is_worth_what_one_more_takes_off_time_x_cost(
    computing_s: float, limits: dict[str, Any]
) -> None:
    terms = (*_SENDS, Term(1.0, (0.0, 0.0, 0.0), computing_s))
    there, *around = (best_product(question(*terms, total=total, **limits)) for total in (100.0, 99.9, 100.1))
    assert there.gap < 1e-6
    assert there.worth_of_total == pytest.approx((around[0].product - around[1].product) / 0.2, rel=1e-2)
