"""Tables for people. In: API messages in their JSON form. Out: what rich prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType

from signalbox.commands.output import escape, proven_over
from signalbox.commands.tables import Column, Fitted, facts
from signalbox.live.shown import counted as counted
from signalbox.live.shown import planned_for
from signalbox.live.shown import rate as rate
from signalbox.live.shown import word as word

Fields = Mapping[str, Any]


MOST_ALARMS = 3
"""Of one kind that have a line each; and subjects that are named where there are more."""
CRITICAL = "critical"


def fabric(found: Fields) -> RenderableType:
    there = len(found["switches"]), len(found["links"]), len(found["hosts"])
    down = {kind: sum(part["kind"] == kind for part in found["parts_down"]) for kind in ("switch", "link", "host")}
    titles = (
        f"{_of_known(there[0], there[0] + down['switch'])} switches",
        f"{_of_known(there[1], there[1] + 2 * down['link'])} directed links{_circuits(found['links'])}",
        f"{there[2]} hosts{_some_down(down['host'])}",
    )
    tables = (
        switches(found["switches"], titles[0]),
        links(found["links"], titles[1]),
        hosts(found["hosts"], titles[2]),
    )
    more = [parts_down(found["parts_down"])] if found["parts_down"] else []
    return Group(*tables, *more, *([dropped(found["dropped"])] if found["dropped"] else []))


def dropped(found: Sequence[Fields]) -> RenderableType:
    columns = Column("switch"), Column("kind"), Column("packets", number=True)
    rows = ((one["switch_name"], word(one["kind"]), one["packets"]) for one in found)
    return Fitted(columns, rows, title="dropped, because it is not carried")


def parts_down(parts: Iterable[Fields]) -> RenderableType:
    rows = ((word(part["kind"]), part["name"], down_since(part)) for part in parts)
    return Fitted((Column("down"), Column("name"), Column("since", 1)), rows)


def down_since(part: Fields) -> str:
    return when(part["down_time"])


def _of_known(there: int, known: int) -> str:
    """``6 of 7``, or ``7``. A controller of an older version does not say how many are known."""
    return f"{there} of {known}" if known > there else str(there)


def _circuits(links: Iterable[Fields]) -> str:
    """How many there are of them: no cable that is down is one."""
    count = sum(link["one_way"] for link in links)
    return f", {counted(count, 'circuit')} among them" if count else ""


def _some_down(count: int) -> str:
    return f", {count} down" if count else ""


def _optical_switches(found: Fields) -> str:
    down = found["optical_switches_down"]
    return f"{found['optical_switches']}" + (f", {down} not connected" if down else "")


def switches(found: Sequence[Fields], title: str = "") -> RenderableType:
    columns = (
        Column("switch"),
        Column("dpid", 2),
        Column("ports up", 1, number=True),
        Column("in sync"),
        Column("rules", 1, number=True),
        Column("foreign rules", 1, number=True),
    )
    rows = (
        (
            switch["name"],
            f"{int(switch['dpid']):#x}",
            f"{sum(port['up'] for port in switch['ports'])} of {len(switch['ports'])}",
            "yes" if switch["in_sync"] else "no",
            switch["rules"],
            switch["foreign_rules"],
        )
        for switch in found
    )
    return Fitted(columns, rows, title=title or counted(len(found), "switch", "switches"))


def links(found: Sequence[Fields], title: str = "") -> RenderableType:
    columns = (Column("link"), *(Column(name, number=True) for name in ("capacity", "rate", "use", "background")))
    rows = (
        (
            link["name"],
            rate(link["capacity_bps"]),
            known_rate(link["rate_bps"]),
            known(use(link), ".0%"),
            known_rate(link["background_bps"]),
        )
        for link in found
    )
    table = Fitted(columns, rows, title=title or counted(len(found), "directed link"))
    return Group(table, *unmeasured(found))


RATE_UNKNOWN = "not measured yet, or the switch's counters are not up to date"


def unmeasured(links: Iterable[Fields]) -> list[str]:
    """Why a table has no rate of some link; empty when it has all."""
    return [f"-: {RATE_UNKNOWN}."] if any(link["rate_bps"] is None for link in links) else []


def use(link: Fields) -> float | None:
    """Rate over capacity."""
    return None if link["rate_bps"] is None else link["rate_bps"] / link["capacity_bps"]


def hosts(found: Sequence[Fields], title: str = "") -> RenderableType:
    columns = (Column("host"), Column("mac", 1), Column("switch"), Column("port", number=True))
    rows = ((host["ip"], host["mac"] or "not seen yet", host["switch_name"], host["at"]["port"]) for host in found)
    return Fitted(columns, rows, title=title or counted(len(found), "host"))


def target(found: Fields, max_level: float | None) -> str:
    """What the plan leads to. ``max_level``: the target's; None without one."""
    if max_level is None:
        return "none"
    level = f"worst level {max_level:.3f}"
    if found["blocked_flows"]:
        return f"{level}; of the moves to it {found['blocked_flows']} would have to be made together"
    return f"{level}, by {found['moves_left']} more moves in the next cycles"


def plan(found: Fields) -> RenderableType:
    about = {
        "planned by": f"{found['solver']}, in {1000 * found['plan_time_s']:.0f} ms"
        + (", cut short by the time limit" if found["cut_short"] else ""),
        "installed": "yes" if found["installed"] else "no",
        "worst level": f"{found['max_level']:.3f} ({word(found['certificate'])}, bound {found['bound']:.3f}, "
        f"gap {found['gap']:.1%}, {found['levels_proven']} levels proven "
        f"{proven_over(found['levels_proven_listed'], found['candidates_listed'])})",
        "ecmp instead": _ecmp(found["ecmp_level"]),
        "others instead": _others(found["schemes"]),
        "flows": f"{len(found['routes'])}, in {found['subflows']} subflows",
        "moves": found["moves"],
        **({"target": target(found, found["target"]["max_level"])} if found["target"] else {}),
        "cannot be routed": ", ".join(f"{pair['src']}>{pair['dst']}" for pair in found["unrouted"]) or "none",
    }
    levels = Fitted(
        (Column("job"), Column("level", number=True), Column("planned for")),
        ((job["job_id"], f"{job['level']:.3f}", planned_for(job["demand_source"])) for job in found["jobs"]),
    )
    split = any(len(r["route"]["subflows"]) > 1 for r in found["routes"])
    rows = ((r["job_id"], *row) for r in found["routes"] for row in route_rows(r["route"], split))
    routed = Fitted((Column("job"), *route_columns(split)), rows)
    return Group(facts(about), levels, routed)


def replan(found: Fields) -> RenderableType:
    outcome = f"{word(found['outcome'])}: {found['reason']}"
    return Group(escape(outcome), plan(found["plan"])) if found["plan"] else escape(outcome)


def status(found: Fields) -> RenderableType:
    about = {
        "signalbox": found["version"],
        "strategy": word(found["strategy"])
        + (", adopting the rules found on the switches" if found["adopting"] else ""),
        "switches": f"{_of_known(found['switches'], found['known_switches'])}, {found['switches_in_sync']} in sync",
        **({"optical switches": _optical_switches(found)} if found["optical_switches"] else {}),
        "links": f"{_of_known(found['links'], found['known_links'])} directed",
        "hosts": f"{found['hosts']}{_some_down(found['hosts_down'])}",
        "jobs": f"{found['jobs']}, {found['jobs_pending']} pending, {found['jobs_learning']} being learnt, "
        f"{found['jobs_unconfirmed']} not yet confirmed by counters, {found['jobs_differing']} announced wrongly",
        "rules": f"{found['rules']}; {pins(found['pins'])}",
        "network efficiency": known(found["network_efficiency"], ".1%") + _unserved(found),
        "flows moved": found["moved_flows_total"],
        **({"drained": ", ".join(map(drained, found["drains"]))} if found["drains"] else {}),
        "counters": "none yet" if found["counters_age_s"] is None else f"{found['counters_age_s']:.1f} s old",
    }
    return Group(facts(about), *alarms(found["alarms"]))


_DRAIN_STATES = {
    "moving": "{flows} still on it",
    "confirming": "waiting for {waits_for}",
    "measuring": "waiting for {waits_for}",
    "carrying": "still carries {rate}",
    "safe": "safe to pull",
}


def drained(found: Fields) -> str:
    """A part that is taken out of use, and how far it is."""
    waits_for = ", ".join(found["waits_for"]) or "the switches"
    state = _DRAIN_STATES[found["state"]].format(
        flows=counted(found["flows"], "flow"), rate=rate(found["rate_bps"] or 0.0), waits_for=waits_for
    )
    return f"{found['name']} ({state}{'' if found['links'] else ', not there'})"


def drains(found: Sequence[Fields]) -> RenderableType:
    rows = ((part["name"], when(part["drain_time"]), drained(part).partition(" (")[2][:-1]) for part in found)
    return (
        Fitted([Column("part"), Column("drained since", 1), Column("state")], rows) if found else "Nothing is drained."
    )


def _unserved(found: Fields) -> str:
    """Why the efficiency is 0."""
    whys = {
        "pending": found["jobs_pending"],
        "with flows without a path": found["jobs_without_path"],
        "not planned yet": found["jobs_unplanned"],
    }
    counts = [f"{count} {why}" for why, count in whys.items() if count]
    return f"; jobs not served: {', '.join(counts)}" if counts and found["network_efficiency"] == 0 else ""


def alarms(found: Sequence[Fields], most: int = MOST_ALARMS) -> Iterator[str]:
    """Yield a line per alarm, critical ones first, else as they were raised. A kind with more than ``most`` has
    one line, which names the first subjects."""
    by_kind: dict[tuple[str, str], list[Fields]] = {}
    silenced = [alarm for alarm in found if alarm["silence"]]
    for alarm in found:
        if alarm["silence"]:
            continue
        by_kind.setdefault((str(alarm["severity"]), str(alarm["kind"])), []).append(alarm)
    for (severity, kind), of_kind in sorted(by_kind.items(), key=lambda item: item[0][0] != CRITICAL):
        begin = f"[{'bold red' if severity == CRITICAL else 'yellow'}]{escape(severity)}[/] {escape(kind)}"
        if len(of_kind) <= most:
            yield from (f"{begin}: {escape(alarm['text'])}" for alarm in of_kind)
        else:
            first, more = of_kind[:most], len(of_kind) - most
            subjects = escape(", ".join(alarm["subject"] for alarm in first))
            yield f"{begin}, {len(of_kind)} alarms: {subjects} and {more} more (alarms list has all)"
    for alarm in silenced:
        words = f"{alarm['severity']} {alarm['kind']}: {alarm['text']}{silence(alarm['silence'])}"
        yield f"[dim]{escape(words)}[/]"


def silence(found: Fields) -> str:
    """That operators know of an alarm."""
    end = f"silenced until {when(found['end_time'])}" if found["end_time"] else "acknowledged"
    by = f" by {found['by']}" if found["by"] else ""
    return f" ({end}{by}{': ' if found['comment'] else ''}{found['comment']})"


def _alarm_count(found: Sequence[Fields]) -> str:
    critical = sum(alarm["severity"] == CRITICAL for alarm in found)
    return f"{len(found)} alarms" + (f", {critical} of them critical" if critical else "")


def status_line(found: Fields) -> str:
    """The status for a pipe."""
    return (
        f"{word(found['strategy'])}: {found['switches_in_sync']} of "
        f"{max(found['switches'], found['known_switches'])} switches in sync, {_optical(found)}"
        f"{found['links']} links, {found['hosts']} hosts, {found['jobs']} jobs ({found['jobs_pending']} pending), "
        f"{found['pins']} pins, efficiency {known(found['network_efficiency'], '.1%')}, {_alarm_count(found['alarms'])}"
    )


def _optical(found: Fields) -> str:
    count = found["optical_switches"]
    return f"{count - found['optical_switches_down']} of {count} optical switches connected, " if count else ""


def pins(count: int) -> str:
    """More than the pinned flows: the reverse direction of a flow is pinned too, unless it is announced itself."""
    return f"{count} pins (acknowledgements have their own)" if count else "no pins"


def _ecmp(level: Fields | None) -> str:
    return f"{level['mean']:.3f} on average, 95th percentile {level['p95']:.3f}" if level else "not compared"


def _others(schemes: Sequence[Fields]) -> str:
    """ECMP has a separate line. Names are those of ``--strategy``."""
    levels = {(each["scheme"] or "-").replace("_", "-"): each["level"] for each in schemes}
    return ", ".join(f"{name} {level:.3f}" for name, level in levels.items() if name != "ecmp") or "not compared"


ENDS = (Column("from"), Column("to"))


def route_columns(split: bool) -> Sequence[Column]:
    pieces = (Column("share", number=True), Column("source ports", 1)) if split else ()
    return (*ENDS, *pieces, Column("path", wraps=True))


def route_rows(route: Fields, split: bool) -> Iterator[Sequence[str]]:
    """One per subflow; ``split``: some route in the table is. Ports are value/mask."""
    ends = route["src"], route["dst"]
    if not route["pinned"]:
        yield (*ends, "", "any", "ecmp") if split else (*ends, "ecmp")
    for piece in route["subflows"]:
        path = " > ".join(piece["switches"])
        ports = f"{piece['port_value']:#x}/{piece['port_mask']:#x}" if piece["port_mask"] else "any"
        yield (*ends, f"{piece['share']:.1%}", ports, path) if split else (*ends, path)


def known_rate(bps: float | None) -> str:
    return "-" if bps is None else rate(bps)


def known(value: float | None, form: str, unit: str = "", unknown: str = "-") -> str:
    return unknown if value is None else f"{value:{form}}{unit}"


def when(time: str | None) -> str:
    """Of RFC 3339, to the second."""
    return f"{datetime.fromisoformat(time):%Y-%m-%d %H:%M:%S} UTC" if time else "-"


def seconds(value: float) -> str:
    return f"{value:.0f} s"
