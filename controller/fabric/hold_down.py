"""How long a cable that failed stays out after it is back: twice as long each time, until it has held for a while.

In: cables that fail, come back, fail again while they are held. Out: which are held, and which are free again. A cable
that flaps would otherwise move the same flows again and again. Pure: every input takes ``now`` (monotonic seconds).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from controller.fabric.topology import Dpid, PortRef

Cable = frozenset[PortRef]
FORGIVEN_AFTER = 4
"""A cable that has held for this many times its last hold-down starts again with the shortest."""


@dataclass(slots=True)
class _Held:
    """``until``: monotonic seconds, infinite until the cable is back, minus infinite once it is free."""

    hold_s: float
    until: float
    free_since: float = math.inf


class HoldDowns:
    """``first_s``: after the first failure. ``longest_s``: however often it fails."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = max(first_s, longest_s)
        self._cables: dict[Cable, _Held] = {}

    def failed(self, cable: Cable, now: float) -> None:
        """A cable in use failed."""
        known = self._cables.get(cable)
        hold_s = self._first_s
        if known and now < known.free_since + FORGIVEN_AFTER * known.hold_s:
            hold_s = max(self._first_s, min(2 * known.hold_s, self._longest_s))
        self._cables[cable] = _Held(hold_s, math.inf)

    def failed_again(self, cable: Cable) -> None:
        """One that is held, if it is, has to come back anew."""
        known = self._cables.get(cable)
        if known and self.holds(cable):
            known.until = math.inf

    def returned(self, cable: Cable, now: float) -> None:
        """Both directions are there again: the hold-down begins."""
        known = self._cables.get(cable)
        if known and known.until == math.inf:
            known.until = now + known.hold_s

    def excuse(self, dpid: Dpid, now: float) -> None:
        """The switch has lost its last link: whatever cable is back is better than none, and the others hardly failed
        for a fault of their own. They are held no longer than it takes them to return."""
        for cable, held in self._cables.items():
            if self.holds(cable) and any(at.dpid == dpid for at in cable):
                held.hold_s = 0.0
                held.until = min(held.until, now) if held.until < math.inf else math.inf

    def release(self, now: float) -> list[Cable]:
        """Those whose hold-down is over now; what was long ago is forgiven."""
        free = [cable for cable, held in self._cables.items() if -math.inf < held.until <= now]
        for cable in free:
            self._cables[cable].until, self._cables[cable].free_since = -math.inf, now
        forgiven = [c for c, held in self._cables.items() if now >= held.free_since + FORGIVEN_AFTER * held.hold_s]
        for cable in forgiven:
            del self._cables[cable]
        return free

    def holds(self, cable: Cable) -> bool:
        known = self._cables.get(cable)
        return known is not None and known.until > -math.inf

    @property
    def held(self) -> Iterable[Cable]:
        """Cables that have failed and are not free yet."""
        return [cable for cable in self._cables if self.holds(cable)]
