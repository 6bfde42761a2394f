"""``signalbox jobs from``: make a job spec from traces that frameworks write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from signalbox.commands.jobs import commands
from signalbox.commands.output import file_to_read
from signalbox.errors import InvalidInput
from signalbox.files import STANDARD_INPUT
from signalbox.jobs.spec import JobSpec
from signalbox.spec_files import part_of_a_job

OF_THE_TRACE = dict.fromkeys(("collectives", "transfers", "parallelizations"), "comes from the trace; leave it out")

HINTS = {
    "job_id": "--job-id gives it",
    "endpoints": "--endpoints gives the address of each rank",
}
"""Advice for errors about a missing field, by name of the field."""


class Format(StrEnum):
    """Format of a trace, named after the program that wrote it."""

    NCCL = "nccl"
    FLIGHT_RECORDER = "flight-recorder"
    CHAKRA = "chakra"


@commands.command("from", epilog="Example: signalbox jobs from nccl --job-id vision job.log > vision.json")
def from_trace(
    trace_format: Annotated[
        Format, typer.Argument(metavar="FORMAT", help="Format of the traces: nccl, flight-recorder or chakra.")
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Traces of all ranks, in any order; - for standard input.", parser=file_to_read
        ),
    ],
    job_id: Annotated[str | None, typer.Option("--job-id", metavar="NAME", help="Id of the job.")] = None,
    endpoints: Annotated[
        str | None,
        typer.Option("--endpoints", metavar="ADDRESS,...", help="Address of each rank, unless the trace contains it."),
    ] = None,
    spec: Annotated[
        Path | None,
        typer.Option(
            "--spec",
            metavar="FILE",
            help="Job spec file (YAML, JSON or TOML) with what the trace lacks, such as endpoints and groups.",
            parser=file_to_read,
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            "--iterations",
            metavar="N",
            min=1,
            help="Number of iterations in the trace; default: detected, or 1 for chakra.",
        ),
    ] = None,
    all_reduce_bytes: Annotated[
        int | None,
        typer.Option(
            "--bytes", metavar="N", min=1, help="For nccl without logged calls: bytes that each iteration all-reduces."
        ),
    ] = None,
) -> None:
    """Make a job spec from traces of a job, and print it in the form that jobs register reads."""
    if [*files, spec].count(STANDARD_INPUT) > 1:
        raise typer.BadParameter("standard input (-) can be given only once")
    if all_reduce_bytes is not None and trace_format is not Format.NCCL:
        raise typer.BadParameter("is for traces of nccl only", param_hint="--bytes")
    with _hints(), part_of_a_job(spec, OF_THE_TRACE) if spec else nullcontext(dict[str, Any]()) as given:
        given |= {"job_id": job_id} if job_id else {}
        given |= {"endpoints": endpoints.split(",")} if endpoints else {}
        found = _found(trace_format, files, given, iterations, all_reduce_bytes)
    typer.echo(_text(found))
    if found.observed:
        typer.echo("note: the trace has no calls, so switches will measure the job's traffic", err=True)


def _found(
    trace_format: Format, files: list[Path], given: dict[str, Any], iterations: int | None, all_reduce_bytes: int | None
) -> JobSpec:
    # Each reader is loaded only when needed; one of them builds protobuf messages.
    if trace_format is Format.NCCL:
        from signalbox.traces import nccl

        return nccl.job_spec(files, given, iterations, all_reduce_bytes)
    if trace_format is Format.FLIGHT_RECORDER:
        from signalbox.traces import flight_recorder

        return flight_recorder.job_spec(files, JobSpec.parse(given), iterations)
    from signalbox.traces import chakra

    return chakra.job_spec(files, JobSpec.parse(given), iterations)


@contextmanager
def _hints() -> Iterator[None]:
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(
            tuple(
                replace(problem, message=f"{problem.message}; {HINTS[problem.path]}")
                if problem.message == "is missing" and problem.path in HINTS
                else problem
                for problem in error.problems
            )
        ) from None


def _text(spec: JobSpec) -> str:
    """Return the spec as JSON, with a line for each group, collective and transfer."""
    fields = spec.model_dump(mode="json", exclude_defaults=True).items()
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {_value(value)}" for name, value in fields) + "\n}"


def _value(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(f"    {json.dumps(item)}" for item in value) + "\n  ]"
    return json.dumps(value)
