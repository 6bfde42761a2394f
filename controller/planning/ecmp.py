"""ECMP: the next hops between which switches hash, and the resulting slowdowns and paths of the flows.

The model: at every switch a flow takes one of the equal-cost next hops, each with the same probability, independently
of all other flows and switches. A switch hashes over all of its next hops, even where the candidate paths of the
problem are capped.

In: a ``Problem``, and the routes of pinned flows. Out: next hops as arrays, so that numpy follows many flows at once,
and slowdowns over seeded draws, as defined in ``efficiency``. ``hashed_links`` gives one draw that depends only on each
flow's addresses and ports, like a switch's hash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import count
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from controller.fabric.topology import LinkId, Path
from controller.planning.efficiency import FabricLoads, Fixed, job_slowdowns, nic_slowdowns
from controller.planning.plan import EcmpSlowdown
from controller.planning.problem import Floats, Flow, FlowId, Ints, Problem, Route, Routes, whole
from signalbox.jobs.spec import ROCE_PORT, JobId

_CHUNK = 1 << 16
"""Number of values that are computed at once, so that the arrays fit into the processor's cache."""
_FIRST_DYNAMIC_PORT = 49152
_DYNAMIC_PORTS = 16384
"""Number of ports in IANA's dynamic range, which begins at ``_FIRST_DYNAMIC_PORT`` (RFC 6335, section 6)."""
_UDP = 17
"""IP protocol number of UDP, over which RoCEv2 runs.

RoCEv2 senders vary the UDP source port, so that switches hash their flows differently."""
_BLOCK = 512
"""Number of states that are expanded at once, so that the arrays fit into the processor's cache."""


def ecmp_slowdown(problem: Problem, draws: int, seed: int) -> EcmpSlowdown:
    """Return the mean and 95th percentile of the worst slowdown when every routable flow is hashed; 1 without flows."""
    return hashed_slowdown(problem, NextHops(problem), draws, seed)


def hashed_slowdown(problem: Problem, hops: NextHops, draws: int, seed: int) -> EcmpSlowdown:
    """Return the result of ``ecmp_slowdown`` when the next hops of the problem are already known."""
    loads = FabricLoads(problem, hops.capacity_bps, hops.flows)
    worst = np.concatenate([loads.of(links).max(axis=1) for links in _draws(hops, hops.state, draws, seed)])
    worst = np.maximum(worst, nic_slowdown(problem, hops))
    return EcmpSlowdown(float(worst.mean()), float(np.percentile(worst, 95)))


def nic_slowdown(problem: Problem, hops: NextHops) -> float:
    """Return the worst slowdown (>= 1) that NICs impose on every routing."""
    return max(_nic_slowdowns(problem, hops.flows, {}).values(), default=1.0)


def ecmp_job_slowdowns(problem: Problem, pinned: Routes, draws: int, seed: int) -> dict[JobId, float]:
    """Return the expected slowdown of every job with a routable flow, see ``hashed_job_slowdowns``."""
    return {job: slowdown.mean for job, slowdown in hashed_job_slowdowns(problem, pinned, draws, seed).items()}


def hashed_job_slowdowns(problem: Problem, pinned: Routes, draws: int, seed: int) -> dict[JobId, EcmpSlowdown]:
    """Return statistics of the slowdown of every job with a routable flow.

    Flows in ``pinned`` take their routes. Flows that are missing there, or whose route has a lost link, are hashed. The
    result is exact when every flow is pinned."""
    standing = {flow.id: pinned[flow.id] for flow in problem.flows if _is_in_force(problem, pinned, flow)}
    if len(standing) == len(problem.flows):
        return {job: EcmpSlowdown(slowdown, slowdown) for job, slowdown in job_slowdowns(problem, standing).items()}
    hops = NextHops(problem)
    hashed = np.array([problem.flows[number].id not in standing for number in hops.flows.tolist()], bool)
    loads = FabricLoads(problem, hops.capacity_bps, hops.flows[hashed], _fixed(problem, standing, hops))
    job_ids = problem.numbers.job_ids
    nics = _nic_slowdowns(problem, hops.flows, standing)
    floor = np.array([nics.get(job, 1.0) for job in job_ids])
    drawn = [
        np.maximum(loads.of_jobs(links, loads.of(links)), floor)
        for links in _draws(hops, hops.state[hashed], draws, seed)
    ]
    of_jobs = zip(job_ids, np.concatenate(drawn).T, strict=True)
    return {job: EcmpSlowdown(float(of.mean()), float(np.percentile(of, 95))) for job, of in of_jobs if job in nics}


def hashed_links(problem: Problem, hops: NextHops, seed: int) -> Ints:
    """Return the links of each flow when every switch hashes the flow's addresses and ports; shape (hops, flows).

    Column i is flow ``hops.flows[i]``. The source port is a function of the seed and the job. Each switch uses a
    hash function of its own."""
    ports = {flow.job_id: _source_port(flow.job_id, seed) for flow in problem.flows}
    flows = [problem.flows[number] for number in hops.flows.tolist()]
    words = [
        crc32(f"{f.id.src_ip} {f.id.dst_ip} {_UDP} {ports[f.job_id] + f.id.subflow} {ROCE_PORT}".encode())
        for f in flows
    ]
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
    """Yield the links of flows in random draws, some of the draws at a time; shape (hops, draws, flows).

    ``state``: state in which each flow begins."""
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
    """Return for each hop whether any flow has several next hops there."""
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


def _nic_slowdowns(problem: Problem, hashed: Ints, standing: Routes) -> dict[JobId, float]:
    """Return the slowdown of every job with a routable flow when only NICs have limited capacity.

    ``hashed``: numbers of the flows that have a path through the fabric."""
    routable = np.array([flow.src_leaf == flow.dst_leaf or flow.id in standing for flow in problem.flows], bool)
    routable[hashed] = True
    return nic_slowdowns(problem, np.flatnonzero(routable))


def _is_in_force(problem: Problem, pinned: Routes, flow: Flow) -> bool:
    route = pinned.get(flow.id)
    return route is not None and all(link in problem.paths.far_end for subflow in route for link in subflow.path)


def _fixed(problem: Problem, standing: Routes, hops: NextHops) -> Fixed:
    rows = [
        (flow, hops.number[link], subflow.share)
        for flow, flow_id in enumerate(flow.id for flow in problem.flows)
        for subflow in standing.get(flow_id, ())
        for link in subflow.path
    ]
    flows, links, shares = np.array(rows, np.float64).reshape(-1, 3).T
    return Fixed(flows.astype(np.int64), links.astype(np.int64), shares)


def _below(size: Ints, bits: NDArray[np.unsignedinteger]) -> Ints:
    """Return a number from 0 to ``size`` - 1 for each 32 random bits: the upper half of ``bits`` * ``size``."""
    return ((bits * size.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def _source_port(job: JobId, seed: int) -> int:
    return _FIRST_DYNAMIC_PORT + crc32(f"{seed} {job}".encode()) % _DYNAMIC_PORTS


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return words in which every bit depends on every bit of the input word.

    This is the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA
    2014). A CRC alone is linear: pairs of flows whose addresses differ in the same bits would collide at every
    switch."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


# ---- next hops


class NextHops:
    """Next hops of all flows as arrays.

    A *state* is a switch on the way to a destination. It has one *position* per next hop: a link, and the state that
    the link leads to. The last state stands for every destination that a path has reached; its only next hop is
    ``nothing``.

    - ``links``: fabric links by number, sorted by switch, far end and port.
    - ``nothing``: the number after the last link, which pads shorter paths.
    - ``capacity_bps``: capacity of each link, infinite for ``nothing``.
    - ``far_end``: number of the switch that each link leads to; switches are numbered in the order of their dpids.
    - ``flows``: numbers of the flows that have a path through the fabric.
    - ``state``: state in which each flow of ``flows`` begins.
    - ``start``, ``size``: first position and number of positions of each state.
    - ``link``, ``after``: link and next state of each position.
    - ``longest``: number of links on the longest path."""

    def __init__(self, problem: Problem, flows: Sequence[int] | None = None) -> None:
        """Compute the next hops of ``flows`` (numbers), or of all flows for None."""
        self._all = problem.flows
        far_end = problem.paths.far_end
        dpids, ports, _ = zip(*far_end, strict=True) if far_end else ((), (), ())
        at = {dpid: number for number, dpid in enumerate(sorted({*far_end.values(), *dpids}))}
        here = np.array(list(map(at.__getitem__, dpids)), np.int64)
        there = np.array(list(map(at.__getitem__, far_end.values())), np.int64)
        order = np.lexsort((np.array(ports, np.int64), there, here))
        links = list(far_end)
        self.links: tuple[LinkId, ...] = tuple(map(links.__getitem__, order.tolist()))
        self.nothing = len(links)
        self.far_end: Ints = there[order]
        self.capacity_bps: Floats = np.array([*map(problem.capacity_bps.__getitem__, self.links), np.inf])
        asked = range(len(problem.flows)) if flows is None else flows
        ends = [
            (at.get(flow.src_leaf, -1), at.get(flow.dst_leaf, -1)) for flow in map(problem.flows.__getitem__, asked)
        ]
        src, dst = np.array(ends, np.int64).reshape(-1, 2).T
        targets, column = np.unique(dst, return_inverse=True)
        fabric = _Fabric(here[order], self.far_end, targets, len(at))
        joined = np.flatnonzero((src >= 0) & (dst >= 0))
        distance = fabric.distance[src[joined], column[joined]]
        joined = joined[distance > 0]
        self.flows: Ints = np.array(asked, np.int64)[joined]
        self.longest = int(distance.max(initial=0))
        self._expand(fabric, src[joined] * len(targets) + column[joined])

    @cached_property
    def number(self) -> dict[LinkId, int]:
        """Number of each link."""
        return {link: number for number, link in enumerate(self.links)}

    def least(self, cost: Floats) -> Floats:
        """Return the cost of the cheapest path from each state.

        ``cost`` has the cost of each link and of ``nothing``."""
        least = np.zeros(len(self.size))
        for _ in range(self.longest):
            least = np.minimum.reduceat(cost[self.link] + least[self.after], self.start)
        return least

    def cheapest(self, state: int, cost: Floats, least: Floats) -> Ints:
        """Return the links of the cheapest path from a state. ``least``: result of the method ``least``."""
        links = []
        for _ in range(self.longest):
            here = np.arange(self.start[state], self.start[state] + self.size[state])
            best = here[int(np.argmin(cost[self.link[here]] + least[self.after[here]]))]
            links.append(int(self.link[best]))
            state = int(self.after[best])
        return np.array(links, np.int64)

    def routes(self, links: Ints) -> dict[FlowId, Route]:
        """Return whole routes. Flows within a leaf get the empty path.

        ``links``: the links of each of ``flows``; shape (hops, flows)."""
        routes = {flow.id: whole(()) for flow in self._all if flow.src_leaf == flow.dst_leaf}
        paths = zip(self.flows.tolist(), links.T, strict=True)
        return routes | {self._all[number].id: whole(self.path(path)) for number, path in paths}

    def path(self, numbers: Ints) -> Path:
        """Return the path of these links, without padding (``nothing``)."""
        return tuple(self.links[number] for number in numbers.tolist() if number != self.nothing)

    def _expand(self, fabric: _Fabric, begin: Ints) -> None:
        """Give numbers to the states reachable from the codes ``begin``, and fill the arrays of their positions."""
        state_of = np.full(fabric.arrived + 1, -1)
        ahead = np.zeros(fabric.arrived + 1, bool)
        ahead[begin] = True
        sizes, links, afters = [], [], []
        states = 0
        while len(codes := np.flatnonzero(ahead & (state_of < 0))):
            state_of[codes] = states + np.arange(len(codes))
            states += len(codes)
            for first in range(0, len(codes), _BLOCK):
                size, link, after = fabric.onward(codes[first : first + _BLOCK])
                sizes.append(size)
                links.append(link)
                afters.append(after)
                ahead[after] = True
            ahead[fabric.arrived] = False
        state_of[fabric.arrived] = states
        self.size: Ints = np.concatenate([*sizes, [1]])
        self.start: Ints = np.cumsum(self.size) - self.size
        self.link: Ints = np.concatenate([*links, [self.nothing]])
        self.after: Ints = np.concatenate([*(state_of[after] for after in afters), [states]])
        self.state: Ints = state_of[begin]


class _Fabric:
    """Switches, links and distances as arrays.

    A switch on the way to a target has the *code* switch x number of targets + target.

    - ``distance``: number of links from each switch to each target, shape (switches, targets); -1 when there is no
      path.
    - ``arrived``: number after the last code; it stands for a target that has been reached."""

    def __init__(self, here: Ints, there: Ints, targets: Ints, switches: int) -> None:
        """Compute the distances.

        ``here``, ``there``: the ends of each link, sorted. ``targets``: numbers of switches; -1 for a switch without
        links."""
        self._there = there
        self._between = here * switches + there
        self._switches = switches
        self._targets = targets
        self._first = np.searchsorted(here, np.arange(switches))
        self._degree = np.bincount(here, minlength=switches)
        adjacent = np.zeros((switches, switches), np.float32)
        adjacent[here, there] = 1
        frontier = np.zeros((switches, len(targets)), np.float32)
        frontier[targets[targets >= 0], np.flatnonzero(targets >= 0)] = 1
        self.arrived = switches * len(targets)
        self.distance = np.where(frontier > 0, 0, -1)
        for steps in count(1):
            found = (adjacent @ frontier > 0) & (self.distance < 0)
            if not found.any():
                break
            self.distance[found] = steps
            frontier = found.astype(np.float32)

    def onward(self, codes: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the number of next hops of each code, and the link and following code of each next hop, in order."""
        switch, column = np.divmod(codes, len(self._targets))
        left = self.distance[switch, column]
        # The far end of the last hop is the target, so bisection finds it among a spine's links to all leaves.
        last = switch * self._switches + self._targets[column]
        first = np.where(left == 1, np.searchsorted(self._between, last), self._first[switch])
        degree = np.where(left == 1, np.searchsorted(self._between, last, "right") - first, self._degree[switch])
        of = np.repeat(np.arange(len(codes)), degree)
        link = np.arange(len(of)) + np.repeat(first - (np.cumsum(degree) - degree), degree)
        leads = self.distance[self._there[link], column[of]] == left[of] - 1
        link, of = link[leads], of[leads]
        after = np.where(left[of] == 1, self.arrived, self._there[link] * len(self._targets) + column[of])
        return np.bincount(of, minlength=len(codes)), link, after
