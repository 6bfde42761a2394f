"""Rows of tables about a state, as short text. The first text of a row is the row's name."""

from __future__ import annotations

from collections.abc import Iterable

from signalbox.live.happened import event_line
from signalbox.live.jobs import Job, efficiencies, job_slowdown, state_in_row
from signalbox.live.shown import alarm_line, clock, counted, optional, percent, rate, short, slowdown, word
from signalbox.live.state import Link, State, load
from signalbox.mapping import word_in

Rows = list[tuple[str, ...]]


def facts(state: State) -> str:
    """Return one line about the state of the controller."""
    if state.lost is None:
        return "waiting for the controller's first answer"
    if state.lost:
        return short(f"OLD: {state.lost}")
    if state.refused:
        return short(f"INCOMPLETE: {state.refused}")
    if (status := state.status) is None:
        return ""
    alarms = sum(not alarm.HasField("silence") for alarm in state.alarms.values())
    return (
        f"{word(word_in(status, 'mode'))}, efficiency {percent(optional(status, 'network_efficiency'))}, "
        f"{status.switches_in_sync}/{status.known_switches} switches in sync, "
        f"{status.links}/{status.known_links} links, {counted(alarms, 'alarm')}"
    )


def plan(state: State) -> str:
    """Return one line about the newest plan."""
    if state.plan is None:
        return "no plan yet"
    newest = state.slowdowns[-1]
    best = f"bound {slowdown(newest.bound)}, under ECMP {slowdown(newest.ecmp)}"
    return f"plan: worst slowdown {slowdown(newest.plan)}, {best}"


def jobs(found: Iterable[Job]) -> Rows:
    """Return a row per job: id, state, pinned flows, slowdown, predicted and measured efficiency, iterations."""
    return [
        (
            short(job.spec.job_id),
            short(state_in_row(job)),
            f"{job.pinned}/{job.virtual_links}",
            job_slowdown(job),
            *map(percent, efficiencies(job)),
            str(job.iterations),
        )
        for job in found
    ]


def links(state: State, most: int) -> Rows:
    """Return a row for each of the ``most`` fullest links: name, use of the capacity, rate, unannounced traffic."""
    cells = map(link_cells, state.busiest_links(most))
    return [(name, use, bps, unannounced) for name, use, bps, _, unannounced in cells]


def link_cells(link: Link) -> tuple[str, str, str, str, str]:
    """Return name, use of the capacity, rate, capacity and unannounced traffic of a link.

    The unannounced traffic is known later than the rate, because the jobs' traffic over the link must be counted for a
    whole window."""
    unannounced = rate(optional(link, "background_bps"))
    return short(link.name), percent(load(link)), rate(optional(link, "rate_bps")), rate(link.capacity_bps), unannounced


def alarms(state: State, most: int) -> Rows:
    """Return the time and the line of each alarm, the most urgent first.

    The line of an acknowledged or silenced alarm begins with ``known``, so a line that is cut still shows it."""
    return [
        (clock(each.raise_time), short(f"{'known: ' if each.HasField('silence') else ''}{alarm_line(each)}"))
        for each in state.alarms_by_urgency()[:most]
    ]


def events(state: State, most: int) -> Rows:
    """Return the time and the sentence of each event, newest first."""
    return [(clock(each.event_time), short(event_line(each))) for each in state.newest_events(most)]
