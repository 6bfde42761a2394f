"""The three parts of Crux: paths, priorities, and their compression to a few classes.

Source: Cao et al., "Crux: GPU-efficient communication scheduling for deep learning training", SIGCOMM 2024, section 4.
The intensity of a job is its work per second of communication. Jobs with higher intensities choose their paths first,
and go first on links that they share.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from controller.planning.contention.fluid import Case, Choice, Choices, TimedJob, guaranteed_s

ORDERS = 10
"""Number of random topological orders that the compression tries."""


def crux(case: Case, ranks: int, seed: int = 1) -> Choices:
    """Return what Crux chooses, with ``ranks`` classes."""
    ways = paths(case)
    classes = compressed(case, ways, priorities(case, ways), ranks, seed)
    return {job: Choice(way, rank) for job, (way, rank) in enumerate(zip(ways, classes, strict=True))}


def intensity(case: Case, number: int, way: int) -> float:
    """Return I = W / t: work per second that the job's bits take on the slowest of its links.

    NICs are among its links; there the bits take the ideal communication time."""
    job = case.jobs[number]
    loads = [bps / case.capacity_bps[link] for link, bps in job.average_bps(way).items()]
    return job.work / max([job.sending_s, *(load * job.ideal_s for load in loads)])


def paths(case: Case) -> list[int]:
    """Return the way of each job: jobs with higher intensities choose first, each the least congested links."""
    numbers = range(len(case.jobs))
    load: defaultdict[int, float] = defaultdict(float)
    chosen = [0 for _ in numbers]

    def congestion(number: int, way: int) -> tuple[float, float]:
        loads = [load[link] + bps / case.capacity_bps[link] for link, bps in case.jobs[number].average_bps(way).items()]
        return max(loads, default=0.0), sum(loads)

    for number in sorted(numbers, key=lambda each: -intensity(case, each, 0)):
        job = case.jobs[number]
        way = chosen[number] = min(range(len(job.ways)), key=lambda each: congestion(number, each))
        for link, bps in job.average_bps(way).items():
            load[link] += bps / case.capacity_bps[link]
    return chosen


def priorities(case: Case, ways: Sequence[int]) -> list[float]:
    """Return P = k x I of each job. The correction k compares a job with the job that has the most traffic."""
    numbers = range(len(case.jobs))
    bits = [sum(case.jobs[n].average_bps(ways[n]).values()) * case.jobs[n].ideal_s for n in numbers]
    reference = max(numbers, key=bits.__getitem__)
    corrections = [1.0 if n == reference else correction(case.jobs[reference], case.jobs[n]) for n in numbers]
    return [k * intensity(case, n, ways[n]) for n, k in zip(numbers, corrections, strict=True)]


def correction(reference: TimedJob, job: TimedJob) -> float:
    """Return k, so that k x I of the job equals I of the reference when it does not matter which of them goes first.

    Both share one link. Going first brings a job a larger part of the time on the link; k is the ratio of the parts."""
    alone = tuple(replace(each, ways=(({0: 1.0},) * len(each.phases),)) for each in (reference, job))
    gains = []
    for ranks in ((0, 1), (1, 0)):
        took_s = guaranteed_s(Case((1.0,), alone, floor=0.0), {n: Choice(0, rank) for n, rank in enumerate(ranks)})
        gains.append([each.sending_s / took_s[n] for n, each in enumerate(alone)])
    first, second = gains
    lost = first[0] - second[0]
    return (second[1] - first[1]) / lost if lost > 0 else 1.0


def compressed(case: Case, ways: Sequence[int], priority: Sequence[float], ranks: int, seed: int = 1) -> list[int]:
    """Return the class of each job, which keeps as much intensity as possible between jobs of different classes.

    Two jobs that share a link have an edge from the higher priority to the lower, with the intensity of the former as
    its weight. Classes are segments of a topological order. A dynamic programme finds the best segments of an order:
    f(i, k) = max over j of f(j, k - 1) + C(j, i), where C(j, i) is the weight of the edges from the first j jobs to the
    jobs j + 1 to i. The best of ``ORDERS`` random orders is taken."""
    edges = edges_of(case, ways, priority)
    chance = random.Random(seed)
    best: tuple[float, list[int]] = (-1.0, [])
    for _ in range(ORDERS):
        order = _random_order(len(case.jobs), edges, chance)
        best = max(best, _best_segments(order, edges, ranks), key=lambda each: each[0])
    return best[1]


Edges = Mapping[tuple[int, int], float]
"""Weight of each edge from a job to a job of lower priority."""


def edges_of(case: Case, ways: Sequence[int], priority: Sequence[float]) -> Edges:
    edges = {}
    for pair in combinations(range(len(case.jobs)), 2):
        high, low = sorted(pair, key=lambda number: (-priority[number], number))
        if case.jobs[high].peaks[ways[high]].keys() & case.jobs[low].peaks[ways[low]].keys():
            edges[high, low] = intensity(case, high, ways[high])
    return edges


def _random_order(count: int, edges: Edges, chance: random.Random) -> list[int]:
    order: list[int] = []
    above = Counter(low for _, low in edges)
    below = defaultdict(list)
    for high, low in edges:
        below[high].append(low)
    ready = [number for number in range(count) if not above[number]]
    while ready:
        order.append(ready.pop(chance.randrange(len(ready))))
        for low in below[order[-1]]:
            above[low] -= 1
            if not above[low]:
                ready.append(low)
    return order


def _best_segments(order: Sequence[int], edges: Edges, ranks: int) -> tuple[float, list[int]]:
    count, place = len(order), {number: at for at, number in enumerate(order)}
    weights = np.zeros((count + 1, count + 1))
    for (high, low), weight in edges.items():
        weights[place[high] + 1, place[low] + 1] = weight
    sums = weights.cumsum(axis=0).cumsum(axis=1)
    between = sums - np.diag(sums)[:, None]
    """Weight of the edges from the first j jobs (row) to the jobs j + 1 to i (column)."""
    between[np.tril_indices(count + 1, -1)] = -np.inf
    best, cuts = np.zeros(count + 1), []
    for _ in range(1, ranks):
        total = best[:, None] + between
        cuts.append(total.argmax(axis=0))
        best = total.max(axis=0)
    rank_of, end = {}, count
    for rank in range(ranks - 1, -1, -1):
        begin = int(cuts[rank - 1][end]) if rank else 0
        rank_of.update(dict.fromkeys(order[begin:end], rank))
        end = begin
    return float(best[count]), [rank_of[number] for number in range(count)]
