"""A feed does its work once for all of its watchers, which wake up together."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
from collections.abc import Mapping

import pytest

from controller.api import watches
from controller.api.watch_table import Rows
from controller.api.watches import LARGE_BYTES, LARGE_TOGETHER, Feed, LargeMessages, Publications
from controller.status import Status, StatusBoard
from signalbox.v1 import signalbox_pb2 as pb


class Counted(Rows[str, int]):
    """Rows with a single row, the number of plans; the class counts how often the row is read and encoded."""

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
        with (
            publications.heard() as heard,
            publications.heard(lambda: board.status.plans_total == 2) as second,
        ):
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
