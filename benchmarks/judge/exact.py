"""Exact values of an instance, as fractions: flows, paths, slowdowns of routings, and lower bounds without a solver.

This module imports nothing of the controller. It implements the definitions of docs/explanation/planning.md anew:

- The ideal time of a phase is the time that the busiest NIC needs.
- The demand of a flow in a phase is its bits / the ideal time of the phase.
- The load of a link is the sum over all jobs of their largest demand on it in any phase / its capacity.
- The slowdown of a job is the largest load of the links that it uses, and at least 1. Over iterations, the slowdown of
  a job is the sum over its phases of share x slowdown. A phase has the largest load of the links that it uses, and at
  least 1; its own job counts with the demand of this phase. The share of a phase is its part of the job's ideal time.
- A flow may take each path with the fewest links.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TypeVar

from benchmarks.judge.instances import Instance, limit_of

Path = tuple[int, ...]
"""Numbers of the links of a path. Cable c is link 2c from its end a to its end b, and link 2c + 1 back."""

Routing = Sequence[Sequence[tuple[Path, Fraction]]]
"""Subflows of each flow, each as its path and its share of the flow."""

_Rate = TypeVar("_Rate", int, Fraction | int)

_ROUNDING = Fraction(1, 10**9)


@dataclass(frozen=True, slots=True)
class Flow:
    job: int
    src: int
    dst: int
    ends: tuple[int, int]
    """Switches of source and destination."""
    nics: tuple[int, int]
    """Numbers of the link out of the source host and of the link into the destination host."""
    demand: Mapping[int, int]
    """Demand by phase, in the unit of ``Exact.capacity``."""


class Exact:
    """Exact values of an instance.

    ``flows``: flows in the order in which the instance first names them. ``capacity``: capacity of each link, then
    of each NIC outwards and inwards. Capacities and demands are integers, in the largest fraction of 1 bit/s that
    makes them so. ``share``: share of each (job, phase) over iterations; 1 for each job's only phase.
    ``over_iterations``: whether slowdowns are those over iterations."""

    def __init__(self, instance: Instance, over_iterations: bool = False) -> None:
        cables, hosts = instance.cables, instance.hosts
        self.ends = [end for cable in cables for end in ((cable.a, cable.b), (cable.b, cable.a))]
        bps = [rest for c in cables for rest in (c.bps - c.taken_ab, c.bps - c.taken_ba)]
        self._first_nic = len(bps)
        bps += [rest for host in hosts for rest in (host.bps - host.taken_out, host.bps - host.taken_in)]
        demands = _demands(instance)
        parts = math.lcm(*(rate.denominator for phases in demands.values() for rate in phases.values()))
        self.capacity = [parts * rate for rate in bps]
        self.flows = tuple(
            Flow(
                job,
                src,
                dst,
                (hosts[src].switch, hosts[dst].switch),
                (self._first_nic + 2 * src, self._first_nic + 2 * dst + 1),
                {phase: int(parts * rate) for phase, rate in phases.items()},
            )
            for (job, src, dst), phases in demands.items()
        )
        self.jobs = sorted({flow.job for flow in self.flows})
        ideal_s, total_s = _ideal_s(instance), defaultdict[int, Fraction](Fraction)
        for (job, _), seconds in ideal_s.items():
            total_s[job] += seconds
        self.share = {cell: seconds / total_s[cell[0]] for cell, seconds in ideal_s.items()}
        self.over_iterations = over_iterations and len(self.share) > len(self.jobs)
        self._out: defaultdict[int, list[int]] = defaultdict(list)
        self._into: defaultdict[int, list[int]] = defaultdict(list)
        for link, (src, dst) in enumerate(self.ends):
            self._out[src].append(link)
            self._into[dst].append(link)
        self._distance: dict[int, dict[int, int]] = {}
        self._paths: dict[tuple[int, int], tuple[Path, ...]] = {}

    # ---- routings

    def _on_link(self, routing: Routing) -> Mapping[int, Mapping[tuple[int, int], Fraction | int]]:
        """Return the rate of each (job, phase) on each link, NICs included."""
        on_link: defaultdict[int, defaultdict[tuple[int, int], Fraction | int]] = defaultdict(lambda: defaultdict(int))
        for flow, subflows in zip(self.flows, routing, strict=True):
            for phase, demand in flow.demand.items():
                for link in flow.nics:
                    on_link[link][flow.job, phase] += demand
                for path, share in subflows:
                    part = demand if share == 1 else share * demand
                    for link in path:
                        on_link[link][flow.job, phase] += part
        return on_link

    def slowdowns(self, routing: Routing) -> dict[int, Fraction]:
        if self.over_iterations:
            found = dict.fromkeys(self.jobs, Fraction(0))
            for cell, slowdown in self.of_phases(routing).items():
                found[cell[0]] += self.share[cell] * slowdown
            return found
        found = dict.fromkeys(self.jobs, Fraction(1))
        for link, phases in self._on_link(routing).items():
            peaks = _peaks(phases)
            load = Fraction(sum(peaks.values())) / self.capacity[link]
            for job in peaks:
                found[job] = max(found[job], load)
        return found

    def of_phases(self, routing: Routing) -> dict[tuple[int, int], Fraction]:
        """Return the slowdown of each (job, phase)."""
        found = dict.fromkeys(self.share, Fraction(1))
        for link, phases in self._on_link(routing).items():
            peaks = _peaks(phases)
            total = Fraction(sum(peaks.values()))
            for cell, own in phases.items():
                found[cell] = max(found[cell], (total - peaks[cell[0]] + own) / self.capacity[link])
        return found

    def vector(self, routing: Routing) -> tuple[Fraction, ...]:
        return tuple(sorted(self.slowdowns(routing).values(), reverse=True))

    def faults(self, routing: Routing, max_subflows: int) -> Iterator[str]:
        """Yield a sentence for each reason why a routing with at most ``max_subflows`` subflows per flow is invalid."""
        for flow, route in zip(self.flows, routing, strict=True):
            name = f"flow {flow.src} > {flow.dst} of job {flow.job}"
            if not 1 <= len(route) <= limit_of(max_subflows, flow.job):
                yield f"{name} has {len(route)} subflows"
            if abs(sum((share for _, share in route), Fraction(-1))) > _ROUNDING or any(
                share <= 0 for _, share in route
            ):
                yield f"{name} has shares {[float(share) for _, share in route]}"
            for path, _ in route:
                if not self._leads(path, *flow.ends):
                    yield f"{name} has a path {path} that is not a shortest path"

    def _leads(self, path: Path, src: int, dst: int) -> bool:
        here = src
        for link in path:
            start, end = self.ends[link]
            if start != here:
                return False
            here = end
        return here == dst and len(path) == self._distances(dst)[src]

    def paths(self, src: int, dst: int) -> tuple[Path, ...]:
        """Return all paths with the fewest links between two switches; from a switch to itself, the empty path."""
        if (src, dst) not in self._paths:
            self._paths[src, dst] = tuple(self._find(src, dst))
        return self._paths[src, dst]

    def _find(self, src: int, dst: int) -> Iterator[Path]:
        if src == dst:
            yield ()
            return
        distance = self._distances(dst)
        for link in self._out[src]:
            there = self.ends[link][1]
            if distance.get(there) == distance[src] - 1:
                yield from ((link, *rest) for rest in self.paths(there, dst))

    def _distances(self, dst: int) -> dict[int, int]:
        """Return the number of links to ``dst`` from each switch that reaches it."""
        if dst not in self._distance:
            found, frontier = {dst: 0}, [dst]
            while frontier:
                near = {self.ends[link][0] for here in frontier for link in self._into[here]} - found.keys()
                found |= dict.fromkeys(near, found[frontier[0]] + 1)
                frontier = sorted(near)
            self._distance[dst] = found
        return self._distance[dst]

    # ---- lower bounds without a solver

    @cached_property
    def nic_slowdowns(self) -> dict[int, Fraction]:
        """Lower bound of each job's slowdown under any routing: the load of its NICs."""
        return self.slowdowns(self.only_nics)

    @cached_property
    def only_nics(self) -> Routing:
        """Paths without links, on which flows load only their NICs."""
        return [[((), Fraction(1))] for _ in self.flows]

    @cached_property
    def cut_slowdown(self) -> Fraction:
        """Lower bound of the worst slowdown under any routing: the largest load of a cut around a switch.

        All bytes that leave a switch's hosts for other switches cross its outgoing links. All bytes to its hosts cross
        its incoming links. Over iterations, some phase that crosses the cut has this slowdown."""
        phases: defaultdict[tuple[str, int], defaultdict[tuple[int, int], int]] = defaultdict(lambda: defaultdict(int))
        for flow, cut in self._crossings():
            for phase, rate in flow.demand.items():
                phases[cut][flow.job, phase] += rate
        found = max(self.nic_slowdowns.values(), default=Fraction(1))
        for cut, of_cut in phases.items():
            load = Fraction(sum(_peaks(of_cut).values()), sum(self.capacity[link] for link in self._around(*cut)))
            share = min(self.share[cell] for cell in of_cut) if self.over_iterations else 1
            found = max(found, 1 + share * (load - 1))
        return found

    @cached_property
    def whole_cut_slowdown(self) -> Fraction:
        """Lower bound of the worst slowdown under any routing of whole flows, from the first phase of each job.

        For each cut around a switch and each size s, it counts the flows of at least s that cross the cut, and takes
        them as flows of size s. The bound is the largest ``_fullest`` over all cuts and sizes. Over iterations, the
        first phase of some job that crosses the cut has this slowdown."""
        first = {
            job: min(phase for flow in self.flows if flow.job == job for phase in flow.demand) for job in self.jobs
        }
        rates: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        shares: defaultdict[tuple[str, int], list[Fraction | int]] = defaultdict(lambda: [1])
        for flow, cut in self._crossings():
            if first[flow.job] in flow.demand:
                rates[cut].append(flow.demand[first[flow.job]])
                if self.over_iterations:
                    shares[cut].append(self.share[flow.job, first[flow.job]])
        found = self.cut_slowdown
        for cut, of_cut in rates.items():
            capacities = tuple(sorted(self.capacity[link] for link in self._around(*cut)))
            for size in set(of_cut):
                load = _fullest(sum(rate >= size for rate in of_cut), size, capacities)
                found = max(found, 1 + min(shares[cut]) * (load - 1))
        return found

    def _crossings(self) -> Iterator[tuple[Flow, tuple[str, int]]]:
        """Yield each flow between two switches twice: with its cut out of the source, and into the destination."""
        for flow in self.flows:
            if flow.ends[0] != flow.ends[1]:
                yield flow, ("out", flow.ends[0])
                yield flow, ("in", flow.ends[1])

    def _around(self, way: str, switch: int) -> list[int]:
        return self._out[switch] if way == "out" else self._into[switch]


def _ideal_s(instance: Instance) -> dict[tuple[int, int], Fraction]:
    """Return the ideal time in seconds by (job, phase)."""
    through: defaultdict[tuple[int, int, int, str], int] = defaultdict(int)
    for job, src, dst, phase, size in instance.sends:
        through[job, phase, src, "out"] += 8 * size
        through[job, phase, dst, "in"] += 8 * size
    ideal_s: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for (job, phase, host, _), amount in through.items():
        ideal_s[job, phase] = max(ideal_s[job, phase], Fraction(amount, instance.hosts[host].bps))
    return ideal_s


def _demands(instance: Instance) -> dict[tuple[int, int, int], dict[int, Fraction]]:
    """Return the demand in bit/s of each phase, by (job, source, destination)."""
    bits: defaultdict[tuple[int, int, int], defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for job, src, dst, phase, size in instance.sends:
        bits[job, src, dst][phase] += 8 * size
    ideal_s = _ideal_s(instance)
    return {
        (job, src, dst): {phase: amount / ideal_s[job, phase] for phase, amount in sorted(phases.items())}
        for (job, src, dst), phases in bits.items()
    }


def _peaks(phases: Mapping[tuple[int, int], _Rate]) -> dict[int, _Rate]:
    peaks: dict[int, _Rate] = {}
    for (job, _), rate in phases.items():
        peaks[job] = max(peaks.get(job, rate), rate)
    return peaks


@lru_cache(maxsize=4096)
def _fullest(count: int, size: int, capacities: tuple[int, ...]) -> Fraction:
    """Return the load of the fullest link when ``count`` whole flows of ``size`` share the links as well as possible.

    A link with k flows has the load k * size / capacity. Of these loads, for all links and all k, the result is the
    count-th smallest. The result is a lower bound for larger flows, too."""
    held = [count * capacity // sum(capacities) for capacity in capacities]
    full = max(Fraction(k * size, capacity) for k, capacity in zip(held, capacities, strict=True))
    missing = count - sum(held)
    steps = sorted(
        Fraction(k * size, capacity)
        for least, capacity in zip(held, capacities, strict=True)
        for k in range(least + 1, least + 1 + missing)
    )
    return steps[missing - 1] if missing else full
