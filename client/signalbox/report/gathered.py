"""Content of a report: the messages of the API at one moment, from a running controller or from a support bundle.

A bundle is a ``tar.gz`` of ``signalbox support-bundle``. It may be damaged, or made by an attacker. So ``of_bundle``
raises ``SignalboxError`` with the mistake, unpacks nothing to a file, and limits the size of the data, packed and
unpacked.
"""

from __future__ import annotations

import gzip
import io
import json
import platform
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from signalbox.client import Client
from signalbox.distributions import installed
from signalbox.errors import SignalboxError, cut
from signalbox.files import STANDARD_INPUT, called, opened
from signalbox.live.jobs import efficiency, urgency
from signalbox.live.shown import short
from signalbox.live.state import State
from signalbox.mapping import is_duration, number_of
from signalbox.v1 import signalbox_pb2 as pb

SLOW_BELOW = 0.9
"""Efficiency below which a job counts as slow: ideal communication time divided by the measured or predicted time."""
MOST_EXPLAINED = 5
"""Largest number of jobs whose slowness the controller is asked to explain; an answer may take seconds."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Gathered:
    """Content of a report.

    - ``source``: origin of the data, in words
    - ``unix_s``: time when the messages were requested
    - ``state``: state of the controller, without events and without slowdowns of earlier plans
    - ``explained``: the controller's explanations of slow jobs, by job id
    - ``missing``: data that is not available, with reasons"""

    source: str
    unix_s: float
    state: State
    status: pb.GetStatusResponse
    routes: Sequence[pb.ListedRoute] = ()
    events: Sequence[pb.Event] = ()
    explained: Mapping[str, pb.ExplainResponse] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()

    @property
    def slow(self) -> list[pb.Job]:
        """Jobs that are slow, have flows without a path, or wait for hosts or circuits; worst first."""
        return slow_jobs(self.state.jobs.values())


def of_controller(client: Client, unix_s: float) -> Gathered:
    """Return the content of a report on a controller. ``missing`` lists data that the controller does not return.

    Raises ``SignalboxError`` when the controller does not return its status."""
    status = client.get_status()
    missing: list[str] = []

    def ask(what: str, call: Callable[[], Answer], otherwise: Answer) -> Answer:
        try:
            return call()
        except SignalboxError as error:
            missing.append(f"{what}: {error}")
            return otherwise

    fabric = ask("fabric", client.get_fabric, pb.GetFabricResponse())
    jobs: Sequence[pb.Job] = ask("jobs", client.list_jobs, tuple[pb.Job, ...]())
    state = state_of(status, fabric, ask("plan", client.get_plan, None), jobs, unix_s)
    asked = [job.spec.job_id for job in slow_jobs(jobs) if not _is_waiting(job)][:MOST_EXPLAINED]
    answers = {name: ask(f"why {name} is slow", partial(client.explain, name), None) for name in asked}
    return Gathered(
        "a running controller",
        unix_s,
        state,
        status,
        ask("routes", client.list_routes, ()),
        ask("events", lambda: tuple(client.list_events()), ()),
        {name: answer for name, answer in answers.items() if answer is not None},
        {**installed(), "python": platform.python_version()},
        missing,
    )


def state_of(
    status: pb.GetStatusResponse,
    fabric: pb.GetFabricResponse,
    plan: pb.Plan | None,
    jobs: Sequence[pb.Job],
    unix_s: float,
) -> State:
    state = State(lost="")
    state.take_status(status)
    state.take_fabric(fabric)
    state.take_plan(plan, unix_s)
    state.take_jobs(pb.WatchJobsResponse(snapshot=True, jobs=jobs))
    state.take_alarms(pb.WatchAlarmsResponse(snapshot=True, raised=status.alarms))
    return state


def slow_jobs(jobs: Iterable[pb.Job]) -> list[pb.Job]:
    """Return the jobs that are slow, have flows without a path, or wait for hosts or circuits; worst first."""
    return [job for job in sorted(jobs, key=urgency) if _is_waiting(job) or job.flows_without_path or _is_slow(job)]


def _is_slow(job: pb.Job) -> bool:
    share = efficiency(job)
    return share is not None and share < SLOW_BELOW


def _is_waiting(job: pb.Job) -> bool:
    """Return whether a job waits for hosts or has no circuits, so that the controller cannot explain its speed."""
    return bool(job.missing_hosts or job.wiring.unwired)


MAX_FILE_BYTES = 64 << 20
"""Largest size in bytes of one file in the bundle. 1,000 jobs of 16 flows on 64 x 32 switches make 12 MiB."""
MAX_BYTES = 256 << 20
"""Largest size in bytes of the whole bundle, unpacked."""
WANTED = ("status", "fabric", "plan", "jobs", "routes", "events", "versions")
Wire = TypeVar("Wire", bound=Message)


def of_bundle(file: Path) -> Gathered:
    """Return the content of a support bundle.

    Raises ``SignalboxError``, and ``OSError`` when the file cannot be read."""
    try:
        found = _files(file)
        if "status" not in found:
            raise SignalboxError(
                "has no status.json: it is not a bundle, or the controller did not answer when it was made"
            )
        return _gathered(found, called(file) if file == STANDARD_INPUT else file.name)
    except SignalboxError as error:
        raise SignalboxError(f"{called(file)}: {error}") from None


def _gathered(found: Mapping[str, Any], name: str) -> Gathered:
    versions = found.get("versions")
    about = versions if isinstance(versions, dict) else {}
    unix_s = _unix_s(about.get("time"))
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


def _unix_s(text: object) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return 0.0


# ---- the archive


class _Limited(io.RawIOBase):
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
    """Return the parsed data of the wanted files, by name without ``.json``.

    If several files have the same name, the first one is used."""
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
    """Return the message from which ``signalbox.commands.output.fields`` has made ``found``.

    Unknown fields are left out, because the bundle may come from another version."""
    if not isinstance(found, dict):
        raise SignalboxError(f"{name}: must be an object")
    try:
        return json_format.ParseDict(_in_proto_json(kind.DESCRIPTOR, found), kind(), ignore_unknown_fields=True)
    except (json_format.ParseError, ValueError, OverflowError, RecursionError) as error:
        raise SignalboxError(f"{name}: {short(str(error), 200)}") from None


def _in_proto_json(kind: Any, found: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for each in kind.fields:
        value = found.get(f"{each.name}_s" if is_duration(each) else each.name)
        if value is None:
            continue
        if isinstance(value, list) and each.is_repeated:
            result[each.name] = [made for item in value if (made := _value(each, item)) is not None]
        elif (made := _value(each, value)) is not None:
            result[each.name] = made
    return result


def _value(field: FieldDescriptor, value: Any) -> Any:
    if is_duration(field):
        return f"{value:.9f}s" if isinstance(value, int | float) else value
    if field.enum_type is not None:
        try:
            return number_of(field.enum_type, value)
        except (KeyError, AttributeError):
            return None  # an enum value of another version
    if field.message_type is not None and isinstance(value, dict):
        return _in_proto_json(field.message_type, value)
    if isinstance(value, str):
        value.encode()  # refuses surrogates; protobuf's own error would not be a ValueError
    return value
