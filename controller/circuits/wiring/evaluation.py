"""Evaluation of wirings: the wiring and the parallelization that a job should have on a direct-connect fabric.

In: ``Offer``s, and the available servers, interfaces and rates. Out, for every parallelization: its wiring and the
planner's routes; the time of an iteration on these routes, and a lower bound of this time; the time on the alternative.
The alternative is one switch that connects all servers. ``Answer.best`` is the parallelization with the shortest
iteration. Each parallelization is evaluated on a wiring that was found for it alone, so a search that changes
parallelization and wiring in turn would find nothing better.

Servers forward packets for each other, so some bytes pass several circuits. In the symbols below, all circuits together
need at least the time (1 + r h) / (d B), and the alternative needs (1 + r) / F. If r is above a *break-even*,
forwarding costs more time than the higher rate of circuits saves (docs/wiring.md#when-not-to).

- d: number of interfaces per server; B: rate of an interface.
- r: bytes of pairs / bytes of rings; h: mean number of hops of pairs.
- F: rate per server of the alternative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from controller.circuits.wiring.circuits import Wiring
from controller.circuits.wiring.finder import Found, ranked, rounded
from controller.circuits.wiring.rings import coin_change_routes
from controller.circuits.wiring.traffic import Traffic, in_rings, traffic_of
from controller.fabric.topology import Dpid, Fabric, Host, Link, Port, PortNo, PortRef, Switch
from controller.planning.bounds import slowdown_bounds
from controller.planning.efficiency import phase_slowdowns
from controller.planning.plan import Plan, answered
from controller.planning.planner import plan, repair
from controller.planning.problem import PlanLimits, Problem
from controller.planning.snapshot import ideal_time_s, take_snapshot
from signalbox.jobs.collectives import VirtualLinks, virtual_links
from signalbox.jobs.spec import Compute, JobId, JobSpec
from signalbox.jobs.subflows import Dividing, Pair

COST_RATIO = 3.2
"""Cost of an ideal switch divided by the cost of direct connection at the same rate (TopoOpt, NSDI 2023, section 5.2).

At the same cost, a switch therefore has a rate of d B / 3.2 per server, with d interfaces of rate B."""


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Comparison of direct connection with the alternative. Rates are in bit/s per server."""

    ratio: float
    """Ratio r of bytes of pairs to bytes of rings; ``inf`` if nothing is sent in rings."""
    hops: float
    """Mean number of hops h."""
    direct_bps: float
    other_bps: float

    @property
    def time_ratio(self) -> float:
        """Time of direct connection divided by the time of the alternative. Above 1, the alternative is faster."""
        if math.isinf(self.ratio):
            return self.hops * self.other_bps / self.direct_bps
        return (1 + self.ratio * self.hops) * self.other_bps / ((1 + self.ratio) * self.direct_bps)

    @property
    def loses(self) -> bool:
        return self.time_ratio > 1

    @property
    def most_ratio(self) -> float:
        """Ratio r at which direct connection and the alternative take the same time, with the same h.

        The value is ``inf`` if direct connection is never slower, and 0 if direct connection is slower even with rings
        alone."""
        if self.direct_bps <= self.other_bps:
            return 0.0 if self.direct_bps < self.other_bps or self.hops > 1 else math.inf
        if self.hops * self.other_bps <= self.direct_bps:
            return math.inf
        return (self.direct_bps - self.other_bps) / (self.hops * self.other_bps - self.direct_bps)


MOST_SEARCHED = 5_000
"""Largest number of flows for which the planner searches for routes.

If there are more flows, the routes of only one wiring are planned. On a circulant wiring, the flows then keep the
routes of coin change, which use the fewest circuits (``rings``)."""

MOST_PLANNED = 4
"""Largest number of wirings of one parallelization whose routes are planned."""

MOST_PATHS = 1024
"""Largest number of paths between two servers that the planner considers."""

GIGABIT = 1e9

FIRST_PORT = 1
"""Port number of a server's first interface, at the switch that stands for the server."""


@dataclass(frozen=True, slots=True)
class Way:
    """Parallelization of a job: name and spec."""

    name: str
    spec: JobSpec
    """Spec with one address for each server, from 10.0.0.1 on."""
    compute: tuple[Compute, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """Job and its parallelizations. A job without ``parallelizations`` has one ``Way``, with the spec itself."""

    job_id: str
    servers: int
    ways: tuple[Way, ...]


class Rates(NamedTuple):
    """Rates in Gbit/s."""

    interface_gbps: float
    """Rate of one interface."""
    other_gbps: float
    """Rate of one server at the alternative."""


class PhaseTime(NamedTuple):
    """Times of one phase of the spec in seconds."""

    phase: int
    compute_s: float
    """Time of computation that overlaps with the phase."""
    ideal_s: float
    """Time of communication on an idle fabric with the same NICs."""
    bound_s: float
    """Lower bound of the time of communication over all routings on this wiring."""
    planned_s: float
    """Time of communication with the planner's routes."""
    other_s: float
    """Time of communication on the alternative."""


@dataclass(frozen=True)
class Evaluated:
    """Parallelization, evaluated on its wiring."""

    name: str
    found: Found
    spec: JobSpec
    """Spec as it runs on the wiring, with the host addresses of ``fabric_of``."""
    plan: Plan
    alone_s: float
    """Seconds of computation that overlaps with no phase."""
    phases: tuple[PhaseTime, ...]
    rates: Rates

    @property
    def planned_s(self) -> float:
        """Seconds of an iteration with the planner's routes."""
        return self.alone_s + math.fsum(max(each.compute_s, each.planned_s) for each in self.phases)

    @property
    def bound_s(self) -> float:
        return self.alone_s + math.fsum(max(each.compute_s, each.bound_s) for each in self.phases)

    @property
    def other_s(self) -> float:
        return self.alone_s + math.fsum(max(each.compute_s, each.other_s) for each in self.phases)

    @cached_property
    def break_even(self) -> BreakEven:
        traffic, interfaces = self.found.traffic, self.found.wiring.interfaces
        forwarded = float(self.found.pairs_and_free_rings.sum())
        direct = traffic.in_rings + float(traffic.of_pairs.sum()) - forwarded
        ratio = forwarded / direct if direct > forwarded * 1e-9 else math.inf
        direct_bps = interfaces * self.rates.interface_gbps * GIGABIT
        return BreakEven(ratio, self.found.pair_hops, direct_bps, self.rates.other_gbps * GIGABIT)


@dataclass(frozen=True)
class _Alone:
    spec: JobSpec
    silent = False
    idle_phases = frozenset[int]()

    @property
    def id(self) -> JobId:
        return JobId(self.spec.job_id)

    @cached_property
    def virtual_links(self) -> VirtualLinks:
        return virtual_links(self.spec)

    @property
    def pairs(self) -> frozenset[Pair]:
        return frozenset(self.virtual_links.pairs)

    @property
    def dividing(self) -> Dividing:
        return Dividing(self.spec.max_subflows, self.spec.striping)


@dataclass(frozen=True)
class Answer:
    """Evaluation of all parallelizations of one job."""

    offer: Offer
    parallelizations: tuple[Evaluated, ...]
    """Parallelizations in the order of the job."""

    @property
    def best(self) -> Evaluated:
        """Parallelization with the shortest iteration on its wiring."""
        return min(self.parallelizations, key=lambda each: rounded(each.planned_s))

    @property
    def other(self) -> Evaluated:
        """Parallelization with the shortest iteration on the alternative, one switch that connects all servers."""
        return min(self.parallelizations, key=lambda each: rounded(each.other_s))

    @property
    def refused(self) -> bool:
        """Whether the job should run on the alternative, for one of two reasons.

        Either the circuits need more time for all traffic, including forwarded bytes, than the alternative
        (``BreakEven``). Or an iteration is shorter on the alternative."""
        return self.best.break_even.loses or rounded(self.best.planned_s) > rounded(self.other.other_s)


def answers(offers: Sequence[Offer], interfaces: int, rates: Rates, limits: PlanLimits) -> list[Answer]:
    """Evaluate all parallelizations of these jobs. Raises ``SignalboxError`` if the planner finds no plan.

    ``limits``: limits of each plan."""
    return [Answer(offer, tuple(evaluated(way, interfaces, rates, limits) for way in offer.ways)) for offer in offers]


def evaluated(way: Way, interfaces: int, rates: Rates, limits: PlanLimits) -> Evaluated:
    """Return the parallelization on the wiring with the shortest planned iteration.

    The ``MOST_PLANNED`` wirings with the least expected times are candidates. The first candidate is always planned.
    Each further candidate is planned only if its lower bound is below the shortest planned iteration so far. Raises
    ``SignalboxError`` if the planner finds no plan."""
    first, *others = ranked(traffic_of(way.spec), interfaces, rates.interface_gbps * GIGABIT, MOST_PLANNED)
    best = evaluated_on(first, way, rates, limits)
    for found in others if len(best.plan.routes) <= MOST_SEARCHED else ():
        if rounded(best.alone_s + _least_s(way, found)) < rounded(best.planned_s):
            best = min(best, evaluated_on(found, way, rates, limits), key=lambda each: rounded(each.planned_s))
    return best


def _least_s(way: Way, found: Found) -> float:
    """Return a lower bound of the seconds of an iteration, over all routes on a wiring.

    Computation that overlaps with no phase is left out."""
    least_s = found.least_s
    return math.fsum(max(_computed_s(way, each), least_s.get(each, 0.0)) for each in _phases(way, found.traffic))


def _phases(way: Way, traffic: Traffic) -> list[int]:
    return sorted({*traffic.phases, *(each.phase for each in way.compute if each.phase is not None)})


def _computed_s(way: Way, phase: int) -> float:
    return math.fsum(each.seconds for each in way.compute if each.phase == phase)


def evaluated_on(found: Found, way: Way, rates: Rates, limits: PlanLimits) -> Evaluated:
    """Return a parallelization on a wiring. Raises ``SignalboxError``."""
    fabric = fabric_of(found.wiring, rates.interface_gbps)
    wired = in_rings(way.spec, zip(found.traffic.rings, found.orders, strict=True))
    spec = wired.model_copy(update={"endpoints": hosts_for(fabric, wired.endpoints)})
    problem = take_snapshot(fabric.generation, fabric, [_Alone(spec)], {}, {}, MOST_PATHS)
    made = routed(problem, found.wiring, fabric, limits)
    alone_s = math.fsum(each.seconds for each in way.compute if each.phase is None)
    phases = _phase_times(way, found, spec, problem, made, rates)
    return Evaluated(way.name, found, spec, made, alone_s, phases, rates)


def fabric_of(wiring: Wiring, interface_gbps: float) -> Fabric:
    """Return the fabric of a wiring: a switch for each server, with the server's number, and one host at each switch.

    The host has the rate of all interfaces together. Interface k is port ``FIRST_PORT`` + k, and the host is at the
    next port after the interfaces."""
    interface_bps = interface_gbps * GIGABIT
    ports: list[dict[PortNo, Port]] = [{} for _ in range(wiring.servers)]

    def plugged(server: int, interface: int, bps: float) -> PortRef:
        number = PortNo(FIRST_PORT + interface)
        ports[server][number] = Port(number, f"eth{number}", "", True, bps)
        return PortRef(Dpid(server + 1), number)

    links = [
        Link(plugged(*src, interface_bps), plugged(*dst, interface_bps), interface_bps) for src, dst in wiring.circuits
    ]
    hosts = {}
    for server in range(wiring.servers):
        ip, nic_bps = f"10.{server >> 8}.{server & 255}.1", wiring.interfaces * interface_bps
        hosts[ip] = Host(ip, None, plugged(server, wiring.interfaces, nic_bps), nic_bps)
    switches = {Dpid(n + 1): Switch(Dpid(n + 1), f"server{n}", of) for n, of in enumerate(ports)}
    return Fabric(1, switches, {link.id: link for link in links}, hosts)


def routed(problem: Problem, wiring: Wiring, fabric: Fabric, limits: PlanLimits) -> Plan:
    """Plan the routes on a wiring. Raises ``SignalboxError``.

    A circulant wiring gets the routes of coin change (``rings``), which the planner improves unless there are very many
    flows. Other wirings get routes of the planner."""
    if wiring.steps is None:
        return answered(plan(problem, limits))
    ports = [PortNo(FIRST_PORT + interface) for interface in range(wiring.interfaces)]
    problem = problem.with_routes(coin_change_routes(problem, wiring, list(fabric.switches), ports))
    return answered(plan(problem, limits) if len(problem.flows) <= MOST_SEARCHED else repair(problem))


def hosts_for(fabric: Fabric, endpoints: Sequence[str]) -> tuple[str, ...]:
    """Return the host's address in the fabric for each address of the job, in the order of the addresses."""
    host_of = dict(zip(dict.fromkeys(endpoints), fabric.hosts, strict=True))
    return tuple(host_of[address] for address in endpoints)


def _phase_times(
    way: Way, found: Found, spec: JobSpec, problem: Problem, made: Plan, rates: Rates
) -> tuple[PhaseTime, ...]:
    """Return the times of the phases of the spec; the planner treats each step of a phase as a phase of its own."""
    direct_gbps = rates.interface_gbps * found.wiring.interfaces
    ideal_s = ideal_time_s(virtual_links(spec), dict.fromkeys(spec.endpoints, direct_gbps * GIGABIT))
    slowdown = phase_slowdowns(problem, made.routes).get(JobId(spec.job_id), {})
    steps = iter(sorted(ideal_s))
    times = []
    for phase in _phases(way, found.traffic):
        compute_s = _computed_s(way, phase)
        mine = [next(steps) for _ in range(steps_of(spec, phase))]
        alone_s = math.fsum(ideal_s[step] for step in mine)
        bound_s = math.fsum(ideal_s[step] * slowdown_bounds(_only_phase(problem, step)).worst for step in mine)
        planned_s = math.fsum(ideal_s[step] * slowdown.get(step, 1.0) for step in mine)
        bound_s = max(bound_s, found.least_s.get(phase, 0.0))
        other_s = alone_s * direct_gbps / rates.other_gbps
        times.append(PhaseTime(phase, compute_s, alone_s, bound_s, max(bound_s, planned_s), other_s))
    return tuple(times)


def steps_of(spec: JobSpec, phase: int) -> int:
    """Return the number of steps of a phase of the spec. Each step is a phase to the planner."""
    alone = {
        "collectives": tuple(each for each in spec.collectives if each.phase == phase),
        "transfers": tuple(each for each in spec.transfers if each.phase == phase),
    }
    return len({link.phase for link in virtual_links(spec.model_copy(update=alone))})


def _only_phase(problem: Problem, step: int) -> Problem:
    own = ((each, tuple(part for part in each.demand_bps if part[0] == step)) for each in problem.flows)
    return problem.with_flows(replace(each, demand_bps=demand_bps) for each, demand_bps in own if demand_bps)
