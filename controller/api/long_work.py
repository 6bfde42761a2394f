"""Conversions that take long, in a thread beside the API's loop: only the calls that need them wait.

In: functions without side effects on the loop's data. Out: what they return or raise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from controller.status import JobStatus

SMALL = 256
"""So many parts (flows, pairs, links) are converted in the loop itself: in some milliseconds."""

BYTES_OF_PART = 16
"""Of a request; few parts are smaller."""

Result = TypeVar("Result")


def parts_of(job: JobStatus) -> int:
    """Return about how many parts the message of a job has."""
    spec = job.spec
    ranks = transfers = 0
    for _, way in spec.ways():
        ranks += sum(len(group.ranks) for group in way.groups)
        transfers += len(way.transfers)
    return len(job.routes) + len(spec.endpoints) + transfers + ranks


class LongWork:
    """One thread: each more would leave the loop a smaller share of the interpreter. What runs in it is Python, which
    lets the loop run every few milliseconds; a single call of C that takes longer does not belong here."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "grpc-api-conversions")

    async def run(self, work: Callable[[], Result]) -> Result:
        """Work that nobody waits for any more is not begun."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def run_if_long(self, parts: int, work: Callable[[], Result]) -> Result:
        """``parts``: about how many there are."""
        return await self.run(work) if parts > SMALL else work()

    def close(self) -> None:
        """What waits is dropped."""
        self._thread.shutdown(wait=False, cancel_futures=True)
