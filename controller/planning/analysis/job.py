"""Analysis of whether the network slows a job, and proofs of the routes in force.

In: a request of the control loop, with all parts of the state that the analysis needs. Out: the job's most loaded
links, the jobs that share them, and possible gains. The job's slowdown is compared with three values: its lower bound,
its slowdown under the planner's routes for the present flows, and its slowdown under the planner's routes if all flows
could be split. ``efficiency`` defines slowdown and load.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from controller.fabric.topology import LinkId
from controller.jobs.messages import Arrangement
from controller.planning.analysis.messages import (
    NOTICEABLE,
    AnalyseJob,
    Arranged,
    BusyLink,
    FoundRoutes,
    JobAnalysis,
    JobFlows,
    JobShare,
    LeafCut,
    Network,
    PlanProof,
    ProveRoutes,
    Verdict,
)
from controller.planning.answers import outlook
from controller.planning.bounds import Cuts, slowdown_bounds
from controller.planning.certificate import certificate, document
from controller.planning.efficiency import (
    SLOWDOWN_TOLERANCE,
    EcmpSlowdown,
    ecmp_job_slowdowns,
    hashed_job_slowdowns,
    job_loads,
    job_slowdowns,
)
from controller.planning.plan import answered
from controller.planning.planner import plan
from controller.planning.problem import Flow, FlowId, PlanLimits, Problem, Route, Routes, flow_count
from signalbox.errors import NotFound, NotKnownYet, SignalboxError
from signalbox.jobs.spec import JobId

SPLIT_INTO = 8
"""Number of subflows into which every flow may be split when the gain of splitting is computed."""
WORST_LINKS = 10


# ---- one job


def analyse_job(request: AnalyseJob) -> JobAnalysis:
    """Analyse a job; flows without a valid route are hashed.

    Raises ``NotFound`` for a job without flows, and ``SignalboxError`` when the planner has no answer."""
    job_id, network = request.job_id, request.network.sending
    problem, limits = network.problem, network.limits
    own = [flow for flow in problem.flows if flow.job_id == job_id]
    if not own:
        jobs = sorted({flow.job_id for flow in problem.flows})
        known = f"jobs: {', '.join(jobs)}" if jobs else "no job has flows"
        raise NotFound(f"there is no job '{job_id}'; {known}", about={"jobId": job_id})
    bounds = slowdown_bounds(problem)
    least = bounds.job.get(job_id, 1.0)
    running = {
        flow.id: flow.current for flow in problem.flows if flow.current is not None and problem.is_in_force(flow)
    }
    slowdown = ecmp_job_slowdowns(problem, running, limits.ecmp_draws, limits.seed).get(job_id, 1.0)
    nics_only: Routes = {flow.id: () for flow in problem.flows if problem.reachable(flow)}
    nic_slowdown = job_slowdowns(problem, nics_only).get(job_id, 1.0)
    slowed = slowdown > 1 + NOTICEABLE
    best = _found_routes(problem, job_id, limits) if slowed else None
    whole = any(flow.max_subflows == 1 for flow in problem.flows)
    lost = max(flow_count(flow for flow in own if not problem.reachable(flow)), request.without_path)
    links = _busy_links(network, {**nics_only, **running}, job_id)
    routes = [running[flow.id] for flow in own if flow.id in running]
    hashed = _if_hashed(problem, own, running, limits)
    pinned = min(slowdown, best.slowdown) if best else slowdown
    found = JobAnalysis(
        job_id=job_id,
        verdict=Verdict.CUT_OFF if lost else _verdict(slowdown, nic_slowdown, least, best),
        slowdown=slowdown,
        efficiency_measured=request.efficiency_measured,
        efficiency_usual=request.efficiency_usual,
        least_slowdown=least,
        nic_slowdown=nic_slowdown,
        flows=flow_count(own),
        flows_inside_a_leaf=flow_count(flow for flow in own if flow.src_leaf == flow.dst_leaf),
        flows_hashed=flow_count(
            flow for flow in own if flow.id in nics_only and flow.id not in running and flow.src_leaf != flow.dst_leaf
        ),
        flows_without_a_path=lost,
        equally_full_links=sum(link.load >= links[0].load * (1 - SLOWDOWN_TOLERANCE) for link in links),
        fullest_links=tuple(links[:WORST_LINKS]),
        cut=_tightest_cut(network, bounds.cuts, job_id),
        best=best,
        split=_found_routes(_splittable(problem), job_id, limits) if slowed and whole else None,
        withheld=request.withheld,
        demand=request.demand,
        awaits_iterations=request.awaits_iterations,
        hashed_slowdown=None if hashed is None else hashed.mean,
        pinning_gains_nothing=hashed is not None and hashed.is_as_good_as(pinned, request.min_gain),
        fullest_nic=next((link for link in links if link.nic), None),
        own_link=_own_link(links, job_id),
    )
    if request.arrangement is None:
        return found
    arranged = _arranged(found, request.arrangement, routes, network.fabric.links)
    at_bound = found.verdict is Verdict.UNPROVEN and arranged.at_bound
    return replace(found, arranged=arranged, verdict=Verdict.FABRIC if at_bound else found.verdict)


def _arranged(
    found: JobAnalysis, arrangement: Arrangement, routes: Iterable[Route], usable: Container[LinkId]
) -> Arranged:
    from controller.circuits.analysis import arranged, use_of

    return arranged(found, use_of(arrangement, routes, usable))


def _verdict(slowdown: float, nic_slowdown: float, least: float, best: FoundRoutes | None) -> Verdict:
    if best is None:
        return Verdict.NOTHING
    if best.slowdown < slowdown * (1 - SLOWDOWN_TOLERANCE):
        return Verdict.ROUTING
    if nic_slowdown >= slowdown * (1 - SLOWDOWN_TOLERANCE):
        return Verdict.NIC
    if best.best_for_all or slowdown <= least * (1 + SLOWDOWN_TOLERANCE):
        return Verdict.FABRIC
    return Verdict.UNPROVEN


# ---- slowdowns under hashing and under plans


def _if_hashed(problem: Problem, own: Sequence[Flow], running: Routes, limits: PlanLimits) -> EcmpSlowdown | None:
    """Return the job's slowdown if only its own flows were hashed; None when none has a choice of paths."""
    if not any(len(problem.candidates(flow)) > 1 for flow in own if problem.reachable(flow)) or not limits.ecmp_draws:
        return None
    hashed = {flow.id for flow in own}
    others = {flow: route for flow, route in running.items() if flow not in hashed}
    return hashed_job_slowdowns(problem, others, limits.ecmp_draws, limits.seed).get(own[0].job_id)


def _splittable(problem: Problem) -> Problem:
    flows = (replace(flow, current=None, max_subflows=max(SPLIT_INTO, flow.max_subflows)) for flow in problem.flows)
    return problem.with_flows(flows)


def _found_routes(problem: Problem, job_id: JobId, limits: PlanLimits) -> FoundRoutes | None:
    """Return a summary of the planner's routes and of the job's slowdown; None when no flow of the job has a path."""
    answer, first, cycles = outlook(problem, replace(limits, ecmp_draws=0))
    if job_id not in answer.job_slowdown:
        return None
    slowdown = answer.job_slowdown[job_id]
    subflows = Counter[FlowId]()
    for flow, route in answer.routes.items():
        subflows[flow.joined] += len(route)
    above = sum(other >= slowdown * (1 - SLOWDOWN_TOLERANCE) for other in answer.job_slowdown.values())
    return FoundRoutes(
        slowdown=slowdown,
        worst_slowdown=answer.max_slowdown,
        worst_bound=answer.bound,
        certificate=answer.certificate,
        best_for_all=above <= answer.slowdowns_proven,
        moves=answer.moves,
        most_subflows=max(subflows.values(), default=1),
        first_slowdown=first.job_slowdown[job_id],
        cycles=cycles,
    )


# ---- loads of links


def _busy_links(network: Network, routes: Routes, job_id: JobId) -> list[BusyLink]:
    """Return the links of the job, most loaded first; among equal loads, the link with the most jobs is first."""
    problem = network.problem
    flows: defaultdict[LinkId, defaultdict[JobId, set[FlowId]]] = defaultdict(lambda: defaultdict(set))
    for flow in problem.flows:
        if flow.id in routes:
            subflows_on = [link for subflow in routes[flow.id] for link in subflow.path]
            for link in (*subflows_on, *flow.nic_links):
                flows[link][flow.job_id].add(flow.id.joined)
    loads = job_loads(problem, routes)
    own_bps = {link.id: link.capacity_bps for link in network.fabric.links.values()}
    busy = []
    for link in sorted(link for link, jobs in flows.items() if job_id in jobs):
        capacity_bps = problem.capacity_bps[link]
        shares = [JobShare(job, len(of_job), loads[link].get(job, 0.0)) for job, of_job in flows[link].items()]
        busy.append(
            BusyLink(
                link=network.names.link(link),
                nic=link not in problem.paths.far_end,
                load=sum(share.load for share in shares),
                background=max(0.0, 1 - capacity_bps / own_bps.get(link, capacity_bps)),
                jobs=tuple(sorted(shares, key=lambda share: (-share.load, share.job_id))),
            )
        )
    return sorted(busy, key=lambda link: (-round(link.load, 6), -len(link.jobs), link.nic))


def _own_link(links: Iterable[BusyLink], job_id: JobId) -> BusyLink | None:
    """Return the link between switches that the job's own flows load most; None unless they exceed its capacity."""
    fullest = max((link for link in links if not link.nic), key=lambda link: link.load_of(job_id), default=None)
    return fullest if fullest and fullest.load_of(job_id) > 1 + SLOWDOWN_TOLERANCE else None


# ---- the cut that bounds the job


def _tightest_cut(network: Network, cuts: Cuts, job_id: JobId) -> LeafCut | None:
    """Return the cut with the largest bound of the job's slowdown, whole leaves first; None if it crosses none.

    Only cuts of leaves count, not those of cables."""
    crossings, flows = cuts.crossings, network.problem.flows
    jobs: defaultdict[int, Counter[JobId]] = defaultdict(Counter)
    for number, cut in zip(crossings.flow.tolist(), crossings.cut.tolist(), strict=True):
        if not crossings.places[cut].cables:
            jobs[cut][flows[number].job_id] += 1
    fluid, whole = cuts.fluid().tolist(), cuts.slowdowns(cuts.most).tolist()

    def tightness(cut: int) -> tuple[float, bool, int, bool, int]:
        leaf, outward, other, leaves, _ = crossings.places[cut]
        slowdown = round(max(fluid[cut], whole[cut]), 9)
        return slowdown, other is None and not leaves, jobs[cut][job_id], outward, -leaf

    cut = max((cut for cut in jobs if job_id in jobs[cut]), key=tightness, default=None)
    if cut is None:
        return None
    across = {flows[number].id.joined: flows[number].job_id for number in crossings.flow[crossings.cut == cut].tolist()}
    leaf, outward, other, leaves, _ = crossings.places[cut]
    paths, name = network.problem.paths, network.names.switch(leaf)
    switches = {link.dpid if outward else paths.far_end[link] for link in crossings.links[cut]}
    before = [link.id for link in network.intact.links.values() if (link.src if outward else link.dst).dpid in switches]
    drained = len(network.drained.intersection(before))
    left = sum(len(paths.links_from(switch) if outward else paths.links_into(switch)) for switch in switches)
    return LeafCut(
        leaf=f"a group of {leaves} leaves with {name}" if leaves else name,
        other_leaf=None if other is None else network.names.switch(other),
        direction="out" if outward else "in",
        links=len(crossings.links[cut]),
        failed=len(before) - left - drained,
        fluid_slowdown=fluid[cut],
        whole_slowdown=whole[cut],
        jobs=tuple(JobFlows(*item) for item in Counter(across.values()).most_common()),
        subflows=jobs[cut].total(),
        drained=drained,
        max_subflows=int(cuts.most[cuts.cut == cut].max()),
    )


# ---- proofs of the routes in force


def prove_routes(request: ProveRoutes) -> PlanProof:
    """Return the routes in force with proofs that no routes are better, as a document that is checked without a solver.

    The planner makes no new routes; the document uses only the planner's lower bounds. A bound that the planner's
    search has proven may have no witness in the document. Flows without any path are left out.

    Raises ``NotKnownYet`` while a flow with a path has no route in force: switches hash the flow, so the slowdown of
    its job is not known. Raises it too while slots and classes are for other traffic than the present. Raises
    ``SignalboxError`` when the planner has no answer, or when capacities are too far apart for a proof."""
    network = request.network.sending
    problem = network.problem
    with_path = [flow for flow in problem.flows if problem.reachable(flow)]
    hashed = Counter(
        {
            flow.id.joined: flow.job_id
            for flow in with_path
            if flow.src_leaf != flow.dst_leaf and not problem.is_in_force(flow)
        }.values()
    )
    if hashed:
        job_id, flows = hashed.most_common(1)[0]
        others = f" (other jobs with such flows: {len(hashed) - 1})" if len(hashed) > 1 else ""
        text = (
            f"flows of job '{job_id}' ({flows}) have no route in force{others}: switches hash them, so no slowdown "
            "can be proven; retry after the next plan in the mode planned"
        )
        raise NotKnownYet(text, {"jobId": job_id})
    if not with_path:
        raise NotKnownYet("no route is in force: no flow of a job has a path", {})
    as_they_are = answered(plan(problem, replace(network.limits, max_moves=0, ecmp_draws=0)))
    try:
        form = certificate(problem, as_they_are, network.names)
    except ValueError as error:
        raise SignalboxError(f"the routes have no proof: {error}") from None
    if network.sharing:
        from controller.planning.contention.proof import with_sharing

        try:
            form = with_sharing(form, network.sharing)
        except ValueError as error:
            text = f"slots and classes are not planned for the present traffic yet, retry after the next plan: {error}"
            raise NotKnownYet(text, {}) from None
    return PlanProof(document(form), problem.generation)
