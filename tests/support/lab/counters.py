"""Counters of Open vSwitch's rules, which lag behind the packets by up to a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mininet_topos.lab.record import run

T = TypeVar("T")


def quiet(read: Callable[[], T]) -> T:
    """Return the counters once Open vSwitch has updated them twice and they stayed the same."""
    before, now = None, read()
    while now != before:
        for _ in range(2):  # the first update may have begun before
            run("ovs-appctl", "--timeout=60", "revalidator/wait")
        before, now = now, read()
    return now
