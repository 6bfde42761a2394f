"""What a running job reports: times of its iterations, and its connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

REPORT_S = 2.0
"""Seconds after its end within which a program reports an iteration."""

MOST_EFFICIENT = 1.05
"""Ideal over reported communication time that cannot be exceeded: the ideal time is of more bytes than are sent then.
Reported times are not wrong by 5 %."""


@dataclass(frozen=True, slots=True)
class IterationTime:
    index: int
    duration_s: float
    communication_s: float
    ended_at: float | None = None
    """In monotonic seconds of this machine; None where the program does not say: ``REPORT_S`` before its report at
    most."""


class Connected(NamedTuple):
    """One connection, from the host that reports it."""

    src_ip: str
    src_port: int
    dst_ip: str
    dst_port: int
