"""Variation of the compute times of a job, for the simulator and for the trainer of the lab. Pure."""

from __future__ import annotations

import random
from typing import NamedTuple


class Variation(NamedTuple):
    """Variation of the compute times of a job."""

    jitter: float = 0.0
    """Standard deviation of a compute time, relative to the planned time."""
    straggler: float = 0.0
    """Probability that a compute phase has a straggler, which multiplies its time by ``slow``."""
    slow: float = 2.0
    drift: float = 0.0
    """Relative growth of compute times per iteration."""

    def factor(self, iteration: int, chance: random.Random) -> float:
        """Return the time of a compute phase / the planned time."""
        factor = max(0.0, chance.gauss(1.0, self.jitter)) * (1 + self.drift * iteration)
        return factor * self.slow if chance.random() < self.straggler else factor


STEADY = Variation()
"""Compute times that do not vary."""
