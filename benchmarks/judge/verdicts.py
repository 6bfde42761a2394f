"""Verdicts on the planner's claims about an instance.

The module imports nothing of the controller. A ``Judge`` gets the instance's ``Exact``, and an ``Answer`` for each
number of subflows. Each ``Verdict`` has the smallest worst slowdown, as far as it can be found, and a sentence for
every claim that is refuted. Every refutation is a routing whose slowdowns are computed in fractions.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import cmp_to_key
from typing import Any

from benchmarks.judge import programme
from benchmarks.judge.exact import Exact, Routing

SAME = Fraction(1, 10**4)
"""Relative difference up to which the planner treats two slowdowns as equal (docs/explanation/planning.md)."""
_ROUNDING = Fraction(1, 10**9)
_BETTER = Fraction(1, 10**6)
"""Relative improvement of the worst slowdown that a better routing must have at least."""
SOLVE_S = 20.0
"""Time limit in seconds of one optimization by HiGHS."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Claims of a plan with at most ``max_subflows`` subflows per flow.

    Fields without a docstring are those of the controller's ``Plan``."""

    max_subflows: int
    routes: Routing
    """Subflows of each flow; none for a flow without a route."""
    job_slowdown: Mapping[int, float]
    bound: float
    fluid_bound: float
    integer_bound: float
    slowdowns_proven: int
    certificate: str
    """Certificate of the plan. If there is no plan, the text begins with "none"."""
    solver: str
    wall_s: float
    cpu_s: float


@dataclass(slots=True)
class Verdict:
    max_subflows: int
    slowdown: float
    optimum: float
    """Smallest worst slowdown of any known routing with at most ``max_subflows`` subflows per flow."""
    decided: bool
    """Whether it is proven that no routing with at most ``max_subflows`` subflows per flow is better."""
    least: float
    """Fluid optimum, or a lower bound of it.

    The fluid optimum is the smallest worst slowdown with any number of subflows."""
    bound: float
    certificate: str
    solver: str
    wall_s: float
    cpu_s: float
    most_subflows: int
    jobs_proven: int
    undecided: int = 0
    """Number of slowdowns, except the worst, that the plan claims as proven and that HiGHS could not judge in time."""
    refuted: list[str] = field(default_factory=list)
    """Sentences about claims of the certificate that are refuted."""
    faults: list[str] = field(default_factory=list)
    """Sentences about errors in the routing or in the stated slowdowns."""
    worse: list[str] = field(default_factory=list)
    """Sentences about slowdowns that are larger than in an answer with fewer subflows."""
    vector: list[float] = field(default_factory=list)
    """Slowdowns of all jobs under the plan, largest first."""
    best_vector: list[float] = field(default_factory=list)
    """Smallest possible slowdowns, largest first, compared entry by entry; empty if they were not decided in time."""

    @property
    def gap(self) -> float:
        """Excess of the worst slowdown over ``optimum``, relative to it."""
        return max(0.0, self.slowdown / self.optimum - 1)

    @property
    def vector_gap(self) -> float | None:
        """Largest relative excess of ``vector`` over ``best_vector`` in any entry; None without ``best_vector``."""
        gaps = [slowdown / best - 1 for slowdown, best in zip(self.vector, self.best_vector, strict=False)]
        return max(0.0, *gaps) if gaps else None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "gap": self.gap, "vector_gap": self.vector_gap}


class Judge:
    """Judge of one instance.

    Answers must be judged in ascending order of ``max_subflows``, because a routing found for few subflows is also
    valid for more."""

    def __init__(self, exact: Exact, solve_s: float = SOLVE_S) -> None:
        self._exact = exact
        self._solve_s = solve_s
        self._fluid: Fraction | None = None
        self._whole: Fraction | None = None
        self._best: Routing | None = None
        self._before: tuple[Fraction, ...] = ()

    def of(self, answer: Answer) -> Verdict:
        """Return the full verdict, with the optimum for the answer's number of subflows."""
        verdict, vector = self._begin(answer)
        if not vector:
            return verdict
        known = self._better(answer.routes)
        least = self._least(known)
        verdict.least = float(least)
        if known <= least * (1 + _BETTER):
            verdict.decided = True
        else:
            found = programme.better(self._exact, answer.max_subflows, (), known * (1 - _BETTER), self._solve_s)
            verdict.decided = found.decided
            if found.routing:
                known = self._better(found.routing)
        verdict.optimum = float(known)
        if known < Fraction(answer.bound) * (1 - _ROUNDING):
            verdict.refuted.append(f"the bound is {answer.bound:.9g}, but a routing reaches {float(known):.9g}")
        fluid = self._fluid or known
        if fluid < Fraction(answer.fluid_bound) * (1 - _ROUNDING):
            verdict.refuted.append(
                f"the fluid bound is {answer.fluid_bound:.9g}, but a routing reaches {float(fluid):.9g}"
            )
        if answer.max_subflows == 1:
            self._whole = known
        if self._whole and self._whole < Fraction(answer.integer_bound) * (1 - _ROUNDING):
            verdict.refuted.append(
                f"the bound of whole flows is {answer.integer_bound:.9g}, but a routing reaches "
                f"{float(self._whole):.9g}"
            )
        self._proven(answer, vector, verdict)
        return verdict

    def quick(self, answer: Answer) -> Verdict:
        """Return a verdict without the optimum, for workloads of a thousand flows.

        The plan is compared with the largest bound of a cut."""
        verdict, vector = self._begin(answer)
        if vector:
            least = self._exact.whole_cut_slowdown if answer.max_subflows == 1 else self._exact.cut_slowdown
            verdict.optimum = verdict.least = float(least)
            verdict.decided = vector[0] <= least * (1 + _BETTER)
        return verdict

    def _begin(self, answer: Answer) -> tuple[Verdict, tuple[Fraction, ...]]:
        """Return the parts of a verdict that need no solver, and the slowdowns under the plan, largest first.

        The slowdowns are empty when the routing is invalid."""
        claimed = max(answer.job_slowdown.values(), default=1.0)
        verdict = Verdict(
            max_subflows=answer.max_subflows,
            slowdown=claimed,
            optimum=claimed,
            decided=False,
            least=1.0,
            bound=answer.bound,
            certificate=answer.certificate,
            solver=answer.solver,
            wall_s=answer.wall_s,
            cpu_s=answer.cpu_s,
            most_subflows=max(map(len, answer.routes), default=0),
            jobs_proven=answer.slowdowns_proven,
        )
        if answer.certificate.startswith("none"):
            verdict.faults.append(answer.certificate)
            return verdict, ()
        verdict.faults += list(self._exact.faults(answer.routes, answer.max_subflows))[:4]
        if verdict.faults:
            return verdict, ()
        slowdowns = self._exact.slowdowns(answer.routes)
        verdict.faults += self._wrong_slowdowns(answer, slowdowns)
        vector = tuple(sorted(slowdowns.values(), reverse=True))
        verdict.slowdown = float(vector[0])
        worse = first_difference(vector, self._before) if self._before else None
        if worse is not None and vector[worse] > self._before[worse]:
            numbers = f"{float(vector[worse]):.6g} instead of {float(self._before[worse]):.6g}"
            verdict.worse.append(f"slowdown number {worse + 1} from the worst is {numbers}")
        if worse is not None or not self._before:
            self._before = min(vector, self._before or vector)
        return verdict, vector

    def _wrong_slowdowns(self, answer: Answer, slowdowns: Mapping[int, Fraction]) -> Iterator[str]:
        if slowdowns.keys() != answer.job_slowdown.keys():
            yield f"the plan has slowdowns of jobs {sorted(answer.job_slowdown)}, but the jobs are {sorted(slowdowns)}"
            return
        for job, slowdown in slowdowns.items():
            if abs(slowdown - Fraction(answer.job_slowdown[job])) > _ROUNDING * slowdown:
                yield f"job {job} has slowdown {float(slowdown):.9g}, but the plan says {answer.job_slowdown[job]:.9g}"

    def _better(self, routing: Routing) -> Fraction:
        """Remember the routing if it is the best so far, and return the best routing's worst slowdown."""
        if self._best is None or self._exact.vector(routing)[0] < self._exact.vector(self._best)[0]:
            self._best = routing
        return self._exact.vector(self._best)[0]

    def _least(self, slowdown: Fraction) -> Fraction:
        """Return the fluid optimum, or a lower bound of it that proves ``slowdown`` optimal."""
        if slowdown <= self._exact.cut_slowdown * (1 + _BETTER):
            return self._exact.cut_slowdown
        if self._fluid is None:
            found = programme.fluid(self._exact, 10 * self._solve_s)
            if found.routing is None or not found.decided:
                return self._exact.cut_slowdown
            self._fluid = self._exact.vector(found.routing)[0]
        return max(self._exact.cut_slowdown, self._fluid * (1 - _BETTER / 10))

    def _proven(self, answer: Answer, vector: tuple[Fraction, ...], verdict: Verdict) -> None:
        """Compute the smallest possible slowdowns one after the other, and refute claims of larger proven slowdowns.

        Each slowdown is minimized while all larger ones are kept at their smallest values."""
        if answer.slowdowns_proven and vector[0] > Fraction(verdict.optimum) * (1 + 2 * SAME):
            verdict.refuted.append(
                f"worst slowdown {float(vector[0]):.9g} is claimed as proven, but a routing reaches "
                f"{verdict.optimum:.9g}"
            )
        best = min(vector, self._exact.vector(self._best or answer.routes), key=cmp_to_key(_compare))
        deadline, decided = time.monotonic() + self._solve_s, verdict.decided
        least = sorted(self._exact.nic_slowdowns.values(), reverse=True)
        for index in range(1, len(best)):
            if best[index] <= least[index] * (1 + _ROUNDING):
                continue
            below = best[index] * (1 - 2 * SAME)
            left_s = max(1.0, deadline - time.monotonic())
            found = programme.better(self._exact, answer.max_subflows, best[:index], below, left_s)
            decided &= found.decided
            if found.routing is None:
                verdict.undecided += index < answer.slowdowns_proven and not found.decided
                continue
            best = min(best, self._exact.vector(found.routing), key=cmp_to_key(_compare))
        if not verdict.refuted and _compare(best[: answer.slowdowns_proven], vector[: answer.slowdowns_proven]) < 0:
            claim = f"the {answer.slowdowns_proven} largest slowdowns of {_shown(vector)} are claimed as proven"
            verdict.refuted.append(f"{claim}, but a routing reaches {_shown(best)}")
        verdict.vector = [float(slowdown) for slowdown in vector]
        verdict.best_vector = [float(slowdown) for slowdown in best] if decided else []


def first_difference(slowdowns: Sequence[Fraction], others: Sequence[Fraction]) -> int | None:
    """Return the first index at which the vectors differ by more than 2 ``SAME``, relatively; None if there is none."""
    for index, (a, b) in enumerate(zip(slowdowns, others, strict=True)):
        if abs(a - b) > 2 * SAME * max(a, b):
            return index
    return None


def _shown(slowdowns: Sequence[Fraction]) -> list[float]:
    return [float(f"{float(slowdown):.7g}") for slowdown in slowdowns]


def _compare(slowdowns: Sequence[Fraction], others: Sequence[Fraction]) -> int:
    """Return -1 if ``slowdowns`` is smaller at the first difference, 1 if it is larger, 0 if there is none."""
    where = first_difference(slowdowns, others)
    return 0 if where is None else -1 if slowdowns[where] < others[where] else 1
