"""Jobs in a report: the slow jobs with reasons, all jobs, and their paths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
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
from signalbox.live.rows import link_cells
from signalbox.live.shown import counted, percent, some
from signalbox.live.state import load
from signalbox.report.elements import Child, facts, table, tag
from signalbox.report.gathered import Gathered
from signalbox.v1 import signalbox_pb2 as pb

MOST_NAMES = 6
"""Largest number of jobs named in a cell."""
MOST_SLOW = 8
"""Largest number of slow jobs on the first screen."""
MOST_PATHS = 8000
"""Largest number of paths listed; the paths of slow jobs are listed first."""
MOST_BUSY = 25
FULL = 0.9
"""Load from which a link is mentioned."""


class Crossing(NamedTuple):
    """Flows of jobs. ``subflows``: flows and subflows by the link that they cross. ``routes``: routes by job id."""

    subflows: Mapping[LinkAt, Sequence[CrossingSubflow]]
    routes: Mapping[str, Sequence[pb.ListedRoute]]


def crossing(routes: Sequence[pb.ListedRoute]) -> Crossing:
    of_jobs: defaultdict[str, list[pb.ListedRoute]] = defaultdict(list)
    for route in routes:
        of_jobs[route.job_id].append(route)
    return Crossing(subflows_by_link(routes), of_jobs)


def why(job: pb.Job, gathered: Gathered, crossed: Crossing) -> list[str]:
    """Return sentences on why a job is slow, the controller's own answer first."""
    answer = gathered.explained.get(job.spec.job_id)
    found = list(answer.answer) if answer else []
    if job.missing_hosts:
        found.append(f"It waits for hosts that are not found: {some(job.missing_hosts)}.")
    if job.wiring.unwired:
        found.append(f"It has no circuits: {job.wiring.unwired}.")
    if job.flows_without_path:
        found.append(f"{counted(job.flows_without_path, 'flow')} without a path.")
    if not answer and job.HasField("slowdown") and job.slowdown > 1:
        found.append(f"On its routes communication takes up to {job.slowdown:.2f} times its ideal.")
    if full := _fullest(job, gathered, crossed):
        found.append(full)
    if not answer:
        found += traffic_lines(job)
    if job.prediction_withheld and not answer:
        found.append(f"No prediction: {job.prediction_withheld}.")
    return found or ["Routes and links do not explain it: the cause may be outside the network."]


def _fullest(job: pb.Job, gathered: Gathered, crossed: Crossing) -> str:
    """Return a sentence about the fullest link that a job crosses, when it is full enough to mention."""
    ats = links_of(crossed.routes.get(job.spec.job_id, ()))
    links = [link for at in ats if (link := gathered.state.links.get(at)) is not None]
    link = max(links, key=lambda each: load(each) or 0.0, default=None)
    if link is None or (share := load(link)) is None or not share >= FULL:
        return ""
    others = link.background_bps / link.capacity_bps if link.HasField("background_bps") else 0.0
    stray = f", {percent(others)} of the capacity by unannounced traffic" if others >= 0.05 else ""
    sharing = jobs_of(crossed.subflows.get((link.src.dpid, link.src.port), ())).keys() - {job.spec.job_id}
    shared = f"; it shares it with {some(sorted(sharing))}" if sharing else ""
    return f"The fullest link on its paths is {link.name}, {percent(share)} used{stray}{shared}."


def slow(gathered: Gathered, crossed: Crossing) -> Element:
    """Return a table of the slowest jobs, or a sentence that there are none."""
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
    more = f"{len(found) - MOST_SLOW} more are below." if len(found) > MOST_SLOW else ""
    shown = table(("slow job", "measured", "predicted", "slowdown", "why"), rows, (1, 2, 3))
    return tag("div", shown, tag("p", more, class_="faint") if more else None, id="slow")


def _link_to(job: pb.Job, gathered: Gathered) -> Element:
    return tag("a", job.spec.job_id, href=f"#{_id(job.spec.job_id, gathered)}")


def _id(job_id: str, gathered: Gathered) -> str:
    return f"job-{list(gathered.state.jobs).index(job_id) + 1}"


def every(gathered: Gathered, crossed: Crossing) -> list[Child]:
    """Return a table of all jobs, then at most ``MOST_PATHS`` of their paths."""
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
    """Return a table of the fullest directed links, with the jobs whose pinned flows cross them."""
    rows = [
        (*link_cells(link), jobs_in_words(crossed.subflows.get((link.src.dpid, link.src.port), ()), MOST_NAMES))
        for link in gathered.state.busiest_links(MOST_BUSY)
    ]
    if not rows:
        return tag("p", "No link was measured.")
    return table(("link", "use", "rate", "capacity", "unannounced", "pinned flows of"), rows, (1, 2, 3, 4))
