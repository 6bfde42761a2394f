"""Break-even of a direct-connect fabric: above it, forwarding costs a job more than the higher rate gains.

- d: number of interfaces per server; B: rate of an interface.
- r: bytes of pairs / bytes of rings; h: mean number of hops of pairs.
- F: rate per server of the alternative.

All circuits together need at least the time (1 + r h) / (d B), and the alternative needs (1 + r) / F."""

from __future__ import annotations

import math
from dataclasses import dataclass

COST_RATIO = 3.2
"""Cost of an ideal switch of the same rate, relative to direct connection (TopoOpt, NSDI 2023, section 5.2).

At the same cost a switch therefore has a rate of d B / 3.2 per server (Wang et al.)."""


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Comparison of direct connection with the alternative. Rates are in bit/s per server."""

    ratio: float
    """Ratio r of bytes of pairs to bytes of rings; ``inf`` when nothing is sent in rings."""
    hops: float
    """Mean number of hops h."""
    direct_bps: float
    other_bps: float

    @property
    def time_ratio(self) -> float:
        """Time of direct connection divided by the time of the alternative; direct connection loses above 1."""
        if math.isinf(self.ratio):
            return self.hops * self.other_bps / self.direct_bps
        return (1 + self.ratio * self.hops) * self.other_bps / ((1 + self.ratio) * self.direct_bps)

    @property
    def loses(self) -> bool:
        return self.time_ratio > 1

    @property
    def most_ratio(self) -> float:
        """Ratio r at which direct connection and the alternative take the same time, with the present h.

        ``inf`` when direct connection loses at no r, 0 when it loses even with rings alone."""
        if self.direct_bps <= self.other_bps:
            return 0.0 if self.direct_bps < self.other_bps or self.hops > 1 else math.inf
        if self.hops * self.other_bps <= self.direct_bps:
            return math.inf
        return (self.direct_bps - self.other_bps) / (self.hops * self.other_bps - self.direct_bps)
