"""Figures of ``outages``: pure functions that make rows and findings from windows, iterations and counted actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from mininet_topos.trainer.log import RankLog
from signalbox.jobs.subflows import Pair

TOGETHER = 5
"""Number of consecutive iterations whose mean is compared."""
LIMIT = 1.05
LEASE_EARLY_S, LEASE_LATE_S = 0.05, 1.5
"""Seconds by which a lease may end earlier or later than the controller reported.

These limits count from the request, and cover the controller's tick, two calls and a poll."""

Window = tuple[float, float]
"""Begin and end in monotonic seconds."""
Paths = Mapping[Pair, Sequence[str]]
"""Switches on the path of each pair of addresses; empty for a pair that is not pinned."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Outage and its consequences."""

    what: str
    away_s: float
    back_s: float | None
    """Seconds from the outage's end until ``Site.in_touch`` holds; None if it did not hold in time."""
    before: Window
    """Undisturbed window before the outage; ``after``: undisturbed window after the outage."""
    window: Window
    """Window from the begin of the outage until some time after ``back_s``."""
    after: Window
    did: Mapping[str, int]
    """Actions of the controller in the window, counted.

    ``moved``: pairs that were published with another path; ``unpinned``: with no path. ``rules``: new or missing rules
    of switches. ``registered``, ``ended``: jobs. ``plans``: runs of the planner."""
    alarms: Mapping[str, int]
    """Number of alarms raised, by kind."""
    left: Sequence[str]
    """Alarms that are still raised at the end."""


@dataclass(frozen=True, slots=True)
class Exit:
    """Result of one way of ending a job.

    ``gone``: when the job was gone, in words. ``ok``: whether that is as it ``should`` be."""

    what: str
    gone: str
    should: str
    ok: bool


def means(took_s: Sequence[float]) -> list[float]:
    """Return the mean of every ``TOGETHER`` consecutive values; empty when there are fewer."""
    return [fmean(took_s[n : n + TOGETHER]) for n in range(len(took_s) - TOGETHER + 1)]


def took_in(log: RankLog, window: Window) -> list[float]:
    """Return the seconds of the iterations that end in the window, including the one under way when it begins."""
    return [round(one.duration_s, 4) for one in log.iterations if window[0] < one.end <= window[1]]


def ratios(before: Sequence[float], disturbed: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Return the largest mean of disturbed and of undisturbed iterations, each over the median of undisturbed means.

    The results are infinite when one of the three has too few iterations."""
    usual = means(before) + means(after)
    if not (means(before) and means(disturbed) and means(after)):
        return float("inf"), float("inf")
    return max(means(disturbed)) / median(usual), max(usual) / median(usual)


def changed(paths: Paths, told: Sequence[Paths]) -> tuple[int, int]:
    """Return the numbers of moves of a pair to another path and of unpinned pairs in the changes ``told`` of ``paths``.

    A pair that is unpinned and pinned to the same path again has not moved."""
    now, last, moved, unpinned = dict(paths), dict(paths), 0, 0
    for change in told:
        for pair, path in change.items():
            moved += bool(path) and path != last.get(pair)
            unpinned += not path and bool(now.get(pair))
            now[pair], last[pair] = path, path or last.get(pair, ())
    return moved, unpinned


def lease_ran_out(gone_s: float | None, left_s: float) -> bool:
    """Return whether a lease ended when it should.

    ``left_s``: seconds that the controller reported as left. ``gone_s``: seconds from then until the job was gone."""
    return gone_s is not None and -LEASE_EARLY_S <= gone_s - left_s <= LEASE_LATE_S


def build(outages: Sequence[Outage], exits: Sequence[Exit], logs: Sequence[RankLog]) -> dict[str, Any]:
    """Return the content of ``outages.json``. ``logs``: logs of all ranks; times are from rank 0 of each job."""
    found: dict[str, Any] = {
        "outages": [_row(outage, [log for log in logs if log.rank == 0]) for outage in outages],
        "exits": [asdict(one) for one in exits],
        "wrong_results": sum(not one.ok for log in logs for one in log.iterations),
    }
    return {**found, "missed": list(_missed(found))}


def _row(outage: Outage, logs: Sequence[RankLog]) -> dict[str, Any]:
    windows = outage.before, outage.window, outage.after
    took = {log.job_id: [took_in(log, window) for window in windows] for log in logs}
    of_jobs = [ratios(*of_job) for of_job in took.values()]
    longest_s = max((one for _, disturbed, _ in took.values() for one in disturbed), default=0.0)
    ratio, usual = (max(column) for column in zip(*of_jobs, strict=True))
    return {**asdict(outage), "ratio": ratio, "usual_ratio": usual, "longest_s": longest_s, "took_s": took}


def _missed(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences about the missed targets."""
    for row in found["outages"]:
        what, did = row["what"], row["did"]
        if row["ratio"] > LIMIT:
            yield f"{what}: {TOGETHER} iterations took {row['ratio']:.3f} times as long, not {LIMIT:g}"
        if row["back_s"] is None:
            yield f"{what}: the controller did not have all jobs again in time"
        yield from (f"{what}: {name} {did[name]}" for name in ("moved", "rules", "registered", "ended") if did[name])
        yield from (f"{what}: there is still an alarm: {text}" for text in row["left"])
    yield from (f"{row['what']}: {row['gone']}, not {row['should']}" for row in found["exits"] if not row["ok"])
    if found["wrong_results"]:
        yield f"{found['wrong_results']} iterations had a wrong result"
