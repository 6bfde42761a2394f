"""A feed does its work once for all of its watchers, and watchers get the same rows as callers.

Values that change all the time do not count as changes."""

import asyncio
import concurrent.futures
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from controller.alarms import Alarm
from controller.api import convert, convert_fabric, convert_plan, watches
from controller.api.watch_rows import AlarmRows, FabricRows, JobRows, PlanRows
from controller.api.watch_table import Reader, Rows, WatchTable
from controller.api.watches import LARGE_BYTES, LARGE_TOGETHER, Feed, LargeMessages, Publications
from controller.demand.job_demand import DemandSource, Difference, Finding
from controller.fabric.topology import LinkId
from controller.status import EndReason, JobEnd, LinkStatus, Status, StatusBoard
from signalbox.jobs.spec import JobId
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.words import AlarmKind
from tests.support.status_example import UP1
from tests.support.status_example import status as example_status


class Counted(Rows[str, int]):
    """Kind of rows with one row, the number of plans; it counts how often the row is read and encoded."""

    def __init__(self) -> None:
        self.asked = 0
        self.encoded = 0

    def of(self, status: Status) -> Mapping[str, int]:
        self.asked += 1
        if status.plans_total == 13:
            raise ZeroDivisionError("a defect")
        return {"plans": status.plans_total}

    def gone(self, *_: object) -> bytes:
        return b""

    def row(self, _: str, value: int) -> bytes:
        self.encoded += 1
        return pb.WatchPlanResponse(plan=pb.Plan(generation=value)).SerializeToString()


class Watcher:
    """Watcher that records messages, and leaves after a number of them."""

    def __init__(self, feed: Feed[str, int], messages: int = 1) -> None:
        self.received: list[bytes] = []
        self._feed = feed
        self._messages = messages

    async def watch(self) -> None:
        with pytest.raises(EOFError):
            await self._feed.watch("", None, self._write, self._wait)

    async def _write(self, message: bytes) -> None:
        self.received.append(message)

    async def _wait(self, event: asyncio.Event) -> None:
        if len(self.received) >= self._messages:
            raise EOFError
        await event.wait()


def test_watchers_that_are_woken_in_turn_bring_the_table_up_to_date_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "SPACING_S", 1000.0)
    monkeypatch.setattr(watches, "TOGETHER", 1)
    monkeypatch.setattr(watches, "TURN_S", 0.001)
    rows, board = Counted(), StatusBoard()
    feed = Feed(board, pb.WatchPlanResponse, rows, LargeMessages())
    watchers = [Watcher(feed, messages=2) for _ in range(20)]

    async def run() -> None:
        watching = [asyncio.create_task(watcher.watch()) for watcher in watchers]
        while not all(watcher.received for watcher in watchers):
            await asyncio.sleep(0)
        for number in itertools.count(100):
            board.publish(Status(plans_total=number))
            if all(task.done() for task in watching):
                break
            await asyncio.sleep(0)

    asyncio.run(run())
    assert rows.asked == rows.encoded == 2
    for number in range(2):
        assert len({id(watcher.received[number]) for watcher in watchers}) == 1
    assert not board._listeners


def test_many_publications_are_few_messages_and_the_last_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "SPACING_S", 0.05)
    rows, board = Counted(), StatusBoard()
    watcher = Watcher(Feed(board, pb.WatchPlanResponse, rows, LargeMessages()), messages=10_000)

    async def run() -> None:
        watching = asyncio.create_task(watcher.watch())
        while not watcher.received:
            await asyncio.sleep(0)
        for number in range(100, 1100):
            board.publish(Status(plans_total=number))
        while pb.WatchPlanResponse.FromString(watcher.received[-1]).plan.generation != 1099:
            await asyncio.sleep(0.001)
        watching.cancel()
        await asyncio.wait({watching})

    asyncio.run(run())
    assert len(watcher.received) < 100
    assert not board._listeners


def test_a_watcher_that_leaves_while_it_brings_the_table_up_to_date_leaves_the_work_to_others() -> None:
    rows, board = Counted(), StatusBoard()
    feed = Feed(board, pb.WatchPlanResponse, rows, LargeMessages())
    staying = Watcher(feed)

    async def run() -> None:
        leaving = asyncio.create_task(Watcher(feed).watch())
        await asyncio.sleep(0)
        other = asyncio.create_task(staying.watch())
        await asyncio.sleep(0)
        leaving.cancel()
        await other

    asyncio.run(run())
    assert rows.asked == 1
    assert len(staying.received) == 1


def test_a_defect_reaches_the_watchers_and_the_feed_goes_on() -> None:
    rows, board = Counted(), StatusBoard()
    feed = Feed(board, pb.WatchPlanResponse, rows, LargeMessages())

    async def run() -> None:
        board.publish(Status(plans_total=13))
        with pytest.raises(ZeroDivisionError):
            await Watcher(feed).watch()
        board.publish(Status(plans_total=14))
        await Watcher(feed).watch()

    asyncio.run(run())
    assert not board._listeners


def test_only_who_is_concerned_is_woken() -> None:
    board = StatusBoard()
    publications = Publications(board, 0.0)

    async def run() -> None:
        with publications.heard() as heard, publications.heard(lambda: board.status.plans_total == 2) as second:
            with concurrent.futures.ThreadPoolExecutor() as thread:
                thread.submit(board.publish, Status(plans_total=1)).result()
            await heard.wait()
            assert not second.is_set()
            board.publish(Status(plans_total=2))
            await second.wait()

    asyncio.run(run())
    assert not board._listeners


async def all_has_been_tried() -> None:
    """Let the tasks run until each waits for another task or for the test."""
    for _ in range(100):
        await asyncio.sleep(0)


def test_few_large_messages_wait_for_readers_at_a_time_and_small_ones_wait_for_none() -> None:
    large = LargeMessages()
    waiting: list[int] = []

    async def run() -> None:
        read = asyncio.Event()

        async def write(message: bytes) -> None:
            waiting.append(len(message))
            await read.wait()

        writing = [asyncio.create_task(large.write(write, b"x" * (LARGE_BYTES + 1))) for _ in range(50)]
        writing.append(asyncio.create_task(large.write(write, b"small")))
        await all_has_been_tried()
        assert sorted(waiting) == [5] + [LARGE_BYTES + 1] * LARGE_TOGETHER
        for task in writing[:LARGE_TOGETHER]:  # these readers leave
            task.cancel()
        await all_has_been_tried()
        assert len(waiting) == 2 * LARGE_TOGETHER + 1
        read.set()
        await asyncio.gather(*writing[LARGE_TOGETHER:])

    asyncio.run(run())
    assert len(waiting) == 51


class RowWatcher:
    """Reader of the changes of one kind of rows."""

    def __init__(self, rows: Rows[Any, Any], response: Any) -> None:
        self.rows = rows
        self._response = response
        self._table: WatchTable[Any, Any] = WatchTable(response, rows)
        self._reader = Reader(self._table)

    def told(self, status: Status) -> Any:
        self._table.update(self.rows.of(status))
        encoded = self._reader.message()
        assert self._reader.message() is None
        return self._response.FromString(encoded) if encoded is not None else None


@pytest.fixture
def jobs() -> RowWatcher:
    return RowWatcher(JobRows(), pb.WatchJobsResponse)


@pytest.fixture
def fabric() -> RowWatcher:
    return RowWatcher(FabricRows(), pb.WatchFabricResponse)


def test_a_snapshot_has_what_the_calls_answer(jobs: RowWatcher, fabric: RowWatcher) -> None:
    status = example_status()
    answer = convert_fabric.fabric_message(status)
    told = fabric.told(status)
    assert (list(told.switches), list(told.hosts)) == (list(answer.switches), list(answer.hosts))
    assert sorted(link.name for link in told.links) == sorted(link.name for link in answer.links)
    assert all(link in answer.links for link in told.links)
    told = jobs.told(status)
    assert {job.spec.job_id for job in told.jobs} == set(status.jobs)
    for job in told.jobs:
        job_id = JobId(job.spec.job_id)
        whole = convert.job_message(status.jobs[job_id], 0.0, status.demands.get(job_id))
        whole.ClearField("lease_left")
        for rate in ("measured_bps", "window", "undeclared_fraction") if whole.HasField("demand") else ():
            whole.demand.ClearField(rate)
        assert job == whole
    told = RowWatcher(AlarmRows(), pb.WatchAlarmsResponse).told(status)
    texts = sorted(convert.alarm_message(alarm, 0.0).text for alarm in status.alarms.values())
    assert sorted(alarm.text for alarm in told.raised) == texts
    assert status.plan
    told = RowWatcher(PlanRows(), pb.WatchPlanResponse).told(status)
    encoded = convert_plan.plan_bytes(pb.GetPlanResponse(), status.plan, status, status.plan_installed)
    assert told.plan == pb.GetPlanResponse.FromString(encoded).plan


@pytest.mark.parametrize(("rows", "response"), [
    (JobRows, pb.WatchJobsResponse), (FabricRows, pb.WatchFabricResponse), (PlanRows, pb.WatchPlanResponse),
    (AlarmRows, pb.WatchAlarmsResponse),
])  # fmt: skip
def test_an_equal_status_is_no_change(rows: Callable[[], Rows[Any, Any]], response: Any) -> None:
    watcher = RowWatcher(rows(), response)
    status = example_status()
    watcher.told(status)
    alarms = {alarm.key: replace(alarm) for alarm in status.alarms.values()}
    assert watcher.told(replace(status, plans_total=99, alarms=alarms)) is None


def test_an_alarm_is_told_again_when_something_else_is_found_and_not_when_it_is_measured_again() -> None:
    pair, other = ("10.0.1.1", "10.0.2.1"), ("10.0.2.1", "10.0.1.1")
    first = Difference((Finding.OTHER_TRAFFIC, Finding.OTHER_AMOUNTS), ((pair, 4.43e6),), ((other, 2.0),), factor=2.0)
    watcher = RowWatcher(AlarmRows(), pb.WatchAlarmsResponse)

    def told(difference: Difference) -> bool:
        alarm = Alarm(AlarmKind.DEMAND_DIFFERS, "job", {"difference": difference})
        return watcher.told(replace(example_status(), alarms={alarm.key: alarm})) is not None

    assert told(first)
    assert not told(first._replace(undeclared=((pair, 4.51e6),), off=((other, 2.1),), factor=2.1))
    for changed in (
        first._replace(findings=(Finding.SILENT, *first.findings)),
        first._replace(undeclared=((other, 4.43e6),)),
        first._replace(off=((other, 0.5),), factor=None),
        first._replace(off=((other, 0.0),), factor=None),
        first._replace(factor=4.0),
        first._replace(backwards=True),
    ):
        assert told(changed)
        assert told(first)


def test_measured_rates_are_no_change_of_a_job_and_what_it_is_planned_for_is(jobs: RowWatcher) -> None:
    status = example_status()
    jobs.told(status)
    (job_id, demand), *_ = ((key, demand) for key, demand in status.demands.items() if demand.measurement)
    assert demand.measurement is not None
    faster = replace(demand, measurement=demand.measurement._replace(bps=demand.measurement.bps * 2))
    assert jobs.told(replace(status, demands={**status.demands, job_id: faster})) is None
    source = next(source for source in DemandSource if source is not demand.source)
    told = jobs.told(replace(status, demands={**status.demands, job_id: replace(demand, source=source)}))
    assert [job.spec.job_id for job in told.jobs] == [job_id]


def test_a_job_with_another_slowdown_has_changed_and_one_with_a_longer_lease_has_not(jobs: RowWatcher) -> None:
    status = example_status()
    jobs.told(status)
    job_id, job = next(iter(status.jobs.items()))
    renewed = replace(job, vitals=replace(job.vitals, lease_ends_at=1e9))
    assert jobs.told(replace(status, jobs={**status.jobs, job_id: renewed})) is None
    worse = replace(renewed, slowdown=renewed.slowdown + 1)
    (told,) = jobs.told(replace(status, jobs={**status.jobs, job_id: worse})).jobs
    assert (told.spec.job_id, told.slowdown) == (job_id, worse.slowdown)


def test_a_rate_changes_one_link(fabric: RowWatcher) -> None:
    status = example_status()
    fabric.told(status)
    rates = LinkStatus(bytes_total=5, rate_bps=123.0, background_bps=7.0)
    links: dict[LinkId, LinkStatus] = {**status.links, UP1: rates}
    told = fabric.told(replace(status, links=links))
    assert [(link.rate_bps, link.background_bps) for link in told.links] == [(123.0, 7.0)]
    assert not told.switches
    assert not told.hosts
    links[UP1] = rates._replace(bytes_total=6)
    assert fabric.told(replace(status, links=links)) is None


def test_a_job_that_is_gone_is_told_with_how_it_ended_as_long_as_that_is_known(jobs: RowWatcher) -> None:
    status = example_status()
    jobs.told(status)
    known, forgotten = status.jobs
    uid = status.jobs[known].uid
    end = JobEnd(known, uid, "t", EndReason.LEASE_RAN_OUT, 10.5)
    left = {forgotten: status.jobs[forgotten]}
    (told,) = jobs.told(replace(status, jobs=left, job_ends=(end,))).ended
    assert (told.job_id, told.uid, told.tenant, told.reason) == (known, uid, "t", pb.JOB_END_REASON_LEASE_RAN_OUT)
    assert told.end_time.ToJsonString() == "1970-01-01T00:00:10.500Z"
    (told,) = jobs.told(replace(status, jobs={}, job_ends=())).ended
    assert (told.job_id, told.reason) == (forgotten, pb.JOB_END_REASON_UNSPECIFIED)
