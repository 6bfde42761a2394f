"""Comparisons of ``rewiring``: rows per job, targets, tables. All functions are pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from mininet_topos.demo.report import Target
from mininet_topos.rewiring.report import CHOSEN, SWITCH, Row, as_modelled

MEDIAN, WORST = "random wiring, median", "random wiring, worst"
ECMP, PLANNED = "3 leaves x 2 spines, ECMP", "3 leaves x 2 spines, planned"
FACTOR = 2.0
"""Factor by which a chosen wiring should be better than the switch, for at least one job."""


@dataclass(frozen=True, slots=True)
class OfJob:
    """Rows of one job."""

    name: str
    refused: bool
    """Whether the controller would have refused the job."""
    chosen: Row
    random: tuple[Row, ...]
    """Row of each random wiring."""
    others: tuple[Row, ...]
    """Rows of the switch, and of leaves and spines."""

    @property
    def rows(self) -> list[Row]:
        return [self.chosen, *middle_and_worst(self.random), *self.others]

    @property
    def switch(self) -> Row:
        return next(row for row in self.others if row.fabric == SWITCH)

    def data(self) -> dict[str, Any]:
        return {
            "job": self.name,
            "refused": self.refused,
            "rows": [row.data() for row in self.rows],
            "random": [row.data() for row in self.random],
        }


@dataclass(frozen=True, slots=True)
class Changed:
    """Changes of one job's circuits while another job trains."""

    circuits: int
    ms: tuple[float, ...]
    """Duration of each change in ms."""
    probes: int
    """Packets between servers of the training job."""
    lost: int
    """Number of ``probes`` that were lost."""
    dropped: int
    """Packets of all kinds that full queues and buffers of the emulation dropped, on all links."""
    iterations: int
    """Iterations that the training job ended during the changes."""

    @property
    def median_ms(self) -> float:
        return median(self.ms)


def middle_and_worst(rows: Sequence[Row]) -> list[Row]:
    """Return the median and the worst row by measured time; empty without rows.

    Of an even number of rows the median is the faster middle one."""
    if not rows:
        return []
    ordered = sorted(rows, key=lambda row: row.measured_s)
    return [_named(ordered[(len(ordered) - 1) // 2], MEDIAN), _named(ordered[-1], WORST)]


def targets(jobs: Sequence[OfJob], changed: Changed | None) -> list[Target]:
    found = [as_modelled(row, f"{job.name}, ") for job in jobs for row in job.rows if row.modelled_s is not None]
    found = [target for target in found if ECMP not in target.name]
    factors = {job.name: job.switch.measured_s / job.chosen.measured_s for job in jobs}
    best = max(factors.values())
    found.append(Target(f"{SWITCH} / {CHOSEN}, best job", f"{best:.2f}", f">= {FACTOR:g}", best >= FACTOR))
    for job in jobs:
        met = None if job.refused else factors[job.name] >= 1
        figure = f"{factors[job.name]:.2f}" + (" (refused)" if job.refused else "")
        found.append(Target(f"{job.name}, {SWITCH} / {CHOSEN}", figure, ">= 1", met))
    if changed:
        found.append(
            Target("packets of the other job lost", f"{changed.lost} of {changed.probes}", "0", not changed.lost)
        )
    return found


def missed(judged: Sequence[Target]) -> list[str]:
    return [f"missed: {each.name} is {each.figure}, not {each.target}" for each in judged if each.met is False]


def change_times(ms: Sequence[float]) -> dict[str, Any]:
    """Return the times of all changes for jobs that joined; there is at least one."""
    return {"count": len(ms), "median_ms": median(ms), "max_ms": max(ms)}


def _named(row: Row, name: str) -> Row:
    return Row(**{**asdict(row), "fabric": name})
