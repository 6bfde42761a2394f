"""What the tables of ``signalbox top`` say, as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from signalbox.live.happened import event_clock, event_line
from signalbox.live.shown import (
    alarm_line,
    clock,
    counted,
    efficiencies,
    job_state,
    level,
    percent,
    rate,
    traffic_lines,
    traffic_mark,
    wiring_line,
    word,
)
from signalbox.live.state import Job, Link, ListedRoute, State, load
from signalbox.mapping import seconds_since_1970, word_in

MOST_JOBS, MOST_LINKS, MOST_ALARMS, MOST_EVENTS = 200, 30, 50, 50
"""Rows of a table."""

Columns = tuple[tuple[str, int], ...]
"""Titles and widths; those of 0 share what is left."""

JOB_COLUMNS: Columns = (
    ("job", 0),
    ("state", 0),
    ("pinned", 7),
    ("level", 6),
    ("predicted", 9),
    ("measured", 8),
    ("iter", 7),
)
LINK_COLUMNS: Columns = (("link", 0), ("use", 4), ("rate", 11), ("unannounced", 11))
ALARM_COLUMNS: Columns = (("since", 8), ("alarm", 0))
EVENT_COLUMNS: Columns = (("time", 8), ("event", 0))

Rows = list[tuple[str, ...]]
"""The first text of a row names it."""


def facts(state: State) -> str:
    """One line: how the controller is."""
    if state.lost is None:
        return "waiting for the controller's first answer"
    if state.lost:
        return f"OLD: {state.lost}"
    if state.refused:
        return f"REFUSED: {state.refused}"
    if (status := state.status) is None:
        return ""
    efficiency = status.network_efficiency if status.HasField("network_efficiency") else None
    alarms = sum(not alarm.HasField("silence") for alarm in state.alarms.values())
    return (
        f"{word(word_in(status, 'strategy'))}, efficiency {percent(efficiency)}, "
        f"{status.switches_in_sync}/{status.known_switches} switches in sync, "
        f"{status.links}/{status.known_links} links, {counted(alarms, 'alarm')}"
    )


def plan(state: State) -> str:
    """One line: the newest plan."""
    if state.plan is None:
        return "no plan yet"
    newest = state.levels[-1]
    return f"plan: worst level {level(newest.plan)}, bound {level(newest.bound)}, under ECMP {level(newest.ecmp)}"


def jobs(state: State, find: str) -> Rows:
    """The most urgent first."""
    found: Rows = []
    for job in state.jobs_by_urgency(find)[:MOST_JOBS]:
        predicted, measured = efficiencies(job)
        lost = f", {job.flows_without_path} without a path" if job.flows_without_path else ""
        found.append(
            (
                job.spec.job_id,
                job_state(job) + traffic_mark(job) + lost,
                f"{job.pinned}/{job.virtual_links}",
                level(job.level if job.HasField("level") else None),
                percent(predicted),
                percent(measured),
                str(job.iterations),
            )
        )
    return found


def of_job(job: Job | None, why: str, routes: Iterable[ListedRoute]) -> str:
    """All of one, which may have ended since. ``why``: the controller's answer, whether the network slows it."""
    hashed = "-" if job and (job.missing_hosts or job.wiring.unwired) else "ecmp"
    paths = [
        f"{route.src} > {route.dst}: " + (" | ".join(" > ".join(path.switches) for path in route.held) or hashed)
        for route in routes
    ]
    about = [wiring_line(job), *traffic_lines(job)] if job else []
    return "\n".join((why, *filter(None, about), "", *paths))


def links(state: State) -> Rows:
    """The fullest first."""
    return [
        (link.name, percent(load(link)), rate(link.rate_bps), _unannounced(link))
        for link in state.busiest_links(MOST_LINKS)
    ]


def _unannounced(link: Link) -> str:
    """It is known later than the rate: what jobs sent over the link has to be counted for a whole window."""
    return rate(link.background_bps) if link.HasField("background_bps") else "-"


def alarms(state: State) -> Rows:
    found = state.alarms_by_urgency()[:MOST_ALARMS]
    return [(clock(seconds_since_1970(each.raise_time)), alarm_line(each)) for each in found]


def events(state: State) -> Rows:
    """The newest first."""
    return [(event_clock(each), event_line(each)) for each in state.newest_events(MOST_EVENTS)]
