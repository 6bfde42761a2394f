"""Convert between messages of the API and the types of this package, field by field. A job spec is also checked.

A field corresponds to the attribute of the same name. The value of an enum is a word, as in a ``StrEnum``: its
lower-case name without prefix (``JOB_STATE_PARTLY_PINNED`` is ``partly_pinned``). A ``Duration`` is a float in seconds,
and the attribute's name ends in ``_s``. An absent value is None.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from signalbox.errors import FieldProblem, InvalidInput
from signalbox.jobs.collectives import check
from signalbox.jobs.spec import JobSpec, oversized
from signalbox.v1 import signalbox_pb2 as pb

MAX_NANOS = 999_999_999
MAX_DURATION_S = 315_576_000_000
"""Largest value of a ``Duration`` in seconds: 10,000 years."""

Wire = TypeVar("Wire", bound=Message)

# ---- values


def seconds(duration: Duration) -> float:
    """Return the duration in seconds; NaN for a duration that duration.proto forbids.

    duration.proto forbids a second or more in ``nanos``, and different signs of ``nanos`` and ``seconds``."""
    whole, nanos = duration.seconds, duration.nanos
    if abs(nanos) > MAX_NANOS or whole * nanos < 0:
        return math.nan
    return whole + nanos / 1e9


def seconds_or_none(message: Message, field: str) -> float | None:
    """Return a duration field in seconds, or None when it is absent."""
    return seconds(getattr(message, field)) if message.HasField(field) else None


def duration(value_s: float) -> Duration:
    """Return a ``Duration``. Negative values, such as the remaining time of an expired lease, and NaN become zero."""
    whole, nanos = divmod(round(min(max(0.0, value_s), MAX_DURATION_S) * 1e9), 1_000_000_000)
    return Duration(seconds=whole, nanos=nanos)


def signed_duration(value_s: float | None) -> Duration | None:
    """Return a ``Duration`` that may be negative."""
    if value_s is None:
        return None
    found = Duration()
    found.FromNanoseconds(round(min(max(-MAX_DURATION_S, value_s), MAX_DURATION_S) * 1e9))
    return found


def optional_duration(value_s: float | None) -> Duration | None:
    return None if value_s is None else duration(value_s)


def seconds_since_1970(moment: Timestamp) -> float:
    return moment.seconds + moment.nanos / 1e9


def timestamp(unix_s: float) -> Timestamp:
    whole, nanos = divmod(round(unix_s * 1e9), 1_000_000_000)
    return Timestamp(seconds=whole, nanos=nanos)


def number_of(enum: EnumDescriptor, word: str) -> Any:
    """Return the number of the enum value with this word; '-' and ' ' count as '_'.

    Raises ``KeyError`` for unknown words."""
    name = word.upper().replace("-", "_").replace(" ", "_")
    return enum.values_by_name[_prefix(enum) + name].number


def word_of(enum: EnumDescriptor, number: int) -> str | None:
    """Return the word for the number of an enum value; None for the unspecified value and for unknown numbers."""
    value = enum.values_by_number.get(number)
    return value.name.removeprefix(_prefix(enum)).lower() if value and number else None


def word_in(message: Message, field: str) -> str:
    """Return the word in an enum field of a message; empty for the unspecified and for unknown values."""
    enum: Any = message.DESCRIPTOR.fields_by_name[field].enum_type
    return word_of(enum, getattr(message, field)) or ""


def names(enum: EnumDescriptor) -> list[str]:
    """Return the names of an enum's values as in the proto file, without the unspecified value."""
    return [value.name for value in enum.values if value.number]


def _prefix(enum: EnumDescriptor) -> str:
    return enum.values_by_number[0].name.removesuffix("UNSPECIFIED")


def is_duration(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.full_name == Duration.DESCRIPTOR.full_name


# ---- to the wire


def checked(kind: type[Wire], path: str, /, **values: Any) -> Wire:
    """Return a message with these field values. Raises ``InvalidInput`` for a value that its field cannot have.

    Protobuf's own errors do not name the field. ``path``: path of the message in the request."""
    try:
        return kind(**values)
    except (ValueError, TypeError):
        for name, value in values.items():
            try:
                kind(**{name: value})
            except (ValueError, TypeError):
                field = kind.DESCRIPTOR.fields_by_name[name]
                raise InvalidInput.of(f"{path}.{name}", f"must be {_allowed(field)} (given: {value!r})") from None
        raise


def _allowed(field: Any) -> str:
    bits = _UNSIGNED_BITS.get(field.cpp_type)
    return f"a whole number from 0 to 2^{bits} - 1" if bits else "of the field's type in the proto file"


_UNSIGNED_BITS = {FieldDescriptor.CPPTYPE_UINT32: 32, FieldDescriptor.CPPTYPE_UINT64: 64}


def message_of(kind: type[Wire], source: object, /, **converted: Any) -> Wire:
    """Return a message of type ``kind``.

    Fields that are not in ``converted`` get their values from attributes of ``source``."""
    given = {
        name: convert(getattr(source, attribute))
        for name, attribute, convert in _writers(kind.DESCRIPTOR)
        if name not in converted
    }
    return kind(**given, **converted)


Convert = Callable[[Any], Any]


@functools.cache
def _writers(kind: Descriptor) -> tuple[tuple[str, str, Convert], ...]:
    """Return for each field its name, the name of the source's attribute, and the function that converts its value."""
    return tuple((field.name, *_writer(field)) for field in kind.fields)


def _writer(field: FieldDescriptor) -> tuple[str, Convert]:
    if is_duration(field):
        return f"{field.name}_s", _unless_none(duration)
    if field.enum_type is not None:
        return field.name, _each(field, functools.partial(number_of, field.enum_type))
    if field.message_type is not None:
        return field.name, _each(field, functools.partial(message_of, GetMessageClass(field.message_type)))
    return field.name, _same


def _same(value: Any) -> Any:
    return value


def _each(field: FieldDescriptor, convert: Convert) -> Convert:
    return (lambda values: [convert(value) for value in values]) if field.is_repeated else _unless_none(convert)


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


# ---- from the wire


def data_of(message: Message) -> dict[str, Any]:
    """Return the present fields of a message as plain data.

    A field without presence is always included, but an unspecified enum is not. An unknown enum value stays a
    number."""
    plain, others = _readers(message.DESCRIPTOR)
    found = {name: getattr(message, name) for name in plain}
    for name, key, read in others:
        value = read(message, name)
        if value is not None:
            found[key] = value
    return found


Read = Callable[[Any, str], Any]


@functools.cache
def _readers(kind: Descriptor) -> tuple[tuple[str, ...], tuple[tuple[str, str, Read], ...]]:
    """Return how to read the fields of a type of message: two tuples.

    The first has the names of the fields whose values are used unchanged. The second has a triple for each other field:
    its name, its key in the plain data, and a function that reads it from a message. The function returns None for an
    absent field."""
    readers = {field.name: _reader(field) for field in kind.fields}
    plain = tuple(name for name, reader in readers.items() if reader is None)
    return plain, tuple((name, *reader) for name, reader in readers.items() if reader is not None)


def _reader(field: FieldDescriptor) -> tuple[str, Read] | None:
    if is_duration(field):
        return f"{field.name}_s", seconds_or_none
    if field.enum_type is not None:
        enum = field.enum_type
        if field.is_repeated:
            return field.name, lambda message, name: [_word_or_number(enum, each) for each in getattr(message, name)]
        return field.name, lambda message, name: _word_or_number(enum, getattr(message, name))
    if field.is_repeated:
        convert = data_of if field.message_type is not None else _same
        return field.name, lambda message, name: [convert(value) for value in getattr(message, name)]
    if field.has_presence and field.message_type is None:
        return field.name, lambda message, name: getattr(message, name) if message.HasField(name) else None
    return None


def _word_or_number(enum: EnumDescriptor, number: int) -> str | int | None:
    return word_of(enum, number) or number or None


# ---- paths


def path_in_proto(kind: type[Message], path: str) -> tuple[str, EnumDescriptor | None]:
    """Translate a path in plain data (``collectives[1].algorithm``, ``lease_s``) into a path in the proto file.

    Returns this path, and the type of its last field if that is an enum, else None. Parts of the path that are unknown
    to the message stay unchanged."""
    found: list[str] = []
    here: Any = kind.DESCRIPTOR
    enum: EnumDescriptor | None = None
    for part in path.split("."):
        field = _field(here, part.partition("[")[0]) if here is not None else None
        found.append(field.name if field is not None and is_duration(field) else part)
        here, enum = (field.message_type, field.enum_type) if field is not None else (None, None)
    return ".".join(found), enum


def _field(kind: Descriptor, name: str) -> FieldDescriptor | None:
    field: FieldDescriptor | None = kind.fields_by_name.get(name) or kind.fields_by_name.get(name.removesuffix("_s"))
    return field


def job_spec(message: pb.JobSpec) -> JobSpec:
    """Return the job spec in a message. Raises ``InvalidInput`` with the path of each wrong field inside the spec."""
    InvalidInput.refuse(oversized(message))
    data = data_of(message)
    data["max_subflows"] = message.max_subflows or 1
    try:
        spec = JobSpec.parse(data)
    except InvalidInput as error:
        raise InvalidInput(tuple(map(_in_proto_words, error.problems))) from None
    InvalidInput.refuse(check(spec))
    return spec


def _in_proto_words(problem: FieldProblem) -> FieldProblem:
    path, enum = path_in_proto(pb.JobSpec, problem.path)
    if enum is None:
        return replace(problem, path=path)
    _, given, value = problem.message.partition(" (given: ")
    return FieldProblem(path, f"choose one of {', '.join(names(enum))}{given}{value}")


def spec_message(spec: JobSpec) -> pb.JobSpec:
    return message_of(pb.JobSpec, spec)
