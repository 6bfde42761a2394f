"""Figures and messages of the API in words, for every place where people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite

from signalbox.mapping import seconds, word_in
from signalbox.v1 import signalbox_pb2 as pb


def word(value: str | None) -> str:
    """A value of an enum, ``partly_pinned``, as people say it."""
    return (value or "-").replace("_", " ")


def rate(bps: float) -> str:
    """In three digits. What these round to 1000 of a unit is 1 of the next; ``-`` for what is no number."""
    if not isfinite(bps):
        return "-"
    for unit, size in (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bps >= 0.9995 * size:
            return f"{bps / size:.3g} {unit}"
    return f"{bps:.0f} bit/s"


def counted(count: int, what: str, several: str = "") -> str:
    return f"{count} {what}" if count == 1 else f"{count} {several or f'{what}s'}"


def percent(share: float | None) -> str:
    """``-`` while it is unknown."""
    return "-" if share is None or not isfinite(share) else f"{share:.0%}"


def level(value: float | None) -> str:
    return "-" if value is None or not isfinite(value) else f"{value:.3f}"


def clock(unix_s: float) -> str:
    return moment(unix_s, "%H:%M:%S")


def moment(unix_s: float, form: str) -> str:
    """In UTC; ``-`` for what is no time between the years 1 and 9999."""
    try:
        return datetime.fromtimestamp(unix_s, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return "-"


def alarm_line(alarm: pb.Alarm) -> str:
    known = "known: " if alarm.HasField("silence") else ""
    return f"{known}{word_in(alarm, 'severity')} {word(word_in(alarm, 'kind'))}: {alarm.text}"


def job_state(job: pb.Job) -> str:
    """What its flows do, and what it waits for."""
    waits = f", waits for {', '.join(job.missing_hosts)}" if job.missing_hosts else ""
    unwired = f", {job.wiring.unwired}" if job.wiring.unwired else ""
    return f"{word(word_in(job, 'state'))}{waits}{unwired}"


def wiring_line(job: pb.Job) -> str:
    """How a job is wired, or why it is not; empty where there are no optical switches."""
    if not job.HasField("wiring"):
        return ""
    wiring = job.wiring
    if wiring.unwired:
        return f"no circuits: {wiring.unwired}"
    times_s = (wiring.iteration, wiring.iteration_bound, wiring.iteration_alternative)
    return wired(len(wiring.circuits), wiring.strategy, *map(seconds, times_s))


def wired(circuits: int, strategy: str, iteration_s: float, bound_s: float, alternative_s: float) -> str:
    """Seconds are by the model. ``strategy``: empty for a job without."""
    chosen = f" for strategy {strategy}" if strategy else ""
    return (
        f"{counted(circuits, 'circuit')}{chosen}; an iteration takes {iteration_s:.4g} s by the model "
        f"(at least {bound_s:.4g} s; {alternative_s:.4g} s on one switch of the same cost)"
    )


def printable(text: str) -> str:
    """Without what a terminal obeys: names come from those who register jobs."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def efficiencies(job: pb.Job) -> tuple[float | None, float | None]:
    """Predicted and measured; None while unknown. A job that waits for hosts has no prediction, the API says 0."""
    known = job.HasField("efficiency_predicted") and job.state != pb.JOB_STATE_PENDING
    return (
        job.efficiency_predicted if known else None,
        job.efficiency_measured if job.HasField("efficiency_measured") else None,
    )
