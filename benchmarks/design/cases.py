"""Random design questions, each answered by ``offline.design`` and by an independent search (``independent``)."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from benchmarks.design.independent import Case, searched
from offline.design.bandwidth import fastest
from offline.design.question import Limits, Objective, Question, Relation, Term
from offline.design.time_cost import best_product


class Outcome(NamedTuple):
    """Comparison of our answer with the independent one.

    ``gap``: how far our answer may be from the optimum, relative to its proven bound. ``others``: how much worse the
    independent answer is, relative to ours; negative if it is better."""

    objective: Objective
    gap: float
    others: float


def random_case(seed: int) -> Case:
    """Return a random case with feasible limits.

    It has 2 to 4 dimensions and 1 to 7 terms. The amounts of data span four powers of ten."""
    rng = np.random.default_rng(seed)
    dimensions, terms = int(rng.integers(2, 5)), int(rng.integers(1, 8))
    gigabits = 10 ** rng.uniform(-2, 2, (terms, dimensions)) * (rng.random((terms, dimensions)) < 0.7)
    gigabits[0] = np.maximum(gigabits[0], 0.01)
    by_cost = seed % 2 == 1
    inside = rng.dirichlet(np.ones(dimensions)) * 100  # satisfies all limits
    limited = rng.random((2, dimensions)) < 0.3
    cost = 10 ** rng.uniform(0, 2, dimensions)
    by_budget = rng.random() < 0.4
    case = Case(
        weight=rng.uniform(0.1, 3, terms),
        floor=np.where(rng.random(terms) < 0.3, 10 ** rng.uniform(-3, 1, terms), 0.0),
        gigabits=gigabits,
        least=np.where(limited[0], inside * rng.uniform(0.1, 0.9, dimensions), 0.0),
        most=np.where(limited[1], inside * rng.uniform(1.1, 3, dimensions), math.inf),
        cost=cost,
        total=100.0 if by_cost or not by_budget or rng.random() < 0.5 else math.inf,
        budget=float(cost @ inside * rng.uniform(1.05, 2)) if by_budget else math.inf,
        by_cost=by_cost,
        relations=np.zeros((0, dimensions)),
    )
    if rng.random() < 0.3:
        more, less = rng.choice(dimensions, 2, replace=False)
        relation = np.zeros(dimensions)
        relation[more], relation[less] = 1.0, -rng.uniform(0.5, 1) * inside[more] / inside[less]
        case = replace(case, relations=relation[None])
    return case


def question_of(case: Case) -> Question:
    terms = zip(case.weight.tolist(), case.gigabits.tolist(), case.floor.tolist(), strict=True)
    least, most, cost = (tuple(map(float, each)) for each in (case.least, case.most, case.cost))
    total, budget = (None if math.isinf(limit) else limit for limit in (case.total, case.budget))
    return Question(
        tuple(f"dimension {d}" for d in range(len(least))),
        tuple(Term(weight, tuple(gigabits), floor_s) for weight, gigabits, floor_s in terms),
        Limits(least, most, cost, total, budget, tuple(Relation(tuple(row), 0.0) for row in case.relations.tolist())),
    )


def compared(seed: int) -> Outcome:
    """Compare both answers to the case of a seed, with values computed by ``Case.values``."""
    case = random_case(seed)
    if case.by_cost:
        tradeoff = best_product(question_of(case))
        objective, gap, gbps = Objective.TIME_COST, tradeoff.gap, tradeoff.design.gbps
    else:
        design = fastest(question_of(case))
        objective, gap, gbps = Objective.TIME, design.gap, design.gbps
    ours = float(case.values(np.array([gbps])).min())
    _, others = searched(case, seed)
    return Outcome(objective, gap, others / ours - 1)
