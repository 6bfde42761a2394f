"""What is saved as records, each under a kind and a key: what changes is written, not everything.

In: two ``SavedState``. Out: the records that differ, as text that one version of the format defines; and back again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple
from enum import StrEnum
from typing import Any, NamedTuple

from controller.config import Strategy
from controller.errors import InvalidInput
from controller.jobs.collectives import VirtualLink
from controller.jobs.messages import Connected, SavedState
from controller.jobs.spec import JobSpec

ROUNDING = 1e-9


class Kind(StrEnum):
    """``shares`` has a pair of addresses as its key, ``strategy`` none; the others have a job's id."""

    STRATEGY = "strategy"
    JOB = "job"
    CONNECTIONS = "connections"
    MEASURED = "measured"
    SHARES = "shares"


class Key(NamedTuple):
    kind: Kind
    key: str


class Unreadable(ValueError):
    """A record does not say what its kind says."""

    def __init__(self, key: Key, why: object) -> None:
        super().__init__(f"{key.kind} {key.key!r}: {why}".replace(" '':", ":"))


Changes = Mapping[Key, object]
"""Values by key; None: there is none any more."""


def changes(before: SavedState, after: SavedState) -> Changes:
    """The records that differ, with their values in ``after``."""
    changed: dict[Key, object] = {}
    for (kind, old), (_, new) in zip(_by_kind(before), _by_kind(after), strict=True):
        if old is not new:
            changed |= {Key(kind, _text(name)): None for name in old.keys() - new.keys()}
            for name, value in new.items():
                if old.get(name) is not value and old.get(name) != value:
                    changed[Key(kind, _text(name))] = value
    return changed


def encode(key: Key, value: Any) -> str:
    """The value of a record as JSON."""
    match key.kind:
        case Kind.STRATEGY:
            return json.dumps(value)
        case Kind.JOB:
            return str(value.model_dump_json())
        case Kind.CONNECTIONS:
            return json.dumps(sorted(value))
        case Kind.MEASURED:
            return json.dumps([astuple(link) for link in value])
        case Kind.SHARES:
            return json.dumps(value)


def decode(records: Iterable[tuple[Key, str]]) -> SavedState:
    """Raises ``Unreadable``."""
    found: dict[Kind, dict[Any, Any]] = {kind: {} for kind in Kind}
    for key, text in records:
        try:
            name: Any = _pair(key.key) if key.kind is Kind.SHARES else key.key
            found[key.kind][name] = _decoded(key.kind, json.loads(text))
        except (ValueError, TypeError, KeyError, RecursionError, InvalidInput) as error:
            raise Unreadable(key, error) from None
    known = {job_id for job_id, spec in found[Kind.JOB].items() if spec.reports_connections}
    return SavedState(
        specs=tuple(found[Kind.JOB].values()),
        strategy=found[Kind.STRATEGY].get(""),
        shares=found[Kind.SHARES],
        measured=found[Kind.MEASURED],
        connections={job_id: of_job for job_id, of_job in found[Kind.CONNECTIONS].items() if job_id in known},
    )


def _by_kind(state: SavedState) -> Iterator[tuple[Kind, Mapping[Any, object]]]:
    yield Kind.STRATEGY, {"": state.strategy} if state.strategy is not None else {}
    yield Kind.JOB, {spec.job_id: spec for spec in state.specs}
    yield Kind.CONNECTIONS, state.connections
    yield Kind.MEASURED, state.measured
    yield Kind.SHARES, state.shares


def _text(name: str | tuple[str, str]) -> str:
    """The key of a record."""
    return name if isinstance(name, str) else " ".join(name)


def _decoded(kind: Kind, data: Any) -> Any:
    match kind:
        case Kind.STRATEGY:
            return Strategy(data)
        case Kind.JOB:
            return JobSpec.parse(data)
        case Kind.CONNECTIONS:
            return frozenset(Connected(str(src), int(sport), str(dst), int(dport)) for src, sport, dst, dport in data)
        case Kind.MEASURED:
            return tuple(_link(*link) for link in data)
        case Kind.SHARES:
            return _shares(data)


def _pair(key: str) -> tuple[str, str]:
    src, dst = key.split(" ")
    return src, dst


def _link(src_ip: str, dst_ip: str, phase: int, size: int) -> VirtualLink:
    if size <= 0 or phase < 0:
        raise ValueError(f"{size} bytes in phase {phase} are no virtual link")
    return VirtualLink(str(src_ip), str(dst_ip), int(phase), int(size))


def _shares(of_subflows: list[float]) -> tuple[float, ...]:
    if not all(share > 0 for share in of_subflows) or abs(sum(of_subflows) - 1) > ROUNDING:
        raise ValueError(f"{of_subflows} are no shares")
    return tuple(of_subflows)
