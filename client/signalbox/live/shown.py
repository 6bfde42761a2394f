"""Numbers and messages of the API in words, for people. The module ``jobs`` has the words for jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from signalbox.mapping import seconds, seconds_since_1970, word_in
from signalbox.v1 import signalbox_pb2 as pb

TO_THE_SECOND = "%Y-%m-%d %H:%M:%S UTC"
MOST_CHARS, NAME_CHARS = 2000, 256
"""Largest number of characters of a sentence and of a name in the live views."""

# ---- figures


def word(value: str | None) -> str:
    """Return a word of the API, such as ``partly_pinned``, with spaces; ``-`` for an empty word."""
    return (value or "-").replace("_", " ")


def optional(message: Message, field: str) -> Any:
    """Return the value of a field; None when the field is absent."""
    return getattr(message, field) if message.HasField(field) else None


def rate(bps: float | None) -> str:
    """Return a rate with three digits and its unit, such as ``1 Gbit/s`` for 999.6 Mbit/s; ``-`` if it is unknown."""
    if bps is None or not isfinite(bps):
        return "-"
    for unit, size in (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bps >= 0.9995 * size:
            return f"{bps / size:.3g} {unit}"
    return f"{bps:.0f} bit/s"


def counted(count: int, what: str, several: str = "") -> str:
    return f"{count} {what}" if count == 1 else f"{count} {several or f'{what}s'}"


def percent(share: float | None, digits: int = 0) -> str:
    """Return a fraction in per cent; ``-`` while it is unknown."""
    return "-" if share is None or not isfinite(share) else f"{share:.{digits}%}"


def slowdown(value: float | None, unknown: str = "-") -> str:
    return unknown if value is None or not isfinite(value) else f"{value:.3f}"


def clock(time: Timestamp) -> str:
    return moment(seconds_since_1970(time), "%H:%M:%S")


def when(time: Timestamp) -> str:
    """Return the time in UTC, to the second; ``-`` when it is absent."""
    unix_s = seconds_since_1970(time)
    return moment(unix_s, TO_THE_SECOND) if unix_s else "-"


def moment(unix_s: float, form: str) -> str:
    """Return the time in UTC in the ``strftime`` format ``form``; ``-`` outside of the years 1 to 9999."""
    try:
        return datetime.fromtimestamp(unix_s, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return "-"


def some(names: Iterable[str], most: int = 8) -> str:
    """Return the first ``most`` names, separated by commas, and how many more there are."""
    known = list(names)
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts leaf2 before leaf10: numbers are sorted by length, then digit by digit.

    Conversion to ``int`` would fail for names with too many digits, or with digits other than 0 to 9."""
    parts = enumerate(re.split(r"([0-9]+)", name))
    return [(len(part.lstrip("0")), part.lstrip("0")) if place % 2 else (-1, part) for place, part in parts]


def short(text: str, most: int = MOST_CHARS) -> str:
    """Return the text; if it is longer than ``most`` characters, its beginning and an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def printable(text: str) -> str:
    """Return the text with control characters replaced.

    Users choose names of jobs, and terminals obey these characters."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


# ---- messages


def alarm_line(alarm: pb.Alarm) -> str:
    """Return a line on an alarm: severity, kind as commands accept it, and ``alarm_text``."""
    return f"{word_in(alarm, 'severity') or '-'} {word_in(alarm, 'kind') or '-'}: {alarm_text(alarm)}"


def alarm_text(alarm: pb.Alarm) -> str:
    """Return the text of an alarm. If it is acknowledged or silenced, the text says so."""
    if not alarm.HasField("silence"):
        return alarm.text
    found = alarm.silence
    end = f"silenced until {when(found.end_time)}" if found.HasField("end_time") else "acknowledged"
    by = f" by {found.by}" if found.by else ""
    return f"{alarm.text} ({end}{by}{': ' if found.comment else ''}{found.comment})"


_DRAIN_STATES = {
    "moving": "{flows} still on it",
    "confirming": "waiting for {waits_for}",
    "measuring": "waiting for {waits_for}",
    "carrying": "still carries {rate}",
    "safe": "safe to pull",
}


def drain_state(part: pb.DrainedPart) -> str:
    """Return the progress of a drain in words, such as ``3 flows still on it`` or ``safe to pull``."""
    waits_for = ", ".join(part.waits_for) or "the switches"
    state = _DRAIN_STATES.get(word_in(part, "state"), "-")
    said = state.format(flows=counted(part.flows, "flow"), rate=rate(part.rate_bps), waits_for=waits_for)
    return said if part.links else f"{said}, not connected"


def route_words(paths: Iterable[pb.RoutePath], without: str = "ecmp") -> str:
    """Return the switches of a route, or of each subflow with its share.

    ``without``: text for a flow without a route."""
    known = list(paths)
    if len(known) == 1:
        return " > ".join(known[0].switches)
    return "; ".join(f"{path.share:.0%} {' > '.join(path.switches)}" for path in known) or without


def proven_over(slowdowns_listed: int, candidates: int, stretch: int = 0) -> str:
    """Return words for the paths over which slowdowns are proven, such as ``over all shortest paths``.

    - ``slowdowns_listed``: number of slowdowns that are proven only over candidate paths
    - ``candidates``: largest number of candidate paths per pair of switches; 0 when all shortest paths are candidates
    - ``stretch``: largest number of links that a path may have more than the shortest path"""
    every = f"over all loop-free paths of up to {stretch} more links than the shortest" if stretch else ""
    every = every or "over all shortest paths"
    listed = (
        f", {slowdowns_listed} over at most {candidates} candidate paths per pair of switches" if candidates else ""
    )
    return every + listed


def goal(max_slowdown: float | None, moves_left: int, blocked_flows: int) -> str:
    """Return words for the goal plan, which would need more moves than one planning cycle may make.

    - ``max_slowdown``: worst slowdown of the goal plan; None without a goal plan
    - ``moves_left``: number of moves from the newest plan to the goal plan
    - ``blocked_flows``: number of flows that must move together but are too many for one cycle; 0 if there are none"""
    if max_slowdown is None:
        return "none"
    worst = f"worst slowdown {slowdown(max_slowdown)}"
    if blocked_flows:
        return f"{worst}; {blocked_flows} of its moves must be made together, too many for one cycle"
    return f"{worst}, after {moves_left} more moves in the next cycles"


def plan_facts(plan: pb.Plan) -> dict[str, object]:
    """Return names and values of a plan's facts, except its slowdowns and routes."""
    ecmp, certificate = plan.ecmp_slowdown, word(word_in(plan, "certificate"))
    over = proven_over(plan.slowdowns_proven_listed, plan.candidates_listed)
    proven = f"{counted(plan.slowdowns_proven, 'slowdown')} proven {over}"
    schemes = [(word_in(each, "scheme").replace("_", "-") or "-", slowdown(each.slowdown)) for each in plan.schemes]
    leads_to = goal(plan.goal.max_slowdown, plan.moves_left, plan.blocked_flows)
    return {
        "planned by": f"{plan.solver}, in {1000 * seconds(plan.plan_time):.0f} ms"
        + (", cut short by the time limit" if plan.cut_short else ""),
        "installed": "yes" if plan.installed else "no",
        "worst slowdown": f"{slowdown(plan.max_slowdown)} ({certificate}, bound {slowdown(plan.bound)}, "
        f"gap {percent(plan.gap, 1)}, {proven})",
        "under ECMP": f"{slowdown(ecmp.mean)} on average, 95th percentile {slowdown(ecmp.p95)}"
        if plan.HasField("ecmp_slowdown")
        else "not compared",
        # ECMP has a separate line. Names are those of --scheme.
        "other schemes": ", ".join(" ".join(each) for each in schemes if each[0] != "ecmp") or "not compared",
        "flows": f"{len(plan.routes)}, in {plan.subflows} subflows",
        "moves": plan.moves,
        **({"goal": leads_to} if plan.HasField("goal") else {}),
        "cannot be routed": ", ".join(f"{pair.src}>{pair.dst}" for pair in plan.unrouted) or "none",
    }
