"""Work of a rank of a real job, for every communication library: data, expected results, iterations, the log.

In: a ``Library``, which runs one collective, and the options of ``options``. Out: the file of ``trainer.log``. M is the
size of the full vector, as in a job's announcement.

This module and its imports need only the standard library and numpy, because the libraries have environments of their
own.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mininet_topos.trainer.log import Iteration, TrainingLog

POLL_S = 0.02
LIMIT = 1009
"""Bound of the data: with at most 1000 ranks all sums are exact in float32."""

LOOSE = "broadcast"
"""Collective after which some ranks do not wait for the others, so the training adds a barrier."""

Vector = np.ndarray[Any, np.dtype[np.float32]]
Report = Callable[[Iteration], None]


class Library(Protocol):
    """Communication library of one rank.

    ``run`` executes one collective over this rank's full vector of M bytes. It returns the result, or None if this rank
    has no result. It may overwrite the vector. All-gather sends only this rank's part of the vector; reduce-scatter
    returns only this part."""

    rank: int
    size: int

    def run(self, collective: str, vector: Vector) -> Vector | None: ...


@dataclass(frozen=True, slots=True)
class RankSpec:
    """Parameters of one rank.

    ``collective``: one or several collectives of the library (``collectives_at``). ``control``: directory that the
    job's ranks share with their launcher, see ``Course``. Without ``iterations`` the job runs until the launcher
    requests its end in this directory."""

    job_id: str
    rank: int
    peers: tuple[str, ...]
    collective: str
    elements: int
    out: Path
    control: Path
    iterations: int | None = None

    @property
    def size(self) -> int:
        return len(self.peers)


def options(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every rank's program; ``spec_of`` reads them."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--job", required=True, help="Job id, the same on every rank.")
    parser.add_argument("--rank", type=int, default=None, help="Index into --peers.")
    parser.add_argument("--peers", required=True, help="IP addresses of all ranks, separated by commas.")
    parser.add_argument("--collective", default="all_reduce")
    parser.add_argument("--elements", type=int, default=120_120, help="Number of float32 values per vector.")
    parser.add_argument("--iterations", type=int, default=None, help="Number; without it, until stopped.")
    parser.add_argument("--control", type=Path, required=True, help="Directory that the job's ranks share.")
    parser.add_argument("--out", type=Path, required=True, help="Directory for the raw timestamps.")
    return parser


def spec_of(given: argparse.Namespace, rank: int) -> RankSpec:
    peers = tuple(given.peers.split(","))
    elements = max(1, given.elements // len(peers)) * len(peers)  # equal parts, which the libraries require
    return RankSpec(
        given.job,
        rank,
        peers,
        given.collective,
        elements,
        given.out,
        given.control,
        given.iterations,
    )


def log_path(out: Path, job_id: str, rank: int) -> Path:
    return out / f"{job_id}-rank{rank}.jsonl"


# ---- data


def data(rank: int, iteration: int, elements: int) -> Vector:
    """Return this rank's vector: integers that follow from the arguments alone, so each rank knows every result."""
    return _base(iteration, elements) * np.float32(rank + 1)


def expected(collective: str, rank: int, size: int, iteration: int, elements: int) -> Vector | None:
    """Return the right result at ``rank``, with rank 0 as the root; None for a collective without a known result."""
    base = _base(iteration, elements)
    if collective in ("all_reduce", "reduce_scatter"):
        total = base * np.float32(size * (size + 1) // 2)
        return total if collective == "all_reduce" else part(total, rank, size)
    if collective == "all_gather":
        return np.concatenate([part(base, peer, size) * np.float32(peer + 1) for peer in range(size)])
    if collective == "all_to_all":
        return np.concatenate([part(base, rank, size) * np.float32(peer + 1) for peer in range(size)])
    return base if collective == "broadcast" else None


def part(vector: Vector, index: int, size: int) -> Vector:
    """Return part ``index`` of ``size`` equal parts, as a view."""
    length = len(vector) // size
    return vector[index * length : (index + 1) * length]


def _base(iteration: int, elements: int) -> Vector:
    return ((np.arange(elements) * 31 + iteration) % LIMIT).astype(np.float32)


def is_right(result: Vector | None, right: Vector | None) -> bool:
    return right is None or (result is not None and np.array_equal(result, right))


# ---- iterations


def collectives_at(text: str, iteration: int) -> tuple[str, ...]:
    """Return the collectives of an iteration, in order.

    ``a+b``: both in each iteration. ``a*40,b*20``: 40 iterations of the first, 20 of the second, and so on from the
    beginning."""
    turns = [(names, int(count or 1)) for names, _, count in (turn.partition("*") for turn in text.split(","))]
    place = iteration % sum(count for _, count in turns)
    for names, count in turns:
        if place < count:
            return tuple(names.split("+"))
        place -= count
    raise AssertionError(text)


class Course:
    """Begin and end of the iterations, agreed upon through files in a directory that the job's ranks share.

    ``go`` begins the iterations, ``stop`` requests their end; the launcher of the ranks writes both. Rank 0 answers
    ``stop`` before its next iteration with ``last``, which contains that iteration's number. No rank ends an
    iteration before rank 0 has begun it, so each rank sees ``last`` in time. The agreement causes no traffic in the
    network."""

    def __init__(self, directory: Path, rank: int) -> None:
        self._stop, self._last, self._go = (directory / name for name in ("stop", "last", "go"))
        self._rank = rank

    def wait(self) -> None:
        while not self._go.exists():
            time.sleep(POLL_S)

    def before(self, iteration: int) -> None:
        """Answer a request to stop; rank 0 calls this before every iteration."""
        if self._rank == 0 and not self._last.exists() and self._stop.exists():
            draft = self._last.with_suffix(".draft")
            draft.write_text(str(iteration))
            draft.replace(self._last)

    def is_last(self, iteration: int) -> bool:
        """Return whether the iteration that has just ended was the last."""
        return self._last.exists() and iteration >= int(self._last.read_text())


def train(spec: RankSpec, library: Library, at: Course) -> Iterator[Iteration]:
    """Yield iterations until the last, each with its result checked."""
    index, start = 0, time.monotonic()
    while True:
        at.before(index)
        names = collectives_at(spec.collective, index)
        vectors = [data(spec.rank, index, spec.elements) for _ in names]
        right = [expected(name, spec.rank, spec.size, index, spec.elements) for name in names]
        began = time.monotonic()
        results = []
        for name, vector in zip(names, vectors, strict=True):
            results.append(library.run(name, vector))
            if name == LOOSE:
                library.run("barrier", vector)
        ended = time.monotonic()
        ok = all(map(is_right, results, right))
        end = time.monotonic()
        yield Iteration(index, start, end, ok, (), ended - began, 1)
        if index + 1 == spec.iterations or at.is_last(index):
            return
        index, start = index + 1, end


def run(spec: RankSpec, library: Library, report: Report | None) -> bool:
    """Run all iterations, write the log, and return whether every result was right.

    ``report`` is called after each iteration."""
    log = TrainingLog(log_path(spec.out, spec.job_id, spec.rank))
    log.begin(spec.job_id, spec.rank, spec.peers, spec.collective, spec.elements)
    right = True
    for done in train(spec, library, Course(spec.control, spec.rank)):
        log.iteration(done)
        right = right and done.ok
        if report:
            report(done)
    log.end()
    return right


def ready(control: Path, rank: int) -> None:
    """Publish that the rank waits for the begin."""
    control.mkdir(parents=True, exist_ok=True)
    ready_path(control, rank).touch()


def ready_path(control: Path, rank: int) -> Path:
    return control / f"ready-{rank}"


def go(control: Path) -> None:
    control.mkdir(parents=True, exist_ok=True)
    (control / "go").touch()


def stop(control: Path) -> None:
    (control / "stop").touch()
