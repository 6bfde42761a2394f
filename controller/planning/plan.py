"""The planner's answer: a checked plan with its certificate, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from controller.jobs.spec import JobId
from controller.planning.problem import FlowId, Routes

Certificate = Literal["optimal", "gap", "heuristic"]


@dataclass(frozen=True, slots=True)
class EcmpLevel:
    """The worst job level under hashing, over seeded draws on the same snapshot."""

    mean: float
    p95: float


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """Milliseconds per stage. ``ecmp_ms``: the comparison with ECMP, which follows when the plan is checked and is no
    part of ``total_ms``."""

    build_ms: float
    solve_ms: float
    check_ms: float
    ecmp_ms: float = 0.0

    @property
    def total_ms(self) -> float:
        return self.build_ms + self.solve_ms + self.check_ms


@dataclass(frozen=True, slots=True)
class Plan:
    """``routes``: of every routed flow. ``job_level``: L_j >= 1, see ``efficiency``.

    ``bound``: no routing within the flows' ``max_subflows`` has a smaller worst level. ``fluid_bound``: none has if all
    flows may be split at will; ``integer_bound``: none has if all are whole. ``gap``: max_level / bound - 1.
    ``certificate``: ``optimal`` when all levels are proven, ``gap`` when the worst level or at least its distance
    from the best is, ``heuristic`` when only closed-form bounds stand beside it. ``levels_proven``: how many entries
    of the descending vector of job levels are proven optimal. ``moves``: flows whose current route still stands and
    which the plan routes otherwise. ``solver``: which stage the routes come from. ``ecmp``: None when no draws were
    asked for.
    """

    generation: int
    routes: Routes
    unrouted: tuple[FlowId, ...]
    job_level: Mapping[JobId, float]
    bound: float
    fluid_bound: float
    integer_bound: float
    certificate: Certificate
    levels_proven: int
    moves: int
    solver: str
    ecmp: EcmpLevel | None
    times: PlanTimes

    @property
    def max_level(self) -> float:
        return max(self.job_level.values(), default=1.0)

    @property
    def gap(self) -> float:
        return max(0.0, self.max_level / self.bound - 1.0)

    @property
    def subflows(self) -> int:
        """Pieces of all routed flows."""
        return sum(map(len, self.routes.values()))

    @property
    def sorted_levels(self) -> tuple[float, ...]:
        return tuple(sorted(self.job_level.values(), reverse=True))


@dataclass(frozen=True, slots=True)
class NoPlan:
    """The planner could not answer; the running routes stay as they are."""

    generation: int
    reason: str
