"""Small cases by the recipe of Crux (SIGCOMM 2024, section 6), and its worked example.

At most 20 hosts, two to four leaves, two aggregation switches, five jobs. Each leaf has one cable to each aggregation
switch, so leaves with more than two hosts are oversubscribed. A job has a ring over its hosts, in the order of the
leaves; each flow of the ring between two leaves takes one of the two aggregation switches.
"""

from __future__ import annotations

import random
from itertools import pairwise, product

from controller.planning.contention.fluid import Case, Phase, TimedJob
from signalbox.jobs.spec import JobId

JOBS, CLASSES, SPINES = 5, 3, 2
MOST_HOSTS = 20
GPUS = 8
"""GPUs per host."""

ONE_LINK = ({0: 1.0},)
WORKED_EXAMPLE = Case(
    (1.0,),
    (
        TimedJob(JobId("long"), (Phase(2.0, 2.0),), (ONE_LINK,), 10.0),
        TimedJob(JobId("short"), (Phase(1.0, 1.0),), (ONE_LINK,), 5.0),
    ),
    floor=0.0,
)
"""Two jobs of 10 GPUs each, of equal intensity, on one link.

If the long job goes first, 37.5 % of the GPUs' time is used; if the short job goes first, 41.7 %."""


def crux_case(seed: int, floor: float = 0.0) -> Case:
    """Return a random case of five jobs. A NIC has the rate 1, and so has each cable."""
    chance = random.Random(seed)
    leaves = chance.randint(2, 4)
    per_leaf = MOST_HOSTS // leaves if leaves > 2 else chance.randint(6, MOST_HOSTS // leaves)
    hosts = [leaf for leaf in range(leaves) for _ in range(per_leaf)]
    chance.shuffle(hosts)
    cuts = [0, *sorted(chance.sample(range(1, len(hosts) // 2), JOBS - 1)), len(hosts) // 2]
    jobs = []
    for number, (begin, end) in enumerate(pairwise(cuts)):
        of_job = sorted(hosts[2 * begin : 2 * end])
        compute_s, ideal_s = chance.uniform(0.2, 2.0), chance.uniform(0.2, 2.0)
        work = GPUS * len(of_job) * compute_s
        jobs.append(TimedJob(JobId(f"job{number}"), (Phase(compute_s, ideal_s),), tuple(ways(of_job)), work))
    return Case((1.0,) * (2 * leaves * SPINES), tuple(jobs), floor)


def ways(ring: list[int]) -> list[tuple[dict[int, float]]]:
    """Return all ways of a ring; first come the ways whose first flow takes switch 0. ``ring``: leaf of each host."""
    crossing = [(src, dst) for src, dst in pairwise([*ring, ring[0]]) if src != dst]
    found = []
    for spines in product(range(SPINES), repeat=len(crossing)):
        demand: dict[int, float] = {}
        for (src, dst), spine in zip(crossing, spines, strict=True):
            for link in (2 * (src * SPINES + spine), 2 * (dst * SPINES + spine) + 1):
                demand[link] = demand.get(link, 0.0) + 1.0
        found.append((demand,))
    return found
