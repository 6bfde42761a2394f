"""The client's calls that change registered jobs, and how often they are repeated when others change the same job.

In: specs. Out: jobs, or errors as of ``signalbox.client.Client``, of which this is a part.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from google.protobuf.field_mask_pb2 import FieldMask

from signalbox.client_connection import ClientConnection
from signalbox.errors import ConcurrentUpdate
from signalbox.jobs.spec import JobSpec
from signalbox.mapping import path_in_proto
from signalbox.spec_messages import job_spec, spec_message
from signalbox.v1 import signalbox_pb2 as pb

UPDATE_TRIES = 12
"""Number of attempts at an update that others overtake. In each round one of the clients succeeds, so that as many as
this may update a job at the same moment."""

UPDATE_PAUSE_S = 0.02
"""Mean pause before the first repetition, in seconds; it grows by as much with each further one."""

Answer = TypeVar("Answer")


class UpdateCalls(ClientConnection):
    """A part of ``Client``, which has the other calls."""

    def update_job(
        self, spec: JobSpec, fields: Iterable[str] = (), lease_token: str | None = None, revision: int = 0
    ) -> pb.Job:
        """Change the spec of a registered job. ``fields``: of ``spec``, which to change; all when empty. ``revision``:
        change the job only if it still has this one; 0: whichever it has. An update of some fields without a revision
        is repeated when another update comes first. Raises ``NotFound``, ``WrongLeaseToken``, ``Conflict`` and
        ``HostNotAllowed`` as ``register_job``, and ``ConcurrentUpdate`` when the job has another revision, or other
        updates came first ``UPDATE_TRIES`` times."""
        request = self._update(spec, tuple(fields), lease_token, revision)
        response: pb.UpdateJobResponse = self._updated(self._jobs.UpdateJob, request, [request])
        return response.job

    def update_jobs(
        self,
        specs: Iterable[JobSpec],
        fields: Iterable[str] = (),
        lease_tokens: Mapping[str, str] = MappingProxyType({}),
        revisions: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[pb.Job, ...]:
        """Change the specs of several registered jobs at once, all or none; jobs may exchange hosts. ``fields``: of
        each spec, which to change; all when empty. ``lease_tokens``, ``revisions``: by job id. Returns the jobs in the
        order of ``specs``. Repeats and raises as ``update_job``; the error names the job at fault by its place:
        ``jobs[1]``."""
        names = tuple(fields)
        jobs = [
            self._update(spec, names, lease_tokens.get(spec.job_id), revisions.get(spec.job_id, 0)) for spec in specs
        ]
        response: pb.UpdateJobsResponse = self._updated(self._jobs.UpdateJobs, pb.UpdateJobsRequest(jobs=jobs), jobs)
        return tuple(response.jobs)

    def change_job(self, job_id: str, change: Callable[[JobSpec], JobSpec], lease_token: str | None = None) -> pb.Job:
        """Read a job, and announce what ``change`` makes of its spec, unless the job was updated meanwhile: then read
        and change it again. So what other clients change at the same time is kept. ``change`` may be called
        ``UPDATE_TRIES`` times. Raises as ``update_job``."""

        def attempt() -> pb.Job:
            job = self._call(self._jobs.GetJob, pb.GetJobRequest(job_id=job_id)).job
            return self.update_job(change(job_spec(job.spec)), (), lease_token, job.revision)

        return _repeated(attempt)

    def _updated(self, method: Callable[..., Any], request: Any, entries: Iterable[pb.UpdateJobRequest]) -> Any:
        """Repeat the call when others come first, unless that cannot help: a revision that is stale stays so."""
        if any(entry.revision for entry in entries):
            return self._call(method, request)
        return _repeated(lambda: self._call(method, request))

    def _update(
        self, spec: JobSpec, fields: Iterable[str], lease_token: str | None, revision: int
    ) -> pb.UpdateJobRequest:
        mask = FieldMask(paths=[path_in_proto(pb.JobSpec, name)[0] for name in fields])
        token = self._token(spec.job_id, lease_token)
        return pb.UpdateJobRequest(spec=spec_message(spec), update_mask=mask, lease_token=token, revision=revision)


def _repeated(attempt: Callable[[], Answer]) -> Answer:
    """Return what the first attempt returns that no other update came before. Raises ``ConcurrentUpdate`` of the last
    one."""
    for number in range(1, UPDATE_TRIES):
        try:
            return attempt()
        except ConcurrentUpdate:
            time.sleep(random.uniform(0.0, 2 * UPDATE_PAUSE_S * number))
    return attempt()
