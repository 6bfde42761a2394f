"""One rank of a training job: computes, runs the collective with its neighbours, checks the result, and again.

Runs inside a host's namespace, one process per rank:

    python -m mininet_topos.trainer --job ring1 --rank 0 --peers 10.0.1.1,10.0.2.1 --rendezvous DIR --out rank0.jsonl

With ``--max-subflows`` a rank has several connections to each neighbour, from source ports of a class each, and divides
its bytes over them as the controller's route stream says. Rank 0 also announces the job to the controller and reports
its iterations, in a thread whose troubles never reach the training. SIGTERM to rank 0 ends all ranks after the
iteration that it starts next; a second one kills. Out: a file of JSON lines, one when the connections are up, one per
iteration (``TrainingLog``), one at the agreed end.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from controller.jobs.spec import Algorithm
from mininet_topos.trainer import training_data
from mininet_topos.trainer.collective import COLLECTIVES, Vector
from mininet_topos.trainer.division import Division, weights_of
from mininet_topos.trainer.mesh import Bundle, Mesh


@dataclass(frozen=True, slots=True)
class RankSpec:
    """``elements``: float32 values per vector, M = 4 x ``elements`` bytes. ``compute_s``: idle time per iteration.
    ``max_subflows``: connections to each neighbour."""

    job_id: str
    rank: int
    peers: tuple[str, ...]
    algorithm: Algorithm = Algorithm.RING_ALL_REDUCE
    elements: int = 120_000
    compute_s: float = 0.0
    iterations: int | None = None
    max_subflows: int = 1

    @property
    def size(self) -> int:
        return len(self.peers)


@dataclass(frozen=True, slots=True)
class Iteration:
    """Times in seconds on CLOCK_MONOTONIC, which all namespaces share. ``start`` is the end of the one before;
    ``arrivals``: when each slice was complete; ``subflows``: connections that were used to the neighbour with the most
    of them."""

    index: int
    start: float
    end: float
    communication_s: float
    ok: bool
    arrivals: tuple[float, ...]
    subflows: int = 1


class TrainingLog:
    """The raw timestamps of one rank, a JSON line per event, flushed so that nothing is lost with the process.

    ``{"job", "rank", "ip", "size", "elements", "algorithm", "mono", "wall"}``, then per iteration ``{"i", "start",
    "end", "wall", "comm_s", "ok", "slices_ms", "subflows"}`` (``slices_ms``: arrivals after ``start``), at the
    agreed end ``{"ended": mono}``.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")

    def begin(self, spec: RankSpec) -> None:
        self._line(
            job=spec.job_id,
            rank=spec.rank,
            ip=spec.peers[spec.rank],
            size=spec.size,
            elements=spec.elements,
            algorithm=spec.algorithm.value,
            mono=time.monotonic(),
            wall=time.time(),
        )

    def iteration(self, done: Iteration) -> None:
        self._line(
            i=done.index,
            start=round(done.start, 4),
            end=round(done.end, 4),
            wall=round(time.time(), 4),
            comm_s=round(done.communication_s, 4),
            ok=done.ok,
            slices_ms=[round((arrival - done.start) * 1000, 1) for arrival in done.arrivals],
            subflows=done.subflows,
        )

    def end(self) -> None:
        self._line(ended=time.monotonic())
        self._file.close()

    def _line(self, **values: Any) -> None:
        self._file.write(json.dumps(values, separators=(",", ":")) + "\n")
        self._file.flush()


class StopRequest:
    """Whether SIGTERM or SIGINT came; the next one of them kills."""

    def __init__(self) -> None:
        self.made = False

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.made = True
        signal.signal(number, signal.SIG_DFL)


def train(spec: RankSpec, mesh: Mesh, stop: StopRequest, division: Division | None = None) -> Iterator[Iteration]:
    """Run iterations until rank 0's stop, or the number it was given, is agreed. Raises ``PeerLostError`` and
    ``ProtocolError``. ``division``: how to divide the bytes to each neighbour, looked at before each iteration; without
    it the first connection takes all.

    The next data and the right result are computed while the network is busy.
    """
    collective = COLLECTIVES[spec.algorithm]
    with ThreadPoolExecutor(max_workers=1) as pool:
        prepared = pool.submit(_prepare, spec, 0)
        index, start, agreed = 0, time.monotonic(), False
        while not agreed:
            vector, expected = prepared.result()
            prepared = pool.submit(_prepare, spec, index + 1)
            if spec.compute_s:
                time.sleep(spec.compute_s)
            if division and division.look():
                _divide(spec, mesh, division)
            wish = spec.rank == 0 and (stop.made or index + 1 == spec.iterations)
            began = time.monotonic()
            result, agreed = collective(mesh, index, vector, wish)
            communication_s = time.monotonic() - began
            ok = np.array_equal(result, expected)
            end = time.monotonic()
            used = max((_in_use(bundle) for bundle in mesh.to.values()), default=0)
            yield Iteration(index, start, end, communication_s, ok, tuple(mesh.take_arrivals()), used)
            index, start = index + 1, end


def _divide(spec: RankSpec, mesh: Mesh, division: Division) -> None:
    for peer, bundle in mesh.to.items():
        ports = [connection.source_port for connection in bundle.connections]
        bundle.outgoing.set(weights_of(division.pieces(spec.peers[spec.rank], spec.peers[peer]), ports))


def _in_use(bundle: Bundle) -> int:
    return sum(weight > 0 for weight in bundle.outgoing.weights)


def _prepare(spec: RankSpec, iteration: int) -> tuple[Vector, Vector]:
    vector = training_data.vector(spec.job_id, spec.rank, iteration, spec.elements)
    expected = training_data.expected(spec.algorithm, spec.job_id, spec.rank, spec.size, iteration, spec.elements)
    return vector, expected
