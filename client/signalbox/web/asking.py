"""Questions of one viewer to the controller, and the label that shows the answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from nicegui import run, ui

from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.live.picture import Cable
from signalbox.live.shown import short
from signalbox.web.said import carried

MOST_SAID = 20_000
"""Largest number of characters of an answer on the page."""


class Newest:
    """Action that runs once at a time.

    Calls while it runs make it run once more, so a controller that answers late does not have a growing number of
    questions to answer."""

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
    """Questions to the controller, and a label for the answers at the place of the page where the object is made.

    Questions that make the controller plan are sent one at a time, because each occupies a thread that other questions
    need."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._plans = False
        self._cable: tuple[Cable, str] | None = None
        self._find_flows = Newest(self._flows_of_cable)
        self._said = ui.label("Choose a job, a switch or a cable.").classes("said text-body2")
        self._said.style("white-space: pre-line").props('aria-live="polite"')

    def say(self, text: str) -> None:
        self._said.set_text(short(text, MOST_SAID))

    def tell_of(self, cable: Cable, loads: str) -> None:
        """Show the loads of a cable; when the controller has answered, also the jobs whose flows it carries."""
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

        The error is not shown, because the page already shows when the controller does not answer."""
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
        """Drain or undrain a part after a confirmation."""
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
        """Return the answer of ``ask``; after an error, show the error and return None."""
        try:
            return await run.io_bound(ask)
        except SignalboxError as error:
            self.say(str(error))
            return None
