"""Check of a plan before it is installed; it shares no code with the planners.

In: the problem, the plan, the cap on moves. Out: one sentence per violation. Paths, slowdowns and moves are derived
again from the routes and the numbered problem, in time linear in the links that the flows pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from controller.planning.plan import Plan
from controller.planning.problem import Floats, Flow, Problem, Route, distinct

_ROUNDING = 1e-9
_SAME_SLOWDOWN = 1e-4


def check(problem: Problem, plan: Plan, max_moves: int | None = None) -> tuple[str, ...]:
    """Return the violations of the plan. Load and slowdown are defined in docs/explanation/planning.md."""
    if not (problem.links.capacity_bps > 0).all():
        return ("a link has no capacity",)
    routes = [plan.routes.get(flow.id) for flow in problem.flows]
    subflows = _Subflows(problem, routes)
    violations = list(_routing(problem, plan, routes, subflows))
    if not violations:
        violations += _slowdowns(problem, plan, routes, subflows)
        violations += _moves(problem, plan, routes, max_moves)
        violations += _certificate(plan)
    return tuple(violations)


class _Subflows:
    """All subflows of the routes as arrays.

    - ``flow``, ``length``, ``share``: per subflow the number of its flow, the length of its path and its share.
    - ``links``: link numbers of all paths, one path after the other; -1 for an unknown link."""

    def __init__(self, problem: Problem, routes: Sequence[Route | None]) -> None:
        counts = [len(route) if route else 0 for route in routes]
        subflows = list(chain.from_iterable(filter(None, routes)))
        paths = list(map(itemgetter(0), subflows))
        self.flow = np.repeat(np.arange(len(routes)), counts)
        self.length = np.fromiter(map(len, paths), np.int64, len(paths))
        self.share = np.fromiter(map(itemgetter(1), subflows), np.float64, len(paths))
        numbers = map(problem.links.number.get, chain.from_iterable(paths), repeat(-1))
        self.links = np.fromiter(numbers, np.int64, int(self.length.sum()))


def _routing(problem: Problem, plan: Plan, routes: Sequence[Route | None], subflows: _Subflows) -> Iterator[str]:
    if plan.generation != problem.generation:
        yield f"the plan is for generation {plan.generation}, the problem is generation {problem.generation}"
    unrouted = set(plan.unrouted)
    if unrouted or len(routes) - routes.count(None) != len(plan.routes):
        announced = {flow.id for flow in problem.flows}
        for flow_id in [*plan.routes, *plan.unrouted]:
            if flow_id not in announced:
                yield f"{flow_id.src_ip} > {flow_id.dst_ip} is not a flow of the problem"
    if len(unrouted) < len(plan.unrouted):
        yield "a flow is listed as unrouted twice"
    off = _off_paths(problem, subflows)
    faulty = off | _wrong_shares(problem, routes, subflows)
    if unrouted or None in routes:
        listed = [flow.id in unrouted for flow in problem.flows]
        faulty |= np.array([route is None for route in routes], bool) | np.array(listed, bool)
    for number in np.flatnonzero(faulty).tolist():
        flow, route = problem.flows[number], routes[number]
        if route is None:
            reason = _unrouted_fault(problem, flow, flow.id in unrouted)
        elif flow.id in unrouted:
            reason = "is both routed and listed as unrouted"
        else:
            reason = _subflows_fault(flow, route) or _path_fault(flow)
        if reason:
            yield f"{flow.id.src_ip} > {flow.id.dst_ip}: {reason}"


def _wrong_shares(problem: Problem, routes: Sequence[Route | None], subflows: _Subflows) -> NDArray[np.bool_]:
    flows = len(routes)
    counts = np.bincount(subflows.flow, minlength=flows)
    total = np.bincount(subflows.flow, subflows.share, flows)
    wrong = (counts < 1) | (counts > problem.numbers.most) | (np.abs(total - 1) > _ROUNDING)
    wrong |= np.isnan(total)
    wrong[subflows.flow[~(subflows.share > 0)]] = True
    several = [routes[number] or () for number in np.flatnonzero(counts > 1).tolist()]
    shared = [
        route[0].path == route[1].path if len(route) == 2 else len({path for path, _ in route}) < len(route)
        for route in several
    ]
    wrong[counts > 1] |= np.array(shared, bool)
    found: NDArray[np.bool_] = wrong & np.array([route is not None for route in routes], bool)
    return found


def _unrouted_fault(problem: Problem, flow: Flow, listed: bool) -> str:
    if not listed:
        return "is neither routed nor listed as unrouted"
    return "is unrouted although it has a path" if problem.candidates(flow) else ""


def _subflows_fault(flow: Flow, route: Route) -> str:
    if not 1 <= len(route) <= flow.max_subflows:
        return f"has {len(route)} subflows, but its job allows 1 to {flow.max_subflows}"
    if not all(share > 0 for _, share in route):
        return "a subflow has no share above 0"
    if abs(sum([share for _, share in route]) - 1) > _ROUNDING:
        return "the shares of its subflows do not add up to 1"
    if len({path for path, _ in route}) < len(route):
        return "two of its subflows share a path"
    return ""


def _path_fault(flow: Flow) -> str:
    if flow.src_leaf == flow.dst_leaf:
        return "crosses the fabric although both of its ends are at one switch"
    return "its path is not among the candidates"


def _off_paths(problem: Problem, subflows: _Subflows) -> NDArray[np.bool_]:
    """Return for each flow whether one of its subflows takes a path that is not allowed.

    An allowed path is a shortest path or an allowed detour from the source's switch to the destination's switch."""
    links, numbers = problem.links, problem.numbers
    switches = len(links.switch)
    # A leaf without links gets a number of its own. Head and tail are -1 for links of NICs and unknown links.
    leaves = np.array([links.switch.get(leaf, switches + n) for n, leaf in enumerate(numbers.leaves)], np.int64)
    src, dst = leaves[numbers.src[subflows.flow]], leaves[numbers.dst[subflows.flow]]
    tail, head = np.full((2, len(links.number) + 1), -1)
    tail[links.fabric], head[links.fabric] = links.tail, links.head
    ends = np.cumsum(subflows.length)
    crossing = subflows.length > 0
    # Each path must begin at its source's switch, and every further link where the previous one ends.
    reached = np.concatenate([[-1], head[subflows.links]])[: len(subflows.links)]
    reached[(ends - subflows.length)[crossing]] = src[crossing]
    broken = (tail[subflows.links] != reached) | (tail[subflows.links] < 0)
    last = src.copy()
    last[crossing] = head[subflows.links[(ends - 1)[crossing]]]
    off = last != dst
    off[np.repeat(np.arange(len(off)), subflows.length)[broken]] = True
    # Lengths are checked once per pair of switches.
    kinds = (subflows.length * len(leaves) + numbers.src[subflows.flow]) * len(leaves) + numbers.dst[subflows.flow]
    _, first, kind = np.unique(kinds, return_index=True, return_inverse=True)
    those = [problem.flows[flow] for flow in subflows.flow[first].tolist()]
    shortest = [
        problem.paths.is_shortest(length, flow.src_leaf, flow.dst_leaf)
        for length, flow in zip(subflows.length[first].tolist(), those, strict=True)
    ]
    off |= ~np.array(shortest, bool)[kind] & ~_is_detour(problem, subflows)
    found = np.zeros(len(problem.flows), bool)
    found[subflows.flow[off]] = True
    return found


def _is_detour(problem: Problem, subflows: _Subflows) -> NDArray[np.bool_]:
    found = np.zeros(len(subflows.flow), bool)
    if not problem.paths.stretch:
        return found
    links, ends = tuple(problem.links.number), np.cumsum(subflows.length)
    for subflow, (flow, length, end) in enumerate(
        zip(subflows.flow.tolist(), subflows.length.tolist(), ends.tolist(), strict=True)
    ):
        path = tuple(links[link] for link in subflows.links[end - length : end].tolist() if link >= 0)
        of = problem.flows[flow]
        found[subflow] = problem.paths.is_detour(path, of.src_leaf, of.dst_leaf)
    return found


def _slowdowns(problem: Problem, plan: Plan, routes: Sequence[Route | None], subflows: _Subflows) -> Iterator[str]:
    numbers = problem.numbers
    routed = np.array([route is not None for route in routes], bool)
    jobs = [numbers.job_ids[job] for job in distinct(numbers.job[routed])[0].tolist()]
    for claimed in (plan.job_slowdown, plan.own_slowdown):
        if set(jobs) != set(claimed):
            yield f"the plan has slowdowns for {sorted(claimed)}, but routes flows of {jobs}"
            return
    # One row per link that a subflow passes, including links of NICs. Each row is then repeated per phase of its flow.
    own = np.flatnonzero(routed)
    link = np.concatenate([numbers.nics[own].ravel(), subflows.links])
    of_flow = np.concatenate([np.repeat(own, 2), np.repeat(subflows.flow, subflows.length)])
    share = np.concatenate([np.ones(2 * len(own)), np.repeat(subflows.share, subflows.length)])
    row, entry = numbers.entries_of(of_flow)
    # Bit/s of each job on each link in each phase; the largest over the phases; the sum over the jobs on each link.
    cells = max(1, len(numbers.cell_job))
    keys, key = distinct(link[row] * cells + numbers.entry_cell[entry])
    bps = np.bincount(key, numbers.entry_bps[entry] * share[row], len(keys))
    count = len(numbers.job_ids)
    pairs, pair = distinct(keys // cells * count + numbers.cell_job[keys % cells])
    peaks_bps = np.zeros(len(pairs))
    np.maximum.at(peaks_bps, pair, bps)
    loads = np.bincount(pairs // count, peaks_bps, len(numbers.capacity_bps)) / numbers.capacity_bps
    shares = problem.phase_share
    if shares is None:
        there = np.flatnonzero(peaks_bps > 0)
        link, of_job = np.divmod(pairs[there], count)
        seen, alone = loads[link], peaks_bps[there] / numbers.capacity_bps[link]
        slowdowns, own_slowdowns = _largest(of_job, seen, count), _largest(of_job, alone, count)
    else:
        # A phase sees its own bit/s instead of those of its job's largest phase.
        link, cell = np.divmod(keys, cells)
        alone = bps / numbers.capacity_bps[link]
        seen = loads[link] - peaks_bps[pair] / numbers.capacity_bps[link] + alone
        slowdowns, own_slowdowns = (
            np.maximum(1.0, np.bincount(numbers.cell_job, shares * _largest(cell, load, len(shares)), count))
            for load in (seen, alone)
        )
    for what, found, claimed in (
        ("slowdown", slowdowns, plan.job_slowdown),
        ("own slowdown", own_slowdowns, plan.own_slowdown),
    ):
        for job, slowdown in zip(numbers.job_ids, found.tolist(), strict=True):
            if job in claimed and not math.isclose(slowdown, claimed[job], rel_tol=_ROUNDING):
                yield f"job {job} has {what} {slowdown:.6g}, but the plan claims {claimed[job]:.6g}"


def _largest(of: NDArray[np.int64], loads: Floats, count: int) -> Floats:
    """Return the largest load of each number from 0 to ``count`` - 1, and at least 1."""
    largest = np.ones(count)
    np.maximum.at(largest, of, loads)
    return largest


def _moves(problem: Problem, plan: Plan, routes: Sequence[Route | None], max_moves: int | None) -> Iterator[str]:
    left = [
        flow.current if route is not None and route != flow.current else None
        for flow, route in zip(problem.flows, routes, strict=True)
    ]
    moves = len(left) - left.count(None)
    if moves:
        moves -= int(_off_paths(problem, _Subflows(problem, left)).sum())
    if moves != plan.moves:
        yield f"the plan moves {moves} flows, but claims {plan.moves}"
    if max_moves is not None and moves > max_moves:
        yield f"the plan moves {moves} flows, at most {max_moves} may be moved"


def _certificate(plan: Plan) -> Iterator[str]:
    slowdowns = sorted(plan.job_slowdown.values(), reverse=True)
    worst = slowdowns[0] if slowdowns else 1.0
    if not 1.0 <= plan.bound <= worst * (1 + _ROUNDING):
        yield f"the bound {plan.bound:.6g} is not between 1 and the worst slowdown {worst:.6g}"
    if not 1.0 <= plan.fluid_bound <= plan.bound * (1 + _ROUNDING):
        yield f"the fluid bound {plan.fluid_bound:.6g} is not between 1 and the bound {plan.bound:.6g}"
    if plan.integer_bound < plan.bound * (1 - _ROUNDING):
        yield f"the bound of whole flows {plan.integer_bound:.6g} is below the bound {plan.bound:.6g}"
    if not 0 <= plan.slowdowns_proven <= len(slowdowns):
        yield f"the plan claims {plan.slowdowns_proven} proven slowdowns, but has {len(slowdowns)}"
    if plan.slowdowns_proven and worst > plan.bound * (1 + _SAME_SLOWDOWN):
        yield f"the plan claims that its worst slowdown {worst:.6g} is proven, but the bound is {plan.bound:.6g}"
    if (plan.certificate == "optimal") != (plan.slowdowns_proven == len(slowdowns)):
        proven = f"{plan.slowdowns_proven} of {len(slowdowns)} slowdowns proven"
        yield f"the certificate is '{plan.certificate}' with {proven}"
    if plan.slowdowns_proven_listed and not plan.slowdowns_proven < plan.slowdowns_proven_listed <= len(slowdowns):
        proven = f"{plan.slowdowns_proven_listed} proven slowdowns over candidates"
        yield f"the plan claims {proven}, not {plan.slowdowns_proven + 1} to {len(slowdowns)}"
    if (plan.slowdowns_proven_listed > 0) != (plan.candidates_listed > 0):
        proven = f"{plan.slowdowns_proven_listed} proven slowdowns over candidates"
        yield f"the plan claims {proven}, with {plan.candidates_listed} candidates per pair"
    if plan.ecmp and min(plan.ecmp.mean, plan.ecmp.p95) < 1:
        yield f"ECMP's slowdowns {plan.ecmp.mean:.6g} and {plan.ecmp.p95:.6g} are below 1"
