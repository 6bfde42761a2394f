"""Snapshots made from problems."""

from __future__ import annotations

from itertools import groupby

from controller.planning.plan import NO_ROUTES
from controller.planning.problem import Problem, Routes
from controller.planning.snapshot import Snapshot


def snapshot_of(problem: Problem, generation: int, routes: Routes = NO_ROUTES) -> Snapshot:
    """Return the snapshot of a problem that has no running routes."""
    flows = {job_id: tuple(flows) for job_id, flows in groupby(problem.flows, lambda flow: flow.job_id)}
    return Snapshot(generation, problem.capacity_bps, problem.paths, flows, routes)
