"""Tables for people, made from messages of the API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType

from signalbox.commands.output import Column, Fitted, escape, facts, fields
from signalbox.live.jobs import CrossingSubflow, ListedRoute, jobs_of, planned_for
from signalbox.live.rows import link_cells
from signalbox.live.shown import (
    alarm_line,
    alarm_text,
    counted,
    drain_state,
    optional,
    percent,
    plan_facts,
    slowdown,
    when,
    word,
)
from signalbox.live.state import load
from signalbox.mapping import seconds, word_in
from signalbox.v1 import signalbox_pb2 as pb

MOST_ALARMS = 3
"""Largest number of alarms of one kind that are printed with a line each.

If a kind has more alarms, they share a single line, which names this number of subjects."""
NO_PLAN = "There is no plan yet."

# ---- the fabric


def fabric(found: pb.GetFabricResponse) -> RenderableType:
    there = len(found.switches), len(found.links), len(found.hosts)
    down = Counter(word_in(part, "kind") for part in found.parts_down)
    circuits = sum(link.one_way for link in found.links)
    among = f", {counted(circuits, 'circuit')} among them" if circuits else ""
    tables = [
        switches(found.switches, f"{_of_known(there[0], there[0] + down['switch'])} switches"),
        links(found.links, f"{_of_known(there[1], there[1] + 2 * down['link'])} directed links{among}"),
        hosts(found.hosts, f"{there[2]} hosts{_some_down(down['host'])}"),
    ]
    if found.parts_down:
        rows = ((word(word_in(part, "kind")), part.name, when(part.down_time)) for part in found.parts_down)
        tables.append(Fitted((Column("down"), Column("name"), Column("since", 1)), rows))
    if found.dropped:
        columns = Column("switch"), Column("kind"), Column("packets", number=True)
        packets = ((one.switch_name, word(word_in(one, "kind")), one.packets) for one in found.dropped)
        tables.append(Fitted(columns, packets, title="dropped packets of kinds that the fabric does not carry"))
    return Group(*tables)


def _of_known(there: int, known: int) -> str:
    """Return ``6 of 7`` when one of 7 known parts is down, ``7`` when none is.

    For older controllers, which report 0 known parts, the result is only the number of parts that are up."""
    return f"{there} of {known}" if known > there else str(there)


def _some_down(count: int) -> str:
    return f", {count} down" if count else ""


def switches(found: Sequence[pb.Switch], title: str = "") -> RenderableType:
    held = [Column("holder")] if any(each.HasField("holder") for each in found) else []
    columns = (
        Column("switch"),
        Column("dpid", 2),
        Column("ports up", 1, number=True),
        Column("in sync"),
        Column("rules", 1, number=True),
        Column("foreign rules", 1, number=True),
        *held,
    )
    rows = (
        (
            each.name,
            f"{each.dpid:#x}",
            f"{sum(port.up for port in each.ports)} of {len(each.ports)}",
            yes_or_no(each.in_sync),
            each.rules,
            each.foreign_rules,
            *([each.holder or "none"] if held else []),
        )
        for each in found
    )
    return Fitted(columns, rows, title=title or counted(len(found), "switch", "switches"))


def yes_or_no(found: bool) -> str:
    return "yes" if found else "no"


def links(found: Sequence[pb.Link], title: str = "") -> RenderableType:
    columns = (Column("link"), *(Column(name, number=True) for name in ("capacity", "rate", "use", "background")))
    rows = ((name, capacity, rate, use, background) for name, use, rate, capacity, background in map(link_cells, found))
    table = Fitted(columns, rows, title=title or counted(len(found), "directed link"))
    return Group(table, *unmeasured(found))


def with_use(link: pb.Link) -> dict[str, Any]:
    """Return the fields of a link, with the key ``use`` added: its rate divided by its capacity."""
    return {**fields(link), "use": load(link)}


def job_counts(flows: Iterable[CrossingSubflow | ListedRoute]) -> list[dict[str, Any]]:
    """Return each job's number of flows as data for programs, the largest number first."""
    return [{"job_id": job_id, "flows": count} for job_id, count in jobs_of(flows).items()]


RATE_UNKNOWN = "not measured yet, or the switch's counters are not up to date"


def unmeasured(links: Iterable[pb.Link]) -> list[str]:
    """Return a line that explains the ``-`` of links without a measured rate; empty when all links have a rate."""
    return [f"-: {RATE_UNKNOWN}."] if not all(link.HasField("rate_bps") for link in links) else []


def not_known(flows_hashed: int) -> list[str]:
    """Return a sentence on the number of hashed flows, whose links are unknown; empty when there are none."""
    if flows_hashed == 1:
        return ["1 flow is hashed: its links are not known."]
    return [f"{flows_hashed:,} flows are hashed: their links are not known."] if flows_hashed else []


def hosts(found: Sequence[pb.Host], title: str = "") -> RenderableType:
    columns = (Column("host"), Column("mac", 1), Column("switch"), Column("port", number=True))
    rows = ((host.ip, host.mac or "not seen yet", host.switch_name, host.at.port) for host in found)
    return Fitted(columns, rows, title=title or counted(len(found), "host"))


def drained(part: pb.DrainedPart) -> str:
    """Return the name of a drained part and the progress of its drain."""
    return f"{part.name} ({drain_state(part)})"


def drains(found: Sequence[pb.DrainedPart]) -> RenderableType:
    rows = ((part.name, when(part.drain_time), drain_state(part)) for part in found)
    columns = Column("part"), Column("drained since", 1), Column("state")
    return Fitted(columns, rows) if found else "Nothing is drained."


# ---- the plan


def plan(found: pb.Plan | None) -> RenderableType:
    if found is None:
        return NO_PLAN
    slowdowns = Fitted(
        (Column("job"), Column("slowdown", number=True), Column("planned for")),
        ((job.job_id, slowdown(job.slowdown), planned_for(word_in(job, "demand_source"))) for job in found.jobs),
    )
    split = any(len(each.route.subflows) > 1 for each in found.routes)
    rows = ((each.job_id, *row) for each in found.routes for row in route_rows(each.route, split))
    return Group(facts(plan_facts(found)), slowdowns, Fitted((Column("job"), *route_columns(split)), rows))


def replan(found: pb.ReplanResponse) -> RenderableType:
    outcome = escape(f"{word(word_in(found, 'outcome'))}: {found.reason}")
    return Group(outcome, plan(found.plan)) if found.HasField("plan") else outcome


ENDS = (Column("from"), Column("to"))


def route_columns(split: bool) -> Sequence[Column]:
    subflows = (Column("share", number=True), Column("source ports", 1)) if split else ()
    return (*ENDS, *subflows, Column("path", wraps=True))


def route_rows(route: pb.Route, split: bool) -> Iterator[Sequence[str]]:
    """Yield a row per subflow, with its source ports as value/mask.

    ``split``: whether some route in the table is split, so that the table has columns for shares and ports."""
    ends = route.src, route.dst
    if not route.pinned:
        yield (*ends, "", "any", "ecmp") if split else (*ends, "ecmp")
    for subflow in route.subflows:
        path = " > ".join(subflow.switches)
        ports = f"{subflow.port_value:#x}/{subflow.port_mask:#x}" if subflow.port_mask else "any"
        yield (*ends, f"{subflow.share:.1%}", ports, path) if split else (*ends, path)


# ---- the status


def status(found: pb.GetStatusResponse) -> RenderableType:
    adopting = ", adopting the rules found on the switches" if found.adopting else ""
    optical = found.optical_switches_down
    about = {
        "signalbox": found.version,
        **({"leader": found.leader} if found.leader else {}),
        "mode": word(word_in(found, "mode")) + adopting,
        "switches": f"{_of_known(found.switches, found.known_switches)}, {found.switches_in_sync} in sync",
        **(
            {"optical switches": f"{found.optical_switches}{f', {optical} not connected' if optical else ''}"}
            if found.optical_switches
            else {}
        ),
        "links": f"{_of_known(found.links, found.known_links)} directed",
        "hosts": f"{found.hosts}{_some_down(found.hosts_down)}",
        "jobs": f"{found.jobs}, {found.jobs_pending} pending, {found.jobs_learning} being learnt, "
        f"{found.jobs_unconfirmed} not yet confirmed by counters, {found.jobs_differing} announced wrongly",
        "rules": f"{found.rules}; {pins(found.pins)}",
        "network efficiency": _efficiency(found) + _why_zero(found),
        "flows moved": found.moved_flows_total,
        **({"drained": ", ".join(map(drained, found.drains))} if found.drains else {}),
        "counters": f"{seconds(found.counters_age):.1f} s old" if found.HasField("counters_age") else "none yet",
    }
    return Group(facts(about), *alarms(found.alarms))


def _efficiency(found: pb.GetStatusResponse) -> str:
    return percent(optional(found, "network_efficiency"), 1)


def _why_zero(found: pb.GetStatusResponse) -> str:
    """Return why the network efficiency is 0, as the end of a sentence; empty for any other efficiency."""
    whys = {
        "pending": found.jobs_pending,
        "with flows without a path": found.jobs_without_path,
        "not planned yet": found.jobs_unplanned,
    }
    counts = [f"{count} {why}" for why, count in whys.items() if count]
    none = optional(found, "network_efficiency") == 0
    return f"; jobs not served: {', '.join(counts)}" if counts and none else ""


def pins(count: int) -> str:
    """Return the number of pins in words. A pin is a rule that fixes the path of a flow.

    There are more pins than pinned flows: a flow's reverse direction is pinned too, unless it is announced itself."""
    return f"{count} pins, including those for acknowledgements" if count else "no pins"


# ---- alarms


def alarms(found: Sequence[pb.Alarm], most: int = MOST_ALARMS) -> Iterator[str]:
    """Yield a line per alarm: critical ones first, then other severities, then acknowledged and silenced alarms.

    A kind with more than ``most`` alarms has one line, which names the first ``most`` subjects."""
    by_kind: dict[tuple[int, int], list[pb.Alarm]] = {}
    for alarm in found:
        if not alarm.HasField("silence"):
            by_kind.setdefault((alarm.severity, alarm.kind), []).append(alarm)
    for (severity, _), of_kind in sorted(by_kind.items(), key=lambda item: -item[0][0]):
        lines = [alarm_line(alarm) for alarm in of_kind]
        if len(of_kind) > most:
            subjects = ", ".join(alarm.subject for alarm in of_kind[:most])
            more = f"{len(of_kind) - most} more (signalbox alarms list prints all)"
            lines = [f"{lines[0].partition(':')[0]}, {len(of_kind)} alarms: {subjects} and {more}"]
        colour = "bold red" if severity == pb.SEVERITY_CRITICAL else "yellow"
        for word_of_severity, _, rest in (line.partition(" ") for line in lines):
            yield f"[{colour}]{escape(word_of_severity)}[/] {escape(rest)}"
    yield from (f"[dim]{escape(alarm_line(alarm))}[/]" for alarm in found if alarm.HasField("silence"))


NO_ALARMS = "No alarms."


def all_alarms(found: Sequence[pb.Alarm]) -> RenderableType:
    """Return a line per alarm, even for many alarms of one kind."""
    return Group(*alarms(found, len(found))) if found else NO_ALARMS


def alarm_table(found: Sequence[pb.Alarm]) -> RenderableType:
    """Return a table with a row per alarm. Kind and subject have the form that ``signalbox alarms`` accepts."""
    if not found:
        return NO_ALARMS
    columns = (Column("severity"), Column("kind"), Column("subject", 1), Column("since", 2), Column("text", wraps=True))
    rows = (
        (word_in(each, "severity"), word_in(each, "kind"), each.subject, when(each.raise_time), alarm_text(each))
        for each in found
    )
    return Fitted(columns, rows)
