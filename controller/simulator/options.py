"""Options of the simulator as plain values, in a file that imports quickly: every command reads it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Replan(StrEnum):
    """When plans are made, for which flows, and which are adopted: docs/explanation/simulator.md. ``published``: as in
    the simulator of arXiv 2503.05324. ``hysteresis``: adopted as by ``planning.decision.decide``."""

    PUBLISHED = "published"
    HYSTERESIS = "hysteresis"
    NEVER = "never"


class Sharing(StrEnum):
    """How connections share a full link: docs/explanation/simulator.md."""

    PACED = "paced"
    WEIGHTED = "weighted"
    EQUAL = "equal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """``iterations``: of each job. ``random_starts_s``: start times are drawn from 0 to this, None for the jobs' own.
    ``min_gain``: for ``Replan.HYSTERESIS``. ``seed``: of hashes and start times."""

    iterations: int = 10
    random_starts_s: float | None = None
    replan: Replan = Replan.HYSTERESIS
    sharing: Sharing = Sharing.PACED
    min_gain: float = 0.02
    lose_sent: bool = False
    seed: int = 1
