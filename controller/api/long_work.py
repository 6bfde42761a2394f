"""Thread for long conversions beside the API's loop, so that only the calls that need them wait.

In: functions without side effects on the loop's data. Out: their results or exceptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from controller.status import JobStatus

SMALL = 256
"""Largest number of parts (flows, pairs, links) whose conversion runs in the loop; it takes a few milliseconds."""

BYTES_OF_PART = 16
"""Bytes per part of a request, to estimate the number of its parts; few parts are smaller."""

Result = TypeVar("Result")


def parts_of(job: JobStatus) -> int:
    """Return the approximate number of parts in the message of a job."""
    spec = job.spec
    ranks = transfers = 0
    for _, way in spec.ways():
        ranks += sum(len(group.ranks) for group in way.groups)
        transfers += len(way.transfers)
    return len(job.routes) + len(spec.endpoints) + transfers + ranks


class LongWork:
    """Single thread for conversions; each further thread would take interpreter time from the loop.

    The thread is for Python code, which lets the loop run every few milliseconds. A single C call that takes longer
    would block the loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "grpc-api-conversions")

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run the work in the thread, and return its result. Work of a cancelled call is not begun."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def run_if_long(self, parts: int, work: Callable[[], Result]) -> Result:
        """Run the work in the thread when it has many parts, otherwise at once. ``parts``: their approximate number."""
        return await self.run(work) if parts > SMALL else work()

    def close(self) -> None:
        """Stop the thread and drop queued work."""
        self._thread.shutdown(wait=False, cancel_futures=True)
