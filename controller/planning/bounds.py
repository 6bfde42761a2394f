"""Lower bounds of the slowdowns of every routing, in closed form.

In: a ``Problem``. Out: a bound of the worst slowdown, and one bound per job; or both bounds for peak slowdowns
(``efficiency``).

All bounds follow from *cuts*. A cut is a set C of links together with flows, each of which crosses one link of C on
every path. Examples are the uplinks of a leaf with the flows out of the leaf, and the links between two leaves when not
every spine connects them. Link l of C has the capacity c_l. A cut gives these bounds of peak slowdowns:

- Fluid bound: some link has a load >= sum D_j / sum c_l, even if flows are split. D_j is the rate of job j across the
  cut in its largest phase; the job's largest rates on all links of C add up to at least D_j.

- Whole flows: take m flows of at least d bit/s, from one phase per job, so that their loads add up. The largest load is
  at least the m-th smallest of the numbers k*d/c_l (k = 1, 2, ...; l in C). For S equal links this is ceil(m/S)*d/c,
  which edge colouring reaches on a leaf-spine (König). A flow of n*d bit/s or more counts n times.

- Few subflows: take m flows of at least d bit/s, each in at most K subflows. They use at most m*K links of C, so some
  link has a load >= m*d / (sum of the m*K largest capacities in C).

- Few subflows, by *groups*: a group is flows and links of C that subflows connect. A group of f flows has at most
  f*(K-1) + 1 links, because each of its f*K subflows joins a flow and a link. With S links of at most c bit/s there are
  at least S - m*(K-1) groups, or some links are idle. So some group has f = ceil(m / (S - m*(K-1))) flows or more, and
  a link with a load >= f / (f*(K-1) + 1) * d/c. For K = 1 this is the bound of whole flows.

- Steps: whole flows whose demands are multiples of a unit u load links of capacity c in steps of u/c. The fluid bound
  is rounded up to the next step.

- Tight jobs: when a routing reaches the fluid bound of a cut, all links of the cut are equally loaded. Every job that
  crosses the cut then has the fluid bound as its slowdown.

Pods on three tiers have cuts of their own, because a pod may have less capacity to the cores than its leaves have to
the pod. A flow to another pod takes one plane: in it, an uplink of its leaf, and then a link from the pod to a core.
The cut of some leaves of the pod has for each plane either their uplinks or the pod's links to cores, whichever have
less capacity. With equal links, n leaves with D flows, and c links to cores per plane, some link has at least D / (sum
of min(n, c) over the planes) flows. There is a cut for the most loaded leaf, for the two most loaded leaves, and so on,
and likewise for flows into leaves.

The bound of a job with several phases follows from the bounds of its phases. Each phase has the bound of its own flows.
At a cut of one link, the largest phases of the other jobs count too. Two bounds of the worst slowdown also count jobs
that share several links:

- A cut whose bound is L has a link with a load of at least L. A phase that is the largest of its job on this link has
  at least the slowdown L.

- Meetings: jobs whose phases meet at a cut cannot all be fast in most phases (``meetings``).
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from controller.fabric.topology import Dpid, LinkId
from controller.planning.efficiency import Peaks, cell_slowdowns, nic_slowdowns, of_iterations, of_nics, peaks
from controller.planning.meetings import Meetings
from controller.planning.problem import Bools, Floats, Ints, Problem, Tiers, distinct, run_starts
from signalbox.jobs.spec import JobId

_SIZES = 16
"""Number of the largest distinct demands for which the bound of whole flows is computed.

With fewer demands the bounds are valid, but weaker."""
_TIGHT = 1e-9
"""Relative difference below which two values count as equal, because they may differ by rounding errors."""
_FINEST = 64
"""Largest quotient of the smallest demand and a common unit of all demands; a finer unit is not used."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lower bounds (>= 1) of the slowdowns of all routings."""

    fluid: float
    """Bound of the worst slowdown when flows may be split in any proportion."""
    integer: float
    """Bound of the worst slowdown when all flows are whole."""
    worst: float
    """Bound of the worst slowdown when only the flows that may be split are split."""
    job: Mapping[JobId, float]
    """Bound of each job's own slowdown, under the conditions of ``worst``."""
    tight: frozenset[JobId]
    """Jobs that have the worst slowdown in every routing that reaches ``fluid``."""
    cuts: Cuts = field(repr=False, compare=False)
    """Cuts that prove the bounds."""

    @property
    def vector(self) -> tuple[float, ...]:
        """Lower bounds of the sorted slowdowns of all jobs, from the worst slowdown on.

        The first entry bounds the worst slowdown of every routing. Each further entry holds for those routings whose
        worse slowdowns equal the entries before it."""
        return self.with_worst(self.worst, frozenset() if self.worst > self.fluid * (1 + _TIGHT) else self.tight)

    def with_worst(self, worst: float, tight: Set[JobId] = frozenset()) -> tuple[float, ...]:
        """Return ``vector`` with another bound of the worst slowdown, which also bounds each job in ``tight``."""
        own = sorted((worst if job in tight else slowdown for job, slowdown in self.job.items()), reverse=True)
        return (worst, *own[1:]) if own else ()

    @property
    def even(self) -> dict[JobId, float]:
        """Slowdown of each job when all links of each cut are equally loaded."""
        cuts = self.cuts
        even = np.ones(len(cuts.job_ids))
        np.maximum.at(even, cuts.job, cuts.fluid()[cuts.cut])
        return {
            job: max(self.job.get(job, 1.0), slowdown)
            for job, slowdown in zip(cuts.job_ids, even.tolist(), strict=True)
        }


def slowdown_bounds(problem: Problem) -> Bounds:
    """Return the bounds of slowdowns over the flows that have a path."""
    return over_phases(problem, peak_bounds(problem))


def peak_bounds(problem: Problem) -> Bounds:
    """Return the bounds of peak slowdowns over the flows that have a path.

    On an intact leaf-spine with equal links and flows some routing reaches ``worst``."""
    cuts = Cuts(problem)
    nics = nic_slowdowns(problem, cuts.routable)
    if not nics:
        return Bounds(1.0, 1.0, 1.0, {}, frozenset(), cuts)
    fluid_of = cuts.fluid()
    fluid = max(*nics.values(), float(fluid_of.max(initial=1.0)))
    worst = max(fluid, float(cuts.slowdowns(cuts.most).max(initial=1.0)))
    job = nics
    if worst > 1:  # otherwise the bound of every single job is 1 too
        alone = dict(zip(cuts.job_ids, cuts.job_slowdowns.tolist(), strict=True))
        job = {of: max(slowdown, alone[of]) for of, slowdown in nics.items()}
    whole = cuts.slowdowns(np.ones_like(cuts.most)) if cuts.splits.any() else np.zeros(0)
    integer = max(worst, float(whole.max(initial=1.0)))
    tight = {of for of, slowdown in nics.items() if slowdown >= fluid * (1 - _TIGHT)}
    if fluid > 1:
        full = np.flatnonzero(fluid_of >= fluid * (1 - _TIGHT))
        tight |= {cuts.job_ids[number] for number in np.unique(cuts.job[np.isin(cuts.cut, full)])}
    return Bounds(fluid, integer, worst, job, frozenset(tight), cuts)


def over_phases(problem: Problem, peak: Bounds, worst: float = 1.0, integer: float = 1.0) -> Bounds:
    """Return the bounds of slowdowns, given the bounds of peak slowdowns; they are equal when only worst phases count.

    ``worst``, ``integer``: further lower bounds of the worst peak slowdown, such as those of a solver."""
    if problem.phase_share is None:
        return peak
    least = _least(problem, peak, worst)
    _, fluid = _over_phases(problem, peak.cuts, None)
    _, whole = _over_phases(problem, peak.cuts, np.ones_like(peak.cuts.most), integer)
    return replace(least, fluid=fluid, integer=max(least.worst, whole))


def least_slowdowns(problem: Problem, peak: Bounds) -> tuple[float, ...]:
    """Return ``over_phases(problem, peak).vector`` in a third of the time."""
    return peak.vector if problem.phase_share is None else _least(problem, peak, 1.0).vector


def _least(problem: Problem, peak: Bounds, worst: float) -> Bounds:
    of_job, known = _over_phases(problem, peak.cuts, peak.cuts.most, worst)
    numbers = enumerate(problem.numbers.job_ids)
    own = {job: float(of_job[number]) for number, job in numbers if job in peak.job}
    return Bounds(known, known, known, own, frozenset(), peak.cuts)


def _over_phases(problem: Problem, cuts: Cuts, most: Ints | None, peak: float = 1.0) -> tuple[Floats, float]:
    """Return lower bounds of the slowdown of each job and of the worst slowdown.

    ``most``: see ``Cuts.cell_slowdowns``. ``peak``: lower bound of the worst peak slowdown."""
    share = problem.phase_share
    assert share is not None
    least = np.maximum(1.0, phase_bounds(problem, cuts, most))
    own = of_iterations(problem, least, share)
    load = cuts.fluid() if most is None else np.maximum(cuts.fluid(), cuts.slowdowns(most))
    of_cut = np.full(len(load), np.inf)
    more = share[cuts.cell] * np.maximum(0.0, load[cuts.cut] - least[cuts.cell])
    np.minimum.at(of_cut, cuts.cut, own[cuts.job] + more)
    of_peak = own[problem.numbers.cell_job] + share * np.maximum(0.0, peak - least)
    at_cut = np.where(np.isfinite(of_cut), of_cut, 1.0)
    worst = max(cuts.meetings(share).bound(least)[0], at_cut.max(initial=1.0), of_peak.min())
    return own, float(worst)


def phase_bounds(problem: Problem, cuts: Cuts, most: Ints | None) -> Floats:
    """Return a lower bound of the slowdown of each cell, from the loads of NICs and the cuts of its own flows.

    At a cut of one link, other jobs count too. ``most``: see ``Cuts.cell_slowdowns``."""
    of_nic = cell_slowdowns(problem, of_nics(problem, cuts.routable))[0]
    return np.maximum(np.maximum(cuts.cell_slowdowns(most), cuts.one_link()), of_nic)


class Cuts:
    """Cuts of a problem, as arrays.

    There is one row for each combination of a cut, a flow that crosses it, and a phase of the flow.

    - ``cut``, ``job``, ``cell`` (job and phase), ``bps``, ``most`` (largest number of subflows of the flow) and
      ``splits`` (whether the flow may be split) have one value per row.
    - ``links`` has the number of links of each cut, and ``capacity_bps`` the capacity of each of these links; it is NaN
      for a cut whose links have different capacities.
    - ``routable`` has the flows that have a path.
    - ``job_ids`` has the id of each job, by the number in ``job``.
    - ``crossings`` has the links and flows of the cuts."""

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
        self._total: Floats = np.bincount(of_cut, bps, len(links_of)).astype(np.float64, copy=False)
        ends = np.cumsum(self.links)
        self._slowest, fastest = bps[ends - self.links], bps[ends - 1]
        self.capacity_bps = np.where(fastest <= self._slowest * (1 + _TIGHT), self._slowest, np.nan)
        alike: dict[tuple[float, ...], int] = {}
        of_each = [
            (least,) * count if least == most else tuple(bps[end - count : end].tolist())
            for least, most, count, end in zip(
                self._slowest.tolist(), fastest.tolist(), self.links.tolist(), ends.tolist(), strict=True
            )
        ]
        self._alike = np.array([alike.setdefault(of, len(alike)) for of in of_each], np.int64)
        self._capacities = list(alike)
        row, entry = numbers.entries_of(flows)
        self.cut = cut[row]
        self.most = numbers.most[flows[row]]
        self.splits = self.most > 1
        self.cell, self.bps = numbers.entry_cell[entry], numbers.entry_bps[entry]
        self.job = self._job_of_cell[self.cell]
        self._all = np.ones(len(self.cut), bool)
        self._meetings: Meetings | None = None

    def fluid(self) -> Floats:
        """Return the lower bound of the slowdown at each cut when flows may be split in any proportion."""
        return self._fluid(self.cut, np.arange(len(self._total)))

    def slowdowns(self, most: Ints) -> Floats:
        """Return the bound of each cut when the flow of row i has at most ``most[i]`` subflows.

        The bound of a cut without flows is 0."""
        return self._of_few_subflows(self.cut, np.arange(len(self._total)), most)

    @cached_property
    def job_slowdowns(self) -> Floats:
        """Largest bound of any cut for each job when only the job's own flows count."""
        return self._alone(self.job, self._jobs, self.most)

    def cell_slowdowns(self, most: Ints | None) -> Floats:
        """Return for each cell the largest bound of any cut when only the cell's own flows count.

        ``most``: see ``slowdowns``; None for any number of subflows."""
        return self._alone(self.cell, len(self._job_of_cell), most)

    @cached_property
    def of_cells(self) -> tuple[Ints, Ints, Floats]:
        """Cut, cell and rate of each cell with flows across a cut, in ascending order of cuts and cells."""
        at, place = distinct(self.cut * self._cells + self.cell)
        return at // self._cells, at % self._cells, np.bincount(place, self.bps, len(at)).astype(np.float64)

    def share_meetings(self, cuts: Cuts) -> None:
        """Use the meetings of cuts of the same flows, which may have other numbers of subflows."""
        self._meetings = cuts._meetings

    def meetings(self, share: Floats) -> Meetings:
        """Return the meetings at these cuts. ``share``: share of each cell, the same in each call."""
        if self._meetings is None:
            self._meetings = Meetings(self._job_of_cell, share, *self.of_cells, self._total)
        return self._meetings

    def one_link(self) -> Floats:
        """Return for each cell the largest load that it sees at a cut of one link; 0 without such a cut."""
        cut, cell, bps = self.of_cells
        rows = np.flatnonzero(self.links[cut] == 1)
        cut, cell, bps = cut[rows], cell[rows], bps[rows]
        largest = peaks(cut, cell, bps, self._job_of_cell)
        others = np.bincount(largest.place, largest.bps, len(self.links))[cut]
        peak = np.searchsorted(largest.place * self._jobs + largest.job, cut * self._jobs + self._job_of_cell[cell])
        loads = np.zeros(len(self._job_of_cell))
        np.maximum.at(loads, cell, (others - largest.bps[peak] + bps) / self._total[cut])
        return loads

    def _alone(self, of: Ints, count: int, most: Ints | None) -> Floats:
        groups, group = distinct(self.cut * count + of)
        cut = groups // max(1, count)
        slowdowns = np.ones(count)
        np.maximum.at(slowdowns, groups % max(1, count), self._fluid(group, cut))
        if most is not None:
            np.maximum.at(slowdowns, groups % max(1, count), self._of_few_subflows(group, cut, most))
        return slowdowns

    def loads(self) -> Floats:
        """Return each job's load of each cut; shape (cuts, jobs).

        The load is the rate of the job's largest phase across the cut, divided by the cut's capacity."""
        cut, job, bps = self._peaks(self.cut, self._all)
        loads = np.zeros((len(self.links), self._jobs))
        loads[cut, job] = bps / self._total[cut]
        return loads

    def _fluid(self, group: Ints, cut: Ints) -> Floats:
        """Return the fluid load of each group's cut: the rates of jobs' largest phases / capacity of the cut."""
        of_group, _, bps = self._peaks(group, self._all)
        slowdown: Floats = np.bincount(of_group, bps, len(cut)) / self._total[cut]
        return slowdown

    def _peaks(self, group: Ints, rows: Bools) -> Peaks:
        return peaks(group[rows], self.cell[rows], self.bps[rows], self._job_of_cell)

    def _of_few_subflows(self, group: Ints, cut: Ints, most: Ints) -> Floats:
        """Return for each group of rows the largest of three bounds: of whole flows, of few subflows and of steps."""
        slowdowns = self._stepped(group, cut, most == 1)
        kinds = len(self._capacities)
        for subflows in np.flatnonzero(np.bincount(most)).tolist():
            # With more room on each link, the bound of few subflows is at most 1.
            rows = np.flatnonzero((most <= subflows) & (self.bps > (subflows - 1) * self._slowest[self.cut]))
            bps = self.bps[rows]
            for size in _largest_sizes(bps):
                large = bps >= size
                units = (bps[large] / size * (1 + _TIGHT)).astype(np.int64) if subflows == 1 else None
                counts = self._most_flows(group, rows[large], len(cut), units)
                some = np.flatnonzero(counts)
                known, place = distinct(counts[some] * kinds + self._alike[cut[some]])
                of = [flow_bound(key // kinds, size, self._capacities[key % kinds], subflows) for key in known.tolist()]
                slowdowns[some] = np.maximum(slowdowns[some], np.array(of)[place])
        return slowdowns

    def _most_flows(self, group: Ints, rows: Ints, groups: int, units: Ints | None) -> Ints:
        """Return for each group how many flows in ``rows`` can send at once: each job sends one phase, its largest.

        ``units``: number of times that each flow counts; None if each counts once."""
        if units is not None and units.max(initial=1) == 1:
            units = None
        if self._cells == self._jobs:
            return np.bincount(group[rows], units, groups).astype(np.int64, copy=False)
        at, place = distinct(group[rows] * self._cells + self.cell[rows])
        of_group, of_job = at // self._cells, self._job_of_cell[at % self._cells]
        first = run_starts(of_group * self._jobs + of_job)
        largest = np.maximum.reduceat(np.bincount(place, units, len(at)), first) if len(first) else first
        return np.bincount(of_group[first], largest, groups).astype(np.int64)

    def _stepped(self, group: Ints, cut: Ints, rows: Bools) -> Floats:
        """Return for each group the fluid bound of the flows of ``rows`` as whole flows, rounded up to the next step.

        The result is 0 for a group whose demands have no common unit."""
        of_group, _, bps = self._peaks(group, rows)
        slowdown = np.bincount(of_group, bps, len(cut)) / self._total[cut]
        if slowdown.max(initial=0.0) <= 1:
            return np.zeros(len(cut))
        steps = self._steps(group, cut, rows & (slowdown > 1)[group])
        filled = np.divide(slowdown, steps, where=steps > 0, out=np.zeros(len(cut)))
        # A demand may exceed a multiple of the unit by a factor of 1 + _TIGHT (``common_unit``), and so may the sum.
        rounded: Floats = np.ceil(filled * (1 - _TIGHT) - _TIGHT) * steps
        return rounded

    def _steps(self, group: Ints, cut: Ints, rows: Bools) -> Floats:
        """Return for each group of rows the step in which link loads grow when its flows are whole.

        The step is the largest common unit of the flows' demands, divided by the capacity of one link of the cut. It is
        0 if there is no common unit. Only ``rows`` (a mask) count."""
        sizes, size = np.unique(self.bps[rows], return_inverse=True)
        of_group, of_size = np.divmod(distinct(group[rows] * max(1, len(sizes)) + size)[0], max(1, len(sizes)))
        starts, demands_bps, steps = run_starts(of_group), sizes[of_size].tolist(), np.zeros(len(cut))
        ends = pairwise([*starts.tolist(), len(of_size)])
        steps[of_group[starts]] = [common_unit(tuple(demands_bps[begin:end])) for begin, end in ends]
        steps /= self.capacity_bps[cut]
        return np.nan_to_num(steps)

    def steps(self) -> Floats:
        """Return for each cut the step of its link loads: every load is a multiple of it; 0 where there is no step."""
        steps = self._steps(self.cut, np.arange(len(self._total)), self._all)
        steps[np.unique(self.cut[self.splits])] = 0.0
        return steps

    def whole_flows(self) -> Iterator[tuple[float, Ints]]:
        """Yield (size, count) for the largest sizes of whole flows.

        ``count[cut, job]`` is the number of whole flows of the job across the cut that have at least ``size`` bit/s.
        Only flows of one phase count: the phase in which the job has the most whole flows across the cut."""
        kept = self._largest_phases(self.cut, ~self.splits)
        at, bps = self.cut[kept] * self._jobs + self.job[kept], self.bps[kept]
        for size in _largest_sizes(bps):
            count = np.bincount(at[bps >= size], minlength=len(self.links) * self._jobs)
            yield size, count.reshape(len(self.links), self._jobs)

    def _largest_phases(self, group: Ints, rows: Bools) -> Ints:
        """Return the ``rows`` that remain when each job keeps only its phase with the most rows in each group."""
        numbers = np.flatnonzero(rows)
        at, place = distinct(group[numbers] * self._cells + self.cell[numbers])
        count = np.bincount(place, minlength=len(at))
        of_group, of_job = at // self._cells, self._job_of_cell[at % self._cells]
        order = np.lexsort((-count, of_job, of_group))
        largest = np.zeros(len(at), bool)
        largest[order[run_starts((of_group * self._jobs + of_job)[order])]] = True
        kept: Ints = numbers[largest[place]]
        return kept


def _largest_sizes(bps: Floats) -> list[float]:
    """Return the ``_SIZES`` largest distinct sizes in bit/s, in descending order.

    Sizes that differ only by rounding are replaced by the smallest of these sizes, so that no flow is counted at a
    larger size than its own."""
    sizes: Floats = np.unique(bps)
    apart = np.diff(sizes, prepend=-np.inf) > _TIGHT * sizes
    largest: list[float] = sizes[apart][: -_SIZES - 1 : -1].tolist()
    return largest


@lru_cache
def common_unit(demands_bps: tuple[float, ...]) -> float:
    """Return the largest number of which all demands are multiples.

    Return 0 when the number is less than a ``_FINEST``-th of the smallest demand."""
    smallest = min(demands_bps)
    denominator = 1
    for bps in demands_bps:
        ratio = Fraction(bps / smallest).limit_denominator(_FINEST)
        if abs(ratio * smallest - bps) > _TIGHT * bps:
            return 0.0
        denominator = math.lcm(denominator, ratio.denominator)
    return smallest / denominator if denominator <= _FINEST else 0.0


def flow_bound(count: int, demand_bps: float, capacities_bps: Sequence[float], subflows: int) -> float:
    """Return a lower bound of the largest load of ``count`` equal flows over parallel links.

    ``capacities_bps``: capacities in ascending order. ``subflows``: largest number of subflows per flow."""
    if subflows == 1:
        return whole_flow_bound(count, demand_bps, capacities_bps)
    widest = count * demand_bps / sum(capacities_bps[-count * subflows :])
    groups = len(capacities_bps) - count * (subflows - 1)
    if groups <= 0:
        return widest
    flows = -(-count // groups)
    return max(widest, flows / (flows * (subflows - 1) + 1) * demand_bps / capacities_bps[-1])


def whole_flow_bound(count: int, demand_bps: float, capacities_bps: Sequence[float]) -> float:
    """Return the smallest possible largest load of ``count`` equal whole flows over parallel links.

    This load is the count-th smallest of the numbers k * demand / capacity, for k = 1, 2, ... and all links."""
    fluid = count * demand_bps / sum(capacities_bps)
    filled = [int(fluid * capacity / demand_bps) for capacity in capacities_bps]
    slowdown = max(k * demand_bps / capacity for k, capacity in zip(filled, capacities_bps, strict=True))
    steps = [((k + 1) * demand_bps / c, k + 1, c) for k, c in zip(filled, capacities_bps, strict=True)]
    heapq.heapify(steps)
    for _ in range(count - sum(filled)):
        slowdown, k, capacity = steps[0]
        heapq.heapreplace(steps, ((k + 1) * demand_bps / capacity, k + 1, capacity))
    return slowdown


# ---- cuts and the flows that cross them


class Place(NamedTuple):
    """Place of a cut: a leaf, a pair of leaves, several leaves of one pod, or cables between two switches."""

    leaf: Dpid
    outward: bool
    """Whether the flows of the cut leave the leaf."""
    other: Dpid | None
    """Second leaf of a pair, or switch at the other end of cables; None for other cuts."""
    leaves: int = 0
    """Number of leaves of one pod, of which ``leaf`` is one; 0 for a single leaf.

    Flows within the pod do not cross the cut."""
    cables: bool = False
    """Whether the cut has the cables from ``leaf`` to ``other``, which may be any two switches."""


class Crossings(NamedTuple):
    """Cuts, and one row for every flow that crosses a cut: the indices of the flow and of the cut."""

    places: Sequence[Place]
    links: Sequence[Sequence[LinkId]]
    flow: Ints
    cut: Ints
    routable: Ints
    """Indices of the flows that have a path, whether or not they cross a cut."""
    numbers: Ints
    """Link numbers of all cuts, cut by cut, in any order within a cut."""


def crossings(problem: Problem) -> Crossings:
    """Return all cuts of the problem.

    A pair of leaves has a cut only if some uplink of the source, or some downlink of the destination, is on no path
    between the two. If all these links are on paths, the cut of a single leaf is at least as strong. The cables between
    two switches are a cut for the flows whose paths all begin or all end there."""
    over_spines = _crossings_over_spines(problem)
    if over_spines:
        return over_spines
    return _crossings_of_pods(problem, problem.tiers) if problem.tiers else _crossings_of_pairs(problem)


def _crossings_of_pairs(problem: Problem) -> Crossings:
    paths = problem.paths
    links_of: list[Sequence[LinkId]] = []
    number_of: dict[Place, int] = {}
    cuts_of: dict[tuple[Dpid, Dpid], tuple[int, ...]] = {}

    def cut(place: Place, links: Iterable[LinkId]) -> int:
        if place not in number_of:
            number_of[place] = len(links_of)
            links_of.append(tuple(links))
        return number_of[place]

    def cuts_between(src: Dpid, dst: Dpid) -> tuple[int, ...]:
        if src == dst or not paths.connected(src, dst):
            return ()
        cuts = []
        first, last = paths.ends(src, dst)
        for leaf, other, around, crossed in (
            (src, dst, paths.links_from(src), first),
            (dst, src, paths.links_into(dst), last),
        ):
            cuts.append(cut(Place(leaf, leaf == src, None), around))
            if len(crossed) < len(around):
                cuts.append(cut(Place(leaf, leaf == src, other), crossed))
        here = src
        while here != dst and len(after := {paths.far_end[link] for link in first}) == 1 and not paths.stretch:
            head = after.pop()
            cuts.append(cut(Place(here, True, head, cables=True), first))
            here, first = head, paths.ends(head, dst)[0]
        before = {link.dpid for link in last}
        if here != dst and len(before) == 1:
            cuts.append(cut(Place(before.pop(), True, dst, cables=True), last))
        return tuple(cuts)

    of_flow = []
    for flow in problem.flows:
        pair = (flow.src_leaf, flow.dst_leaf)
        if pair not in cuts_of:
            cuts_of[pair] = cuts_between(*pair)
        of_flow.append(cuts_of[pair])
    flows = np.repeat(np.arange(len(of_flow)), np.array([len(cuts) for cuts in of_flow], np.int64))
    routable = [index for index, flow in enumerate(problem.flows) if of_flow[index] or flow.src_leaf == flow.dst_leaf]
    cut_of = np.array([number for cuts in of_flow for number in cuts], np.int64)
    of_links = _numbers(problem, links_of)
    return Crossings(list(number_of), links_of, flows, cut_of, np.array(routable, np.int64), of_links)


def _numbers(problem: Problem, links_of: Iterable[Sequence[LinkId]]) -> Ints:
    number = problem.links.number
    return np.array([number[link] for links in links_of for link in links], np.int64)


def _crossings_over_spines(problem: Problem) -> Crossings | None:
    """Return the cuts of leaves and pairs of leaves if all paths have two links; otherwise None.

    The cut of a pair is left out if its bound cannot exceed 1. The bound cannot exceed 1 if the pair has no more flows
    than links, and each flow fits on the slowest link."""
    numbers, links, paths = problem.numbers, problem.links, problem.paths
    leaves, crossing = numbers.leaves, numbers.crossing
    shape = len(leaves), len(links.switch)
    sides = links.around(leaves, outward=True), links.around(leaves, outward=False)
    out, into = (
        np.bincount(side.at * shape[1] + side.other, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float32)
        for side in sides
    )
    ends = [links.switch.get(leaf, -1) for leaf in leaves]
    # einsum uses one thread. The threads of "@" (BLAS) keep a second processor busy for much longer than they compute.
    used = out.any(axis=0)
    first, last = (
        np.einsum("ij,kj->ik", cables[:, used], (others[:, used] > 0).astype(np.float32))
        for cables, others in ((out, into), (into, out))
    )
    src, dst = numbers.src[crossing], numbers.dst[crossing]
    if not len(crossing) or -1 in ends or (out[:, ends][src, dst] > 0).any() or not first[src, dst].all():
        return None
    pairs, pair = distinct(src * len(leaves) + dst)
    flows = np.bincount(pair)
    grouped, ends_at = crossing[np.argsort(pair, kind="stable")], np.cumsum(flows)
    slowest = min(float(numbers.capacity_bps[side.link].min()) for side in sides)
    may_fill = flows > (first.ravel()[pairs] if numbers.peak_bps.max() <= slowest else 0)
    out_of, into_of = np.divmod(pairs, len(leaves))
    fewer_out, fewer_in = (
        (first < out.sum(axis=1)[:, None])[out_of, into_of],
        (last < into.sum(axis=1)[:, None])[into_of, out_of],
    )
    found = _crossings_of_leaves(problem)
    places, links_of = [*found.places], [*found.links]
    flow, cut = [found.flow], [found.cut]
    for number in np.flatnonzero(may_fill & (fewer_out | fewer_in)).tolist():
        src_leaf, dst_leaf = leaves[out_of[number]], leaves[into_of[number]]
        for leaf, other, links_crossed, fewer in zip(
            (src_leaf, dst_leaf),
            (dst_leaf, src_leaf),
            paths.ends(src_leaf, dst_leaf),
            (fewer_out, fewer_in),
            strict=True,
        ):
            if fewer[number]:
                flow.append(grouped[ends_at[number] - flows[number] : ends_at[number]])
                cut.append(np.full(len(flow[-1]), len(places)))
                places.append(Place(leaf, leaf == src_leaf, other))
                links_of.append(tuple(links_crossed))
    of_links = np.concatenate([found.numbers, _numbers(problem, links_of[len(found.links) :])])
    return Crossings(places, links_of, np.concatenate(flow), np.concatenate(cut), found.routable, of_links)


def _crossings_of_leaves(problem: Problem) -> Crossings:
    numbers, leaves = problem.numbers, problem.numbers.leaves
    places = [Place(leaf, outward, None) for outward in (True, False) for leaf in leaves]
    links_of = [*map(problem.paths.links_from, leaves), *map(problem.paths.links_into, leaves)]
    crossing = numbers.crossing
    cut = np.stack([numbers.src[crossing], len(leaves) + numbers.dst[crossing]], axis=1).ravel()
    used, cut = distinct(cut)
    places, links_of = [places[index] for index in used], [links_of[index] for index in used]
    out, into = (problem.links.around(leaves, outward=outward) for outward in (True, False))
    crossed = np.isin(np.concatenate([out.at, len(leaves) + into.at]), used)
    of_links = np.concatenate([out.link, into.link])[crossed]
    return Crossings(places, links_of, np.repeat(crossing, 2), cut, np.arange(len(numbers.src)), of_links)


def _crossings_of_pods(problem: Problem, tiers: Tiers) -> Crossings:
    places, links_of, flows, cut, routable, of_links = _crossings_of_leaves(problem)
    added = list(_pod_cuts(problem, tiers))
    crossing = [flow for of in added for flow in of.flows]
    number = [len(places) + index for index, of in enumerate(added) for _ in of.flows]
    return Crossings(
        [*places, *(Place(of.leaves[0], of.outward, None, len(of.leaves)) for of in added)],
        [*links_of, *(of.links for of in added)],
        np.concatenate([flows, np.array(crossing, np.int64)]),
        np.concatenate([cut, np.array(number, np.int64)]),
        routable,
        np.concatenate([of_links, _numbers(problem, [of.links for of in added])]),
    )


# ---- pods


class _PodCut(NamedTuple):
    leaves: Sequence[Dpid]
    outward: bool
    links: Sequence[LinkId]
    flows: Sequence[int]


def _pod_cuts(problem: Problem, tiers: Tiers) -> Iterator[_PodCut]:
    """Yield the cuts that can be stronger than the cuts of single leaves."""
    load_bps = problem.numbers.peak_bps.tolist()
    for outward in (True, False):
        flows = _between_pods(problem, tiers, outward)
        load = {leaf: sum([load_bps[flow] for flow in own]) for leaf, own in flows.items()}
        pods: defaultdict[int, list[Dpid]] = defaultdict(list)
        for leaf in sorted(flows, key=lambda leaf: (-load[leaf], leaf)):
            pods[tiers.pod[leaf]].append(leaf)
        for leaves in pods.values():
            for those, links in _cuts_of_pod(problem, tiers, leaves, outward):
                yield _PodCut(those, outward, links, [flow for leaf in those for flow in flows[leaf]])


def _between_pods(problem: Problem, tiers: Tiers, outward: bool) -> Mapping[Dpid, Sequence[int]]:
    """Return the flows from each leaf to other pods, or from other pods to each leaf."""
    flows: defaultdict[Dpid, list[int]] = defaultdict(list)
    for number, flow in enumerate(problem.flows):
        src, dst = flow.src_leaf, flow.dst_leaf
        if src != dst and tiers.pod[src] != tiers.pod[dst]:
            flows[src if outward else dst].append(number)
    return flows


def _cuts_of_pod(
    problem: Problem, tiers: Tiers, leaves: Sequence[Dpid], outward: bool
) -> Iterator[tuple[Sequence[Dpid], list[LinkId]]]:
    """Yield (first n entries of ``leaves``, links) of each cut that can be stronger than cuts of single leaves."""
    capacity_bps, pod = problem.capacity_bps, tiers.pod[leaves[0]]
    edge, core = (tiers.up, tiers.core_up) if outward else (tiers.down, tiers.core_down)
    around = problem.paths.links_from(leaves[0]) if outward else problem.paths.links_into(leaves[0])
    narrower = len(around) > len(tiers.plane)
    to_cores = [(sum([capacity_bps[link] for link in common[pod]]), common[pod]) for common in core]
    to_planes: list[tuple[float, list[LinkId]]] = [(0.0, []) for _ in core]
    all_bps = np.zeros(len(core))
    np.add.at(all_bps, list(tiers.plane) * len(leaves), [capacity_bps[link] for leaf in leaves for link in edge[leaf]])
    if not narrower and (all_bps <= [bps for bps, _ in to_cores]).all():
        return
    for count, leaf in enumerate(leaves, 1):
        for plane, link in zip(tiers.plane, edge[leaf], strict=True):
            bps, links = to_planes[plane]
            to_planes[plane] = bps + capacity_bps[link], [*links, link]
        smaller = [min(both, key=itemgetter(0)) for both in zip(to_planes, to_cores, strict=True)]
        if (narrower and count == 1) or smaller != to_planes:
            yield leaves[:count], [link for _, links in smaller for link in links]
