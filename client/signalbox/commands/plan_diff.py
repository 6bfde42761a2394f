"""``signalbox plan diff``: what the newest plan would change, against the routes that switches hold.

The newest plan is what a re-plan starts from: it is at most ``planning.interval_s`` old, and where it was not adopted
(not worth its moves, or the strategy ``shadow``) its moves are those that a change of mind would make.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType

from signalbox.client import Client
from signalbox.commands import printing
from signalbox.commands.describe import paths
from signalbox.commands.output import fields
from signalbox.commands.tables import Column, Fitted, facts

Fields = Mapping[str, Any]


def plan_diff(client: Client) -> dict[str, Any] | None:
    """None before the first plan. A flow *moves* when switches hold another route of it, and is *pinned* when they hold
    none."""
    found = client.plan_changes()
    if found is None:
        return None
    plan, changes = fields(found[0]), [fields(route) for route in found[1]]
    moved = Counter(route["job_id"] for route in changes if route["held"])
    pinned = Counter(route["job_id"] for route in changes if not route["held"])
    now = {job.spec.job_id: job.level if job.HasField("level") else None for job in client.list_jobs()}
    target = plan["target"]
    levels = {job["job_id"]: job["level"] for job in target["jobs"]} if target else {}
    jobs = [
        {
            "job_id": job["job_id"],
            "level": now.get(job["job_id"]),
            "level_planned": job["level"],
            "level_target": levels.get(job["job_id"]),
            "moved": moved[job["job_id"]],
            "pinned": pinned[job["job_id"]],
        }
        for job in plan["jobs"]
    ]
    return {
        "generation": plan["generation"],
        "installed": plan["installed"],
        "max_level": max((level for level in now.values() if level is not None), default=None),
        "max_level_planned": plan["max_level"],
        "max_level_target": target["max_level"] if target else None,
        "bound": plan["bound"],
        "moved": moved.total(),
        "pinned": pinned.total(),
        "moves_left": plan["moves_left"],
        "blocked_flows": plan["blocked_flows"],
        "jobs": jobs,
        "routes": changes,
    }


def diff_table(found: Fields) -> RenderableType:
    now, planned = printing.known(found["max_level"], ".3f"), f"{found['max_level_planned']:.3f}"
    about: dict[str, object] = {
        "plan": f"{found['generation']}, {'installed' if found['installed'] else 'not installed'}",
        "worst level": f"{now} now, {planned} with the plan (bound {found['bound']:.3f})",
        "target": printing.target(found, found["max_level_target"]),
        "flows": f"{found['moved']} would move now, {found['pinned']} would be pinned",
    }
    changed = [job for job in found["jobs"] if job["moved"] or job["pinned"] or _changes_later(job)]
    jobs = [_jobs(changed, found["max_level_target"] is not None)] if changed else []
    if not found["routes"]:
        return Group(facts(about), *jobs, "The switches hold the routes of the plan.")
    return Group(facts(about), *jobs, _routes(found["routes"]))


def _changes_later(job: Fields) -> bool:
    return job["level_target"] not in (None, job["level_planned"])


def _jobs(jobs: Sequence[Fields], has_target: bool) -> RenderableType:
    levels = ("level", "planned", *(["target"] if has_target else []))
    columns = (Column("job"), *(Column(name, number=True) for name in (*levels, "moved", "pinned")))

    def row(job: Fields) -> Sequence[object]:
        of_target = [printing.known(job["level_target"], ".3f")] if has_target else []
        now, planned = printing.known(job["level"], ".3f"), f"{job['level_planned']:.3f}"
        return (job["job_id"], now, planned, *of_target, job["moved"], job["pinned"])

    return Fitted(columns, map(row, jobs), title="jobs that change")


def _routes(routes: Sequence[Fields]) -> RenderableType:
    columns = (*map(Column, ("job", "from", "to")), Column("now", wraps=True), Column("planned", wraps=True))
    rows = (
        (route["job_id"], route["src"], route["dst"], paths(route["held"]), paths(route["planned"])) for route in routes
    )
    return Fitted(columns, rows, title="routes that change")
