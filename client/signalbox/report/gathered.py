"""Content of a report: the messages of the API at one moment, from a running controller.

``signalbox.report.bundle`` makes the same content from a support bundle."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from signalbox.client import Client
from signalbox.distributions import installed
from signalbox.errors import SignalboxError
from signalbox.live.jobs import efficiency, urgency
from signalbox.live.state import State
from signalbox.v1 import signalbox_pb2 as pb

SLOW_BELOW = 0.9
"""Efficiency below which a job is called slow: ideal communication time divided by the measured or predicted time."""
MOST_EXPLAINED = 5
"""Largest number of jobs that the controller explains, because an answer may take seconds."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Gathered:
    """Content of a report.

    - ``source``: origin of the data, in words
    - ``unix_s``: time when the messages were requested
    - ``state``: state of the controller, without events and without slowdowns of earlier plans
    - ``explained``: the controller's answers about slow jobs, by id
    - ``missing``: data that is not available, with reasons"""

    source: str
    unix_s: float
    state: State
    status: pb.GetStatusResponse
    routes: Sequence[pb.ListedRoute] = ()
    events: Sequence[pb.Event] = ()
    explained: Mapping[str, pb.ExplainResponse] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()

    @property
    def slow(self) -> list[pb.Job]:
        """Jobs that are slow or wait, worst first."""
        return slow_jobs(self.state.jobs.values())


def of_controller(client: Client, unix_s: float) -> Gathered:
    """Return the content from a controller; data that it does not return is listed in ``missing``.

    Raises ``SignalboxError`` when the controller does not return its status."""
    status = client.get_status()
    missing: list[str] = []

    def ask(what: str, call: Callable[[], Answer], otherwise: Answer) -> Answer:
        try:
            return call()
        except SignalboxError as error:
            missing.append(f"{what}: {error}")
            return otherwise

    fabric = ask("fabric", client.get_fabric, pb.GetFabricResponse())
    jobs: Sequence[pb.Job] = ask("jobs", client.list_jobs, tuple[pb.Job, ...]())
    state = state_of(status, fabric, ask("plan", client.get_plan, None), jobs, unix_s)
    asked = [job.spec.job_id for job in slow_jobs(jobs) if not _waits(job)][:MOST_EXPLAINED]
    answers = {name: ask(f"why {name} is slow", partial(client.explain, name), None) for name in asked}
    return Gathered(
        "a running controller",
        unix_s,
        state,
        status,
        ask("routes", client.list_routes, ()),
        ask("events", lambda: tuple(client.list_events()), ()),
        {name: answer for name, answer in answers.items() if answer is not None},
        {**installed(), "python": platform.python_version()},
        missing,
    )


def state_of(
    status: pb.GetStatusResponse,
    fabric: pb.GetFabricResponse,
    plan: pb.Plan | None,
    jobs: Sequence[pb.Job],
    unix_s: float,
) -> State:
    state = State(lost="")
    state.take_status(status)
    state.take_fabric(fabric)
    state.take_plan(plan, unix_s)
    state.take_jobs(pb.WatchJobsResponse(snapshot=True, jobs=jobs))
    state.take_alarms(pb.WatchAlarmsResponse(snapshot=True, raised=status.alarms))
    return state


def slow_jobs(jobs: Iterable[pb.Job]) -> list[pb.Job]:
    """Return the jobs that are slow or wait, worst first."""
    return [job for job in sorted(jobs, key=urgency) if _waits(job) or job.flows_without_path or _is_slow(job)]


def _is_slow(job: pb.Job) -> bool:
    share = efficiency(job)
    return share is not None and share < SLOW_BELOW


def _waits(job: pb.Job) -> bool:
    """Return whether a job waits for hosts or has no circuits; the controller cannot explain such a job's speed."""
    return bool(job.missing_hosts or job.wiring.unwired)
