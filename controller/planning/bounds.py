"""Lower bounds of the levels of every routing, in closed form.

In: a ``Problem``. Out: bounds for the worst level, and one per job. All come from *cuts*: flows each of which must
cross one link of a set of links C, whatever path it takes (the flows out of a leaf and its uplinks; the flows into
it; those between a pair of leaves, where not every uplink leads there; on three tiers those of pods).

- Fluid: on link l the load times the capacity is the sum over jobs of their peaks; summed over C it is at least the sum
  over jobs of their largest phase D_j, so some link has load >= sum D_j / sum c. This also holds with split flows.
- Whole flows: m flows of at least d bit/s, of one phase per job so that they do add up, fill some link at least to
  the m-th smallest of the numbers k*d/c_l (k = 1, 2, ...; l in C). With S equal links and flows it is ceil(m/S)*d/c,
  which edge colouring reaches on a leaf-spine (König).
- Whole flows whose demands are multiples of one unit u load links of capacity c in steps of u/c: the fluid bound is
  rounded up to the next step.
- When the fluid bound of a cut is reached, all its links are equally loaded: every job that crosses it has that level.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import numpy as np

from controller.planning.crossings import crossings
from controller.planning.efficiency import Peaks, nic_levels, peaks
from controller.planning.numbered import Bools, Floats, Ints, distinct
from controller.planning.problem import Problem
from signalbox.jobs.spec import JobId

_SIZES = 16
"""Number of distinct demands, from the largest, for which the bound of whole flows is computed; each is valid."""
_TIGHT = 1e-9
_FINEST = 64
"""A common unit of demands is at least the smallest demand divided by this; else they count as having none."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """All >= 1. ``fluid``: no routing has a smaller worst level, however the flows are split. ``integer``: none of
    whole flows has. ``worst``: none has that splits only the flows that may be split. ``job``: like ``worst``, for a
    job's own level. ``tight``: jobs that have the worst level in every routing that reaches ``fluid``. ``cuts``: the
    cuts that prove all this."""

    fluid: float
    integer: float
    worst: float
    job: Mapping[JobId, float]
    tight: frozenset[JobId]
    cuts: Cuts = field(repr=False, compare=False)

    @property
    def vector(self) -> tuple[float, ...]:
        """Lower bounds of the levels sorted from the worst, one per job; each holds for routings that reach the ones
        before it."""
        if self.worst > self.fluid * (1 + _TIGHT):
            own = sorted(self.job.values(), reverse=True)
        else:
            own = sorted((self.worst if job in self.tight else level for job, level in self.job.items()), reverse=True)
        return (self.worst, *own[1:]) if own else ()

    @property
    def even(self) -> dict[JobId, float]:
        """The level of each job where all links of each cut are equally loaded."""
        cuts = self.cuts
        even = np.ones(len(cuts.job_ids))
        np.maximum.at(even, cuts.job, cuts.fluid()[cuts.cut])
        return {job: max(self.job.get(job, 1.0), level) for job, level in zip(cuts.job_ids, even.tolist(), strict=True)}


def level_bounds(problem: Problem) -> Bounds:
    """Bounds over the flows that have a path. On an unbroken leaf-spine with equal links and flows ``worst`` is
    reached."""
    cuts = Cuts(problem)
    nics = nic_levels(problem, cuts.routable)
    if not nics:
        return Bounds(1.0, 1.0, 1.0, {}, frozenset(), cuts)
    fluid_of = cuts.fluid()
    fluid = max(*nics.values(), float(fluid_of.max(initial=1.0)))
    worst = max(fluid, cuts.whole(~cuts.splits))
    job = nics
    if worst > 1:  # else no job alone is above 1 either
        alone = dict(zip(cuts.job_ids, cuts.job_levels().tolist(), strict=True))
        job = {of: max(level, alone[of]) for of, level in nics.items()}
    integer = max(worst, cuts.whole(np.ones(len(cuts.cut), bool))) if cuts.splits.any() else worst
    tight = {of for of, level in nics.items() if level >= fluid * (1 - _TIGHT)}
    if fluid > 1:
        full = np.flatnonzero(fluid_of >= fluid * (1 - _TIGHT))
        tight |= {cuts.job_ids[number] for number in np.unique(cuts.job[np.isin(cuts.cut, full)])}
    return Bounds(fluid, integer, worst, job, frozenset(tight), cuts)


class Cuts:
    """The cuts of a problem, and one row for every (cut, flow that crosses it, phase of the flow).

    ``cut``, ``job``, ``cell`` (job and phase), ``bps``, ``splits`` (the flow may be split): of each row. ``routable``:
    the flows that have a path. ``links``, ``capacity_bps``: per cut how many links it has and their capacity, nan where
    they differ. ``job_ids``: the jobs by number. ``crossings``: what the cuts are.
    """

    def __init__(self, problem: Problem) -> None:
        numbers = problem.numbers
        self.job_ids = numbers.job_ids
        self._jobs = len(numbers.job_ids)
        self._cells = max(1, len(numbers.cell_job))
        self._job_of_cell = numbers.cell_job
        self.crossings = crossings(problem)
        _, links_of, flows, cut, self.routable, of_links = self.crossings
        self.links = np.array([len(links) for links in links_of], np.int64)
        of_cut = np.repeat(np.arange(len(links_of)), self.links)
        bps = numbers.capacity_bps[of_links]
        bps = bps[np.lexsort((bps, of_cut))]
        self._total = np.bincount(of_cut, bps, len(links_of))
        ends = np.cumsum(self.links)
        slowest, fastest = bps[ends - self.links], bps[ends - 1]
        self.capacity_bps = np.where(fastest <= slowest * (1 + _TIGHT), slowest, np.nan)
        alike: dict[tuple[float, ...], int] = {}
        of_each = [tuple(of) for of in np.split(bps, ends[:-1])][: len(links_of)]
        self._alike = np.array([alike.setdefault(of, len(alike)) for of in of_each], np.int64)
        self._capacities = list(alike)
        row, entry = numbers.entries_of(flows)
        self.cut = cut[row]
        self.splits = numbers.most[flows[row]] > 1
        self.cell, self.bps = numbers.entry_cell[entry], numbers.entry_bps[entry]
        self.job = self._job_of_cell[self.cell]
        self._all = np.ones(len(self.cut), bool)

    def fluid(self) -> Floats:
        """Per cut."""
        return self._fluid(self.cut, np.arange(len(self._total)))

    def whole(self, rows: Bools) -> float:
        """The largest bound of any cut from these rows' flows, which are whole."""
        return float(self.whole_levels(rows).max(initial=1.0))

    def whole_levels(self, rows: Bools) -> Floats:
        """Per cut the bound from these rows' flows, which are whole; 0 where none crosses."""
        return self._whole(self.cut, np.arange(len(self._total)), rows)

    def job_levels(self) -> Floats:
        """Per job the largest bound of a cut that only its own flows cross."""
        groups, group = distinct(self.cut * self._jobs + self.job)
        cut = groups // self._jobs
        levels = np.ones(self._jobs)
        np.maximum.at(levels, groups % self._jobs, self._fluid(group, cut))
        np.maximum.at(levels, groups % self._jobs, self._whole(group, cut, ~self.splits))
        return levels

    def loads(self) -> Floats:
        """What the largest phase of each job brings to a cut, / the cut's capacity; shape (cuts, jobs)."""
        cut, job, bps = self._peaks(self.cut, self._all)
        loads = np.zeros((len(self.links), self._jobs))
        loads[cut, job] = bps / self._total[cut]
        return loads

    def _fluid(self, group: Ints, cut: Ints) -> Floats:
        """``group``: of each row; ``cut``: of each group. Per group the sum of the jobs' largest phases / capacity."""
        of_group, _, bps = self._peaks(group, self._all)
        level: Floats = np.bincount(of_group, bps, len(cut)) / self._total[cut]
        return level

    def _peaks(self, group: Ints, rows: Bools) -> Peaks:
        """For every group and job in it, of these rows, the bit/s of the job's largest phase."""
        return peaks(group[rows], self.cell[rows], self.bps[rows], self._job_of_cell)

    def _whole(self, group: Ints, cut: Ints, rows: Bools) -> Floats:
        """Per group the bound of whole flows. Of each job only the phase with the most flows counts: those of several
        phases would not add up."""
        levels = self._stepped(group, cut, rows)
        kept = self._largest_phases(group, rows)
        group, bps = group[kept], self.bps[kept]
        kinds = len(self._capacities)
        for size in _largest_sizes(bps):
            counts = np.bincount(group[bps >= size], minlength=len(cut))
            some = np.flatnonzero(counts)
            known, place = distinct(counts[some] * kinds + self._alike[cut[some]])
            of = [whole_flow_bound(key // kinds, size, self._capacities[key % kinds]) for key in known.tolist()]
            levels[some] = np.maximum(levels[some], np.array(of)[place])
        return levels

    def _stepped(self, group: Ints, cut: Ints, rows: Bools) -> Floats:
        """Per group the fluid bound of these rows, which are whole, rounded up to the next step; 0 where there is no
        step."""
        of_group, _, bps = self._peaks(group, rows)
        level = np.bincount(of_group, bps, len(cut)) / self._total[cut]
        if level.max(initial=0.0) <= 1:
            return np.zeros(len(cut))
        steps = self._steps(group, cut, rows & (level > 1)[group])
        filled = np.divide(level, steps, where=steps > 0, out=np.zeros(len(cut)))
        # Each demand may be so much above its multiple (``common_unit``), and so may their sum.
        rounded: Floats = np.ceil(filled * (1 - _TIGHT) - _TIGHT) * steps
        return rounded

    def _steps(self, group: Ints, cut: Ints, rows: Bools) -> Floats:
        """Per group the unit of the demands of these rows / the capacity of one link; 0 where there is none."""
        sizes, size = np.unique(self.bps[rows], return_inverse=True)
        of_group, of_size = np.divmod(np.unique(group[rows] * max(1, len(sizes)) + size), max(1, len(sizes)))
        starts = np.flatnonzero(np.diff(of_group, prepend=-1)).tolist()
        known: dict[tuple[float, ...], float] = {}
        steps = np.zeros(len(cut))
        for begin, end in pairwise([*starts, len(of_size)]):
            those = tuple(sizes[of_size[begin:end]].tolist())
            if those not in known:
                known[those] = common_unit(those)
            steps[of_group[begin]] = known[those]
        steps /= self.capacity_bps[cut]
        return np.nan_to_num(steps)

    def steps(self) -> Floats:
        """Per cut what the load of one of its links is a multiple of; 0 where there is no such number."""
        steps = self._steps(self.cut, np.arange(len(self._total)), self._all)
        steps[np.unique(self.cut[self.splits])] = 0.0
        return steps

    def whole_flows(self) -> Iterator[tuple[float, Ints]]:
        """(size, count) for the largest sizes: how many whole flows of at least ``size`` bit/s of a job, in one of its
        phases, cross a cut; shape (cuts, jobs)."""
        kept = self._largest_phases(self.cut, ~self.splits)
        at, bps = self.cut[kept] * self._jobs + self.job[kept], self.bps[kept]
        for size in _largest_sizes(bps):
            count = np.bincount(at[bps >= size], minlength=len(self.links) * self._jobs)
            yield size, count.reshape(len(self.links), self._jobs)

    def _largest_phases(self, group: Ints, rows: Bools) -> Ints:
        """Those of the rows that are, per group and job, in the phase with the most of them."""
        numbers = np.flatnonzero(rows)
        at, place = distinct(group[numbers] * self._cells + self.cell[numbers])
        count = np.bincount(place, minlength=len(at))
        of_group, of_job = at // self._cells, self._job_of_cell[at % self._cells]
        order = np.lexsort((-count, of_job, of_group))
        first = np.diff(of_group[order], prepend=-1) | np.diff(of_job[order], prepend=-1)
        largest = np.zeros(len(at), bool)
        largest[order[first != 0]] = True
        kept: Ints = numbers[largest[place]]
        return kept


def _largest_sizes(bps: Floats) -> list[float]:
    """Descending. Of those that differ by rounding the smallest: at least so many flows are as large as that."""
    sizes: Floats = np.unique(bps)
    apart = np.diff(sizes, prepend=-np.inf) > _TIGHT * sizes
    largest: list[float] = sizes[apart][: -_SIZES - 1 : -1].tolist()
    return largest


def common_unit(demands_bps: Sequence[float]) -> float:
    """The largest number that all are multiples of; 0 when it is less than a ``_FINEST``-th of the smallest."""
    smallest = min(demands_bps)
    denominator = 1
    for bps in demands_bps:
        ratio = Fraction(bps / smallest).limit_denominator(_FINEST)
        if abs(ratio * smallest - bps) > _TIGHT * bps:
            return 0.0
        denominator = math.lcm(denominator, ratio.denominator)
    return smallest / denominator if denominator <= _FINEST else 0.0


def whole_flow_bound(count: int, demand_bps: float, capacities_bps: Sequence[float]) -> float:
    """The smallest largest load of ``count`` whole flows of ``demand_bps`` each over links side by side: the count-th
    smallest of all k * demand / capacity."""
    fluid = count * demand_bps / sum(capacities_bps)
    filled = [int(fluid * capacity / demand_bps) for capacity in capacities_bps]
    level = max(k * demand_bps / capacity for k, capacity in zip(filled, capacities_bps, strict=True))
    steps = [((k + 1) * demand_bps / c, k + 1, c) for k, c in zip(filled, capacities_bps, strict=True)]
    heapq.heapify(steps)
    for _ in range(count - sum(filled)):
        level, k, capacity = steps[0]
        heapq.heapreplace(steps, ((k + 1) * demand_bps / capacity, k + 1, capacity))
    return level
