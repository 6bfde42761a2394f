"""Port changes of switches, as many as the control loop should see: a switch that reports many gets its latest states
reported once in a while.

Sans-IO. In: port changes as switches report them. Out: those to be handed on now. ``now`` is monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from controller.fabric.messages import PortChanged
from controller.fabric.topology import Dpid, Port, PortNo

AT_ONCE = 256
"""Changes of one switch in ``PERIOD_S`` that are handed on at once: more than most switches have ports."""
PERIOD_S = 1.0


@dataclass(slots=True, eq=False)
class _Switch:
    """``count``: changes handed on since the period began. ``held``: latest states that wait for its end. ``periods``:
    in a row in which changes had to wait."""

    ends_at: float
    count: int = 0
    held: dict[PortNo, PortChanged] = field(default_factory=dict)
    periods: int = 0


class PortChanges:
    def __init__(self) -> None:
        self._switches: dict[Dpid, _Switch] = {}

    def changed(self, dpid: Dpid, port: Port, removed: bool, now: float) -> list[PortChanged]:
        """Return the change, unless it has to wait."""
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
        """Yield the latest states that have waited for long enough."""
        for switch in self._switches.values():
            if switch.held and now >= switch.ends_at:
                held, switch.held = switch.held, {}
                switch.ends_at, switch.count = now + PERIOD_S, AT_ONCE
                switch.periods += 1
                yield from held.values()

    def floods(self, dpid: Dpid) -> bool:
        """Whether changes of this switch have had to wait again and again, until now."""
        switch = self._switches.get(dpid)
        return switch is not None and switch.periods > 1 and bool(switch.held)

    def switch_left(self, dpid: Dpid) -> None:
        self._switches.pop(dpid, None)
