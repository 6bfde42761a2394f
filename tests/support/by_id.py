"""Jobs and registrations by id, as the controller keeps them."""

from typing import Protocol, TypeVar

from controller.jobs.messages import Registration
from signalbox.jobs.spec import JobId


class _WithId(Protocol):
    @property
    def id(self) -> JobId: ...


Job = TypeVar("Job", bound=_WithId)


def by_id(*jobs: Job) -> dict[JobId, Job]:
    return {job.id: job for job in jobs}


def registered(*registrations: Registration) -> dict[JobId, Registration]:
    return {registration.job_id: registration for registration in registrations}
