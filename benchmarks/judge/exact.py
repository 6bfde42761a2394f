"""What is true of an instance: its flows and paths, the levels of a routing, and lower bounds without a solver, all in
fractions. Imports nothing of the controller.

Definitions are those of docs/explanation/planning.md, derived again: T0 of a phase is the time that the busiest NIC
needs, a demand is bits / T0, a link's load the sum over jobs of their largest phase on it / capacity, a job's level the
largest load (at least 1) on a link that it uses. A flow may take the paths with the fewest links.

In: an ``Instance``. Out: an ``Exact``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from benchmarks.judge.instances import Instance

Path = tuple[int, ...]
"""Links by number: cable c is link 2c from a to b and 2c + 1 back."""

Routing = Sequence[Sequence[tuple[Path, Fraction]]]
"""Per flow its pieces: a path and a share."""

_ROUNDING = Fraction(1, 10**9)


@dataclass(frozen=True, slots=True)
class Flow:
    """``demand``: per phase, bit/s. ``nics``: the links out of the source and into the destination."""

    job: int
    src: int
    dst: int
    ends: tuple[int, int]
    nics: tuple[int, int]
    demand: Mapping[int, Fraction]


class Exact:
    """``flows``: in the order in which the instance first names them."""

    def __init__(self, instance: Instance) -> None:
        cables, hosts = instance.cables, instance.hosts
        self.ends = [end for cable in cables for end in ((cable.a, cable.b), (cable.b, cable.a))]
        self.capacity = [rest for c in cables for rest in (Fraction(c.bps - c.taken_ab), Fraction(c.bps - c.taken_ba))]
        self._first_nic = len(self.capacity)
        for host in hosts:
            self.capacity += [Fraction(host.bps - host.taken_out), Fraction(host.bps - host.taken_in)]
        self.flows = self._flows(instance)
        self.jobs = sorted({flow.job for flow in self.flows})
        self._out: defaultdict[int, list[int]] = defaultdict(list)
        self._into: defaultdict[int, list[int]] = defaultdict(list)
        for link, (src, dst) in enumerate(self.ends):
            self._out[src].append(link)
            self._into[dst].append(link)
        self._distance: dict[int, dict[int, int]] = {}
        self._paths: dict[tuple[int, int], tuple[Path, ...]] = {}

    def _flows(self, instance: Instance) -> tuple[Flow, ...]:
        through: defaultdict[tuple[int, int, int, str], int] = defaultdict(int)
        sizes: defaultdict[tuple[int, int, int], defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        for job, src, dst, phase, size in instance.sends:
            through[job, phase, src, "out"] += 8 * size
            through[job, phase, dst, "in"] += 8 * size
            sizes[job, src, dst][phase] += 8 * size
        t0_s: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
        for (job, phase, host, _), bits in through.items():
            t0_s[job, phase] = max(t0_s[job, phase], Fraction(bits, instance.hosts[host].bps))
        return tuple(
            Flow(
                job,
                src,
                dst,
                (instance.hosts[src].switch, instance.hosts[dst].switch),
                (self._first_nic + 2 * src, self._first_nic + 2 * dst + 1),
                {phase: bits / t0_s[job, phase] for phase, bits in sorted(phases.items())},
            )
            for (job, src, dst), phases in sizes.items()
        )

    # ---- routings

    def levels(self, routing: Routing) -> dict[int, Fraction]:
        """Of every job."""
        bps: defaultdict[int, defaultdict[tuple[int, int], Fraction]] = defaultdict(lambda: defaultdict(Fraction))
        for flow, pieces in zip(self.flows, routing, strict=True):
            for phase, demand in flow.demand.items():
                for link in flow.nics:
                    bps[link][flow.job, phase] += demand
                for path, share in pieces:
                    for link in path:
                        bps[link][flow.job, phase] += share * demand
        found = dict.fromkeys(self.jobs, Fraction(1))
        for link, phases in bps.items():
            peaks: defaultdict[int, Fraction] = defaultdict(Fraction)
            for (job, _), rate in phases.items():
                peaks[job] = max(peaks[job], rate)
            load = sum(peaks.values(), Fraction()) / self.capacity[link]
            for job in peaks:
                found[job] = max(found[job], load)
        return found

    def vector(self, routing: Routing) -> tuple[Fraction, ...]:
        """All levels from the worst."""
        return tuple(sorted(self.levels(routing).values(), reverse=True))

    def faults(self, routing: Routing, pieces: int) -> Iterator[str]:
        """What is wrong with a routing of up to so many pieces per flow."""
        for flow, route in zip(self.flows, routing, strict=True):
            name = f"flow {flow.src} > {flow.dst} of job {flow.job}"
            if not 1 <= len(route) <= pieces:
                yield f"{name} has {len(route)} pieces"
            if abs(sum((share for _, share in route), Fraction(-1))) > _ROUNDING or any(
                share <= 0 for _, share in route
            ):
                yield f"{name} has shares {[float(share) for _, share in route]}"
            for path, _ in route:
                if not self._leads(path, *flow.ends):
                    yield f"{name} has a path {path} that is no shortest one"

    def _leads(self, path: Path, src: int, dst: int) -> bool:
        here = src
        for link in path:
            start, end = self.ends[link]
            if start != here:
                return False
            here = end
        return here == dst and len(path) == self._distances(dst)[src]

    def paths(self, src: int, dst: int) -> tuple[Path, ...]:
        """All with the fewest links; the empty one within a switch."""
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
        """Links to cross from every switch that reaches this one."""
        if dst not in self._distance:
            found, level = {dst: 0}, [dst]
            while level:
                near = {self.ends[link][0] for here in level for link in self._into[here]} - found.keys()
                found |= dict.fromkeys(near, found[level[0]] + 1)
                level = sorted(near)
            self._distance[dst] = found
        return self._distance[dst]

    # ---- lower bounds without a solver

    @cached_property
    def nic_level(self) -> Fraction:
        """The least worst level that the NICs allow, at least 1."""
        return max(self.levels([[((), Fraction(1))] for _ in self.flows]).values(), default=Fraction(1))

    @cached_property
    def cut_level(self) -> Fraction:
        """No routing has a smaller worst level: all bytes that leave a switch with hosts cross its links, and all that
        enter it."""
        return max([self.nic_level, *(sum(bps, Fraction()) / capacity for bps, capacity in self._cuts())])

    @cached_property
    def whole_cut_level(self) -> Fraction:
        """No routing of whole flows has a smaller worst level. Where m flows of at least d bit/s, in one phase of each
        job, cross a cut, some link is loaded at least with the m-th smallest of the numbers k * d / capacity."""
        found = self.cut_level
        for bps, links in self._cut_flows():
            ordered = sorted(bps, reverse=True)
            for size in set(ordered):
                count = sum(rate >= size for rate in ordered)
                fluid = count * size / sum(self.capacity[link] for link in links)
                held = [int(fluid * self.capacity[link] / size) for link in links]
                steps = sorted(
                    (
                        k * size / self.capacity[link]
                        for link, least in zip(links, held, strict=True)
                        for k in range(least + 1, least + 2 + count - sum(held))
                    ),
                )
                missing = count - sum(held)
                full = max(k * size / self.capacity[link] for link, k in zip(links, held, strict=True))
                found = max(found, steps[missing - 1] if missing else full)
        return found

    def _cuts(self) -> Iterator[tuple[list[Fraction], Fraction]]:
        """Per cut the largest phase of every job, and the capacity."""
        peaks: defaultdict[tuple[str, int], defaultdict[tuple[int, int], Fraction]] = defaultdict(
            lambda: defaultdict(Fraction)
        )
        for flow in self._crossing():
            for phase, rate in flow.demand.items():
                for place in (("out", flow.ends[0]), ("in", flow.ends[1])):
                    peaks[place][flow.job, phase] += rate
        for place, phases in peaks.items():
            largest: defaultdict[int, Fraction] = defaultdict(Fraction)
            for (job, _), rate in phases.items():
                largest[job] = max(largest[job], rate)
            yield list(largest.values()), sum((self.capacity[link] for link in self._around(*place)), Fraction())

    def _cut_flows(self) -> Iterator[tuple[list[Fraction], list[int]]]:
        """Per cut the flows of the first phase of each job, bit/s, and the links."""
        rates: defaultdict[tuple[str, int], list[Fraction]] = defaultdict(list)
        first = {job: min(p for flow in self.flows if flow.job == job for p in flow.demand) for job in self.jobs}
        for flow in self._crossing():
            if first[flow.job] in flow.demand:
                for place in (("out", flow.ends[0]), ("in", flow.ends[1])):
                    rates[place].append(flow.demand[first[flow.job]])
        for place, of_cut in rates.items():
            yield of_cut, self._around(*place)

    def _crossing(self) -> Iterator[Flow]:
        return (flow for flow in self.flows if flow.ends[0] != flow.ends[1])

    def _around(self, way: str, switch: int) -> list[int]:
        return self._out[switch] if way == "out" else self._into[switch]
