"""Effects of failures: slowdowns under hashing, after the repair and after a new plan, and bounds for every routing.

In: ``AnalyseFailures``, for each single failure, or for the failure of all named parts at once. Out:
``FailureAnalysis``, worst case first.

Two switches at which no flow begins or ends are *interchangeable* when they have the same cables, with the same
capacities, to the same neighbours. Failures that differ only by swaps of such switches are one *case*, with the same
bounds, distribution under hashing, and possible routings. Only the number of running routes over the failed links may
differ; the case is computed for the failure with the most such routes.

The cheap steps come first: the bounds of all cases in closed form, then hashing and the repair, then a plan where the
repair misses the bound. A plan can only improve on the repair. So when only the N worst cases are wanted, a case needs
no plan if its repair is already better than N finished cases.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from controller.fabric.topology import Dpid, Fabric, LinkId, PortRef
from controller.planning.analysis.messages import (
    AnalyseFailures,
    Case,
    Failure,
    FailureAnalysis,
    Network,
    Outcome,
    Present,
)
from controller.planning.answers import outlook
from controller.planning.bounds import slowdown_bounds
from controller.planning.efficiency import SLOWDOWN_TOLERANCE, ecmp_slowdown
from controller.planning.next_hops import NextHops
from controller.planning.plan import answered
from controller.planning.planner import plan, repair
from controller.planning.problem import FlowId, Problem
from signalbox.words import FailureKind

Progress = Callable[[str, int, int], None]
"""Function that is called with the stage, the number of finished cases, and the number of all cases."""


def analyse_failures(request: AnalyseFailures, progress: Progress = lambda _stage, _done, _of: None) -> FailureAnalysis:
    """Analyse failures under the routes in force; if no flow is pinned, under the routes of a new plan.

    Raises ``SignalboxError`` when the planner has no answer for a case."""
    network = request.network
    problem = network.problem
    crossing = [flow for flow in problem.flows if flow.src_leaf != flow.dst_leaf and problem.reachable(flow)]
    pinned = not crossing or any(map(problem.is_in_force, crossing))
    if not pinned:
        planned = answered(plan(problem, replace(network.limits, ecmp_draws=0)))
        network = replace(network, found=problem.with_routes(planned.routes))
    parts = request.parts
    failures = (
        single_failures(network.fabric, request.kinds, network.intact)
        if parts is None
        else (Failure(FailureKind.PARTS, parts.name, parts.links.intersection(network.fabric.links)),)
    )
    felt, unfelt = cases(network.problem, network.fabric, failures)
    ends_at = time.monotonic() + request.within_s
    bounded = _outcomes_with_bounds(network, felt, progress)
    repaired = _with_repairs(network, bounded, ends_at, progress)
    worst = _with_plans(network, repaired, request.top, ends_at, progress)
    outcomes = [*worst, *bounded[len(repaired) :]][: request.top]
    return FailureAnalysis(pinned, _present(network), tuple(outcomes), felt, unfelt)


def _outcomes_with_bounds(network: Network, felt: Sequence[Case], progress: Progress) -> list[Outcome]:
    problem = network.problem
    pinned_to = _pinned_to(problem)
    outcomes = []
    for done, case in enumerate(felt):
        progress("bounds", done, len(felt))
        hit = {f: set[FlowId]().union(*(pinned_to.get(link, ()) for link in f.links)) for f in case.failures}
        example = max(case.failures, key=lambda failure: len(hit[failure]))
        after = failed(problem, example)
        lost = {f.id.joined: f for f in problem.flows if problem.reachable(f) and not after.reachable(f)}
        rerouted = [len(flows - lost.keys()) for flows in hit.values()]
        bounds = slowdown_bounds(after)
        outcomes.append(
            Outcome(
                case=case,
                example=example,
                lost=tuple(map(network.names.ends, lost.values())),
                rerouted=(min(rerouted), max(rerouted)),
                basis="bound",
                bound=bounds.worst,
                fluid_bound=bounds.fluid,
                integer_bound=bounds.integer,
            )
        )
    return sorted(outcomes, key=lambda outcome: outcome.severity, reverse=True)


def _with_repairs(network: Network, bounded: Sequence[Outcome], ends_at: float, progress: Progress) -> list[Outcome]:
    """Return the outcomes with slowdowns under hashing and after the repair, in order, until the time ``ends_at``."""
    limits = network.limits
    outcomes: list[Outcome] = []
    for outcome in bounded:
        if time.monotonic() > ends_at:
            break
        progress("hashing and repair", len(outcomes), len(bounded))
        after = failed(network.problem, outcome.example)
        slowdown = answered(repair(after), f" without {outcome.example.name}").max_slowdown
        ecmp = ecmp_slowdown(after, limits.ecmp_draws, limits.seed)
        outcomes.append(replace(outcome, basis="repair", ecmp=ecmp, repaired_slowdown=slowdown, slowdown=slowdown))
    return outcomes


def _with_plans(
    network: Network, repaired: Sequence[Outcome], top: int | None, ends_at: float, progress: Progress
) -> list[Outcome]:
    """Return at least the ``top`` worst outcomes, worst first, with a plan where the repair misses the bound.

    Outcomes for which there is no time get no plan. ``top``: None for all outcomes."""
    waiting = sorted(repaired, key=lambda outcome: outcome.severity)
    done: list[Outcome] = []
    while waiting:
        if top is not None and len(done) >= top:
            done.sort(key=lambda outcome: outcome.severity, reverse=True)
            if done[top - 1].severity >= waiting[-1].severity:
                break
        progress("planning", len(done), len(repaired))
        outcome = waiting.pop()
        late = time.monotonic() > ends_at
        done.append(outcome if outcome.proven or late else _replanned(network, outcome))
    return sorted(done, key=lambda outcome: outcome.severity, reverse=True)


def _replanned(network: Network, outcome: Outcome) -> Outcome:
    after = failed(network.problem, outcome.example)
    limits = replace(network.limits, ecmp_draws=0)
    answer, first, cycles = outlook(after, limits, f" without {outcome.example.name}")
    known = replace(
        outcome,
        basis="plan",
        bound=max(outcome.bound, answer.bound),
        fluid_bound=max(outcome.fluid_bound, answer.fluid_bound),
        integer_bound=max(outcome.integer_bound, answer.integer_bound),
    )
    slowdown = answer.max_slowdown
    if outcome.slowdown is not None and slowdown >= outcome.slowdown * (1 - SLOWDOWN_TOLERANCE):
        return known
    return replace(known, slowdown=slowdown, moved=answer.moves, first_slowdown=first.max_slowdown, cycles=cycles)


def _present(network: Network) -> Present:
    problem, limits = network.problem, network.limits
    answer = answered(repair(problem))
    ecmp = ecmp_slowdown(problem, limits.ecmp_draws, limits.seed)
    unrouted = {flow.id.joined: network.names.ends(flow) for flow in problem.flows if not problem.reachable(flow)}
    bounds = answer
    if answer.max_slowdown > answer.bound * (1 + SLOWDOWN_TOLERANCE):
        bounds = answered(plan(problem, replace(limits, ecmp_draws=0)))
    return Present(
        answer.max_slowdown, bounds.bound, bounds.fluid_bound, bounds.integer_bound, ecmp, tuple(unrouted.values())
    )


def _pinned_to(problem: Problem) -> Mapping[LinkId, set[FlowId]]:
    flows: defaultdict[LinkId, set[FlowId]] = defaultdict(set)
    for flow in problem.flows:
        for subflow in flow.current or ():
            for link in subflow.path:
                flows[link].add(flow.id.joined)
    return flows


# ---- possible failures, and cases of equal failures


def one_way_ports(fabric: Fabric) -> Iterator[tuple[str, frozenset[LinkId]]]:
    """Yield the name of each port with one-way links, in order, and the links out of it and into it."""
    at: defaultdict[PortRef, set[LinkId]] = defaultdict(set)
    for link in fabric.links.values():
        if link.one_way:
            at[link.src].add(link.id)
            at[link.dst].add(link.id)
    for end, links in sorted(at.items()):
        yield f"{fabric.name(end.dpid)}:{end.port}", frozenset(links)


def single_failures(fabric: Fabric, kinds: Collection[FailureKind], intact: Fabric) -> tuple[Failure, ...]:
    """Return the possible failures of working parts of ``fabric``.

    The parts are switches without hosts, cables, bundles of parallel cables, and ports with one-way links, which count
    as cables. ``kinds``: kinds of failures to return. ``intact``: fabric without failures. A parallel cable is named
    with its number in ``intact``, which does not change when another cable fails."""
    with_hosts = {host.at.dpid for host in intact.hosts.values()}
    at: defaultdict[Dpid, set[LinkId]] = defaultdict(set)
    for link in fabric.links.values():
        at[link.src.dpid].add(link.id)
        at[link.dst.dpid].add(link.id)
    found = [
        Failure(FailureKind.SPINE, fabric.name(dpid), frozenset(at[dpid]))
        for dpid in sorted(at)
        if FailureKind.SPINE in kinds and dpid not in with_hosts
    ]
    if FailureKind.CABLE in kinds:
        found += [Failure(FailureKind.CABLE, name, links) for name, links in one_way_ports(fabric)]
    everywhere = _cables(intact, with_hosts)
    for (a, b), cables in _cables(fabric, with_hosts).items():
        ends = f"{fabric.name(a)}:{fabric.name(b)}"
        parallel = everywhere[a, b]
        if FailureKind.BUNDLE in kinds and len(cables) > 1:
            links = frozenset(link for cable in cables for link in _both_ways(*cable))
            found.append(Failure(FailureKind.BUNDLE, ends, links.intersection(fabric.links)))
        if FailureKind.CABLE in kinds:
            for cable in cables:
                name = f"{ends}:{parallel.index(cable)}" if len(parallel) > 1 else ends
                found.append(Failure(FailureKind.CABLE, name, _both_ways(*cable).intersection(fabric.links)))
    return tuple(found)


def cases(problem: Problem, fabric: Fabric, failures: Iterable[Failure]) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    """Return the failures grouped into cases of equal effect, in the order of the first failure of each case.

    The first tuple has the cases in which some flow may lose a route or a hashed path. The second tuple has one case
    per kind of failure, with all failures of this kind that affect no flow."""
    hops = NextHops(problem)
    usable = {hops.links[number] for number in set(hops.link.tolist()) - {hops.nothing}}
    label = interchangeable(problem, fabric)
    alike: defaultdict[tuple[FailureKind, object], list[Failure]] = defaultdict(list)
    for failure in failures:
        used = not failure.links.isdisjoint(usable)
        links = (
            (label.get(link.dpid, link.dpid), label.get(far, far), problem.capacity_bps[link])
            for link, far in ((link, problem.paths.far_end[link]) for link in failure.links)
        )
        alike[failure.kind, tuple(sorted(links)) if used else None].append(failure)
    felt = tuple(Case(kind, tuple(of)) for (kind, effect), of in alike.items() if effect is not None)
    return felt, tuple(Case(kind, tuple(of)) for (kind, effect), of in alike.items() if effect is None)


def interchangeable(problem: Problem, fabric: Fabric) -> Mapping[Dpid, Dpid]:
    """Return for every switch with a link the lowest dpid among the switches that are interchangeable with it."""
    ends = {leaf for flow in problem.flows for leaf in (flow.src_leaf, flow.dst_leaf)}
    around: defaultdict[Dpid, list[tuple[Dpid, float, float]]] = defaultdict(list)
    for link_id in problem.paths.far_end:
        link = fabric.links[link_id]
        back = 0.0 if link.one_way else problem.capacity_bps.get(LinkId(*link.dst), 0.0)
        around[link.src.dpid].append((link.dst.dpid, problem.capacity_bps[link_id], back))
        if link.one_way or LinkId(*link.dst) not in problem.paths.far_end:
            around[link.dst.dpid].append((link.src.dpid, 0.0, problem.capacity_bps[link_id]))
    first: dict[object, Dpid] = {}
    return {
        dpid: dpid if dpid in ends else first.setdefault(tuple(sorted(cables)), dpid)
        for dpid, cables in sorted(around.items())
    }


def failed(problem: Problem, failure: Failure) -> Problem:
    """Return the problem after the failure, with the same running routes."""
    left = {link: bps for link, bps in problem.capacity_bps.items() if link not in failure.links}
    return replace(problem, capacity_bps=left, paths=problem.paths.without(failure.links))


def _cables(fabric: Fabric, with_hosts: Collection[Dpid]) -> dict[tuple[Dpid, Dpid], list[tuple[PortRef, PortRef]]]:
    """Return sorted ports of cables (no circuits) by pair of switches; a switch with hosts is first in its pair."""
    between: defaultdict[tuple[Dpid, Dpid], set[tuple[PortRef, PortRef]]] = defaultdict(set)
    for link in (link for link in fabric.links.values() if not link.one_way):
        a, b = sorted((link.src, link.dst), key=lambda end: (end.dpid not in with_hosts, end))
        between[a.dpid, b.dpid].add((a, b))
    return {pair: sorted(cables) for pair, cables in sorted(between.items())}


def _both_ways(a: PortRef, b: PortRef) -> frozenset[LinkId]:
    return frozenset((LinkId(*a), LinkId(*b)))
