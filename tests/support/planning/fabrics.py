"""Fabrics (some of circuits), jobs and problems for planner tests, and the optimum by brute force."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product, repeat

from controller.fabric import topology
from controller.fabric.topology import CandidatePaths, Dpid, Fabric, Host, Link, LinkId, Port, PortNo, PortRef
from controller.planning.efficiency import SLOWDOWN_TOLERANCE, job_slowdowns
from controller.planning.problem import Flow, FlowId, Problem, Route, Routes, whole
from offline.scenarios import fabrics
from offline.scenarios.topologies import OFFLINE, Switch, wire
from signalbox.jobs.spec import JobId

RATE = 5e6


def fabric_of(cables: Iterable[tuple[int, int, float]]) -> Fabric:
    """Return a fabric of cables (switch, switch, capacity in bit/s).

    Both directions are alike; the ports of a switch count from 1 in the order of the cables."""
    cables = list(cables)
    dpids = list(dict.fromkeys(end for a, b, _ in cables for end in (a, b)))
    switches = [Switch(f"s{dpid}", dpid) for dpid in dpids]
    wired = wire(switches, [(dpids.index(a), dpids.index(b), bps) for a, b, bps in cables], (), OFFLINE)
    return fabrics.fabric_of(wired)


def leaf_spine(leaves: int, spines: int, capacity: float = RATE, without: Iterable[tuple[int, int]] = ()) -> Fabric:
    """Return a leaf-spine fabric: leaves are switches 1, 2, ...; spines 101, 102, ....

    ``without``: (leaf, spine) cables that are cut."""
    cut = {(leaf, 100 + spine) for leaf, spine in without}
    cables = product(range(1, leaves + 1), range(101, 101 + spines))
    return fabric_of((leaf, spine, capacity) for leaf, spine in cables if (leaf, spine) not in cut)


def three_tiers(pods: int, leaves: int, cores: Sequence[int], capacity: float = RATE) -> Fabric:
    """Return a fabric of three tiers.

    ``leaves``: number per pod; ``cores``: number per plane. Leaves are switches 1, 2, ... pod by pod, aggregation
    switches 101, ... pod by pod, cores 201, ... plane by plane."""
    return fabric_of((a, b, capacity) for a, b in three_tier_cables(pods, leaves, cores))


def three_tier_cables(pods: int, leaves: int, cores: Sequence[int]) -> list[tuple[int, int]]:
    planes = len(cores)
    to_planes = [
        (1 + pod * leaves + leaf, 101 + pod * planes + plane)
        for pod, leaf, plane in product(range(pods), range(leaves), range(planes))
    ]
    to_cores = [
        (101 + pod * planes + plane, 201 + sum(cores[:plane]) + core)
        for pod in range(pods)
        for plane, count in enumerate(cores)
        for core in range(count)
    ]
    return to_planes + to_cores


def flow(job: str, src: tuple[int, int], dst: tuple[int, int], demand: float | Sequence[tuple[int, float]]) -> Flow:
    """Return a flow between two hosts, each given as (leaf, host on it).

    ``demand``: bit/s of a single phase, or (phase, bit/s) pairs."""
    demand_bps = ((0, demand),) if isinstance(demand, int | float) else tuple(demand)
    return Flow(
        id=FlowId(address(*src), address(*dst)),
        job_id=JobId(job),
        src_leaf=Dpid(src[0]),
        dst_leaf=Dpid(dst[0]),
        nic_links=(
            LinkId(Dpid(src[0]), PortNo(1000 + src[1]), "in"),
            LinkId(Dpid(dst[0]), PortNo(1000 + dst[1]), "out"),
        ),
        demand_bps=demand_bps,
    )


def address(leaf: int, host: int) -> str:
    return f"10.0.{leaf}.{host}"


def ring(job: str, hosts: Sequence[tuple[int, int]], demand: float = RATE) -> list[Flow]:
    return [flow(job, src, dst, demand) for src, dst in zip(hosts, [*hosts[1:], hosts[0]], strict=True)]


def across(jobs: str, demand: float | Sequence[tuple[int, float]] = RATE, src: int = 1, dst: int = 2) -> list[Flow]:
    """Return a flow per letter of ``jobs``, its job. Flow n leads from host n of leaf ``src`` to host n of ``dst``."""
    return [flow(job, (src, host), (dst, host), demand) for host, job in enumerate(jobs, 1)]


def in_equal_subflows(flows: Iterable[Flow], count: int) -> list[Flow]:
    return [
        replace(of, id=of.id._replace(subflow=number), demand_bps=((phase, bps / count),))
        for of in flows
        for (phase, bps), *_ in (of.demand_bps,)
        for number in range(count)
    ]


def two_leaves(spines: int, jobs: str, subflows: int = 1) -> Problem:
    """Return the problem of the flows of ``across`` on two leaves; each may have ``subflows`` subflows."""
    return problem_of(leaf_spine(2, spines), [replace(f, max_subflows=subflows) for f in across(jobs)])


def demo_flows(leaves: Sequence[int] = (1, 2, 3, 4)) -> list[Flow]:
    """Return the flows of three rings, one host of each ring on every leaf."""
    return [f for host in (1, 2, 3) for f in ring(f"job{host}", [(leaf, host) for leaf in leaves])]


def problem_of(
    fabric: Fabric,
    flows: Iterable[Flow],
    nic_bps: float = RATE,
    background: Mapping[LinkId, float] | None = None,
    max_paths: int = 64,
) -> Problem:
    """Return the problem of these flows; ``background``: bit/s taken off links."""
    flows = tuple(flows)
    capacity = {link.id: link.capacity_bps - (background or {}).get(link.id, 0.0) for link in fabric.links.values()}
    capacity |= {nic: nic_bps for f in flows for nic in f.nic_links}
    return Problem(fabric.generation, capacity, CandidatePaths(fabric, max_paths), flows)


def pinned(problem: Problem, routes: Routes) -> Problem:
    return replace(problem, flows=tuple(replace(f, current=routes.get(f.id)) for f in problem.flows))


def on_paths(problem: Problem, numbers: Iterable[int] | None = None) -> Problem:
    """Return the problem with flow n running over its candidate path number ``numbers[n]``, by default the first."""
    paths = zip(problem.flows, numbers or repeat(0), strict=False)
    return pinned(problem, {f.id: whole(problem.candidates(f)[number]) for f, number in paths})


def link_between(fabric: Fabric, src: int, dst: int) -> LinkId:
    return next(link.id for link in fabric.links.values() if (link.src.dpid, link.dst.dpid) == (src, dst))


def better(a: Sequence[float], b: Sequence[float]) -> bool:
    """Return whether the slowdowns ``a``, sorted from the worst, are lexicographically smaller than ``b``."""
    for x, y in zip(a, b, strict=True):
        if abs(x - y) > 2 * SLOWDOWN_TOLERANCE * max(x, y):
            return x < y
    return False


def every_routing(problem: Problem) -> Iterable[dict[FlowId, Route]]:
    flows = [f for f in problem.flows if problem.candidates(f)]
    for choice in product(*(problem.candidates(f) for f in flows)):
        yield {f.id: whole(path) for f, path in zip(flows, choice, strict=True)}


def moves(problem: Problem, routes: Routes) -> int:
    return sum(problem.is_in_force(f) and routes[f.id] != f.current for f in problem.flows if f.id in routes)


def brute_force(problem: Problem, max_moves: int | None = None) -> tuple[tuple[float, ...], int]:
    """Return the best sorted slowdowns of any routing, and the fewest moves that reach them."""
    best: tuple[tuple[float, ...], int] | None = None
    for routes in every_routing(problem):
        cost = moves(problem, routes)
        if max_moves is not None and cost > max_moves:
            continue
        slowdowns = tuple(sorted(job_slowdowns(problem, routes).values(), reverse=True))
        equal = best is not None and not better(slowdowns, best[0]) and not better(best[0], slowdowns)
        if best is None or better(slowdowns, best[0]) or (equal and cost < best[1]):
            best = (slowdowns, cost)
    assert best is not None
    return best


def rings(servers: int, steps: Iterable[int], without: Iterable[tuple[int, int]] = ()) -> Fabric:
    """Return a circuit fabric in which each server sends to other servers.

    Each server has its host at port 1. Interface k of server n, port 1 + k, sends to server n + ``steps[k - 1]``,
    modulo the number of servers. ``without``: (server, port) of interfaces that do not send."""
    names = {Dpid(n): f"server{n}" for n in range(1, servers + 1)}
    links, steps = {}, list(steps)
    ports = [PortNo(n) for n in range(1, 2 + len(steps))]
    for number, step in enumerate(steps, start=2):
        for n in names:
            src, dst = PortRef(n, PortNo(number)), PortRef(Dpid((n + step - 1) % servers + 1), PortNo(number))
            if (n, number) not in {*without}:
                links[LinkId(*src)] = Link(src, dst, RATE, one_way=True)
    switches = {
        dpid: topology.Switch(
            dpid, name, {n: Port(n, f"{name}-eth{n}", "02:00:00:00:00:01", True, RATE) for n in ports}
        )
        for dpid, name in names.items()
    }
    hosts = {f"10.0.{n}.1": Host(f"10.0.{n}.1", None, PortRef(n, PortNo(1)), RATE) for n in names}
    return Fabric(1, switches, links, hosts)
