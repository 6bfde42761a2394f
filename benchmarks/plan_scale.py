"""Benchmark ``plan-scale``: time of a plan for 1,728 to 100,000 flows, against the published greedy in plain Python.

The planner's time is that from a ``Snapshot`` to a checked plan, without ECMP's draws. A snapshot has the flows by job;
candidate paths are not computed yet. The greedy gets the same snapshot, and returns an unchecked path for each flow.
Each case runs in a process of its own.

A line has the CPU times of planner and greedy, their ratio and its limit, and the planner's wall time, slowdown, bound
and peak memory.
"""

import gc
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple, TypeVar

import typer

from benchmarks.measures import report
from benchmarks.plan.workloads import LINK_BPS, SEED, STEP_BYTES, random_flows, with_subflows
from controller.fabric.topology import CandidatePaths, Dpid, Fabric, LinkId
from controller.planning.plan import Plan, answered
from controller.planning.planner import plan
from controller.planning.problem import Flow, FlowId, PlanLimits
from controller.planning.snapshot import Flows, Snapshot, capacities
from offline.scenarios.fabric_options import Placement
from offline.scenarios.fabrics import leaf_spine, spine_links, without, without_random_links
from offline.scenarios.generator import generate, jobs_of, ring_lines
from offline.scenarios.scenario import MAX_PATHS
from offline.scenarios.workloads import Line, Numbering, WorkloadJob

_T = TypeVar("_T")

RESULTS = Path("out/bench/plan_scale.json")

_FLOWS_PER_JOB = 1_000
_MOST_RUNS, _BUDGET_S = 5, 12.0
"""Number of timed runs after the first, at most, and seconds after which no further run begins."""


class Case(NamedTuple):
    name: str
    make: Callable[[], tuple[Fabric, Sequence[WorkloadJob]]]
    """Function that returns the fabric, without failed parts, and the jobs."""
    max_subflows: int = 1
    """Number of subflows that a flow may have."""
    times_greedy: float | None = None
    """Target: CPU time of the plan / CPU time of the greedy, at most."""
    times_limit: float | None = None
    """Target: wall time of the plan / time limit, at most."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Result of a case. ``cpu_ms`` and ``greedy_ms`` are CPU times, ``wall_ms`` is wall time; all are medians."""

    case: str
    flows: int
    jobs: int
    cpu_ms: float
    greedy_ms: float
    ratio: float
    most_ratio: float | None
    wall_ms: float
    most_wall_ms: float | None
    slowdown: float
    bound: float
    solver: str
    certificate: str
    slowdowns_proven: int
    greedy_most: int
    cut_short: bool
    peak_mib: float

    @property
    def met(self) -> bool:
        return self.ratio <= (self.most_ratio or self.ratio) and self.wall_ms <= (self.most_wall_ms or self.wall_ms)


def main(
    only: Annotated[
        str, typer.Option(metavar="TEXT", help="Run cases whose name contains TEXT.", show_default="all")
    ] = "",
    time_limit: Annotated[float, typer.Option(min=0.01, metavar="S", help="Seconds that the solver may take.")] = 2.0,
) -> None:
    """Plan 1,728 to 100,000 flows, and compare times with the published greedy in plain Python."""
    names = [case.name for case in CASES if only in case.name]
    if not names:
        raise typer.BadParameter(f"no case has '{only}' in its name", param_hint="--only")
    lines = []
    for name in names:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            lines.append(process.submit(_measure, name, PlanLimits(time_limit, ecmp_draws=0)).result())
        typer.echo(f"{name}: {lines[-1].cpu_ms:,.1f} ms, {lines[-1].ratio:.2f} x the greedy", err=True)
    data = [{**asdict(line), "met": line.met} for line in lines]
    report(data, RESULTS, {"from snapshot to checked plan": data})


def _measure(name: str, limits: PlanLimits) -> Measured:
    case = next(case for case in CASES if case.name == name)
    fabric, jobs = case.make()
    jobs = with_subflows(jobs, case.max_subflows)
    flows = Flows()({job.id: job for job in jobs}, fabric.hosts)
    empty = Snapshot(1, capacities(fabric.links, fabric.hosts, {}), CandidatePaths(fabric, MAX_PATHS), flows, {})
    began, first = time.perf_counter(), _timed(_planned, empty, limits)
    peak = peak_mib()
    # The runs alternate, so that other load of the machine affects planner and greedy alike.
    plans, greedy = [first], [_timed(published_greedy, empty)]
    if time.perf_counter() - began < 2:
        plans.clear()
        greedy.clear()
    while len(plans) < _MOST_RUNS and (not plans or time.perf_counter() - began < _BUDGET_S):
        plans.append(_timed(_planned, empty, limits))
        greedy.append(_timed(published_greedy, empty))
    answer = first[2]
    taken: defaultdict[LinkId, int] = defaultdict(int)
    for path in greedy[0][2].values():
        for link in path:
            taken[link] += 1
    cpu, greedy_cpu = median(cpu for cpu, _, _ in plans), median(cpu for cpu, _, _ in greedy)
    return Measured(
        case=case.name,
        flows=sum(map(len, flows.values())),
        jobs=len(jobs),
        cpu_ms=1000 * cpu,
        greedy_ms=1000 * greedy_cpu,
        ratio=median(of / beside for (of, _, _), (beside, _, _) in zip(plans, greedy, strict=True)),
        most_ratio=case.times_greedy,
        wall_ms=1000 * median(wall for _, wall, _ in plans),
        most_wall_ms=1000 * limits.time_limit_s * case.times_limit if case.times_limit else None,
        slowdown=answer.max_slowdown,
        bound=answer.bound,
        solver=answer.solver,
        certificate=answer.certificate,
        slowdowns_proven=answer.slowdowns_proven,
        greedy_most=max(taken.values()),
        cut_short=answer.cut_short,
        peak_mib=peak,
    )


def peak_mib() -> float:
    """Return the peak memory of this process in MiB. At its start, ``ru_maxrss`` is that of the parent process."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kib) / 1024


def _timed(of: Callable[..., _T], snapshot: Snapshot, *others: object) -> tuple[float, float, _T]:
    """Return the CPU seconds and the wall seconds of a call of ``of``, and its result.

    ``of`` is called with a copy of ``snapshot`` that has no computed candidate paths, and with ``others``."""
    fresh = replace(snapshot, paths=snapshot.paths.without(()))
    gc.collect()
    gc.freeze()
    wall, cpu = time.perf_counter(), time.process_time()
    result = of(fresh, *others)
    return time.process_time() - cpu, time.perf_counter() - wall, result


def _planned(snapshot: Snapshot, limits: PlanLimits) -> Plan:
    return answered(plan(snapshot.problem, limits))


def published_greedy(snapshot: Snapshot) -> Mapping[FlowId, tuple[LinkId, ...]]:
    """Return the routes of the greedy in arXiv 2503.05324, on a leaf-spine.

    It routes the flows leaf by leaf: the flows out of a leaf are one set, the flows into it another, and the largest
    set comes first. Each flow takes the spine for which the fuller of its two links has the fewest flows."""
    paths = snapshot.paths
    up = {leaf: {paths.far_end[link]: link for link in paths.links_from(leaf)} for leaf in _leaves(snapshot)}
    down = {leaf: {link.dpid: link for link in paths.links_into(leaf)} for leaf in up}
    flows_up = {leaf: dict.fromkeys(spines, 0) for leaf, spines in up.items()}
    flows_down = {leaf: dict.fromkeys(spines, 0) for leaf, spines in down.items()}
    sets: defaultdict[tuple[bool, Dpid], list[Flow]] = defaultdict(list)
    for flows in snapshot.flows.values():
        for flow in flows:
            sets[False, flow.src_leaf].append(flow)
            sets[True, flow.dst_leaf].append(flow)
    routes: dict[FlowId, tuple[LinkId, ...]] = {}
    for those in sorted(sets.values(), key=len, reverse=True):
        for flow in those:
            src, dst = flow.src_leaf, flow.dst_leaf
            if flow.id in routes:
                continue
            if src == dst:
                routes[flow.id] = ()
                continue
            out, into = flows_up[src], flows_down[dst]
            spine = min(out, key=lambda spine: max(out[spine], into.get(spine, math.inf)))
            out[spine] += 1
            into[spine] += 1
            routes[flow.id] = up[src][spine], down[dst][spine]
    return routes


def _leaves(snapshot: Snapshot) -> set[Dpid]:
    return {leaf for flows in snapshot.flows.values() for flow in flows for leaf in (flow.src_leaf, flow.dst_leaf)}


# ---- the cases


def _rings(spines: int = 0, cables: int = 0) -> tuple[Fabric, Sequence[WorkloadJob]]:
    """Return five jobs in rings of four, with 1,728 flows, on a fabric like that of the published workloads.

    ``spines``, ``cables``: how many of each have failed."""
    fabric = leaf_spine(64, 32, 32, LINK_BPS, LINK_BPS)
    jobs = jobs_of(generate(fabric, 5, 4, Placement.WHOLE_LEAF, SEED), fabric)
    broken = without(fabric, spine_links(fabric, range(32 - spines, 32))) if spines else fabric
    return without_random_links(broken, cables, SEED) if cables else broken, jobs


def _random(flows: int, hosts_per_leaf: int = 196, cables: int = 0) -> tuple[Fabric, Sequence[WorkloadJob]]:
    """Return rings over random hosts of a leaf-spine with 512 leaves and 128 spines, one job per 1,000 flows."""
    fabric = leaf_spine(512, 128, hosts_per_leaf, LINK_BPS, LINK_BPS)
    jobs = jobs_of(random_flows(fabric, flows, max(1, flows // _FLOWS_PER_JOB), SEED), fabric)
    return without_random_links(fabric, cables, SEED) if cables else fabric, jobs


def _many_jobs() -> tuple[Fabric, Sequence[WorkloadJob]]:
    """Return 2,000 rings over 36 random hosts each, without a common pair of hosts, on 64 leaves with 64 hosts."""
    fabric = leaf_spine(64, 32, 64, LINK_BPS, LINK_BPS)
    numbering = Numbering(fabric)
    rng = random.Random(SEED)
    hosts = range(numbering.first_host, numbering.first_host + len(numbering.ips))
    used: set[tuple[int, int]] = set()
    workload: dict[str, Sequence[Line]] = {}
    while len(workload) < 2_000:
        ring = rng.sample(hosts, 36)
        pairs = set(zip(ring, [*ring[1:], ring[0]], strict=True))
        if used.isdisjoint(pairs):
            used |= pairs
            workload[f"job_{len(workload)}-ring"] = ring_lines(ring, 0, 0, STEP_BYTES, 0, numbering)
    return fabric, jobs_of(workload, fabric)


CASES = (
    Case("1,728 whole, intact", _rings, times_greedy=1.5),
    Case("1,728 whole, a spine failed", lambda: _rings(spines=1), times_greedy=1.5),
    Case("1,728 split, a spine failed", lambda: _rings(spines=1), max_subflows=2, times_greedy=2.5),
    Case("1,728 split, 5 cables failed", lambda: _rings(cables=5), max_subflows=2, times_greedy=12),
    Case("10,000 whole", lambda: _random(10_000), times_greedy=1.2),
    Case("100,000 whole", lambda: _random(100_000), times_greedy=1),
    Case("65,536 whole, 20 cables failed", lambda: _random(65_536, 128, 20), times_limit=1.2),
    Case("65,536 split, 20 cables failed", lambda: _random(65_536, 128, 20), max_subflows=2, times_limit=1.2),
    Case("2,000 jobs whole", _many_jobs, times_limit=1.2),
    Case("2,000 jobs split", _many_jobs, max_subflows=2, times_limit=1.2),
)
