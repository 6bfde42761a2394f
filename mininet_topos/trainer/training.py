"""Iterations of one rank: compute, run the collective with its neighbours, check the result, and again.

With several subflows a rank has as many connections to each neighbour. It divides its bytes over them evenly, or in the
shares of the controller's route stream.
"""

import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated

import numpy as np
import typer

from mininet_topos.trainer.collective import COLLECTIVES, Vector, expected_result, training_vector
from mininet_topos.trainer.log import Iteration
from mininet_topos.trainer.mesh import Mesh
from mininet_topos.trainer.sockets import SharesFile, find_opened, weights_of
from offline.scenarios.variation import STEADY, Variation
from signalbox.jobs.reports import Step
from signalbox.jobs.spec import Algorithm, JobSpec, Striping

Jitter = Annotated[float, typer.Option(min=0, help="Standard deviation of computing times, relative to the mean.")]
Straggler = Annotated[float, typer.Option(min=0, max=1, help="Probability of a slow computing time.")]
Slow = Annotated[float, typer.Option(min=1, help="Factor of slow computing times.")]
Drift = Annotated[float, typer.Option(help="Relative growth of computing times per iteration.")]
Seed = Annotated[int, typer.Option(help="Seed of the computing times, which are the same on all ranks.")]


def announcement(
    job_id: str,
    peers: Sequence[str],
    algorithm: Algorithm,
    vector_bytes: int,
    lease_s: float,
    max_subflows: int = 1,
    striping: Striping = Striping.BY_SHARE,
    reports_connections: bool = False,
    compute_s: float = 0.0,
) -> JobSpec:
    """Return the spec of a job of one group that runs one collective per iteration. Raises ``InvalidInput``.

    Ranks are in the order of ``peers``. ``compute_s``: seconds of computing before the collective."""
    return JobSpec.parse(
        {
            "job_id": job_id,
            "endpoints": tuple(peers),
            "groups": [{"name": "all", "ranks": tuple(range(len(peers)))}],
            "collectives": [{"algorithm": algorithm, "groups": ["all"], "bytes_per_iteration": vector_bytes}],
            "max_subflows": max_subflows,
            "striping": striping,
            "reports_connections": reports_connections,
            "compute": [{"seconds": compute_s}] if compute_s else [],
            "lease_s": lease_s,
        }
    )


@dataclass(frozen=True, slots=True)
class RankSpec:
    """Parameters of one rank.

    ``elements``: float32 values per vector, M = 4 x ``elements`` bytes. ``compute_s``: idle seconds per iteration.
    ``max_subflows``: connections to each neighbour. ``striping``: striping over them, even or by share. ``variation``,
    ``seed``: variation of the idle seconds, the same on all ranks. ``begin_at``: earliest start of the first iteration
    on CLOCK_MONOTONIC. ``every_s``: the time between the starts of iterations is a multiple of it; 0: there is no pause
    between iterations."""

    job_id: str
    rank: int
    peers: tuple[str, ...]
    algorithm: Algorithm = Algorithm.RING_ALL_REDUCE
    elements: int = 120_000
    compute_s: float = 0.0
    iterations: int | None = None
    max_subflows: int = 1
    striping: Striping = Striping.BY_SHARE
    variation: Variation = STEADY
    seed: int = 0
    begin_at: float = 0.0
    every_s: float = 0.0

    @property
    def size(self) -> int:
        return len(self.peers)

    @property
    def follows_shares(self) -> bool:
        """True if the rank divides its bytes by the shares in the controller's route stream."""
        return follows_shares(self)


class StopRequest:
    """Request to stop by SIGTERM or SIGINT; a second such signal kills the process."""

    def __init__(self) -> None:
        self.made = False

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.made = True
        signal.signal(number, signal.SIG_DFL)


def unreported() -> Step:
    """Return the context of an iteration that is not reported."""
    return Step(lambda *_: None)


def follows_shares(spec: RankSpec | JobSpec) -> bool:
    """Return whether ranks divide their bytes by the shares in the controller's route stream."""
    return spec.max_subflows > 1 and spec.striping is not Striping.EVEN


@contextmanager
def registered(spec: JobSpec | None, api: str | None, directory: Path) -> Iterator[Callable[[], Step]]:
    """Yield the function that makes the context of an iteration, while the job is registered if there is a controller.

    ``spec``: the job at its rank 0, None at other ranks. Rank 0 reports the connections of all ranks, and writes the
    shares of split flows into ``directory``."""
    if spec is None or api is None:
        yield unreported
        return
    # Only rank 0 needs gRPC, and a demo starts twelve of these processes on two cores.
    from signalbox.joining import join
    from signalbox.route_following import Route, shares_of

    def write_shares(routes: tuple[Route, ...]) -> None:
        SharesFile(directory).write({f"{src}>{dst}": subflows for (src, dst), subflows in shares_of(routes).items()})

    with join(
        spec,
        address=api,
        on_routes=write_shares if follows_shares(spec) else None,
        connections=lambda: find_opened(directory, len(spec.endpoints)),
    ) as joined:
        yield joined.step


def train(
    spec: RankSpec,
    mesh: Mesh,
    stop: StopRequest,
    shares: SharesFile | None = None,
    step: Callable[[], Step] = unreported,
) -> Iterator[Iteration]:
    """Run iterations until all ranks agree to stop: at rank 0's stop request or after its number of iterations.

    ``shares``: division of the bytes to each neighbour, read before each iteration; without it, and unless striping is
    even, the first connection takes all bytes. ``step``: makes the context of an iteration, which may wait on entry.
    The next data and the right result are computed while the network is busy. Raises ``PeerLostError`` and
    ``ProtocolError``."""
    collective = COLLECTIVES[spec.algorithm]
    chance = chance_of(spec.job_id, spec.seed)
    if spec.striping is Striping.EVEN:
        for bundle in mesh.to.values():
            bundle.outgoing.set((1,) * len(bundle.connections))
    with ThreadPoolExecutor(max_workers=1) as pool:
        prepared = pool.submit(_prepare, spec, 0)
        time.sleep(max(0.0, spec.begin_at - time.monotonic()))
        index, start, agreed = 0, time.monotonic(), False
        while not agreed:
            vector, expected = prepared.result()
            prepared = pool.submit(_prepare, spec, index + 1)
            with step() as reported:
                if spec.compute_s:
                    time.sleep(spec.compute_s * spec.variation.factor(index, chance))
                if shares and shares.read_again():
                    _set_weights(spec, mesh, shares)
                last = spec.rank == 0 and (stop.made or index + 1 == spec.iterations)
                with reported.communication():
                    began = time.monotonic()
                    result, agreed = collective(mesh, index, vector, last)
                    communication_s = time.monotonic() - began
            ok = np.array_equal(result, expected)
            end = time.monotonic()
            used = max((sum(w > 0 for w in bundle.outgoing.weights) for bundle in mesh.to.values()), default=0)
            yield Iteration(index, start, end, ok, tuple(mesh.take_arrivals()), communication_s, used)
            index, start = index + 1, end
            if spec.every_s and not agreed:
                time.sleep(spec.every_s - (end - spec.begin_at) % spec.every_s)
                start = time.monotonic()


def chance_of(job_id: str, seed: int) -> random.Random:
    """Return the generator of a job's computing times, the same on all ranks."""
    return random.Random(f"{job_id} {seed}")


def _set_weights(spec: RankSpec, mesh: Mesh, shares: SharesFile) -> None:
    for peer, bundle in mesh.to.items():
        ports = [connection.source_port for connection in bundle.connections]
        bundle.outgoing.set(weights_of(shares.subflows(spec.peers[spec.rank], spec.peers[peer]), ports))


def _prepare(spec: RankSpec, iteration: int) -> tuple[Vector, Vector]:
    vector = training_vector(spec.job_id, spec.rank, iteration, spec.elements)
    return vector, expected_result(spec.algorithm, spec.job_id, spec.rank, spec.size, iteration, spec.elements)
