"""The report as one HTML page, without scripts and without other files.

The first screen shows the network's health, and the slow jobs with reasons. All other data follow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from signalbox.live.jobs import (
    JOB_COLUMNS,
    CrossingSubflow,
    LinkAt,
    efficiency,
    job_cells,
    job_facts,
    jobs_in_words,
    jobs_of,
    links_of,
    route_cells,
    state_without_mark,
    subflows_by_link,
    traffic_lines,
)
from signalbox.live.picture import Condition, Picture, picture
from signalbox.live.rows import event_line, link_cells
from signalbox.live.shown import (
    TO_THE_SECOND,
    alarm_line,
    counted,
    drain_state,
    moment,
    optional,
    percent,
    plan_facts,
    slowdown,
    some,
    when,
    word,
)
from signalbox.live.state import load, out_of_use
from signalbox.live.timeline import timelines
from signalbox.mapping import seconds, word_in
from signalbox.report import drawing
from signalbox.report.elements import SHEET, STEPS, Child, document, facts, table, tag
from signalbox.report.gathered import Gathered
from signalbox.v1 import signalbox_pb2 as pb

MOST_EVENTS = 300
MOST_TIMELINES = 8
"""Largest number of shared links whose slots are drawn."""
MOST_ROWS = 500
"""Largest number of rows in each table of alarms, parts or switches."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
SECTIONS = ("Fabric", "Jobs", "Plan", "Alarms", "Drained and down", "History", "Versions")


def page(gathered: Gathered) -> str:
    drawn, crossed = picture(gathered.state), crossing(gathered.routes)
    contents = (
        _fabric(gathered, drawn, crossed),
        every(gathered, crossed),
        _plan(gathered),
        _alarms(gathered),
        _out_of_use(gathered),
        _history(gathered),
        _versions(gathered),
    )
    anchors = [tag("a", name, href=f"#{_anchor(name)}") for name in SECTIONS]
    body = tag(
        "body",
        tag("h1", "Signalbox: report"),
        tag("p", f"{_when(gathered)}, from {gathered.source}", class_="faint"),
        _verdict(gathered),
        slow(gathered, crossed),
        _cards(gathered),
        tag("nav", anchors),
        [
            tag("section", tag("h2", name), content, id=_anchor(name))
            for name, content in zip(SECTIONS, contents, strict=True)
        ],
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name_="viewport", content="width=device-width"),
        tag("title", f"Signalbox: report of {_when(gathered)}"),
        _style(),
    )
    return document(tag("html", head, body, lang="en"))


def _style() -> Element:
    made = Element("style")
    made.text = SHEET
    return made


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


def _when(gathered: Gathered) -> str:
    return moment(gathered.unix_s, TO_THE_SECOND) if gathered.unix_s else "time unknown"


# ---- the first screen


def _verdict(gathered: Gathered) -> Element:
    status = gathered.status
    alarms = [alarm for alarm in gathered.state.alarms_by_urgency() if not alarm.HasField("silence")]
    critical = [alarm for alarm in alarms if alarm.severity == pb.SEVERITY_CRITICAL]
    said = list(_problems(gathered))
    if critical:
        kind, title = "bad", f"Not healthy: {counted(len(critical), 'critical alarm')}"
    elif alarms or said:
        kind, title = "look", "Works, but check the points below"
    else:
        kind, title = "", "Healthy: no alarms, all switches in sync, nothing down"
    shown = [f"{word(word_in(alarm, 'severity'))}: {alarm.text}" for alarm in alarms[:4]]
    if len(alarms) > 4:
        shown.append(f"and {counted(len(alarms) - 4, 'more alarm')}")
    items = [tag("li", text) for text in (*shown, *said)]
    mode = word(word_in(status, "mode"))
    adopting = "; it is adopting the rules found on the switches" if status.adopting else ""
    return tag(
        "div",
        tag("strong", title),
        tag("ul", items) if items else None,
        tag("p", f"Mode: {mode}{adopting}.", class_="faint"),
        class_=f"verdict {kind}".strip(),
        id="verdict",
    )


def _problems(gathered: Gathered) -> Iterator[str]:
    status, state = gathered.status, gathered.state
    if status.switches_in_sync < status.switches:
        behind = status.switches - status.switches_in_sync
        yield f"{behind} of {counted(status.switches, 'switch', 'switches')} not in sync"
    yield from out_of_use(state)
    unwired = sum(bool(job.wiring.unwired) for job in state.jobs.values())
    if status.jobs_pending > unwired:
        yield f"{counted(status.jobs_pending - unwired, 'job')} waiting for hosts"
    if unwired:
        yield f"{counted(unwired, 'job')} without circuits"
    if found := gathered.slow:
        yield f"{len(found)} of {counted(len(state.jobs), 'job')} slow or waiting"
    if gathered.missing:
        yield f"not in this report: {'; '.join(gathered.missing)}"


def _cards(gathered: Gathered) -> Element:
    status, slowdowns = gathered.status, gathered.state.slowdowns[-1] if gathered.state.plan else None
    known = max(status.known_switches, status.switches)
    cards = [
        ("switches in sync", f"{status.switches_in_sync} of {known}"),
        ("links", f"{status.links} of {max(status.known_links, status.links)}"),
        ("hosts", str(status.hosts)),
        ("jobs", str(status.jobs) + (f", {status.jobs_unconfirmed} unconfirmed" if status.jobs_unconfirmed else "")),
        ("network efficiency", percent(optional(status, "network_efficiency"))),
        ("worst slowdown of the plan", slowdown(slowdowns.plan if slowdowns else None)),
        ("lower bound of all plans", slowdown(slowdowns.bound if slowdowns else None)),
        ("worst under ECMP, mean", slowdown(slowdowns.ecmp if slowdowns else None)),
    ]
    return tag("div", [tag("div", name, tag("b", value)) for name, value in cards], class_="cards")


# ---- sections


def _fabric(gathered: Gathered, drawn: Picture, crossed: Crossing) -> list[Child]:
    if not drawn.nodes:
        return [tag("p", "No switch is known.")]
    shown: list[Child] = []
    if drawn.as_matrix:
        found = drawing.matrices(drawn)
        shown += [tag("figure", tag("figcaption", title), matrix) for title, matrix in found]
        if not found:
            shown.append(tag("p", f"{len(drawn.cables):,} cables are too many to draw; the busiest links are below."))
    else:
        shown.append(tag("figure", drawing.graph(drawn)))
    return [
        _legend(any(cable.one_way for cable in drawn.cables)),
        *shown,
        tag("h3", "Busiest links"),
        busiest(gathered, crossed),
        tag("details", tag("summary", "Switches"), _switches(gathered, drawn)),
    ]


def _legend(circuits: bool) -> Element:
    swatches = [tag("span", class_=f"swatch l{each}") for each in range(0, STEPS + 1, 2)]
    return tag(
        "p",
        "Load of a direction: 0 % ",
        swatches,
        " 100 %",
        tag("b", " ", tag("span", class_="swatch lu"), " not measured"),
        tag("b", " · drained: dotted, or \\", class_="key-drained"),
        tag("b", " · down: dashed, or X", class_="key-down"),
        tag("b", " · circuits of optical switches: arrows") if circuits else None,
        class_="legend",
    )


def _switches(gathered: Gathered, drawn: Picture) -> Element:
    nodes = [node for tier in drawn.tiers for node in tier]
    nodes.sort(key=lambda node: node.condition is Condition.UP)

    def row(dpid: int) -> tuple[str, ...]:
        node, switch = drawn.nodes[dpid], gathered.state.switches.get(dpid)
        ports = f"{sum(port.up for port in switch.ports)} of {len(switch.ports)}" if switch else "-"
        rules = (str(switch.rules), str(switch.foreign_rules)) if switch else ("-", "-")
        return node.name, f"{dpid:#x}", node.condition, ports, *rules, str(len(node.hosts))

    columns = ("switch", "dpid", "condition", "ports up", "rules", "foreign rules", "hosts")
    return table(columns, (row(node.dpid) for node in nodes[:MOST_ROWS]), (3, 4, 5, 6))


def _plan(gathered: Gathered) -> list[Child]:
    plan = gathered.state.plan
    if plan is None:
        return [tag("p", "There is no plan.")]
    values = [("lower bound of all plans", plan.bound), ("this plan", plan.max_slowdown)]
    values += [
        (word(word_in(each, "scheme")), each.slowdown) for each in plan.schemes if word_in(each, "scheme") != "ecmp"
    ]
    if plan.HasField("ecmp_slowdown"):
        values += [
            ("ECMP, mean over hash draws", plan.ecmp_slowdown.mean),
            ("ECMP, 95th percentile", plan.ecmp_slowdown.p95),
        ]
    note = "Worst slowdown over jobs: 2 means that a job communicates in at most twice its ideal time."
    return [
        facts(plan_facts(plan).items()),
        tag("figure", tag("figcaption", note), drawing.bars(values)),
        _shared(plan),
    ]


def _shared(plan: pb.Plan) -> Child:
    """Return drawings of the links that jobs share in time or by class."""
    found = timelines(plan)
    left = len(found) - MOST_TIMELINES
    if not found:
        return None
    return [
        tag("h3", "Slots and classes on shared links"),
        [tag("figure", tag("figcaption", each.title), drawing.timeline(each)) for each in found[:MOST_TIMELINES]],
        tag("p", f"and {counted(left, 'more set')} of shared links", class_="faint") if left > 0 else None,
    ]


def _alarms(gathered: Gathered) -> list[Child]:
    found = gathered.state.alarms_by_urgency()
    if not found:
        return [tag("p", "No alarms.")]
    rows = ((when(alarm.raise_time), alarm_line(alarm)) for alarm in found[:MOST_ROWS])
    return [table(("since", "alarm"), rows), _left_out(len(found))]


def _left_out(count: int) -> Element | None:
    return tag("p", f"{count - MOST_ROWS} more are left out.", class_="faint") if count > MOST_ROWS else None


def _out_of_use(gathered: Gathered) -> list[Child]:
    drains, down = list(gathered.state.drains.values()), list(gathered.state.parts_down.values())
    if not drains and not down:
        return [tag("p", "Nothing is drained, nothing is down.")]
    drained = ((part.name, when(part.drain_time), drain_state(part)) for part in drains[:MOST_ROWS])
    gone = ((word(word_in(part, "kind")), part.name, when(part.down_time)) for part in down[:MOST_ROWS])
    return [
        table(("drained part", "since", "state"), drained) if drains else None,
        table(("down", "name", "since"), gone) if down else None,
        _left_out(max(len(drains), len(down))),
    ]


def _history(gathered: Gathered) -> list[Child]:
    if not gathered.events:
        return [tag("p", "No events.")]
    newest = sorted(gathered.events, key=lambda event: -event.number)[:MOST_EVENTS]
    rows = ((when(event.event_time), word(word_in(event, "kind")), event_line(event)) for event in newest)
    title = f"The newest {len(newest)} of {counted(len(gathered.events), 'event')}"
    return [tag("details", tag("summary", title), table(("time", "about", "event"), rows), open="")]


def _versions(gathered: Gathered) -> list[Child]:
    status = gathered.status
    about = [("controller", status.version or "not known"), ("revision of its state", str(status.state_revision))]
    about += [(f"{name}, where this was collected", version) for name, version in gathered.versions.items()]
    if status.HasField("counters_age"):
        about.append(("age of counters", f"{seconds(status.counters_age):.1f} s"))
    about += [("not collected", text) for text in gathered.missing]
    return [facts(about)]


MOST_NAMES = 6
"""Largest number of jobs named in a cell of a table."""
MOST_SLOW = 8
"""Largest number of slow jobs on the first screen."""
MOST_PATHS = 8000
"""Largest number of paths in the report. Paths of slow jobs come first."""
MOST_BUSY = 25
FULL = 0.9
"""Smallest load at which a link is named as a reason for a job's slowness."""


class Crossing(NamedTuple):
    """Flows of jobs. ``subflows``: flows and subflows that cross each link.

    ``routes``: routes of each job, by its id."""

    subflows: Mapping[LinkAt, Sequence[CrossingSubflow]]
    routes: Mapping[str, Sequence[pb.ListedRoute]]


def crossing(routes: Sequence[pb.ListedRoute]) -> Crossing:
    of_jobs: defaultdict[str, list[pb.ListedRoute]] = defaultdict(list)
    for route in routes:
        of_jobs[route.job_id].append(route)
    return Crossing(subflows_by_link(routes), of_jobs)


def why(job: pb.Job, gathered: Gathered, crossed: Crossing) -> list[str]:
    """Return sentences on why a job is slow. The controller's own explanation comes first."""
    answer = gathered.explained.get(job.spec.job_id)
    found = list(answer.answer) if answer else []
    if job.missing_hosts:
        found.append(f"It waits for hosts that are not found: {some(job.missing_hosts)}.")
    if job.wiring.unwired:
        found.append(f"It has no circuits: {job.wiring.unwired}.")
    if job.flows_without_path:
        found.append(f"{counted(job.flows_without_path, 'flow')} without a path.")
    if not answer and job.HasField("slowdown") and job.slowdown > 1:
        found.append(f"On its routes, communication takes up to {job.slowdown:.2f} times its ideal time.")
    if full := _fullest(job, gathered, crossed):
        found.append(full)
    if not answer:
        found += traffic_lines(job)
    if job.prediction_withheld and not answer:
        found.append(f"No prediction: {job.prediction_withheld}.")
    return found or ["Its routes and links do not explain the slowness: the cause may be outside the network."]


def _fullest(job: pb.Job, gathered: Gathered, crossed: Crossing) -> str:
    """Return a sentence on the link with the highest load that a job crosses; empty if that load is below ``FULL``."""
    ats = links_of(crossed.routes.get(job.spec.job_id, ()))
    links = [link for at in ats if (link := gathered.state.links.get(at)) is not None]
    link = max(links, key=lambda each: load(each) or 0.0, default=None)
    if link is None or (share := load(link)) is None or not share >= FULL:
        return ""
    others = link.background_bps / link.capacity_bps if link.HasField("background_bps") else 0.0
    stray = f", {percent(others)} of the capacity by unannounced traffic" if others >= 0.05 else ""
    sharing = jobs_of(crossed.subflows.get((link.src.dpid, link.src.port), ())).keys() - {job.spec.job_id}
    shared = f"; the job shares it with {some(sorted(sharing))}" if sharing else ""
    return f"The fullest link on its paths is {link.name}, {percent(share)} used{stray}{shared}."


def slow(gathered: Gathered, crossed: Crossing) -> Element:
    """Return a table of the slowest jobs with reasons, or a sentence that no job is slow."""
    found = gathered.slow
    if not found:
        jobs = gathered.state.jobs
        known = sum(efficiency(job) is not None for job in jobs.values())
        said = f"No job is slow: {known} of {counted(len(jobs), 'job')} with known efficiency." if jobs else "No jobs."
        return tag("p", said, id="slow")
    rows: list[list[Child]] = []
    for job in found[:MOST_SLOW]:
        cells = dict(zip(JOB_COLUMNS, job_cells(job, state=""), strict=True))
        sentences = [tag("div", sentence) for sentence in why(job, gathered, crossed)]
        rows.append([_link_to(job, gathered), cells["measured"], cells["predicted"], cells["slowdown"], sentences])
    more = f"{counted(len(found) - MOST_SLOW, 'more slow job')} below." if len(found) > MOST_SLOW else ""
    shown = table(("slow job", "measured", "predicted", "slowdown", "why"), rows, (1, 2, 3))
    return tag("div", shown, tag("p", more, class_="faint") if more else None, id="slow")


def _link_to(job: pb.Job, gathered: Gathered) -> Element:
    return tag("a", job.spec.job_id, href=f"#{_id(job.spec.job_id, gathered)}")


def _id(job_id: str, gathered: Gathered) -> str:
    return f"job-{list(gathered.state.jobs).index(job_id) + 1}"


def every(gathered: Gathered, crossed: Crossing) -> list[Child]:
    """Return a table of all jobs, followed by at most ``MOST_PATHS`` of their paths."""
    jobs = gathered.state.jobs
    if not jobs:
        return [tag("p", "No jobs are registered.")]
    order = {name: number for number, name in enumerate(jobs, 1)}
    rows: list[list[Child]] = [
        [tag("span", name, id=f"job-{order[name]}"), *job_cells(job, state_without_mark(job))[1:]]
        for name, job in jobs.items()
    ]
    return [table(JOB_COLUMNS, rows, (2, 3, 4, 6, 7, 8, 9)), tag("h3", "Paths"), *_paths(gathered, crossed)]


def _paths(gathered: Gathered, crossed: Crossing) -> list[Child]:
    worst = [job.spec.job_id for job in gathered.slow]
    names = [*worst, *(name for name in gathered.state.jobs if name not in frozenset(worst))]
    room, shown = MOST_PATHS, list[Child]()
    for number, name in enumerate(names):
        routes = crossed.routes.get(name, ())
        if len(routes) > room:
            left = counted(len(names) - number, "job")
            shown.append(
                tag("p", f"Paths of {left} are left out; signalbox describe job NAME lists them.", class_="faint")
            )
            break
        room -= len(routes)
        shown.append(_of_job(gathered.state.jobs[name], routes))
    return shown


def _of_job(job: pb.Job, routes: Sequence[pb.ListedRoute]) -> Element:
    planned = any(route.planned for route in routes)
    columns = ("from", "to", "path", *(("in the newest plan",) if planned else ()))
    rows = (route_cells(job, route, planned) for route in routes)
    title = f"{job.spec.job_id}: {counted(len(routes), 'flow')}"
    about = facts(job_facts(job).items())
    return tag("details", tag("summary", title), about, table(columns, rows) if routes else None)


def busiest(gathered: Gathered, crossed: Crossing) -> Element:
    """Return a table of the directed links with the highest loads, with the jobs whose pinned flows cross them."""
    rows = [
        (*link_cells(link), jobs_in_words(crossed.subflows.get((link.src.dpid, link.src.port), ()), MOST_NAMES))
        for link in gathered.state.busiest_links(MOST_BUSY)
    ]
    if not rows:
        return tag("p", "No link was measured.")
    return table(("link", "use", "rate", "capacity", "unannounced", "pinned flows of"), rows, (1, 2, 3, 4))
