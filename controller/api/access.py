"""Who may call what: one rule per method of the API, and whose jobs a caller may see.

In: the role of a caller. Out: whether it may call a method at all; of a job, whether it exists for the caller. The
comment at the head of the proto file is the specification.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass

from controller.alarms import OF_JOBS, Alarm, AlarmKey
from controller.api.identities import Caller, Role
from controller.status import JobEnd, Status
from signalbox.errors import NotFound, no_such_job
from signalbox.jobs.spec import JobId

EVERYONE = Caller("", Role.OPERATOR)
"""Without configured identities every caller is an operator."""

CALLER: ContextVar[Caller] = ContextVar("caller", default=EVERYONE)
"""Whose call is handled."""

_ALL = frozenset(Role)
_JOB_CHANGES = frozenset({Role.OPERATOR, Role.TENANT})
_READS = frozenset({Role.OPERATOR, Role.READER})
_OPERATOR = frozenset({Role.OPERATOR})


@dataclass(frozen=True, slots=True)
class Rule:
    """``roles``: who may call the method. ``of_job``: the request names a job, which must exist for the caller.
    ``audited``: it changes what the controller does, so that every call of it has a line in the log."""

    roles: frozenset[Role]
    of_job: bool = False
    audited: bool = False


RULES: Mapping[str, Rule] = {
    # An id that another tenant has is ALREADY_EXISTS, so the request is not refused here.
    "/signalbox.v1.JobService/RegisterJob": Rule(_JOB_CHANGES, audited=True),
    "/signalbox.v1.JobService/GetJob": Rule(_ALL, of_job=True),
    "/signalbox.v1.JobService/ListJobs": Rule(_ALL),
    "/signalbox.v1.JobService/UpdateJob": Rule(_JOB_CHANGES, of_job=True, audited=True),
    "/signalbox.v1.JobService/UpdateJobs": Rule(_JOB_CHANGES, of_job=True, audited=True),
    "/signalbox.v1.JobService/DeregisterJob": Rule(_JOB_CHANGES, of_job=True, audited=True),
    # Of these three a job may send many a minute, and they say nothing of others: only their refusals have a line.
    "/signalbox.v1.JobService/RenewLease": Rule(_JOB_CHANGES, of_job=True),
    "/signalbox.v1.JobService/ReportIterations": Rule(_JOB_CHANGES, of_job=True),
    "/signalbox.v1.JobService/ReportConnections": Rule(_JOB_CHANGES, of_job=True),
    "/signalbox.v1.JobService/WatchRoutes": Rule(_ALL, of_job=True),
    "/signalbox.v1.JobService/WatchJobs": Rule(_ALL),
    "/signalbox.v1.JobService/ListRoutes": Rule(_ALL),
    "/signalbox.v1.ControllerService/GetFabric": Rule(_READS),
    "/signalbox.v1.ControllerService/GetPlan": Rule(_READS),
    "/signalbox.v1.ControllerService/GetStatus": Rule(_ALL),
    "/signalbox.v1.ControllerService/Replan": Rule(_OPERATOR, audited=True),
    "/signalbox.v1.ControllerService/SetStrategy": Rule(_OPERATOR, audited=True),
    "/signalbox.v1.ControllerService/Explain": Rule(_READS, of_job=True),
    "/signalbox.v1.ControllerService/WhatIf": Rule(_READS),
    "/signalbox.v1.ControllerService/GetPlanProof": Rule(_READS),
    "/signalbox.v1.ControllerService/WatchFabric": Rule(_READS),
    "/signalbox.v1.ControllerService/WatchPlan": Rule(_READS),
    "/signalbox.v1.ControllerService/WatchAlarms": Rule(_READS),
    "/signalbox.v1.ControllerService/SilenceAlarms": Rule(_OPERATOR, audited=True),
    "/signalbox.v1.ControllerService/EndSilence": Rule(_OPERATOR, audited=True),
    "/signalbox.v1.ControllerService/ListEvents": Rule(_READS),
    "/signalbox.v1.ControllerService/WatchEvents": Rule(_READS),
    "/signalbox.v1.ControllerService/Drain": Rule(_OPERATOR, audited=True),
    "/signalbox.v1.ControllerService/Undrain": Rule(_OPERATOR, audited=True),
    "/signalbox.v1.ControllerService/ListRules": Rule(_READS),
    "/signalbox.v1.ControllerService/ForgetParts": Rule(_OPERATOR, audited=True),
}
"""A method that is not here is refused to everyone."""

OPEN_TO_ALL = ("/grpc.health.v1.Health/", "/grpc.reflection.v1alpha.ServerReflection/")
"""They tell whether the server runs and what the proto file says, nothing of jobs or the fabric."""


def may_see(caller: Caller, tenant: str) -> bool:
    """Whether the caller may see jobs of the tenant, empty for a job of none."""
    return caller.role is not Role.TENANT or caller.tenant == tenant


def only_tenant(caller: Caller) -> str | None:
    """The one whose jobs alone the caller may see; None: it may see all."""
    return caller.tenant if caller.role is Role.TENANT else None


def own_ends(caller: Caller, ends: tuple[JobEnd, ...]) -> tuple[JobEnd, ...]:
    """Those that the caller may hear of."""
    return tuple(end for end in ends if may_see(caller, end.tenant)) if caller.role is Role.TENANT else ends


def own_alarms(caller: Caller, status: Status) -> Mapping[AlarmKey, Alarm]:
    """Those that the caller may hear of: a tenant those of its jobs. Others may name its neighbours' addresses."""
    if caller.role is not Role.TENANT:
        return status.alarms
    own = {key for key, job in status.jobs.items() if job.registration.tenant == caller.tenant}
    return {key: alarm for key, alarm in status.alarms.items() if alarm.kind in OF_JOBS and alarm.subject in own}


class OtherTenants(NotFound):
    """Another tenant has the job. The caller is told what it would be told of none; the audit log has a line."""


def refuse_other_tenants(caller: Caller, job_id: str, status: Status) -> None:
    """Raises ``NotFound`` when the job is another tenant's, in the words for a job that does not exist; so too for one
    that has ended. A tenant that had a job of this id itself may go on: it learns how that ended."""
    if caller.role is not Role.TENANT:
        return
    job = status.jobs.get(JobId(job_id))
    if job is not None and job.registration.tenant == caller.tenant:
        return
    if not any(end.job_id == job_id and end.tenant == caller.tenant for end in status.job_ends):
        raise no_such_job(job_id) if job is None else OtherTenants(str(no_such_job(job_id)), about={"jobId": job_id})
