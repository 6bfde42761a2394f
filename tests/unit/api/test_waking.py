"""Events of the API's loop that other threads set."""

from __future__ import annotations

import asyncio
import threading
from unittest.mock import Mock

import pytest

from controller.api.waking import Bursts

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
