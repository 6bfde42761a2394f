"""Sentences that the page shows about the controller and its cables."""

from __future__ import annotations

from collections.abc import Iterable

from signalbox.live.crossing import ListedRoute, flows_over, jobs_of
from signalbox.live.picture import Cable
from signalbox.live.shown import NAME_CHARS, counted, optional, percent, short, slowdown, word
from signalbox.live.state import State
from signalbox.mapping import word_in


def facts(state: State) -> str:
    """Return one line on the state of the controller and its plan; empty before its first answer."""
    if (status := state.status) is None:
        return ""
    efficiency = percent(optional(status, "network_efficiency"))
    newest = state.slowdowns[-1] if state.slowdowns else None
    plan = f" · worst slowdown {slowdown(newest.plan)}, under ECMP {slowdown(newest.ecmp)}" if newest else ""
    return (
        f"{word(word_in(status, 'mode'))} · {status.switches_in_sync} of {status.known_switches} switches in sync"
        f" · {counted(status.jobs, 'job')} · efficiency {efficiency}{plan} · {short(status.version, NAME_CHARS)}"
    )


def wrong(state: State) -> str:
    """Return why the drawing may not show the present fabric; empty when it does."""
    if state.lost is None:
        return "Waiting for the controller's first answer."
    if state.lost:
        return short(f"This view is out of date: {state.lost}")
    return short(f"This view is incomplete: {state.refused}") if state.refused else ""


def carried(cable: Cable, routes: Iterable[ListedRoute]) -> str:
    """Return a sentence with the jobs whose flows travel over a cable, in either direction."""
    jobs = jobs_of(flows_over(routes, {cable.up, cable.down}))
    each = ", ".join(f"{job} ({counted(flows, 'flow')})" for job, flows in sorted(jobs.items()))
    return f"It carries pinned flows of {each}." if each else "No pinned flow travels over it."
