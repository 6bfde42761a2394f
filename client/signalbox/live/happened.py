"""Events in sentences: one of each kind of event that the controller makes, from its words and details."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from signalbox.live.shown import clock, counted, word
from signalbox.mapping import seconds_since_1970
from signalbox.v1 import signalbox_pb2 as pb

Details = Mapping[str, str]


def event_clock(event: pb.Event) -> str:
    return clock(seconds_since_1970(event.event_time))


def event_line(event: pb.Event) -> str:
    """Without its time. Words and details as they are, of an event of another version of the controller."""
    details = {detail.name: detail.value for detail in event.details}
    told = sentence(event.what, details)
    return told or "  ".join((event.what, *(f"{name}={value}" for name, value in details.items())))


def sentence(what: str, details: Details) -> str:
    """Empty for what is not known."""
    of_what = _SENTENCES.get("plan" if what.startswith("plan ") else what)
    try:
        return of_what(what, details) if of_what else ""
    except (KeyError, ValueError):
        return ""


def _with_text(what: str, details: Details) -> str:
    return f"{what}: {details['text']}"


def _started(_: str, details: Details) -> str:
    return f"controller {details['version']} started"


def _adopted(_: str, details: Details) -> str:
    pins, links = counted(int(details["pins"]), "flow"), counted(int(details["links"]), "link")
    return f"rules of switches adopted: {pins} pinned, {links} known"


def _strategy(_: str, details: Details) -> str:
    return f"strategy set to {details['strategy']}"


def _repaired(_: str, details: Details) -> str:
    return f"{counted(int(details['flows']), 'flow')} repaired, in force after {details['in_force_s']} s"


def _plan(what: str, details: Details) -> str:
    ecmp = f", under ECMP {details['ecmp']}" if "ecmp" in details else ""
    return f"{what} (worst level {details['worst_level']}{ecmp}, bound {details['bound']})"


def _drained(_: str, details: Details) -> str:
    left = int(details["flows"])
    return f"{details['part']} drained: " + (
        f"{counted(left, 'flow')} still to move" if left else "no flow is left on it"
    )


def _of_drained(said: str, _: str, details: Details) -> str:
    return f"{details['part']} {said}"


def _parts(what: str, details: Details) -> str:
    """``link down``, of one or of several; not all are named."""
    count, names = int(details["count"]), details["names"]
    kind, _, become = what.partition(" ")
    more = count - names.count(", ") - 1
    head = what if count == 1 else f"{count} {_PLURALS.get(kind, kind)} {become}"
    return f"{head}: {names}{f' and {more} more' if more > 0 else ''}"


def _host(said: str, _: str, details: Details) -> str:
    return f"host {details['ip']} {said} {details['at']}"


def _undone(_: str, details: Details) -> str:
    return f"{counted(int(details['count']), 'change')} that others made to rules of {details['switch']} undone"


def _ended(_: str, details: Details) -> str:
    return f"job {details['job']} ended: {word(details['reason'])}"


def _job(what: str, details: Details) -> str:
    begins = " registered:" if what == "job registered" else " is"
    return f"job {details['job']}{begins} {word(details['state'])}, {details['pinned']} flows pinned"


def _circuits_changed(_: str, details: Details) -> str:
    return f"{counted(int(details['count']), 'circuit')} made or taken away, in {float(details['ms']):.0f} ms"


def _wired(_: str, details: Details) -> str:
    strategy = f", strategy {details['strategy']}" if "strategy" in details else ""
    return f"job {details['job']} has {counted(int(details['circuits']), 'circuit')}{strategy}"


def _unwired(_: str, details: Details) -> str:
    return f"job {details['job']} has no circuits: {details['why']}"


_PLURALS = {"switch": "switches", "link": "links", "host": "hosts"}

_SENTENCES: Mapping[str, Callable[[str, Details], str]] = {
    "alarm": _with_text,
    "alarm over": _with_text,
    "controller started": _started,
    "rules adopted": _adopted,
    "strategy set": _strategy,
    "routes repaired": _repaired,
    "plan": _plan,
    "drained": _drained,
    "safe to pull": partial(_of_drained, "is safe to pull"),
    "drained, but carries packets": partial(_of_drained, "is drained, but still carries packets"),
    "undrained": partial(_of_drained, "is used again"),
    **dict.fromkeys((f"{kind} {become}" for kind in _PLURALS for become in ("found", "down", "up again")), _parts),
    "hosts found": _parts,
    "host found": partial(_host, "found at"),
    "host moved": partial(_host, "moved to"),
    "foreign change to rules undone": _undone,
    "job registered": _job,
    "job": _job,
    "job ended": _ended,
    "circuits changed": _circuits_changed,
    "job wired": _wired,
    "job has no circuits": _unwired,
}
