"""Rows of the benchmark of real jobs, and their evaluation: ratios to the flat switch, per job and averaged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Any


class Mode(StrEnum):
    """Mode of a run; see ``benchmarks.joining.command``."""

    FLAT = "flat"
    ECMP = "ecmp"
    PLANNED = "planned"


class Announced(StrEnum):
    """Announcement of a job.

    ``RIGHT``: the collectives that the job requests from its library. ``REVERSED`` to ``OTHER``: wrong traffic (see
    ``mixes.spec_of``). ``OBSERVED``: only the hosts. ``CONNECTIONS``: the hosts, and their sockets' connections."""

    RIGHT = "right"
    REVERSED = "reversed"
    HALF = "half"
    DOUBLE = "double"
    OTHER = "other"
    OBSERVED = "observed"
    CONNECTIONS = "connections"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Row of a job in a window.

    Fields from ``announced`` on are set for planned jobs only. ``right_s``, ``alarm_s`` and ``found_s`` count from the
    announcement."""

    seed: int
    mode: str
    draw: int
    job: str
    library: str
    collective: str
    variant: str
    ranks: int
    iterations: int
    iteration_s: float
    """Mean over the iterations that lie completely in the window."""
    communication_s: float
    wrong: int
    announced: str = ""
    right_s: float | None = None
    """Seconds until the routes of all jobs were right and stayed so."""
    alarm_s: float | None = None
    """Seconds until the alarm ``demand_differs``."""
    found_s: float | None = None
    """Seconds until the controller planned the right pairs for the job, and continued to do so."""
    slowdown: float | None = None
    """Slowdown at the end, according to the controller."""
    own_slowdown: float | None = None
    """Slowdown of the job's routes, recomputed from the sockets' bytes."""
    worst_slowdown: float | None = None
    """Largest ``own_slowdown`` of all jobs."""
    least_slowdown: float | None = None
    """Smallest worst slowdown over all choices of spines."""
    proven: bool = False
    """Whether ``least_slowdown`` is proven."""
    certificate: str = ""
    source: str = ""
    pairs: int = 0
    """Number of pairs that carry traffic."""
    found: int = 0
    """Number of pairs with traffic that the controller planned for."""
    false: int = 0
    """Number of pairs without traffic that the controller planned for."""
    bytes_error: float | None = None
    """Largest relative error of the controller's bytes per iteration of a pair."""
    predicted: float = 0.0
    """Predicted efficiency; 0 if unknown."""
    measured: float = 0.0
    """Measured efficiency; 0 if unknown."""
    withheld: str = ""
    ideal_s: float = 0.0


SHOWN = (
    "right_s",
    "alarm_s",
    "found_s",
    "slowdown",
    "own_slowdown",
    "worst_slowdown",
    "least_slowdown",
    "source",
    "pairs",
    "found",
    "false",
    "bytes_error",
    "predicted",
    "measured",
)


def flat_s(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean iteration time of each job on the flat switch."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["mode"] == Mode.FLAT:
            found.setdefault(row["job"], []).append(row["iteration_s"])
    return {job: round(fmean(times), 3) for job, times in found.items()}


def hashed(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return for each job the mean and the worst iteration time of ECMP's draws, relative to the flat switch."""
    flat = flat_s(rows)
    drawn: dict[str, list[float]] = {}
    for row in rows:
        if row["mode"] == Mode.ECMP:
            drawn.setdefault(row["job"], []).append(row["iteration_s"])
    return [
        {
            "job": job,
            "draws": len(times),
            "mean": ratio(fmean(times), flat.get(job)),
            "worst": ratio(max(times), flat.get(job)),
        }
        for job, times in drawn.items()
    ]


def planned(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a line per job and announcement. ``over``: iteration time / (time on the flat switch x slowdown)."""
    flat = flat_s(rows)
    return [
        {
            "job": row["job"],
            "announced": row["announced"],
            "flat_s": flat.get(row["job"]),
            "over": ratio(row["iteration_s"], flat.get(row["job"], 0.0) * (row["slowdown"] or 1.0)),
            **{name: row[name] for name in SHOWN},
        }
        for row in rows
        if row["mode"] == Mode.PLANNED
    ]


def totals(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a line per announcement, with counts, sums and maxima over the jobs of ``planned``."""
    found = []
    for announced in dict.fromkeys(line["announced"] for line in lines):
        mine = [line for line in lines if line["announced"] == announced]
        over = [line["over"] for line in mine if line["over"]]
        found.append(
            {
                "announced": announced,
                "jobs": len(mine),
                "over_mean": round(fmean(over), 3) if over else None,
                "over_max": max(over, default=None),
                "routes_right": sum(line["right_s"] is not None for line in mine),
                "right_s_max": most(mine, "right_s"),
                "alarms": sum(line["alarm_s"] is not None for line in mine),
                "alarm_s_max": most(mine, "alarm_s"),
                "pairs": sum(line["pairs"] for line in mine),
                "found": sum(line["found"] for line in mine),
                "false": sum(line["false"] for line in mine),
                "bytes_error_max": most(mine, "bytes_error"),
            }
        )
    return found


def most(lines: Sequence[Mapping[str, Any]], name: str) -> Any:
    return max((line[name] for line in lines if line[name] is not None), default=None)


def ratio(value: float | None, base: float | None) -> float | None:
    return round(value / base, 3) if value and base else None


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    lines = planned(rows)
    return {
        "hashed": hashed(rows),
        "planned": lines,
        "totals": totals(lines),
        "wrong": sum(row["wrong"] for row in rows),
    }


def read_rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
