"""Terminal view: four tables of a controller's current state. Only cells whose text changes are drawn again.

``signalbox top`` ends on a signal, or when its terminal closes, whatever its threads do. One thread receives the
signals, because the main thread may be blocked by a terminal that accepts no output.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import termios
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Thread
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.coordinate import Coordinate
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.live import rows
from signalbox.live.following import TAKE_S, Following
from signalbox.live.jobs import Job, ListedRoute, flows_over, traffic_lines, wiring_line, without_route
from signalbox.live.shown import printable, route_words, short
from signalbox.live.state import Kind

PADDING, SCROLLBAR, LEAST = 1, 2, 8
"""Widths in characters: padding at each side of a cell, scroll bar, smallest column without a fixed width."""
MOST_JOBS, MOST_LINKS, MOST_ALARMS, MOST_EVENTS = 200, 30, 50, 50
"""Largest number of rows of each table."""
MOST_SAID = 100_000
"""Largest number of characters of a text that covers the tables."""

Columns = tuple[tuple[str, int], ...]
"""Titles and widths of columns, in characters. Columns with width 0 share the remaining width."""

COLUMNS: Mapping[str, Columns] = {
    "jobs": (
        *(("job", 0), ("state", 0), ("pinned", 7), ("slowdown", 8), ("predicted", 9), ("measured", 8), ("iter", 7)),
    ),
    "links": (("link", 0), ("use", 4), ("rate", 11), ("unannounced", 11)),
    "alarms": (("since", 8), ("alarm", 0)),
    "events": (("time", 8), ("event", 0)),
}
"""Columns of each table, by the table's name."""

WIDE = 140
"""Smallest width in characters at which tables stand side by side: names such as spine12:34>leaf16 remain legible."""

HELP = """\
/        find jobs by a part of their ids; Enter goes to them,
         Escape shows all jobs
Tab      next table; Shift+Tab the one before
arrows   move in a table
Enter    on a job: whether the network slows it, and its paths;
         on a link: whose flows it carries;
         on an alarm or event: its whole text
?        this help
q        quit

Jobs: flows without a path first, then those that wait for hosts, then the lowest efficiency. \
Predicted efficiency: ideal communication time / the time that the routes allow; \
measured: ideal / the time that the job reports. \
?: bytes not yet confirmed by counters; !: a wrong announcement. \
Links: the fullest first; unannounced: traffic that no job announced. Times are in UTC.
"""
"""Help text. The lines about keys fit a terminal of 80 columns; the paragraph after them wraps."""


class Table(DataTable[Text]):
    """Table whose columns use the width of the terminal. Texts are drawn as they are, without markup."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name, cursor_type="row", cell_padding=PADDING)
        self._titles = COLUMNS[name]
        self._shown: rows.Rows = []
        self.border_title = name

    def on_resize(self) -> None:
        fixed = sum(width + 2 * PADDING for _, width in self._titles)
        growing = sum(width == 0 for _, width in self._titles)
        left = (self.size.width - fixed - SCROLLBAR) // growing
        place = self.cursor_row
        self.clear(columns=True)
        for title, width in self._titles:
            self.add_column(title, width=width or max(left, LEAST))
        for row in self._shown:
            self.add_row(*map(_text, row))
        self.move_cursor(row=place)

    @property
    def chosen(self) -> str:
        """First text of the selected row; empty without rows."""
        return self._shown[self.cursor_row][0] if 0 <= self.cursor_row < len(self._shown) else ""

    @property
    def last(self) -> str:
        """Last text of the selected row. There must be a row."""
        return self._shown[self.cursor_row][-1]

    def show(self, wanted: rows.Rows) -> None:
        """Show these rows. The cursor moves with its row, which is found again by its first text."""
        before, chosen, self._shown = self._shown, self.chosen, wanted
        if not self.columns:  # the table has no size yet
            return
        for place, (old, new) in enumerate(zip(before, wanted, strict=False)):
            for column, (was, now) in enumerate(zip(old, new, strict=True)):
                if was != now:
                    self.update_cell_at(Coordinate(place, column), _text(now))
        for row in wanted[len(before) :]:
            self.add_row(*map(_text, row))
        for _ in before[len(wanted) :]:
            self.remove_row(self.ordered_rows[-1].key)
        there = next((place for place, row in enumerate(wanted) if row[0] == chosen), self.cursor_row)
        if there != self.cursor_row and self.has_focus:
            self.move_cursor(row=there)


def _text(plain: str) -> Text:
    return Text(printable(plain), no_wrap=True, overflow="ellipsis")


class Details(ModalScreen[None]):
    """Text that covers the tables until a key closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,enter", "dismiss", "close")]

    def __init__(self, title: str, answer: str | Callable[[], str]) -> None:
        """Show a text, or the text that a function returns.

        The function is called in a separate thread once the text field exists."""
        super().__init__()
        self._title, self._answer = title, answer

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = Text(printable(self._title)).markup
            yield Static("asking the controller …", id="said")
        yield Footer()

    def on_mount(self) -> None:
        if isinstance(self._answer, str):
            self._say(self._answer)
        else:
            self._ask(self._answer)

    @work(thread=True, exit_on_error=False)
    def _ask(self, answer: Callable[[], str]) -> None:
        try:
            text = answer()
        except SignalboxError as error:
            text = str(error)
        self.app.call_from_thread(self._say, text)

    def _say(self, text: str) -> None:
        if self.is_attached:
            self.query_one("#said", Static).update(Text(printable(short(text, MOST_SAID))))


def of_job(job: Job | None, why: str, routes: Iterable[ListedRoute]) -> str:
    """Return the text about a job.

    - ``job``: None if the job has ended
    - ``why``: the controller's explanation of the job's speed
    - ``routes``: routes of the job"""
    about = [wiring_line(job), *traffic_lines(job)] if job else []
    paths = [
        f"{each.src} > {each.dst}: {route_words(each.held, without_route(job, each.src, each.dst) if job else 'ecmp')}"
        for each in routes
    ]
    return "\n".join((why, *filter(None, about), "", *paths))


class Top(App[None]):
    """The application. ``open_client``: function that makes clients."""

    TITLE = "signalbox top"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012  declared by App
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        ("slash", "find", "find"),
        ("question_mark", "help", "help"),
    ]
    CSS = """
    #facts, #plan { height: 1; padding: 0 1; }
    #facts { text-style: bold; }
    #facts.lost { background: $error; color: $text; }
    #find { display: none; height: 3; }
    #tables { layout: grid; grid-size: 1 4; grid-rows: 7fr 5fr 4fr 4fr; }
    .-wide #tables { grid-size: 2 2; grid-rows: 3fr 2fr; grid-columns: 3fr 2fr; }
    Table { border-top: solid $primary; height: 100%; overflow-x: hidden; }
    Table:focus { border-top: heavy $accent; }
    Details { align: center middle; }
    Details VerticalScroll { width: 90%; height: 80%; border: round $primary; background: $surface; padding: 0 1; }
    """

    def __init__(self, open_client: Callable[[], Client]) -> None:
        super().__init__()
        self._following = Following(open_client)
        self._client = open_client()
        self._find = ""
        self._running_on: asyncio.AbstractEventLoop | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="facts", markup=False)
        yield Static(id="plan", markup=False)
        yield Input(id="find", placeholder="a part of a job's id")
        with Container(id="tables"):
            yield from map(Table, COLUMNS)
        yield Footer()

    def on_mount(self) -> None:
        self._running_on = asyncio.get_running_loop()
        self._following.__enter__()
        self.query_one("#jobs").focus()
        self._show(frozenset(Kind))
        self.set_interval(TAKE_S, self._take)

    def on_unmount(self) -> None:
        self._following.__exit__()
        self._client.close()

    def end(self) -> None:
        """End the application; may be called from any thread."""
        if self._running_on:
            with suppress(RuntimeError):  # the application has ended
                self._running_on.call_soon_threadsafe(self.exit)

    # ---- showing

    def _take(self) -> None:
        if self.is_running and (changed := self._following.changes_to_show()):  # the timer outlives the widgets
            self._show(changed)

    def _show(self, changed: frozenset[Kind]) -> None:
        state = self._following.state
        if changed & {Kind.STATUS, Kind.REACHED, Kind.ALARMS}:
            self.query_one("#facts", Static).update(printable(rows.facts(state)))
            self.query_one("#facts").set_class(bool(state.lost or state.refused), "lost")
        if changed & {Kind.PLAN}:
            self.query_one("#plan", Static).update(rows.plan(state))
        if Kind.JOBS in changed:
            self._show_jobs()
        if changed & {Kind.RATES, Kind.SHAPE}:
            self._table("links").show(rows.links(state, MOST_LINKS))
        if Kind.ALARMS in changed:
            self._table("alarms").show(rows.alarms(state, MOST_ALARMS))
            self._table("alarms").border_title = f"alarms: {len(state.alarms)}"
        if Kind.EVENTS in changed:
            self._table("events").show(rows.events(state, MOST_EVENTS))

    def _show_jobs(self) -> None:
        state = self._following.state
        shown = rows.jobs(state.jobs_by_urgency(self._find)[:MOST_JOBS])
        table = self._table("jobs")
        table.show(shown)
        table.border_title = f"jobs: {len(shown)} of {len(state.jobs)}" if shown else "jobs: none"

    def _table(self, name: str) -> Table:
        return self.screen_stack[0].query_one(f"#{name}", Table)

    # ---- finding

    def action_find(self) -> None:
        find = self.query_one("#find", Input)
        find.display = True
        find.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._find = event.value.lower()
        self._show_jobs()

    def on_input_submitted(self) -> None:
        self.query_one("#find").display = bool(self._find)
        self.query_one("#jobs").focus()

    def key_escape(self) -> None:
        find = self.query_one("#find", Input)
        if find.display:
            find.value = ""
            find.display = False
            self.query_one("#jobs").focus()

    # ---- asking

    def action_help(self) -> None:
        self.push_screen(Details("keys", HELP))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        table = event.data_table
        if not isinstance(table, Table) or not table.chosen:
            return
        title = f"{(table.id or '')[:-1]} {table.chosen}"
        if table.id in ("alarms", "events"):
            self.push_screen(Details(title, table.last))
        else:
            ask = self._of_job if table.id == "jobs" else self._of_link
            self.push_screen(Details(title, partial(ask, table.chosen)))

    def _of_job(self, name: str) -> str:
        job = self._following.state.jobs.get(name)
        routes = self._client.list_routes([name])
        try:
            why = "\n".join(self._client.explain(name).answer)
        except SignalboxError as error:
            why = str(error)
        return of_job(job, why, routes)

    def _of_link(self, name: str) -> str:
        links = list(self._following.state.links.items())  # a copy: another thread changes the dictionary
        at = next((at for at, link in links if link.name == name), None)
        held = [f"{route.job_id}: {route.src} > {route.dst}" for route in flows_over(self._client.list_routes(), {at})]
        return "\n".join(held) or "no pinned flow travels over it"


SIGNALS = frozenset({signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
LOOK_S = 0.3
"""Seconds between two checks whether the terminal has closed."""
GRACE_S = 1.0
"""Seconds that the process has to end by itself. Afterwards it is ended without cleanup."""


@contextmanager
def signals_kept() -> Iterator[None]:
    """Block the signals that ``ended_by_signals`` waits for, also in threads that are started inside."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def ended_by_signals(end: Callable[[], None], terminal: int) -> Iterator[None]:
    """Call ``end`` from a separate thread after a signal, or when the terminal has closed.

    If the process still runs ``GRACE_S`` later, it is ended, and the terminal's settings are restored. ``terminal``:
    file descriptor."""
    settings = termios.tcgetattr(terminal)
    over = Event()

    def watch() -> None:
        received = None
        while received is None and not _is_closed(terminal):
            received = signal.sigtimedwait(SIGNALS, LOOK_S)
            if over.is_set():
                return
        end()
        time.sleep(GRACE_S)
        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, settings)
        os._exit(128 + (received.si_signo if received else signal.SIGHUP))

    Thread(target=watch, name="ending", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _is_closed(terminal: int) -> bool:
    poll = select.poll()
    poll.register(terminal, 0)
    return bool(poll.poll(0))
