"""Work that the control loop saves when nothing has changed. Calls are counted, not timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from controller.core import job_statuses
from controller.core.messages import Reply, Tick
from controller.demand.watched_job import WatchedJob
from controller.fabric.host_discovery import MAX_QUESTIONS
from controller.fabric.messages import SendArpRequest
from controller.jobs.messages import DeregisterJob, RegisterJob, RenewLease, ReportIterations, SaveState
from controller.shared_map import Row
from controller.tables import flow_tables, pins
from signalbox.jobs.reports import IterationTime
from signalbox.jobs.spec import JobId
from tests.support.fake_fabric import FakeFabric, ring_job
from tests.support.late_answers import SlowSolver
from tests.support.three_rings import register, started

JOBS = 40
RINGS = [[f"10.77.{job}.{host}" for host in range(1, 5)] for job in range(JOBS)]


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each ``Row`` (a derived value) is computed, by the name of its function."""
    counts: Counter[str] = Counter()
    make = Row.__init__

    def counting(row: Row[Any, Any], function: Callable[..., Any], inputs: Callable[[], Any]) -> None:
        name = getattr(function, "__name__", type(function).__name__)

        def counted(*arguments: Any) -> Any:
            counts[name] += 1
            return function(*arguments)

        make(row, counted, inputs)

    monkeypatch.setattr(Row, "__init__", counting)
    return counts


def pending() -> FakeFabric:
    """Return a fabric with three running jobs, and many jobs on unknown hosts."""
    fabric = started(FakeFabric(), 0, 1, 2)
    for number, ring in enumerate(RINGS):
        fabric.send(RegisterJob(ring_job(f"pending{number}", ring)))
    fabric.run(5)
    assert len(fabric.status.jobs) == JOBS + 3
    return fabric


def test_a_heartbeat_and_a_report_derive_nothing_anew_and_wait_for_no_status(derived: Counter[str]) -> None:
    fabric = pending()
    before = fabric.status
    derived.clear()
    for job in ("job0", "pending7"):
        fabric.send(RenewLease(JobId(job)))
        fabric.send(ReportIterations(JobId(job), (IterationTime(1, 1.0, 0.5),)))
        fabric.send(RegisterJob(ring_job("pending7", RINGS[7])))
    assert not derived
    renewed = [reply for reply in fabric.replies if reply.value == 60.0]
    assert len(renewed) == 2
    assert not any(reply.after_status for reply in renewed)
    assert fabric.status.jobs is before.jobs
    assert before.jobs[JobId("job0")].iterations == 1, "whoever has the status reads the latest times"
    assert before.jobs[JobId("pending7")].lease_ends_at == fabric.now + 60


def test_ticks_while_jobs_wait_for_hosts_derive_nothing_and_ask_few_questions(derived: Counter[str]) -> None:
    fabric = pending()
    fabric.run(3)  # counters are evaluated for the first time
    fabric.status  # noqa: B018
    derived.clear()
    asked = []
    for _ in range(10):
        fabric.now += 0.1
        asked += [one for one in fabric.loop.handle([Tick()], fabric.now) if isinstance(one, SendArpRequest)]
    assert 0 < len(asked) <= MAX_QUESTIONS
    assert not derived.keys() - {"background", "Uncounted", "UncountedLinks", "capacities", "_problem", "Flows"}


def test_a_registration_looks_at_its_own_job_only(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = pending()
    fabric.status  # noqa: B018
    looked: Counter[str] = Counter()
    for owner, name in ((job_statuses, "_routes"), (job_statuses, "prediction_withheld"), (WatchedJob, "__init__")):
        _count(monkeypatch, looked, owner, name)
    fabric.send(RegisterJob(ring_job("another", ["10.78.0.1", "10.78.0.2"])))
    assert len(fabric.status.jobs) == JOBS + 4
    assert looked == {"_routes": 1, "prediction_withheld": 1, "__init__": 1}
    looked.clear()
    fabric.send(DeregisterJob(JobId("another")))
    assert len(fabric.status.jobs) == JOBS + 3
    assert not looked


def test_a_plan_for_one_job_makes_pins_of_that_job_only(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = started(FakeFabric(), 0, 1)
    made: Counter[str] = Counter()
    _count(monkeypatch, made, pins, "both_directions")
    _count(monkeypatch, made, flow_tables, "pin_rule")
    register(fabric, 2)
    fabric.run(3)
    job = fabric.status.jobs[JobId("job2")]
    assert job.state == "pinned"
    assert made["both_directions"] <= 2 * len(job.routes)
    assert made["pin_rule"] <= 4 * 2 * 2 * len(job.routes), "two directions, at two switches"


def test_pins_of_a_large_plan_come_into_force_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "AT_ONCE", 4)
    fabric = started(SlowSolver())
    register(fabric, 0, 1, 2)
    fabric.run(1)
    made: Counter[str] = Counter()
    _count(monkeypatch, made, pins, "both_directions")
    handle, portions = fabric.loop.handle, []

    def counted(*arguments: Any) -> Any:
        before = made.total()
        commands = handle(*arguments)
        portions.append(made.total() - before)
        return commands

    monkeypatch.setattr(fabric.loop, "handle", counted)
    fabric.solve()
    while fabric.loop.unfinished:
        fabric.send(Tick())
    fabric.run(1)
    assert {job.state for job in fabric.status.jobs.values()} == {"pinned"}
    assert max(portions) == 4, "a job's flows"
    assert sum(portions) == 12


def test_replies_to_changes_follow_the_status_that_shows_them_and_most_wait_for_no_rules() -> None:
    fabric = pending()
    fabric.send(RegisterJob(ring_job("new", ["10.0.1.1", "10.0.3.1"])))
    assert fabric.replies[-1].after_status
    job = fabric.loop.state.jobs.jobs[JobId("job0")]
    taken = fabric.loop.apply([RenewLease(job.id, owner=job.uid)], fabric.now)
    assert [type(command) for command in taken] == [Reply]
    leaving = fabric.loop.apply([DeregisterJob(job.id, owner=job.uid)], fabric.now)
    assert [type(command) for command in leaving] == [SaveState], "which its reply waits for"


def _count(monkeypatch: pytest.MonkeyPatch, counts: Counter[str], owner: Any, name: str) -> None:
    function = getattr(owner, name)

    def counted(*arguments: Any, **named: Any) -> Any:
        counts[name] += 1
        return function(*arguments, **named)

    monkeypatch.setattr(owner, name, counted)
