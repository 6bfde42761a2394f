"""Rows of the benchmark of real jobs, and what is made of them: ratios to the flat switch, per job and in the mean."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Group

from benchmarks.measures import table_of


class Mode(StrEnum):
    """See the module."""

    FLAT = "flat"
    ECMP = "ecmp"
    PLANNED = "planned"


class Source(StrEnum):
    """Of the announced bytes: the formulas of ``mixes``, or the jobs' sockets while they train."""

    FORMULA = "formula"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True)
class Row:
    """One job in one window. ``iteration_s``: the mean over the iterations wholly in it. ``level``: of the job in the
    plan that was in force, with the plan's certificate."""

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
    wrong: int
    level: float | None = None
    certificate: str = ""
    announced: str = ""


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Per job: the flat switch's iteration, and those of the other modes over it."""
    found: list[dict[str, Any]] = []
    for job in dict.fromkeys(row["job"] for row in rows):
        mine = [row for row in rows if row["job"] == job]
        of_mode = {mode: [row for row in mine if row["mode"] == mode] for mode in Mode}
        flat = mean_s(of_mode[Mode.FLAT])
        hashed_s = [row["iteration_s"] for row in of_mode[Mode.ECMP]]
        levels = [row["level"] for row in of_mode[Mode.PLANNED] if row["level"]]
        line = {
            "job": job,
            "variant": mine[0]["variant"],
            "flat_s": flat,
            "draws": len(hashed_s),
            "ecmp_over_flat": ratio(mean_s(of_mode[Mode.ECMP]), flat),
            "worst_draw": ratio(max(hashed_s, default=None), flat),
        }
        for source in Source:
            line[f"planned_{source}"] = ratio(
                mean_s([row for row in of_mode[Mode.PLANNED] if row["announced"] == source]), flat
            )
        found.append({**line, "level": levels[-1] if levels else None, "wrong": sum(row["wrong"] for row in mine)})
    return found


def mean_s(rows: Sequence[Mapping[str, Any]]) -> float | None:
    return round(fmean(row["iteration_s"] for row in rows), 3) if rows else None


def ratio(value: float | None, base: float | None) -> float | None:
    return round(value / base, 3) if value and base else None


def totals(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Over all jobs: the means of the ratios."""
    columns = ("ecmp_over_flat", "worst_draw", *(f"planned_{source}" for source in Source))
    values = {column: [line[column] for line in lines if line[column]] for column in columns}
    means = {column: round(fmean(found), 3) if found else None for column, found in values.items()}
    return {"jobs": len(lines), **means, "wrong": sum(line["wrong"] for line in lines)}


def read_rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def tables(found: Mapping[str, Any]) -> Group:
    """``-`` where nothing was measured."""

    def shown(line: Mapping[str, Any]) -> dict[str, Any]:
        return {name: "-" if value is None else value for name, value in line.items()}

    jobs = table_of("Iteration times over those on the flat switch", [shown(line) for line in found["jobs"]])
    return Group(jobs, table_of("Means over the jobs", [shown(found["total"])]))
