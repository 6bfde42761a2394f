"""Steps of ring permutations: those that there are, those that make the other traffic's ways short, and the best.

A ring over n servers in which each sends to the one ``step`` higher (modulo n) visits all of them exactly when the step
is coprime to n, and every such ring takes the same time for an all-reduce. So the steps can be chosen for the other
traffic, which passes circuits of all rings: Wang et al., "TopoOpt: Co-optimizing Network Topology and Parallelization
Strategy for Distributed Training Jobs", NSDI 2023 (TotientPerms and SelectPermutations). Near-geometric steps keep the
diameter within d n^(1/d) of d rings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from controller.circuits.wiring.hops import Floats, total_and_most, weighed_and_most

MOST_TRIED = 20_000
"""Sets of steps that a search looks at."""


def totient_steps(servers: int) -> tuple[int, ...]:
    """The steps of rings over all servers, ascending: coprime to their number, and smaller."""
    return tuple(step for step in range(1, servers) if math.gcd(step, servers) == 1)


def geometric_steps(servers: int, rings: int) -> tuple[int, ...]:
    """1, and then each time the step of a ring, not taken yet, that is closest to n^(1/rings) times the one before; of
    two as close the smaller one. Where there are fewer steps than rings, they come again: rings beside each other."""
    allowed = totient_steps(servers)
    chosen: list[int] = []
    ratio = servers ** (1 / rings) if rings else 1.0
    while allowed and len(chosen) < rings:
        left = [step for step in allowed if step not in chosen[len(chosen) - len(chosen) % len(allowed) :]]
        aim = chosen[-1] * ratio if len(chosen) % len(allowed) else 1.0
        chosen.append(min(left, key=lambda step: (abs(step - aim), step)))
    return tuple(chosen)


class Steps(NamedTuple):
    """``rings``: coprime to the number of servers. ``others``: any steps, for circuits that no ring uses. ``mean``: of
    hops, by the weights that were asked for; ``most``: of any offset."""

    rings: tuple[int, ...]
    others: tuple[int, ...]
    mean: float
    most: int

    @property
    def all(self) -> tuple[int, ...]:
        return self.rings + self.others


def chosen_steps(
    servers: int, rings: int, others: int = 0, weights: Sequence[float] | None = None, tried: int = MOST_TRIED
) -> Steps | None:
    """Near-geometric steps, each changed then as long as the mean of the hops falls. ``weights``: of each offset, None
    for all alike; ``others``: further steps. At most ``tried`` sets are looked at. None where too few servers are
    connected."""
    if servers < 2 or rings + others < 1:
        return None
    start = [*geometric_steps(servers, rings)]
    start += [step for step in _geometric(servers, rings + others) if step not in start][:others]
    start += [1] * (rings + others - len(start))
    cost = _cost(servers, weights)
    best, now = cost(start), list(start)
    # All steps times one that is coprime to n have the same hops, so where all offsets are alike one ring has step 1.
    left, fixed = tried, rings > 0 and weights is None
    kinds = [totient_steps(servers)] * rings + [tuple(range(1, servers))] * others
    better = True
    while better and left > 0:
        better = False
        for place in range(int(fixed), len(now)):
            for step in kinds[place]:
                left -= 1
                other = [*now[:place], step, *now[place + 1 :]]
                if left > 0 and step not in now and (found := cost(other)) < best:
                    best, now, better = found, other, True
    return None if math.isinf(best[0]) else Steps(tuple(now[:rings]), tuple(now[rings:]), best[0], int(best[1]))


def ring_order(members: Sequence[int], step: int) -> tuple[int, ...]:
    """The members in the order of the ring with this step over their places. Raises ``ValueError`` when the step is not
    coprime to their number: that would be several rings."""
    size = len(members)
    if math.gcd(step, size) != 1:
        raise ValueError(f"step {step} divides {size} servers into several rings")
    return tuple(members[place * step % size] for place in range(size))


Cost = tuple[float, float]
"""Mean of hops, and the most; compared in this order."""


def _cost(servers: int, weights: Sequence[float] | None) -> Callable[[Sequence[int]], Cost]:
    if weights is None:

        def alike(steps: Sequence[int]) -> Cost:
            found = total_and_most(servers, steps)
            return (found[0] / (servers - 1), found[1]) if found else (math.inf, math.inf)

        return alike
    weighed: Floats = np.array(weights, float)
    total = float(weighed[1:].sum()) or 1.0

    def by_weight(steps: Sequence[int]) -> Cost:
        found = weighed_and_most(servers, steps, weighed)
        return (found[0] / total, found[1]) if found else (math.inf, math.inf)

    return by_weight


def _geometric(servers: int, steps: int) -> Iterable[int]:
    """Whole numbers near 1, n^(1/steps), n^(2/steps) and so on, each once; then the smallest that are left."""
    ratio = servers ** (1 / steps)
    near = (round(ratio**place) for place in range(steps))
    return (step for step in dict.fromkeys([*near, *range(1, servers)]) if 0 < step < servers)
