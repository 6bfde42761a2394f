"""Report of ``outages``: pure functions that compare iterations and counted actions with the targets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from mininet_topos.trainer.log import RankLog
from signalbox.jobs.subflows import Pair

TOGETHER = 5
"""Number of consecutive iterations whose mean duration is compared."""
LIMIT = 1.05

Window = tuple[float, float]
"""Start and end of a period in monotonic seconds."""
Paths = Mapping[Pair, Sequence[str]]
"""Switches on the path of each pair of addresses; an empty path for a pair without a pin."""


@dataclass(frozen=True, slots=True)
class Outage:
    what: str
    away_s: float
    back_s: float | None
    """Seconds from the end of the outage until ``Site.in_touch`` is true again; None if that took too long."""
    before: Window
    """Undisturbed period before the outage; ``after`` is the period after it."""
    window: Window
    """Period from the start of the outage until some time after the controller has all jobs again."""
    after: Window
    did: Mapping[str, int]
    """Numbers of the controller's actions in ``window``.

    ``moved``, ``unpinned``: pairs that got another path, or none. ``rules``: rules of switches that were added or
    removed. ``registered``, ``ended``: jobs. ``plans``: runs of the planner."""
    alarms: Mapping[str, int]
    left: Sequence[str]
    """Texts of the alarms that were still raised after ``window``."""


def means(took_s: Sequence[float]) -> list[float]:
    """Return the means of all ``TOGETHER`` consecutive values; none if there are fewer values."""
    return [fmean(took_s[n : n + TOGETHER]) for n in range(len(took_s) - TOGETHER + 1)]


def took_in(log: RankLog, window: Window) -> list[float]:
    """Return the seconds of the iterations that ended in the window, even if they began before it."""
    return [round(one.duration_s, 4) for one in log.iterations if window[0] < one.end <= window[1]]


def ratios(before: Sequence[float], disturbed: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Return the largest ``means`` of disturbed and of undisturbed iterations, relative to the undisturbed median.

    Both are infinite if one of the arguments has too few iterations."""
    usual = means(before) + means(after)
    if not (means(before) and means(disturbed) and means(after)):
        return float("inf"), float("inf")
    return max(means(disturbed)) / median(usual), max(usual) / median(usual)


def changed(paths: Paths, published: Sequence[Paths]) -> tuple[int, int]:
    """Return how often a pair got another path, and how often a pair lost its pin.

    ``paths``: paths at the start. ``published``: later changes, in order. A pair that loses its pin and gets the
    same path again has not moved."""
    now, last, moved, unpinned = dict(paths), dict(paths), 0, 0
    for change in published:
        for pair, path in change.items():
            moved += bool(path) and path != last.get(pair)
            unpinned += not path and bool(now.get(pair))
            now[pair], last[pair] = path, path or last.get(pair, ())
    return moved, unpinned


def build(outages: Sequence[Outage], logs: Sequence[RankLog]) -> dict[str, Any]:
    """Return the content of ``outages.json``. Durations are those of each job's rank 0."""
    found: dict[str, Any] = {
        "outages": [_row(outage, [log for log in logs if log.rank == 0]) for outage in outages],
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
    for row in found["outages"]:
        what, did = row["what"], row["did"]
        if row["ratio"] > LIMIT:
            yield f"{what}: {TOGETHER} iterations took {row['ratio']:.3f} times as long as usual (at most {LIMIT:g})"
        if row["back_s"] is None:
            yield f"{what}: the controller did not have all jobs again in time"
        yield from (f"{what}: {name} {did[name]}" for name in ("moved", "rules", "registered", "ended") if did[name])
        yield from (f"{what}: there is still an alarm: {text}" for text in row["left"])
    if found["wrong_results"]:
        yield f"{found['wrong_results']} iterations had a wrong result"
