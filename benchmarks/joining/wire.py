"""What Gloo and Open MPI send, per collective and number of ranks, counted by the receivers' sockets.

    sudo .venv/bin/python -m benchmarks wire [--out tests/data/wire_matrices.json]

Plain namespaces on one bridge; real ranks of both libraries (``scripts/bootstrap.sh --libraries`` installs them).
Out: a table of the bytes that each rank sends per iteration, over M, and the file of matrices.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from mininet_topos.joining.launch import ENVIRONMENT, TUNED, gloo_rank, missing, mpirun
from mininet_topos.joining.namespaces import INTERFACE, SUBNET, namespaces
from mininet_topos.joining.rank import go
from signalbox.commands.output import AsJson, show
from signalbox.errors import SignalboxError

RANKS = range(2, 9)
TIMEOUT_S = 240.0
POLL_S = 0.05
FLOAT_BYTES = 4
GLOO_ELEMENTS = (840, 120_120)
"""Divisible by 2 to 8, so that all parts are equal."""
DDP_ELEMENTS = {120_120: 120_408}
"""What ``gloo_rank.Training`` can have."""
MPI_ELEMENTS = (840, 8_400, 33_600, 120_120, 1_201_200)
GLOO = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "ddp")
MPI = ("all_reduce", "all_gather", "reduce_scatter", "reduce_scatter_block", "broadcast", "reduce", "all_to_all")
MPI_NAMES = {"allreduce": "all_reduce", "alltoall": "all_to_all"}
FORCED_ELEMENTS = (840, 120_120)

Case = dict[str, Any]


def measured(library: str, variant: str, ranks: int, cases: Sequence[Case]) -> Iterator[Case]:
    """Each case with ``matrix[i][j]``: bytes that rank i sent to rank j in one iteration. Raises ``SignalboxError``
    when a rank fails."""
    with tempfile.TemporaryDirectory(prefix="signalbox-wire-") as scratch, namespaces(ranks) as names:
        out = Path(scratch)
        (out / "cases.json").write_text(json.dumps(cases))
        words = ["--job", "wire", "--peers", ",".join(names.values()), "--wire", str(out / "cases.json")]
        words += ["--control", str(out / "control"), "--out", str(out)]
        go(out / "control", 0)
        first = next(iter(names))
        if library == "gloo":
            commands = {name: gloo_rank(rank, INTERFACE, words) for rank, name in enumerate(names)}
        else:
            commands = {first: mpirun(tuple(names), SUBNET, out, words, TUNED[variant])}
        _run_all(commands, out)
        lines = [list(map(json.loads, (out / f"wire-{rank}.jsonl").read_text().splitlines())) for rank in range(ranks)]
    for of_ranks in zip(*lines, strict=True):
        received = [line["received"] for line in of_ranks]
        yield {
            "library": library,
            "variant": variant,
            "collective": of_ranks[0]["collective"],
            "ranks": ranks,
            "bytes": of_ranks[0]["elements"] * FLOAT_BYTES,
            "ok": all(line["ok"] for line in of_ranks),
            "matrix": [list(column) for column in zip(*received, strict=True)],
        }


def _run_all(commands: Mapping[str, Sequence[str]], out: Path) -> None:
    running = {}
    for name, argv in commands.items():
        with (out / f"{name}.log").open("w") as log:
            running[name] = subprocess.Popen(
                ["ip", "netns", "exec", name, *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **ENVIRONMENT},
            )
    ends = time.monotonic() + TIMEOUT_S
    try:
        while any(process.poll() is None for process in running.values()):
            failed = next((name for name, process in running.items() if process.poll()), None)
            if failed or time.monotonic() > ends:
                log_text = (out / f"{failed or next(iter(running))}.log").read_text()[-2000:]
                raise SignalboxError(f"{failed or 'a rank'} failed or did not end: {log_text}")
            time.sleep(POLL_S)
    finally:
        for process in running.values():
            process.kill()
            process.wait()


def all_cases() -> Iterator[tuple[str, str, list[Case]]]:
    """(library, variant, cases) of each start of the ranks."""

    def cases(collectives: Sequence[str], sizes: Sequence[int]) -> list[Case]:
        sized = [(c, DDP_ELEMENTS.get(n, n) if c == "ddp" else n) for c in collectives for n in sizes]
        return [{"collective": c, "elements": n} for c, n in sized]

    barrier = {"collective": "barrier", "elements": 0}
    yield "gloo", "default", [*cases(GLOO, GLOO_ELEMENTS), barrier]
    yield "open-mpi", "default", [*cases(MPI, MPI_ELEMENTS), barrier]
    for variant, chosen in TUNED.items():
        for collective in (MPI_NAMES[name] for name in chosen):
            yield "open-mpi", variant, cases([collective], FORCED_ELEMENTS)


def write(found: Sequence[Case], file: Path) -> None:
    """One case per line, so that a new measurement can be compared with the one before."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in found)
    file.write_text(f"[\n{lines}\n]\n")


def table_of(found: Sequence[Case]) -> Table:
    table = Table(title="Bytes that each rank sends per iteration, over M (of a barrier: bytes)", title_justify="left")
    for column in ("library", "variant", "collective", "ranks", "M", "sent by rank 0, 1, …"):
        table.add_column(column)
    for case in found:
        sent = " ".join(f"{sum(row) / (case['bytes'] or 1):.2f}" for row in case["matrix"])
        words = (case["library"], case["variant"], case["collective"], str(case["ranks"]), f"{case['bytes']:,}", sent)
        table.add_row(*words)
    return table


def main(
    ranks: Annotated[list[int] | None, typer.Option(min=2, max=8, help="numbers of ranks; 2 to 8 by default")] = None,
    library: Annotated[str | None, typer.Option(help="gloo or open-mpi; both by default")] = None,
    out: Annotated[Path, typer.Option(help="file for the matrices")] = Path("out/bench/wire_matrices.json"),
    as_json: AsJson = False,
) -> None:
    """Measure what Gloo and Open MPI send per pair of ranks."""
    found: list[Case] = []
    for n in ranks or RANKS:
        for name, variant, cases in all_cases():
            if library in (None, name):
                if name in missing():
                    raise SignalboxError(missing()[name])
                found += measured(name, variant, n, cases)
                typer.echo(f"{name} {variant}, {n} ranks: {len(cases)} cases", err=True)
    write(found, out)
    show(found, lambda: table_of(found), as_json)
    if not all(case["ok"] for case in found):
        raise typer.Exit(1)
