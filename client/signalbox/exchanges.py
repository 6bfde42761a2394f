"""Update several jobs of one process jointly when each needs hosts that another job of the process releases."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from signalbox.errors import (
    Conflict,
    Exhausted,
    HostNotAllowed,
    InvalidInput,
    NotFound,
    SignalboxError,
    WrongLeaseToken,
)
from signalbox.jobs.spec import JobSpec

MAX_JOBS = 256
"""Largest number of jobs in one request."""

NO_SUCH_METHOD = "NO_SUCH_METHOD"
"""Reason in the error of a controller that has no ``UpdateJobs``."""


class Change(NamedTuple):
    """New spec of a job, and the lease token of its registration."""

    spec: JobSpec
    lease_token: str


def update_with_others(client: Any, change: Change, conflict: Conflict, others: Sequence[Change]) -> tuple[str, ...]:
    """Update a job together with as many of ``others`` as possible, after its update alone was refused.

    ``client`` has the methods of ``signalbox.client.Client``. ``conflict`` is the error of the update alone. Returns
    the ids of the other jobs updated. Raises ``conflict`` when no joint update is accepted, and other errors of the
    call, such as ``Unreachable``."""
    left = [change, *others[: MAX_JOBS - 1]]
    while True:
        tokens = {one.spec.job_id: one.lease_token for one in left}
        try:
            client.update_jobs([one.spec for one in left], lease_tokens=tokens)
        except (Conflict, Exhausted, HostNotAllowed, InvalidInput, NotFound, WrongLeaseToken) as error:
            if not (at_fault := entry_at_fault(error)):
                raise conflict from None
            del left[at_fault]
        except SignalboxError as error:
            raise conflict if error.reason == NO_SUCH_METHOD else error from None
        else:
            return tuple(one.spec.job_id for one in left[1:])


def entry_at_fault(error: SignalboxError) -> int | None:
    """Return the position of the request's entry that the error is about; None when it is about no entry."""
    paths = [problem.path for problem in error.problems] if isinstance(error, InvalidInput) else []
    found = (re.match(r"jobs\[(\d+)\]", path) for path in (*paths, error.about.get("field", "")))
    return next((int(match[1]) for match in found if match), None)
