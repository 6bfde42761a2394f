"""Rate limit of port changes: if a switch reports too many, only the latest change of each port is reported, later.

Sans-IO. In: port changes as switches report them. Out: the changes to report now. ``now`` is in monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from controller.fabric.messages import PortChanged
from controller.fabric.topology import Dpid, Port, PortNo

AT_ONCE = 256
"""Largest number of changes of one switch that are reported per ``PERIOD_S``: most switches have fewer ports."""
PERIOD_S = 1.0
LASTING = 1
"""Largest number of consecutive periods with delayed changes; a switch with more is flooding."""


@dataclass(slots=True, eq=False)
class _Switch:
    """Changes of one switch."""

    ends_at: float
    """End of the current period in monotonic seconds."""
    count: int = 0
    """Number of changes reported since the period began."""
    held: dict[PortNo, PortChanged] = field(default_factory=dict)
    """Delayed changes: the latest change of each port, in the order in which the ports first changed."""
    periods: int = 0
    """Number of consecutive periods in which changes were delayed."""


class PortChanges:
    def __init__(self) -> None:
        self._switches: dict[Dpid, _Switch] = {}

    def changed(self, dpid: Dpid, port: Port, removed: bool, now: float) -> list[PortChanged]:
        """Return a list with the change to report now; the list is empty if the change is delayed."""
        change = PortChanged(dpid, port, removed)
        switch = self._switches.get(dpid)
        if switch is None or (now >= switch.ends_at and not switch.held):
            switch = self._switches[dpid] = _Switch(now + PERIOD_S)
        if switch.held or switch.count >= AT_ONCE:
            switch.held[port.number] = change
            return []
        switch.count += 1
        return [change]

    def tick(self, now: float) -> Iterator[PortChanged]:
        """Yield the delayed changes that may be reported now."""
        for switch in self._switches.values():
            if switch.held and now >= switch.ends_at:
                switch.ends_at, switch.count = now + PERIOD_S, AT_ONCE
                switch.periods += 1
                for number in list(islice(switch.held, AT_ONCE)):
                    yield switch.held.pop(number)

    def floods(self, dpid: Dpid) -> bool:
        """Return whether changes of this switch are delayed now, and have been for more than ``LASTING`` periods."""
        switch = self._switches.get(dpid)
        return switch is not None and switch.periods > LASTING and bool(switch.held)

    def switch_left(self, dpid: Dpid) -> None:
        self._switches.pop(dpid, None)
