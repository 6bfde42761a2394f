"""Read a support bundle for a report.

A bundle is a ``tar.gz`` of ``signalbox support-bundle``; it may be damaged, or made to do harm. ``of_bundle`` returns a
``Gathered``, or raises ``SignalboxError`` with the mistake. Nothing is unpacked to a file. The size of the data that is
read is limited, packed and unpacked."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from signalbox.errors import SignalboxError, cut
from signalbox.mapping import is_duration, number_of
from signalbox.report.gathered import Gathered, state_of
from signalbox.standard_input import STANDARD_INPUT, called, opened
from signalbox.v1 import signalbox_pb2 as pb

MAX_FILE_BYTES = 64 << 20
"""Largest size in bytes of one file in the bundle. 1,000 jobs of 16 flows on 64 x 32 switches make 12 MiB."""
MAX_BYTES = 256 << 20
"""Largest size in bytes of the whole bundle, unpacked."""
WANTED = ("status", "fabric", "plan", "jobs", "routes", "events", "versions")
Wire = TypeVar("Wire", bound=Message)


def of_bundle(file: Path) -> Gathered:
    """Return the content of a bundle. Raises ``SignalboxError``, and ``OSError`` when the file cannot be read."""
    try:
        found = _files(file)
        if "status" not in found:
            raise SignalboxError("has no status.json: it is not a bundle, or the controller was away when it was made")
        return _gathered(found, called(file) if file == STANDARD_INPUT else file.name)
    except SignalboxError as error:
        raise SignalboxError(f"{called(file)}: {error}") from None


def _gathered(found: Mapping[str, Any], name: str) -> Gathered:
    versions = found.get("versions")
    about = versions if isinstance(versions, dict) else {}
    unix_s = _moment(about.get("time"))
    status = _message(pb.GetStatusResponse, found["status"], "status.json")
    fabric = _message(pb.GetFabricResponse, found.get("fabric") or {}, "fabric.json")
    for number, part in enumerate(fabric.parts_down):
        if part.kind == pb.PART_KIND_SWITCH and not re.fullmatch(r"0x[0-9a-fA-F]{1,16}", part.id):
            problem = f"must be a dpid such as 0x101 (given: {cut(repr(part.id))})"
            raise SignalboxError(f"fabric.json: parts_down[{number}].id: {problem}")
    plan = _message(pb.Plan, found["plan"], "plan.json") if found.get("plan") else None
    jobs = _messages(pb.Job, found.get("jobs"), "jobs.json")
    installed = about.get("signalbox")
    return Gathered(
        f"the support bundle {name}",
        unix_s,
        state_of(status, fabric, plan, jobs, unix_s),
        status,
        _messages(pb.ListedRoute, found.get("routes"), "routes.json"),
        _messages(pb.Event, found.get("events"), "events.json"),
        versions={
            **({str(name): str(version) for name, version in installed.items()} if isinstance(installed, dict) else {}),
            **{name: str(about[name]) for name in ("python", "platform") if name in about},
        },
        missing=[f"{name}.json: not in the bundle" for name in WANTED if name not in found],
    )


def _moment(text: object) -> float:
    """Return the time in seconds since 1970; 0 when it is unknown."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


# ---- the archive


class _Limited(io.RawIOBase):
    """Reader of ``file`` that refuses to read more than ``MAX_BYTES``."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file
        self._left = MAX_BYTES

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(self._left + 1 if size < 0 else min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise SignalboxError(f"has more than {MAX_BYTES >> 20} MiB when it is unpacked")
        return data


def _files(file: Path) -> dict[str, Any]:
    """Return the data of wanted files by name without ending; the first file of a name counts."""
    found: dict[str, Any] = {}
    try:
        with opened(file) as packed, gzip.open(packed) as plain:
            limited = _Limited(plain)
            with tarfile.open(fileobj=limited, mode="r|") as archive:
                for name, text in _texts(archive):
                    found.setdefault(name, _parsed(text, name))
            while limited.read(1 << 20):  # read to the end, where the checksum is
                pass
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError) as error:
        raise SignalboxError(f"is not a complete tar.gz of signalbox support-bundle ({error})") from None
    return found


def _texts(archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    for entry in archive:
        if not 0 <= entry.size <= MAX_BYTES:  # tarfile would skip that many bytes, even after the end of the file
            raise SignalboxError(f"has more than {MAX_BYTES >> 20} MiB when it is unpacked")
        name = re.fullmatch(r"signalbox/(\w+)\.json", entry.name)
        if name is None or name[1] not in WANTED:
            continue
        if not entry.isreg():
            raise SignalboxError(f"{name[1]}.json: is not a regular file")
        if entry.size > MAX_FILE_BYTES:
            raise SignalboxError(f"{name[1]}.json: has more than {MAX_FILE_BYTES >> 20} MiB")
        content = archive.extractfile(entry)
        yield name[1], content.read() if content else b""


def _parsed(text: bytes, name: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise SignalboxError(f"{name}.json: is not JSON ({error})") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


# ---- messages


def _messages(kind: type[Wire], found: Any, name: str) -> list[Wire]:
    if found is None:
        return []
    if not isinstance(found, list):
        raise SignalboxError(f"{name}: must be a list")
    return [_message(kind, each, f"{name}: [{number}]") for number, each in enumerate(found)]


def _message(kind: type[Wire], found: Any, name: str) -> Wire:
    """Return the message that ``signalbox.commands.output.fields`` turned into ``found``.

    Unknown fields are left out, because the bundle may come from another version."""
    if not isinstance(found, dict):
        raise SignalboxError(f"{name}: must be an object")
    try:
        return json_format.ParseDict(_in_proto_json(kind.DESCRIPTOR, found), kind(), ignore_unknown_fields=True)
    except (json_format.ParseError, ValueError, OverflowError, RecursionError) as error:
        raise SignalboxError(f"{name}: {_shortened(str(error))}") from None


def _shortened(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:197]}..."


def _in_proto_json(kind: Any, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data in protobuf's own JSON: durations as ``1.5s``, enums by their full names."""
    result: dict[str, Any] = {}
    for field in kind.fields:
        value = found.get(f"{field.name}_s" if is_duration(field) else field.name)
        if value is None:
            continue
        if isinstance(value, list) and field.is_repeated:
            result[field.name] = [made for each in value if (made := _value(field, each)) is not None]
        elif (made := _value(field, value)) is not None:
            result[field.name] = made
    return result


def _value(field: FieldDescriptor, value: Any) -> Any:
    if is_duration(field):
        return f"{value:.9f}s" if isinstance(value, int | float) else value
    if field.enum_type is not None:
        try:
            return number_of(field.enum_type, value)
        except (KeyError, AttributeError):
            return None  # a value of another version
    if field.message_type is not None and isinstance(value, dict):
        return _in_proto_json(field.message_type, value)
    if isinstance(value, str):
        value.encode()  # refuses surrogates; protobuf's own error would not be a ValueError
    return value
