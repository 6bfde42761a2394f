"""Jobs on an oversubscribed leaf-spine fabric: their flows and the times of their iterations.

Half of a leaf's hosts can send at full rate. A job has equally many hosts on each of its leaves, and each of these
hosts sends to a host on the job's next leaf. The jobs fill the leaves that they use.
"""

from __future__ import annotations

import math
import random

from controller.planning.problem import PhaseTime, Problem, Timing
from controller.planning.snapshot import take_snapshot
from offline.scenarios.fabrics import leaf_spine
from offline.scenarios.generator import jobs_of, ring_lines
from offline.scenarios.workloads import Line, Numbering
from signalbox.jobs.spec import JobId

LEAVES, SPINES, LINK_BPS = 64, 32, 100e9
VARIED, HARMONIC, ALIKE = "varied", "harmonic", "alike"
MIXES = {
    VARIED: (
        (0.10, 0.10),
        (0.12, 0.08),
        (0.30, 0.10),
        (0.15, 0.25),
        (0.20, 0.10),
        (0.45, 0.15),
        (0.25, 0.15),
        (0.14, 0.06),
    ),
    HARMONIC: ((0.06, 0.04), (0.15, 0.05), (0.14, 0.06), (0.30, 0.10), (0.28, 0.12)),
    ALIKE: ((0.15, 0.10),),
}
"""Models of jobs: seconds of computing and of communication in an iteration."""
_STEP_BYTES = 1 << 20


def oversubscribed(seed: int, jobs: int, ratio: int = 2, mix: str = VARIED) -> tuple[Problem, dict[JobId, Timing]]:
    """Return the problem of ``jobs`` jobs and their timings. In varied mixes, one job of ten keeps no slots."""
    chance = random.Random(seed)
    per_leaf = SPINES * ratio
    sizes = [(chance.choice((2, 2, 3, 4)), chance.choice((8, 16, 16, 32))) for _ in range(jobs)]
    count = min(LEAVES, max(4, math.ceil(sum(leaves * hosts for leaves, hosts in sizes) / per_leaf)))
    fabric = leaf_spine(LEAVES, SPINES, per_leaf, LINK_BPS, LINK_BPS)
    numbering = Numbering(fabric)
    used = [0] * count
    lines: dict[str, list[Line]] = {}
    timings = {}
    for number, (leaves, hosts) in enumerate(sizes):
        room = sorted(range(count), key=lambda leaf: (used[leaf], chance.random()))[:leaves]
        hosts = min(hosts, *(per_leaf - used[leaf] for leaf in room))
        if hosts < 1:
            continue
        rings = [[numbering.first_host + leaf * per_leaf + used[leaf] + host for leaf in room] for host in range(hosts)]
        for leaf in room:
            used[leaf] += hosts
        name = f"job{number}"
        lines[name] = [
            line for n, ring in enumerate(rings) for line in ring_lines(ring, n, 0, _STEP_BYTES, 0, numbering)
        ]
        compute_s, ideal_s = chance.choice(MIXES[mix])
        work = leaves * hosts * compute_s
        timings[JobId(name)] = Timing(
            (PhaseTime(0, compute_s, ideal_s),), leaves * hosts, work, 1.0, chance.random() < 0.9 or mix != VARIED
        )
    made = jobs_of(lines, fabric)
    named = {job.id: timings[JobId(job.id.split("-")[0])] for job in made}
    return take_snapshot(1, fabric, made, {}, {}, 64), named
