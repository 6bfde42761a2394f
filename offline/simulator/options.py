"""Options of the simulator as plain values, in a file that imports quickly: every command reads it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Replan(StrEnum):
    """``published``: whenever a job begins or ends its all-reduce, over the flows that send at this moment, without
    memory of the running routes; every plan is adopted (as the simulator of arXiv 2503.05324 does it). ``hysteresis``:
    over all flows of the jobs in training, whether they send or not, and a plan is adopted as the controller adopts one
    (``planning.plan.decide``). ``never``: one plan for all jobs before the first of them starts."""

    PUBLISHED = "published"
    HYSTERESIS = "hysteresis"
    NEVER = "never"


class Sharing(StrEnum):
    """How connections share a full link: ``equal``, or ``weighted`` by the demand of their flows, as the planner weighs
    them (``efficiency``). Where all demands are equal, as in the published workloads, that is the same. How a sender
    divides a flow over its connections is not asked here, but of the job (``Dealing``)."""

    EQUAL = "equal"
    WEIGHTED = "weighted"


CYCLE_S = 10.0
"""Between two planning cycles while nothing changes, as the controller has it (``planning.interval_s``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """``iterations``: of each job. ``random_starts_s``: start times are drawn from 0 to this, None for the jobs' own.
    ``min_gain``, and ``max_moves`` per cycle (None: any number): for ``Replan.HYSTERESIS``. ``lose_sent``: when the end
    of another all-reduce moves a flow, the bits that it sent since the event before are sent again, as in the published
    simulator. ``seed``: of hashes and start times."""

    iterations: int = 10
    random_starts_s: float | None = None
    replan: Replan = Replan.HYSTERESIS
    sharing: Sharing = Sharing.EQUAL
    min_gain: float = 0.02
    max_moves: int | None = None
    lose_sent: bool = False
    seed: int = 1
