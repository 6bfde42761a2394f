"""Long conversions run one at a time and leave the event loop free; short conversions run at once."""

from __future__ import annotations

import asyncio
import functools
import threading

from controller.api.long_work import SMALL, LongWork


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
