"""What a report says of jobs: who is slow and why, all of them, and their paths."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from signalbox.live.shown import (
    SOURCES,
    counted,
    efficiencies,
    job_state,
    level,
    percent,
    planned_for,
    rate,
    remarks,
    too_efficient,
    traffic_lines,
    wiring_line,
)
from signalbox.live.state import LinkAt, load
from signalbox.mapping import seconds, word_in
from signalbox.report.elements import Child, facts, table, tag
from signalbox.report.gathered import Gathered, efficiency
from signalbox.v1 import signalbox_pb2 as pb

MOST_SLOW = 8
"""That the first screen has."""
MOST_PATHS = 8000
"""Paths that are listed, those of slow jobs first."""
MOST_BUSY = 25
FULL = 0.9
"""Load of a link that is worth a word."""


class Crossing(NamedTuple):
    """``flows``: of each job, by the links that their held paths cross. ``paths``: routes by job."""

    flows: Mapping[LinkAt, Counter[str]]
    paths: Mapping[str, Sequence[pb.ListedRoute]]


def crossing(routes: Sequence[pb.ListedRoute]) -> Crossing:
    flows: defaultdict[LinkAt, Counter[str]] = defaultdict(Counter)
    paths: defaultdict[str, list[pb.ListedRoute]] = defaultdict(list)
    for route in routes:
        paths[route.job_id].append(route)
        for at in {(link.dpid, link.port) for path in route.held for link in path.links}:
            flows[at][route.job_id] += 1
    return Crossing(flows, paths)


def why(job: pb.Job, gathered: Gathered, crossed: Crossing) -> list[str]:
    """In sentences, the controller's own answer first."""
    answer = gathered.explained.get(job.spec.job_id)
    found = list(answer.answer) if answer else []
    if job.missing_hosts:
        found.append(f"It waits for hosts that are not found: {_some(job.missing_hosts)}.")
    if job.wiring.unwired:
        found.append(f"It has no circuits: {job.wiring.unwired}.")
    if job.flows_without_path:
        found.append(f"{counted(job.flows_without_path, 'flow')} without a path.")
    if not answer and job.HasField("level") and job.level > 1:
        found.append(f"On its routes communication takes up to {job.level:.2f} times its ideal.")
    if full := _fullest(job, gathered, crossed):
        found.append(full)
    if not answer:
        found += traffic_lines(job)
    if job.prediction_withheld and not answer:
        found.append(f"No prediction: {job.prediction_withheld}.")
    return found or ["What is known of routes and links does not show it: it may be slow outside the network."]


def _fullest(job: pb.Job, gathered: Gathered, crossed: Crossing) -> str:
    """The fullest link that it crosses, when that is worth a word."""
    ats = {(link.dpid, link.port) for r in crossed.paths.get(job.spec.job_id, ()) for p in r.held for link in p.links}
    links = [link for at in ats if (link := gathered.state.links.get(at)) is not None]
    link = max(links, key=lambda each: load(each) or 0.0, default=None)
    if link is None or (share := load(link)) is None or not share >= FULL:
        return ""
    others = link.background_bps / link.capacity_bps if link.HasField("background_bps") else 0.0
    stray = f", {percent(others)} of the capacity by unannounced traffic" if others >= 0.05 else ""
    sharing = [name for name in crossed.flows.get((link.src.dpid, link.src.port), ()) if name != job.spec.job_id]
    shared = f"; it shares it with {_some(sorted(sharing))}" if sharing else ""
    return f"The fullest link on its paths is {link.name}, {percent(share)} used{stray}{shared}."


def _some(names: Sequence[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def slow(gathered: Gathered, crossed: Crossing) -> Element:
    """A table of the slowest, or that there are none."""
    found = gathered.slow
    if not found:
        jobs = gathered.state.jobs
        known = sum(efficiency(job) is not None for job in jobs.values())
        said = f"No job is slow: {known} of {counted(len(jobs), 'job')} with known efficiency." if jobs else "No jobs."
        return tag("p", said, id="slow")
    rows = [
        (
            _link_to(job, gathered),
            measured(job),
            percent(efficiencies(job)[0]),
            level(job.level if job.HasField("level") else None),
            [tag("div", sentence) for sentence in why(job, gathered, crossed)],
        )
        for job in found[:MOST_SLOW]
    ]
    more = f"{len(found) - MOST_SLOW} more are below." if len(found) > MOST_SLOW else ""
    shown = table(("slow job", "measured", "predicted", "level", "why"), rows, (1, 2, 3))
    return tag("div", shown, tag("p", more, class_="faint") if more else None, id="slow")


def measured(job: pb.Job) -> str:
    """The measured efficiency; ``!`` after one that is not possible."""
    found = efficiencies(job)[1]
    return percent(found) + (" !" if too_efficient(found) else "")


def _link_to(job: pb.Job, gathered: Gathered) -> Element:
    return tag("a", job.spec.job_id, href=f"#{_id(job.spec.job_id, gathered)}")


def _id(job_id: str, gathered: Gathered) -> str:
    return f"job-{list(gathered.state.jobs).index(job_id) + 1}"


def every(gathered: Gathered, crossed: Crossing) -> list[Child]:
    """A table of all, then their paths, as far as there is room."""
    jobs = gathered.state.jobs
    if not jobs:
        return [tag("p", "No jobs are registered.")]
    order = {name: number for number, name in enumerate(jobs, 1)}
    rows = (
        (
            tag("span", name, id=f"job-{order[name]}"),
            job_state(job) + (", flows without a path" if job.flows_without_path else ""),
            str(len(job.spec.endpoints)),
            str(job.virtual_links),
            str(job.pinned),
            planned_for(word_in(job.demand, "source")) if job.HasField("demand") else "-",
            level(job.level if job.HasField("level") else None),
            percent(efficiencies(job)[0]),
            measured(job),
            str(job.iterations),
        )
        for name, job in jobs.items()
    )
    columns = (
        *("job", "state", "ranks", "flows", "pinned", "planned for", "level", "predicted", "measured", "iterations"),
    )
    return [table(columns, rows, (2, 3, 4, 6, 7, 8, 9)), tag("h3", "Paths"), *_paths(gathered, crossed)]


def _paths(gathered: Gathered, crossed: Crossing) -> list[Child]:
    worst = [job.spec.job_id for job in gathered.slow]
    names = [*worst, *(name for name in gathered.state.jobs if name not in frozenset(worst))]
    room, shown = MOST_PATHS, list[Child]()
    for number, name in enumerate(names):
        routes = crossed.paths.get(name, ())
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
    ideal = f"{seconds(job.ideal_communication):.3f} s" if job.HasField("ideal_communication") else "-"
    last = f"{seconds(job.last_communication):.3f} s" if job.HasField("last_communication") else "-"
    sent = "not counted"
    if job.HasField("demand") and job.demand.HasField("window"):
        sent = f"{rate(job.demand.measured_bps)} of payload"
    wiring = wiring_line(job)
    about = facts(
        (
            *([("circuits", wiring)] if wiring else []),
            ("planned for", SOURCES.get(word_in(job.demand, "source"), "-")),
            ("communication", f"{ideal} ideal, {last} in the last iteration"),
            ("traffic", " ".join([f"{sent}.", *remarks(job)])),
        )
    )
    planned = any(route.planned for route in routes)
    columns = ("from", "to", "path", *(("in the newest plan",) if planned else ()))
    hashed = "-" if job.state == pb.JOB_STATE_PENDING else "ECMP"
    rows = (
        (route.src, route.dst, _path(route.held, hashed), *((_path(route.planned, "same"),) if planned else ()))
        for route in routes
    )
    title = f"{job.spec.job_id}: {counted(len(routes), 'flow')}"
    return tag("details", tag("summary", title), about, table(columns, rows) if routes else None)


def _path(paths: Sequence[pb.RoutePath], without: str) -> str:
    if len(paths) == 1:
        return " > ".join(paths[0].switches)
    return "; ".join(f"{percent(path.share)} {' > '.join(path.switches)}" for path in paths) or without


def busiest(gathered: Gathered, crossed: Crossing) -> Element:
    """Directed links by their load, with the jobs whose pinned flows cross them."""
    known = [(share, link) for link in gathered.state.links.values() if (share := load(link)) is not None]
    if not known:
        return tag("p", "No link was measured.")
    found = sorted(known, key=lambda each: (-each[0], each[1].name))[:MOST_BUSY]
    rows = (
        (
            link.name,
            percent(share),
            rate(link.rate_bps),
            rate(link.capacity_bps),
            rate(link.background_bps) if link.HasField("background_bps") else "-",
            _some(
                [
                    f"{name} ({count})"
                    for name, count in crossed.flows.get((link.src.dpid, link.src.port), Counter()).most_common()
                ]
            ),
        )
        for share, link in found
    )
    return table(("link", "use", "rate", "capacity", "unannounced", "pinned flows of"), rows, (1, 2, 3, 4))
