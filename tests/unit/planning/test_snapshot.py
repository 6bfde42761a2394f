"""Messages to and from the planning process are differences, and no message is large."""

from __future__ import annotations

import pickle
import random

import pytest

from controller.planning import snapshot
from controller.planning.plan import Planned, answered, decided
from controller.planning.planner import repair
from controller.planning.problem import FlowId, Problem, Routes, Timing, whole
from controller.planning.snapshot import (
    NO_SNAPSHOT,
    Snapshot,
    changed,
    changes,
    in_parts,
    in_parts_without_routes,
    with_routes,
)
from controller.shared_map import updated
from signalbox.jobs.spec import JobId
from tests.support.planning.fabrics import leaf_spine, problem_of, ring
from tests.support.planning.plans import snapshot_of

FABRIC = leaf_spine(4, 3)
JOBS = {
    f"job{number}": tuple(ring(f"job{number}", [(leaf, number) for leaf in (1, 2, 3, 4)])) for number in range(1, 30)
}


def a_snapshot(draw: random.Random, before: Snapshot) -> Snapshot:
    """Draw a snapshot with some of the jobs, and with other routes and capacities; share what has not changed."""
    flows = [of for job in draw.sample(sorted(JOBS), draw.randrange(20)) for of in JOBS[job]]
    problem = problem_of(FABRIC, flows)
    cut = problem_of(leaf_spine(4, 3, without=[(draw.randint(1, 4), draw.randint(1, 3))]), flows)
    now = snapshot_of(draw.choice([problem, cut]), before.generation + 1, {})
    routes: Routes = {of.id: whole(draw.choice(problem.candidates(of))) for of in flows if draw.random() < 0.7}
    gone = dict.fromkeys(before.routes.keys() - routes.keys())
    return Snapshot(
        now.generation,
        {link: bps * draw.choice((1.0, 0.9)) for link, bps in now.capacity_bps.items()},
        draw.choice([now.paths, before.paths]) if before.paths.links == now.paths.links else now.paths,
        updated(before.flows, {**dict.fromkeys(before.flows), **now.flows}),
        updated(before.routes, {**routes, **gone}),
        timings={JobId(job): Timing((), draw.randint(1, 2)) for job in draw.sample(sorted(JOBS), draw.randrange(20))},
    )


@pytest.mark.parametrize("many", [1, 7, 1000])
def test_the_parts_of_all_differences_make_the_snapshot(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MANY", many)
    draw = random.Random(many)
    sent = there = NO_SNAPSHOT
    for _ in range(60):
        now = a_snapshot(draw, sent)
        for part in in_parts(changes(sent, now)):
            assert len(part.routes) <= many
            assert sum(len(flows or ()) for flows in part.flows.values()) < many + len(JOBS)
            there = changed(there, pickle.loads(pickle.dumps(part)))
        sent = now
        assert there.generation == now.generation
        assert dict(there.flows) == dict(now.flows)
        assert dict(there.routes) == dict(now.routes)
        assert there.capacity_bps == now.capacity_bps
        assert there.paths.links == now.paths.links
        assert dict(there.timings) == now.timings


def test_routes_come_back_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MANY", 2)
    problem = problem_of(FABRIC, [of for job in ("job1", "job2") for of in JOBS[job]])
    gone = FlowId("10.0.0.1", "10.0.1.1")
    first = problem.flows[0]
    running: Routes = {gone: whole(()), first.id: repaired(problem).plan.routes[first.id]}
    planned = repaired(problem)
    parts, rest = in_parts_without_routes(planned, running)
    assert [len(part) for part in parts] == [2, 2, 2, 2]
    assert not rest.plan.routes
    found = {flow: route for part in parts for flow, route in part.items()}
    assert (found[gone], first.id in found) == (None, False)
    assert with_routes(rest, found, running) == planned


def repaired(problem: Problem) -> Planned:
    return decided(problem, answered(repair(problem)), None)
