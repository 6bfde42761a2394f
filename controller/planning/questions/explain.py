"""Whether the network is what slows a job: its worst links and who shares them, and what routing could still gain.

In: a ``Problem`` with the running routes, and a job. Out: an ``Explanation``, plain facts; ``explain_words`` makes
sentences of them. Besides the loads there are three yardsticks: bounds (what no routing of any jobs could beat), the
planner's routes for all jobs, and its routes if all flows could be split. Level, load and phase are defined in
``efficiency``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from enum import StrEnum

from controller.errors import NotFound, SignalboxError
from controller.fabric.topology import Fabric, LinkId
from controller.jobs.spec import JobId
from controller.planning.bounds import Bounds, level_bounds
from controller.planning.ecmp import ecmp_job_levels
from controller.planning.efficiency import LEVEL_TOLERANCE, job_levels
from controller.planning.plan import Certificate, NoPlan
from controller.planning.planner import plan
from controller.planning.problem import Flow, PlanLimits, Problem, Routes
from controller.planning.questions.leaf_cuts import LeafCut, tightest_cut

SPLIT_INTO = 8
"""Pieces that a flow may have when the question is what splitting would gain."""
WORST_LINKS = 10


class Verdict(StrEnum):
    """What slows the job. ``cut-off``: some flows have no path. ``routing``: routes are known that are better for it.
    ``nic``: a NIC that it shares. ``fabric``: the links, whatever the routes. ``unproven``: the links; whether other
    routes would help is open."""

    CUT_OFF = "cut-off"
    NOTHING = "nothing"
    ROUTING = "routing"
    NIC = "nic"
    FABRIC = "fabric"
    UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True)
class Share:
    """What one job puts on a link. ``load``: in its worst phase, as a share of the link's capacity."""

    job_id: JobId
    flows: int
    load: float


@dataclass(frozen=True, slots=True)
class BusyLink:
    """``shares``: of all jobs on the link, the largest first. ``background``: share of the link's own capacity that
    unannounced traffic takes."""

    link: LinkId
    nic: bool
    load: float
    shares: tuple[Share, ...]
    background: float


@dataclass(frozen=True, slots=True)
class Option:
    """Routes that the planner found. ``level``: of the job; ``worst``: of the worst job; ``bound``: of that.
    ``best_for_all``: proven that the job's level could only be smaller if that of another job were larger."""

    level: float
    worst: float
    bound: float
    certificate: Certificate
    best_for_all: bool
    moves: int
    most_pieces: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """``level``: now, its mean over draws where flows are hashed. ``alone``: no routing of any jobs gives the job a
    smaller one. ``nic_level``: with an endlessly fast fabric. ``flows``: of the job; ``inside``: those that stay on
    one leaf; ``hashed``: those without a route; ``lost``: those without a path. ``links``: its fullest;
    ``equally_full``: how many are as full as the first. ``cut``: the leaf that bounds it most, None when no flow
    leaves its leaf. ``best``, ``split``: None when there is nothing to
    gain. ``measured``: efficiency, None when nobody measured."""

    job_id: JobId
    verdict: Verdict
    level: float
    alone: float
    nic_level: float
    flows: int
    inside: int
    hashed: int
    lost: int
    links: tuple[BusyLink, ...]
    equally_full: int
    cut: LeafCut | None
    best: Option | None
    split: Option | None
    measured: float | None

    @property
    def predicted(self) -> float:
        """Efficiency."""
        return 1 / self.level


def explain(
    problem: Problem,
    job_id: JobId,
    fabric: Fabric,
    limits: PlanLimits,
    *,
    intact: Fabric | None = None,
    measured: float | None = None,
) -> Explanation:
    """Flows without a route that stands are hashed. ``fabric``: tells the links' own capacities; ``intact``: with those
    that have failed. Raises ``NotFound`` for a job without flows, ``SignalboxError`` when the planner has no answer."""
    mine = [flow for flow in problem.flows if flow.job_id == job_id]
    if not mine:
        raise NotFound(f"there is no job '{job_id}'; {_jobs(problem)}")
    bounds = level_bounds(problem)
    running = {flow.id: flow.current for flow in problem.flows if flow.current is not None and problem.stands(flow)}
    level = ecmp_job_levels(problem, running, limits.ecmp_draws, limits.seed).get(job_id, 1.0)
    nics = {flow.id: () for flow in problem.flows if problem.reachable(flow)}
    nic_level = job_levels(problem, nics).get(job_id, 1.0)
    slowed = level > 1 + LEVEL_TOLERANCE
    best = _option(problem, job_id, limits) if slowed else None
    whole = any(flow.max_subflows == 1 for flow in problem.flows)
    split = _option(_splittable(problem), job_id, limits) if slowed and whole else None
    lost = sum(not problem.reachable(flow) for flow in mine)
    links = _busy_links(problem, running, job_id, fabric)
    return Explanation(
        job_id=job_id,
        verdict=Verdict.CUT_OFF if lost else _verdict(level, nic_level, bounds, job_id, best),
        level=level,
        alone=bounds.job.get(job_id, 1.0),
        nic_level=nic_level,
        flows=len(mine),
        inside=sum(flow.src_leaf == flow.dst_leaf for flow in mine),
        hashed=sum(
            flow.id not in running and flow.src_leaf != flow.dst_leaf for flow in mine if problem.reachable(flow)
        ),
        lost=lost,
        links=tuple(links[:WORST_LINKS]),
        equally_full=sum(link.load >= links[0].load * (1 - LEVEL_TOLERANCE) for link in links),
        cut=tightest_cut(problem, job_id, intact or fabric),
        best=best,
        split=split,
        measured=measured,
    )


def _jobs(problem: Problem) -> str:
    jobs = sorted({flow.job_id for flow in problem.flows})
    return f"jobs: {', '.join(jobs)}" if jobs else "there are no jobs with flows"


def _verdict(level: float, nic_level: float, bounds: Bounds, job_id: JobId, best: Option | None) -> Verdict:
    if best is None:
        return Verdict.NOTHING
    if best.level < level * (1 - LEVEL_TOLERANCE):
        return Verdict.ROUTING
    if nic_level >= level * (1 - LEVEL_TOLERANCE):
        return Verdict.NIC
    if best.best_for_all or level <= bounds.job[job_id] * (1 + LEVEL_TOLERANCE):
        return Verdict.FABRIC
    return Verdict.UNPROVEN


# ---- what the planner could do


def _splittable(problem: Problem) -> Problem:
    flows = (replace(flow, current=None, max_subflows=max(SPLIT_INTO, flow.max_subflows)) for flow in problem.flows)
    return replace(problem, flows=tuple(flows))


def _option(problem: Problem, job_id: JobId, limits: PlanLimits) -> Option | None:
    """None when no flow of the job has a path."""
    answer = plan(problem, replace(limits, ecmp_draws=0))
    if isinstance(answer, NoPlan):
        raise SignalboxError(f"no plan: {answer.reason}")
    if job_id not in answer.job_level:
        return None
    level = answer.job_level[job_id]
    above = sum(other >= level * (1 - LEVEL_TOLERANCE) for other in answer.job_level.values())
    return Option(
        level=level,
        worst=answer.max_level,
        bound=answer.bound,
        certificate=answer.certificate,
        best_for_all=above <= answer.levels_proven,
        moves=answer.moves,
        most_pieces=max(map(len, answer.routes.values()), default=1),
    )


# ---- where the load is


def _busy_links(problem: Problem, routes: Routes, job_id: JobId, fabric: Fabric) -> list[BusyLink]:
    """The job's links, the fullest first and of these the most shared, loaded by the flows that have a route."""
    count: defaultdict[LinkId, Counter[JobId]] = defaultdict(Counter)
    rates: defaultdict[tuple[LinkId, JobId], defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    for flow in problem.flows:
        for link, share in _pieces(problem, routes, flow):
            count[link][flow.job_id] += 1
            for phase, bps in flow.demand_bps:
                rates[link, flow.job_id][phase] += share * bps
    own_bps = {link.id: link.capacity_bps for link in fabric.links.values()}
    busy = []
    for link, flows in count.items():
        if job_id not in flows:
            continue
        capacity = problem.capacity_bps[link]
        shares = [
            Share(job, number, max(rates[link, job].values(), default=0.0) / capacity) for job, number in flows.items()
        ]
        busy.append(
            BusyLink(
                link=link,
                nic=link not in problem.paths.far_end,
                load=sum(share.load for share in shares),
                shares=tuple(sorted(shares, key=lambda share: (-share.load, share.job_id))),
                background=max(0.0, 1 - capacity / own_bps.get(link, capacity)),
            )
        )
    return sorted(busy, key=lambda of: (-round(of.load, 6), -len(of.shares), of.nic, of.link))


def _pieces(problem: Problem, routes: Routes, flow: Flow) -> list[tuple[LinkId, float]]:
    if not problem.reachable(flow):
        return []
    through = [(link, piece.share) for piece in routes.get(flow.id, ()) for link in piece.path]
    return [*through, *((link, 1.0) for link in flow.nic_links)]
