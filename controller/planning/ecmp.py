"""ECMP: the levels and paths that hashing gives the same flows.

At every switch a flow takes one of the equal-cost next hops, each with the same probability, independently of all other
flows and switches. In: a ``Problem``, and the flows that are pinned. Out: levels over seeded draws, as ``efficiency``
defines them; or one draw that is a function of each flow's addresses and ports, as a switch's hash is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from controller.jobs.spec import JobId
from controller.planning.efficiency import job_levels, nic_levels
from controller.planning.next_hops import NextHops
from controller.planning.plan import EcmpLevel
from controller.planning.problem import Floats, Flow, Ints, Problem, Routes

_CHUNK = 1 << 16
"""Numbers that are worked on at once: few enough to stay in the processor's cache."""
_FIRST_DYNAMIC_PORT = 49152
_DYNAMIC_PORTS = 16384
"""IANA's range of ports for the ends of connections that nobody chose (RFC 6335, section 6)."""
_UDP = 17
_ROCE_PORT = 4791
"""RoCEv2 sends from any port to this one, so that switches can tell its flows apart."""


def ecmp_level(problem: Problem, draws: int, seed: int) -> EcmpLevel:
    """Mean and 95th percentile of the worst job level when every routable flow is hashed; 1 without flows."""
    return hashed_level(problem, NextHops(problem), draws, seed)


def hashed_level(problem: Problem, hops: NextHops, draws: int, seed: int) -> EcmpLevel:
    """``ecmp_level`` where the next hops of the problem are known already."""
    nics = max(_nic_levels(problem, hops.flows, {}).values(), default=1.0)
    loads = FabricLoads(problem, hops, hops.flows)
    worst = np.concatenate([loads.of(links).max(axis=1) for links in _draws(hops, hops.state, draws, seed)])
    worst = np.maximum(worst, nics)
    return EcmpLevel(float(worst.mean()), float(np.percentile(worst, 95)))


def ecmp_job_levels(problem: Problem, pinned: Routes, draws: int, seed: int) -> dict[JobId, float]:
    """Expected level of every job with a routable flow: flows in ``pinned`` are on their routes, the others (missing,
    or on a path with a link that has gone) are hashed. Exact when every flow is pinned."""
    standing = {flow.id: pinned[flow.id] for flow in problem.flows if _stands(problem, pinned, flow)}
    if len(standing) == len(problem.flows):
        return job_levels(problem, standing)
    hops = NextHops(problem)
    hashed = np.array([problem.flows[number].id not in standing for number in hops.flows.tolist()], bool)
    loads = FabricLoads(problem, hops, hops.flows[hashed], _fixed(problem, standing, hops))
    job_ids = problem.numbers.job_ids
    sums = np.zeros(len(job_ids))
    nics = _nic_levels(problem, hops.flows, standing)
    floor = np.array([nics.get(job, 1.0) for job in job_ids])
    for links in _draws(hops, hops.state[hashed], draws, seed):
        sums += np.maximum(loads.of_jobs(links, loads.of(links)), floor).sum(axis=0)
    return {job: float(sums[number] / draws) for number, job in enumerate(job_ids) if job in nics}


def hashed_links(problem: Problem, hops: NextHops, seed: int) -> Ints:
    """The links that each flow of ``hops.flows`` takes when every switch hashes its addresses and ports: shape (hops,
    flows). The source port is a function of the seed and the job; each switch hashes in its own way."""
    ports = {flow.job_id: _source_port(flow.job_id, seed) for flow in problem.flows}
    flows = [problem.flows[number] for number in hops.flows.tolist()]
    words = [crc32(f"{f.id.src_ip} {f.id.dst_ip} {_UDP} {ports[f.job_id]} {_ROCE_PORT}".encode()) for f in flows]
    five_tuple = np.array(words, np.uint64)
    first = hops.link[hops.start].tolist()
    switch = np.array([hops.links[link].dpid if link != hops.nothing else 0 for link in first], np.uint64)
    taken = np.full((hops.longest, len(flows)), hops.nothing)
    here = hops.state
    for hop in range(hops.longest):
        bits = _mixed(five_tuple ^ _mixed(switch[here])) >> np.uint64(32)
        position = hops.start[here] + _below(hops.size[here], bits)
        taken[hop] = hops.link[position]
        here = hops.after[position]
    return taken


def _draws(hops: NextHops, state: Ints, draws: int, seed: int) -> Iterator[Ints]:
    """The links that flows in these states take, in portions of the draws: shape (hops, draws, flows)."""
    random = np.random.default_rng(seed)
    forks = _forks(hops, state)
    portion = max(1, _CHUNK // max(1, len(state), len(hops.links)))
    for done in range(0, draws, portion):
        shape = (min(portion, draws - done), len(state))
        links = np.full((hops.longest, *shape), hops.nothing)
        here = state[None]
        for hop in range(hops.longest):
            position = hops.start[here]
            if forks[hop]:
                position = position + _below(hops.size[here], random.integers(0, 1 << 32, shape, np.uint32))
            links[hop] = hops.link[position]
            if hop + 1 < hops.longest:
                here = hops.after[position]
        yield links


def _forks(hops: NextHops, state: Ints) -> list[bool]:
    """For each hop whether any flow has a choice there."""
    forks = []
    of_position = np.repeat(np.arange(len(hops.size)), hops.size)
    here = np.zeros(len(hops.size), bool)
    here[state] = True
    for _ in range(hops.longest):
        forks.append(bool((hops.size[here] > 1).any()))
        ahead = hops.after[here[of_position]]
        here = np.zeros(len(hops.size), bool)
        here[ahead] = True
    return forks


def _nic_levels(problem: Problem, hashed: Ints, standing: Routes) -> dict[JobId, float]:
    """Level of every job with a routable flow if only NICs could be full. ``hashed``: numbers of the flows that
    have a way through the fabric."""
    routable = np.array([flow.src_leaf == flow.dst_leaf or flow.id in standing for flow in problem.flows], bool)
    routable[hashed] = True
    return nic_levels(problem, np.flatnonzero(routable))


def _stands(problem: Problem, pinned: Routes, flow: Flow) -> bool:
    route = pinned.get(flow.id)
    return route is not None and all(link in problem.paths.far_end for piece in route for link in piece.path)


def _fixed(problem: Problem, standing: Routes, hops: NextHops) -> Fixed:
    rows = [
        (flow, hops.number[link], piece.share)
        for flow, flow_id in enumerate(flow.id for flow in problem.flows)
        for piece in standing.get(flow_id, ())
        for link in piece.path
    ]
    if not rows:
        return NOTHING_FIXED
    flows, links, shares = zip(*rows, strict=True)
    return Fixed(np.array(flows), np.array(links), np.array(shares))


def _below(size: Ints, bits: NDArray[np.unsignedinteger]) -> Ints:
    """32 random bits each, as numbers from 0 to ``size`` - 1: the upper half of their product with it."""
    return ((bits * size.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def _source_port(job: JobId, seed: int) -> int:
    return _FIRST_DYNAMIC_PORT + crc32(f"{seed} {job}".encode()) % _DYNAMIC_PORTS


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Every bit of the result hangs on every bit of the word: the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast
    splittable pseudorandom number generators", OOPSLA 2014). A CRC alone is linear: flows that differ alike would
    collide at every switch alike."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


# ---- loads in many draws


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

    def __init__(self, problem: Problem, hops: NextHops, flows: Ints, fixed: Fixed = NOTHING_FIXED) -> None:
        numbers = problem.numbers
        self._capacity_bps = hops.capacity_bps
        self._jobs = len(numbers.job_ids)
        phases = np.bincount(numbers.cell_job, minlength=self._jobs)
        column, entry = numbers.entries_of(flows)
        row, fixed_entry = numbers.entries_of(fixed.flow)
        # Flows that send nothing use no link.
        sending, self._fixed_link = np.unique(column), fixed.link[row]
        self._by_job = sending[np.argsort(numbers.job[flows[sending]], kind="stable")]
        self._job = numbers.job[flows[self._by_job]]
        self._fixed_job = numbers.job[fixed.flow[row]]
        several = phases[numbers.job] > 1
        alone, fixed_alone = ~several[flows[column]], ~several[fixed.flow[row]]
        fixed_bps = numbers.entry_bps[fixed_entry] * fixed.share[row]
        self._single = _Cell(
            column[alone], numbers.entry_bps[entry[alone]], fixed.link[row[fixed_alone]], fixed_bps[fixed_alone]
        )
        self._several: defaultdict[int, list[_Cell]] = defaultdict(list)
        for cell in np.flatnonzero(phases[numbers.cell_job] > 1).tolist():
            mine, pinned = numbers.entry_cell[entry] == cell, numbers.entry_cell[fixed_entry] == cell
            self._several[int(numbers.cell_job[cell])].append(
                _Cell(column[mine], numbers.entry_bps[entry[mine]], fixed.link[row[pinned]], fixed_bps[pinned])
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
