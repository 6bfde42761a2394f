"""Model of a job on a fabric: the seconds of an iteration, and the rings with the shortest time; random wirings. Pure.

In: a job (a mapping with the fields of a job file, without id and addresses), a wiring, and the rates of the emulated
links. The model is that of ``signalbox design wiring`` (docs/wiring.md), with the payload rate of
an emulated link in place of its line rate.

Random wirings, for comparison, are connected, and have d circuits out of and into each server. No two circuits connect
the same servers in the same direction.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from controller.circuits.wiring.circuits import UNREACHED, Wiring, hops_between
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
from controller.planning.efficiency import phase_slowdowns
from controller.planning.problem import PlanLimits, Problem, Routes
from controller.planning.snapshot import ideal_time_s
from mininet_topos.demo.report import ideal_goodput_bps
from offline.scenarios.scenario import GIGABIT, problem_of
from offline.scenarios.workloads import announced
from signalbox.jobs.collectives import virtual_links
from signalbox.jobs.spec import JobId, JobSpec

MB = 1_000_000

Job = Mapping[str, Any]


def recommender() -> Job:
    """Return the recommender of docs/wiring.md, with three parallelizations.

    - ``data``: each server has all parameters.
    - ``hybrid``: the tables are spread over the servers.
    - ``pipeline``: three stages of four servers."""
    everyone = [{"name": "all", "ranks": list(range(12))}]
    stages = [
        {"name": name, "ranks": list(range(first, first + 4))}
        for name, first in (("first", 0), ("second", 4), ("third", 8))
    ]
    chains = [{"name": f"to {8 + n}", "ranks": [n, 4 + n, 8 + n]} for n in range(4)]
    return {
        "parallelizations": [
            {
                "name": "data",
                "groups": everyone,
                "collectives": [sends("all_reduce", ["all"], 2000 * MB)],
                "compute": [{"seconds": 0.1}],
            },
            {
                "name": "hybrid",
                "groups": everyone,
                "collectives": [sends("all_to_all", ["all"], 240 * MB), sends("all_reduce", ["all"], 600 * MB, 1)],
                "compute": [{"seconds": 0.1}],
            },
            {
                "name": "pipeline",
                "groups": [*stages, *chains],
                "collectives": [
                    sends("pipeline_send", [chain["name"] for chain in chains], 250 * MB),
                    sends("all_reduce", [stage["name"] for stage in stages], 670 * MB, 1),
                ],
                "compute": [{"seconds": 0.15}],
            },
        ]
    }


def sends(algorithm: str, groups: Sequence[Any], size: int, phase: int = 0) -> dict[str, Any]:
    """Return a collective in the form of a job file."""
    return {"algorithm": algorithm, "groups": list(groups), "bytes_per_iteration": size, "phase": phase}


def scaled(job: Job, divisor: float) -> Job:
    """Return the job with all bytes divided by ``divisor``, at least one each. Computing times stay."""

    def part(name: str, value: Any) -> Any:
        if name == "bytes_per_iteration":
            return max(1, round(value / divisor))
        if isinstance(value, Mapping):
            return {key: part(key, of) for key, of in value.items()}
        return [part("", each) for each in value] if isinstance(value, list) else value

    return {name: part(name, value) for name, value in job.items()}


LIMITS = PlanLimits(time_limit_s=5.0, ecmp_draws=0)


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a fabric of servers at optical switches. ``mbps``: rate of each of a server's ``interfaces``."""

    servers: int
    interfaces: int
    mbps: float

    @property
    def other_mbps(self) -> float:
        """Rate in Mbit/s of a server's link in a packet-switched fabric that costs as much."""
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

    ``job``: fields of the job without id and addresses, with ``compute`` if it has no parallelizations."""
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

    Either the rings follow ``orders``, or each group has one ring in rank order. ``orders``: rings that a
    search has found for a wiring (``Found.orders``). If ``wiring`` is another one, it may lack circuits along them."""
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


_EXCHANGES = 20
"""Number of attempts per circuit to exchange the destinations of two circuits of one interface."""
_MOST_DRAWN = 1000


def random_wiring(servers: int, interfaces: int, seed: int) -> Wiring:
    """Return a random wiring, the same for the same seed.

    Raises ``ValueError`` when there are not more servers than interfaces, or when no connected wiring was found."""
    if not 1 <= interfaces < servers:
        raise ValueError(f"{servers} servers may have 1 to {servers - 1} interfaces each (given: {interfaces})")
    rng = random.Random(seed)
    for _ in range(_MOST_DRAWN):
        wiring = _drawn(servers, interfaces, rng)
        if not (hops_between(wiring) == UNREACHED).any():
            return wiring
    raise ValueError(f"of {_MOST_DRAWN} random wirings none was connected")


def _drawn(servers: int, interfaces: int, rng: random.Random) -> Wiring:
    """Return a circulant wiring of the servers in random order, changed by random exchanges.

    An exchange swaps the destinations of two circuits of one interface. Each interface therefore remains a permutation
    of the servers."""
    order = rng.sample(range(servers), servers)
    peers = [[0] * servers for _ in range(interfaces)]
    for of, step in zip(peers, rng.sample(range(1, servers), interfaces), strict=True):
        for place, server in enumerate(order):
            of[server] = order[(place + step) % servers]
    to = [{of[server] for of in peers} for server in range(servers)]
    for _ in range(_EXCHANGES * servers * interfaces):
        of = rng.choice(peers)
        a, b = rng.sample(range(servers), 2)
        to_a, to_b = of[a], of[b]
        if to_b == a or to_a == b or to_b in to[a] or to_a in to[b]:
            continue
        of[a], of[b] = to_b, to_a
        to[a] = to[a] - {to_a} | {to_b}
        to[b] = to[b] - {to_b} | {to_a}
    return Wiring(servers, tuple(map(tuple, peers)))
