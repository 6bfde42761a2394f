"""Thread for long conversions, so that other calls, in the API's loop, need not wait for them.

The functions that it runs must not change data of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from controller.status import JobStatus

SMALL = 256
"""Largest number of parts (flows, pairs, links) that are converted in the loop, which takes a few milliseconds."""

BYTES_OF_PART = 16
"""Bytes of a request per part, for an estimate of the number of parts; few parts are smaller."""

Result = TypeVar("Result")


def parts_of(job: JobStatus) -> int:
    """Return the approximate number of parts (flows, pairs, links) in the message of a job."""
    spec = job.spec
    ranks = transfers = 0
    for _, way in spec.ways():
        ranks += sum(len(group.ranks) for group in way.groups)
        transfers += len(way.transfers)
    return len(job.routes) + len(spec.endpoints) + transfers + ranks


class LongWork:
    """Single thread for conversions; each further thread would take interpreter time from the loop.

    The thread is for Python code, which the interpreter interrupts every few milliseconds to run the loop. A long call
    of C code would block the loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "grpc-api-conversions")

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run the work in the thread, and return its result. Queued work of a cancelled call is dropped."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def run_if_long(self, parts: int, work: Callable[[], Result]) -> Result:
        """Run the work in the thread if it has more than ``SMALL`` parts, else in the loop."""
        return await self.run(work) if parts > SMALL else work()

    def close(self) -> None:
        """Stop the thread and drop queued work."""
        self._thread.shutdown(wait=False, cancel_futures=True)
