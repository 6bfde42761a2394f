"""Rows of tables about a state, and sentences for events, as short texts.

The first text of a row names the row's object. A sentence is made from an event's text (``what``) and its details by
name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from string import Formatter

from signalbox.live.jobs import Job, efficiencies, job_slowdown, state_in_row
from signalbox.live.shown import alarm_line, clock, counted, optional, percent, rate, short, slowdown, word
from signalbox.live.state import Link, State, load
from signalbox.mapping import word_in
from signalbox.v1 import signalbox_pb2 as pb

Details = Mapping[str, str]


def event_line(event: pb.Event) -> str:
    """Return the sentence for an event, without its time.

    If this version has no sentence for the event, its text and its details are returned."""
    details = {detail.name: detail.value for detail in event.details}
    left_out = details.pop("left_out", "")
    line = sentence(event.what, details)
    line = line or "  ".join((event.what, *(f"{name}={value}" for name, value in details.items())))
    return f"{line} ({left_out} earlier events of this kind left out)" if left_out else line


def sentence(what: str, details: Details) -> str:
    """Return the sentence for an event with this text and these details; empty if this version has none."""
    kind = "plan" if what.startswith("plan ") else what
    if what == "drained" and details.get("flows") == "0":
        kind = "drained, empty"
    try:
        if kind in _OF_PARTS:
            return _sentence_on_parts(what, details)
        return _WORDS.vformat(_SENTENCES[kind], (), {**_MAY_BE_MISSING, "what": what, **details})
    except (KeyError, ValueError):
        return ""


def _sentence_on_parts(what: str, details: Details) -> str:
    """Return the sentence for an event about one or several parts of the fabric.

    ``details`` has the number of parts (``count``), and the ``names`` of the first few parts."""
    count, names = int(details["count"]), details["names"]
    kind, _, become = what.partition(" ")
    more = count - names.count(", ") - 1
    head = what if count == 1 else f"{count} {_PLURALS.get(kind, kind)} {become}"
    at = f" at {details['at']}" if "at" in details else ""
    return f"{head}: {names}{f' and {more} more' if more > 0 else ''}{at}"


class _Words(Formatter):
    """Formatter that inserts details of an event, which are all texts, into a sentence.

    - ``{flows:#flow}``: the number with its noun
    - ``{state:word}``: a word of the API in plain form
    - ``{ms:.0f}``: a number
    - ``{ecmp:?, under ECMP }``: the detail after these words; empty when it is missing"""

    def format_field(self, value: str, format_spec: str) -> str:
        if format_spec.startswith("#"):
            return counted(int(value), format_spec[1:])
        if format_spec.startswith("?"):
            return f"{format_spec[1:]}{value}" if value else ""
        if format_spec == "word":
            return word(value)
        return format(float(value), format_spec) if format_spec else value


_WORDS = _Words()
_MAY_BE_MISSING = {"ecmp": "", "member": "", "parallelization": ""}
_PLURALS = {"switch": "switches", "link": "links", "host": "hosts"}
_OF_PARTS = {
    *("switch found", "link found", "hosts found"),
    *(f"{kind} {become}" for kind in _PLURALS for become in ("down", "up again")),
}
"""Texts of events about one or several parts of the fabric; the event of a single found host has another text."""

_SENTENCES = {
    "alarm": "alarm: {text}",
    "alarm over": "alarm over: {text}",
    "controller started": "controller {version} started{member:? as the leader, member }",
    "rules adopted": "adopted rules found on the switches: {pins:#flow} pinned, {links:#link} known",
    "mode set": "mode set to {mode}",
    "routes repaired": "{flows:#flow} repaired, in force after {in_force_s} s",
    "plan": "{what} (worst slowdown {worst_slowdown}{ecmp:?, under ECMP }, bound {bound})",
    "drained": "{part} drained: {flows:#flow} still to move",
    "drained, empty": "{part} drained: no flow is left on it",
    "safe to pull": "{part} is safe to pull",
    "drained, but carries packets": "{part} is drained, but still carries packets",
    "undrained": "{part} is used again",
    "host found": "host {ip} found at {at}",
    "host moved": "host {ip} moved to {at}",
    "foreign change to rules undone": "undid {count:#change} that others made to rules of {switch}",
    "job registered": "job {job} registered: {state:word}, {pinned} flows pinned",
    "job": "job {job} is {state:word}, {pinned} flows pinned",
    "job ended": "job {job} ended: {reason:word}",
    "circuits changed": "{count:#circuit} set up or removed, in {ms:.0f} ms",
    "job wired": "job {job} has {circuits:#circuit}{parallelization:?, parallelization }",
    "job has no circuits": "job {job} has no circuits: {why}",
}


Rows = list[tuple[str, ...]]


def facts(state: State) -> str:
    """Return a line on the state of the controller."""
    if state.lost is None:
        return "waiting for the controller's first answer"
    if state.lost:
        return short(f"OUT OF DATE: {state.lost}")
    if state.refused:
        return short(f"INCOMPLETE: {state.refused}")
    if (status := state.status) is None:
        return ""
    alarms = sum(not alarm.HasField("silence") for alarm in state.alarms.values())
    return (
        f"{word(word_in(status, 'mode'))}, efficiency {percent(optional(status, 'network_efficiency'))}, "
        f"{status.switches_in_sync}/{status.known_switches} switches in sync, "
        f"{status.links}/{status.known_links} links, {counted(alarms, 'alarm')}"
    )


def plan(state: State) -> str:
    """Return a line on the newest plan."""
    if state.plan is None:
        return "no plan yet"
    newest = state.slowdowns[-1]
    best = f"bound {slowdown(newest.bound)}, under ECMP {slowdown(newest.ecmp)}"
    return f"plan: worst slowdown {slowdown(newest.plan)}, {best}"


def jobs(found: Iterable[Job]) -> Rows:
    """Return a row per job: id, state, pinned flows, slowdown, predicted and measured efficiency, iterations."""
    return [
        (
            short(job.spec.job_id),
            short(state_in_row(job)),
            f"{job.pinned}/{job.virtual_links}",
            job_slowdown(job),
            *map(percent, efficiencies(job)),
            str(job.iterations),
        )
        for job in found
    ]


def links(state: State, most: int) -> Rows:
    """Return a row for each of the ``most`` links with the highest load: name, load, rate, unannounced traffic."""
    cells = map(link_cells, state.busiest_links(most))
    return [(name, use, bps, unannounced) for name, use, bps, _, unannounced in cells]


def link_cells(link: Link) -> tuple[str, str, str, str, str]:
    """Return name, load, rate, capacity and unannounced traffic of a link.

    The unannounced traffic is known later than the rate, because the jobs' traffic over the link must be counted for a
    whole window."""
    unannounced = rate(optional(link, "background_bps"))
    return short(link.name), percent(load(link)), rate(optional(link, "rate_bps")), rate(link.capacity_bps), unannounced


def alarms(state: State, most: int) -> Rows:
    """Return the time and the text of at most ``most`` alarms, the most urgent first.

    The text of an acknowledged or silenced alarm begins with ``known``, which remains visible when a text is cut."""
    return [
        (clock(each.raise_time), short(f"{'known: ' if each.HasField('silence') else ''}{alarm_line(each)}"))
        for each in state.alarms_by_urgency()[:most]
    ]


def events(state: State, most: int) -> Rows:
    """Return the time and the sentence of at most ``most`` events, newest first."""
    return [(clock(each.event_time), short(event_line(each))) for each in state.newest_events(most)]
