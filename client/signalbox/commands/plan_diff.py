"""``signalbox plan diff``: changes that the newest plan would make to the routes that switches hold.

The next re-plan starts from the newest plan, which is at most ``planning.interval_s`` old. When that plan was not
adopted (its gain did not justify its moves, or the mode is ``shadow``), the output shows what adopting it would
do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType

from signalbox.client import Client
from signalbox.commands.output import Column, Fitted, facts
from signalbox.live.shown import goal, optional, route_words, slowdown
from signalbox.v1 import signalbox_pb2 as pb

Fields = Mapping[str, Any]


def plan_diff(client: Client) -> dict[str, Any] | None:
    """Return the changes for programs; None before the first plan.

    A flow *moves* when the switches hold another route for it, and *is pinned* when they hold none."""
    found = client.plan_changes()
    if found is None:
        return None
    plan, changes = found
    moved = Counter(route.job_id for route in changes if route.held)
    pinned = Counter(route.job_id for route in changes if not route.held)
    now = {job.spec.job_id: optional(job, "slowdown") for job in client.list_jobs()}
    slowdowns = {job.job_id: job.slowdown for job in plan.goal.jobs}
    jobs = [
        {
            "job_id": job.job_id,
            "slowdown": now.get(job.job_id),
            "slowdown_planned": job.slowdown,
            "slowdown_goal": slowdowns.get(job.job_id),
            "moved": moved[job.job_id],
            "pinned": pinned[job.job_id],
        }
        for job in plan.jobs
    ]
    return {
        "generation": str(plan.generation),
        "installed": plan.installed,
        "max_slowdown": max((known for known in now.values() if known is not None), default=None),
        "max_slowdown_planned": plan.max_slowdown,
        "max_slowdown_goal": plan.goal.max_slowdown if plan.HasField("goal") else None,
        "bound": plan.bound,
        "moved": moved.total(),
        "pinned": pinned.total(),
        "moves_left": plan.moves_left,
        "blocked_flows": plan.blocked_flows,
        "jobs": jobs,
        "routes": changes,
    }


def diff_table(found: Fields) -> RenderableType:
    now, planned, bound = (slowdown(found[name]) for name in ("max_slowdown", "max_slowdown_planned", "bound"))
    about: dict[str, object] = {
        "plan": f"{found['generation']}, {'installed' if found['installed'] else 'not installed'}",
        "worst slowdown": f"{now} now, {planned} with the plan (bound {bound})",
        "goal": goal(found["max_slowdown_goal"], found["moves_left"], found["blocked_flows"]),
        "flows": f"{found['moved']} would move now, {found['pinned']} would be pinned",
    }
    changed = [job for job in found["jobs"] if job["moved"] or job["pinned"] or _changes_later(job)]
    jobs = [_jobs(changed, found["max_slowdown_goal"] is not None)] if changed else []
    if not found["routes"]:
        return Group(facts(about), *jobs, "The switches hold the routes of the plan.")
    return Group(facts(about), *jobs, _routes(found["routes"]))


def _changes_later(job: Fields) -> bool:
    return job["slowdown_goal"] not in (None, job["slowdown_planned"])


def _jobs(jobs: Sequence[Fields], has_goal: bool) -> RenderableType:
    slowdowns = ("slowdown", "planned", *(["goal"] if has_goal else []))
    columns = (Column("job"), *(Column(name, number=True) for name in (*slowdowns, "moved", "pinned")))

    def row(job: Fields) -> Sequence[object]:
        names = ("slowdown", "slowdown_planned", *(["slowdown_goal"] if has_goal else []))
        return (job["job_id"], *(slowdown(job[name]) for name in names), job["moved"], job["pinned"])

    return Fitted(columns, map(row, jobs), title="jobs that change")


def _routes(routes: Sequence[pb.ListedRoute]) -> RenderableType:
    columns = (*map(Column, ("job", "from", "to")), Column("now", wraps=True), Column("planned", wraps=True))
    rows = (
        (route.job_id, route.src, route.dst, route_words(route.held), route_words(route.planned)) for route in routes
    )
    return Fitted(columns, rows, title="routes that change")
