"""Options of the simulator as plain values. Every command imports this file, so it must load quickly."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Replan(StrEnum):
    """Occasions at which the simulated controller plans.

    - ``PUBLISHED``: whenever a job begins or ends its all-reduce, for the flows that send at this moment. The running
      routes have no influence, and every plan is adopted, as in the simulator of arXiv 2503.05324.
    - ``HYSTERESIS``: for all flows of the jobs in training, whether they send or not. A plan is adopted as the
      controller adopts one (``planning.plan.decide``).
    - ``NEVER``: one plan for all jobs before the first job starts."""

    PUBLISHED = "published"
    HYSTERESIS = "hysteresis"
    NEVER = "never"


class Sharing(StrEnum):
    """Shares of connections in a full link: ``EQUAL``, or ``WEIGHTED`` by the demand of their flows.

    The planner uses the same weights (``efficiency``). ``EQUAL`` and ``WEIGHTED`` agree where all demands are equal, as
    in the published workloads. How a sender divides a flow over its connections is a property of the job
    (``Striping``). ``MLTCP``: the weight of a job grows with the part of the iteration's bytes that it has sent."""

    EQUAL = "equal"
    WEIGHTED = "weighted"
    MLTCP = "mltcp"


PARTS = 10
"""Number of times per iteration that MLTCP renews the weight of a job."""
LEAST_WEIGHT, GAINED_WEIGHT = 0.25, 1.75
"""Weight of MLTCP (HotNets 2024) at the begin of an iteration, and what it gains until all bytes are sent."""


CYCLE_S = 10.0
"""Seconds between two planning cycles while nothing changes; the controller's ``planning.interval_s``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a simulation."""

    iterations: int = 10
    """Number of iterations of each job."""
    replan: Replan = Replan.HYSTERESIS
    sharing: Sharing = Sharing.EQUAL
    min_gain: float = 0.02
    """Smallest relative gain for which a plan is adopted; for ``Replan.HYSTERESIS``."""
    max_moves: int | None = None
    """Largest number of pinned flows that one cycle may move; None: no limit. For ``Replan.HYSTERESIS``."""
    lose_sent: bool = False
    """Whether a moved flow has to send the bits since the previous event again.

    The option applies to moves at the end of another job's all-reduce, as in the published simulator."""
    floor: float = 0.1
    """Fraction of each link that every rank keeps, for jobs with ranks."""
    max_wait: float = 0.02
    """Largest wait of a job for its slot in an iteration, as a fraction of the iteration on its circle."""
    seed: int = 1
    """Seed of hashes and compute times."""
