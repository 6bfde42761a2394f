"""Lines of the audit log, and their limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from structlog.testing import capture_logs

from controller.api.access import EVERYONE
from controller.api.audit import LINES, LINES_PER_PEER, LINES_PER_TENANT, MAX_PARTS, AuditLog, note, note_parts, noting
from controller.api.identities import Caller, Role

BLUE = Caller("trainers", Role.TENANT, "blue")


class Clock:
    """Clock for the time windows of the audit log; a window ends when the test calls ``end_window``."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def later(self, _: float, call: Callable[[], None]) -> None:
        self.waiting.append(call)

    def end_window(self) -> None:
        (call,) = self.waiting
        self.waiting.clear()
        call()


def written(record: Callable[[AuditLog, Clock], None]) -> list[Any]:
    clock = Clock()
    with capture_logs() as lines:
        record(AuditLog(clock.later), clock)
    return lines


def test_a_line_says_who_did_what_and_from_where() -> None:
    (line,) = written(lambda log, _: log.record(BLUE, "RegisterJob", "llama", "192.0.2.1:4000", "OK"))
    assert line == {
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


def test_a_call_is_noted_by_its_own_line_only() -> None:
    note(uid_ended="of no call")
    first = noting()
    note(uid_begun="a")
    second = noting()
    note(uid_begun="b", uid_ended="a")
    assert (first, second) == ({"uid_begun": "a"}, {"uid_begun": "b", "uid_ended": "a"})
    (line,) = written(lambda log, _: log.record(BLUE, "RegisterJob", "job", "unix", "OK", more=second))
    assert (line["uid_begun"], line["uid_ended"]) == ("b", "a")


def test_a_job_id_cannot_forge_a_line() -> None:
    job_id = "x\nevent=audit name=ops" + "y" * 1000
    (line,) = written(lambda log, _: log.record(None, "RegisterJob", job_id, "unix", "UNAUTHENTICATED", "no token"))
    assert line["job_id"].startswith(r"x\nevent=audit")
    assert len(line["job_id"]) <= 63
    assert line["why"] == "no token"
    assert "name" not in line


def test_refused_calls_of_one_host_have_a_limit_and_the_rest_is_counted() -> None:
    def record(log: AuditLog, clock: Clock) -> None:
        for port in range(100):
            log.record(None, "Replan", "", f"192.0.2.1:{port}", "UNAUTHENTICATED")
        clock.end_window()
        log.record(None, "Replan", "", "192.0.2.1:1", "UNAUTHENTICATED")
        clock.end_window()

    lines = written(record)
    assert [line.get("refused_calls_not_logged") for line in lines] == [None] * LINES_PER_PEER + [95, None]


def test_many_hosts_share_a_limit() -> None:
    def record(log: AuditLog, clock: Clock) -> None:
        for host in range(200):
            log.record(BLUE, "Replan", "", f"[2001:db8::{host:x}]:1", "PERMISSION_DENIED")
        clock.end_window()

    lines = written(record)
    assert len(lines) == LINES + 1
    assert lines[-1]["refused_calls_not_logged"] == 200 - LINES


def test_what_operators_do_is_never_left_out() -> None:
    def record(log: AuditLog, _: Clock) -> None:
        for _number in range(200):
            log.record(None, "Replan", "", "unix", "UNAUTHENTICATED")
            log.record(BLUE, "RegisterJob", "job", "unix", "OK")
            log.record(EVERYONE, "Replan", "", "unix", "OK")

    lines = written(record)
    assert sum(line["method"] == "Replan" and line["code"] == "OK" for line in lines) == 200
    assert len(lines) == 200 + LINES_PER_PEER + LINES_PER_TENANT


def test_what_one_tenant_does_has_a_limit_and_takes_no_lines_from_another() -> None:
    red = Caller("others", Role.TENANT, "red")

    def record(log: AuditLog, clock: Clock) -> None:
        for _number in range(100):
            log.record(BLUE, "UpdateJob", "job", "unix", "OK")
        log.record(red, "UpdateJob", "job", "unix", "OK")
        clock.end_window()
        log.record(BLUE, "UpdateJob", "job", "unix", "OK")

    lines = written(record)
    assert [line["tenant"] for line in lines] == ["blue"] * LINES_PER_TENANT + ["red", "blue", "blue"]
    assert lines[-2]["calls_not_logged"] == 100 - LINES_PER_TENANT


def test_parts_of_the_fabric_are_named_as_far_as_a_line_goes_and_as_text() -> None:
    """Switches choose the names of parts, and may put line breaks into them."""
    noted = noting()
    note_parts(["leaf1", "sp\nine2"])
    assert noted == {"parts": "leaf1 sp\\nine2"}
    note_parts(["leaf1"] * MAX_PARTS)
    assert noted["parts"].endswith("leaf1 leaf1")
    note_parts(["leaf1"] * (MAX_PARTS + 3))
    assert noted["parts"].endswith("leaf1 and 3 more")
