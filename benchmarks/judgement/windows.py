"""Counters of training jobs as polls deliver them, generated for nine kinds of jobs.

A ``Kind`` has the announcement of a job of eight ranks on eight hosts, and the bytes that its library really sent when
it was measured (``tests/data/wire_matrices.json``). ``Polls`` are as irregular as real ones. Everything is computed;
there are no sockets and no clock.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.fabric.counter_samples import Floats, Rows
from signalbox.jobs.collectives import virtual_links
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobSpec
from signalbox.jobs.subflows import Pair

MATRICES = Path(__file__).parents[2] / "tests/data/wire_matrices.json"
RANKS = 8
HOSTS = tuple(f"10.0.{number}.1" for number in range(1, RANKS + 1))
SIZE = 480_480
"""Bytes of the measured collectives. ``ddp`` is larger, because it has one parameter more per bucket."""
DDP_SIZE = 481_632
SCALE = 40
"""Factor from measured bytes, which include framing, to the bytes that a job sends."""


@dataclass(frozen=True, eq=False)
class Kind:
    name: str
    announced: Mapping[str, Any]
    """Fields of the spec that describe traffic: library, collectives and transfers."""
    matrix: Floats
    """Bytes that each rank sends to each other rank in one iteration, shape (rank, rank)."""
    ranges: Floats
    """Start and end of each pair's sending, as fractions of the communication time, shape (rank, rank, 2)."""
    crowded: NDArray[np.bool_]
    """Whether the destination of a pair receives from at least three ranks in the same phase, shape (rank, rank)."""

    def spec(self, factor: float = 1.0) -> JobSpec:
        """Return the spec that announces the job with ``factor`` times its bytes."""
        described = {"job_id": "job", "endpoints": HOSTS, "groups": [{"name": "all", "ranks": list(range(RANKS))}]}
        scaled = {
            name: [{**one, "bytes_per_iteration": round(factor * one["bytes_per_iteration"])} for one in value]
            if isinstance(value, list)
            else value
            for name, value in self.announced.items()
        }
        return JobSpec.parse({**described, **scaled})


@cache
def kinds() -> Mapping[str, Kind]:
    return {
        "ring": _collectives("ring", "openmpi", ("ring_all_reduce",), _measured("open-mpi", "ring", "all_reduce")),
        "tree": _tree(),
        "halving-doubling": _collectives(
            "halving-doubling",
            "openmpi",
            ("halving_doubling_all_reduce",),
            _measured("open-mpi", "rabenseifner", "all_reduce"),
        ),
        "all-to-all": _collectives("all-to-all", "gloo", ("all_to_all",), _measured("gloo", "default", "all_to_all")),
        "pipeline": _pipeline(),
        "broadcast": _collectives(
            "broadcast", "openmpi", ("broadcast",), _measured("open-mpi", "default", "broadcast")
        ),
        "ddp": _collectives(
            "ddp", "gloo", ("all_reduce",), _measured("gloo", "default", "ddp", DDP_SIZE), size=DDP_SIZE
        ),
        "fsdp": _collectives(
            "fsdp",
            "gloo",
            ("all_gather", "all_gather", "reduce_scatter"),
            2 * _measured("gloo", "default", "all_gather") + _measured("gloo", "default", "reduce_scatter"),
        ),
        "reduce-scatter with all-gather": _collectives(
            "reduce-scatter with all-gather",
            "openmpi",
            ("reduce_scatter", "all_gather"),
            _measured("open-mpi", "default", "reduce_scatter") + _measured("open-mpi", "default", "all_gather"),
        ),
    }


@cache
def _cases() -> Sequence[Mapping[str, Any]]:
    cases: Sequence[Mapping[str, Any]] = json.loads(MATRICES.read_text())
    return cases


def _measured(library: str, variant: str, collective: str, size: int = SIZE) -> Floats:
    wanted = {"library": library, "variant": variant, "collective": collective, "ranks": RANKS, "bytes": size}
    (case,) = (case for case in _cases() if wanted.items() <= case.items())
    return SCALE * np.array(case["matrix"], np.float64)


def _collectives(name: str, library: str, algorithms: Sequence[str], matrix: Floats, size: int = SIZE) -> Kind:
    collectives = [
        {"algorithm": algorithm, "groups": ["all"], "bytes_per_iteration": SCALE * size, "phase": phase}
        for phase, algorithm in enumerate(algorithms)
    ]
    return _kind(name, {"library": library, "collectives": collectives}, matrix)


def _tree() -> Kind:
    """Return a job of transfers in a binomial tree: Gloo's broadcast from the first rank, and its reverse."""
    down = _measured("gloo", "default", "broadcast")
    transfers = [
        {"src": src, "dst": dst, "bytes_per_iteration": SCALE * SIZE, "phase": int(src > dst)}
        for src, dst in (*_edges(down), *((dst, src) for src, dst in _edges(down)))
    ]
    return _kind("tree", {"transfers": transfers}, down + down.T)


def _edges(matrix: Floats) -> list[tuple[int, int]]:
    return [(int(src), int(dst)) for src, dst in np.argwhere(matrix > 0.5 * matrix.max())]


def _pipeline() -> Kind:
    """Return a pipeline: activations are sent forward, and then their gradients backward."""
    forward = [(stage, stage + 1) for stage in range(RANKS - 1)]
    transfers = [
        {"src": src, "dst": dst, "bytes_per_iteration": SCALE * SIZE, "phase": phase}
        for phase, way in enumerate((forward, [(dst, src) for src, dst in reversed(forward)]))
        for src, dst in way
    ]
    matrix = np.zeros((RANKS, RANKS))
    for one in transfers:
        matrix[one["src"], one["dst"]] = 1.004 * SCALE * SIZE
    return _kind("pipeline", {"transfers": transfers}, matrix)


def _kind(name: str, announced: Mapping[str, Any], matrix: Floats) -> Kind:
    whole = np.tile(np.array([0.0, 1.0]), (RANKS, RANKS, 1))
    kind = Kind(name, announced, matrix, whole, np.zeros((RANKS, RANKS), bool))
    phases = virtual_links(kind.spec()).in_phases
    last = 1 + max(phase for sizes in phases.values() for phase, _ in sizes)
    senders = Counter((dst, phase) for (_, dst), sizes in phases.items() for phase, _ in sizes)
    for (src, dst), sizes in phases.items():
        own, place = [phase for phase, _ in sizes], (HOSTS.index(src), HOSTS.index(dst))
        kind.ranges[place] = min(own) / last, (max(own) + 1) / last
        kind.crowded[place] = max(senders[dst, phase] for phase in own) > 2
    return kind


INTERVAL_S = 2.0
SEGMENT, HEADERS = 1448, 66
SWITCHES = 4
HOSTS_PER_SWITCH = RANKS // SWITCHES
PAIRS: tuple[Pair, ...] = tuple(permutations(HOSTS, 2))
FIRST_S, LAST_S = 0.1, 30.0
"""Range of the usual duration of an iteration in seconds."""
BEHIND = (0.0, 0.0, 0.01, 0.05)
"""Choices for the probability that a rank is behind the reporting rank in an iteration; each job draws one."""


class Report(NamedTuple):
    """Report of finished iterations, oldest first."""

    at: float
    durations_s: tuple[float, ...]
    ended_at: tuple[float, ...] = ()
    """Time at which each iteration ended; empty if the program does not report it."""

    @property
    def iterations(self) -> list[IterationTime]:
        return [
            IterationTime(0, duration_s, duration_s, ended_at)
            for duration_s, ended_at in zip_longest(self.durations_s, self.ended_at)
        ]


@dataclass(frozen=True, eq=False)
class Polls:
    """Counters of one job in each poll, with one column per pair, and its reports of iterations."""

    spec: JobSpec
    interval_s: float
    now: Floats
    """Time at which the last answer to each poll had arrived."""
    pairs: tuple[Pair, ...]
    switch: Rows
    """Number of the switch that counts each pair."""
    at: Floats
    """Time at which the switch of each pair answered each poll; NaN if it did not."""
    bytes: Floats
    packets: Floats
    reports: Sequence[Report]


class _Iterations(NamedTuple):
    begun: Floats
    durations_s: Floats
    sends_at: Floats
    sends_s: Floats


def generated(kind: Kind, spec: JobSpec, seed: int, hours: float, matrix: Floats | None = None) -> Polls:
    """Return the polls of a job that announces ``spec``, runs as ``kind`` and sends ``matrix`` or the kind's own."""
    draw = np.random.default_rng(seed)
    seconds = 3600 * hours
    matrix = kind.matrix if matrix is None else matrix
    usual_s = float(np.exp(draw.uniform(np.log(FIRST_S), np.log(LAST_S))))
    iterations = _iterations(draw, usual_s, seconds)
    times, sent = _sent(draw, kind, matrix, usual_s, iterations)
    now, at = _polls(draw, seconds)
    seen = _counted(draw, at)
    payload = _at(seen, times, sent)
    acknowledged = _at(seen, times[:, _OPPOSITE], sent[:, _OPPOSITE])
    packets = np.round(payload / SEGMENT) + np.round(draw.choice([0.5, 1.0]) * acknowledged / SEGMENT)
    blocks = draw.choice([0.0, 0.0, 0.02]) * 28 / SEGMENT * acknowledged
    bytes_ = np.round(payload + blocks) + HEADERS * packets
    return Polls(spec, INTERVAL_S, now, PAIRS, _SWITCH, at, bytes_, packets, _reports(draw, iterations, seconds))


def _at(seen: Floats, times: Floats, sent: Floats) -> Floats:
    """Return the bytes that each pair had sent by each time in ``seen``, by interpolation."""
    columns = zip(seen.T, times.T, sent.T, strict=True)
    return np.stack([np.interp(at, when, total, left=0.0) for at, when, total in columns], axis=1)


_SWITCH: Rows = np.array([HOSTS.index(src) // HOSTS_PER_SWITCH for src, _ in PAIRS])
_OPPOSITE = [PAIRS.index((dst, src)) for src, dst in PAIRS]


def _iterations(draw: np.random.Generator, usual_s: float, seconds: float) -> _Iterations:
    """Return random iterations, whose compute times are log-normal.

    At times a rank is slow, a checkpoint is written during or between iterations, or the network is slow for a
    while."""
    number = int(2.0 * seconds / usual_s) + 20
    share = draw.uniform(0.15, 0.95)
    compute_s = (1 - share) * usual_s * draw.lognormal(0.0, draw.choice([0.02, 0.08, 0.25]), number)
    sends_s = share * usual_s * draw.lognormal(0.0, draw.choice([0.01, 0.05]), number)
    slow = draw.random(number) < 0.005
    compute_s[slow] += usual_s * draw.uniform(1.0, 5.0, slow.sum())
    compute_s[0] += usual_s * draw.uniform(0.0, 4.0)
    roughly_at = np.cumsum(compute_s + sends_s)
    for _ in range(draw.poisson(3 * seconds / 3600)):
        begins = draw.uniform(0, seconds)
        during = (roughly_at > begins) & (roughly_at < begins + draw.uniform(5, 200))
        sends_s[during] *= draw.uniform(1.1, 2.5)
    pauses_s = np.zeros(number)
    every = max(1, round(draw.uniform(60, 900) / usual_s))
    if draw.random() < 0.7:
        pauses_s[every::every] = draw.uniform(0.5, 40.0)
    if draw.random() < 0.5:
        compute_s += pauses_s
        pauses_s[:] = 0.0
    durations_s = compute_s + sends_s
    begun = draw.uniform(1, 20) + np.cumsum(durations_s + pauses_s) - durations_s
    last = int(np.searchsorted(begun, seconds)) + 1
    sends_at = begun + compute_s * draw.choice([0.0, 0.5, 1.0])
    return _Iterations(*(values[:last] for values in (begun, durations_s, sends_at, sends_s)))


def _sent(
    draw: np.random.Generator, kind: Kind, matrix: Floats, usual_s: float, iterations: _Iterations
) -> tuple[Floats, Floats]:
    """Return, for each pair, a series of times and the bytes that it had sent by then.

    Pairs in a crowd (``Kind.crowded``) send at another random time in each iteration, and retransmit a part of their
    bytes. A rank may be up to an iteration behind the reporting rank."""
    number = len(iterations.begun)
    src, dst = np.array([(HOSTS.index(a), HOSTS.index(b)) for a, b in PAIRS]).T
    first, last = kind.ranges[src, dst].T
    crowded = kind.crowded[src, dst]
    width = (last - first) * draw.uniform(0.05, 1.0)
    place = first + (last - first - width) * draw.random()
    within = np.where(crowded, draw.random((number, len(PAIRS))) * (1 - width), place)
    offset_s = draw.uniform(0.0, 0.15 * usual_s, RANKS)[src]
    if kind.name == "broadcast":
        offset_s = offset_s - draw.uniform(0.0, 0.2 * usual_s, (number, 1))
    shaken = draw.normal(0.0, 0.02, (number, len(PAIRS)))
    (busy,) = draw.spawn(1)
    behind = busy.random((number, RANKS)) < busy.choice(BEHIND) * (np.arange(RANKS) > 0)
    shortest_s = np.minimum(iterations.durations_s, np.append(iterations.durations_s[1:], np.inf))
    late_s = np.where(behind, busy.random((number, RANKS)), 0.0) * shortest_s[:, None]
    offset_s = offset_s + late_s[:, src]
    begins = iterations.sends_at[:, None] + iterations.sends_s[:, None] * (within + shaken) + offset_s
    ends = begins + iterations.sends_s[:, None] * width
    times = np.maximum.accumulate(np.stack((begins, ends), axis=1).reshape(2 * number, -1), axis=0)
    again = np.where(crowded, draw.uniform(1.0, 1.4, len(PAIRS)), 1.0 + draw.choice([0.0, 0.03]))
    again = again * (1 + np.minimum(0.1, draw.exponential(0.01, (number, len(PAIRS)))))
    sizes = matrix[src, dst] * again
    sent = np.repeat(np.cumsum(sizes, axis=0), 2, axis=0)
    sent[::2] -= sizes
    if draw.random() < 0.5:
        parameters = np.where(src == 0, draw.uniform(0.2, 1.0) * matrix.max(), 0.0)
        times = np.concatenate([times[:1] - 2.0, np.maximum(times[:1] - 0.5, times[:1] - 2.0), times])
        sent = np.concatenate([np.zeros((1, len(PAIRS))), parameters[None], sent + parameters])
    return times, sent


def _polls(draw: np.random.Generator, seconds: float) -> tuple[Floats, Floats]:
    """Return the time at which each poll was complete, and the time of each switch's answer, NaN if there was none."""
    asked = draw.uniform(0, INTERVAL_S) + INTERVAL_S * np.arange(int(seconds / INTERVAL_S))
    apart_s = draw.choice([0.05, 0.05, 0.05, 0.8])
    at = asked[:, None] + draw.uniform(0, apart_s, (len(asked), SWITCHES))
    at[draw.random(at.shape) < 0.002] = np.nan
    now = np.maximum(asked, np.nanmax(np.where(np.isnan(at), asked[:, None], at), axis=1)) + 0.01
    return now, at[:, _SWITCH]


def _counted(draw: np.random.Generator, at: Floats) -> Floats:
    """Return when the counters in each answer were last updated; switches update them only from time to time."""
    every_s = draw.uniform(0.1, 0.5, SWITCHES)[_SWITCH]
    phase_s = draw.uniform(0.0, every_s)
    seen: Floats = at - (at - phase_s) % every_s
    return np.nan_to_num(seen)


def _reports(draw: np.random.Generator, iterations: _Iterations, seconds: float) -> list[Report]:
    """Return a report every 2 s, with the iterations that have ended since the previous report.

    Most jobs also report when iterations ended. At times the controller is out of reach for a while, and single reports
    are lost or take longer."""
    ended = iterations.begun + iterations.durations_s
    moments = np.arange(draw.uniform(0, 2), seconds, 2.0)
    says_when = draw.random() < 0.9
    for _ in range(draw.poisson(seconds / 3600)):
        away = draw.uniform(0, seconds)
        moments = moments[(moments < away) | (moments > away + draw.uniform(3, 60))]
    places = np.searchsorted(ended, moments)
    lost = draw.random(len(moments)) < 0.0002
    on_the_way_s = np.minimum(0.25, draw.exponential(0.02, len(moments)))
    return [
        Report(
            float(at + way_s),
            tuple(iterations.durations_s[first:last].tolist()),
            tuple((ended[first:last] + way_s).tolist()) if says_when else (),
        )
        for at, way_s, first, last, is_lost in zip(
            moments, on_the_way_s, np.append(0, places[:-1]), places, lost, strict=True
        )
        if last > first and not is_lost
    ]
