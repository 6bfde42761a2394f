"""Waits for effects of other threads and processes."""

from __future__ import annotations

from collections.abc import Callable

from mininet_topos.lab.record import wait_for

DEADLINE_S = 60.0


def until(condition: Callable[[], object]) -> None:
    """Return once the condition holds, and raise ``LabError`` when it does not hold in time."""
    wait_for(lambda: bool(condition()), "a condition of the test", DEADLINE_S)
