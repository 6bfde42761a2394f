"""Records of the saved state, each with a kind and a key, so that a commit writes changes only.

In: two ``SavedState``. Out: the records that differ, as text in the present version of the format; and the reverse,
from this or an earlier version.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from controller.fabric.drains import Drain
from controller.fabric.parts import End, Part, PartKey, PartKind
from controller.fabric.topology import Dpid, PortNo, PortRef
from controller.jobs.ends import EndReason, JobEnd
from controller.jobs.messages import Arrangement, Registration, SavedState, new_uid
from controller.shared_map import differing
from controller.silence import Silence
from signalbox.errors import InvalidInput
from signalbox.jobs.collectives import VirtualLink, VirtualLinks
from signalbox.jobs.reports import Connected
from signalbox.jobs.spec import EARLIER_NAMES, NEWER_FIELDS, JobId, JobSpec, with_present_names
from signalbox.words import Mode

FORMAT = 7
"""Version of the format that ``encode`` writes. Version 1 was a JSON file with the records of version 2. Version 3
added owners of jobs, 4 ends, 5 their request ids. Version 6 added parts of the fabric, drains and silences. Version 7
added parallelizations, arrangements (as "wiring") and revisions of jobs."""

PRESENT_NAMES = {**EARLIER_NAMES, "strategies": "parallelizations"}
"""Present names of a spec's fields by their names in format 7, where these differ.

Saved states also keep the earlier name of two other things. The mode is the record ``strategy``, and the
parallelization of a wired job is ``strategy`` in its arrangement (``circuits.job_wiring``)."""

_SAVED_NAMES = {new: old for old, new in PRESENT_NAMES.items()}

ROUNDING = 1e-9

MAX_NAMED = 16
"""Unreadable records that one message names."""


class Kind(StrEnum):
    """Kind of record, which determines its key.

    The key of most kinds is a job's id. It is a pair of addresses for ``shares``, a uid for ``end``, the part's name
    for ``drain``, and empty for the mode. It has two parts for ``silence`` (kind and subject of alarms) and for
    ``part`` (kind and name)."""

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


class Unreadable(ValueError):
    """Records of the state are invalid. ``problems``: one text per record, which names it."""

    def __init__(self, problems: list[str]) -> None:
        more = [f"and {len(problems) - MAX_NAMED} more"] if len(problems) > MAX_NAMED else []
        super().__init__("; ".join(problems[:MAX_NAMED] + more))


ChangedRecords = Mapping[Key, object]
"""Changed values by key; None for a record that was removed."""


def changes(before: SavedState, after: SavedState) -> ChangedRecords:
    """Return the records that differ, with their values in ``after``."""
    changed: dict[Key, object] = {}
    for (kind, old), (_, new) in zip(_by_kind(before), _by_kind(after), strict=True):
        for name, was, now in differing(old, new):
            if was != now:
                changed[Key(kind, _text(name))] = now
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


def decode(records: Iterable[tuple[Key, str]], version: int = FORMAT) -> SavedState:
    """Return the state in the records, which have the given version of the format.

    Raises ``Unreadable`` with all invalid records."""
    found: dict[Kind, dict[Any, Any]] = {kind: {} for kind in Kind}
    problems = []
    for key, text in records:
        try:
            name: Any = _NAMES.get(key.kind, str)(key.key)
            found[key.kind][name] = _decoded(key, _upgraded(key, json.loads(text), version))
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


def first_format(path: Path) -> SavedState:
    """Return the state in a JSON file of format 1, which has records of format 2; empty without a file.

    Raises ``ValueError``."""
    if not path.exists():
        return SavedState()
    try:
        data = json.loads(path.read_bytes())
        if data["format"] != 1:
            raise ValueError(f"it has format {data['format']}")
        return decode(((Key(kind, key), json.dumps(value)) for kind, key, value in _of_first(data)), 2)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path.name}: {error}") from None


def _of_first(data: Mapping[str, Any]) -> Iterator[tuple[Kind, str, Any]]:
    if data["strategy"] is not None:
        yield Kind.MODE, "", data["strategy"]
    for number, job in enumerate(data["jobs"]):
        yield Kind.JOB, str(job.get("job_id", number)), job
    for src, dst, *shares in data.get("shares", ()):
        yield Kind.SHARES, f"{src} {dst}", shares
    for kind in (Kind.MEASURED, Kind.CONNECTIONS):
        for job_id, value in data.get(kind, {}).items():
            yield kind, job_id, value


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


def _text(name: str | tuple[str, str]) -> str:
    """Return the key of a record as text."""
    return name if isinstance(name, str) else " ".join(name)


def _upgraded(key: Key, data: Any, version: int) -> Any:
    """Return the value of a record of an older format in the present format.

    A job of format 2 was its spec. Nobody has a lease token for it: whoever registers it takes it over. An end of
    format 4 lacks the id of the registration's request. An end of format 5 may lack it too: the upgrade from format 4
    left ends unchanged."""
    if version == 2 and key.kind is Kind.JOB:
        return {"spec": data, "uid": new_uid(), "tenant": "", "registered_at": time.time(), "request_id": ""}
    if version < 6 and key.kind is Kind.END:
        return {"request_id": "", **data}
    return data


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
    """Return the fields of a spec as earlier versions can read them, under the names in those versions."""
    data = spec.model_dump(mode="json", exclude={name for name in NEWER_FIELDS if not getattr(spec, name)})
    return {_SAVED_NAMES.get(name, name): value for name, value in data.items()}


def _spec(data: Any) -> JobSpec:
    return JobSpec.parse(with_present_names(data, PRESENT_NAMES))


def _registration(job_id: str, data: Mapping[str, Any]) -> Registration:
    spec = _spec(data["spec"])
    if spec.job_id != job_id:
        raise ValueError(f"it is of job '{spec.job_id}'")
    texts = (str(data["uid"]), str(data["tenant"]), str(data["request_id"]))
    arrangement = _arrangement(data["wiring"]) if "wiring" in data else None
    revision = int(data.get("revision", 1))
    if revision < 1:
        raise ValueError(f"{revision} is not a revision")
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
"""Decoder of the key by kind of record; keys of other kinds are used as they are."""


def _part(key: PartKey, data: Mapping[str, Any]) -> Part:
    ends = tuple(
        End(PortRef(Dpid(int(dpid)), PortNo(int(number))), str(switch), str(port))
        for dpid, number, switch, port in data["ends"]
    )
    if len(ends) != (2 if key.kind is PartKind.LINK else 1):
        raise ValueError(f"a {key.kind} with {len(ends)} ends")
    return Part(key, ends, None if data["down_since"] is None else float(data["down_since"]))


def _link(src_ip: str, dst_ip: str, phase: int, size: int) -> VirtualLink:
    if size <= 0 or phase < 0:
        raise ValueError(f"{size} bytes in phase {phase} are not a virtual link")
    return VirtualLink(str(src_ip), str(dst_ip), int(phase), int(size))


def _shares(of_subflows: list[float]) -> tuple[float, ...]:
    if not all(share > 0 for share in of_subflows) or abs(sum(of_subflows) - 1) > ROUNDING:
        raise ValueError(f"{of_subflows} are not shares")
    return tuple(of_subflows)
