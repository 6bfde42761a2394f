"""Reports of a training program about its job: iterations and connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Self

REPORT_S = 2.0
"""Seconds after the end of an iteration within which a program reports it."""

MOST_EFFICIENT = 1.05
"""Largest credible ratio of ideal to reported communication time.

Errors of reported times are below 5 %. So a larger ratio means that the job announced more bytes than it sends."""


@dataclass(frozen=True, slots=True)
class IterationTime:
    index: int
    duration_s: float
    communication_s: float
    ended_at: float | None = None
    """Time of the iteration's end on this machine's monotonic clock, in seconds; None if the program does not give it.

    An iteration without this time ended at most ``REPORT_S`` before its report."""
    until_communication_s: float | None = None
    """Time in seconds from the beginning of the iteration to the beginning of its communication; None if unknown."""
    waited_s: float = 0.0
    """Time in seconds for which the program waited just before the iteration, which is not part of ``duration_s``."""


class Accepted(NamedTuple):
    """Answer of the controller to a report of iterations."""

    new: int
    """Number of iterations that are new to the controller."""
    wait_s: float | None
    """Seconds that the program should wait at its next iteration boundaries; None if its job has no slot."""


class Connected(NamedTuple):
    """A connection. ``src_ip`` is an address of the host that reports it."""

    src_ip: str
    src_port: int
    dst_ip: str
    dst_port: int


class Step:
    """Context for one iteration of a training program.

    ``wait`` is called before the context begins, or if ``late`` before its first ``communication``. When the context
    ends without an error, ``report`` is called with three times in seconds, without the wait. They are the wall time,
    the communication time, and the time until the communication began. The latter two are None when ``communication``
    was not used."""

    def __init__(
        self,
        report: Callable[[float, float | None, float | None], None],
        wait: Callable[[], None] = lambda: None,
        late: bool = False,
    ) -> None:
        self._report = report
        self._wait, self._late = wait, late
        self._communicated_s: float | None = None
        self._until_s: float | None = None
        self._began = 0.0

    def __enter__(self) -> Self:
        if not self._late:
            self._wait()
        self._began = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._report(time.perf_counter() - self._began, self._communicated_s, self._until_s)

    @contextmanager
    def communication(self) -> Iterator[None]:
        """Measure communication inside the step. Several uses in one step are added up.

        A step without a use counts as communication in full."""
        began = time.perf_counter()
        if self._until_s is None:
            self._until_s = began - self._began
            if self._late:
                self._wait()
                waited_s = time.perf_counter() - began
                began, self._began = began + waited_s, self._began + waited_s
        yield
        self._communicated_s = (self._communicated_s or 0.0) + time.perf_counter() - began
