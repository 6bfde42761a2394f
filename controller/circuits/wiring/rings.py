"""Steps of ring permutations: all possible steps, near-geometric steps, and steps that suit other traffic.

In a ring over n servers each server sends to the server whose number is higher by ``step`` (modulo n). The ring visits
all servers exactly when the step is coprime to n. Every such ring takes the same time for an all-reduce. Therefore the
steps can be chosen for the other traffic, which uses the circuits of all rings. This follows Wang et al., "TopoOpt:
Co-optimizing Network Topology and Parallelization Strategy for Distributed Training Jobs", NSDI 2023 (TotientPerms and
SelectPermutations). Near-geometric steps keep the diameter of d rings within d n^(1/d)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from controller.circuits.wiring.hops import Floats, total_and_most, weighed_and_most

MOST_TRIED = 20_000
"""Number of sets of steps that a search considers."""


def totient_steps(servers: int) -> tuple[int, ...]:
    """Return the steps of rings over all servers, ascending: those below the number of servers and coprime to it."""
    return tuple(step for step in range(1, servers) if math.gcd(step, servers) == 1)


def geometric_steps(servers: int, rings: int) -> tuple[int, ...]:
    """Return near-geometric steps of rings, starting with 1.

    Each further step is the unused step closest to n^(1/rings) times the previous one; of two equally close steps it is
    the smaller. When there are fewer steps than rings, steps are repeated, which gives parallel rings."""
    allowed = totient_steps(servers)
    chosen: list[int] = []
    ratio = servers ** (1 / rings) if rings else 1.0
    while allowed and len(chosen) < rings:
        left = [step for step in allowed if step not in chosen[len(chosen) - len(chosen) % len(allowed) :]]
        aim = chosen[-1] * ratio if len(chosen) % len(allowed) else 1.0
        chosen.append(min(left, key=lambda step: (abs(step - aim), step)))
    return tuple(chosen)


class Steps(NamedTuple):
    """Steps of a circulant wiring."""

    rings: tuple[int, ...]
    """Steps of rings, coprime to the number of servers."""
    others: tuple[int, ...]
    """Steps of circuits that no ring uses."""
    mean: float
    """Mean number of hops over all offsets, with the weights that the search was given."""
    most: int
    """Largest number of hops of any offset."""

    @property
    def all(self) -> tuple[int, ...]:
        return self.rings + self.others


def chosen_steps(
    servers: int, rings: int, others: int = 0, weights: Sequence[float] | None = None, tried: int = MOST_TRIED
) -> Steps | None:
    """Return near-geometric steps, changed one by one as long as the mean number of hops decreases.

    ``others``: number of steps that no ring uses. ``weights``: weight of each offset, None for equal weights.
    ``tried``: number of sets of steps to consider.

    Return None when the steps do not connect all servers."""
    if servers < 2 or rings + others < 1:
        return None
    start = [*geometric_steps(servers, rings)]
    start += [step for step in _geometric(servers, rings + others) if step not in start][:others]
    start += [1] * (rings + others - len(start))
    cost = _cost(servers, weights)
    best, now = cost(start), list(start)
    # Multiplying all steps by a number coprime to n permutes the hops. So with equal weights one ring can have step 1.
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
    """Return the members in the order of the ring with this step over their positions.

    Raises ``ValueError`` when the step is not coprime to the number of members, which would give several rings."""
    size = len(members)
    if math.gcd(step, size) != 1:
        raise ValueError(f"step {step} divides {size} servers into several rings")
    return tuple(members[place * step % size] for place in range(size))


Cost = tuple[float, float]
"""Mean and largest number of hops, compared in this order."""


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
    """Return the integers near 1, n^(1/steps), n^(2/steps) and so on, then all other steps in ascending order."""
    ratio = servers ** (1 / steps)
    near = (round(ratio**place) for place in range(steps))
    return (step for step in dict.fromkeys([*near, *range(1, servers)]) if 0 < step < servers)
