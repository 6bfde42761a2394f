"""Reports of a running job: times of its iterations, and its connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

REPORT_S = 2.0
"""Seconds after the end of an iteration within which a program reports it."""

MOST_EFFICIENT = 1.05
"""Largest credible ratio of ideal to reported communication time.

A larger ratio means that the job announced more bytes than it sends, because reported times are not wrong by 5 %."""


@dataclass(frozen=True, slots=True)
class IterationTime:
    index: int
    duration_s: float
    communication_s: float
    ended_at: float | None = None
    """Monotonic time of this machine in seconds; None when the program does not report it.

    An iteration without this time ended at most ``REPORT_S`` before its report."""


class Connected(NamedTuple):
    """A connection, as seen from the host that reports it."""

    src_ip: str
    src_port: int
    dst_ip: str
    dst_port: int
