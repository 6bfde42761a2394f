"""Kinds of training jobs: the announcement of each, and the measured traffic of its library.

The measurements are in ``tests/data/wire_matrices.json``. Each ``Kind`` has eight ranks on eight hosts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.fabric.counter_samples import Floats
from signalbox.jobs.collectives import virtual_links
from signalbox.jobs.spec import JobSpec

MATRICES = Path(__file__).parents[2] / "tests/data/wire_matrices.json"
RANKS = 8
HOSTS = tuple(f"10.0.{number}.1" for number in range(1, RANKS + 1))
SIZE = 480_480
"""Bytes of the measured collectives. ``ddp`` has one parameter more per bucket."""
DDP_SIZE = 481_632
SCALE = 40
"""Bytes that a job sends, relative to the measured bytes, which include framing."""


@dataclass(frozen=True, eq=False)
class Kind:
    name: str
    announced: Mapping[str, Any]
    """Collectives and transfers of the spec, and its library."""
    matrix: Floats
    """Bytes of one iteration from rank to rank, shape (rank, rank)."""
    ranges: Floats
    """Begin and end of the time in which a pair sends, as fractions of the communication, shape (rank, rank, 2)."""
    crowded: NDArray[np.bool_]
    """Pairs whose destination receives from at least two other pairs in the same phase, shape (rank, rank)."""

    def spec(self, factor: float = 1.0) -> JobSpec:
        """Return the announcement, with ``factor`` times the bytes."""
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
    """Return all kinds by name."""
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
    """Return a reduction and a broadcast in a binomial tree: Gloo's broadcast from the first rank, and the reverse."""
    down = _measured("gloo", "default", "broadcast")
    transfers = [
        {"src": src, "dst": dst, "bytes_per_iteration": SCALE * SIZE, "phase": int(src > dst)}
        for src, dst in (*_edges(down), *((dst, src) for src, dst in _edges(down)))
    ]
    return _kind("tree", {"transfers": transfers}, down + down.T)


def _edges(matrix: Floats) -> list[tuple[int, int]]:
    return [(int(src), int(dst)) for src, dst in np.argwhere(matrix > 0.5 * matrix.max())]


def _pipeline() -> Kind:
    """Return a pipeline: activations forward, then their gradients backward."""
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
