"""How registrations of jobs ended.

Owns the latest ends. In: an end when it happens; whether it is certain, which a deregistration is when it is on disk;
after a restart those that were saved. Out: how a registration ended, for its owner and for who repeats its request; the
certain ends, for all; those that a restart should know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile
from types import MappingProxyType

from controller.shared_map import SharedMap, updated
from signalbox.errors import Gone, NotFound, cut, no_such_job
from signalbox.jobs.spec import JobId

MAX_ENDS = 10_000
"""So many are kept."""
MAX_SAVED = 1000
"""And so many of them on disk."""


class EndReason(StrEnum):
    """``taken_over``: by a new registration of the same job."""

    DEREGISTERED = "deregistered"
    LEASE_RAN_OUT = "lease_ran_out"
    TAKEN_OVER = "taken_over"


@dataclass(frozen=True, slots=True)
class JobEnd:
    """``ended_at``: seconds since 1970. ``request_id``: of the request that made the registration, empty without."""

    job_id: JobId
    uid: str
    tenant: str
    reason: EndReason
    ended_at: float
    request_id: str = field(default="", repr=False)

    def error(self, id_in_use: bool = False) -> NotFound:
        """The answer to a call for the registration. ``id_in_use``: another one has its id."""
        text, reason = _WORDS[self.reason]
        more = "; another registration has its id now" if id_in_use and self.reason is not EndReason.TAKEN_OVER else ""
        return NotFound(text.format(job=self.job_id) + more, reason, {"jobId": self.job_id})


_WORDS = {
    EndReason.DEREGISTERED: ("job '{job}' was deregistered", Gone.JOB_DEREGISTERED),
    EndReason.LEASE_RAN_OUT: (
        "the lease of job '{job}' ran out; register it again with a new request_id",
        Gone.LEASE_RAN_OUT,
    ),
    EndReason.TAKEN_OVER: ("job '{job}' was taken over by another registration", Gone.JOB_TAKEN_OVER),
}


class Ends:
    """``totals``: of all that were certain since the start. ``saved``: what a restart should know, by uid: the latest,
    also those that are not certain yet, which what is saved makes them."""

    def __init__(self) -> None:
        self._certain: deque[JobEnd] = deque(maxlen=MAX_ENDS)
        self._snapshot: tuple[JobEnd, ...] | None = ()
        self.totals: Mapping[EndReason, int] = MappingProxyType(dict.fromkeys(EndReason, 0))
        self._of_uid: dict[str, JobEnd] = {}
        self._latest: dict[JobId, str] = {}
        self._of_request: dict[tuple[JobId, str, str], JobEnd] = {}
        self.saved: Mapping[str, JobEnd] = SharedMap()
        self._to_save = dict[str, None]()

    def add(self, end: JobEnd) -> None:
        """The registration has ended, and may come back as long as that is not certain."""
        self._of_uid[end.uid] = end
        if end.request_id:
            self._of_request[_request(end)] = end
        self._latest[end.job_id] = end.uid
        self.saved, self._to_save[end.uid] = updated(self.saved, {end.uid: end}), None
        if len(self._to_save) > MAX_SAVED:
            self._save_no_more(next(iter(self._to_save)))
        if len(self._of_uid) > MAX_ENDS:
            self._forget(next(iter(self._of_uid)))

    def take_back(self, uid: str) -> None:
        """The registration goes on."""
        if uid in self._of_uid:
            self._forget(uid)

    def confirm(self, *ends: JobEnd) -> None:
        """These are certain."""
        self._certain.extend(ends)
        self._snapshot = None
        totals = dict(self.totals)
        for end in ends:
            totals[end.reason] += 1
        self.totals = MappingProxyType(totals)

    def take_saved(self, ends: Iterable[JobEnd]) -> None:
        """Those of before a restart, oldest first."""
        for end in ends:
            self.add(end)
            self._certain.append(end)
        self._snapshot = None

    @property
    def certain(self) -> tuple[JobEnd, ...]:
        """The latest, oldest first; the same tuple as before when there are no more."""
        if self._snapshot is None:
            self._snapshot = tuple(self._certain)
        return self._snapshot

    def of(self, job_id: JobId, uid: str | None) -> JobEnd | None:
        """How this registration of the job ended."""
        end = self._of_uid.get(uid) if uid else None
        return end if end and end.job_id == job_id else None

    def of_request(self, job_id: JobId, tenant: str, request_id: str) -> JobEnd | None:
        """How the registration ended that this request has made; ``tenant``: the caller's."""
        return self._of_request.get((job_id, tenant, request_id))

    def latest(self, job_id: JobId) -> JobEnd | None:
        """How the job's latest registration that has ended did so."""
        return self.of(job_id, self._latest.get(job_id))

    def _save_no_more(self, uid: str) -> None:
        if uid in self._to_save:
            del self._to_save[uid]
            self.saved = updated(self.saved, {uid: None})

    def _forget(self, uid: str) -> None:
        self._save_no_more(uid)
        end = self._of_uid.pop(uid)
        self._of_request.pop(_request(end), None)
        if self._latest.get(end.job_id) == uid:
            del self._latest[end.job_id]


def _request(end: JobEnd) -> tuple[JobId, str, str]:
    return end.job_id, end.tenant, end.request_id


def not_found(ends: tuple[JobEnd, ...], job_id: JobId, uid: str | None, id_in_use: bool) -> NotFound:
    """The answer to a call for a registration that is not there, None: for any of the job. It says how it ended, or the
    latest that the job had. ``ends``: oldest first. ``id_in_use``: another registration has its id."""
    of_job = (end for end in reversed(ends) if end.job_id == job_id and uid in (None, end.uid))
    end = next(of_job, None)
    if end:
        return end.error(id_in_use)
    if uid and id_in_use:
        text = f"this registration of job '{cut(job_id)}' is not known; another one has its id now"
        return NotFound(text, about={"jobId": job_id})
    return no_such_job(job_id)


def ends_since(before: tuple[JobEnd, ...], now: tuple[JobEnd, ...]) -> tuple[JobEnd, ...]:
    """Those that were added since, as far as they are kept."""
    last = before[-1] if before else None
    new = list(takewhile(lambda end: end is not last, reversed(now)))
    return tuple(reversed(new))
