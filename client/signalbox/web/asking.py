"""Calls of one viewer to the controller, the label that shows the answers, and other sentences of the page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from nicegui import run, ui

from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.live.jobs import ListedRoute, flows_over, jobs_of
from signalbox.live.picture import Cable, Picture, counted_cables
from signalbox.live.shown import NAME_CHARS, counted, optional, percent, short, slowdown, word
from signalbox.live.state import State, out_of_use
from signalbox.mapping import word_in

MOST_SAID = 20_000
"""Largest number of characters of an answer that the page shows."""


class Newest:
    """Action that never runs twice at the same time.

    If the action is called while it runs, it runs once more afterwards, however often it was called. So a slow
    controller does not get a growing number of calls."""

    def __init__(self, action: Callable[[], Awaitable[None]]) -> None:
        self._action = action
        self._runs = self._again = False

    async def __call__(self) -> None:
        self._again = True
        if self._runs:
            return
        self._runs = True
        try:
            while self._again:
                self._again = False
                await self._action()
        finally:
            self._runs = False


class Asking:
    """Calls to the controller, and a label for the answers.

    The constructor adds the label to the page. Calls that make the controller plan are made one at a time, because each
    occupies a thread that other calls need."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._plans = False
        self._cable: tuple[Cable, str] | None = None
        self._find_flows = Newest(self._flows_of_cable)
        self._said = ui.label("Click a job, a switch or a cable to choose it.").classes("said text-body2")
        self._said.style("white-space: pre-line").props('aria-live="polite"')

    def say(self, text: str) -> None:
        self._said.set_text(short(text, MOST_SAID))

    def tell_of(self, cable: Cable, loads: str) -> None:
        """Show the loads of a cable.

        When the controller has returned the routes, also show the jobs whose flows the cable carries."""
        self.say(loads)
        self._cable = cable, loads
        ui.timer(0, self._find_flows, once=True)

    async def _flows_of_cable(self) -> None:
        routes = await self.known(self._client.list_routes)
        if routes is not None and self._cable and self._said.text == self._cable[1]:
            cable, loads = self._cable
            self.say(f"{loads}\n{carried(cable, routes)}")

    async def known(self, ask: Callable[[], Any]) -> Any:
        """Return the answer of ``ask``, or None after an error.

        The error is not shown, because the page shows elsewhere that the controller does not answer."""
        with suppress(SignalboxError):
            return await run.io_bound(ask)

    async def why_slow(self, job_id: str) -> None:
        if job_id:
            await self._plan(job_id, f"Why is {job_id} slow?", lambda: self._client.explain(job_id))
        else:
            self.say("Choose a job first.")

    async def what_if(self, part: str) -> None:
        if part:
            await self._plan(part, f"What if {part} fails?", lambda: self._client.what_if(names=[part]))
        else:
            self.say("Choose a switch or a cable first.")

    async def _plan(self, subject: str, head: str, ask: Callable[[], Any]) -> None:
        if self._plans:
            return
        self._plans = True
        self.say(f"{subject}: the controller is planning …")
        try:
            found = await self._answer(ask)
        finally:
            self._plans = False
        if found is not None:
            self.say("\n".join((head, *found.answer)))

    async def confirm(self, what: str, part: str) -> None:
        """Drain or undrain a part after the viewer has confirmed it. ``what``: ``drain`` or ``undrain``."""
        if not part:
            self.say("Choose a switch or a cable first.")
            return
        with ui.dialog() as dialog, ui.card():
            ui.label(f"{what.capitalize()} {part}?")
            with ui.row():
                ui.button(what.capitalize(), on_click=lambda: dialog.submit(True)).props("no-caps")
                ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("no-caps autofocus")
        if await dialog:
            call = self._client.drain if what == "drain" else self._client.undrain
            if await self._answer(lambda: call([part])) is not None:
                self.say(f"{part}: {what}ed")
        dialog.delete()

    async def _answer(self, ask: Callable[[], Any]) -> Any:
        try:
            return await run.io_bound(ask)
        except SignalboxError as error:
            self.say(str(error))
            return None


def facts(state: State) -> str:
    """Return a line on the state of the controller and its plan; empty before its first answer."""
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
    """Return why the drawing may differ from the present fabric; empty if it does not."""
    if state.lost is None:
        return "Waiting for the controller's first answer."
    if state.lost:
        return short(f"This view is out of date: {state.lost}")
    return short(f"This view is incomplete: {state.refused}") if state.refused else ""


def carried(cable: Cable, routes: Iterable[ListedRoute]) -> str:
    """Return a sentence on the jobs whose pinned flows travel over a cable, in either direction."""
    jobs = jobs_of(flows_over(routes, {cable.up, cable.down}))
    each = ", ".join(f"{job} ({counted(flows, 'flow')})" for job, flows in sorted(jobs.items()))
    return f"It carries pinned flows of {each}." if each else "No pinned flow travels over it."


def summary(state: State, picture: Picture) -> str:
    """Return a summary of the picture in words, for people who cannot see it."""
    full = [cable for cable in picture.cables if cable.load is not None]
    busiest = max(full, key=lambda cable: cable.load or 0.0, default=None)
    parts = [f"{len(picture.nodes)} switches, {counted_cables(picture.cables)}, {len(state.hosts)} hosts"]
    parts += out_of_use(state)
    if busiest:
        kind = "circuit" if busiest.one_way else "cable"
        parts.append(f"fullest {kind} {busiest.name} at {percent(busiest.load)}")
    return "; ".join(parts)
