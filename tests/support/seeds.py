"""Seeds of randomised tests: a few for every run, and all of them with ``-m long``."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet


def seeds(few: int, every: int) -> list[int | ParameterSet]:
    """Return the seeds 0 to ``every`` - 1; those from ``few`` on are marked as long."""
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(few, every))]
