"""Sentences for the controller's events, made from an event's text (``what``) and its details by name."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter

from signalbox.live.shown import counted, word
from signalbox.v1 import signalbox_pb2 as pb

Details = Mapping[str, str]


def event_line(event: pb.Event) -> str:
    """Return the sentence of an event, without its time.

    An event without a sentence here, from another version of the controller, is shown by its text and its details."""
    details = {detail.name: detail.value for detail in event.details}
    left_out = details.pop("left_out", "")
    line = sentence(event.what, details)
    line = line or "  ".join((event.what, *(f"{name}={value}" for name, value in details.items())))
    return f"{line} ({left_out} earlier events like it left out)" if left_out else line


def sentence(what: str, details: Details) -> str:
    """Return the sentence for an event with this text and these details; empty when no sentence fits."""
    kind = "plan" if what.startswith("plan ") else what
    if what == "drained" and details.get("flows") == "0":
        kind = "drained, empty"
    try:
        if kind in _OF_PARTS:
            return _parts(what, details)
        return _WORDS.vformat(_SENTENCES[kind], (), {**_MAY_BE_MISSING, "what": what, **details})
    except (KeyError, ValueError):
        return ""


def _parts(what: str, details: Details) -> str:
    """Return the sentence about one or several parts of the fabric.

    ``details`` has their ``count``, and the ``names`` of the first few."""
    count, names = int(details["count"]), details["names"]
    kind, _, become = what.partition(" ")
    more = count - names.count(", ") - 1
    head = what if count == 1 else f"{count} {_PLURALS.get(kind, kind)} {become}"
    at = f" at {details['at']}" if "at" in details else ""
    return f"{head}: {names}{f' and {more} more' if more > 0 else ''}{at}"


class _Words(Formatter):
    """Formatter that fills details, which are text, into a sentence.

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
_MAY_BE_MISSING = {"ecmp": "", "parallelization": ""}
_PLURALS = {"switch": "switches", "link": "links", "host": "hosts"}
_OF_PARTS = {
    *("switch found", "link found", "hosts found"),
    *(f"{kind} {become}" for kind in _PLURALS for become in ("down", "up again")),
}
"""Events about one or several parts of the fabric. A single host that is found has its own sentence."""

_SENTENCES = {
    "alarm": "alarm: {text}",
    "alarm over": "alarm over: {text}",
    "controller started": "controller {version} started",
    "rules adopted": "rules of switches adopted: {pins:#flow} pinned, {links:#link} known",
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
    "foreign change to rules undone": "{count:#change} that others made to rules of {switch} undone",
    "job registered": "job {job} registered: {state:word}, {pinned} flows pinned",
    "job": "job {job} is {state:word}, {pinned} flows pinned",
    "job ended": "job {job} ended: {reason:word}",
    "circuits changed": "{count:#circuit} set up or removed, in {ms:.0f} ms",
    "job wired": "job {job} has {circuits:#circuit}{parallelization:?, parallelization }",
    "job has no circuits": "job {job} has no circuits: {why}",
}
