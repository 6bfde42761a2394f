"""Between messages and our types, field by field: a field of a message is the attribute of the same name.

Where the kinds of values differ, each has one rule. An enum's value is a word: the lower-case name without its prefix
(``JOB_STATE_PARTLY_PINNED`` is ``partly_pinned``), as our ``StrEnum``s have it. A ``Duration`` is a float in seconds,
whose name ends in ``_s``. What is absent is None. Pure; linear in the size of the message.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

from signalbox.errors import InvalidInput

MAX_NANOS = 999_999_999
MAX_DURATION_S = 315_576_000_000
"""10,000 years: what a ``Duration`` may be at most."""

Wire = TypeVar("Wire", bound=Message)

# ---- values


def seconds(duration: Duration) -> float:
    """Not a number for what duration.proto forbids: a second or more in ``nanos``, or another sign than ``seconds``."""
    whole, nanos = duration.seconds, duration.nanos
    if abs(nanos) > MAX_NANOS or whole * nanos < 0:
        return math.nan
    return whole + nanos / 1e9


def seconds_or_none(message: Message, field: str) -> float | None:
    """Of a field that may be absent."""
    return seconds(getattr(message, field)) if message.HasField(field) else None


def duration(value_s: float) -> Duration:
    """Nothing below zero: a lease that is over has nothing left. What is no number is zero too."""
    whole, nanos = divmod(round(min(max(0.0, value_s), MAX_DURATION_S) * 1e9), 1_000_000_000)
    return Duration(seconds=whole, nanos=nanos)


def seconds_since_1970(moment: Timestamp) -> float:
    return moment.seconds + moment.nanos / 1e9


def timestamp(unix_s: float) -> Timestamp:
    whole, nanos = divmod(round(unix_s * 1e9), 1_000_000_000)
    return Timestamp(seconds=whole, nanos=nanos)


def number_of(enum: EnumDescriptor, word: str) -> Any:
    """The value of the enum that ``word`` names; '-' and ' ' count as '_'. Raises ``KeyError`` for other words."""
    name = word.upper().replace("-", "_").replace(" ", "_")
    return enum.values_by_name[_prefix(enum) + name].number


def word_of(enum: EnumDescriptor, number: int) -> str | None:
    """None for the value that is not specified, and for one that the enum does not have."""
    value = enum.values_by_number.get(number)
    return value.name.removeprefix(_prefix(enum)).lower() if value and number else None


def word_in(message: Message, field: str) -> str:
    """The word of a field that is an enum; empty where ``word_of`` gives None."""
    enum: Any = message.DESCRIPTOR.fields_by_name[field].enum_type
    return word_of(enum, getattr(message, field)) or ""


def names(enum: EnumDescriptor) -> list[str]:
    """Of all values but the one that is not specified, as the proto file has them."""
    return [value.name for value in enum.values if value.number]


def _prefix(enum: EnumDescriptor) -> str:
    return enum.values_by_number[0].name.removesuffix("UNSPECIFIED")


def is_duration(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.full_name == Duration.DESCRIPTOR.full_name


# ---- to the wire


def checked(kind: type[Wire], path: str, /, **values: Any) -> Wire:
    """The message with these values, given by a caller. Raises ``InvalidInput`` for one that its field cannot have:
    protobuf's own errors do not name the field. ``path``: of the message in the request."""
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
    """The values of a field, in words."""
    bits = _UNSIGNED_BITS.get(field.cpp_type)
    return f"a whole number from 0 to 2^{bits} - 1" if bits else "of another type"


_UNSIGNED_BITS = {FieldDescriptor.CPPTYPE_UINT32: 32, FieldDescriptor.CPPTYPE_UINT64: 64}


def message_of(kind: type[Wire], source: object, /, **converted: Any) -> Wire:
    """The message with the ``converted`` fields; every other field is made from the attribute of ``source``."""
    given = {
        name: convert(getattr(source, attribute))
        for name, attribute, convert in _writers(kind.DESCRIPTOR)
        if name not in converted
    }
    return kind(**given, **converted)


Convert = Callable[[Any], Any]


@functools.cache
def _writers(kind: Descriptor) -> tuple[tuple[str, str, Convert], ...]:
    """Per field its name, the attribute it is made from, and how."""
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
    """The fields that are there, as plain data. A field without presence is always there, an enum that is not specified
    never. An enum value that is not known stays a number."""
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
    """The names of the fields that are read as they are; of each other one its name, its name in plain data, and how it
    is read: None when it is absent."""
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
    """``path`` in plain data (``collectives[1].algorithm``, ``lease_s``) as the proto file names it, and the enum that
    the field has. What is not in the message stays as it is."""
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
