"""Tables of the page: their rows, and how they are filled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nicegui import ui

from signalbox.live.happened import event_clock, event_line
from signalbox.live.shown import alarm_line, clock, efficiencies, job_state, level, percent, traffic_mark
from signalbox.live.state import Job, State
from signalbox.mapping import seconds_since_1970

MOST_JOBS, MOST_EVENTS, MOST_ALARMS = 100, 50, 100
"""Rows of a table."""

Row = dict[str, Any]


def job_rows(state: State, find: str, chosen: str) -> tuple[list[Row], int]:
    """The most urgent first, and how many more there are. ``find``: part of their ids."""
    jobs = state.jobs_by_urgency(find)
    return [_job_row(job, chosen) for job in jobs[:MOST_JOBS]], max(0, len(jobs) - MOST_JOBS)


def _job_row(job: Job, chosen: str) -> Row:
    lost = f", {job.flows_without_path} without a path" if job.flows_without_path else ""
    return {
        "job": job.spec.job_id,
        "state": job_state(job) + traffic_mark(job) + lost,
        "flows": f"{job.pinned}/{job.virtual_links}",
        "level": level(job.level if job.HasField("level") else None),
        "measured": percent(efficiencies(job)[1]),
        "chosen": job.spec.job_id == chosen,
    }


def alarm_rows(state: State) -> list[Row]:
    alarms = state.alarms_by_urgency()[:MOST_ALARMS]
    return [{"since": clock(seconds_since_1970(each.raise_time)), "alarm": alarm_line(each)} for each in alarms]


def event_rows(state: State) -> list[Row]:
    events = state.newest_events(MOST_EVENTS)
    return [{"time": event_clock(each), "event": event_line(each)} for each in events]


def table(what: str, columns: Iterable[str]) -> ui.table:
    """Small: it scrolls."""
    shown = [{"name": name, "label": name, "field": name, "align": "left"} for name in columns]
    made = ui.table(columns=shown, rows=[], row_key="number")
    made.props(f'dense flat wrap-cells hide-pagination :rows-per-page-options=[0] no-data-label="no {what}"')
    return made.classes(f"w-full max-h-80 {what}")


def fill(filled: ui.table, rows: Sequence[Row]) -> None:
    """If they differ from what the browser has."""
    numbered = [{"number": number, **row} for number, row in enumerate(rows)]
    if filled.rows != numbered:
        filled.rows = numbered
