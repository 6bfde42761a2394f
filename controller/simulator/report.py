"""What a simulation says, as plain data for programs; the fields are an interface (docs/simulator.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controller.simulator.options import Options
from controller.simulator.training import JobTimes, Outcome


def report(options: Options, bound: float, outcomes: Sequence[tuple[str, Outcome]]) -> dict[str, Any]:
    """``bound``: of the worst job's level, however flows are split. ``outcomes``: by name of the strategy."""
    return {
        "iterations": options.iterations,
        "random_starts_s": options.random_starts_s,
        "replan": options.replan.value,
        "sharing": options.sharing.value,
        "lose_sent": options.lose_sent,
        "seed": options.seed,
        "bound": bound,
        "strategies": [{"strategy": name, **_strategy(outcome)} for name, outcome in outcomes],
    }


def _strategy(outcome: Outcome) -> dict[str, Any]:
    return {
        "mean_slow_down": outcome.mean_slow_down,
        "plans": outcome.plans,
        "adopted": outcome.adopted,
        "moves": outcome.moves,
        "end_s": outcome.end_s,
        "jobs": [_job(job) for job in outcome.jobs],
    }


def _job(job: JobTimes) -> dict[str, Any]:
    return {
        "job": job.job_id,
        "ideal_s": job.ideal_s,
        "mean_slow_down": job.mean_slow_down,
        "cut_off": job.cut_off,
        "iterations": [
            {"start_s": iteration.start_s, "all_reduce_s": iteration.all_reduce_s, "slow_down": slow_down}
            for iteration, slow_down in zip(job.iterations, job.slow_downs, strict=True)
        ],
    }
