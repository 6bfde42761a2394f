"""Ends of registrations of jobs.

``Ends`` owns the latest ends. In: each end when it happens, and again when it is final; after a restart, the saved
ends. A deregistration is final when it is on disk. Out: the end of a registration, for its owner and for a client that
repeats its request; the final ends, for everybody; and the ends to save for a restart.
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
"""Largest number of ends that are kept."""
MAX_SAVED = 1000
"""Largest number of ends that are kept on disk."""


class EndReason(StrEnum):
    """Reason why a registration ended; ``taken_over``: a new registration of the same job has replaced it."""

    DEREGISTERED = "deregistered"
    LEASE_RAN_OUT = "lease_ran_out"
    TAKEN_OVER = "taken_over"


@dataclass(frozen=True, slots=True)
class JobEnd:
    """End of a registration."""

    job_id: JobId
    uid: str
    tenant: str
    reason: EndReason
    ended_at: float
    """Time of the end in seconds since 1970."""
    request_id: str = field(default="", repr=False)
    """Id of the request that made the registration; empty if it had none."""

    def error(self, id_in_use: bool = False) -> NotFound:
        """Return the error for a call about this registration.

        ``id_in_use``: whether another registration has its id."""
        text, reason = _WORDS[self.reason]
        more = "; another registration has the id now" if id_in_use and self.reason is not EndReason.TAKEN_OVER else ""
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
    """Latest ends of registrations."""

    def __init__(self) -> None:
        self._certain: deque[JobEnd] = deque(maxlen=MAX_ENDS)
        self._snapshot: tuple[JobEnd, ...] | None = ()
        self.totals: Mapping[EndReason, int] = MappingProxyType(dict.fromkeys(EndReason, 0))
        """Number of final ends since the start, by reason."""
        self._of_uid: dict[str, JobEnd] = {}
        self._latest: dict[JobId, str] = {}
        self._of_request: dict[tuple[JobId, str, str], JobEnd] = {}
        self.saved: Mapping[str, JobEnd] = SharedMap()
        """Ends to save for a restart, by uid, including ends that become final only when they are saved."""
        self._to_save = dict[str, None]()

    def add(self, end: JobEnd) -> None:
        """Record that a registration has ended; until the end is final, the registration may be restored."""
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
        """Forget an end, because the registration continues."""
        if uid in self._of_uid:
            self._forget(uid)

    def confirm(self, *ends: JobEnd) -> None:
        """Mark these ends as final."""
        self._certain.extend(ends)
        self._snapshot = None
        totals = dict(self.totals)
        for end in ends:
            totals[end.reason] += 1
        self.totals = MappingProxyType(totals)

    def take_saved(self, ends: Iterable[JobEnd]) -> None:
        """Record the ends from before a restart, oldest first."""
        for end in ends:
            self.add(end)
            self._certain.append(end)
        self._snapshot = None

    @property
    def certain(self) -> tuple[JobEnd, ...]:
        """Latest final ends, oldest first; the same tuple until another end is final."""
        if self._snapshot is None:
            self._snapshot = tuple(self._certain)
        return self._snapshot

    def of(self, job_id: JobId, uid: str | None) -> JobEnd | None:
        """Return the end of the registration ``uid`` of the job; None if it is not known to have ended."""
        end = self._of_uid.get(uid) if uid else None
        return end if end and end.job_id == job_id else None

    def of_request(self, job_id: JobId, tenant: str, request_id: str) -> JobEnd | None:
        """Return the end of the registration that this request of the tenant made."""
        return self._of_request.get((job_id, tenant, request_id))

    def latest(self, job_id: JobId) -> JobEnd | None:
        """Return the end of the job's latest registration that has ended."""
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
    """Return the error for a call about a missing registration; ``uid`` None means any registration of the job.

    The error tells how the registration, or the latest one of the job, ended. ``ends``: oldest first. ``id_in_use``:
    whether another registration has the id."""
    of_job = (end for end in reversed(ends) if end.job_id == job_id and uid in (None, end.uid))
    end = next(of_job, None)
    if end:
        return end.error(id_in_use)
    if uid and id_in_use:
        text = f"this registration of job '{cut(job_id)}' is not known; another registration has the id now"
        return NotFound(text, about={"jobId": job_id})
    return no_such_job(job_id)


def ends_since(before: tuple[JobEnd, ...], now: tuple[JobEnd, ...]) -> tuple[JobEnd, ...]:
    """Return the ends in ``now`` that follow the last end in ``before``; all ends if that one is not kept any more."""
    last = before[-1] if before else None
    new = list(takewhile(lambda end: end is not last, reversed(now)))
    return tuple(reversed(new))
