"""Lower bounds of the jobs' slowdowns, sorted from the worst, that follow from all cuts *together*.

In: a problem's ``Bounds``. Out: a ``SlowdownVector``.

When a leaf has more flows than uplinks, a job of these flows must be slow. Two such leaves may share one slow job, or
may need two. CP-SAT finds the lexicographically smallest slowdowns that satisfy the inequalities of all cuts
(``Need``). The model has jobs and slowdowns but no flows, so its size does not depend on the number of flows.

Suppose every job j has a slowdown of at most t_j. A flow of load s of job j then takes up a share f(s, t_j) of a link.
The shares of all flows add up to at most 1 on each link, and to at most m on the m links of a cut. The function f does
not increase with t, and has one of three forms; s0 is the load of any one flow:

- fluid: s / t, with the largest phase of each job;
- count: 1 / floor(t / s0) for s >= s0, else 0. A link has room for floor(t / s0) flows of load s0 or more.
- volume: s / t for s >= s0, else 0.

In the forms count and volume, f is 1 for a flow of load s > t - s0, which leaves no room for another flow of load s0.
These are dual feasible functions of bin packing (Fekete and Schepers, "New classes of fast lower bounds for bin packing
problems", 2001). When all demands are multiples of one unit, t is rounded down to a multiple of the load of one unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from controller.planning.bounds import Bounds, Cuts
from controller.planning.efficiency import is_less
from controller.planning.problem import Floats, Ints, PlanLimits
from controller.planning.whole_flows.cpsat import cp_model, solver_within
from signalbox.jobs.spec import JobId

_SCALE = 1_000_000
"""Integer that stands for a share of 1 of a cut.

Shares of jobs are rounded down, so that the result stays a lower bound."""
_ROUNDING = 1e-9
_MOST_SLOWDOWNS = 64
"""Largest number of different slowdowns in the model, besides the lowest one; the highest ones are kept."""
_SMALL = 0.5
"""Smallest sum of load / slowdown for which a cut is used.

The sum is over all jobs: the load that the job puts on the links of the cut, divided by the job's own lower bound. A
job's share of a cut is at most 2 * load / slowdown. The shares of a cut with a smaller sum therefore add up to at most
1, and the cut requires nothing."""
_MOST_STEPS = 64
_MOST_TERMS = 250_000
"""Largest product of the numbers of slowdowns, jobs and needs. Solving a larger model takes a second or more."""
_SECONDS = 0.2
"""Limit per stage in deterministic time (about seconds); a stage needs about a hundredth of this time."""


@dataclass(frozen=True, slots=True)
class SlowdownVector:
    """Lower bounds of the sorted slowdowns, and slowdowns of single jobs that match them."""

    slowdowns: tuple[float, ...]
    """Bounds sorted from the worst, one per job: no routing has lexicographically smaller sorted slowdowns."""
    ceiling: Mapping[JobId, float]
    """Slowdown that a routing may aim at for each job. Sorted, they are the smallest that the cuts allow."""


def slowdown_vector(bounds: Bounds, limits: PlanLimits) -> SlowdownVector:
    """Return bounds at least as strong as ``bounds.vector``.

    When the model would be too large, or the time ``limits.until`` is over, only the bound of the worst slowdown may be
    stronger."""
    needs = contested(bounds)
    worst = least_worst(needs, bounds.worst)
    slowdowns = _slowdowns(bounds, needs, worst)
    small = len(slowdowns) * len(bounds.job) * len(needs) <= _MOST_TERMS
    if small and len(bounds.job) > 1 and len(slowdowns) > 1 and limits.left_s > 0:
        found = _Model(bounds, needs, slowdowns, limits).solve()
        if found:
            return found
    own = bounds.vector if worst <= bounds.worst else bounds.with_worst(worst)
    return SlowdownVector(own, dict.fromkeys(bounds.job, worst))


def stronger(one: Sequence[float], other: Sequence[float]) -> tuple[float, ...]:
    """Return the lexicographically larger of two lower bounds of sorted slowdowns.

    Missing entries at the end count as 1. Taking the larger entry at each position would be wrong, because an entry
    holds only for routings that reach the entries before it."""
    pairs = list(zip_longest(one, other, fillvalue=1.0))
    left, right = zip(*pairs, strict=True) if pairs else ((), ())
    return right if is_less(left, right) else left


def _slowdowns(bounds: Bounds, needs: Iterable[Need], worst: float) -> list[float]:
    """Return the slowdowns of the model, ascending: the jobs' own bounds, and those at which a need changes."""
    lowest = min(bounds.job.values(), default=1.0)
    slowdowns = {*bounds.job.values(), worst, *(slowdown for need in needs for slowdown in need.changes(worst))}
    ascending = sorted(slowdown for slowdown in slowdowns if lowest <= slowdown <= worst)
    apart = [b for a, b in zip([0.0, *ascending], ascending, strict=False) if b > a * (1 + _ROUNDING)]
    return [lowest, *apart[1:][-_MOST_SLOWDOWNS:]]


class _Model:
    def __init__(self, bounds: Bounds, needs: Sequence[Need], slowdowns: Sequence[float], limits: PlanLimits) -> None:
        self._bounds = bounds
        self._until = limits.until
        self._slowdowns = slowdowns
        self._cp = cp_model.CpModel()
        # Per job and listed slowdown: whether the job has at least the listed slowdown. Slowdowns of jobs may lie
        # between two listed slowdowns.
        self._above = [
            [
                self._cp.new_int_var(slowdown <= floor * (1 + _ROUNDING), 1, f"{job} >= {slowdown}")
                for slowdown in slowdowns
            ]
            for job, floor in bounds.job.items()
        ]
        for above, job in zip(self._above, bounds.job, strict=True):
            for higher, lower in zip(above[1:], above, strict=False):
                self._cp.add_implication(higher, lower)
            if job in bounds.tight and slowdowns[-1] <= bounds.fluid * (1 + _ROUNDING):
                self._cp.add(above[-1] == 1)
        self._cp.add_bool_or(above[-1] for above in self._above)
        below_next = [slowdown * (1 - 2 * _ROUNDING) for slowdown in slowdowns[1:]] + [slowdowns[-1]]
        for need in needs:
            shares = np.array([need.of(slowdown) for slowdown in below_next])
            self._fits(np.floor(shares * _SCALE).astype(np.int64))

    def _fits(self, shares: Ints) -> None:
        """Require that the jobs' shares of a cut add up to at most 1.

        ``shares``: shares at each slowdown in units of ``_SCALE``; shape (slowdowns, jobs)."""
        saved = -np.diff(shares, axis=0)
        terms = [
            int(less) * higher
            for above, column in zip(self._above, saved.T, strict=True)
            for higher, less in zip(above[1:], column, strict=True)
            if less
        ]
        self._cp.add(sum(terms) >= int(shares[0].sum()) - _SCALE)

    def solve(self) -> SlowdownVector | None:
        """Return the smallest sorted slowdowns that satisfy all needs; None when time runs out."""
        jobs = len(self._above)
        height = [sum(above[1:]) for above in self._above]
        found: list[float] = []
        slowdown = len(self._slowdowns) - 1
        while len(found) < jobs:
            at_least = [above[slowdown] for above in self._above]
            solver = self._minimise(sum(at_least))
            if solver is None:
                return None
            count = round(solver.objective_value)
            self._cp.add(sum(at_least) <= count)
            found += [self._slowdowns[slowdown]] * (count - len(found))
            if count == jobs:
                break
            following = self._cp.new_int_var(0, slowdown - 1, "following")
            for of_job, slower in zip(height, at_least, strict=True):
                self._cp.add(following >= of_job).only_enforce_if(~slower)
            solver = self._minimise(following)
            if solver is None:
                return None
            slowdown = solver.value(following)
            self._cp.add(following <= slowdown)
        return self._slow_where_most_flows(found, height)

    def _slow_where_most_flows(self, found: list[float], height: Sequence[Any]) -> SlowdownVector | None:
        """Return slowdowns and ceilings, with large ceilings for jobs with many flows; None when time runs out.

        More routings reach the bounds ``found`` when the slow jobs are those with the most flows."""
        cuts = self._bounds.cuts
        flows = dict(zip(cuts.job_ids, np.bincount(cuts.job, minlength=len(cuts.job_ids)).tolist(), strict=True))
        weights = [flows[job] for job in self._bounds.job]
        solver = self._minimise(-sum(weight * of_job for weight, of_job in zip(weights, height, strict=True)))
        if solver is None:
            return None
        ceiling = {
            job: self._slowdowns[sum(solver.boolean_value(above) for above in of_job) - 1]
            for job, of_job in zip(self._bounds.job, self._above, strict=True)
        }
        return SlowdownVector(tuple(found), ceiling)

    def _minimise(self, objective: Any) -> cp_model.CpSolver | None:
        self._cp.minimize(objective)
        solver = solver_within(PlanLimits(until=self._until), _SECONDS)
        return solver if solver.solve(self._cp) == cp_model.OPTIMAL else None


# ---- requirements of cuts


@dataclass(frozen=True, slots=True)
class Need:
    """Inequality that one cut imposes on the slowdowns of the jobs."""

    amounts: tuple[tuple[float, ...], ...]
    """Flows of each job per link of the cut: number of flows across the cut / number of links of the cut.

    Row i counts the flows of load ``loads[i]``; shape (``loads``, jobs). A fluid need has a single row: the load of
    each job."""
    loads: tuple[float, ...]
    """Loads that one flow puts on a link, descending; the last load is s0 of the module's docstring.

    Empty for a fluid need."""
    by_volume: bool
    """Whether f has the form volume of the module's docstring, not the form count."""
    step: float
    """Number of which every possible load of a link is a multiple; 0 when there is no such number."""

    def of(self, slowdown: float) -> Floats:
        """Return the share of the cut that each job needs to have a slowdown of at most ``slowdown``.

        The cut allows these slowdowns when the shares add up to at most 1."""
        shares: Floats = np.array(self._shares(slowdown)) @ np.array(self.amounts)
        return shares

    def _shares(self, slowdown: float) -> list[float]:
        if self.step:
            slowdown = max(1, int(slowdown / self.step * (1 + _ROUNDING))) * self.step
        if not self.loads:
            return [1 / slowdown]
        least = self.loads[-1]
        fit = max(1, int(slowdown / least * (1 + _ROUNDING)))
        return [
            1.0 if fit == 1 or self._fills_link(load, slowdown) else load / slowdown if self.by_volume else 1 / fit
            for load in self.loads
        ]

    def after(self, slowdown: float) -> float:
        """Return the next slowdown above ``slowdown`` at which the sum of the jobs' shares may be smaller.

        The sum of the shares at ``slowdown`` must be above 1."""
        if self.step:
            return (int(slowdown / self.step * (1 + _ROUNDING)) + 1) * self.step
        if not self.loads:
            return float(np.sum(self.amounts))
        least = self.loads[-1]
        steps = [(int(slowdown / least * (1 + _ROUNDING)) + 1) * least, *(load + least for load in self.loads)]
        following = min(step for step in steps if step > slowdown * (1 + _ROUNDING))
        if not self.by_volume:
            return following
        own = [sum(row) for row in self.amounts]
        large = sum(row for row, load in zip(own, self.loads, strict=True) if self._fills_link(load, slowdown))
        rest = sum(
            row * load for row, load in zip(own, self.loads, strict=True) if not self._fills_link(load, slowdown)
        )
        return min(following, rest / (1 - large)) if large < 1 else following

    def _fills_link(self, load: float, slowdown: float) -> bool:
        """Return whether a flow of this load leaves no room for another flow of load s0 on a link."""
        return load > (slowdown - self.loads[-1]) * (1 + _ROUNDING)

    def changes(self, highest: float) -> Iterator[float]:
        """Yield the slowdowns up to ``highest`` at which ``of`` changes.

        Many of them are multiples of a step. Only the highest ``_MOST_STEPS`` multiples are included."""
        step = self.step or (self.loads[-1] if self.loads else 0.0)
        if step:
            most = int(highest / step * (1 + _ROUNDING))
            yield from (step * times for times in range(max(1, most - _MOST_STEPS), most + 1))
        if not self.step:
            yield from (load + self.loads[-1] for load in self.loads)


def contested(bounds: Bounds) -> list[Need]:
    """Return the needs that cannot be satisfied when every job has the slowdown of its own lower bound."""
    floors = np.array(list(bounds.job.values()))
    place = {job: column for column, job in enumerate(bounds.cuts.job_ids)}
    column = [place[job] for job in bounds.job]
    needs = dict.fromkeys([*_fluid(bounds.cuts, column, floors), *_packed(bounds.cuts, column, floors)])
    levels = np.unique(floors).tolist()
    return [need for need in needs if _required(need, floors, levels) > 1 + _ROUNDING]


def least_worst(needs: Sequence[Need], worst: float) -> float:
    """Return the smallest slowdown (>= ``worst``) that satisfies all needs when every job has this slowdown.

    The search stops after ``_MOST_STEPS`` steps; the result is then a lower bound of this slowdown."""
    slowdown = worst
    for _ in range(_MOST_STEPS):
        following = [need.after(slowdown) for need in needs if need.of(slowdown).sum() > 1 + _ROUNDING]
        if not following:
            break
        slowdown = max(following)
    return slowdown


def _required(need: Need, floors: Floats, levels: Sequence[float]) -> float:
    return float(sum(need.of(floor)[floors == floor].sum() for floor in levels))


def _fluid(cuts: Cuts, column: Sequence[int], floors: Floats) -> Iterator[Need]:
    loads, steps = cuts.loads()[:, column], cuts.steps()
    for cut in np.flatnonzero((loads / floors).sum(axis=1) > _SMALL).tolist():
        yield Need((tuple(loads[cut].tolist()),), (), by_volume=True, step=float(steps[cut]))


def _packed(cuts: Cuts, column: Sequence[int], floors: Floats) -> Iterator[Need]:
    sizes, counts = [], []
    for size, at_least in cuts.whole_flows():
        sizes.append(size)
        counts.append(at_least[:, column])
    if not sizes:
        return
    exactly = np.diff(np.array(counts), axis=0, prepend=0)
    steps = cuts.steps()
    full = (cuts.loads()[:, column] / floors).sum(axis=1) > _SMALL
    for cut in np.flatnonzero(full & np.isfinite(cuts.capacity_bps)).tolist():
        present = np.flatnonzero(exactly[:, cut].any(axis=1)).tolist()
        loads = tuple(sizes[number] / float(cuts.capacity_bps[cut]) for number in present)
        amounts = tuple(tuple(row) for row in (exactly[present, cut] / cuts.links[cut]).tolist())
        for end in range(1, len(present) + 1):
            for by_volume in (False, True):
                yield Need(amounts[:end], loads[:end], by_volume, float(steps[cut]))
