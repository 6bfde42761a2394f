"""Jobs that the controller has acknowledged and must therefore have, now and after a restart.

The input is cases and their outcomes, in order. The result is a list of differences between the acknowledged jobs and
the controller's jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from benchmarks.api_requests.cases import Case
from benchmarks.api_requests.methods import METHODS
from benchmarks.api_requests.sending import Outcome
from signalbox.v1 import signalbox_pb2 as pb

SHORT_LEASE_S = 600
"""Seconds: a shorter lease may expire during the run, so that its job need not exist at the end."""

_CHANGES = {f"/signalbox.v1.JobService/{name}" for name in ("RegisterJob", "UpdateJob", "UpdateJobs", "DeregisterJob")}
_UNDECIDED = (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)


class Ledger:
    """Acknowledged jobs by id. ``undecided``: ids of jobs that may or may not exist, and whose spec is unknown."""

    def __init__(self) -> None:
        self.jobs: dict[str, pb.Job] = {}
        self.undecided: set[str] = set()

    def record(self, case: Case, outcome: Outcome) -> None:
        if case.path not in _CHANGES:
            return
        request = _request(case)
        job_ids = _job_ids(request)
        if job_ids and outcome.code in _UNDECIDED:
            self._open(job_ids)
        elif outcome.code is grpc.StatusCode.OK and isinstance(request, pb.DeregisterJobRequest):
            self._deregistered(request)
        elif outcome.code is grpc.StatusCode.OK:
            for response in outcome.responses:
                if isinstance(response, pb.RegisterJobResponse | pb.UpdateJobResponse):
                    self._keep(response.job)
                elif isinstance(response, pb.UpdateJobsResponse):
                    for job in response.jobs:
                        self._keep(job)

    def open(self, case: Case) -> None:
        """Record a request that was sent and whose answer is unknown."""
        if case.path in _CHANGES:
            self._open(_job_ids(_request(case)))

    def _open(self, job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            self.jobs.pop(job_id, None)
            self.undecided.add(job_id)

    def _deregistered(self, request: pb.DeregisterJobRequest) -> None:
        """Record a successful deregistration.

        With ``force``, or without a token, the job with this id has ended. Otherwise the job with the token has ended,
        possibly earlier, and the id may belong to a newer job. A token begins with the uid of its job."""
        job = self.jobs.get(request.job_id)
        if request.force or not request.lease_token:
            self.jobs.pop(request.job_id, None)
            self.undecided.discard(request.job_id)
        elif job and request.lease_token.startswith(f"{job.uid}."):
            del self.jobs[request.job_id]

    def _keep(self, job: pb.Job) -> None:
        job_id = job.spec.job_id
        self.jobs.pop(job_id, None)
        self.undecided.discard(job_id)
        if job.spec.lease.seconds < SHORT_LEASE_S:
            self.undecided.add(job_id)
        else:
            self.jobs[job_id] = job

    def differences(self, found: Mapping[str, pb.Job]) -> Iterator[str]:
        """Yield a sentence per difference from the acknowledged jobs. ``found``: the controller's jobs, by id."""
        for job_id, job in self.jobs.items():
            now = found.get(job_id)
            if now is None:
                yield f"job '{job_id}' was acknowledged, but the controller does not list it"
            elif now.uid != job.uid:
                yield f"job '{job_id}' has the uid {now.uid}, not {job.uid}"
            elif now.spec != job.spec:
                yield f"job '{job_id}' has another spec than the acknowledged one"
        for job_id in found.keys() - self.jobs.keys() - self.undecided:
            yield f"job '{job_id}' is listed, but was not registered or was deregistered"


def _request(case: Case) -> Any:
    """Return the request, or None when it cannot be parsed."""
    try:
        return METHODS[case.path].request.FromString(case.messages[0] if case.messages else b"")
    except DecodeError:
        return None


def _job_ids(request: Any) -> list[str]:
    """Return the ids of the jobs that a request names."""
    if request is None:
        return []
    entries = request.jobs if hasattr(request, "jobs") else [request]
    found = (str(entry.spec.job_id if hasattr(entry, "spec") else entry.job_id) for entry in entries)
    return [job_id for job_id in found if job_id]
