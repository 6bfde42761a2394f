"""The least worst level where the number of pieces is in the way: few flows, on any fabric.

Rounding a fluid optimum to few pieces chooses the paths of one flow after the other. Here a boolean per flow and path
says whether the flow uses it, and a mixed-integer programme chooses all of them together.

In: a problem, the best routing so far. Out: routes with a smaller worst level, within the cap on moves; None where none
were found, the problem is too large, or time was up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from controller.fabric.topology import Path
from controller.planning.efficiency import LEVEL_TOLERANCE
from controller.planning.plan import Draft
from controller.planning.problem import Flow, FlowId, PlanLimits, Problem, Route, Routes, Subflow, whole
from controller.planning.split_flows.programme import Programme

_MOST_COLUMNS = 400
"""Flows times paths."""
_NODES = 2_000
_LEAST_SHARE = 1e-6
_REACHED = 1e-3


def improve(problem: Problem, limits: PlanLimits, best: Draft, proven: Sequence[float]) -> Routes | None:
    """Flows inside a leaf, and those without a path, have no part in it. ``proven``: lower bounds of the sorted levels:
    where ``best`` has reached the first, no number of pieces is in the way."""
    if best.vector[0] <= proven[0] * (1 + _REACHED):
        return None
    if len(problem.numbers.crossing) > _MOST_COLUMNS:
        return None
    flows = [flow for flow in problem.flows if flow.src_leaf != flow.dst_leaf and problem.reachable(flow)]
    columns = [(place, path) for place, flow in enumerate(flows) for path in _paths(problem, flow)]
    if not columns or len(columns) > _MOST_COLUMNS:
        return None
    owner = np.array([place for place, _ in columns])
    programme, numbers = Programme(), np.arange(len(columns))
    level = programme.variables(np.ones(1), np.array([best.vector[0]]))
    share = programme.variables(np.zeros(len(columns)), np.ones(len(columns)))
    used = programme.variables(np.zeros(len(columns)), np.ones(len(columns)), integer=True)
    each = np.ones(len(flows))
    programme.add(programme.constraints(each, each) + owner, share + numbers, np.ones(len(columns)))
    pieces = np.array([flow.max_subflows for flow in flows], np.float64)
    programme.add(programme.constraints(0 * each, pieces) + owner, used + numbers, np.ones(len(columns)))
    only = programme.constraints(np.full(len(columns), -np.inf), np.zeros(len(columns))) + numbers
    programme.add(only, share + numbers, np.ones(len(columns)))
    programme.add(only, used + numbers, np.full(len(columns), -1.0))
    _limit_loads(programme, problem, [(flows[place], path) for place, path in columns], share, level)
    moved = _limit_moves(programme, problem, [(flows[place], path) for place, path in columns], share, limits.max_moves)
    solved = programme.solve(limits.left_s, _NODES)
    if solved is None or solved[0][level] > best.vector[0] * (1 - LEVEL_TOLERANCE):
        return None
    found: defaultdict[FlowId, list[Subflow]] = defaultdict(list)
    for (place, path), part in zip(columns, solved[0][share : share + len(columns)].tolist(), strict=True):
        if part > _LEAST_SHARE:
            found[flows[place].id].append(Subflow(path, part))
    routes: dict[FlowId, Route] = {flow.id: whole(()) for flow in problem.flows if flow.src_leaf == flow.dst_leaf}
    routes |= {flow: _of_one(parts) for flow, parts in found.items()}
    stay = [flow for flow in flows if flow.id in moved and solved[0][moved[flow.id]] < 0.5]
    return routes | {flow.id: flow.current for flow in stay if flow.current}


def _limit_moves(
    programme: Programme, problem: Problem, columns: list[tuple[Flow, Path]], share: int, most: int | None
) -> dict[FlowId, int]:
    """Per running flow the variable that is 1 where it moves; none without a cap on moves."""
    running = list(dict.fromkeys(flow for flow, _ in columns if flow.id in problem.standing))
    if most is None or most >= len(running):
        return {}
    first = programme.variables(np.zeros(len(running)), np.ones(len(running)), integer=True)
    moved = {flow.id: first + number for number, flow in enumerate(running)}
    row = programme.constraints(np.array([-np.inf]), np.array([float(most)]))
    programme.add(np.full(len(running), row), first + np.arange(len(running)), np.ones(len(running)))
    of_running = [
        (share + number, moved[flow.id], dict(flow.current or ()).get(path, 0.0))
        for number, (flow, path) in enumerate(columns)
        if flow.id in moved
    ]
    parts, flags, now = (np.array(column) for column in zip(*of_running, strict=True))
    rows = np.arange(len(parts))
    above = programme.constraints(np.full(len(parts), -np.inf), now) + rows
    below = programme.constraints(now, np.full(len(parts), np.inf)) + rows
    for those, sign in ((above, -1.0), (below, 1.0)):
        programme.add(those, parts, np.ones(len(parts)))
        programme.add(those, flags, np.full(len(parts), sign))
    return moved


def _paths(problem: Problem, flow: Flow) -> list[Path]:
    """The candidates, and the paths that it runs on."""
    running = [path for path, _ in flow.current or ()] if flow.id in problem.standing else []
    return list(dict.fromkeys([*problem.candidates(flow), *running]))


def _limit_loads(
    programme: Programme, problem: Problem, columns: list[tuple[Flow, Path]], share: int, level: int
) -> None:
    """Of a job only its largest phase counts on a link."""
    jobs = dict.fromkeys((link, flow.job_id) for flow, path in columns for link in path)
    links = {link: row for row, link in enumerate(dict.fromkeys(link for link, _ in jobs))}
    peak = programme.variables(np.zeros(len(jobs)), np.full(len(jobs), np.inf))
    peaks = {of: peak + number for number, of in enumerate(jobs)}
    none = np.zeros(len(links))
    within = programme.constraints(np.full(len(links), -np.inf), none) + np.arange(len(links))
    programme.add(within, np.full(len(links), level), np.full(len(links), -1.0))
    programme.add(np.array([within[links[link]] for link, _ in jobs]), peak + np.arange(len(jobs)), np.ones(len(jobs)))
    terms = [
        ((link, flow.job_id, phase), share + number, bps / problem.capacity_bps[link])
        for number, (flow, path) in enumerate(columns)
        for link in path
        for phase, bps in flow.demand_bps
    ]
    cells = {of: row for row, of in enumerate(dict.fromkeys(of for of, *_ in terms))}
    first = programme.constraints(np.full(len(cells), -np.inf), np.zeros(len(cells)))
    rows, parts, loads = zip(*((first + cells[of], part, load) for of, part, load in terms), strict=True)
    programme.add(np.array(rows), np.array(parts), np.array(loads))
    own = np.array([peaks[link, job] for link, job, _ in cells])
    programme.add(first + np.arange(len(cells)), own, np.full(len(cells), -1.0))


def _of_one(parts: list[Subflow]) -> Route:
    total = sum(part.share for part in parts)
    return tuple(Subflow(part.path, part.share / total) for part in parts)
