"""The API's event loop: long conversions leave it free, other threads wake it, and calls are timed."""

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import Mock

import grpc
import pytest

from controller.api.call_times import ByMethod, CallTimes
from controller.api.long_work import SMALL, LongWork
from controller.api.waking import Bursts


def test_the_loop_goes_on_while_long_work_is_done_one_after_the_other() -> None:
    long_work = LongWork()
    begun: list[int] = []
    first_may_end = threading.Event()

    def work(number: int) -> int:
        begun.append(number)
        first_may_end.wait()
        return threading.get_ident()

    async def run() -> None:
        tasks = [asyncio.create_task(long_work.run(functools.partial(work, number))) for number in range(3)]
        while not begun:
            await asyncio.sleep(0.001)
        assert begun == [0]
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
        first_may_end.set()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[1], asyncio.CancelledError)
        assert done[0] == done[2] != threading.get_ident()

    asyncio.run(run())
    assert begun == [0, 2], "nobody waited for the second"
    long_work.close()


def test_short_work_needs_no_thread_and_errors_reach_the_caller() -> None:
    long_work = LongWork()

    async def run() -> None:
        assert await long_work.run_if_long(SMALL, threading.get_ident) == threading.get_ident()
        assert await long_work.run_if_long(SMALL + 1, threading.get_ident) != threading.get_ident()
        for parts in (1, SMALL + 1):
            (error,) = await asyncio.gather(long_work.run_if_long(parts, lambda: 1 // 0), return_exceptions=True)
            assert isinstance(error, ZeroDivisionError)

    asyncio.run(run())
    long_work.close()


METHOD = "/signalbox.v1.JobService/GetJob"


class Context:
    """Stand-in for the context of gRPC; ``code`` is a number until a status code is set."""

    def __init__(self) -> None:
        self._code: Any = 0

    def code(self) -> Any:
        return self._code

    async def abort(self, code: grpc.StatusCode) -> None:
        self._code = code
        raise grpc.aio.AbortError


async def answered(_: object, _context: Context) -> str:
    return "answer"


async def not_found(_: object, context: Context) -> None:
    await context.abort(grpc.StatusCode.NOT_FOUND)


async def cancelled(_: object, _context: Context) -> None:
    raise asyncio.CancelledError


async def failed(_: object, _context: Context) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("answer", "code"), [(answered, "OK"), (not_found, "NOT_FOUND"), (cancelled, "CANCELLED"), (failed, "UNKNOWN")]
)
def test_a_call_counts_with_its_code(answer: Callable[[Any, Any], Awaitable[Any]], code: str) -> None:
    published: list[ByMethod] = []
    times = CallTimes(published.append)

    async def call() -> str:
        try:
            return str(await times.timed(METHOD, answer)(None, Context()))
        except BaseException as error:
            return type(error).__name__

    asyncio.run(call())
    asyncio.run(call())
    found = published[-1]
    assert len(published) == 2
    assert found.keys() == {("GetJob", code)}
    assert dict(found["GetJob", code].buckets)["+Inf"] == 2


THREADS, EVENTS = 4, 500


def test_every_event_of_many_threads_is_set() -> None:
    async def all_set() -> None:
        loop, bursts = asyncio.get_running_loop(), Bursts()
        events = [[asyncio.Event() for _ in range(EVENTS)] for _ in range(THREADS)]

        def set_all(own: list[asyncio.Event]) -> None:
            for event in own:
                bursts.set(loop, event)

        threads = [threading.Thread(target=set_all, args=(own,)) for own in events]
        for thread in threads:
            thread.start()
        async with asyncio.timeout(30):
            await asyncio.gather(*(event.wait() for own in events for event in own))

    asyncio.run(all_set())


def test_a_burst_wakes_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def woken() -> list[int]:
        loop, bursts = asyncio.get_running_loop(), Bursts()
        call = Mock(side_effect=loop.call_soon_threadsafe)
        monkeypatch.setattr(loop, "call_soon_threadsafe", call)
        found = []
        for count in (10, 1):
            events = [asyncio.Event() for _ in range(count)]
            for event in events:
                bursts.set(loop, event)
            await asyncio.gather(*(event.wait() for event in events))
            found.append(call.call_count)
        return found

    assert asyncio.run(woken()) == [1, 2]


def test_a_closed_loop_needs_no_wake_up() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    Bursts().set(loop, asyncio.Event())
