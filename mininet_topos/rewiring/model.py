"""Model of a job on a fabric: the seconds of an iteration, and the rings with the shortest time. Pure.

The input is a job, a wiring or a leaf-spine fabric, and the rates of the emulated links. The model is that of
``signalbox design wiring`` (docs/wiring.md), with the payload rate of an emulated link in place of its rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from controller.circuits.wiring.circuits import Wiring
from controller.circuits.wiring.evaluation import (
    COST_RATIO,
    Answer,
    Offer,
    Rates,
    Way,
    answers,
    fabric_of,
    hosts_for,
    routed,
    steps_of,
)
from controller.circuits.wiring.finder import Orders
from controller.circuits.wiring.traffic import in_rings, traffic_of
from controller.planning.efficiency import NextHops, hashed_links, phase_slowdowns
from controller.planning.plan import answered
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem, Routes
from controller.planning.snapshot import ideal_time_s
from mininet_topos.demo.report import ideal_goodput_bps
from offline.scenarios.fabrics import leaf_spine
from offline.scenarios.scenario import GIGABIT, problem_of
from offline.scenarios.workload_job import announced
from signalbox.jobs.collectives import virtual_links
from signalbox.jobs.spec import JobId, JobSpec

LIMITS = PlanLimits(time_limit_s=5.0, ecmp_draws=0)
DRAWS = 100
"""Hash draws of ECMP."""


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a fabric of servers at optical switches. ``mbps``: rate of each of a server's ``interfaces``."""

    servers: int
    interfaces: int
    mbps: float

    @property
    def other_mbps(self) -> float:
        """Rate of a server in Mbit/s on an alternative of equal cost."""
        return self.interfaces * self.mbps / COST_RATIO

    @property
    def rates(self) -> Rates:
        """Payload rates of an interface and of a server on the alternative, in Gbit/s."""
        return Rates(_payload_gbps(self.mbps), _payload_gbps(self.other_mbps))


class Runs(NamedTuple):
    """Execution of a job on a wiring, with the modelled seconds of an iteration.

    ``rings``: number of rings of an all-reduce over all servers."""

    parallelization: str
    spec: JobSpec
    rings: int
    planned_s: float


def spec_of(job: Mapping[str, Any], job_id: str, addresses: Sequence[str]) -> JobSpec:
    """Return the spec of a job as it is announced. Raises ``InvalidInput``.

    ``job``: its fields without id and addresses, with ``compute`` if it has no parallelizations."""
    sends = {name: value for name, value in job.items() if name != "compute"}
    return JobSpec.parse({**sends, "job_id": job_id, "endpoints": tuple(addresses)})


def ways_of(job: Mapping[str, Any], addresses: Sequence[str]) -> tuple[Way, ...]:
    """Return one ``Way`` per parallelization of the job, or a single one without a name. Raises ``InvalidInput``."""
    spec = spec_of(job, "job", addresses)
    if spec.parallelizations:
        return tuple(Way(each.name, spec.of_parallelization(each.name), each.compute) for each in spec.parallelizations)
    # A parallelization has computing times, a spec has none.
    (alone,) = spec_of({"parallelizations": [{"name": "alone", **job}]}, "job", addresses).parallelizations
    return (Way("", spec, alone.compute),)


def evaluated(ways: Sequence[Way], size: Size) -> Answer:
    """Return the evaluation on all servers: each parallelization on its best wiring and on one switch of equal cost."""
    (answer,) = answers([Offer("job", size.servers, tuple(ways))], size.interfaces, size.rates, LIMITS)
    return answer


def on_wiring(way: Way, orders: Sequence[Orders], wiring: Wiring, size: Size) -> Runs:
    """Return the faster of two executions of the job on a wiring, which differ in the rings of the all-reduces.

    Either the rings follow ``orders``, or each group has one ring in rank order. ``orders``: rings of the wiring that
    a search has found (``Found.orders``). ``wiring`` may be a different one, without circuits along these rings."""
    rings = traffic_of(way.spec).rings
    as_chosen = in_rings(way.spec, zip(rings, orders, strict=True))
    in_rank_order = in_rings(way.spec, ((each, ()) for each in rings))
    found = [
        Runs(way.name, spec, count, _on_circuits(way, spec, wiring, size))
        for spec, count in ((as_chosen, max(map(len, orders), default=0)), (in_rank_order, 1))
    ]
    return min(found, key=lambda each: float(f"{each.planned_s:.9g}"))


def planned_s(way: Way, runs: JobSpec, wiring: Wiring, size: Size) -> float:
    """Return the modelled seconds of an iteration on circuits with planned routes."""
    return _on_circuits(way, runs, wiring, size)


def on_leaf_spine(way: Way, leaves: int, spines: int, size: Size, limits: PlanLimits = LIMITS) -> tuple[float, float]:
    """Return the seconds of an iteration on a leaf-spine with full bisection: the mean under ECMP, and planned.

    Rings are in rank order."""
    nic_bps = size.rates.other_gbps * GIGABIT
    each = size.servers // leaves
    fabric = leaf_spine(leaves, spines, each, nic_bps, nic_bps * each / spines)
    spec = in_rings(way.spec, ((rings, ()) for rings in traffic_of(way.spec).rings))
    spec = spec.model_copy(update={"endpoints": hosts_for(fabric, spec.endpoints)})
    problem = problem_of(fabric, [announced(spec, fabric)])
    drawn = [_iteration_s(way, spec, problem, routes, nic_bps) for routes in _hashed(problem)]
    made = answered(plan(problem, limits))
    return math.fsum(drawn) / len(drawn), _iteration_s(way, spec, problem, made.routes, nic_bps)


def _hashed(problem: Problem) -> Iterator[Routes]:
    hops = NextHops(problem)
    return (hops.routes(hashed_links(problem, hops, seed)) for seed in range(DRAWS))


def _on_circuits(way: Way, runs: JobSpec, wiring: Wiring, size: Size) -> float:
    fabric = fabric_of(wiring, size.rates.interface_gbps)
    spec = runs.model_copy(update={"endpoints": hosts_for(fabric, runs.endpoints)})
    problem = problem_of(fabric, [announced(spec, fabric)])
    routes = routed(problem, wiring, fabric, LIMITS).routes
    return _iteration_s(way, spec, problem, routes, size.interfaces * size.rates.interface_gbps * GIGABIT)


def _iteration_s(way: Way, spec: JobSpec, problem: Problem, routes: Routes, nic_bps: float) -> float:
    """Return the seconds of an iteration.

    Phases follow each other; each lasts as long as its communication, or its computation if that is longer."""
    ideal_s = ideal_time_s(virtual_links(spec), dict.fromkeys(spec.endpoints, nic_bps))
    slowdown = phase_slowdowns(problem, routes).get(JobId(spec.job_id), {})
    steps = iter(sorted(ideal_s))
    total_s = math.fsum(each.seconds for each in way.compute if each.phase is None)
    sent = {each.phase for each in spec.collectives} | {each.phase for each in spec.transfers}
    for phase in sorted({*sent, *(each.phase for each in way.compute if each.phase is not None)}):
        mine = [next(steps) for _ in range(steps_of(spec, phase))]
        computed_s = math.fsum(each.seconds for each in way.compute if each.phase == phase)
        total_s += max(computed_s, math.fsum(ideal_s[step] * slowdown.get(step, 1.0) for step in mine))
    return total_s


def _payload_gbps(mbps: float) -> float:
    return ideal_goodput_bps(mbps * 1e6) / GIGABIT
