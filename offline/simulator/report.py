"""Simulation as plain data for programs (docs/reference/json-output.md). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from offline.simulator.options import Options
from offline.simulator.training import JobTimes, Outcome
from signalbox.jobs.spec import Striping


def report(
    options: Options, striping: Striping | None, bound: float, outcomes: Sequence[tuple[str, Outcome]]
) -> dict[str, Any]:
    """Return a simulation as plain data; its fields are an interface (docs/reference/json-output.md).

    - ``striping``: striping of all jobs; None if they differ.
    - ``bound``: lower bound of the worst job's slowdown, for any splitting of flows.
    - ``outcomes``: outcome of each scheme, with its name."""
    return {
        "iterations": options.iterations,
        "replan": options.replan.value,
        "striping": striping,
        "sharing": options.sharing.value,
        "lose_sent": options.lose_sent,
        "max_moves": options.max_moves,
        "seed": options.seed,
        "bound": bound,
        "schemes": [{"scheme": name, **_scheme_fields(outcome)} for name, outcome in outcomes],
    }


def _scheme_fields(outcome: Outcome) -> dict[str, Any]:
    return {
        "mean_slowdown": outcome.mean_slowdown,
        "plans": outcome.plans,
        "adopted": outcome.adopted,
        "moves": outcome.moves,
        "end_s": outcome.end_s,
        "jobs": [_job_fields(job) for job in outcome.jobs],
    }


def _job_fields(job: JobTimes) -> dict[str, Any]:
    return {
        "job": job.job_id,
        "ideal_s": job.ideal_s,
        "mean_slowdown": job.mean_slowdown,
        "cut_off": job.cut_off,
        "iterations": [
            {"start_s": iteration.start_s, "all_reduce_s": iteration.all_reduce_s, "slowdown": slowdown}
            for iteration, slowdown in zip(job.iterations, job.slowdowns, strict=True)
        ],
    }
