"""A plan with its proofs as plain data, which ``verify`` checks without a solver.

In: a problem and its plan. Out: links, jobs, flows, routes and slowdowns as integers, and a witness for every proven
peak slowdown (``efficiency``). docs/reference/json-output.md describes the form;
docs/explanation/planning.md#check-a-plan-yourself says why the witnesses are proofs. Peak slowdowns that a search has
proven, and for which no witness is found here, are only counted (``searched``).

- A *cut* is a price per link, which limits how many jobs can be fast. Cuts come from NICs, from the bounds
  (``bounds``), and from the duals of the fluid optimum (``split_flows.lp``), in this order. A cut with a *unit* counts
  only the flows that stay whole, and rounds their demands down to multiples of the unit. With a number of *subflows*
  above 1, it instead counts only the flows of at least one unit that have at most so many subflows.
- A *group* is a set of jobs of which at least a given number must be slow, that is, have at least a given slowdown.
- A *proof* is a list of groups that together require a number of slow jobs. The number follows from weights of the
  groups: a dual solution of the linear programme that looks for the fewest slow jobs that satisfy all groups.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from controller.fabric.topology import LinkId
from controller.planning.analysis.messages import FabricNames
from controller.planning.bounds import peak_bounds
from controller.planning.efficiency import SLOWDOWN_TOLERANCE
from controller.planning.meetings import Meetings
from controller.planning.plan import Plan
from controller.planning.problem import PlanLimits, Problem, Route
from controller.planning.programme import Programme
from controller.planning.split_flows.lp import dual_prices
from controller.planning.verify import Cut, Graph, least_of, peaks_of, slowdowns_of, verify
from signalbox.jobs.spec import JobId

WHOLE = 10**12
"""Denominator of slowdowns, bounds and shares."""
_FINE = 12
"""Decimal exponent of the largest capacity when capacities and demands are written as integers.

The largest capacity becomes an integer from 10^12 to 10^13. Values that differ only by rounding errors become equal."""
_NEARLY = 1e-9
"""Relative amount by which the first attempt at a proof may prove less than the slowdown.

In the second attempt, the amount is ``SLOWDOWN_TOLERANCE``."""
_MOST_UNITS = 16
"""Number of demands that are tried as the unit of a cut, for each number of subflows.

They are the largest demands of the flows that cross the cut."""
_FINEST = 64
"""Largest quotient of the smallest demand and the greatest common divisor of all demands.

With a larger quotient the divisor is not tried as a unit."""
_SECONDS = 20.0
"""Time limit of each linear programme, in seconds."""
_WEIGHTS = 10**6
"""Integer that stands for a weight of 1."""
_MEETING_WEIGHTS = 10**9
"""Integer that stands for the smallest weight of a meeting."""


def certificate(problem: Problem, plan: Plan, names: FabricNames) -> dict[str, Any]:
    """Return the plan with its proofs.

    Raises ``ValueError`` when ``verify`` refuses the result, or when rounding to integers changes a slowdown."""
    form = _without_proofs(problem, plan, names)
    for job, slowdown in zip(form["jobs"], slowdowns_of(form), strict=True):
        job["slowdown"] = slowdown
        planned = plan.job_slowdown[JobId(job["name"])]
        if not math.isclose(slowdown / WHOLE, planned, rel_tol=SLOWDOWN_TOLERANCE):
            far = "capacities and demands are too far apart to be written as integers"
            raise ValueError(
                f"{far}: job '{job['name']}' has slowdown {planned:.6g}, {slowdown / WHOLE:.6g} when rounded"
            )
    peaks = sorted(peaks_of(form), reverse=True)
    form |= Witnesses(problem, plan, form).find(peaks)
    above = sum(peak > WHOLE + form["tolerance"] for peak in peaks) if problem.phase_share is None else 0
    form["searched"] = max(0, min(above, plan.slowdowns_proven) - form["proven"])
    verify(form)
    return form


def with_own_bound(plan: Plan, form: dict[str, Any]) -> Plan:
    """Return the plan with the bound that its proofs (``form``) show, if it is larger than the planner's bound."""
    bound = max(plan.bound, min(least_of(form) / form["denominator"], plan.max_slowdown))
    return replace(plan, bound=bound, integer_bound=max(bound, plan.integer_bound))


def document(form: dict[str, Any]) -> str:
    """Return the JSON text of a certificate."""
    return json.dumps(form, separators=(",", ":")) + "\n"


def _without_proofs(problem: Problem, plan: Plan, names: FabricNames) -> dict[str, Any]:
    paths = problem.paths
    routed = [flow for flow in problem.flows if flow.id in plan.routes]
    ends: dict[LinkId, tuple[int | str, int | str]] = {
        link: (names.switch(link.dpid), names.switch(end)) for link, end in paths.far_end.items()
    }
    for flow in routed:
        src, dst = names.host(flow.id.src_ip), names.host(flow.id.dst_ip)
        ends[flow.nic_links[0]] = src, names.switch(flow.src_leaf)
        ends[flow.nic_links[1]] = names.switch(flow.dst_leaf), dst
    place = {link: number for number, link in enumerate(ends)}
    largest = max([problem.capacity_bps[link] for link in ends], default=1.0)
    per_bps = 10.0 ** (_FINE - math.floor(math.log10(largest)))
    job_ids = sorted({flow.job_id for flow in routed})
    number = {job: index for index, job in enumerate(job_ids)}
    return {
        "denominator": WHOLE,
        "tolerance": int(SLOWDOWN_TOLERANCE * WHOLE),
        "units_per_bps": f"{per_bps:g}",
        "links": [[*of, max(1, round(problem.capacity_bps[link] * per_bps))] for link, of in ends.items()],
        "jobs": [{"name": str(job), "slowdown": WHOLE} | _phases(problem, job) for job in job_ids],
        "flows": [
            {
                "job": number[flow.job_id],
                "from": names.host(flow.id.src_ip),
                "to": names.host(flow.id.dst_ip),
                "hops": 2 + len(plan.routes[flow.id][0].path),
                "demand": [[phase, max(1, round(bps * per_bps))] for phase, bps in flow.demand_bps],
                "max_subflows": flow.max_subflows,
                "route": [
                    [share, [place[flow.nic_links[0]], *(place[link] for link in path), place[flow.nic_links[1]]]]
                    for share, (path, _) in zip(_parts(plan.routes[flow.id]), plan.routes[flow.id], strict=True)
                ],
            }
            for flow in routed
        ],
    }


def _phases(problem: Problem, job: JobId) -> dict[str, Any]:
    """Return the shares of the job's phases as integers; empty when only worst phases count."""
    if problem.phase_share is None:
        return {}
    numbers = problem.numbers
    cells = np.flatnonzero(numbers.cell_job == numbers.job_ids.index(job))
    shares = _in_parts(problem.phase_share[cells].tolist())
    return {"shares": [*zip(numbers.cell_phase[cells].tolist(), shares, strict=True)]}


def _parts(route: Route) -> list[int]:
    return _in_parts([share for _, share in route])


def _in_parts(shares: Sequence[float]) -> list[int]:
    """Return shares as integers; the largest absorbs the rounding error."""
    parts = [max(1, round(share * WHOLE)) for share in shares]
    parts[parts.index(max(parts))] += WHOLE - sum(parts)
    return parts


# ---- witnesses


class _Size(NamedTuple):
    """Flows that a cut counts; see the module's docstring."""

    unit: int
    """Unit, or 0 to count all flows by their demands."""
    subflows: int = 1


_ALL = _Size(0)


class _Source(NamedTuple):
    """Cut that counts all flows by their demands; the cuts with a unit are made from it."""

    cut: dict[str, Any]
    slowdown: float
    """Slowdown that this cut proves."""
    sizes: Sequence[_Size] = ()
    """Units and numbers of subflows that may be tried."""
    highest: float = 0.0
    """Upper limit of the slowdowns that the cut can prove, whatever its unit.

    No unit can prove more: a routing that puts each whole flow on the emptiest link has at most this slowdown."""


class _Group(NamedTuple):
    """Set of jobs of which at least ``least`` jobs must have the slowdown that is to be proven."""

    cut: tuple[int, _Size]
    """Cut that proves the statement about the group: the index of its ``_Source``, and the flows that it counts."""
    jobs: frozenset[int]
    least: int


class _Proof(NamedTuple):
    """Groups that together require at least ``jobs`` jobs to have the slowdown ``bound``."""

    jobs: int
    bound: int
    groups: Sequence[_Group]
    weights: Sequence[int]


class Witnesses:
    """Search for witnesses of one plan. ``form`` is the plan in integers."""

    def __init__(self, problem: Problem, plan: Plan, form: dict[str, Any]) -> None:
        self._problem, self._plan, self._form = problem, plan, form
        self._whole: int = form["denominator"]
        self._graph = Graph(form["links"])
        self._sources: list[_Source] = []
        self._made: dict[tuple[int, _Size], Cut] = {}
        self._priced = False

    def find(self, slowdowns: Sequence[int]) -> dict[str, Any]:
        """Return ``cuts``, ``proofs`` and ``proven`` (number of proven entries) for the slowdowns above 1.

        ``slowdowns``: the peak slowdowns sorted from the worst."""
        proofs: list[_Proof] = []
        proven, least = 0, self._whole + self._form["tolerance"]
        if slowdowns and slowdowns[0] > least:
            self._sources = sorted([*self._of_nics(), *self._of_bounds()], key=lambda of: -of.slowdown)
        while proven < len(slowdowns) and slowdowns[proven] > least:
            near = [
                slowdown
                for slowdown in slowdowns[proven:]
                if slowdown * (1 + SLOWDOWN_TOLERANCE / 2) >= slowdowns[proven]
            ]
            jobs = proven + len(near)
            best = self._prove(jobs, int(near[-1] * (1 - _NEARLY)), slowdowns[0])
            if best.jobs < jobs:
                weakest = math.ceil(near[0] / (1 + SLOWDOWN_TOLERANCE)) + 1
                best = max(best, self._prove(jobs, weakest, slowdowns[0]), key=lambda proof: proof.jobs)
            if best.jobs <= proven:
                break
            proofs.append(best)
            proven = best.jobs
        if not proofs and self._sources:
            proofs += self._of_worst(slowdowns[0])
        return self._written(proofs) | {"proven": proven}

    # ---- sources of cuts

    def _of_nics(self) -> Iterator[_Source]:
        through: defaultdict[int, list[int]] = defaultdict(list)
        for number, flow in enumerate(self._form["flows"]):
            path = flow["route"][0][1]
            through[path[0]].append(number)
            through[path[-1]].append(number)
        for link, flows in through.items():
            source = self._source([link], flows, units=False)
            if source.slowdown > 1:
                yield source

    def _of_bounds(self) -> Iterator[_Source]:
        routed = [flow.id for flow in self._problem.flows if flow.id in self._plan.routes]
        number = {flow: index for index, flow in enumerate(routed)}
        link_number = {link: index for index, link in enumerate(self._problem.paths.far_end)}
        _, links_of, flows, cuts, _, _ = peak_bounds(self._problem).cuts.crossings
        order = np.argsort(cuts, kind="stable")
        starts = np.searchsorted(cuts[order], np.arange(len(links_of) + 1))
        for cut, links in enumerate(links_of):
            crossing = [self._problem.flows[of].id for of in flows[order[starts[cut] : starts[cut + 1]]]]
            known = [number[of] for of in crossing if of in number]
            if known and links:
                yield self._source([link_number[link] for link in links], known)

    def _source(self, links: Sequence[int], flows: Sequence[int], units: bool = True) -> _Source:
        crossing = [self._form["flows"][number] for number in flows]
        cells: defaultdict[tuple[int, int], int] = defaultdict(int)
        for flow in crossing:
            for phase, rate in flow["demand"]:
                cells[flow["job"], phase] += rate
        peaks: defaultdict[int, int] = defaultdict(int)
        for (job, _), rate in cells.items():
            peaks[job] = max(peaks[job], rate)
        capacities = [self._form["links"][link][2] for link in links]
        slowdown = sum(peaks.values()) / sum(capacities)
        rates: defaultdict[int, set[int]] = defaultdict(set)
        for flow in crossing if units else ():
            rates[flow["max_subflows"]].update(rate for _, rate in flow["demand"])
        sizes = []
        for subflows, of in rates.items():
            # Smaller flows have enough room on any link.
            large = [rate for rate in sorted(of, reverse=True) if rate > (subflows - 1) * min(capacities)]
            sizes += [_Size(rate, subflows) for rate in large[:_MOST_UNITS]]
        step = math.gcd(*rates[1])
        sizes += [_Size(step)] if step and _Size(step) not in sizes and step * _FINEST >= min(rates[1]) else []
        highest = slowdown + max(unit for unit, _ in sizes) / min(capacities) if sizes else 0.0
        cut = {"prices": [[link, 1] for link in links], "phases": [], "flows": list(flows)}
        return _Source(cut, slowdown, sizes, highest)

    def _of_duals(self) -> Iterator[_Source]:
        """Yield the cut whose prices are the duals of the fluid optimum; later calls yield nothing."""
        if self._priced:
            return
        self._priced = True
        found = dual_prices(self._problem, self._plan.routes, PlanLimits(time_limit_s=_SECONDS))
        if found:
            number = {job["name"]: index for index, job in enumerate(self._form["jobs"])}
            links = {link: index for index, link in enumerate(self._problem.paths.far_end)}
            cut = {
                "prices": [[links[link], price] for link, price in found.prices],
                "phases": [[number[str(job)], phase, links[link], price] for job, phase, link, price in found.phases],
                "flows": [index for index, flow in enumerate(self._form["flows"]) if flow["hops"] > 2],
            }
            yield _Source(cut, math.inf)

    # ---- proofs

    def _prove(self, jobs: int, bound: int, worst: int) -> _Proof:
        """Return a proof that n jobs have at least the slowdown ``bound``, for the largest n found up to ``jobs``."""
        best = self._packed(self._groups(jobs, bound, worst), jobs, bound)
        if best.jobs == jobs:
            return best
        added = list(self._of_duals())
        if added:
            self._sources += added
            best = self._packed(self._groups(jobs, bound, worst), jobs, bound)
        return best

    def _groups(self, jobs: int, bound: int, worst: int) -> list[_Group]:
        groups: list[_Group] = []
        alone: set[int] = set()
        for with_units in (False, True):
            for number, source in enumerate(self._sources):
                if max(source.slowdown, source.highest if with_units else 0.0) * self._whole * (1 + _NEARLY) < bound:
                    continue
                for size in source.sizes if with_units else (_ALL,):
                    groups += self._of_cut((number, size), bound, worst, alone)
                if len(alone) >= jobs:
                    return groups
        return groups

    def _of_cut(self, at: tuple[int, _Size], bound: int, worst: int, alone: set[int]) -> Iterator[_Group]:
        """Yield the groups that one cut proves, where a job is slow when its slowdown is at least ``bound``.

        Each single job that must be slow is a group, unless it is in ``alone``; it is added to ``alone``. All jobs of
        the cut are a group if at least two must be slow. So are the jobs with the largest needs (``verify.Cut``): the
        fewest of which one must be slow. The last two groups are also made without the jobs in ``alone``."""
        cut = self._cut(at)
        jobs = sorted(cut.needs, key=lambda job: -cut.needs[job])
        if not jobs or not cut.proves(set(jobs), 1, bound, worst):
            return
        for job in jobs:
            if job not in alone:
                if not cut.proves({job}, 1, bound, worst):
                    break
                alone.add(job)
                yield _Group(at, frozenset([job]), 1)
        for members in (jobs, [job for job in jobs if job not in alone]):
            least = 0
            while least < len(members) and cut.proves(set(members), least + 1, bound, worst):
                least += 1
            if least > 1:
                yield _Group(at, frozenset(members), least)
            if least:
                few = next(n for n in range(1, len(members) + 1) if cut.proves(set(members[:n]), 1, bound, worst))
                yield _Group(at, frozenset(members[:few]), 1)

    def _cut(self, at: tuple[int, _Size]) -> Cut:
        if at not in self._made:
            source, size = at
            self._made[at] = Cut(self._form, self._graph, self._sources[source].cut | size._asdict())
        return self._made[at]

    def _packed(self, groups: Sequence[_Group], jobs: int, bound: int) -> _Proof:
        """Return a proof of how many jobs at least are slow, with a weight for each group that it needs.

        The weights are the duals of the linear programme that minimises the number of slow jobs."""
        groups = list({(group.jobs, group.least): group for group in groups}.values())
        if not groups:
            return _Proof(0, bound, (), ())
        programme = Programme()
        first = programme.variables(np.array([-float(group.least) for group in groups]), np.full(len(groups), np.inf))
        rows = [(job, number) for number, group in enumerate(groups) for job in group.jobs]
        numbers, row = np.unique([job for job, _ in rows], return_inverse=True)
        limit = programme.constraints(np.full(len(numbers), -np.inf), np.ones(len(numbers)))
        programme.add(limit + row, first + np.array([number for _, number in rows]), np.ones(len(rows)))
        solved = programme.solve(_SECONDS)
        if solved is None:
            return _Proof(0, bound, (), ())
        weights = [round(weight * _WEIGHTS) for weight in solved[0].tolist()]
        kept = [(group, weight) for group, weight in zip(groups, weights, strict=True) if weight]
        of_job: defaultdict[int, int] = defaultdict(int)
        for group, weight in kept:
            for job in group.jobs:
                of_job[job] += weight
        needed = -(-sum(weight * group.least for group, weight in kept) // max(of_job.values()))
        return _Proof(min(jobs, needed), bound, *zip(*kept, strict=True))

    def _of_worst(self, worst: int) -> Iterator[_Proof]:
        """Yield a proof of the largest lower bound of the worst slowdown that a single cut proves."""
        low = self._whole
        group: _Group | None = None
        self._sources += self._of_duals()
        for number, source in enumerate(self._sources):
            if max(source.slowdown, source.highest) * self._whole <= low:
                continue
            for size in (_ALL, *source.sizes):
                cut = self._cut((number, size))
                members = set(cut.needs)
                if not members or not cut.proves(members, 1, low + 1, worst):
                    continue
                high = worst + 1
                while high - low > 1:
                    middle = (low + high) // 2
                    low, high = (middle, high) if cut.proves(members, 1, middle, worst) else (low, middle)
                group = _Group((number, size), frozenset(members), 1)
        if group:
            yield _Proof(1, low, [group], [1])

    def _over_phases(self) -> tuple[list[tuple[int, _Size]], list[tuple[int, Sequence[tuple[int, int]], int]]]:
        """Return the cuts that bound single phases, and meetings (source of the cut, phases, weight); see ``meetings``.

        Both are empty when only worst phases count."""
        share = self._problem.phase_share
        cuts = {of: self._cut((of, _ALL)) for of in range(len(self._sources))}
        cuts = {of: cut for of, cut in cuts.items() if cut.adds_up and any(cut.cells.values())}
        if share is None or not cuts:
            return [], []
        names = [(job, phase) for job, of in enumerate(self._form["jobs"]) for phase, _ in of["shares"]]
        number = {cell: place for place, cell in enumerate(names)}
        least, best = np.ones(len(names)), dict[int, int]()
        rows: list[tuple[int, int, int]] = []
        for place, (of, cut) in enumerate(cuts.items()):
            rows += sorted((place, number[cell], need) for cell, need in cut.cells.items() if need)
            for cell, load in cut.loads().items():
                if load / self._whole > least[number[cell]]:
                    least[number[cell]], best[number[cell]] = load / self._whole, of
        at, cells, needs = zip(*rows, strict=True)
        meetings = Meetings(
            np.array([job for job, _ in names]),
            np.array([part for job in self._form["jobs"] for _, part in job["shares"]]) / self._whole,
            np.array(at),
            np.array(cells),
            np.array(needs, np.float64),
            np.array([cut.room for cut in cuts.values()], np.float64),
        )
        found = [(of, weight) for of, weight in meetings.bound(least)[1] if weight * of.rates.sum() > _NEARLY]
        unit = min([weight for _, weight in found], default=1.0)
        sources = list(cuts)
        return [(of, _ALL) for of in best.values()], [
            (sources[of.cut], [names[cell] for cell in of.cells.tolist()], round(weight / unit * _MEETING_WEIGHTS))
            for of, weight in found
        ]

    def _written(self, proofs: Sequence[_Proof]) -> dict[str, Any]:
        of_phases, meetings = self._over_phases()
        of_meetings = [(source, _ALL) for source, _, _ in meetings]
        used = dict.fromkeys([*(group.cut for proof in proofs for group in proof.groups), *of_phases, *of_meetings])
        place = {at: number for number, at in enumerate(used)}
        written = [
            {"cut": place[source, _ALL], "weight": weight, "phases": phases} for source, phases, weight in meetings
        ]
        return ({"meetings": written} if written else {}) | {
            "cuts": [self._sources[source].cut | size._asdict() for source, size in used],
            "proofs": [
                {
                    "jobs": proof.jobs,
                    "bound": proof.bound,
                    "groups": [
                        {"cut": place[group.cut], "jobs": sorted(group.jobs), "least": group.least, "weight": weight}
                        for group, weight in zip(proof.groups, proof.weights, strict=True)
                    ],
                }
                for proof in proofs
            ],
        }
