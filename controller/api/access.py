"""Access rules: the roles that may call each method of the API, and the jobs that a caller may see.

The comment at the head of the proto file is the specification.
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
"""Caller that every call has if no identities are configured: an operator."""

CALLER: ContextVar[Caller] = ContextVar("caller", default=EVERYONE)
"""Caller of the call that is being handled."""

_ALL = frozenset(Role)
_JOB_CHANGES = frozenset({Role.OPERATOR, Role.TENANT})
_READS = frozenset({Role.OPERATOR, Role.READER})
_OPERATOR = frozenset({Role.OPERATOR})


@dataclass(frozen=True, slots=True)
class Rule:
    """Access rule of one method.

    ``roles``: roles that may call the method. ``of_job``: whether the request names jobs; a tenant may name only its
    own jobs. ``audited``: whether each call has a line in the audit log, because the method changes what the controller
    does."""

    roles: frozenset[Role]
    of_job: bool = False
    audited: bool = False


RULES: Mapping[str, Rule] = {
    # RegisterJob names a job that need not exist yet; with the id of another tenant's job it ends with ALREADY_EXISTS.
    "/signalbox.v1.JobService/RegisterJob": Rule(_JOB_CHANGES, audited=True),
    "/signalbox.v1.JobService/GetJob": Rule(_ALL, of_job=True),
    "/signalbox.v1.JobService/ListJobs": Rule(_ALL),
    "/signalbox.v1.JobService/UpdateJob": Rule(_JOB_CHANGES, of_job=True, audited=True),
    "/signalbox.v1.JobService/UpdateJobs": Rule(_JOB_CHANGES, of_job=True, audited=True),
    "/signalbox.v1.JobService/DeregisterJob": Rule(_JOB_CHANGES, of_job=True, audited=True),
    # A job may make many calls of these three methods a minute, and they affect no other job: only refused calls have
    # a line in the audit log.
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
    "/signalbox.v1.ControllerService/SetMode": Rule(_OPERATOR, audited=True),
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
    "/signalbox.v1.ControllerService/ListMembers": Rule(_READS),
    "/signalbox.v1.ControllerService/DrainMember": Rule(_OPERATOR, audited=True),
    "/signalbox.v1.ControllerService/UndrainMember": Rule(_OPERATOR, audited=True),
    "/signalbox.v1.ControllerService/ForgetMember": Rule(_OPERATOR, audited=True),
}
"""Rule of each method; a method without a rule is refused to everyone."""

OPEN_TO_ALL = ("/grpc.health.v1.Health/", "/grpc.reflection.v1alpha.ServerReflection/")
"""Methods that everyone may call, and that have no rule: health checks and reflection. They show neither jobs nor the
fabric."""


def may_see(caller: Caller, tenant: str) -> bool:
    """Return whether the caller may see jobs of the tenant; ``tenant`` is empty for a job without one."""
    return caller.role is not Role.TENANT or caller.tenant == tenant


def only_tenant(caller: Caller) -> str | None:
    """Return the only tenant whose jobs the caller may see; None when it may see all jobs."""
    return caller.tenant if caller.role is Role.TENANT else None


def own_ends(caller: Caller, ends: tuple[JobEnd, ...]) -> tuple[JobEnd, ...]:
    """Return the ended jobs that the caller may see."""
    return tuple(end for end in ends if may_see(caller, end.tenant)) if caller.role is Role.TENANT else ends


def own_alarms(caller: Caller, status: Status) -> Mapping[AlarmKey, Alarm]:
    """Return the alarms that the caller may see: a tenant sees only alarms of its own jobs.

    Other alarms may name the addresses of other tenants' hosts."""
    if caller.role is not Role.TENANT:
        return status.alarms
    own = {key for key, job in status.jobs.items() if job.registration.tenant == caller.tenant}
    return {key: alarm for key, alarm in status.alarms.items() if alarm.kind in OF_JOBS and alarm.subject in own}


class OtherTenants(NotFound):
    """Refusal to show a job of another tenant.

    The caller receives the same error as for an unknown job; the audit log records that the job exists."""


def refuse_other_tenants(caller: Caller, job_id: str, status: Status) -> None:
    """Raise ``NotFound`` if the caller is a tenant that has never had a job with this id.

    The error does not reveal whether another tenant has such a job. A tenant whose own job has ended is not refused, so
    that the tenant can learn how the job ended."""
    if caller.role is not Role.TENANT:
        return
    job = status.jobs.get(JobId(job_id))
    if job is not None and job.registration.tenant == caller.tenant:
        return
    if not any(end.job_id == job_id and end.tenant == caller.tenant for end in status.job_ends):
        raise no_such_job(job_id) if job is None else OtherTenants(str(no_such_job(job_id)), about={"jobId": job_id})
