"""Events between two published statuses, for the log and the event history. Pure; ``driver`` writes both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from controller.alarms import OF_JOBS, Alarm, AlarmKey, severity, text
from controller.events import Event as HistoryEvent
from controller.fabric.parts import Part, PartKind
from controller.jobs.messages import ends_since
from controller.planning.plan import Plan
from controller.shared_map import differing
from controller.status import Status
from signalbox.jobs.spec import JobId
from signalbox.words import AlarmKind, EventKind

Event = tuple[str, dict[str, Any]]

MAX_NAMED = 4
"""Largest number of parts of the fabric that one line names."""
ANOTHER_SLOWDOWN = 0.05
"""Relative change of the worst slowdown from plan to plan that is worth a line. Measured rates cause smaller changes
all the time."""

ALARM = "alarm"
"""Event that is logged as a warning: an alarm is raised."""
OVER = "alarm over"
OF_ALARMS = (EventKind.ALARM, EventKind.JOB_ALARM)
KINDS = frozenset(AlarmKind)


def events(before: Status, after: Status) -> Iterator[tuple[EventKind, str, dict[str, Any]]]:
    """Yield kind, name and details of each change worth a line.

    No detail may have the name of a key that every line has, such as ``event``."""
    for kind, of_kind in _OF_KIND.items():
        yield from ((kind, what, details) for what, details in of_kind(before, after))
    for _, was, alarm in sorted(differing(before.alarms, after.alarms)):
        latest = alarm or was
        goes_on = alarm is not None and alarm.key in before.alarms_before
        if latest and (was is None or alarm is None) and not goes_on:
            job = after.jobs.get(JobId(latest.subject)) or before.jobs.get(JobId(latest.subject))
            tenant = _tenant(job.registration.tenant) if job and latest.kind in OF_JOBS else {}
            yield _kind(latest.kind), ALARM if alarm else OVER, _alarm(latest) | tenant
    for of, subject in sorted(before.alarms_before.keys() - after.alarms_before.keys() - after.alarms.keys()):
        details = {"kind": of.value, "subject": subject, "severity": severity(of)}
        yield _kind(of), OVER, details | {"text": "the alarm was not raised again after the controller had started"}


def at_start(first: Status, alarms_before: Mapping[AlarmKey, float]) -> Status:
    """Return the status with which the ``first`` published status is compared.

    The result is ``first`` without alarms. Raised alarms are therefore logged as events; saved jobs and parts are
    not."""
    return replace(first, alarms={}, alarms_before=alarms_before)


def not_over(history: Iterable[HistoryEvent]) -> dict[AlarmKey, float]:
    """Return the alarms that have not ended by the last of these events, with their starts in seconds since 1970.

    ``history``: events in order."""
    found: dict[AlarmKey, float] = {}
    for event in history:
        kind, subject = event.details.get("kind", ""), event.details.get("subject", "")
        if event.kind not in OF_ALARMS or kind not in KINDS:
            continue
        if event.what == ALARM:
            found[AlarmKind(kind), subject] = event.at
        elif event.what == OVER:
            found.pop((AlarmKind(kind), subject), None)
    return found


def _mode_events(before: Status, after: Status) -> Iterator[Event]:
    if before.mode is not after.mode:
        yield "mode set", {"mode": after.mode.value}


def _adoption_events(before: Status, after: Status) -> Iterator[Event]:
    if before.adopting and not after.adopting:
        yield "rules adopted", {"pins": after.pins, "links": len(after.fabric.links)}


def _plan_events(before: Status, after: Status) -> Iterator[Event]:
    in_force = before.repair_s is None or after.repairs_total > before.repairs_total
    if after.repair and after.repair_s is not None and in_force:
        times = {"plan_ms": round(after.repair.plan_ms, 1), "in_force_s": round(after.repair_s, 3)}
        yield "routes repaired", {"flows": after.repair.flows} | times
    if (plan := after.plan) and (after.plan_reason != before.plan_reason or _another_slowdown(before.plan, plan)):
        yield (
            f"plan {after.plan_reason}",
            {"worst_slowdown": round(plan.max_slowdown, 3), "bound": round(plan.bound, 3)}
            | ({"ecmp": round(plan.ecmp.mean, 3)} if plan.ecmp else {})
            | ({"moves": plan.moves} if plan.moves else {})
            | {"solver": plan.solver, "ms": round(plan.times.total_ms, 1)},
        )


def _another_slowdown(before: Plan | None, after: Plan) -> bool:
    """Return whether the worst slowdown of the plan has changed noticeably.

    ``plan_reason`` may be the same: after the loss of links that no route needs, the plan is kept as before, but
    jobs may be slower."""
    return before is not None and abs(after.max_slowdown - before.max_slowdown) > ANOTHER_SLOWDOWN * before.max_slowdown


def _kind(kind: AlarmKind) -> EventKind:
    return EventKind.JOB_ALARM if kind in OF_JOBS else EventKind.ALARM


def _alarm(alarm: Alarm) -> dict[str, Any]:
    return {"kind": alarm.kind.value, "subject": alarm.subject, "severity": alarm.severity, "text": text(alarm)}


def _tenant(tenant: str) -> dict[str, Any]:
    return {"tenant": tenant} if tenant else {}


def _drain_events(before: Status, after: Status) -> Iterator[Event]:
    for name, was, drain in differing(before.drains, after.drains):
        if drain is None:
            yield "undrained", {"part": name}
            continue
        if was is None:
            yield "drained", {"part": name, "flows": drain.flows}
        if drain.state in ("safe", "carrying") and (was is None or drain.state != was.state):
            what = "safe to pull" if drain.state == "safe" else "drained, but carries packets"
            yield what, {"part": name}


def _fabric_events(before: Status, after: Status) -> Iterator[Event]:
    """Yield the changes of parts and hosts; parts of one kind that change in the same way share a line.

    A host that is found or moves has its own line. Only many hosts that are found together share a line: after a
    restart, lines about all hosts of jobs would displace earlier events."""
    changed: defaultdict[str, list[Part]] = defaultdict(list)
    for _, was, part in differing(before.parts, after.parts):
        if part and (what := _part_change(was, part)):
            changed[f"{part.kind} {what}"].append(part)
    for what, parts in sorted(changed.items()):
        hosts_at = (part.ends[0].switch for part in parts if part.kind is PartKind.HOST)
        yield what, _several_names((part.name for part in parts), hosts_at)
    if after.extension is not before.extension:
        from controller.circuits.published import changes

        yield from changes(before.extension, after.extension)
    old, new = before.fabric, after.fabric
    found, moved = list[str](), list[str]()
    for ip, old_host, host in differing(old.hosts, new.hosts):
        if host and (old_host is None or old_host.at != host.at):
            (moved if old_host else found).append(ip)
    if len(found) > MAX_NAMED:
        yield "hosts found", _several_names(found, (new.name(new.hosts[ip].at.dpid) for ip in found))
        found.clear()
    for what, ips in (("host found", found), ("host moved", moved)):
        for ip in ips:
            yield what, {"ip": ip, "at": new.port_name(new.hosts[ip].at)}


def _several_names(names: Iterable[str], hosts_at: Iterable[str]) -> dict[str, Any]:
    ordered, switches = sorted(names), {*hosts_at}
    at = {"at": switches.pop()} if len(switches) == 1 else {}
    return {"count": len(ordered), "names": ", ".join(ordered[:MAX_NAMED])} | at


def _part_change(was: Part | None, part: Part) -> str:
    """Return the change of the part, such as ``down``; empty if nothing has changed that is worth a line."""
    if part.down_since is not None:
        return "" if was and was.down_since is not None else "down"
    if was is None:
        return "found" if part.seen and part.kind is not PartKind.HOST else ""
    return "up again" if was.down_since is not None else ""


def _rule_events(before: Status, after: Status) -> Iterator[Event]:
    for dpid, switch in after.switches.items():
        known = before.switches.get(dpid)
        count = switch.healed_rules - (known.healed_rules if known else 0)
        if count > 0:
            yield "foreign change to rules undone", {"switch": after.fabric.name(dpid), "count": count}


def _job_events(before: Status, after: Status) -> Iterator[Event]:
    for end in ends_since(before.job_ends, after.job_ends):
        yield "job ended", {"job": end.job_id, "uid": end.uid, "reason": end.reason.value} | _tenant(end.tenant)
    for job_id, known, job in differing(before.jobs, after.jobs):
        if job is None:
            continue
        same, tenant = known is not None and known.uid == job.uid, _tenant(job.registration.tenant)
        if same and after.adopting and not job.routes_known:
            continue  # the controller has read the job's rules on the switches, but not adopted them yet
        if known is None or not same or known.state != job.state:
            details = {"job": job_id, "state": job.state, "pinned": f"{job.pinned} of {len(job.routes)}"} | tenant
            yield ("job", details) if same else ("job registered", details | {"uid": job.uid})
        if job.registration.arrangement or job.waiting:
            from controller.circuits.published import job_events

            yield from ((what, of_it | tenant) for what, of_it in job_events(known if same else None, job))


_OF_KIND: Mapping[EventKind, Callable[[Status, Status], Iterator[Event]]] = {
    EventKind.FABRIC: _fabric_events,
    EventKind.RULES: _rule_events,
    EventKind.JOB: _job_events,
    EventKind.DRAIN: _drain_events,
    EventKind.MODE: _mode_events,
    EventKind.CONTROLLER: _adoption_events,
    EventKind.PLAN: _plan_events,
}
