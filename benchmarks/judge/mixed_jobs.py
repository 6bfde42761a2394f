"""Benchmark ``mixes``: slowdowns of plans for jobs with several phases and unequal bytes, against independent methods.

The methods depend on the number of subflows, and share no code with the controller:

- one: an annealer of whole flows;
- two: an annealer of flows in two equal pieces;
- more: the fluid optimum, for flows that may be split at will.

The methods minimise the worst slowdown by the slowest phase. With the objective "iteration", the slowdown of their
routes over iterations is compared, which may not be the smallest one.

Every case (``mixes.CASES``) is also planned in a tenth of the time, which must not give a better plan. Every verdict is
saved in a file, and a run continues where the previous one ended. The results of the other methods are saved in a
second file, so that a run of a changed planner takes only the planner's time.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from benchmarks.judge import adapter, programme
from benchmarks.judge.annealer import annealed
from benchmarks.judge.command import Line, Record, Records, Within, show_verdicts
from benchmarks.judge.exact import Exact
from benchmarks.judge.instances import Instance
from benchmarks.judge.mixes import CASES, instance_for
from benchmarks.judge.processor_time import processor_time
from benchmarks.judge.verdicts import SOLVE_S, Judge
from controller.planning.problem import PlanLimits
from signalbox.words import Objective

_ANNEALED = (1, 2)
"""Numbers of subflows for which the annealer is the other method."""
_LONGER = 10
"""Time that the annealer gets, relative to the planner's time limit."""
_SHORT = 0.1
"""Time limit of the short plan, relative to the planner's time limit."""
_FLUID_S = 10 * SOLVE_S
"""Time limit of the fluid optimum."""
_SAME, _NEAR = 1e-4, 0.01
_ROUNDING = 1e-7
"""Relative error of the other methods' slowdowns."""


def main(
    only: Annotated[str, typer.Option(metavar="TEXT", help="Plan only cases whose name contains TEXT.")] = "",
    most_flows: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Plan only cases with at most N flows.", show_default="all")
    ] = None,
    subflows: Annotated[str, typer.Option(metavar="N,…", help="Numbers of subflows, ascending.")] = "1,2,8",
    seconds: Within = math.inf,
    time_limit: Annotated[float, typer.Option(min=0.01, metavar="S", help="Seconds that the solver may take.")] = 2.0,
    anneal: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="S",
            help="Time limit of the annealer in seconds; 0 to compare with no other method.",
            show_default="10 limits",
        ),
    ] = None,
    objective: Annotated[Objective, typer.Option(help="Slowdown that is planned and judged.")] = Objective.ITERATION,
    busy: Annotated[
        bool, typer.Option("--busy", help="Count processor time, because other programs use the machine.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File of verdicts; new ones are added.")] = Path(
        "out/bench/mixes.jsonl"
    ),
) -> None:
    """Plan jobs with several phases and unequal bytes, whole and split, and compare with independent methods."""
    limits = PlanLimits(time_limit_s=time_limit, ecmp_draws=0)
    counts = [int(text) for text in subflows.split(",")]
    anneal_s = _LONGER * time_limit if anneal is None else anneal
    names = {
        f"by {objective}, {name}": name
        for name in CASES
        if only in name and (most_flows is None or flows_of(name) <= most_flows)
    }
    records, judges = Records(out), Records(out.with_suffix(".judges.jsonl"))
    with processor_time() if busy else nullcontext():
        left = records.fill(
            names, lambda name: judged(name, names[name], objective, counts, limits, anneal_s, judges), seconds
        )
    data = summary([records.known[name] for name in names if name in records.known], left)
    show_verdicts(data, out.with_suffix(".summary.json"), "mixes by number of subflows", ("wrong", "worse", "not_near"))


def flows_of(name: str) -> int:
    return len({send[:3] for send in instance_for(CASES[name]).sends})


def judged(
    name: str,
    case: str,
    objective: Objective,
    counts: Sequence[int],
    limits: PlanLimits,
    anneal_s: float,
    judges: Records,
) -> Record:
    """Return the record of a case. ``judges``: results of the other methods, by record and method."""
    instance = instance_for(CASES[case])
    exact = Exact(instance, objective is Objective.ITERATION)
    judge = Judge(exact, SOLVE_S)
    short = replace(limits, time_limit_s=_SHORT * limits.time_limit_s)

    def other(method: str, slowdown: Callable[[], float]) -> float:
        if method not in judges.known:
            judges.add({"name": method, "slowdown": slowdown()})
        return float(judges.known[method]["slowdown"])

    plans = []
    for count in counts:
        soon = adapter.answer(instance, count, short, objective)
        answer = adapter.answer(instance, count, limits, objective)
        verdict = judge.quick(answer)
        slowdown = max(soon.job_slowdown.values(), default=1.0)
        if verdict.slowdown > slowdown * (1 + _SAME):
            verdict.worse.append(f"{verdict.slowdown:.6g} instead of {slowdown:.6g} in a shorter time")
        known = verdict.optimum
        if anneal_s and verdict.gap > _SAME and count > 1:
            fluid = other(f"{name}, fluid", partial(_fluid, exact, instance))
            if fluid < answer.fluid_bound * (1 - _ROUNDING):
                verdict.refuted.append(f"the fluid bound is {answer.fluid_bound:.9g}, but routes reach {fluid:.9g}")
            if math.isfinite(fluid) and (count not in _ANNEALED or objective is Objective.PHASE):
                known = fluid
        if anneal_s and count in _ANNEALED and verdict.slowdown > known * (1 + _SAME):
            known = other(f"{name}, annealed {count}, {anneal_s:g} s", partial(annealed, exact, count, anneal_s))
            if known < verdict.bound * (1 - _ROUNDING):
                verdict.refuted.append(f"the bound is {verdict.bound:.9g}, but the annealer reaches {known:.9g}")
        plans.append(verdict.as_json() | {"judged": known, "soon": slowdown})
    return {"name": name, "flows": len(exact.flows), "plans": plans}


def _fluid(exact: Exact, instance: Instance) -> float:
    """Return the worst slowdown of the routes with the smallest load; infinite if none were found in time."""
    found = programme.fluid(Exact(instance), _FLUID_S)
    return float(exact.vector(found.routing)[0]) if found.routing and found.decided else math.inf


def summary(found: Sequence[Record], left: int) -> dict[str, Any]:
    rows: dict[int, list[Record]] = {}
    for record in found:
        for plan in record["plans"]:
            rows.setdefault(plan["max_subflows"], []).append(plan)
    return {
        "judged": len(found),
        "left": left,
        "rows": [_line(count, plans) for count, plans in sorted(rows.items())],
        "wrong": list(_texts(found, "refuted", "faults")),
        "worse": list(_texts(found, "worse")),
        "not_near": [
            f"{record['name']}, {record['flows']:,} flows, {plan['max_subflows']} subflows: slowdown "
            f"{plan['slowdown']:.6g}, {plan['judged']:.6g} is possible, the plan's bound is {plan['bound']:.6g}, "
            f"{plan['solver']}"
            for record in found
            for plan in record["plans"]
            if _excess(plan) > _NEAR
        ],
    }


def _excess(plan: Record) -> float:
    """Return by how much the plan's slowdown exceeds that of the other method, relatively; 0 if it is smaller."""
    return max(0.0, float(plan["slowdown"] / plan["judged"] - 1))


def _texts(found: Iterable[Record], *kinds: str) -> Iterable[str]:
    for record in found:
        for plan in record["plans"]:
            for kind in kinds:
                yield from (f"{record['name']}, {plan['max_subflows']} subflows: {text}" for text in plan[kind])


def _line(count: int, plans: Sequence[Record]) -> Line:
    stated = [plan["slowdown"] / plan["bound"] - 1 for plan in plans]
    return {
        "max_subflows": count,
        "plans": len(plans),
        "worse": sum(bool(plan["worse"]) for plan in plans),
        "within 1 % of the judge": f"{sum(_excess(plan) <= _NEAR for plan in plans) / len(plans):.1%}",
        "mean above the judge": f"{fmean(map(_excess, plans)):.2%}",
        "largest": f"{max(map(_excess, plans)):.1%}",
        "stated gap within 1 %": f"{sum(gap <= _NEAR for gap in stated) / len(plans):.1%}",
        "mean stated gap": f"{fmean(stated):.1%}",
        "optimal": sum(plan["certificate"] == "optimal" for plan in plans),
        "median s": f"{sorted(plan['wall_s'] for plan in plans)[len(plans) // 2]:.2f}",
        "longest s": f"{max(plan['wall_s'] for plan in plans):.2f}",
    }
