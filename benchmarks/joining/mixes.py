"""Random mixes of real jobs, and the specs with which they are announced.

``mix`` makes jobs from a seed and a library. Jobs have their hosts by number, so a mix is the same in every mode.
``spec_of`` makes the ``JobSpec`` of a job: right, wrong or without any traffic.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mininet_topos.joining.jobs import Library, LibraryJob
from offline.scenarios.topologies import Host
from signalbox.jobs.spec import Algorithm, JobSpec


class Mode(StrEnum):
    """Mode of a run; ``benchmarks.joining.command`` explains the modes."""

    FLAT = "flat"
    ECMP = "ecmp"
    PLANNED = "planned"


class Announced(StrEnum):
    """Kind of announcement.

    ``RIGHT``: the collectives that the job requests from its library. ``REVERSED`` to ``OTHER``: wrong traffic, see
    ``spec_of``. ``OBSERVED``: only the hosts."""

    RIGHT = "right"
    REVERSED = "reversed"
    HALF = "half"
    DOUBLE = "double"
    OTHER = "other"
    OBSERVED = "observed"


SIZES: Mapping[Library, Sequence[int]] = {"gloo": (3, 4, 6, 8), "open-mpi": (3, 4, 8)}
LEASE_S = 3600.0
FLOAT_BYTES = 4

FACTORS: Mapping[Announced, float] = {Announced.HALF: 0.5, Announced.DOUBLE: 2.0}
"""Factor from the true bytes to the announced ones, for announcements of wrong bytes."""

ALGORITHMS: Mapping[tuple[str, str], Algorithm] = {
    ("all_reduce", "default"): Algorithm.ALL_REDUCE,
    ("ddp", "default"): Algorithm.ALL_REDUCE,
    ("all_gather", "default"): Algorithm.ALL_GATHER,
    ("reduce_scatter", "default"): Algorithm.REDUCE_SCATTER,
    ("broadcast", "default"): Algorithm.BROADCAST,
    ("all_to_all", "default"): Algorithm.ALL_TO_ALL,
    ("all_reduce", "ring"): Algorithm.RING_ALL_REDUCE,
    ("all_reduce", "recursive_doubling"): Algorithm.RECURSIVE_DOUBLING_ALL_REDUCE,
}
"""Algorithm by collective and variant. A variant other than "default" is forced by a setting of the library."""

KINDS: Mapping[Library, Sequence[tuple[str, str, int]]] = {
    "gloo": (
        ("all_reduce", "default", 120_120),
        ("all_gather", "default", 240_240),
        ("reduce_scatter", "default", 120_120),
        ("broadcast", "default", 80_080),
        ("ddp", "default", 120_408),
        ("all_to_all", "default", 240_240),
    ),
    "open-mpi": (
        ("all_reduce", "default", 96_000),
        ("all_reduce", "ring", 120_120),
        ("all_reduce", "recursive_doubling", 60_060),
        ("all_to_all", "default", 180_180),
    ),
}
"""Collectives of the mixes, by library: name, variant, number of elements.

The numbers are such that an iteration takes 1 to 2 s on links of 5 Mbit/s.
"""


@dataclass(frozen=True, slots=True)
class MixedJob:
    """Job of a mix. ``hosts``: number of the host of each rank."""

    job_id: str
    library: Library
    collective: str
    variant: str
    elements: int
    hosts: tuple[int, ...]

    def on(self, hosts: Sequence[Host]) -> LibraryJob:
        placed = tuple(hosts[number] for number in self.hosts)
        return LibraryJob(self.job_id, self.library, self.collective, placed, self.elements, self.variant)


def mix(seed: int, library: Library, hosts: int) -> tuple[MixedJob, ...]:
    """Return random jobs on disjoint hosts, as many as fit on ``hosts`` hosts."""
    chosen = random.Random(seed)
    free = chosen.sample(range(hosts), hosts)
    jobs: list[MixedJob] = []
    while sizes := [size for size in SIZES[library] if size <= len(free)]:
        taken, free = free[: (size := chosen.choice(sizes))], free[size:]
        collective, variant, elements = chosen.choice(KINDS[library])
        job_id = f"s{seed}-{len(jobs)}-{collective.replace('_', '-')}-{size}"
        jobs.append(MixedJob(job_id, library, collective, variant, elements, tuple(taken)))
    return tuple(jobs)


# ---- announcements


def spec_of(job: LibraryJob, announced: Announced) -> JobSpec:
    """Return the spec with which a job is announced.

    - ``REVERSED``: the ranks are announced in reverse order.
    - ``HALF``, ``DOUBLE``: half or twice the bytes are announced.
    - ``OTHER``: another collective is announced: an all-reduce for a broadcast, a broadcast for any other.
    - ``OBSERVED``: only the hosts are announced.

    If an iteration has several collectives, each becomes a phase."""
    endpoints = {"job_id": job.job_id, "endpoints": job.peers, "lease_s": LEASE_S}
    if announced is Announced.OBSERVED:
        return JobSpec.parse(endpoints)
    size = round(FLOAT_BYTES * job.elements * FACTORS.get(announced, 1.0))
    ranks = range(len(job.hosts))
    collectives = []
    for phase, name in enumerate(job.collective.split("+")):
        algorithm = ALGORITHMS[name, job.variant]
        if announced is Announced.OTHER:
            algorithm = Algorithm.ALL_REDUCE if algorithm is Algorithm.BROADCAST else Algorithm.BROADCAST
        collectives.append({"algorithm": algorithm, "groups": ["all"], "bytes_per_iteration": size, "phase": phase})
    return JobSpec.parse(
        {
            **endpoints,
            "library": job.library.replace("-", ""),
            "groups": [{"name": "all", "ranks": tuple(reversed(ranks) if announced is Announced.REVERSED else ranks)}],
            "collectives": collectives,
        }
    )
