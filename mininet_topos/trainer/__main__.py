"""Rank of a training job, as a program; there is one process per rank, inside its host's namespace.

    python -m mininet_topos.trainer --job ring1 --rank 0 --peers 10.0.1.1,10.0.2.1 --rendezvous DIR --out rank0.jsonl

Rank 0 also registers the job with the controller, reports its iterations, and waits before an iteration as the
controller says. Errors of this never reach the training. SIGTERM to rank 0 ends all ranks after the iteration that it
starts next; a second SIGTERM kills the process. Each rank writes the file that ``log`` describes.
"""

from pathlib import Path
from typing import Annotated

import typer

from mininet_topos.trainer.collective import COLLECTIVES, ProtocolError, neighbours
from mininet_topos.trainer.log import TrainingLog
from mininet_topos.trainer.mesh import PeerLostError, connect
from mininet_topos.trainer.sockets import SharesFile, publish_opened
from mininet_topos.trainer.training import (
    Drift,
    Jitter,
    RankSpec,
    Seed,
    Slow,
    StopRequest,
    Straggler,
    announcement,
    registered,
    train,
)
from offline.scenarios.variation import Variation
from signalbox.errors import InvalidInput
from signalbox.jobs.spec import MAX_SUBFLOWS, Algorithm, Striping
from signalbox.jobs.subflows import port_classes

FLOAT_BYTES = 4


def run(
    job: Annotated[str, typer.Option(help="Job id, the same on every rank.")],
    rank: Annotated[int, typer.Option(min=0, help="Index of this process into --peers.")],
    peers: Annotated[str, typer.Option(help="IP addresses of all ranks, separated by commas.")],
    rendezvous: Annotated[Path, typer.Option(help="Directory that only this job's ranks share.")],
    out: Annotated[Path, typer.Option(help="File for the raw timestamps.")],
    algorithm: Annotated[Algorithm, typer.Option()] = Algorithm.RING_ALL_REDUCE,
    elements: Annotated[int, typer.Option(min=1, help="Number of float32 values per vector.")] = 120_000,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Iterations before the end; without it, until SIGTERM.")
    ] = None,
    compute_s: Annotated[float, typer.Option(min=0, help="Idle seconds before each collective.")] = 0.0,
    jitter: Jitter = 0.0,
    straggler: Straggler = 0.0,
    slow: Slow = 2.0,
    drift: Drift = 0.0,
    seed: Seed = 0,
    begin_at: Annotated[float, typer.Option(help="Earliest start of the training, in seconds on CLOCK_MONOTONIC.")] = 0,
    every_s: Annotated[float, typer.Option(min=0, help="Seconds between the starts of iterations; 0: no pause.")] = 0,
    api: Annotated[str | None, typer.Option(help="Address of the controller's API, HOST:PORT or unix:PATH.")] = None,
    lease_s: Annotated[float, typer.Option(min=1, help="Lease of the announced job in seconds.")] = 60.0,
    max_subflows: Annotated[
        int, typer.Option(min=1, max=MAX_SUBFLOWS, help="Connections to each neighbour, for split flows.")
    ] = 1,
    striping: Annotated[
        Striping, typer.Option(help="Striping of bytes over the connections: even or by_share.")
    ] = Striping.BY_SHARE,
    reports_connections: Annotated[
        bool,
        typer.Option(
            "--reports-connections",
            help="Report the ports of all connections to the controller, so that any ports may be used.",
        ),
    ] = False,
    stall_timeout_s: Annotated[float, typer.Option(min=1, help="Seconds of silence that end the training.")] = 60.0,
) -> None:
    """Train as one rank of a job until rank 0 stops it."""
    addresses = tuple(peers.split(","))
    variation = Variation(jitter, straggler, slow, drift)
    spec = RankSpec(
        *(job, rank, addresses, algorithm, elements, compute_s, iterations, max_subflows, striping),
        *(variation, seed, begin_at, every_s),
    )
    if striping not in (Striping.EVEN, Striping.BY_SHARE):
        raise typer.BadParameter(f"striping '{striping}' is not emulated; choose even or by_share")
    if algorithm not in COLLECTIVES:
        raise typer.BadParameter(f"'{algorithm}' is not emulated; choose one of {', '.join(COLLECTIVES)}")
    if not rank < spec.size >= 2:
        raise typer.BadParameter(
            f"rank {rank} of {spec.size} peers is not possible; give at least two peers and a rank below their number"
        )
    to, from_ = neighbours(algorithm, rank, spec.size)
    classes = port_classes(max_subflows) if max_subflows > 1 and not reports_connections else (None,) * max_subflows
    stop, raw = StopRequest(), TrainingLog(out)
    stop.listen()
    try:
        announced = None
        if api and rank == 0:
            announced = announcement(
                *(job, addresses, algorithm, elements * FLOAT_BYTES, lease_s, max_subflows, striping),
                *(reports_connections, compute_s),
            )
        with (
            registered(announced, api, rendezvous) as step,
            connect(rendezvous, rank, spec.peers, to, from_, classes, stall_timeout_s=stall_timeout_s) as mesh,
        ):
            publish_opened(rendezvous, rank, mesh.opened)
            raw.begin(job, rank, spec.peers, algorithm, elements)
            shares = SharesFile(rendezvous) if spec.follows_shares else None
            for done in train(spec, mesh, stop, shares, step):
                raw.iteration(done)
                if not done.ok:
                    typer.echo(f"{job} rank {rank}: the result of iteration {done.index} is wrong", err=True)
    except (PeerLostError, ProtocolError, TimeoutError, InvalidInput) as error:
        typer.echo(f"{job} rank {rank}: training ended: {error}", err=True)
        raise typer.Exit(1) from None
    raw.end()


if __name__ == "__main__":
    typer.run(run)
