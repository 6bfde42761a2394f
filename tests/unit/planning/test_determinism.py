"""The same input gives the same plan in every process, for any seed of Python's string hashing."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys

from controller.planning import transition
from controller.planning.problem import PlanLimits, Problem, whole
from tests.support.planning.fabrics import fabric_of, flow, leaf_spine, pinned, problem_of, ring
from tests.support.planning.plans import planned

LIMITS = PlanLimits(time_limit_s=1, deterministic=True, ecmp_draws=8)


def dealt(without: list[tuple[int, int]]) -> Problem:
    """Return a problem for local search: four rings over all hosts of six leaves, in random order."""
    places = [(leaf, host) for leaf in range(1, 7) for host in range(1, 7)]
    random.Random(1).shuffle(places)
    flows = [f for job in range(4) for f in ring(f"job{job}", places[job::4], 1.0)]
    return problem_of(leaf_spine(6, 6, 1.0, without=without), flows, nic_bps=1.0)


def packed() -> Problem:
    """Return a problem for CP-SAT: sizes and links of all kinds, where no closed form meets a bound."""
    rng = random.Random(9)
    fabric = fabric_of((leaf, spine, rng.choice([5.0, 7.0, 8.0])) for leaf in (1, 2, 3) for spine in (101, 102, 103))
    flows = [flow(rng.choice("ab"), (1 + h % 2, h), (3, h), rng.choice([2.0, 3.0, 4.0, 5.0])) for h in range(9)]
    return problem_of(fabric, flows, nic_bps=40.0)


def digest() -> str:
    """Return a digest of three plans without their times, and of the link order in the model that chooses moves.

    The second plan begins from the first, which loses a cable. The order matters because routes follow from it when the
    budget ends the search."""
    problem = dealt([])
    first = planned(problem, LIMITS)
    answers = [first, planned(pinned(dealt([(2, 3)]), first.routes), LIMITS), planned(packed(), LIMITS)]
    assert [answer.solver for answer in answers] == ["edge-coloring", "local-search", "cpsat"]
    described = [
        (sorted(answer.routes.items()), sorted(answer.job_slowdown.items()), answer.bound, answer.moves, answer.solver)
        for answer in answers
    ]
    crowded = {f.id: whole(problem.candidates(f)[0]) for f in problem.flows}
    links = list(transition._Model(problem, crowded, first.routes, LIMITS)._links)
    return hashlib.sha256(repr((described, links)).encode()).hexdigest()


def test_plans_do_not_depend_on_the_hash_seed() -> None:
    found = set()
    for seed in ("0", "1"):
        command = [sys.executable, "-c", f"from {__name__} import digest; print(digest())"]
        result = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True)
        found.add(result.stdout.decode().strip())
    assert found == {digest()}
