"""The planner's answer: a checked plan with its certificate, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from controller.fabric.topology import Path
from controller.jobs.spec import JobId
from controller.planning.problem import FlowId

Certificate = Literal["optimal", "gap", "heuristic"]


@dataclass(frozen=True, slots=True)
class EcmpLevel:
    """The worst job level under hashing, over seeded draws on the same snapshot."""

    mean: float
    p95: float


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """Milliseconds per stage."""

    build_ms: float
    solve_ms: float
    check_ms: float

    @property
    def total_ms(self) -> float:
        return self.build_ms + self.solve_ms + self.check_ms


@dataclass(frozen=True, slots=True)
class Plan:
    """``paths``: one path per routed flow. ``job_level``: L_j >= 1, see ``efficiency``.

    ``bound``: no routing has a smaller worst level. ``gap``: max_level / bound - 1. ``levels_proven``: how many
    entries of the descending vector of job levels are proven optimal. ``moves``: flows whose current path still
    exists and which the plan puts on another one. ``solver``: which stage the paths come from.
    """

    generation: int
    paths: Mapping[FlowId, Path]
    unrouted: tuple[FlowId, ...]
    job_level: Mapping[JobId, float]
    bound: float
    certificate: Certificate
    levels_proven: int
    moves: int
    solver: str
    ecmp: EcmpLevel
    times: PlanTimes

    @property
    def max_level(self) -> float:
        return max(self.job_level.values(), default=1.0)

    @property
    def gap(self) -> float:
        return max(0.0, self.max_level / self.bound - 1.0)

    @property
    def sorted_levels(self) -> tuple[float, ...]:
        return tuple(sorted(self.job_level.values(), reverse=True))


@dataclass(frozen=True, slots=True)
class NoPlan:
    """The planner could not answer; the running routes stay as they are."""

    generation: int
    reason: str
