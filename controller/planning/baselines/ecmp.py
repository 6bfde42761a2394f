"""ECMP: what hashing makes of the same flows.

At every switch a flow takes one of the equal-cost next hops, each with the same probability, independently of all other
flows and switches. In: a ``Problem``, and the flows that are pinned. Out: levels over seeded draws, as ``efficiency``
defines them; or one draw that is a function of each flow's addresses and ports, as a switch's hash is.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from controller.jobs.spec import JobId
from controller.planning.baselines.fabric_loads import NOTHING_FIXED, FabricLoads, Fixed
from controller.planning.baselines.next_hops import NextHops
from controller.planning.efficiency import Ints, Valuation
from controller.planning.plan import EcmpLevel
from controller.planning.problem import Flow, Problem, Routes

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
    valuation = Valuation(problem)
    return hashed_level(problem, valuation, NextHops(problem), draws, seed)


def hashed_level(problem: Problem, valuation: Valuation, hops: NextHops, draws: int, seed: int) -> EcmpLevel:
    """``ecmp_level`` for callers who have numbered the problem already."""
    nics = max(_nic_levels(problem, valuation, hops.flows, {}).values(), default=1.0)
    loads = FabricLoads(valuation, hops, hops.flows)
    worst = np.concatenate([loads.of(links).max(axis=1) for links in _draws(hops, hops.state, draws, seed)])
    worst = np.maximum(worst, nics)
    return EcmpLevel(float(worst.mean()), float(np.percentile(worst, 95)))


def ecmp_job_levels(problem: Problem, pinned: Routes, draws: int, seed: int) -> dict[JobId, float]:
    """Expected level of every job with a routable flow: flows in ``pinned`` are on their routes, the others (missing,
    or on a path with a link that has gone) are hashed. Exact when every flow is pinned."""
    standing = {flow.id: pinned[flow.id] for flow in problem.flows if _stands(problem, pinned, flow)}
    valuation = Valuation(problem)
    if len(standing) == len(problem.flows):
        return valuation.job_levels(standing)
    hops = NextHops(problem)
    hashed = np.array([problem.flows[number].id not in standing for number in hops.flows.tolist()], bool)
    loads = FabricLoads(valuation, hops, hops.flows[hashed], _fixed(problem, standing, hops))
    sums = np.zeros(len(valuation.job_ids))
    nics = _nic_levels(problem, valuation, hops.flows, standing)
    floor = np.array([nics.get(job, 1.0) for job in valuation.job_ids])
    for links in _draws(hops, hops.state[hashed], draws, seed):
        sums += np.maximum(loads.of_jobs(links, loads.of(links)), floor).sum(axis=0)
    return {job: float(sums[number] / draws) for number, job in enumerate(valuation.job_ids) if job in nics}


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


def _nic_levels(problem: Problem, valuation: Valuation, hashed: Ints, standing: Routes) -> dict[JobId, float]:
    """Level of every job with a routable flow if the fabric were endlessly fast. ``hashed``: numbers of the flows that
    have a way through the fabric."""
    routable = np.array([flow.src_leaf == flow.dst_leaf or flow.id in standing for flow in problem.flows], bool)
    routable[hashed] = True
    return valuation.nic_levels(np.flatnonzero(routable))


def _stands(problem: Problem, pinned: Routes, flow: Flow) -> bool:
    route = pinned.get(flow.id)
    return route is not None and all(link in problem.paths.far_end for piece in route for link in piece.path)


def _fixed(problem: Problem, standing: Routes, hops: NextHops) -> Fixed:
    numbers = {link: number for number, link in enumerate(hops.links)}
    rows = [
        (flow, numbers[link], piece.share)
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
