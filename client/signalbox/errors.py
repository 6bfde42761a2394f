"""Errors that users see. Each error names the field, the mistake and the correct form.

``field_problems`` turns pydantic's findings about a file or request into one ``FieldProblem`` per field. Loading this
module does not import pydantic, because Mininet's ``mn`` loads it with the system's Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, time
from enum import StrEnum
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_args

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound="BaseModel")

MAX_PROBLEMS = 100
"""Largest number of problems reported at a time, so that refusing a request costs no more than accepting it."""

MAX_SHOWN_CHARS = 64
"""Largest number of characters of a user's value in a message. A job id has at most 63, so it is shown in full."""

MAX_TEXT_CHARS = 10_000
"""Largest number of characters of a path or message. The middle of a longer text is left out."""


NO_SUCH_NAME = "NO_SUCH_NAME"
"""``FieldProblem.reason`` of a field with the name of a thing that does not exist."""
WRONG_USAGE = "WRONG_USAGE"
"""``FieldProblem.reason`` of an option of a command that cannot be used in this way."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """Mistake in one field.

    ``path`` is written as in the user's data (``collectives[1].bytes_per_iteration``). ``reason`` tells programs more:
    ``NO_SUCH_NAME`` or ``WRONG_USAGE``; it may be empty."""

    path: str
    message: str
    reason: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", legible(self.path))
        object.__setattr__(self, "message", legible(self.message))

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class SignalboxError(Exception):
    """Base class of all errors that callers receive. Its text is safe to print (``legible``).

    - ``about``: values in the message, so that programs need not parse it; the proto file lists their names at
      ``ErrorReason``
    - ``reason``: name of the API's ``ErrorReason`` without prefix; empty for an error without a reason"""

    def __init__(self, message: str = "", about: Mapping[str, object] = MappingProxyType({})) -> None:
        super().__init__(legible(message, kept="\n"))
        self.reason = ""
        self.about = {name: legible(str(value)) for name, value in about.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error with all its attributes, because errors are sent between processes."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[SignalboxError], args: tuple[object, ...], fields: Mapping[str, object]) -> SignalboxError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class Unreachable(SignalboxError):
    """The controller did not answer, or its answer came too late."""


class TooSlow(Unreachable):
    """The controller's answer came too late."""


class InvalidInput(SignalboxError):
    """The request or file is wrong; no part of it was applied."""

    def __init__(self, problems: tuple[FieldProblem, ...]) -> None:
        super().__init__()
        self.args = ("; ".join(map(str, problems)),)  # not shortened: number and length of problems are limited
        self.problems = problems

    @classmethod
    def of(cls, path: str, message: str, reason: str = "") -> Self:
        """Return the error for one problem."""
        return cls((FieldProblem(path, message, reason),))

    @classmethod
    def refuse(cls, problems: Iterable[FieldProblem]) -> None:
        """Raise the error with the first ``MAX_PROBLEMS`` problems; do nothing if there are none.

        Further problems are not computed. Messages shorten the values that they repeat (``cut``), because a request can
        have a problem per item."""
        if found := tuple(islice(problems, MAX_PROBLEMS)):
            raise cls(found)

    def within(self, place: object) -> InvalidInput:
        """Return the error with ``place``, such as the name of a file, in front of each problem's path."""
        return InvalidInput(
            tuple(replace(p, path=f"{place}: {p.path}" if p.path else str(place)) for p in self.problems)
        )

    def under(self, field: str) -> InvalidInput:
        """Return the error with ``field`` as the first part of each problem's path; unchanged if ``field`` is empty."""
        if not field:
            return self
        return InvalidInput(tuple(replace(problem, path=f"{field}.{problem.path}") for problem in self.problems))


@contextmanager
def in_entry(entry: str, field: str = "") -> Iterator[None]:
    """Add the place in the request, such as ``jobs[1]``, to errors raised in the ``with`` block.

    An ``InvalidInput`` gets the place in its paths, any other error in its text and in ``about``.

    - ``entry``: entry of the request that is processed; empty for a request without entries
    - ``field``: field of the entry that is processed; only paths of an ``InvalidInput`` get it, after the entry"""
    try:
        yield
    except InvalidInput as error:
        raise error.under(".".join(filter(None, (entry, field)))) from None
    except SignalboxError as error:
        if entry:
            error.args = (f"{entry}: {error}",)
            error.about = {**error.about, "field": entry}
        raise


class Gone(StrEnum):
    """Reasons why a job does not exist. The reasons are names of the API's ``ErrorReason`` without prefix."""

    NO_SUCH_JOB = "NO_SUCH_JOB"
    JOB_DEREGISTERED = "JOB_DEREGISTERED"
    LEASE_RAN_OUT = "LEASE_RAN_OUT"
    JOB_TAKEN_OVER = "JOB_TAKEN_OVER"


class NotFound(SignalboxError):
    """No such job, host or switch exists. For a job that has ended, ``reason`` says how."""

    reason: Gone

    def __init__(
        self, message: str, reason: Gone = Gone.NO_SUCH_JOB, about: Mapping[str, object] = MappingProxyType({})
    ) -> None:
        super().__init__(message, about)
        self.reason = reason


def no_such_job(job_id: str) -> NotFound:
    return NotFound(f"there is no job '{cut(job_id)}'; signalbox jobs list shows all jobs", about={"jobId": job_id})


class AlreadyExists(SignalboxError):
    """Another registration has the job id."""


class WrongLeaseToken(SignalboxError):
    """The lease token is missing, or does not belong to the job's registration."""


class Conflict(SignalboxError):
    """The request is well formed, but contradicts earlier requests or the state of the network."""


class ConcurrentUpdate(Conflict):
    """The job no longer has the revision that the request names. Read the job, and make the request again."""


class Superseded(Conflict):
    """Another request replaced this one before it was carried out."""


class NotAnnounced(Conflict):
    """The job's spec does not say that it reports its connections (``reports_connections``)."""


class NotKnownYet(Conflict):
    """The answer depends on a fact that is not known yet.

    ``retry_s``: seconds after which the fact may be known; None when the time does not depend on the controller."""

    def __init__(
        self, message: str, about: Mapping[str, object] = MappingProxyType({}), retry_s: float | None = None
    ) -> None:
        super().__init__(message, about)
        self.retry_s = retry_s


class Exhausted(SignalboxError):
    """A limit was reached. ``subject``: owner of the limit, such as the controller.

    ``retry_s``: seconds after which the request may succeed; None when the time depends on callers."""

    def __init__(
        self,
        message: str,
        subject: str = "controller",
        retry_s: float | None = None,
        about: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        super().__init__(message, about)
        self.subject = subject
        self.retry_s = retry_s


class Unavailable(SignalboxError):
    """Something that the request needs is not available now.

    ``retry_s``: seconds after which the caller should try again."""

    def __init__(self, message: str, retry_s: float) -> None:
        super().__init__(message)
        self.retry_s = retry_s


class Unauthenticated(SignalboxError):
    """The caller did not prove its identity, or the proof is invalid."""


class NotAllowed(SignalboxError):
    """The caller's role does not allow the request."""


class HostNotAllowed(NotAllowed):
    """The job names a host that the caller's tenant may not use."""


def cut(value: str) -> str:
    """Return a user's value for a message: shortened to ``MAX_SHOWN_CHARS``, and with control characters escaped."""
    return escaped(value if len(value) <= MAX_SHOWN_CHARS else value[: MAX_SHOWN_CHARS - 3] + "...")


def legible(text: str, kept: str = "") -> str:
    """Return the text in a form that is safe to print, even if it contains values from strangers.

    Control characters are escaped, except those in ``kept``. The middle of a text above ``MAX_TEXT_CHARS`` is left
    out."""
    if len(text) > MAX_TEXT_CHARS:
        text = f"{text[: MAX_TEXT_CHARS // 2]} ... {text[-MAX_TEXT_CHARS // 2 :]}"
    return escaped(text, kept)


def escaped(text: str, kept: str = "") -> str:
    """Return the text with escapes for control characters, line breaks included.

    Characters in ``kept`` stay unchanged."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode("ascii") for c in text)


_WORDS: Mapping[str, str] = {
    "missing": "is missing",
    "string_type": "must be text",
    "string_unicode": "must be text without lone surrogates",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is too large",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "tuple_type": "must be a list",
    "path_type": "must be a path",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must match {pattern}",
}

_BOUNDS = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")

_LENGTHS: Mapping[str, str] = {
    "too_long": "at most {max_length} {what} are allowed (given: {actual_length})",
    "too_short": "must have at least {min_length} {entries} (given: {actual_length})",
}


def validated(model: type[Model], data: Any) -> Model:
    """Return an instance of ``model`` with the given data. Raises ``InvalidInput`` with the ``field_problems``."""
    from pydantic import ValidationError

    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidInput(field_problems(error, model)) from None


def field_problems(error: ValidationError, model: type[BaseModel]) -> tuple[FieldProblem, ...]:
    """Return the problems of all wrong fields, at most ``MAX_PROBLEMS``.

    A problem has the path of its field in the data (``groups[0].name``). Unknown fields of the top level come first,
    because a misspelled name there explains most of the other problems. Values are not repeated if the model's
    configuration has ``hide_input_in_errors``."""
    errors: list[Any] = list(error.errors(include_url=False))
    # pydantic counts only the valid items of a list, so its "too short" means nothing if an item is wrong.
    parents = {e["loc"][:depth] for e in errors for depth in range(len(e["loc"]))}
    shown = [e for e in errors if e["type"] != "too_short" or e["loc"] not in parents]
    shown.sort(key=lambda e: e["type"] != "extra_forbidden" or len(e["loc"]) > 1)
    return tuple(FieldProblem(_path(e["loc"]), _message(e, model)) for e in shown[:MAX_PROBLEMS])


def value_problem(error: ValidationError) -> str:
    """Return a message about a single wrong value, such as an option's value, with the same words as for fields."""
    found: Any = error.errors(include_url=False)[0]
    kind, context = found["type"], found.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    message = _worded(kind, context) if kind in _WORDS else found["msg"]
    return f"{message} (given: {cut(repr(found['input']))})"


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _message(error: Any, model: type[BaseModel]) -> str:
    kind, location, context = error["type"], error["loc"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown field; known are {_fields(model, location[:-1])}"
    if kind in _LENGTHS:
        what = next((part for part in reversed(location) if isinstance(part, str)), "items")
        entries = "entry" if context.get("min_length") == 1 else "entries"
        return _LENGTHS[kind].format(what=what, entries=entries, **context)
    if kind in ("model_type", "model_attributes_type"):
        message = f"must be an object or table with the fields {_fields(model, location)}"
    else:
        message = _worded(kind, context) if kind in _WORDS else error["msg"]
    unit = " s" if kind in _BOUNDS and str(location[-1]).endswith("_s") else ""
    hidden = kind in ("missing", "json_invalid") or model.model_config.get("hide_input_in_errors")
    shown = "" if hidden else _given(error["input"])
    words = context["expected"].split("'")[1::2] if shown and kind in ("enum", "literal_error") else ()
    near = nearest(error["input"], words)
    return f"{message}{unit} (given: {shown}{unit}{near})" if shown else message + unit


def nearest(value: object, words: Iterable[str]) -> str:
    """Return the end of a message: a suggestion of the word most like a wrong value; empty if no word is like it."""
    from difflib import get_close_matches  # its import takes a moment

    near = get_close_matches(str(value).lower().replace("-", "_"), list(words), n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def _worded(kind: str, context: Mapping[str, Any]) -> str:
    """Return the message for pydantic's ``kind`` of error; bounds that are whole numbers have no decimal point."""
    whole = {name: int(value) for name, value in context.items() if isinstance(value, float) and value.is_integer()}
    return _WORDS[kind].format_map({**context, **whole})


def _given(value: object) -> str:
    """Return a wrong value for a message, written as in a file; empty for tables and long values.

    A value is long when it takes more than ``MAX_SHOWN_CHARS`` characters."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, dict):
        return ""  # the message lists the fields of the table
    if isinstance(value, str | bytes | list | tuple | dict) and len(value) > MAX_SHOWN_CHARS:
        return ""
    if isinstance(value, int) and value.bit_length() > 4 * MAX_SHOWN_CHARS:
        return ""
    shown = repr(value)
    return shown if len(shown) <= MAX_SHOWN_CHARS else ""


def _fields(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    for part in location:
        if isinstance(part, str):
            model = _model_in(model.model_fields[part].annotation) or model
    return ", ".join(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def id_taken(job_id: str, ours: bool, mine: bool) -> AlreadyExists:
    """Return the error for a job id that another registration has.

    ``ours``: whether this registration is of the caller's tenant. ``mine``: whether it is the caller's own."""
    text, holder = (
        f"job '{job_id}' belongs to another registration; renew it with its lease token, or take it over",
        "other",
    )
    if not ours:
        text, holder = f"the id '{job_id}' belongs to another tenant: choose another one", "other_tenant"
    elif mine:
        text = (
            f"job '{job_id}' is registered with another spec; update it, or take it over "
            "(in the API: with a new request_id)"
        )
        holder = "caller"
    return AlreadyExists(text, {"jobId": job_id, "heldBy": holder})
