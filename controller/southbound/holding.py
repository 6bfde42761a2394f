"""Switches that this process holds: those that it may claim, each with a generation id.

A switch accepts the master role only with a generation id that is not less than its own (OpenFlow 1.3.5 section 6.3.5).
So each later holder of a switch is given a larger id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from controller.fabric.topology import Dpid


class Holding(Protocol):
    """Switches that this process holds now, readable in the hub. No method waits."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes hold switches too, or may hold this process's switches later."""

    @property
    def version(self) -> int:
        """Number that grows whenever a value of ``generation`` has changed."""

    def generation(self, dpid: Dpid) -> int | None:
        """Return the generation id for the claim of a switch; None for a switch that this process does not hold."""

    def may_claim(self, dpid: Dpid, since: float) -> bool:
        """Return whether the generation id is certain: the one that ``generation`` returns after this call.

        It is certain if, at some moment after ``since``, no process had a larger id for the switch. ``since``:
        monotonic seconds at which the switch connected. A switch that restarts forgets its generation id, so it would
        also accept an older one. After False this process tries to become certain, and the caller asks again."""


@dataclass(frozen=True, slots=True)
class AllSwitches:
    """Holding of a controller that has its state for itself: all switches, with one generation id.

    ``epoch``: see ``Store.begin``. ``is_claimed``: whether this process has the claim of the state."""

    epoch: int
    is_claimed: Callable[[], bool]
    version: int = 0
    is_shared: bool = False

    def generation(self, dpid: Dpid) -> int:  # noqa: ARG002
        return self.epoch

    def may_claim(self, dpid: Dpid, since: float) -> bool:  # noqa: ARG002
        return self.is_claimed()
