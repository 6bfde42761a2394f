"""Switches of which this process is the holder, and whose master role it may claim, each with a generation id.

A switch accepts a claim of the master role only with a generation id that is not less than its own (OpenFlow 1.3.5
section 6.3.5). Each later holder of a switch therefore has a larger id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from controller.fabric.topology import Dpid


class Holding(Protocol):
    """Switches of which this process is now the holder. For use in the hub; no method waits."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes are holders of switches too, or may become holders of this process's switches."""

    @property
    def version(self) -> int:
        """Number that grows whenever a value of ``generation`` has changed."""

    def generation(self, dpid: Dpid) -> int | None:
        """Return the generation id for the claim of a switch; None if this process is not its holder."""

    def may_claim(self, dpid: Dpid, since: float) -> bool:
        """Return whether it is certain that this process is the holder of the switch.

        It is certain if, at some moment after ``since``, no process had a larger generation id for the switch than
        ``generation`` returns after this call. ``since``: monotonic seconds at which the switch connected. Without
        certainty the switch must not be claimed, because a switch that has restarted would also accept an older id.
        After the result False, the process tries to become certain, and the caller must ask again."""


@dataclass(frozen=True, slots=True)
class AllSwitches:
    """``Holding`` of a controller that shares its state with no other: all switches, with the same generation id.

    ``epoch``: see ``Store.begin``. ``is_claimed``: returns whether this process still has the claim of the state."""

    epoch: int
    is_claimed: Callable[[], bool]
    version: int = 0
    is_shared: bool = False

    def generation(self, dpid: Dpid) -> int:  # noqa: ARG002
        return self.epoch

    def may_claim(self, dpid: Dpid, since: float) -> bool:  # noqa: ARG002
        return self.is_claimed()
