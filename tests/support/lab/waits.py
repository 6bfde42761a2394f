"""Waits of lab tests for the controller, the switches and the jobs."""

from collections.abc import Callable

from mininet_topos.lab import record

DEADLINE_S, POLL_S = 60.0, 0.1


def wait_for(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S, poll_s: float = POLL_S) -> None:
    """Return once the condition holds.

    Most conditions call the controller or a program of Open vSwitch, so more frequent polls would use much of a
    processor."""
    record.wait_for(condition, what, deadline_s, poll_s)
