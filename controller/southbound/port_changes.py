"""Port changes of switches, as many as the control loop should see: of a switch that reports more, the latest states
are handed on little by little.

Sans-IO. In: port changes as switches report them. Out: those to be handed on now. ``now`` is monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from controller.fabric.messages import PortChanged
from controller.fabric.topology import Dpid, Port, PortNo

AT_ONCE = 256
"""Changes of one switch in ``PERIOD_S`` that are handed on: as many as most switches have ports."""
PERIOD_S = 1.0
LASTING = 1
"""Periods in a row with changes that have to wait: a switch that goes on floods."""


@dataclass(slots=True, eq=False)
class _Switch:
    """``count``: changes handed on since the period began. ``held``: latest states that wait, in the order in which
    they began to. ``periods``: in a row in which changes had to wait."""

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
        """Yield the states whose turn it is."""
        for switch in self._switches.values():
            if switch.held and now >= switch.ends_at:
                switch.ends_at, switch.count = now + PERIOD_S, AT_ONCE
                switch.periods += 1
                for number in list(islice(switch.held, AT_ONCE)):
                    yield switch.held.pop(number)

    def floods(self, dpid: Dpid) -> bool:
        """Whether changes of this switch have had to wait again and again, until now."""
        switch = self._switches.get(dpid)
        return switch is not None and switch.periods > LASTING and bool(switch.held)

    def switch_left(self, dpid: Dpid) -> None:
        self._switches.pop(dpid, None)
