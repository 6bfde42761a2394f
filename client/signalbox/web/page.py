"""Page of one viewer. It shows the shared ``Board``, and sends the requests of clicks and keys to the controller.

Text from outside is put into labels, tables and charts, which draw it as text; nothing here makes HTML of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from nicegui import ui

from signalbox.client import Client
from signalbox.live import rows
from signalbox.live.jobs import LinkAt, circuits_of, links_of, traffic_lines, wiring_line
from signalbox.live.picture import DARK, LIGHT, Condition, Node, Paper, counted_cables, described
from signalbox.live.rows import Rows
from signalbox.live.shown import short
from signalbox.live.state import Kind
from signalbox.live.timeline import timelines
from signalbox.web import asking, beside, charts
from signalbox.web.asking import Asking, Newest
from signalbox.web.board import Board
from signalbox.web.charts import Options
from signalbox.web.style import PRIMARY, ROW_LOOKED_AT, STAYS, STYLE

MOST_JOBS, MOST_EVENTS, MOST_ALARMS = 100, 50, 100
"""Largest numbers of rows in the tables of jobs, events and alarms."""
MOST_CHOICES = 5000
"""Largest number of switches or cables that a selection field offers. Further ones can be chosen in the drawing."""

KEYS = {
    "?": "show these keys",
    "j, k": "choose the next or previous job; Enter in the search field: the first match",
    "e": "ask why the chosen job is slow",
    "w": "ask what happens if the chosen switch or cable fails",
    "Escape": "undo the choice",
    "d": "change between dark and light",
    "p": "print",
    "Tab": "go to the next field or button",
}
"""Description of each key of the page."""


class Page:
    """Page of one viewer. ``operate``: whether the viewer can drain parts."""

    def __init__(self, board: Board, client: Client, operate: bool) -> None:
        self._board = board
        self._client = client
        self._operate = operate
        self._paper: Paper = LIGHT
        self._job = ""
        self._looked_at = ""
        self._part = ""
        self._chosen = ""
        self._dpid: int | None = None
        self._tier = 0
        self._routes: dict[str, frozenset[LinkAt]] = {}
        self._sent: dict[str, Any] = {}
        self._unshown = frozenset[Kind]()
        self._find_routes = Newest(self._highlight_routes)
        self._draw_demand = Newest(self._read_demand)
        self._build()
        self._show(frozenset(Kind))

    # ---- layout

    def _build(self) -> None:
        ui.add_css(STYLE)
        ui.add_body_html(STAYS)
        ui.colors(primary=PRIMARY)
        self._dark = ui.dark_mode(None)
        ui.keyboard(self._on_key, ignore=["input", "textarea"], repeating=False)
        with ui.header().classes("items-center q-py-xs no-print"):
            ui.label("Signalbox").classes("text-h6")
            self._facts = ui.label().classes("text-body2")
            ui.space()
            ui.button("dark or light", on_click=self._toggle_dark).props("flat dense color=white no-caps")
            ui.button("print", on_click=self._print).props("flat dense color=white no-caps")
            ui.button("keys (?)", on_click=show_keys).props("flat dense color=white no-caps")
        self._banner = ui.label().classes("banner w-full").props('role="alert"')
        with ui.element().classes("two-to-one"):
            with ui.column().classes("gap-1"):
                self._build_fabric()
            with ui.column().classes("gap-1"):
                self._build_lists()
        with ui.element().classes("one-to-one"):
            with ui.column():
                self._slowdowns = ui.echart(beside.slowdowns(self._board.state.slowdowns, self._paper))
                self._slowdowns.classes("w-full h-60 chart-slowdowns")
            with ui.column():
                self._wiring = ui.label().classes("text-body2 wiring")
                self._demand = ui.echart({}).classes("w-full h-60 chart-demand")
                self._demand.set_visibility(False)
                self._slots = ui.echart({}).classes("w-full h-60 chart-slots")
        ui.label("Events, the newest first (UTC)").classes("text-subtitle2")
        self._events = table("events", ("time", "event"))

    def _build_fabric(self) -> None:
        with ui.row().classes("items-center w-full no-print"):
            self._switch = ui.select({}, label="switch", with_input=True, clearable=True, on_change=self._switch_chosen)
            self._cable = ui.select({}, label="cable", with_input=True, clearable=True, on_change=self._cable_chosen)
            self._tiers = ui.select({}, label="tiers", on_change=self._tiers_chosen)
            for each in (self._switch, self._cable, self._tiers):
                each.props("dense options-dense").classes("w-44")
            self._ask_part = ui.button("What if it fails? (w)", on_click=self._what_if).props("dense no-caps")
            if self._operate:
                ui.button("Drain", on_click=lambda: self._asking.confirm("drain", self._part)).props("dense no-caps")
                ui.button("Undrain", on_click=lambda: self._asking.confirm("undrain", self._part)).props(
                    "dense no-caps"
                )
        self._graph = ui.echart(charts.fabric(self._board.picture, self._tier, self._paper, ()))
        self._graph.classes("w-full chart-fabric").style("height: 62vh").props('role="img"')
        self._graph.on("componentClick", self._clicked, ["componentType", "dataType", "data", "value"])
        self._summary = ui.label().classes("text-caption")
        ui.label(
            "Cables: colour and width show the load of the fuller direction; grey: not measured, dashed: down, dotted: "
            "drained. Arrows are one-way circuits of optical switches; in their matrix, rows send and columns receive. "
            "Switches: a triangle is down, a diamond drained, a ring not in sync. In a matrix ✕ is down, D is drained."
        ).classes("text-caption")
        self._cables = ui.echart({}).classes("w-full h-60 chart-cables")
        self._cables.set_visibility(False)

    def _build_lists(self) -> None:
        ui.label("Alarms (UTC)").classes("text-subtitle2")
        self._alarms = table("alarms", ("since", "alarm"))
        with ui.row().classes("items-center w-full"):
            ui.label("Jobs").classes("text-subtitle2")
            self._find = (
                ui.input(placeholder="find", on_change=lambda: self._show_jobs()).props("dense").classes("w-28")
            )
            ui.button("Why is it slow? (e)", on_click=self._why_slow).props("dense no-caps").classes("no-print")
        self._jobs = table("jobs", ("job", "state", "flows", "slowdown", "measured"))
        self._jobs.props(""" :table-row-class-fn="row => row.chosen ? 'chosen' : 'cursor-pointer'" """)
        for event in ("mouseover", "mouseleave"):
            self._jobs.on(event, lambda event: self._look(event.args), js_handler=ROW_LOOKED_AT)
        self._jobs.on("row-click", lambda event: self._choose(event.args[1]["job"]))
        self._find.on("keydown.enter", lambda: self._step(1))
        self._jobs_left = ui.label().classes("text-caption")
        self._asking = Asking(self._client)

    # ---- showing

    async def begin(self) -> None:
        """Begin to show changes when the browser has connected, in the colours that the browser prefers."""
        self.show(frozenset())
        prefers = "window.matchMedia('(prefers-color-scheme: dark)').matches"
        with suppress(TimeoutError):
            self._set_dark(bool(await ui.run_javascript(prefers, timeout=5)))

    def show(self, changed: frozenset[Kind]) -> None:
        """Show changes of the board. While the browser is disconnected, changes are collected and shown later."""
        self._unshown |= changed
        if self._graph.client.has_socket_connection:
            changed, self._unshown = self._unshown, frozenset()
            with self._graph.client:
                self._show(changed)

    def _show(self, changed: frozenset[Kind]) -> None:
        if Kind.SHAPE in changed:
            self._show_parts()
            self._draw_fabric()
        elif Kind.RATES in changed:
            self._draw_rates()
        if changed & {Kind.SHAPE, Kind.RATES}:
            self._summary.set_text(self._in_words())
            self._draw_cables()
        if Kind.JOBS in changed:
            self._forget_ended_jobs()
            self._show_jobs()
        if changed & {Kind.PLAN, Kind.JOBS} and self._routes:
            self._routes.clear()
            ui.timer(0, self._find_routes, once=True)
        if Kind.JOBS in changed and (self._job or self._sent.get("demand")):
            ui.timer(0, self._draw_demand, once=True)
        if changed & {Kind.PLAN, Kind.SHAPE}:
            self._draw_slots()
        if Kind.PLAN in changed:
            self._push(self._slowdowns, "slowdowns", beside.slowdowns(self._board.state.slowdowns, self._paper))
        if Kind.ALARMS in changed:
            fill(self._alarms, rows.alarms(self._board.state, MOST_ALARMS))
        if Kind.EVENTS in changed:
            fill(self._events, rows.events(self._board.state, MOST_EVENTS))
        if changed & {Kind.STATUS, Kind.REACHED, Kind.PLAN}:
            self._show_status()

    def _show_status(self) -> None:
        wrong = asking.wrong(self._board.state)
        self._banner.set_text(wrong)
        self._banner.set_visibility(bool(wrong))
        self._facts.set_text(asking.facts(self._board.state))

    def _show_parts(self) -> None:
        picture = self._board.picture
        names = self._board.once("names", lambda: _names(picture.nodes.values()))
        self._switch.set_options(names, value=self._dpid if self._dpid in names else None)
        tiers = charts.tier_names(picture)
        if self._tier not in tiers:
            self._tier = min(tiers, default=0)
        self._tiers.set_options(tiers, value=self._tier if tiers else None)
        self._tiers.set_visibility(picture.as_matrix and len(tiers) > 1)
        self._offer_cables()

    def _offer_cables(self) -> None:
        """Offer the cables of the chosen switch.

        If no switch is chosen, offer all cables of a graph, but none of a matrix."""
        picture = self._board.picture
        all_cables = () if picture.as_matrix else picture.cables
        cables = all_cables if self._dpid is None else picture.at(self._dpid)
        names = {cable.part: cable.title for cable in cables[:MOST_CHOICES]}
        self._cable.set_options(names, value=self._part if self._part in names else None)

    def _forget_ended_jobs(self) -> None:
        jobs = self._board.state.jobs
        if self._looked_at not in jobs:
            self._looked_at = ""
        if self._job not in jobs:
            self._job = ""

    def _show_jobs(self) -> None:
        find = (self._find.value or "").lower()
        jobs = self._board.once("jobs", self._board.state.jobs_by_urgency)
        jobs = [job for job in jobs if find in job.spec.job_id.lower()] if find else jobs
        # The table lacks the predicted efficiency and the number of iterations.
        shown = [(*row[:4], row[5]) for row in rows.jobs(jobs[:MOST_JOBS])]
        fill(self._jobs, shown, self._job)
        left = len(jobs) - len(shown)
        self._jobs_left.set_text(f"and {left:,} more jobs; find them by name" if left else "")
        self._show_wiring()

    def _show_wiring(self) -> None:
        job = self._board.state.jobs.get(self._job)
        lines = [*filter(None, [wiring_line(job)]), *traffic_lines(job)] if job else []
        self._wiring.set_text(short(f"{self._job}: {' '.join(lines)}") if lines else "")

    # ---- charts

    def _view(self) -> tuple[int, Paper, frozenset[LinkAt], str]:
        """Return this viewer's arguments of ``charts.fabric``: tier, colours, highlighted links, chosen part."""
        route = self._routes.get(self._looked_at or self._job, frozenset())
        return self._tier, self._paper, route, self._chosen

    def _draw_fabric(self) -> None:
        picture = self._board.picture
        options = charts.fabric(picture, *self._view())
        self._push(self._graph, "fabric", options)
        self._sent.pop("rates", None)
        self._graph.props["aria-label"] = self._in_words()

    def _in_words(self) -> str:
        return self._board.once("summary", lambda: asking.summary(self._board.state, self._board.picture))

    def _draw_rates(self) -> None:
        view = self._view()
        rates = self._board.once(("rates", *view), lambda: charts.rates(self._board.picture, *view))
        if self._sent.get("rates") != rates:
            self._sent["rates"] = rates
            self._graph.run_chart_method("setOption", rates)

    def _draw_cables(self) -> None:
        picture, dpid = self._board.picture, self._dpid
        self._cables.set_visibility(dpid in picture.nodes)
        if dpid is not None and dpid in picture.nodes:
            self._push(self._cables, "cables", beside.cables_of(picture, dpid, self._paper))

    def _draw_slots(self) -> None:
        """Draw the slots on a link of the chosen job, or else of the chosen cable; without a choice, on any link."""
        links, cables = self._board.state.links, self._board.picture.cables
        ends = next(((cable.up, cable.down) for cable in cables if cable.part == self._part), ())
        names = {links[at].name for at in ends if at in links}
        found = self._board.once("timelines", lambda: timelines(self._board.state.plan))
        if self._job:
            found = [each for each in found if any(lane.job_id == self._job for lane in each.lanes)]
        elif self._part:
            found = [each for each in found if not names.isdisjoint(each.links)]
        self._slots.set_visibility(bool(found))
        if found:
            self._push(self._slots, "slots", beside.timeline(found[0], self._paper))

    def _push(self, chart: ui.echart, name: str, options: Options) -> None:
        if self._sent.get(name) != options:
            self._sent[name] = options
            chart.run_chart_method("setOption", options, True)

    def _set_dark(self, dark: bool) -> None:
        self._dark.value = dark
        paper = DARK if dark else LIGHT
        if paper is not self._paper:
            self._paper = paper
            self._draw_fabric()
            self._push(self._slowdowns, "slowdowns", beside.slowdowns(self._board.state.slowdowns, self._paper))
            self._draw_cables()
            self._draw_slots()
            ui.timer(0, self._draw_demand, once=True)

    def _toggle_dark(self) -> None:
        self._set_dark(not self._dark.value)

    # ---- choosing

    def _clicked(self, event: Any) -> None:
        """Choose what was clicked: a switch, a cable, a cell, or a switch by its name beside a row or column."""
        data, picture = event.args.get("data"), self._board.picture
        if event.args.get("componentType") in ("xAxis", "yAxis"):
            names = {node.title: node.dpid for node in picture.nodes.values()}
            if (dpid := names.get(str(event.args.get("value")))) is not None:
                self._take_switch(dpid)
        elif isinstance(data, dict) and "dpid" in data:
            self._take_switch(int(data["dpid"], 16))
        elif isinstance(data, dict) and "part" in data:
            self._take_part(str(data["part"]))
        elif isinstance(data, list) and len(data) > 1:
            shown = picture.matrices.get(self._tier, charts.NOTHING)
            if cables := shown.cells.get((int(data[0]), int(data[1]))):
                self._take_switch(cables[0].ends[0])
                self._take_part(charts.fullest(cables).part)

    def _take_switch(self, dpid: int) -> None:
        node = self._board.picture.nodes.get(dpid)
        if node:
            self._dpid, self._part, self._chosen = dpid, node.part, f"{dpid:#x}"
            if dpid in self._switch.options:
                self._switch.set_value(dpid)
            self._offer_cables()
            condition = "" if node.condition is Condition.UP else f" ({node.condition.value})"
            self._asking.say(f"{node.title}{condition}, {counted_cables(self._board.picture.at(dpid))}")
            self._draw_cables()
            self._draw_rates()

    def _take_part(self, part: str) -> None:
        cable = next((cable for cable in self._board.picture.cables if cable.part == part), None)
        if cable:
            self._part = self._chosen = part
            self._offer_cables()
            self._asking.tell_of(cable, described(cable, self._board.picture))
            self._draw_rates()
            self._draw_slots()

    def _switch_chosen(self, event: Any) -> None:
        dpid = event.value
        if dpid is None:
            self._dpid, self._part, self._chosen = None, "", ""
            self._cables.set_visibility(False)
            self._offer_cables()
            self._draw_rates()
        elif dpid != self._dpid:
            self._take_switch(dpid)

    def _cable_chosen(self, event: Any) -> None:
        if event.value and event.value != self._part:
            self._take_part(event.value)

    def _tiers_chosen(self, event: Any) -> None:
        if event.value is not None and event.value != self._tier:
            self._tier = event.value
            self._draw_fabric()

    async def _look(self, job_id: str) -> None:
        self._looked_at = job_id
        await self._find_routes()

    async def _choose(self, job_id: str) -> None:
        self._job = "" if job_id == self._job else job_id
        self._show_jobs()
        self._draw_slots()
        await self._find_routes()
        await self._draw_demand()

    async def _highlight_routes(self) -> None:
        """Highlight the links of the job under the pointer, or else of the chosen job."""
        job_id, state = self._looked_at or self._job, self._board.state
        if job_id in state.jobs and job_id not in self._routes:
            routes = await self._asking.known(lambda: self._client.list_routes([job_id]))
            links = circuits_of(state.jobs.get(job_id)) | links_of(routes or ())
            self._routes[job_id] = links.intersection(state.links)
        self._draw_rates()

    async def _read_demand(self) -> None:
        job_id = self._job
        job = await self._asking.known(lambda: self._client.get_job(job_id)) if job_id else None
        self._demand.set_visibility(bool(self._job))
        if job_id == self._job and (job is not None or not job_id):
            self._push(self._demand, "demand", beside.demand(job, self._paper) if job else {})

    async def _why_slow(self) -> None:
        await self._asking.why_slow(self._job)

    async def _what_if(self) -> None:
        await self._asking.what_if(self._part)

    # ---- keys

    async def _on_key(self, event: Any) -> None:
        if not event.action.keydown or event.modifiers.ctrl or event.modifiers.alt or event.modifiers.meta:
            return
        actions: dict[str, Callable[[], Any]] = {
            "?": show_keys,
            "j": lambda: self._step(1),
            "k": lambda: self._step(-1),
            "e": self._why_slow,
            "w": self._what_if,
            "d": self._toggle_dark,
            "p": self._print,
            "Escape": self._clear,
        }
        action = actions.get(event.key.name)
        if action:
            found = action()
            if found is not None:
                await found

    async def _step(self, by: int) -> None:
        ids = [row["job"] for row in self._jobs.rows]
        if ids:
            place = ids.index(self._job) + by if self._job in ids else 0 if by > 0 else -1
            await self._choose(ids[place % len(ids)])

    async def _clear(self) -> None:
        self._looked_at, self._part, self._chosen, self._dpid = "", "", "", None
        self._switch.set_value(None)
        self._asking.say("")
        self._cables.set_visibility(False)
        if self._job:
            await self._choose("")
        else:
            self._draw_rates()
            self._draw_slots()

    def _print(self) -> None:
        self._set_dark(False)
        ui.run_javascript("setTimeout(() => window.print(), 500)")


def _names(nodes: Iterable[Node]) -> dict[int, str]:
    """Return the ``MOST_CHOICES`` shortest titles of switches, by dpid."""
    ordered = sorted(nodes, key=lambda node: (len(node.title), node.title))
    return {node.dpid: node.title for node in ordered[:MOST_CHOICES]}


def show_keys() -> None:
    with ui.dialog(value=True) as dialog, ui.card():
        for key, what in KEYS.items():
            ui.label(f"{key}: {what}")
        ui.button("Close", on_click=dialog.close).props("no-caps")
    dialog.on("hide", dialog.delete)


def table(what: str, columns: Iterable[str]) -> ui.table:
    """Return a small table that scrolls.

    ``what``: noun for its rows, which an empty table shows; also its CSS class."""
    shown = [{"name": name, "label": name, "field": name, "align": "left"} for name in columns]
    made = ui.table(columns=shown, rows=[], row_key="number")
    made.props(f'dense flat wrap-cells hide-pagination :rows-per-page-options=[0] no-data-label="no {what}"')
    return made.classes(f"w-full max-h-80 {what}")


def fill(filled: ui.table, rows: Rows, chosen: str = "") -> None:
    """Replace the rows of a table, unless the browser already has them. ``chosen``: name of the row to mark."""
    names = [column["name"] for column in filled.columns]
    numbered = [
        {"number": number, "chosen": row[0] == chosen, **dict(zip(names, row, strict=True))}
        for number, row in enumerate(rows)
    ]
    if filled.rows != numbered:
        filled.rows = numbered
