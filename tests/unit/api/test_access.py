"""The table of callers and permitted calls is complete, and matches the proto file."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controller.alarms import Alarm
from controller.api.access import EVERYONE, RULES, may_see, own_alarms, own_ends, refuse_other_tenants
from controller.api.identities import Caller, Role
from controller.jobs.messages import EndReason, JobEnd
from signalbox.errors import NotFound
from signalbox.jobs.spec import JobId
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import AlarmKind

METHODS = {
    f"/{service.full_name}/{method.name}": method
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
CHANGES = {
    "RegisterJob",
    "UpdateJob",
    "UpdateJobs",
    "DeregisterJob",
    "RenewLease",
    "ReportIterations",
    "ReportConnections",
    "Replan",
    "SetMode",
    "Drain",
    "Undrain",
    "SilenceAlarms",
    "EndSilence",
    "ForgetParts",
}
BLUE = Caller("b", Role.TENANT, "blue")


def test_every_method_of_the_proto_file_has_a_rule() -> None:
    assert set(RULES) == set(METHODS)
    assert Role.TENANT not in RULES["/signalbox.v1.ControllerService/Explain"].roles


@pytest.mark.parametrize("method", METHODS)
def test_operators_may_call_everything_readers_what_changes_nothing_and_tenants_the_job_service(method: str) -> None:
    rule, name = RULES[method], method.rpartition("/")[2]
    assert Role.OPERATOR in rule.roles
    assert (Role.READER in rule.roles) == (name not in CHANGES)
    assert (Role.TENANT in rule.roles) == ("JobService" in method or name == "GetStatus")
    fields = METHODS[method].input_type.fields_by_name
    names_a_job = "job_id" in fields or "spec" in fields
    assert rule.of_job or not names_a_job or name == "RegisterJob"


def test_only_its_own_jobs_exist_for_a_tenant() -> None:
    status: Any = SimpleNamespace(
        jobs={"theirs": job("red"), "ours": job("blue"), "nobodys": job(""), "once_ours": job("red")},
        job_ends=(end("once_ours", "blue"), end("their_ended", "red")),
    )
    for job_id in ("ours", "once_ours"):
        refuse_other_tenants(BLUE, job_id, status)
    for job_id in ("theirs", "nobodys", "their_ended", "absent"):
        with pytest.raises(NotFound, match=f"there is no job '{job_id}'"):
            refuse_other_tenants(BLUE, job_id, status)
        for caller in (EVERYONE, Caller("r", Role.READER)):
            refuse_other_tenants(caller, job_id, status)
    assert own_ends(BLUE, status.job_ends) == status.job_ends[:1]
    assert own_ends(EVERYONE, status.job_ends) == status.job_ends
    assert [may_see(BLUE, tenant) for tenant in ("blue", "red", "")] == [True, False, False]
    assert may_see(EVERYONE, "blue")
    assert may_see(Caller("r", Role.READER), "blue")


def test_a_tenant_hears_of_alarms_of_its_own_jobs_only() -> None:
    ours, theirs = Alarm(AlarmKind.HOSTS_MISSING, "ours"), Alarm(AlarmKind.DEMAND_DIFFERS, "theirs")
    # RULES_REFUSED is about a switch, and a switch may have the name of a job.
    of_all = Alarm(AlarmKind.FLOWS_WITHOUT_PATH, "plan"), Alarm(AlarmKind.RULES_REFUSED, "ours")
    alarms = {alarm.key: alarm for alarm in (ours, theirs, *of_all)}
    status: Any = SimpleNamespace(jobs={"theirs": job("red"), "ours": job("blue")}, alarms=alarms)
    assert own_alarms(BLUE, status) == {ours.key: ours}
    assert own_alarms(Caller("r", Role.READER), status) == status.alarms


def end(job_id: str, tenant: str) -> JobEnd:
    return JobEnd(JobId(job_id), "uid", tenant, EndReason.DEREGISTERED, 0.0)


def job(tenant: str) -> SimpleNamespace:
    return SimpleNamespace(registration=SimpleNamespace(tenant=tenant))
