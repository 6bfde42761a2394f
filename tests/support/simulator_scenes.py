"""Small fabrics, jobs of rings and simple schemes for simulator tests."""

from collections.abc import Callable, Sequence

from controller.fabric.topology import Fabric, LinkId, Path
from controller.planning.efficiency import all_slowdowns
from controller.planning.plan import Plan, PlanTimes
from controller.planning.problem import Flow, FlowId, Problem, Route, Routes, whole
from offline.scenarios.fabrics import leaf_spine
from offline.scenarios.scenario import problem_of
from offline.scenarios.workloads import Line, Numbering, WorkloadJob, to_job
from offline.simulator.training import Stage

LINK_BPS = 100e9
"""Rate in bit/s of every NIC, and of the cables by default."""
STEP_BYTES = 1_250_000_000
"""Bytes that take 0.1 s on an idle link."""
STEP_S = 0.1

Host = tuple[int, int]
"""Number of the leaf and number of the host on the leaf, both from 0."""


def fabric_of(leaves: int, spines: int, hosts: int = 2, uplink: float = 1.0) -> Fabric:
    """Return a leaf-spine fabric; ``uplink``: rate of the cables, as a multiple of the rate of a NIC."""
    return leaf_spine(leaves, spines, hosts, LINK_BPS, uplink * LINK_BPS)


def job(
    fabric: Fabric,
    name: str,
    rings: Sequence[Sequence[Host]],
    start_s: float = 0.0,
    compute_s: float = 0.0,
    step_bytes: int = STEP_BYTES,
) -> WorkloadJob:
    """Return a job; ``rings`` are hosts in ring order.

    A step takes 0.1 s on idle links unless ``step_bytes`` is given."""
    numbering = Numbering(fabric)
    leaves = sorted(set(numbering.switch_of))
    first = {leaf: numbering.first_host + numbering.switch_of.index(leaf) for leaf in leaves}
    times = (round(start_s * 1e9), step_bytes, round(compute_s * 1e9))
    lines = [
        Line(first[a[0]] + a[1], first[b[0]] + b[1], a[0], b[0], *times, number)
        for number, ring in enumerate(rings)
        for a, b in zip(ring, [*ring[1:], ring[0]], strict=True)
    ]
    return to_job(name, lines, numbering, max_subflows=1)


def stage(fabric: Fabric, jobs: Sequence[WorkloadJob], from_s: float = 0.0) -> Stage:
    return Stage(from_s, problem_of(fabric, jobs))


def plan_of(problem: Problem, routes: Routes) -> Plan:
    slowdowns, own, _ = all_slowdowns(problem, routes)
    return Plan(
        generation=problem.generation, routes=routes, unrouted=(), job_slowdown=slowdowns, own_slowdown=own, bound=1.0,
        fluid_bound=1.0, integer_bound=1.0, certificate="heuristic", slowdowns_proven=0, moves=0, solver="test",
        ecmp=None, times=PlanTimes(0.0, 0.0, 0.0),
    )  # fmt: skip


def every_flow(route: Callable[[Problem, Flow], Route]) -> Callable[[Problem], Plan]:
    return lambda problem: plan_of(problem, {flow.id: route(problem, flow) for flow in problem.flows})


def over(spine: int) -> Callable[[Problem], Plan]:
    """Return the scheme that routes every flow whole over one candidate.

    ``spine``: number of the candidate; the last one is taken when there are fewer."""
    return every_flow(lambda problem, flow: whole(_candidate(problem, flow, spine)))


def _candidate(problem: Problem, flow: Flow, number: int) -> Path:
    candidates = problem.candidates(flow)
    return candidates[min(number, len(candidates) - 1)]


def greedy(problem: Problem) -> Plan:
    """Route each flow whole over the candidate whose fullest link has the fewest flows."""
    flows_on: dict[LinkId, int] = {}
    routes: dict[FlowId, Route] = {}
    for flow in problem.flows:
        path = min(problem.candidates(flow), key=lambda path: max((flows_on.get(link, 0) for link in path), default=0))
        flows_on |= {link: flows_on.get(link, 0) + 1 for link in path}
        routes[flow.id] = whole(path)
    return plan_of(problem, routes)
