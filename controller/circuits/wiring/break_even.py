"""When a direct-connect fabric is the wrong one for a job: forwarding costs more than its rate brings.

With B of each of d interfaces, r = bytes of pairs / bytes of rings, h their mean hops and F the rate per server of the
alternative, all circuits together need at least (1 + r h) / (d B) where the alternative needs (1 + r) / F.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

COST_RATIO = 3.2
"""How much more an ideal switch of the same rate costs (Wang et al., TopoOpt, NSDI 2023, section 5.2): for the same
cost it has d B / 3.2 per server."""


@dataclass(frozen=True, slots=True)
class BreakEven:
    """``ratio``: r, ``inf`` where nothing is sent in rings. ``hops``: h. Rates in bit/s, of a server."""

    ratio: float
    hops: float
    direct_bps: float
    other_bps: float

    @property
    def slow_down(self) -> float:
        """How many times as long as with the alternative the same bytes take: above 1 direct connection loses."""
        if math.isinf(self.ratio):
            return self.hops * self.other_bps / self.direct_bps
        return (1 + self.ratio * self.hops) * self.other_bps / ((1 + self.ratio) * self.direct_bps)

    @property
    def loses(self) -> bool:
        return self.slow_down > 1

    @property
    def most_ratio(self) -> float:
        """The r at which both are equal, with the same h: ``inf`` where no r makes direct connection lose, 0 where it
        loses with rings alone."""
        if self.direct_bps <= self.other_bps:
            return 0.0 if self.direct_bps < self.other_bps or self.hops > 1 else math.inf
        if self.hops * self.other_bps <= self.direct_bps:
            return math.inf
        return (self.direct_bps - self.other_bps) / (self.hops * self.other_bps - self.direct_bps)
