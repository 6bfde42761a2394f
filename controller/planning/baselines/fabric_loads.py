"""Loads of the fabric's links under many routings at once, as ``efficiency`` defines them.

In: which links the flows of a problem take, in several draws. Out: load of every link in every draw, and what jobs see
of it. NICs are left to the caller: every routing loads them alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from controller.planning.baselines.next_hops import NextHops
from controller.planning.efficiency import Floats, Ints, Valuation


@dataclass(frozen=True, slots=True)
class Fixed:
    """Pieces of flows that are on the same link in every draw: one row per flow (by number) and link it passes."""

    flow: Ints
    link: Ints
    share: Floats


NOTHING_FIXED = Fixed(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


class FabricLoads:
    """``flows``: numbers of the flows that differ between draws; they are the columns of ``links`` in what follows.

    ``links`` has the shape (hops, draws, columns) and holds link numbers of ``NextHops``.
    """

    def __init__(self, valuation: Valuation, hops: NextHops, flows: Ints, fixed: Fixed = NOTHING_FIXED) -> None:
        self._capacity_bps = hops.capacity_bps
        self._jobs = len(valuation.job_ids)
        phases = np.bincount(valuation.cell_job, minlength=self._jobs)
        column, entry = valuation.entries_of(flows)
        row, fixed_entry = valuation.entries_of(fixed.flow)
        # Flows that send nothing use no link.
        sending, self._fixed_link = np.unique(column), fixed.link[row]
        self._by_job = sending[np.argsort(valuation.job[flows[sending]], kind="stable")]
        self._job = valuation.job[flows[self._by_job]]
        self._fixed_job = valuation.job[fixed.flow[row]]
        several = phases[valuation.job] > 1
        alone, fixed_alone = ~several[flows[column]], ~several[fixed.flow[row]]
        fixed_bps = valuation.entry_bps[fixed_entry] * fixed.share[row]
        self._single = _Cell(
            column[alone], valuation.entry_bps[entry[alone]], fixed.link[row[fixed_alone]], fixed_bps[fixed_alone]
        )
        self._several: defaultdict[int, list[_Cell]] = defaultdict(list)
        for cell in np.flatnonzero(phases[valuation.cell_job] > 1).tolist():
            mine, pinned = valuation.entry_cell[entry] == cell, valuation.entry_cell[fixed_entry] == cell
            self._several[int(valuation.cell_job[cell])].append(
                _Cell(column[mine], valuation.entry_bps[entry[mine]], fixed.link[row[pinned]], fixed_bps[pinned])
            )

    def of(self, links: Ints) -> Floats:
        """Load of every link: shape (draws, links)."""
        width = len(self._capacity_bps)
        bps = self._single.sums(self._single.taken(links), self._single.fixed_link, width)
        for cells in self._several.values():
            used, place = _compact(links, cells, width)
            phases = [cell.sums(place[cell.taken(links)], place[cell.fixed_link], len(used)) for cell in cells]
            bps[:, used] += np.maximum.reduce(phases)
        bps /= self._capacity_bps
        return bps

    def of_jobs(self, links: Ints, loads: Floats) -> Floats:
        """Per draw and job the largest load on a link that it uses, 0 when there is none: shape (draws, jobs)."""
        levels = np.zeros((len(loads), self._jobs))
        if len(self._job):
            rows = np.arange(len(loads))[:, None] * loads.shape[1]
            seen = loads.ravel()[links[:, :, self._by_job] + rows].max(axis=0)
            starts = np.flatnonzero(np.diff(self._job, prepend=-1))
            levels[:, self._job[starts]] = np.maximum.reduceat(seen, starts, axis=1)
        for job in np.unique(self._fixed_job).tolist():
            on = np.unique(self._fixed_link[self._fixed_job == job])
            levels[:, job] = np.maximum(levels[:, job], loads[:, on].max(axis=1))
        return levels


class _Cell:
    """What one phase of one job sends, or all jobs that have a single phase together: in columns, and fixed."""

    def __init__(self, columns: Ints, bps: Floats, fixed_link: Ints, fixed_bps: Floats) -> None:
        self.columns = columns
        self.fixed_link = fixed_link
        self._bps = bps
        self._fixed_bps = fixed_bps
        self._equal_bps = float(bps[0]) if len(bps) and (bps == bps[0]).all() else None

    def taken(self, links: Ints) -> Ints:
        """The links that these columns take."""
        return links if len(self.columns) == links.shape[2] else links[:, :, self.columns]

    def sums(self, taken: Ints, fixed_link: Ints, width: int) -> Floats:
        """Bit/s on every link, shape (draws, ``width``). ``taken`` and ``fixed_link`` are numbered alike, below
        ``width``."""
        draws = taken.shape[1]
        at = (taken + (np.arange(draws) * width)[:, None]).ravel()
        if self._equal_bps is not None:
            sums = np.multiply(np.bincount(at, minlength=draws * width), self._equal_bps, dtype=np.float64)
        else:
            # numpy returns integers when there is nothing to count, in spite of the weights.
            weights = np.broadcast_to(self._bps, taken.shape).ravel()
            sums = np.asarray(np.bincount(at, weights, draws * width), np.float64)
        found: Floats = sums.reshape(draws, width)
        if len(self.fixed_link):
            found += np.bincount(fixed_link, self._fixed_bps, width)
        return found


def _compact(links: Ints, cells: Iterable[_Cell], width: int) -> tuple[Ints, Ints]:
    """The links that one job uses, and the place of every link among them: its sums are small arrays so."""
    on = np.zeros(width, bool)
    for cell in cells:
        on[cell.taken(links)] = True
        on[cell.fixed_link] = True
    return np.flatnonzero(on), np.cumsum(on) - 1
