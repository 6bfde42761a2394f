"""Records of the saved state, each with a kind and a key. A commit writes only records that have changed.

In: two ``SavedState`` objects, or records as text. Out: the records that differ as text, or a ``SavedState``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple
from enum import StrEnum
from typing import Any, NamedTuple

from controller.fabric.drains import Drain
from controller.fabric.parts import End, Part, PartKey, PartKind
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.jobs.messages import Arrangement, EndReason, JobEnd, Registration, SavedState
from controller.shared_map import differing
from controller.silence import Silence
from signalbox.errors import InvalidInput, NotFound, cut
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import NEWER_FIELDS, JobId, JobSpec
from signalbox.words import Mode

FORMAT = 7
"""Version of the format in which records are written."""

OLDEST_FORMAT = 7
"""Oldest version of the format that can be read. A program that raises ``FORMAT`` must be able to read the previous
one.

The first commit of a newer program raises the format of the whole state, but does not rewrite unchanged records.
``decode`` must therefore be able to read a mixture of records of all these formats."""

PRESENT_NAMES = {"dealing": "striping", "strategies": "parallelizations"}
"""Present name of each renamed field of a spec, by the name that saved states still use.

Saved states also use the old name ``strategy``, for the controller's mode and for the parallelization of a wired job
(``circuits.job_wiring``)."""

_SAVED_NAMES = {new: old for old, new in PRESENT_NAMES.items()}

ROUNDING = 1e-9

MAX_NAMED = 16
"""Largest number of unreadable records that one message names."""


class Kind(StrEnum):
    """Kind of record, which determines its key.

    The key of most kinds is a job's id. Other keys: a pair of addresses for ``shares``, a uid for ``end``, the part's
    name for ``drain``, an empty text for the mode, kind and subject of alarms for ``silence``, kind and name for
    ``part``."""

    MODE = "strategy"
    JOB = "job"
    CONNECTIONS = "connections"
    MEASURED = "measured"
    SHARES = "shares"
    END = "end"
    DRAIN = "drain"
    SILENCE = "silence"
    PART = "part"


class Key(NamedTuple):
    kind: Kind
    key: str


def format_problem(form: int) -> str:
    """Return why this version cannot read a state in the format, as words that follow "it"; empty if it can."""
    if OLDEST_FORMAT <= form <= FORMAT:
        return ""
    reads = f"format {FORMAT}" if OLDEST_FORMAT == FORMAT else f"formats {OLDEST_FORMAT} to {FORMAT}"
    return f"has format {form}; this version reads {reads}"


class Unreadable(ValueError):
    """Records of the state are invalid. ``problems``: a text for each invalid record, with the record's name."""

    def __init__(self, problems: list[str]) -> None:
        more = [f"and {len(problems) - MAX_NAMED} more"] if len(problems) > MAX_NAMED else []
        super().__init__("; ".join(problems[:MAX_NAMED] + more))


def forget(error: Exception, options: str) -> str:
    """Return text for an error message: the advice to remove invalid jobs from the state with ``signalbox state drop``.

    The text is empty if the error has another cause than invalid records. ``options``: options of the command in the
    text."""
    return f", or forget single jobs (signalbox state drop {options} JOB)" if isinstance(error, Unreadable) else ""


ChangedRecords = Mapping[Key, object]
"""Changed values by key; None for a record that was removed."""


class Written(NamedTuple):
    """Records as text, which are not validated, and their revision."""

    records: tuple[tuple[Key, str], ...]
    revision: int


def without(records: Iterable[tuple[Key, str]], job_ids: Iterable[str], where: str) -> ChangedRecords:
    """Return the changes that remove these jobs. Raises ``NotFound`` for a job without a record.

    ``where``: where the records are, for the text of the error."""
    wanted, saved = tuple(job_ids), {key.key for key, _ in records if key.kind is Kind.JOB}
    if unknown := [job_id for job_id in wanted if job_id not in saved]:
        raise NotFound(f"{where} has no job '{cut(unknown[0])}'")
    return {Key(kind, job_id): None for job_id in wanted for kind in (Kind.JOB, Kind.CONNECTIONS, Kind.MEASURED)}


def changes(before: SavedState, after: SavedState) -> ChangedRecords:
    """Return the records that differ, with their values in ``after``; None for removed ones."""
    changed: dict[Key, object] = {}
    for (kind, old), (_, new) in zip(_by_kind(before), _by_kind(after), strict=True):
        for name, was, now in differing(old, new):
            if was != now:
                changed[Key(kind, _key_text(name))] = now
    return changed


def encode(key: Key, value: Any) -> str:
    """Return the value of a record as JSON."""
    match key.kind:
        case Kind.MODE:
            return json.dumps(value)
        case Kind.JOB:
            return json.dumps(
                {
                    "spec": _spec_data(value.spec),
                    "uid": value.uid,
                    "tenant": value.tenant,
                    "registered_at": value.registered_at,
                    "request_id": value.request_id,
                    **({"wiring": _arrangement_data(value.arrangement)} if value.arrangement else {}),
                    **({"revision": value.revision} if value.revision > 1 else {}),
                }
            )
        case Kind.CONNECTIONS:
            return json.dumps(sorted(value))
        case Kind.MEASURED:
            return json.dumps([astuple(link) for link in value])
        case Kind.SHARES:
            return json.dumps(value)
        case Kind.DRAIN:
            part = sorted(value.part) if isinstance(value.part, frozenset) else value.part
            return json.dumps({"part": part, "since": value.since})
        case Kind.SILENCE:
            return json.dumps([value.since, value.until, value.by, value.comment])
        case Kind.END:
            return json.dumps(
                {
                    "job_id": value.job_id,
                    "tenant": value.tenant,
                    "reason": value.reason,
                    "ended_at": value.ended_at,
                    "request_id": value.request_id,
                }
            )
        case Kind.PART:
            ends = [[*end.at, end.switch, end.port] for end in value.ends]
            return json.dumps({"ends": ends, "down_since": value.down_since})


def decode(records: Iterable[tuple[Key, str]]) -> SavedState:
    """Return the state in the records. Raises ``Unreadable`` with all invalid records."""
    found: dict[Kind, dict[Any, Any]] = {kind: {} for kind in Kind}
    problems = []
    for key, text in records:
        try:
            name: Any = _NAMES.get(key.kind, str)(key.key)
            found[key.kind][name] = _decoded(key, json.loads(text))
        except (ValueError, TypeError, KeyError, RecursionError, InvalidInput) as error:
            problems.append(f"{key.kind} {key.key!r}: {error}".replace(" '':", ":"))
    if problems:
        raise Unreadable(problems)
    known = {job_id for job_id, job in found[Kind.JOB].items() if job.spec.reports_connections}
    return SavedState(
        jobs=found[Kind.JOB],
        mode=found[Kind.MODE].get(""),
        shares=found[Kind.SHARES],
        measured=found[Kind.MEASURED],
        connections={job_id: of_job for job_id, of_job in found[Kind.CONNECTIONS].items() if job_id in known},
        ends=found[Kind.END],
        drains=found[Kind.DRAIN],
        silences=found[Kind.SILENCE],
        parts=found[Kind.PART],
    )


def _by_kind(state: SavedState) -> Iterator[tuple[Kind, Mapping[Any, object]]]:
    yield Kind.MODE, {"": state.mode} if state.mode is not None else {}
    yield Kind.JOB, state.jobs
    yield Kind.CONNECTIONS, state.connections
    yield Kind.MEASURED, state.measured
    yield Kind.SHARES, state.shares
    yield Kind.END, state.ends
    yield Kind.DRAIN, state.drains
    yield Kind.SILENCE, state.silences
    yield Kind.PART, state.parts


def _key_text(name: str | tuple[str, str]) -> str:
    return name if isinstance(name, str) else " ".join(name)


def _decoded(key: Key, data: Any) -> Any:
    match key.kind:
        case Kind.MODE:
            return Mode(data)
        case Kind.JOB:
            return _registration(key.key, data)
        case Kind.CONNECTIONS:
            return frozenset(Connected(str(src), int(sport), str(dst), int(dport)) for src, sport, dst, dport in data)
        case Kind.MEASURED:
            return VirtualLinks(_link(*link) for link in data)
        case Kind.SHARES:
            return _shares(data)
        case Kind.END:
            return _end(key.key, data)
        case Kind.DRAIN:
            return _drain(key.key, data)
        case Kind.SILENCE:
            since, until, by, comment = data
            return Silence(
                *_pair(key.key), float(since), None if until is None else float(until), str(by), str(comment)
            )
        case Kind.PART:
            return _part(_part_key(key.key), data)


def _spec_data(spec: JobSpec) -> dict[str, Any]:
    """Return the fields of a spec with the names that earlier versions can read."""
    data = spec.model_dump(mode="json", exclude={name for name in NEWER_FIELDS if not getattr(spec, name)})
    return {_SAVED_NAMES.get(name, name): value for name, value in data.items()}


def _spec(data: Any) -> JobSpec:
    return JobSpec.parse({PRESENT_NAMES.get(name, name): value for name, value in dict(data).items()})


def _registration(job_id: str, data: Mapping[str, Any]) -> Registration:
    spec = _spec(data["spec"])
    if spec.job_id != job_id:
        raise ValueError(f"the saved spec belongs to another job, '{spec.job_id}'")
    texts = (str(data["uid"]), str(data["tenant"]), str(data["request_id"]))
    arrangement = _arrangement(data["wiring"]) if "wiring" in data else None
    revision = int(data.get("revision", 1))
    if revision < 1:
        raise ValueError(f"the revision must be at least 1 (saved: {revision})")
    return Registration(spec, *texts[:2], float(data["registered_at"]), texts[2], arrangement, revision)


def _arrangement_data(arrangement: Arrangement) -> Mapping[str, Any]:
    return {**arrangement.details, "runs": _spec_data(arrangement.runs)}


def _arrangement(data: Mapping[str, Any]) -> Arrangement:
    details = {name: value for name, value in data.items() if name != "runs"}
    return Arrangement(_spec(data["runs"]), details)


def _end(uid: str, data: Mapping[str, Any]) -> JobEnd:
    job_id, reason = JobId(str(data["job_id"])), EndReason(data["reason"])
    return JobEnd(job_id, uid, str(data["tenant"]), reason, float(data["ended_at"]), str(data["request_id"]))


def _drain(name: str, data: Mapping[str, Any]) -> Drain:
    part, since = data["part"], float(data["since"])
    if isinstance(part, int):
        return Drain(Dpid(part), name, since)
    a, b = (PortRef(Dpid(int(dpid)), PortNo(int(port))) for dpid, port in part)
    return Drain(frozenset((a, b)), name, since)


def _pair(key: str) -> tuple[str, str]:
    src, dst = key.split(" ", 1)
    return src, dst


def _part_key(key: str) -> PartKey:
    kind, _, name = key.partition(" ")
    return PartKey(PartKind(kind), name)


_NAMES: Mapping[Kind, Callable[[str], object]] = {Kind.SHARES: _pair, Kind.SILENCE: _pair, Kind.PART: _part_key}
"""Decoders of keys, by kind of record. Keys of other kinds are used as they are."""


def _part(key: PartKey, data: Mapping[str, Any]) -> Part:
    ends = tuple(
        End(PortRef(Dpid(int(dpid)), PortNo(int(number))), str(switch), str(port))
        for dpid, number, switch, port in data["ends"]
    )
    if len(ends) != (2 if key.kind is PartKind.LINK else 1):
        raise ValueError(f"a {key.kind} cannot have {len(ends)} ends")
    return Part(key, ends, None if data["down_since"] is None else float(data["down_since"]))


def _link(src_ip: str, dst_ip: str, phase: int, size: int) -> VirtualLink:
    if size <= 0 or phase < 0:
        raise ValueError(f"a virtual link needs at least 1 byte and a phase from 0 (saved: {size}, {phase})")
    return VirtualLink(str(src_ip), str(dst_ip), int(phase), int(size))


def _shares(of_subflows: list[float]) -> tuple[float, ...]:
    if not all(share > 0 for share in of_subflows) or abs(sum(of_subflows) - 1) > ROUNDING:
        raise ValueError(f"shares must be positive and add up to 1 (saved: {of_subflows})")
    return tuple(of_subflows)
