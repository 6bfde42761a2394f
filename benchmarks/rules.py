"""Time to compute the rules of every switch and the stages in which they are sent, each ended by a barrier.

Three changes are measured: the full install on empty switches, a cut cable, and the new routes that repair the cut. On
each leaf-spine fabric three jobs of random rings over all hosts are planned. The result is a table of medians of
several runs, and ``out/bench/rules.json``; ``--json`` prints the JSON instead.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import track

from benchmarks.measures import report, table_of
from benchmarks.random_flows import random_flows
from controller.config import Config
from controller.fabric.topology import Dpid, Fabric
from controller.planning.plan import NoPlan
from controller.planning.planner import plan, repair
from controller.planning.problem import PlanLimits, Routes
from controller.tables.pins import Pins, PinSet
from controller.tables.pipeline import Pipeline, PipelineSettings
from controller.tables.rules import RuleSet, stages_between
from offline.scenarios.fabrics import leaf_spine, without
from offline.scenarios.generator import jobs_of
from offline.scenarios.scenario import problem_of
from offline.scenarios.workload_job import WorkloadJob
from signalbox.commands.output import AsJson

Row = dict[str, str | float]

RUNS = 3
JOBS = 3
SEED = 1
LINK_BPS = 100e9
SIZES = ((16, 8, 8), (64, 32, 32))
"""Leaves, spines and hosts per leaf."""
RESULTS = Path("out/bench/rules.json")

SETTINGS = PipelineSettings(Config().discovery.punt_rate_pps, Config().fabric.leaf_prefix_length)


def install_and_cut(fabric: Fabric, jobs: Sequence[WorkloadJob], planned: Routes) -> list[Row]:
    """Return the rows of three changes.

    - full install on empty switches;
    - a cable on planned routes is cut, and the rules still follow ``planned``;
    - flows whose route used the cable have new routes.

    In a row ``plan_ms`` is the time from the cut fabric to the new routes. ``rules`` is the number of rules on the
    switches afterwards, and ``mods`` the number of messages of all stages."""
    pins, pipeline, by_id = Pins(), Pipeline(SETTINGS), {job.id: job for job in jobs}
    empty = {dpid: RuleSet() for dpid in fabric.switches}
    install, held = _change(pipeline, "full install", fabric, pins(fabric, by_id, planned, ()), empty)
    used = next(path[0] for route in planned.values() for path, _ in route if path)
    cut = without(fabric, [used])
    narrowed, held = _change(pipeline, "cable cut", cut, pins(cut, by_id, planned, ()), held)
    started = time.perf_counter()
    repaired = repair(problem_of(cut, jobs).with_routes(planned))
    plan_ms = 1000 * (time.perf_counter() - started)
    if isinstance(repaired, NoPlan):
        raise RuntimeError(repaired.reason)
    moved, _ = _change(pipeline, "routes repaired", cut, pins(cut, by_id, repaired.routes, ()), held, plan_ms)
    return [install, narrowed, moved]


def measured(leaves: int, spines: int, hosts_per_leaf: int) -> list[Row]:
    """Return the rows of all changes on one fabric. Times are medians; the counts are the same in every run.

    Raises ``RuntimeError`` when there is no plan."""
    fabric = leaf_spine(leaves, spines, hosts_per_leaf, LINK_BPS, LINK_BPS)
    jobs = jobs_of(random_flows(fabric, len(fabric.hosts), JOBS, SEED), fabric)
    answer = plan(problem_of(fabric, jobs), PlanLimits(ecmp_draws=0))
    if isinstance(answer, NoPlan):
        raise RuntimeError(answer.reason)
    runs = zip(*(install_and_cut(fabric, jobs, answer.routes) for _ in range(RUNS)), strict=True)
    size = f"{leaves}x{spines}x{hosts_per_leaf}"
    return [
        {"fabric": size}
        | {key: median(r[key] for r in rows) if key.endswith("_ms") else value for key, value in rows[0].items()}
        for rows in runs
    ]


def _change(
    pipeline: Pipeline,
    name: str,
    fabric: Fabric,
    pins: PinSet,
    held: Mapping[Dpid, RuleSet],
    plan_ms: float = 0.0,
) -> tuple[Row, Mapping[Dpid, RuleSet]]:
    started = time.perf_counter()
    desired = pipeline.desired(fabric, pins, held)
    computed = time.perf_counter()
    staged = stages_between(desired, held)
    done = time.perf_counter()
    return {
        "change": name,
        "rules": sum(map(len, desired.values())),
        "stages": len(staged),
        "mods": sum(len(mods) for stage in staged for mods in stage.mods.values()),
        "plan_ms": plan_ms,
        "desired_ms": 1000 * (computed - started),
        "diff_ms": 1000 * (done - computed),
    }, desired


def main(as_json: AsJson = False) -> None:
    """Measure rule computation."""
    sizes = track(SIZES, "measuring", console=Console(stderr=True), transient=True)
    rows = [row for size in sizes for row in measured(*size)]
    report({"runs": RUNS, "rules": rows}, RESULTS, lambda: table_of("rules", rows), as_json)
