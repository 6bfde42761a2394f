"""How long plans on fat-trees take, from the jobs to a checked plan, and the levels they reach; no network, no root.

In: fat-trees with a ring per job over all hosts in random order; where cores have failed, every flow is between two
pods. Out: a table, medians of several runs after one that is not counted, and ``out/bench/fat-trees.json``; ``--json``
prints that instead.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.progress import track

from benchmarks.measures import report, table_of
from benchmarks.plan.measure import undisturbed
from controller.fabric.topology import Fabric
from controller.planning.plan import answered
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits
from offline.scenarios.fabrics import fat_tree, spine_links, without
from offline.scenarios.generator import jobs_of, ring_lines
from offline.scenarios.scenario import problem_of
from offline.scenarios.workload_job import WorkloadJob
from offline.scenarios.workloads import Numbering
from signalbox.commands.output import AsJson

Row = dict[str, str | float]

RUNS = 5
SEED = 1
LINK_BPS = 100e9
STEP_BYTES = 1 << 20
RESULTS = Path("out/bench/fat-trees.json")


class Case(NamedTuple):
    """``arity``: as many pods, and jobs; ``dead``: cores by number; ``pieces``: of a flow, at most."""

    arity: int
    dead: tuple[int, ...] = ()
    pieces: int = 1


CASES = (
    Case(8),
    Case(16),
    Case(32),
    Case(8, (15,), 3),
    Case(8, (12, 13, 14, 15), 3),
    Case(8, (3, 7, 11, 15), 3),
    Case(8, (11, 13, 14, 15), 3),
    Case(16, (63,), 3),
    Case(16, (39, 47, 55, 63), 3),
    Case(32, (255,), 3),
)


def measured(case: Case) -> Row:
    """Raises ``SignalboxError`` when there is no plan."""
    fabric = fat_tree(case.arity, LINK_BPS, LINK_BPS)
    jobs = rings(fabric, case)
    fabric = without(fabric, spine_links(fabric, case.dead))
    runs = [_run(fabric, jobs) for _ in range(1 + RUNS)]
    return runs[0] | {key: median(float(run[key]) for run in runs[1:]) for key in runs[0] if key.endswith("_ms")}


def rings(fabric: Fabric, case: Case) -> tuple[WorkloadJob, ...]:
    """A ring per job; every host is in one. The order is random, except that where cores have failed a host is changed
    for another one until no two neighbours are in one pod."""
    numbering = Numbering(fabric)
    hosts = list(range(len(numbering.ips)))
    rng = random.Random(SEED)
    rng.shuffle(hosts)
    size = len(hosts) // case.arity
    after = [at - at % size + (at + 1) % size for at in range(len(hosts))]

    def together(at: int) -> bool:
        """In a fat-tree a pod has as many hosts as there are in all, / arity; as many as a ring."""
        return hosts[at] // size == hosts[after[at]] // size

    while case.dead and any(map(together, range(len(hosts)))):
        for at in filter(together, range(len(hosts))):
            other = rng.randrange(len(hosts))
            hosts[at], hosts[other] = hosts[other], hosts[at]
    first = numbering.first_host
    lines = {
        f"job_{job}-random": ring_lines(
            [first + host for host in hosts[job * size : (job + 1) * size]], 0, 0, STEP_BYTES, 0, numbering
        )
        for job in range(case.arity)
    }
    return jobs_of(lines, fabric, case.pieces)


def _run(fabric: Fabric, jobs: tuple[WorkloadJob, ...]) -> Row:
    with undisturbed():
        cpu, began = time.process_time(), time.perf_counter()
        problem = problem_of(fabric, jobs)
        taken = time.perf_counter()
        answer = answered(plan(problem, PlanLimits(ecmp_draws=0)))
        done, cpu = time.perf_counter(), time.process_time() - cpu
    pieces = list(map(len, answer.routes.values()))
    return {
        "flows": len(problem.flows),
        "level": answer.max_level,
        "bound": answer.bound,
        "certificate": answer.certificate,
        "pieces": sum(pieces) / len(pieces),
        "most_pieces": max(pieces),
        "snapshot_ms": 1000 * (taken - began),
        "build_ms": answer.times.build_ms,
        "solve_ms": answer.times.solve_ms,
        "check_ms": answer.times.check_ms,
        "total_ms": 1000 * (done - began),
        "cpu_ms": 1000 * cpu,
    }


def main(as_json: AsJson = False) -> None:
    """Measure planning on fat-trees."""
    rows: list[Row] = []
    for case in track(CASES, "measuring", console=Console(stderr=True), transient=True):
        dead = ",".join(map(str, case.dead)) or "none"
        what: Row = {"arity": case.arity, "dead": dead, "up to": case.pieces}
        rows.append(what | measured(case))
    report({"runs": RUNS, "plans": rows}, RESULTS, lambda: table_of("fat-trees", rows), as_json)
