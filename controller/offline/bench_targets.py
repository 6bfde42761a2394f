"""What planning is measured against, for ``bench plan``: every target with how many cases meet it, and the worst one.

In: rows. Out: ``Target``s, those that some row says something about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from controller.offline.bench_changes import ChangeRow
from controller.offline.bench_growth import FLOWS, GrowthRow
from controller.offline.bench_measure import PLANNED, Row
from controller.offline.bench_workloads import FAILURES, IRREGULAR, ONE_JOB, WHOLE_SPINES

_ROUNDING = 1e-9
_WITHIN = 1.01
_MOST_FLOWS, _FEWEST_FLOWS = 1_728, 1_152
"""Of the cases that the times are asked for."""
_MODEL = 5_000
"""Class x path variables."""
_CABLES = tuple(name for name, failure in FAILURES.items() if failure.cables)
_MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True)
class Target:
    """``met`` of ``cases``. ``worst``: of all of them, in words."""

    name: str
    cases: int
    met: int
    worst: str


@dataclass(frozen=True, slots=True)
class _Rule:
    """``of``: which rows it is about. ``met``: whether one does. ``figure``: the larger the worse; ``words``: it."""

    name: str
    of: Callable[[Row], bool]
    met: Callable[[Row], bool]
    figure: Callable[[Row], float]
    words: str


def _off(row: Row) -> float:
    """Level / what it could be."""
    return row.level / (row.closed_form or row.bound)


def _fast(row: Row) -> bool:
    return row.failure in WHOLE_SPINES and row.group in ("published", "whole-leaf") and _size(row)


def _size(row: Row) -> bool:
    return _FEWEST_FLOWS <= row.flows <= _MOST_FLOWS


def _exact(row: Row) -> bool:
    return row.closed_form is not None and row.level <= row.closed_form * (1 + _ROUNDING)


_RULES = (
    _Rule(
        "whole flows, whole spines fail: level = max(1, ceil(D/S))",
        lambda row: row.closed_form is not None and not row.splits,
        _exact,
        _off,
        "{:.6g} x the best",
    ),
    _Rule(
        "split flows, whole spines fail: level = max(1, D/S) in at most 2 pieces",
        lambda row: row.closed_form is not None and row.splits,
        lambda row: _exact(row) and row.most_subflows <= 2,
        _off,
        "{:.6g} x the best",
    ),
    _Rule(
        "split flows, cables fail: level <= 1.01 x bound in at most 8 pieces",
        lambda row: row.failure in _CABLES and row.splits and not _irregular(row),
        lambda row: row.level <= _WITHIN * row.bound and row.most_subflows <= 8,
        _off,
        "{:.4f} x the bound",
    ),
    _Rule(
        "whole flows, failures that hit one job, published: all levels proven within 1 s",
        lambda row: row.failure == ONE_JOB and not row.splits and row.group == "published",
        lambda row: row.proven and row.total_ms <= 1000,
        lambda row: row.total_ms,
        "{:.0f} ms",
    ),
    *(
        _Rule(
            f"{group}: proven",
            lambda row, group=group: row.group == group,  # type: ignore[misc]
            lambda row: row.proven,
            _off,
            "{:.4f} x the bound",
        )
        for group in IRREGULAR
    ),
    _Rule(
        "whole flows, 1,152 to 1,728, whole spines fail: planned within 10 ms",
        lambda row: _fast(row) and not row.splits,
        lambda row: row.total_ms <= 10,
        lambda row: row.total_ms,
        "{:.1f} ms",
    ),
    _Rule(
        "split flows, 1,152 to 1,728, whole spines fail: planned within 25 ms",
        lambda row: _fast(row) and row.splits,
        lambda row: row.total_ms <= 25,
        lambda row: row.total_ms,
        "{:.1f} ms",
    ),
    _Rule(
        "whole flows, cables fail, published: proven within 500 ms",
        lambda row: (
            row.group == "published" and not row.splits and row.failure not in WHOLE_SPINES and row.variables <= _MODEL
        ),
        lambda row: row.proven and row.total_ms <= 500,
        lambda row: row.total_ms,
        "{:.0f} ms",
    ),
    _Rule(
        "fragmented, whatever fails: planned within 1 s",
        lambda row: row.group == "fragmented",
        lambda row: row.total_ms <= 1000,
        lambda row: row.total_ms,
        "{:.0f} ms",
    ),
)


def targets(rows: Sequence[Row], changes: Sequence[ChangeRow], growth: Sequence[GrowthRow]) -> list[Target]:
    ours = [row for row in rows if row.strategy == PLANNED]
    judged = [_judged(rule, [row for row in ours if rule.of(row)]) for rule in _RULES]
    return [target for target in (*judged, *_of_changes(changes), *_of_growth(growth)) if target.cases]


def _judged(rule: _Rule, rows: Sequence[Row]) -> Target:
    met = sum(map(rule.met, rows))
    worst = rule.words.format(max(map(rule.figure, rows))) if rows else ""
    return Target(rule.name, len(rows), met, worst)


def _irregular(row: Row) -> bool:
    return row.group in IRREGULAR


def _of_changes(changes: Sequence[ChangeRow]) -> Iterable[Target]:
    for name, rows in (
        ("small fabrics", [row for row in changes if row.group == "small"]),
        ("large fabrics", [row for row in changes if row.group != "small"]),
    ):
        kept = [row for row in rows if row.pieces == 1]
        worst = f"{max([row.moves for row in kept], default=0)} moves"
        proven = sum(row.certificate == "optimal" and row.fewest for row in kept)
        yield Target(f"whole flows, a change on {name}: optimal in levels and moves, proven", len(kept), proven, worst)


def _of_growth(growth: Sequence[GrowthRow]) -> Iterable[Target]:
    largest = [row for row in growth if row.flows == FLOWS[-1]]
    met = [row for row in largest if row.total_ms <= 1500 and row.peak_mib <= 2 * _MIB_PER_GIB]
    slowest = max([row.total_ms for row in largest], default=0.0)
    most = max([row.peak_mib for row in largest], default=0.0)
    worst = f"{slowest:.0f} ms, {most / _MIB_PER_GIB:.2f} GiB"
    yield Target(f"{FLOWS[-1]:,} flows on 512 leaves and 128 spines: 1.5 s, 2 GiB", len(largest), len(met), worst)
