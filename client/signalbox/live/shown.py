"""Figures and messages of the API in words, for every place where people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite

from signalbox.jobs.reports import MOST_EFFICIENT
from signalbox.mapping import seconds, word_in, word_of
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


SOURCES = {
    "declared": "what it announced, not yet confirmed by counters",
    "confirmed": "what it announced, confirmed by counters",
    "measured": "what switches count",
    "provisional": "pairs that send, with bytes that are not yet confirmed by counters",
    "learning": "nothing yet: no traffic of it is confirmed by counters",
}
"""Description of the bytes that a job is planned for, by the word of the API."""
STATES = {"silent": "it sends nothing now", "slower": "its iteration takes longer than those before"}
"""Words for findings that do not contradict an announcement, by the word of the API."""
IMPOSSIBLE = "it announced too much, or reports its iterations as too short"


def planned_for(source: str) -> str:
    """Return which bytes a job is planned for in one word, for a row: the API's, but for those that counters have not
    confirmed."""
    return "unconfirmed" if source == "declared" else word(source)


def traffic_mark(job: pb.Job) -> str:
    """Return a mark for a row: ``!`` where the announcement is wrong, ``?`` where counters have not confirmed it."""
    if job.demand.difference or too_efficient(job.efficiency_measured):
        return " !"
    return " ?" if word_in(job.demand, "source") in ("declared", "provisional", "learning") else ""


def traffic_lines(job: pb.Job) -> list[str]:
    """Return what the marks of a job mean, and what is remarkable of its traffic otherwise, in sentences."""
    source = word_in(job.demand, "source")
    if not source or source == "confirmed":
        return remarks(job)
    return [*remarks(job), f"It is planned for {SOURCES.get(source, word(source))}."]


def remarks(job: pb.Job) -> list[str]:
    """Return the sentences of ``traffic_lines`` but for what the job is planned for."""
    demand = job.demand
    enum = pb.DemandFinding.DESCRIPTOR
    findings = (word_of(enum, finding) for finding in demand.findings)
    lines = [f"{STATES[found].capitalize()}." for found in findings if found in STATES]
    if demand.difference:
        lines.append(f"Its announcement is wrong: {demand.difference}.")
    if demand.patterns > 1:
        now = f"number {demand.pattern}" if demand.pattern else "another one"
        lines.append(f"It changes between {demand.patterns} traffic patterns, and sends {now} now.")
    if too_efficient(job.efficiency_measured):
        lines.append(f"Its measured efficiency, {job.efficiency_measured:.0%}, is not possible: {IMPOSSIBLE}.")
    return lines


def too_efficient(measured: float | None) -> bool:
    """Whether a measured efficiency cannot be one."""
    return measured is not None and measured > MOST_EFFICIENT


def efficiencies(job: pb.Job) -> tuple[float | None, float | None]:
    """Predicted and measured; None while unknown. A job that waits for hosts has no prediction, the API says 0."""
    known = job.HasField("efficiency_predicted") and job.state != pb.JOB_STATE_PENDING
    return (
        job.efficiency_predicted if known else None,
        job.efficiency_measured if job.HasField("efficiency_measured") else None,
    )
