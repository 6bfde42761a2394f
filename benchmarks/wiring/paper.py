"""Iteration times on wirings and on switches, in our simulator, for the settings in TopoOpt's publication.

The settings are from Wang et al., NSDI 2023 (arXiv 2202.00433), section 5. The jobs are like the publication's DLRM, as
far as its traffic is published. An all-reduce spans all servers, and the bytes of an all-to-all grow with the batch: at
a batch of 2,048 they are 80 % of the all-reduce's. Computing is left out, so times are communication times.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from controller.circuits.wiring.circuits import Wiring
from controller.circuits.wiring.evaluation import COST_RATIO, Evaluated, Rates, Way, evaluated, fabric_of
from controller.circuits.wiring.finder import published
from controller.fabric.topology import Fabric
from controller.planning.plan import NoPlan, Plan
from controller.planning.planner import repair
from controller.planning.problem import PlanLimits
from offline.scenarios.fabrics import fat_tree, leaf_spine
from offline.scenarios.scenario import GIGABIT, problem_of
from offline.scenarios.workloads import announced
from offline.schemes import SCHEMES
from offline.simulator.options import Options, Replan
from offline.simulator.training import Stage, simulate
from signalbox.jobs.spec import JobSpec

SERVERS, GBPS = 128, 25.0
BATCHES = (64, 256, 1024, 2048)
RATIO_AT_2048 = 0.8
PUBLISHED_GAIN = 2.7
"""Published factor by which the wiring is faster than a fat-tree of similar cost: 128 servers, four interfaces."""
M = 100_000_000
"""Bytes of the all-reduce."""
SHARED_SERVERS, SHARED_INTERFACES, SHARED_GBPS, SHARED_JOBS, SHARED_PODS = 432, 8, 100.0, 27, 12
EXCHANGING = 11
"""Number of the shared cluster's jobs that have an all-to-all: 40 %, the published share of DLRM jobs."""
SHARED_RATIO = 0.1
LIMITS = PlanLimits(ecmp_draws=0, time_limit_s=2.0)
ONCE = Options(iterations=1, replan=Replan.NEVER)

Row = dict[str, Any]


def dlrm(servers: int, ratio: float, job_id: str = "dlrm") -> JobSpec:
    """Return a job like DLRM. ``ratio``: bytes that pairs send / bytes that the ring sends."""
    group = {"name": "all", "ranks": range(servers)}
    collectives = [{"algorithm": "all_reduce", "groups": ["all"], "bytes_per_iteration": M, "phase": 1}]
    if ratio:
        size = round(2 * ratio * M)
        collectives.append({"algorithm": "all_to_all", "groups": ["all"], "bytes_per_iteration": size, "phase": 0})
    endpoints = [f"10.0.{1 + n >> 8}.{1 + n & 255}" for n in range(servers)]
    return JobSpec.parse({"job_id": job_id, "endpoints": endpoints, "groups": [group], "collectives": collectives})


def dedicated(interfaces: int) -> Iterator[Row]:
    """Yield a row for each batch size of one job on all servers, each with d interfaces of rate B.

    - ``direct_s``: time on our wiring. ``switch_s``: time on one switch of the same cost, with ``d B / 3.2`` per
      server.
    - ``time_ratio``: ``direct_s`` / ``switch_s``; below 1 the wiring is faster.
    - ``same_rate_s``: time on one switch with ``d B`` per server.
    - ``published_…``: values for the publication's wiring: near-geometric rings and matchings."""
    rates = Rates(GBPS, interfaces * GBPS / COST_RATIO)
    for batch in BATCHES:
        ratio = RATIO_AT_2048 * batch / 2048
        spec = dlrm(SERVERS, ratio)
        best = evaluated(Way("hybrid", spec, ()), interfaces, rates, LIMITS)
        direct_s = _mean_s(fabric_of(best.found.wiring, GBPS), [best.spec], best.plan)
        switch_s = _on_one_switch(spec, rates.other_gbps)
        even = best.break_even
        theirs = published(best.found.traffic, interfaces, GBPS * GIGABIT)
        yield {
            "interfaces": interfaces,
            "batch": batch,
            "ratio": ratio,
            "hops": even.hops,
            "tax": best.found.bandwidth_tax,
            "published_division": len(theirs.orders[0]),
            "published_hops": theirs.pair_hops,
            "published_tax": theirs.bandwidth_tax,
            "bound_s": best.bound_s,
            "direct_s": direct_s,
            "same_rate_s": _on_one_switch(spec, interfaces * GBPS),
            "switch_s": switch_s,
            "time_ratio": direct_s / switch_s,
            "break_even": even.time_ratio,
            "most_ratio": even.most_ratio,
            "most_ratio_2.7": replace(even, other_bps=even.direct_bps / PUBLISHED_GAIN).most_ratio,
        }


def shared() -> Iterator[Row]:
    """Yield the mean time of 27 jobs at the same time, each on 16 servers: wired, and on two fat-trees.

    On the fat-trees each job has random servers."""
    each = SHARED_SERVERS // SHARED_JOBS
    specs = [dlrm(each, SHARED_RATIO if n < EXCHANGING else 0.0, f"job{n:02}") for n in range(SHARED_JOBS)]
    direct_gbps = SHARED_INTERFACES * SHARED_GBPS
    yield {"fabric": "wired", "scheme": "coin change", "mean_s": _shards(specs, each), "nic_gbps": direct_gbps}
    for name, nic, uplink in (
        ("fat-tree of the same cost", direct_gbps / COST_RATIO, 1.0),
        ("fat-tree, 2:1", direct_gbps, 0.5),
    ):
        fabric = fat_tree(SHARED_PODS, nic * GIGABIT, uplink * nic * GIGABIT)
        placed = _anywhere(specs, fabric)
        for scheme in ("ecmp", "planned"):
            problem = problem_of(fabric, [announced(spec, fabric) for spec in placed])
            mean_s = _mean_s(fabric, placed, SCHEMES[scheme](problem, LIMITS))
            yield {"fabric": name, "scheme": scheme, "mean_s": mean_s, "nic_gbps": nic}


def _shards(specs: Sequence[JobSpec], each: int) -> float:
    """Return the mean time of the jobs' iterations on circuits, in seconds. ``each``: servers of a job."""
    wiring = Wiring(SHARED_SERVERS, ((None,) * SHARED_SERVERS,) * SHARED_INTERFACES)
    rates = Rates(SHARED_GBPS, SHARED_GBPS)
    of_ratio: dict[int, Evaluated] = {}
    for number, spec in enumerate(specs):
        kind = len(spec.collectives)
        if kind not in of_ratio:
            of_ratio[kind] = evaluated(Way("hybrid", spec, ()), SHARED_INTERFACES, rates, LIMITS)
        at = range(number * each, (number + 1) * each)
        wiring = wiring.beside(of_ratio[kind].found.wiring.placed(at, SHARED_SERVERS))
    fabric = fabric_of(wiring, SHARED_GBPS)
    hosts = list(fabric.hosts)
    placed = [
        of_ratio[len(spec.collectives)].spec.model_copy(
            update={"job_id": spec.job_id, "endpoints": tuple(hosts[n * each : (n + 1) * each])}
        )
        for n, spec in enumerate(specs)
    ]
    problem = problem_of(fabric, [announced(spec, fabric) for spec in placed])
    return _mean_s(fabric, placed, SCHEMES["planned"](problem, LIMITS))


def _anywhere(specs: Sequence[JobSpec], fabric: Fabric) -> list[JobSpec]:
    hosts = list(fabric.hosts)
    random.Random(1).shuffle(hosts)
    each = len(specs[0].endpoints)
    return [
        spec.model_copy(update={"endpoints": tuple(hosts[n * each : (n + 1) * each])}) for n, spec in enumerate(specs)
    ]


def _on_one_switch(spec: JobSpec, gbps: float) -> float:
    """Return the time of one job on one switch, in seconds; there is nothing to route."""
    fabric = leaf_spine(1, 1, len(spec.endpoints), gbps * GIGABIT, gbps * GIGABIT)
    placed = spec.model_copy(update={"endpoints": tuple(fabric.hosts)})
    return _mean_s(fabric, [placed], repair(problem_of(fabric, [announced(placed, fabric)])))


def _mean_s(fabric: Fabric, specs: Sequence[JobSpec], plan: Plan | NoPlan) -> float:
    """Return the mean communication time of the jobs' iterations, in seconds."""
    jobs = [announced(spec, fabric) for spec in specs]
    outcome = simulate([Stage(0.0, problem_of(fabric, jobs))], jobs, lambda _: plan, ONCE)
    times = [iteration.all_reduce_s for job in outcome.jobs for iteration in job.iterations]
    return sum(times) / len(times)
