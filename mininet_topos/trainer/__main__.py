"""The command line of one rank; see ``training``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from controller.errors import InvalidInput
from controller.jobs.source_ports import port_classes
from controller.jobs.spec import MAX_SUBFLOWS, Algorithm
from mininet_topos.trainer.collective import COLLECTIVES, ProtocolError, neighbours
from mininet_topos.trainer.division import Division
from mininet_topos.trainer.mesh import PeerLostError, connect
from mininet_topos.trainer.training import Iteration, RankSpec, StopRequest, TrainingLog, train

FLOAT_BYTES = 4


@contextmanager
def _announced(
    spec: RankSpec, api: str | None, lease_s: float, directory: Path
) -> Iterator[Callable[[Iteration], None]]:
    """Where to report iterations: rank 0 of a job with a controller announces it meanwhile, and writes down for all
    ranks how to divide their bytes when they can."""
    if api is None or spec.rank:
        yield lambda _iteration: None
        return
    # Imported here because only rank 0 needs gRPC: a demo starts twelve of these processes on two cores.
    from controller.api.client import Client
    from controller.jobs.messages import IterationTime
    from mininet_topos.trainer.announcer import Announcer, announcement
    from mininet_topos.trainer.route_listener import RouteListener

    job = announcement(spec.job_id, spec.peers, spec.algorithm, spec.elements * FLOAT_BYTES, lease_s, spec.max_subflows)
    with ExitStack() as stack:
        announcer = stack.enter_context(Announcer(lambda: Client(api), job))
        if spec.max_subflows > 1:
            stack.enter_context(RouteListener(lambda: Client(api), spec.job_id, directory))
        yield lambda done: announcer.report(IterationTime(done.index, done.end - done.start, done.communication_s))


def run(
    job: Annotated[str, typer.Option(help="job id, the same on every rank")],
    rank: Annotated[int, typer.Option(min=0, help="this process's index into --peers")],
    peers: Annotated[str, typer.Option(help="the IP address of every rank, separated by commas")],
    rendezvous: Annotated[Path, typer.Option(help="directory that only this job's ranks share")],
    out: Annotated[Path, typer.Option(help="file for the raw timestamps")],
    algorithm: Annotated[Algorithm, typer.Option()] = Algorithm.RING_ALL_REDUCE,
    elements: Annotated[int, typer.Option(min=1, help="float32 values per vector")] = 120_000,
    iterations: Annotated[int | None, typer.Option(min=1, help="stop after so many; otherwise on SIGTERM")] = None,
    compute_s: Annotated[float, typer.Option(min=0, help="idle seconds before each collective")] = 0.0,
    api: Annotated[str | None, typer.Option(help="the controller's gRPC address, HOST:PORT or unix:PATH")] = None,
    lease_s: Annotated[float, typer.Option(min=1, help="lease of the announced job")] = 60.0,
    max_subflows: Annotated[
        int, typer.Option(min=1, max=MAX_SUBFLOWS, help="connections to each neighbour, for flows that may be split")
    ] = 1,
    stall_timeout_s: Annotated[float, typer.Option(min=1, help="silence after which a peer is given up")] = 60.0,
) -> None:
    """Train as one rank of a job until rank 0 stops it."""
    spec = RankSpec(job, rank, tuple(peers.split(",")), algorithm, elements, compute_s, iterations, max_subflows)
    if algorithm not in COLLECTIVES:
        raise typer.BadParameter(f"{algorithm} is not emulated; there are: {', '.join(COLLECTIVES)}")
    if not rank < spec.size >= 2:
        raise typer.BadParameter(f"rank {rank} of {spec.size} peers; at least two, ranks from 0 to size - 1")
    to, from_ = neighbours(algorithm, rank, spec.size)
    stop, raw = StopRequest(), TrainingLog(out)
    stop.listen()
    try:
        with (
            _announced(spec, api, lease_s, rendezvous) as report,
            connect(
                rendezvous,
                rank,
                spec.peers,
                to,
                from_,
                classes=port_classes(max_subflows),
                stall_timeout_s=stall_timeout_s,
            ) as mesh,
        ):
            raw.begin(spec)
            for done in train(spec, mesh, stop, Division(rendezvous) if max_subflows > 1 else None):
                raw.iteration(done)
                report(done)
                if not done.ok:
                    typer.echo(f"{job} rank {rank}: the result of iteration {done.index} is wrong", err=True)
    except (PeerLostError, ProtocolError, TimeoutError, InvalidInput) as error:
        typer.echo(f"{job} rank {rank}: training ended: {error}", err=True)
        raise typer.Exit(1) from None
    raw.end()


if __name__ == "__main__":
    typer.run(run)
