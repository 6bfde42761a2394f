"""Random mixes of real jobs, the specs with which they are announced, and the evaluation of the measured rows.

``mix`` makes jobs from a seed and a library. Jobs have their hosts by number, so a mix is the same in every mode.
``spec_of`` makes the ``JobSpec`` of a job: right, wrong or without any traffic. ``summary`` compares the measured
iteration times with those of the same job on the flat switch, a single switch with all hosts.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Any

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
    ``spec_of``. ``OBSERVED``: only the hosts. ``CONNECTIONS``: the hosts, and the connections of their sockets."""

    RIGHT = "right"
    REVERSED = "reversed"
    HALF = "half"
    DOUBLE = "double"
    OTHER = "other"
    OBSERVED = "observed"
    CONNECTIONS = "connections"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Figures of one job in one window.

    Only rows of planned jobs have the fields from ``announced`` on. ``right_s``, ``alarm_s`` and ``found_s`` are
    seconds after the announcement."""

    seed: int
    mode: str
    draw: int
    job: str
    library: str
    collective: str
    variant: str
    ranks: int
    iterations: int
    iteration_s: float
    """Mean duration, in seconds, of the iterations that begin and end in the window."""
    communication_s: float
    wrong: int
    announced: str = ""
    right_s: float | None = None
    """Seconds until the routes became right (``watch.RIGHT``) and stayed so until the end; None if they did not."""
    alarm_s: float | None = None
    """Seconds until the alarm ``demand_differs``; None without an alarm."""
    found_s: float | None = None
    """Seconds from which on the controller planned exactly the pairs that carry traffic; None if it never did.

    In the beginning the controller also plans pairs that carried only the initial broadcast of parameters. It drops
    them 10 to 20 s later, when no window of counters contains the broadcast any more. ``right_s`` shows whether they
    cost the job anything."""
    slowdown: float | None = None
    """Slowdown at the end, as the controller reports it."""
    own_slowdown: float | None = None
    """Slowdown at the end, recomputed from the job's routes and the bytes that the sockets counted."""
    worst_slowdown: float | None = None
    least_slowdown: float | None = None
    """Smallest worst slowdown of the jobs over all choices of spines."""
    proven: bool = False
    """Whether ``least_slowdown`` is proven to be the smallest."""
    certificate: str = ""
    source: str = ""
    pairs: int = 0
    """Number of pairs of hosts that carry traffic of the job."""
    found: int = 0
    """Number of pairs of hosts that carry traffic of the job and that the controller plans."""
    false: int = 0
    """Number of pairs of hosts that carry no traffic of the job, although the controller plans them."""
    bytes_error: float | None = None
    """Largest relative error of the bytes per iteration that the controller has counted for a pair."""
    predicted: float = 0.0
    """Efficiency that the controller predicts; 0 if unknown."""
    measured: float = 0.0
    """Efficiency that the controller has measured; 0 if unknown."""
    withheld: str = ""
    ideal_s: float = 0.0


SHOWN = (
    *("right_s", "alarm_s", "found_s", "slowdown", "own_slowdown", "worst_slowdown", "least_slowdown"),
    *("source", "pairs", "found", "false", "bytes_error", "predicted", "measured"),
)


def flat_s(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean iteration time of each job on the flat switch, in seconds."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["mode"] == Mode.FLAT:
            found.setdefault(row["job"], []).append(row["iteration_s"])
    return {job: round(fmean(times), 3) for job, times in found.items()}


def hashed(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each job's mean and worst iteration time over ECMP's draws, relative to the flat switch."""
    flat = flat_s(rows)
    drawn: dict[str, list[float]] = {}
    for row in rows:
        if row["mode"] == Mode.ECMP:
            drawn.setdefault(row["job"], []).append(row["iteration_s"])
    return [
        {
            "job": job,
            "draws": len(times),
            "mean": ratio(fmean(times), flat.get(job)),
            "worst": ratio(max(times), flat.get(job)),
        }
        for job, times in drawn.items()
    ]


def planned(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a line for each planned job and announcement.

    ``ratio``: iteration time / (iteration time on the flat switch x slowdown); 1 if the slowdown is exact."""
    flat = flat_s(rows)
    return [
        {
            "job": row["job"],
            "announced": row["announced"],
            "flat_s": flat.get(row["job"]),
            "ratio": ratio(row["iteration_s"], flat.get(row["job"], 0.0) * (row["slowdown"] or 1.0)),
            **{name: row[name] for name in SHOWN},
        }
        for row in rows
        if row["mode"] == Mode.PLANNED
    ]


def totals(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a line for each kind of announcement, with counts, sums and maxima over the lines of ``planned``."""
    found = []
    for announced in dict.fromkeys(line["announced"] for line in lines):
        mine = [line for line in lines if line["announced"] == announced]
        ratios = [line["ratio"] for line in mine if line["ratio"]]
        found.append(
            {
                "announced": announced,
                "jobs": len(mine),
                "ratio_mean": round(fmean(ratios), 3) if ratios else None,
                "ratio_max": max(ratios, default=None),
                "routes_right": sum(line["right_s"] is not None for line in mine),
                "right_s_max": most(mine, "right_s"),
                "alarms": sum(line["alarm_s"] is not None for line in mine),
                "alarm_s_max": most(mine, "alarm_s"),
                "pairs_sent": sum(line["pairs"] for line in mine),
                "pairs_found": sum(line["found"] for line in mine),
                "pairs_wrongly_found": sum(line["false"] for line in mine),
                "bytes_error_max": most(mine, "bytes_error"),
            }
        )
    return found


def most(lines: Sequence[Mapping[str, Any]], name: str) -> Any:
    return max((line[name] for line in lines if line[name] is not None), default=None)


def ratio(value: float | None, base: float | None) -> float | None:
    return round(value / base, 3) if value and base else None


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    lines = planned(rows)
    return {
        "hashed": hashed(rows),
        "planned": lines,
        "totals": totals(lines),
        "wrong": sum(row["wrong"] for row in rows),
    }


def read_rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


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
    - ``OBSERVED``, ``CONNECTIONS``: only the hosts are announced.

    If an iteration has several collectives, each becomes a phase."""
    endpoints = {"job_id": job.job_id, "endpoints": job.peers, "lease_s": LEASE_S}
    if announced is Announced.OBSERVED:
        return JobSpec.parse(endpoints)
    if announced is Announced.CONNECTIONS:
        return JobSpec.parse({**endpoints, "reports_connections": True})
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
