"""The table of callers and permitted calls, which matches the proto file, and the lines of the audit log."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from controller.alarms import Alarm
from controller.api.access import EVERYONE, RULES, may_see, own_alarms, own_ends, refuse_other_tenants
from controller.api.audit import LINES, LINES_PER_PEER, LINES_PER_TENANT, MAX_PARTS, AuditLog, note, note_parts, noting
from controller.api.identities import Caller, Role
from controller.jobs.messages import EndReason, JobEnd
from signalbox.errors import NotFound
from signalbox.jobs.spec import JobId
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import AlarmKind
from tests.support.captured_logs import captured_logs

METHODS = {
    f"/{service.full_name}/{method.name}": method
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
CHANGES = {
    "RegisterJob", "UpdateJob", "UpdateJobs", "DeregisterJob", "RenewLease", "ReportIterations", "ReportConnections",
    "Replan", "SetMode", "Drain", "Undrain", "SilenceAlarms", "EndSilence", "ForgetParts",
    "DrainMember", "UndrainMember", "ForgetMember",
}  # fmt: skip
BLUE = Caller("trainers", Role.TENANT, "blue")


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


class Audit:
    """Audit log, and the lines that it has written; its time windows end when the test calls ``end_window``."""

    def __init__(self, lines: list[Any]) -> None:
        self.lines = lines
        self._waiting: list[Callable[[], None]] = []
        self._log = AuditLog(lambda _, call: self._waiting.append(call))

    def record(self, caller: Caller | None, method: str, job_id: str = "", peer: str = "unix", *rest: Any) -> None:
        self._log.record(caller, method, job_id, peer, *(rest or ("OK",)))

    def end_window(self) -> None:
        (call,) = self._waiting
        self._waiting.clear()
        call()


@pytest.fixture
def audit() -> Iterator[Audit]:
    with captured_logs() as lines:
        yield Audit(lines)


def test_a_line_says_who_did_what_and_from_where(audit: Audit) -> None:
    audit.record(BLUE, "RegisterJob", "llama", "192.0.2.1:4000")
    assert audit.lines == [
        {
            "event": "audit",
            "log_level": "info",
            "name": "trainers",
            "role": "tenant",
            "tenant": "blue",
            "method": "RegisterJob",
            "job_id": "llama",
            "peer": "192.0.2.1:4000",
            "code": "OK",
        }
    ]


def test_a_call_is_noted_by_its_own_line_only(audit: Audit) -> None:
    note(uid_ended="of no call")
    first = noting()
    note(uid_begun="a")
    second = noting()
    note(uid_begun="b", uid_ended="a")
    assert (first, second) == ({"uid_begun": "a"}, {"uid_begun": "b", "uid_ended": "a"})
    audit.record(BLUE, "RegisterJob", "job", "unix", "OK", "", second)
    assert (audit.lines[0]["uid_begun"], audit.lines[0]["uid_ended"]) == ("b", "a")


def test_a_job_id_cannot_forge_a_line(audit: Audit) -> None:
    job_id = "x\nevent=audit name=ops" + "y" * 1000
    audit.record(None, "RegisterJob", job_id, "unix", "UNAUTHENTICATED", "no token")
    (line,) = audit.lines
    assert line["job_id"].startswith(r"x\nevent=audit")
    assert len(line["job_id"]) <= 63
    assert line["why"] == "no token"
    assert "name" not in line


def test_refused_calls_of_one_host_have_a_limit_and_the_rest_is_counted(audit: Audit) -> None:
    for port in range(100):
        audit.record(None, "Replan", "", f"192.0.2.1:{port}", "UNAUTHENTICATED")
    audit.end_window()
    audit.record(None, "Replan", "", "192.0.2.1:1", "UNAUTHENTICATED")
    audit.end_window()
    found = [line.get("refused_calls_not_logged") for line in audit.lines]
    assert found == [None] * LINES_PER_PEER + [95, None]


def test_many_hosts_share_a_limit(audit: Audit) -> None:
    for host in range(200):
        audit.record(BLUE, "Replan", "", f"[2001:db8::{host:x}]:1", "PERMISSION_DENIED")
    audit.end_window()
    assert len(audit.lines) == LINES + 1
    assert audit.lines[-1]["refused_calls_not_logged"] == 200 - LINES


def test_what_operators_do_is_never_left_out(audit: Audit) -> None:
    for _ in range(200):
        audit.record(None, "Replan", "", "unix", "UNAUTHENTICATED")
        audit.record(BLUE, "RegisterJob", "job")
        audit.record(EVERYONE, "Replan")
    assert sum(line["method"] == "Replan" and line["code"] == "OK" for line in audit.lines) == 200
    assert len(audit.lines) == 200 + LINES_PER_PEER + LINES_PER_TENANT


def test_what_one_tenant_does_has_a_limit_and_takes_no_lines_from_another(audit: Audit) -> None:
    for _ in range(100):
        audit.record(BLUE, "UpdateJob", "job")
    audit.record(Caller("others", Role.TENANT, "red"), "UpdateJob", "job")
    audit.end_window()
    audit.record(BLUE, "UpdateJob", "job")
    assert [line["tenant"] for line in audit.lines] == ["blue"] * LINES_PER_TENANT + ["red", "blue", "blue"]
    assert audit.lines[-2]["calls_not_logged"] == 100 - LINES_PER_TENANT


def test_parts_of_the_fabric_are_named_as_far_as_a_line_goes_and_as_text() -> None:
    """Switches choose the names of parts, and may put line breaks into them."""
    noted = noting()
    note_parts(["leaf1", "sp\nine2"])
    assert noted == {"parts": "leaf1 sp\\nine2"}
    note_parts(["leaf1"] * MAX_PARTS)
    assert noted["parts"].endswith("leaf1 leaf1")
    note_parts(["leaf1"] * (MAX_PARTS + 3))
    assert noted["parts"].endswith("leaf1 and 3 more")
