"""Fluid view of a problem: classes of flows whose bytes are spread over paths.

In: a ``Problem``. Out: the classes and their paths, and the loads that they cause, as arrays.

Flows between the same leaves with the same demands per phase form one class, because loads depend only on the amount of
the class on each path. A *column* is a class on one path. Its amount is a number of flows: a class of 5 flows has an
amount of 5 to spread over its columns. Loads, capacities and rates are in units of a typical capacity. Rates are
rounded up a little (``coarse``), which ``FluidModel.lower_bound`` allows for.

The load of a link is a sum of parts, each of which is a *row*. A phase of a job *counts* if it can be the job's largest
phase on some link. Row 0 is the load of all jobs with only one phase that counts. Every other job has one further row
per phase that counts, because its largest phase on a link depends on the routing. A *key* is a pair of row and link as
one number: row * number of links + link.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from controller.fabric.topology import Dpid, LinkId, Path
from controller.planning.next_hops import NextHops
from controller.planning.problem import Bools, Floats, Flow, Ints, Problem, Routes, link_rows
from signalbox.jobs.spec import JobId

_BITS = 27
_STEPS = 1 << _BITS
COARSE = 2 / _STEPS
"""Largest relative amount by which ``coarse`` rounds a rate up."""


class Commodities:
    """Classes of flows, and columns. A new column gets the next number, so every array over columns grows at its end.

    Flows are in different classes when they differ in their leaves, their rate in a phase, their ``max_subflows``,
    ``running``, ``slowdown``, or the links that they must not use.

    - ``flows``: flows that cross the fabric and have a path.
    - ``members``: per class the indices of its flows.
    - ``rate``: per class the rate of a flow's largest phase.
    - ``max_subflows``: per class the largest number of subflows per flow.
    - ``running``: per class whether its flows are pinned to valid paths.
    - ``slowdown``: per class the slowdown at which its jobs aim.
    - ``column_class``, ``path``: class and path of each column.
    - ``opened``: per class whether each of its candidates has a column.
    - ``cut``: per class whether it has more shortest paths than candidates; ``cheapest_walks`` finds the cheapest of
      all shortest paths."""

    def __init__(
        self,
        problem: Problem,
        slowdown: Mapping[JobId, float] = MappingProxyType({}),
        barred: Mapping[JobId, frozenset[LinkId]] = MappingProxyType({}),
    ) -> None:
        """Form the classes. ``barred``: links that the flows of a job must not use."""
        self._problem = problem
        self._barred = barred
        self._number = problem.link_number
        self.links = len(problem.capacity_bps)
        fabric_bps = [problem.capacity_bps[link] for link in problem.paths.far_end]
        self.unit_bps = float(np.median(fabric_bps)) if fabric_bps else 1.0
        self.capacity: Floats = problem.numbers.capacity_bps / self.unit_bps
        self.flows = [f for f in problem.flows if f.src_leaf != f.dst_leaf and problem.reachable(f)]
        self._number_rows()
        self._form_classes(slowdown)
        self.path: list[Path] = []
        self.column_class: Ints = np.zeros(0, np.int64)
        self._column: list[dict[Path, int]] = [{} for _ in self.members]
        self.opened: Bools = np.zeros(len(self.members), bool)
        self.cut: Bools = np.zeros(len(self.members), bool)
        self._hops: NextHops | None = None
        self._term_column: Ints = np.zeros(0, np.int64)
        self._term_key: Ints = np.zeros(0, np.int64)
        self._term_rate: Floats = np.zeros(0)
        self._fresh: list[tuple[int, Path]] = []

    # ---- classes and rows

    def _number_rows(self) -> None:
        """Assign numbers to the rows.

        ``row_group``: job of each row, counted from 1; 0 for row 0. ``first_rows``: first row of each group."""
        vectors: defaultdict[JobId, set[tuple[tuple[int, float], ...]]] = defaultdict(set)
        for flow in self.flows:
            vectors[flow.job_id].add(flow.demand_bps)
        self.row_of: dict[tuple[JobId, int], int] = {}
        row_job = [-1]
        for number, (job, demands) in enumerate(sorted(vectors.items())):
            phases = _phases_that_count(demands)
            for phase in phases:
                self.row_of[job, phase] = len(row_job) if len(phases) > 1 else 0
                if len(phases) > 1:
                    row_job.append(number)
        self.rows = len(row_job)
        self.first_rows: Ints = np.flatnonzero(np.diff(np.array(row_job), prepend=-2))
        self.row_group: Ints = np.cumsum(np.diff(np.array(row_job), prepend=-1) != 0)

    def _form_classes(self, slowdown: Mapping[JobId, float]) -> None:
        classes: dict[tuple[object, ...], int] = {}
        self.members: list[list[int]] = []
        self._entries: list[tuple[tuple[int, float], ...]] = []
        for index, flow in enumerate(self.flows):
            entries = tuple(
                (self.row_of[flow.job_id, phase], coarse(bps / self.unit_bps))
                for phase, bps in flow.demand_bps
                if (flow.job_id, phase) in self.row_of
            )
            aims = (slowdown.get(flow.job_id, 1.0), self._barred.get(flow.job_id))
            key = (flow.src_leaf, flow.dst_leaf, entries, flow.max_subflows, self._problem.is_in_force(flow), *aims)
            number = classes.setdefault(key, len(classes))
            if number == len(self.members):
                self.members.append([])
                self._entries.append(entries)
            self.members[number].append(index)
        firsts = [self.flows[of[0]] for of in self.members]
        self.count: Ints = np.array([len(of) for of in self.members], np.int64)
        self.max_subflows: Ints = np.array([flow.max_subflows for flow in firsts], np.int64)
        self.running: Bools = np.array([self._problem.is_in_force(flow) for flow in firsts], bool)
        self.slowdown: Floats = np.array([slowdown.get(flow.job_id, 1.0) for flow in firsts])
        self.rate: Floats = np.array([max((rate for _, rate in of), default=0.0) for of in self._entries])

    def first(self, number: int) -> Flow:
        """Return one flow of the class as its representative."""
        return self.flows[self.members[number][0]]

    def adds_up(self, number: int) -> bool:
        """Return whether the class loads only row 0: its load on a link then does not depend on other flows."""
        return all(row == 0 for row, _ in self._entries[number])

    # ---- columns

    @property
    def columns(self) -> int:
        return len(self.path)

    def column(self, number: int, path: Path) -> int:
        """Return the number of the column of a class on a path; add the column when it does not exist."""
        found = self._column[number].get(path)
        if found is None:
            found = self._column[number][path] = len(self.path)
            self.path.append(path)
            self._fresh.append((number, path))
        return found

    def candidates(self, number: int) -> Sequence[Path]:
        """Return the paths that the class may take."""
        flow = self.first(number)
        paths, barred = self._problem.candidates(flow), self._barred.get(flow.job_id)
        return [path for path in paths if barred.isdisjoint(path)] if barred else paths

    def size(self) -> int:
        """Return the number of columns if every candidate path of every class had a column.

        When all known paths have two links, links out of leaves are counted instead of candidates."""
        paths = self._problem.paths
        if paths.stretch or any(len(path) > 2 for path in self.path):
            return sum(len(self.candidates(number)) for number in range(len(self.members)))
        return sum(len(paths.links_from(self.first(number).src_leaf)) for number in range(len(self.members)))

    def open(self, classes: Bools | None = None) -> None:
        """Add a column for each candidate path of these classes. ``classes`` is a mask; None means all classes."""
        for number in np.flatnonzero(~self.opened if classes is None else classes & ~self.opened).tolist():
            self.opened[number] = True
            flow = self.first(number)
            cut = self._problem.paths.cut(flow.src_leaf, flow.dst_leaf)
            self.cut[number] = cut and not self._barred.get(flow.job_id)
            for path in self.candidates(number):
                self.column(number, path)
        self.number_columns()

    def amounts(self, routes: Routes) -> Floats:
        """Return the amount per column under these routes, without the subflows on barred links.

        A flow without a route adds nothing."""
        total: defaultdict[int, float] = defaultdict(float)
        for number, members in enumerate(self.members):
            barred = self._barred.get(self.first(number).job_id)
            for index in members:
                for path, share in routes.get(self.flows[index].id, ()):
                    if not barred or barred.isdisjoint(path):
                        total[self.column(number, path)] += share
        self.number_columns()
        amounts = np.zeros(self.columns)
        amounts[list(total)] = list(total.values())
        return amounts

    def number_columns(self) -> None:
        """Update the arrays; call it after columns were added."""
        columns, keys, rates = [], [], []
        for column, (number, path) in enumerate(self._fresh, start=len(self.column_class)):
            for link in path:
                at = self._number[link]
                for row, rate in self._entries[number]:
                    columns.append(column)
                    keys.append(row * self.links + at)
                    rates.append(rate)
        fresh = np.array([number for number, _ in self._fresh], np.int64)
        self.column_class = np.concatenate([self.column_class, fresh])
        self._term_column = np.concatenate([self._term_column, np.array(columns, np.int64)])
        self._term_key = np.concatenate([self._term_key, np.array(keys, np.int64)])
        self._term_rate = np.concatenate([self._term_rate, np.array(rates, np.float64)])
        self._fresh.clear()

    def padded(self, amounts: Floats) -> Floats:
        """Return ``amounts`` extended by zeros for the columns that were added later."""
        return np.concatenate([amounts, np.zeros(self.columns - len(amounts))])

    def numbered(self, paths: Sequence[Path]) -> Ints:
        """Return the link numbers of each path, as ``link_rows`` does."""
        return link_rows(paths, self._number)

    def least_slowdown(self) -> Floats:
        """Return for each link the smallest slowdown of the classes that may use it; inf when no class may use it.

        When paths have more than two links, every candidate is examined."""
        least: Floats = np.full(self.links, np.inf)
        if self._problem.paths.stretch or any(len(path) > 2 for path in self.path):
            self.open()
            np.minimum.at(least, self._term_key % self.links, self.slowdown[self.column_class[self._term_column]])
            return least
        of_pair: dict[tuple[Dpid, Dpid], float] = {}
        for number, value in enumerate(self.slowdown.tolist()):
            flow = self.first(number)
            pair = (flow.src_leaf, flow.dst_leaf)
            of_pair[pair] = min(value, of_pair.get(pair, np.inf))
        paths = self._problem.paths
        of_leaf: dict[tuple[Dpid, bool], float] = {}
        some: list[tuple[Collection[LinkId], float]] = []
        for (src, dst), value in of_pair.items():
            first, last = paths.ends(src, dst)
            for leaf, inward, links in ((src, False, first), (dst, True, last)):
                if len(links) < len(paths.links_into(leaf) if inward else paths.links_from(leaf)):
                    some.append((links, value))
                else:
                    of_leaf[leaf, inward] = min(value, of_leaf.get((leaf, inward), np.inf))
        around = [
            (paths.links_into(leaf) if inward else paths.links_from(leaf), of_leaf[leaf, inward])
            for leaf, inward in of_leaf
        ]
        for links, value in (*around, *some):
            at = [self._number[link] for link in links]
            least[at] = np.minimum(least[at], value)
        return least

    # ---- loads and prices

    def loads(self, amounts: Floats) -> Floats:
        """Return the load of each key."""
        weights = self._term_rate * amounts[self._term_column]
        return np.bincount(self._term_key, weights, self.rows * self.links).astype(np.float64, copy=False)

    def link_loads(self, loads: Floats) -> Floats:
        """Return the load of each link from the loads of keys: row 0, plus the largest row of each other job."""
        by_row = loads.reshape(self.rows, self.links)
        total: Floats = np.maximum.reduceat(by_row, self.first_rows, axis=0).sum(axis=0)
        return total

    def prices(self, key_prices: Floats) -> Floats:
        """Return the cost of one flow on each column, given the price of a unit of load of each key."""
        weights = self._term_rate * key_prices[self._term_key]
        return np.bincount(self._term_column, weights, self.columns).astype(np.float64, copy=False)

    def cheapest_walks(self, key_prices: Floats) -> tuple[Ints, Floats, list[Path]]:
        """Return the classes that are ``cut``, and for each the price of one flow on the cheapest path, and that path.

        The cheapest path is taken from all shortest paths."""
        classes = np.flatnonzero(self.cut)
        if self._hops is None or len(self._hops.flows) != len(classes):
            self._hops = NextHops(replace(self._problem, flows=tuple(map(self.first, classes.tolist()))))
        hops = self._hops
        place = np.array([self._number[link] for link in hops.links], np.int64)
        by_row = key_prices.reshape(self.rows, self.links)[:, place]
        known: dict[tuple[tuple[int, float], ...], tuple[Floats, Floats]] = {}
        prices, paths = np.zeros(len(classes)), []
        for index, (number, state) in enumerate(zip(classes.tolist(), hops.state.tolist(), strict=True)):
            largest = float(self.rate[number]) or 1.0
            parts = tuple((row, rate / largest) for row, rate in self._entries[number])
            if parts not in known:
                cost = np.append(sum((part * by_row[row] for row, part in parts), np.zeros(len(place))), 0.0)
                known[parts] = cost, hops.least(cost)
            cost, least = known[parts]
            prices[index] = largest * least[state]
            paths.append(hops.path(hops.cheapest(state, cost, least)))
        return classes, prices, paths

    def touching(self, links: Bools) -> Bools:
        """Return for each column whether its path uses a link of ``links`` (a mask)."""
        passes = links[self._term_key % self.links]
        hits: Bools = np.bincount(self._term_column[passes], minlength=self.columns) > 0
        return hits

    def least(self, of_link: Floats) -> Floats:
        """Return for each column the smallest value of ``of_link`` on the links of its path."""
        smallest: Floats = np.full(self.columns, np.inf)
        np.minimum.at(smallest, self._term_column, of_link[self._term_key % self.links])
        return smallest

    def terms(self, columns: Ints) -> tuple[Ints, Ints, Floats]:
        """Return (index into ``columns``, key, rate) for all loads of these columns."""
        place = np.full(self.columns, -1, np.int64)
        place[columns] = np.arange(len(columns))
        index = place[self._term_column]
        chosen = index >= 0
        return index[chosen], self._term_key[chosen], self._term_rate[chosen]


def coarse(rate: float) -> float:
    """Return the rate rounded up by less than ``COARSE`` of itself.

    Demands that differ only by rounding thus belong to one class."""
    mantissa, exponent = math.frexp(rate)
    return math.ldexp(math.ceil(mantissa * _STEPS), exponent - _BITS)


def _phases_that_count(demands: set[tuple[tuple[int, float], ...]]) -> Sequence[int]:
    """Return the phases that can be the job's largest on some link; of phases with equal demands, only the first."""
    vectors: list[Mapping[int, float]] = [dict(vector) for vector in demands]
    phases = sorted({phase for vector in vectors for phase in vector})

    def covers(a: int, b: int) -> bool:
        return all(vector.get(a, 0.0) >= vector.get(b, 0.0) for vector in vectors)

    kept: list[int] = []
    for number, phase in enumerate(phases):
        if any(covers(other, phase) for other in kept):
            continue
        if not any(covers(other, phase) and not covers(phase, other) for other in phases[number + 1 :]):
            kept.append(phase)
    return kept
