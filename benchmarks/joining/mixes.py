"""Seeded mixes of real jobs: as many at once as the hosts hold, on random hosts, and how each is announced.

In: a seed and a library. Out: jobs by numbers of hosts, the same in every mode; and the ``JobSpec`` that describes what
a job sends, as far as the controller's algorithms allow, or from the bytes that its sockets have carried.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.jobs.spec import Algorithm, JobSpec
from controller.scenarios.topologies import Host
from mininet_topos.joining.jobs import Library, LibraryJob

SIZES = (3, 4, 6, 8)
LEASE_S = 3600.0
FLOAT_BYTES = 4
SMALL = 0.02
"""Of a job's largest pair: below it bytes are headers and control messages."""

KINDS: Mapping[Library, Sequence[tuple[str, str, int]]] = {
    "gloo": (
        ("all_reduce", "default", 120_120),
        ("all_gather", "default", 240_240),
        ("reduce_scatter", "default", 120_120),
        ("broadcast", "default", 80_080),
        ("ddp", "default", 120_408),
    ),
    "open-mpi": (
        ("all_reduce", "default", 96_000),
        ("all_reduce", "ring", 120_120),
        ("all_reduce", "recursive_doubling", 60_060),
        ("all_to_all", "default", 180_180),
    ),
}
"""(collective, variant, elements): an iteration of 1 to 2 s on links of 5 Mbit/s."""


@dataclass(frozen=True, slots=True)
class MixedJob:
    """``hosts``: numbers of the ranks' hosts, in the order of the ranks."""

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
    """Sizes and collectives are drawn until no job fits on the hosts that are left; no two jobs share one."""
    chosen = random.Random(seed)
    free = chosen.sample(range(hosts), hosts)
    jobs: list[MixedJob] = []
    while sizes := [size for size in SIZES if size <= len(free)]:
        taken, free = free[: (size := chosen.choice(sizes))], free[size:]
        collective, variant, elements = chosen.choice(KINDS[library])
        job_id = f"s{seed}-{len(jobs)}-{collective.replace('_', '-')}-{size}"
        jobs.append(MixedJob(job_id, library, collective, variant, elements, tuple(taken)))
    return tuple(jobs)


# ---- announcements


def by_formula(job: LibraryJob) -> JobSpec | None:
    """What the library's source and ``tests/data/wire_matrices.json`` say that the job sends. None where no algorithm
    of the controller describes it.

    Gloo's ring all-reduce goes from rank r to r - 1, so its ranks are announced in the reversed order; its
    reduce-scatter sends as much as an all-reduce. Its broadcast is a binomial tree: step k goes from each rank
    r < 2^k to r + 2^k.
    """
    size, vector_bytes = len(job.hosts), FLOAT_BYTES * job.elements
    forwards = tuple(range(size))
    backwards = forwards[::-1]
    match job.library, job.collective, job.variant:
        case "gloo", "all_reduce" | "reduce_scatter" | "ddp", _:
            return _one_group(job, Algorithm.RING_ALL_REDUCE, backwards, vector_bytes)
        case "gloo", "all_gather", _:
            return _one_group(job, Algorithm.RING_ALL_GATHER, forwards, vector_bytes)
        case "gloo", "broadcast", _:
            edges = {(rank - (1 << rank.bit_length() - 1), rank): vector_bytes for rank in forwards[1:]}
            return _edges(job, edges, {edge: edge[1].bit_length() - 1 for edge in edges})
        case "open-mpi", "all_reduce", "ring":
            return _one_group(job, Algorithm.RING_ALL_REDUCE, forwards, vector_bytes)
        case "open-mpi", "all_reduce", "default" if size.bit_count() == 1:
            return _one_group(job, Algorithm.HALVING_DOUBLING_ALL_REDUCE, forwards, vector_bytes)
        case "open-mpi", "all_to_all", "default" | "linear" | "pairwise":
            return _one_group(job, Algorithm.ALL_TO_ALL, forwards, vector_bytes)
        case _:
            return None


def by_bytes(job: LibraryJob, sent: Mapping[tuple[str, str], float]) -> JobSpec | None:
    """From the bytes per iteration and pair of addresses. None when nothing was sent."""
    found = {
        (src, dst): round(sent.get((src_ip, dst_ip), 0.0))
        for src, src_ip in enumerate(job.peers)
        for dst, dst_ip in enumerate(job.peers)
    }
    least = SMALL * max(found.values())
    edges = {edge: count for edge, count in found.items() if count > least}
    return _edges(job, edges, dict.fromkeys(edges, 0)) if edges else None


def _one_group(job: LibraryJob, algorithm: Algorithm, ranks: Sequence[int], vector_bytes: int) -> JobSpec:
    collective = {"algorithm": algorithm, "groups": ["all"], "bytes_per_iteration": vector_bytes}
    return _spec(job, [{"name": "all", "ranks": ranks}], [collective])


def _edges(job: LibraryJob, edges: Mapping[tuple[int, int], int], phases: Mapping[tuple[int, int], int]) -> JobSpec:
    """A group of two for each pair that sends: a send from the first rank to the second."""
    names = {edge: f"{edge[0]}-{edge[1]}" for edge in edges}
    groups = [{"name": name, "ranks": edge} for edge, name in names.items()]
    collectives = [
        {
            "algorithm": Algorithm.PIPELINE_SEND,
            "groups": [names[edge]],
            "bytes_per_iteration": count,
            "phase": phases[edge],
        }
        for edge, count in edges.items()
    ]
    return _spec(job, groups, collectives)


def _spec(job: LibraryJob, groups: Sequence[Any], collectives: Sequence[Any]) -> JobSpec:
    return JobSpec.parse(
        {
            "job_id": job.job_id,
            "endpoints": job.peers,
            "groups": tuple(groups),
            "collectives": tuple(collectives),
            "lease_s": LEASE_S,
        }
    )
