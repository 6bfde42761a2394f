"""Benchmark ``linearizability``: concurrent calls to several controllers, which must look like calls to a single one.

    .venv/bin/python -m benchmarks linearizability [--histories 20] [--operations 1000] [--seed 1]

Three members share an etcd; one leads, and the others forward calls to it. Five clients register, update, end and read
eight jobs through all members. Meanwhile the leader or etcd is paused, or the leader is killed.

For each job there must be an order of all calls that agrees with every answer, and with the times of the calls. A call
without an answer may have happened at any later time, or never. The exit status is 1 when a job has no such order; then
a small part of its history is printed.
"""

import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.linearizability.checker import (
    NO_JOB,
    JobCall,
    JobOperation,
    changes_nothing,
    line_of,
    order_of,
    smallest_refused,
    step,
)
from benchmarks.linearizability.recorder import FAULTS, ClientThread, Members, Shared, running
from benchmarks.measures import report
from tests.support.wire.etcd import EtcdProcess, running_etcd

RESULTS = Path("out/bench/linearizability.json")
CLIENTS = 5
JOBS = 8
FAULTS_OF_HISTORY = 3


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of one history.

    ``answered``, ``unanswered``: numbers of calls with and without an answer. ``refused``: jobs without an order."""

    seed: int
    answered: int
    unanswered: int
    faults: str
    seconds: float
    refused: str


def recorded(members: Members, operations: int, seed: int) -> tuple[list[JobOperation], list[str]]:
    """Return a history and the names of its faults. The history ends with a read of each job."""
    dice, active = random.Random(seed), members.heal()
    shared = Shared(members.sockets, JOBS, seed)
    clients = [ClientThread(number, shared) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    faults = dice.choices(list(FAULTS), k=FAULTS_OF_HISTORY)
    parts = [operations * (number + 1) // (len(faults) + 1) for number in range(len(faults) + 1)]
    try:
        shared.allow(parts[0])
        shared.wait_until_begun(parts[0])
        for name, begins, ends in zip(faults, parts, parts[1:], strict=False):
            shared.allow(ends)
            shared.wait_until_begun(begins + CLIENTS)
            middle = (begins + ends) // 2
            FAULTS[name](members, active, dice, partial(shared.wait_until_begun, middle))
            active = members.heal()
            shared.wait_until_begun(ends)
    finally:
        shared.end()
    for client in clients:
        client.join()
    last = ClientThread(CLIENTS, shared)
    for job in range(JOBS):
        last.make(JobCall("read", job), "")
    if shared.failure:
        raise shared.failure
    return shared.history, faults


def refused_parts(history: Sequence[JobOperation]) -> dict[int, list[JobOperation]]:
    """Return a small part of the history of each job that has no possible order."""
    found = {}
    for job in range(JOBS):
        of_job = [each for each in history if each.call.job == job]
        if order_of(of_job, NO_JOB, step) is None:
            found[job] = smallest_refused(of_job, NO_JOB, step, changes_nothing)
    return found


def _checked(folder: Path, etcd: EtcdProcess, operations: int, seed: int) -> Checked:
    began = time.monotonic()
    with running(folder / f"history{seed}", etcd) as members:
        history, faults = recorded(members, operations, seed)
    answered = {(each.client, each.began) for each in history if each.answer}
    refused = refused_parts(history)
    for job, part in refused.items():
        typer.echo(f"seed {seed}, job {job}: no order of these calls is possible", err=True)
        for operation in sorted(part, key=lambda each: each.began):
            typer.echo(line_of(operation, part[0].began), err=True)
    return Checked(
        seed,
        len(answered),
        sum((each.client, each.began) not in answered for each in history),
        ", ".join(faults),
        round(time.monotonic() - began, 1),
        ", ".join(map(str, refused)),
    )


def main(
    histories: Annotated[int, typer.Option(min=1, help="Number of histories, each with new controllers.")] = 20,
    operations: Annotated[
        int, typer.Option(min=100, help="Number of calls in each history, of all clients together.")
    ] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the first history; each later history uses the next seed.")] = 1,
) -> None:
    """Call the members of a controller concurrently under faults: every history must be linearizable."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="signalbox-linearizability-") as name:
        folder = Path(name)
        with running_etcd(folder / "etcd") as etcd:
            for number in range(histories):
                rows.append(_checked(folder, etcd, operations, seed + number))
                typer.echo(f"{number + 1} of {histories}: {rows[-1]}", err=True)
    data = [asdict(row) for row in rows]
    report(data, RESULTS, {"histories": data})
    refused = sum(bool(row.refused) for row in rows)
    typer.echo(f"{refused} of {histories} histories are not linearizable", err=True)
    raise typer.Exit(refused > 0)
