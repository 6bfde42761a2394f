"""Problems as arrays of links, flows and demands, and routes of whole sets of flows.

In: capacities, candidate paths and flows of a ``Problem``. Out: ``Links`` and ``Numbers``, which bounds, closed forms,
slowdowns and searches compute with, and ``NumberedRoutes``, the form in which closed forms return their routes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.fabric.shortest_paths import CandidatePaths
from controller.fabric.topology import Dpid, LinkId, Path
from controller.planning.flows import Flow

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


_DENSE, _SMALL = 8, 65_536
"""Limit of the size of a table over all key values: ``_DENSE`` rows per key plus ``_SMALL`` rows.

Up to this size the table is cheaper than sorting the keys."""


class Links:
    """Links of a problem as arrays. Raises ``KeyError`` with the link when a link between switches has no capacity.

    - ``number``: the number of each link, which is its position in ``capacity_bps``; links of NICs included.
    - ``fabric``: numbers of the links between switches, in the order of ``CandidatePaths.far_end``.
    - ``tail``, ``head``: numbers (``switch``) of the switches where each link of ``fabric`` begins and ends."""

    def __init__(self, capacity_bps: Mapping[LinkId, float], paths: CandidatePaths) -> None:
        far_end = paths.far_end
        self.number: Mapping[LinkId, int] = dict(zip(capacity_bps, itertools.count()))
        self.capacity_bps: Floats = np.fromiter(capacity_bps.values(), np.float64, len(self.number))
        self.fabric: Ints = _ints((self.number[link] for link in far_end), len(far_end))
        tails = [link.dpid for link in far_end]
        self.switch: Mapping[Dpid, int] = {dpid: n for n, dpid in enumerate(sorted({*tails, *far_end.values()}))}
        self.tail: Ints = _ints(map(self.switch.__getitem__, tails), len(tails))
        self.head: Ints = _ints(map(self.switch.__getitem__, far_end.values()), len(tails))
        self._far_end = far_end
        self._around: dict[tuple[tuple[Dpid, ...], bool], Around] = {}

    @cached_property
    def ids(self) -> Sequence[LinkId]:
        """Links in the order of their numbers (``number``)."""
        return list(self.number)

    @cached_property
    def dpids(self) -> Sequence[Dpid]:
        """Switches in the order of their numbers (``switch``)."""
        return list(self.switch)

    def around(self, leaves: Sequence[Dpid], *, outward: bool) -> Around:
        """Return the links between switches that lead out of ``leaves``, or into ``leaves``.

        Rows are sorted by switch, then by the switch at the other end, then by capacity (fastest first), then by
        port."""
        found = self._around.get((tuple(leaves), outward))
        if found is None:
            found = self._around[tuple(leaves), outward] = self._find_around(leaves, outward)
        return found

    def _find_around(self, leaves: Sequence[Dpid], outward: bool) -> Around:
        here, there = (self.tail, self.head) if outward else (self.head, self.tail)
        place = np.full(len(self.switch), -1)
        for number, leaf in enumerate(leaves):
            if leaf in self.switch:
                place[self.switch[leaf]] = number
        rows = np.flatnonzero(place[here] >= 0)
        at, other = place[here[rows]], there[rows]
        keys = [self._port[rows], -self.capacity_bps[self.fabric[rows]]] if self._parallel else []
        order = np.lexsort((*keys, other, at))
        rows, at, other = rows[order], at[order], other[order]
        first = np.flatnonzero((np.diff(at, prepend=-1) != 0) | (np.diff(other, prepend=-1) != 0))
        cable = np.arange(len(rows)) - np.repeat(first, np.diff(first, append=len(rows)))
        return Around(at, other, cable, self.fabric[rows])

    @cached_property
    def _parallel(self) -> bool:
        """Whether a pair of switches has several cables between them."""
        return len(np.unique(self.tail * len(self.switch) + self.head)) < len(self.tail)

    @cached_property
    def _port(self) -> Ints:
        return _ints((link.port for link in self._far_end), len(self._far_end))


class Around(NamedTuple):
    """Links out of some switches, or into some switches; one link per row."""

    at: Ints
    """Position of the switch in the argument ``leaves``."""
    other: Ints
    """Number of the switch at the other end."""
    cable: Ints
    """Index of the cable among the cables between the same two switches."""
    link: Ints
    """Number of the link."""


class Numbers:
    """Flows and demands of a problem as arrays. Raises ``KeyError`` with the link when a host's link has no capacity.

    Links have the numbers of ``Links.number``, flows their position in ``Problem.flows``, jobs their position in the
    sorted ``job_ids``. An *entry* is one flow in one phase, a *cell* one job in one phase.

    - ``capacity_bps``: per link.
    - ``leaves``: the switches at which flows begin or end, ascending.
    - ``src``, ``dst``: per flow the positions of its leaves in ``leaves``.
    - ``job``, ``nics``, ``peak_bps``, ``most``: per flow its job, its two NIC links, its largest demand, its
      ``max_subflows``.
    - ``entry_flow``, ``entry_bps``, ``entry_cell``: per entry its flow, its demand, its cell.
    - ``cell_job``, ``cell_phase``: per cell its job and phase, ascending."""

    def __init__(self, flows: Sequence[Flow], links: Links) -> None:
        number, count = links.number, len(flows)
        self.capacity_bps = links.capacity_bps
        sources, targets = [flow.src_leaf for flow in flows], [flow.dst_leaf for flow in flows]
        self.leaves = sorted({*sources, *targets})
        leaf_number = {leaf: index for index, leaf in enumerate(self.leaves)}
        self.src = _ints(map(leaf_number.__getitem__, sources), count)
        self.dst = _ints(map(leaf_number.__getitem__, targets), count)
        jobs = [flow.job_id for flow in flows]
        self.job_ids = sorted(set(jobs))
        job_number = {job: index for index, job in enumerate(self.job_ids)}
        self.job = _ints(map(job_number.__getitem__, jobs), count)
        nics = itertools.chain.from_iterable([flow.nic_links for flow in flows])
        self.nics = _ints((number[link] for link in nics), 2 * count).reshape(-1, 2)
        self.most = _ints((flow.max_subflows for flow in flows), count)
        demands = [flow.demand_bps for flow in flows]
        self._entries = _ints(map(len, demands), count)
        self._first = np.cumsum(self._entries) - self._entries
        self._single = bool((self._entries == 1).all())
        self.entry_flow = np.repeat(np.arange(count), self._entries)
        self.entry_bps = np.array([bps for demand in demands for _, bps in demand], np.float64)
        self.peak_bps = np.zeros(count)
        np.fmax.at(self.peak_bps, self.entry_flow, self.entry_bps)
        phases = np.array([phase for demand in demands for phase, _ in demand], np.int64)
        width = int(phases.max(initial=0)) + 1
        used, self.entry_cell = distinct(self.job[self.entry_flow] * width + phases)
        self.cell_job, self.cell_phase = used // width, used % width

    def entries_of(self, flows: Ints) -> tuple[Ints, Ints]:
        """Return (index into ``flows``, entry) for every entry of each of these flows, which may repeat."""
        if self._single:
            return np.arange(len(flows)), flows
        times = self._entries[flows]
        row = np.repeat(np.arange(len(flows)), times)
        return row, self._first[flows[row]] + np.arange(len(row)) - np.repeat(np.cumsum(times) - times, times)

    @cached_property
    def crossing(self) -> Ints:
        """Numbers of the flows whose ends are at different leaves."""
        return np.flatnonzero(self.src != self.dst)


class NumberedRoutes(NamedTuple):
    """Routes of a problem's flows as arrays, one row per subflow of each flow between different leaves.

    The rows of one flow are adjacent. Flows within one leaf have no row."""

    flow: Ints
    links: Ints
    """Numbers of the links of each subflow's path; shape (rows, hops)."""
    share: Floats

    @classmethod
    def joined(cls, parts: Iterable[NumberedRoutes]) -> NumberedRoutes:
        """Return the rows of all parts, one after the other. There must be at least one part."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def link_rows(paths: Sequence[Path], number: Mapping[LinkId, int]) -> Ints:
    """Return the numbers of each path's links; shape (paths, links of the longest path).

    Shorter paths repeat their last link."""
    longest = max(map(len, paths), default=0)
    filled = ((*path, *path[-1:] * (longest - len(path))) for path in paths)
    return np.array([[number[link] for link in path] for path in filled], np.int64)


def distinct(keys: Ints) -> tuple[Ints, Ints]:
    """Return the distinct keys in ascending order, and the position of each key among them.

    The result is that of ``np.unique``; small keys are not sorted, which is faster. Keys must be at least 0."""
    size = int(keys.max(initial=-1)) + 1
    if size > _DENSE * len(keys) + _SMALL:
        return np.unique(keys, return_inverse=True)
    there = np.zeros(size, bool)
    there[keys] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[keys]


def _ints(values: Iterable[int], count: int) -> Ints:
    return np.fromiter(values, np.int64, count)
