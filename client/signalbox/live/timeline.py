"""Timelines of links that jobs share in time or by class, from a plan's ``sharing``; a page or report draws them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from signalbox.live.shown import NAME_CHARS, counted, short
from signalbox.mapping import seconds
from signalbox.v1 import signalbox_pb2 as pb


class Slot(NamedTuple):
    """Part of a common period in which a job may send, in seconds from its beginning."""

    start_s: float
    end_s: float


class Lane(NamedTuple):
    """Job on the link. A job without ``slots`` may send at any time."""

    job_id: str
    traffic_class: int
    slots: tuple[Slot, ...]

    @property
    def title(self) -> str:
        return f"{short(self.job_id, NAME_CHARS)}, class {self.traffic_class}"


class Timeline(NamedTuple):
    """Link, or several links with the same jobs.

    ``period_s``: common period of the jobs with slots; 0 if there are none. ``lanes``: higher classes first."""

    links: tuple[str, ...]
    average_load: float
    period_s: float
    lanes: tuple[Lane, ...]

    @property
    def title(self) -> str:
        more = f" and {counted(len(self.links) - 1, 'more link')}" if len(self.links) > 1 else ""
        period = f", period {self.period_s:.3g} s" if self.period_s else ""
        return f"{self.links[0]}{more}: average load {self.average_load:.2f}{period}"


def timelines(plan: pb.Plan | None) -> list[Timeline]:
    """Return the timelines of all links that have several jobs with slots, or jobs of several classes.

    Links with the most slots come first. If the jobs of a link have slots on several circles, then the circle with the
    most jobs counts: to jobs of other circles, these jobs send at any time."""
    if plan is None:
        return []
    jobs = {job.job_id: job for job in plan.sharing.jobs}
    found = [_timeline(links, plan.sharing, jobs) for links in plan.sharing.links if links.links]
    shown = (each for each in found if each.period_s or len({lane.traffic_class for lane in each.lanes}) > 1)
    return sorted(shown, key=lambda each: (-sum(bool(lane.slots) for lane in each.lanes), -each.average_load))


def _timeline(links: pb.SharedLinks, sharing: pb.Sharing, jobs: dict[str, pb.SharedJob]) -> Timeline:
    here = set(links.job_ids)
    circle = max(sharing.circles, key=lambda each: len(here.intersection(each.job_ids)), default=pb.Circle())
    members = here.intersection(circle.job_ids)
    period_s = seconds(circle.period) if len(members) > 1 else 0.0
    lanes = []
    for job_id in links.job_ids:
        job = jobs.get(job_id, pb.SharedJob())
        slots = tuple(sorted(_slots(job, period_s))) if job_id in members else ()
        lane = Lane(job_id, job.traffic_class or 1, slots)
        lanes.append((lane.traffic_class, not slots, job.start, job_id, lane))
    return Timeline(tuple(links.links), links.average_load, period_s, tuple(each[-1] for each in sorted(lanes)))


def _slots(job: pb.SharedJob, period_s: float) -> Iterator[Slot]:
    """Yield the slots of all iterations of a period; a slot over the end of the period is divided."""
    for turn in range(job.turns if period_s else 0):
        for part in job.slots:
            start = (part.start + turn / job.turns) % 1.0
            end = start + min(part.length, 1.0)
            yield Slot(start * period_s, min(end, 1.0) * period_s)
            if end > 1 + 1e-9:
                yield Slot(0.0, (end - 1) * period_s)
