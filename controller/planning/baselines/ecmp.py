"""ECMP: what hashing makes of the same flows, over seeded draws.

At every switch a flow takes one of the equal-cost next hops with equal probability, independently of all others: so a
path has the product over its switches of 1 / (next hops there). With capped candidates the hash is modelled over the
candidates. In: a ``Problem``, and the flows that are pinned. Out: levels, as ``efficiency`` defines them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.fabric.topology import Dpid, LinkId, Path
from controller.jobs.spec import JobId
from controller.planning.efficiency import job_levels
from controller.planning.plan import EcmpLevel
from controller.planning.problem import Flow, FlowId, Problem

_CHUNK = 2_000_000
"""Draws x flows x hops that are worked on at once."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def ecmp_level(problem: Problem, draws: int, seed: int) -> EcmpLevel:
    """Mean and 95th percentile of the worst job level when every routable flow is hashed; 1 without flows."""
    _, levels = _draw_levels(problem, {}, draws, seed)
    if not levels.size:
        return EcmpLevel(1.0, 1.0)
    worst = levels.max(axis=1)
    return EcmpLevel(float(worst.mean()), float(np.percentile(worst, 95)))


def ecmp_job_levels(
    problem: Problem, pinned: Mapping[FlowId, Path | None], draws: int, seed: int
) -> dict[JobId, float]:
    """Expected level of every job with a routable flow: flows in ``pinned`` are on their paths, the others (missing,
    None, or on a path with a link that has gone) are hashed. Exact when every flow is pinned."""
    if all(_pin(problem, pinned, flow) is not None for flow in problem.flows):
        return job_levels(problem, pinned)
    jobs, levels = _draw_levels(problem, pinned, draws, seed)
    return {job: float(level) for job, level in zip(jobs, levels.mean(axis=0), strict=True)}


@dataclass(frozen=True, slots=True)
class _Choices:
    """Paths that flows draw from, flattened: flows of table t draw a row in (t, t+1] of ``cumulative``.

    ``links``: shape (paths, longest path), filled up with the index of a link of endless capacity. ``table``, ``last``:
    per flow its table, and the last row of it (t + 0.999... may round to t + 1).
    """

    links: Ints
    cumulative: Floats
    table: Ints
    last: Ints


def _draw_levels(
    problem: Problem, pinned: Mapping[FlowId, Path | None], draws: int, seed: int
) -> tuple[list[JobId], Floats]:
    """Jobs, and their levels: shape (draws, jobs)."""
    flows = [
        f for f in problem.flows if f.demand_bps and (problem.candidates(f) or _pin(problem, pinned, f) is not None)
    ]
    jobs = sorted({flow.job_id for flow in flows})
    if not flows:
        return [], np.ones((draws, 0))
    index = {link: i for i, link in enumerate(problem.capacity_bps)}
    capacity = np.array([*problem.capacity_bps.values(), np.inf])
    choices = _choices(problem, flows, pinned, index)
    nics = np.array([[index[link] for link in flow.nic_links] for flow in flows])
    entries = [(i, jobs.index(f.job_id), phase, bps) for i, f in enumerate(flows) for phase, bps in f.demand_bps]
    of_flow, of_job, phases = (np.array([entry[k] for entry in entries]) for k in range(3))
    of_phase = np.unique(phases, return_inverse=True)[1]
    bps = np.array([entry[3] for entry in entries])
    cell = of_job * (int(of_phase.max()) + 1) + of_phase

    rng = np.random.default_rng(seed)
    per_chunk = max(1, _CHUNK // (len(entries) * (choices.links.shape[1] + 2)))
    levels = []
    for first in range(0, draws, per_chunk):
        size = min(per_chunk, draws - first)
        rows = np.searchsorted(choices.cumulative, choices.table + rng.random((size, len(flows))), side="right")
        rows = np.minimum(rows, choices.last)
        links = np.concatenate([choices.links[rows], np.broadcast_to(nics, (size, *nics.shape))], axis=2)
        levels.append(_levels(links[:, of_flow], cell, bps, of_job, capacity))
    return jobs, np.concatenate(levels)


def _levels(links: Ints, cell: Ints, bps: Floats, of_job: Ints, capacity: Floats) -> Floats:
    """Job levels, shape (draws, jobs). ``links``: (draws, entries, hops); ``cell``: (job, phase) of an entry, numbered.

    Sums per (link, job, phase), then the largest phase per (link, job), the sum per link, the largest link per job.
    """
    cells = int(cell.max()) + 1
    codes, place = np.unique(links * cells + cell[None, :, None], return_inverse=True)
    draws = np.arange(links.shape[0])[:, None, None] * len(codes)
    weights = np.broadcast_to(bps[None, :, None], links.shape)
    sums = np.bincount(
        (draws + place.reshape(links.shape)).ravel(), weights=weights.ravel(), minlength=links.shape[0] * len(codes)
    ).reshape(links.shape[0], -1)
    job_of_cell = np.zeros(cells, dtype=np.int64)
    job_of_cell[cell] = of_job
    link, job = codes // cells, job_of_cell[codes % cells]
    starts = np.flatnonzero(np.diff(link, prepend=-1) | np.diff(job, prepend=-1))
    peaks = np.maximum.reduceat(sums, starts, axis=1)
    link, job = link[starts], job[starts]
    starts = np.flatnonzero(np.diff(link, prepend=-1))
    loads = np.add.reduceat(peaks, starts, axis=1) / capacity[link[starts]]
    on_link = np.cumsum(np.diff(link, prepend=-1) != 0) - 1
    seen = np.where(peaks > 0, loads[:, on_link], 1.0)
    order = np.argsort(job, kind="stable")
    starts = np.flatnonzero(np.diff(job[order], prepend=-1))
    result: Floats = np.maximum(np.maximum.reduceat(seen[:, order], starts, axis=1), 1.0)
    return result


def _choices(
    problem: Problem, flows: Sequence[Flow], pinned: Mapping[FlowId, Path | None], index: Mapping[LinkId, int]
) -> _Choices:
    tables: dict[tuple[Path, ...] | tuple[Dpid, Dpid], int] = {}
    paths: list[Path] = []
    cumulative: list[Floats] = []
    table = []
    for flow in flows:
        path = _pin(problem, pinned, flow)
        key = (flow.src_leaf, flow.dst_leaf) if path is None else (path,)
        if key not in tables:
            options = problem.candidates(flow) if path is None else (path,)
            share = np.cumsum(_probabilities(options))
            cumulative.append(len(tables) + share / share[-1])
            tables[key] = len(tables)
            paths += options
        table.append(tables[key])
    longest = max(map(len, paths))
    links = [[index[link] for link in path] + [len(index)] * (longest - len(path)) for path in paths]
    last = np.cumsum([len(shares) for shares in cumulative]) - 1
    return _Choices(
        links=np.array(links, dtype=np.int64).reshape(len(paths), longest),
        cumulative=np.concatenate(cumulative),
        table=np.array(table),
        last=last[table],
    )


def _probabilities(paths: Sequence[Path]) -> list[float]:
    hops: defaultdict[Dpid, set[LinkId]] = defaultdict(set)
    for path in paths:
        for link in path:
            hops[link.dpid].add(link)
    shares = []
    for path in paths:
        share = 1.0
        for link in path:
            share /= len(hops[link.dpid])
        shares.append(share)
    return shares


def _pin(problem: Problem, pinned: Mapping[FlowId, Path | None], flow: Flow) -> Path | None:
    """The path that the flow is pinned to, if all its links are there."""
    path = pinned.get(flow.id)
    return path if path is not None and all(link in problem.capacity_bps for link in path) else None
