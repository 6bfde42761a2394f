"""Benchmark ``judge``: checks of every claim of plans for random instances, made by an independent solver.

The solver shares no code with the controller. ``instances`` makes the instances, each from a seed, and ``verdicts``
judges the plans. No claim may be refuted. Every verdict is saved as a line of JSON in a file, and a run continues where
the previous one ended.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.judge.adapter import answer, disturbed
from benchmarks.judge.exact import Exact
from benchmarks.judge.instances import KINDS, MIXED, Instance, generate
from benchmarks.judge.verdicts import SOLVE_S, Judge
from benchmarks.measures import report
from controller.planning.problem import PlanLimits
from signalbox.words import Objective

Record = dict[str, Any]


class Records:
    """Records in a file, one line of JSON each. ``known``: records by name; of several with one name, the last."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.known: dict[str, Record] = {}
        if file.exists():
            whole = file.read_text(encoding="utf-8").rpartition("\n")[0]
            for line in filter(None, whole.split("\n")):
                record = json.loads(line)
                self.known[record["name"]] = record
            file.write_text(f"{whole}\n" if whole else "", encoding="utf-8")

    def add(self, record: Record) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        self.known[record["name"]] = record

    def fill(self, names: Iterable[str], judged: Callable[[str], Record], within_s: float) -> int:
        """Add missing records of ``names`` for up to ``within_s`` seconds, and return how many are still missing."""
        left = [name for name in names if name not in self.known]
        deadline = time.monotonic() + within_s
        while left and time.monotonic() < deadline:
            self.add(judged(left.pop(0)))
        return len(left)


MAX_SUBFLOWS = (1, 2, 3, 8)
"""Numbers of subflows that a flow may have. Each instance is planned with each of them, and with ``MIXED``."""
_NEAR = 0.01
_SAME = 1e-4
_MOST_SHOWN = 30
_WITHIN_LIMIT = 1.2

Within = Annotated[
    float, typer.Option("--seconds", min=1, metavar="S", help="Seconds after which no further case begins.")
]


def main(
    instances: Annotated[int, typer.Option(min=1, metavar="N", help="Number of instances, from --first on.")] = 2000,
    first: Annotated[int, typer.Option(min=0, metavar="SEED", help="First seed.")] = 0,
    seconds: Within = math.inf,
    time_limit: Annotated[float, typer.Option(min=0.01, metavar="S", help="Seconds that the solver may take.")] = 2.0,
    objective: Annotated[Objective, typer.Option(help="Slowdown that is judged.")] = Objective.ITERATION,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File of verdicts; new ones are added.")] = Path(
        "out/bench/judge.jsonl"
    ),
    instance: Annotated[
        int | None, typer.Option("--instance", metavar="SEED", help="Print this instance as JSON, and do nothing else.")
    ] = None,
) -> None:
    """Plan random instances of up to 24 flows, and look for routings that refute what the plans claim."""
    if instance is not None:
        typer.echo(json.dumps(generate(instance).as_json()))
        return
    limits = PlanLimits(time_limit_s=time_limit, ecmp_draws=0)
    made = {f"by {objective}, {name_of(seed)}": seed for seed in range(first, first + instances)}
    records = Records(out)
    left = records.fill(made, lambda name: judged(name, generate(made[name]), objective, limits), seconds)
    found = [records.known[name] for name in made if name in records.known]
    data = summary(found, left, time_limit)
    named = (
        *("refuted", "faults", "worse_than_with_fewer_subflows", "not_optimal", "lower_slowdowns_are_possible"),
        "optimal_with_a_weak_bound",
    )
    show_verdicts(data, out.with_suffix(".summary.json"), "random instances", named)


def name_of(seed: int) -> str:
    return f"{tuple(KINDS)[seed % len(KINDS)]} {seed}"


def judged(name: str, instance: Instance, objective: Objective, limits: PlanLimits) -> Record:
    exact = Exact(instance, objective is Objective.ITERATION)
    judge = Judge(exact, SOLVE_S)
    verdicts = [judge.of(answer(instance, max_subflows, limits, objective)) for max_subflows in MAX_SUBFLOWS]
    verdicts.append(Judge(exact, SOLVE_S).of(answer(instance, MIXED, limits, objective)))
    return {
        "name": name,
        "flows": len(exact.flows),
        "jobs": len(exact.jobs),
        "phases": len({(flow.job, phase) for flow in exact.flows for phase in flow.demand}),
        "plans": [verdict.as_json() for verdict in verdicts],
    }


Line = dict[str, int | float | str]


def summary(found: Sequence[Record], left: int, limit_s: float) -> dict[str, Any]:
    """Return the verdicts by kind of fabric and number of subflows. Times are CPU times.

    - ``not decided in time``: number of optima and proven slowdowns that HiGHS could not decide.
    - ``all optima known``: number of plans for which the smallest possible slowdown of every job is known.
    - ``of these, every slowdown within 1 %``: share of these plans in which no slowdown exceeds the smallest possible
      one by more than 1 %, compared in sorted order.
    - ``optimal, bound over 1 % lower``: number of optimal plans that prove only a bound more than 1 % below the
      optimum.
    - ``without enough CPU time``: number of plans that other processes disturbed in every try."""
    rows: dict[tuple[str, int], list[Record]] = {}
    for record in found:
        for plan in record["plans"]:
            for kind in (record["name"].rpartition(" ")[0], "all"):
                rows.setdefault((kind, plan["max_subflows"]), []).append(plan)
    return {
        "judged": len(found),
        "left": left,
        "rows": [_line(kind, max_subflows, rows[kind, max_subflows], limit_s) for kind, max_subflows in sorted(rows)],
        "refuted": _named(found, "refuted"),
        "faults": _named(found, "faults"),
        "worse_than_with_fewer_subflows": _named(found, "worse"),
        "not_optimal": [
            f"{_of(record, plan)}: slowdown {plan['slowdown']:.6g}, {plan['optimum']:.6g} is possible"
            for plan, record in sorted(
                ((plan, record) for record in found for plan in record["plans"] if plan["gap"] > _SAME),
                key=lambda of: -of[0]["gap"],
            )
        ],
        "lower_slowdowns_are_possible": [
            f"{_of(record, plan)}: slowdowns {_shown(plan['vector'])}, {_shown(plan['best_vector'])} are possible"
            for plan, record in sorted(
                ((plan, record) for record in found for plan in record["plans"] if (plan["vector_gap"] or 0) > _NEAR),
                key=lambda of: -of[0]["vector_gap"],
            )
        ],
        "optimal_with_a_weak_bound": [
            f"{_of(record, plan)}: optimum {plan['slowdown']:.6g}, "
            f"the plan's bound {plan['bound']:.6g}, {plan['solver']}"
            for record in found
            for plan in record["plans"]
            if _is_weak(plan)
        ],
    }


def _of(record: Record, plan: Record) -> str:
    return f"{record['name']}, {plan['max_subflows'] or 'mixed'} subflows"


def _is_weak(plan: Record) -> bool:
    """Return whether the plan is optimal, but proves only a bound that is more than 1 % lower."""
    return bool(plan["decided"] and plan["gap"] <= _SAME and plan["slowdown"] > plan["bound"] * (1 + _NEAR))


def _shown(slowdowns: Sequence[float]) -> str:
    return " ".join(f"{slowdown:.4g}" for slowdown in slowdowns)


def _line(kind: str, max_subflows: int, plans: list[Record], limit_s: float) -> Line:
    def count(holds: Callable[[Record], bool]) -> int:
        return sum(map(holds, plans))

    vectors = [plan["vector_gap"] for plan in plans if plan["vector_gap"] is not None]
    return {
        "fabric": kind,
        "max_subflows": max_subflows or "mixed",
        "plans": len(plans),
        "refuted": count(lambda plan: bool(plan["refuted"])),
        "faults": count(lambda plan: bool(plan["faults"])),
        "worse than with fewer subflows": count(lambda plan: bool(plan["worse"])),
        "optimal": count(lambda plan: plan["gap"] <= _SAME),
        "within 1 % of the optimum": count(lambda plan: plan["gap"] <= _NEAR),
        "largest gap to the optimum": f"{max(plan['gap'] for plan in plans):.2%}",
        "optimal, bound over 1 % lower": count(_is_weak),
        "all optima known": len(vectors),
        "of these, every slowdown within 1 %": f"{sum(gap <= _NEAR for gap in vectors) / max(1, len(vectors)):.1%}",
        "all slowdowns proven": count(lambda plan: plan["certificate"] == "optimal"),
        "slowdowns proven": sum(plan["jobs_proven"] for plan in plans),
        "not decided in time": count(lambda plan: not plan["decided"]) + sum(plan["undecided"] for plan in plans),
        "over the time limit": count(lambda plan: plan["cpu_s"] > _WITHIN_LIMIT * limit_s),
        "without enough CPU time": count(lambda plan: disturbed(plan["wall_s"], plan["cpu_s"], limit_s)),
        "CPU s of the longest": f"{max(plan['cpu_s'] for plan in plans):.2f}",
        "CPU s of all": f"{sum(plan['cpu_s'] for plan in plans):.0f}",
    }


def _named(found: Iterable[Record], what: str) -> list[str]:
    return [f"{_of(record, plan)}: {text}" for record in found for plan in record["plans"] for text in plan[what]]


def show_verdicts(data: dict[str, Any], file: Path, title: str, named: Sequence[str]) -> None:
    """Print the table of verdicts, and the first entries of each list in ``named``. ``file``: see ``report``."""
    lists = ((f"{what.replace('_', ' ')}: {len(data[what])}", *data[what][:_MOST_SHOWN]) for what in named)
    said = f"{data['judged']} judged, {data['left']} left for another run"
    report(data, file, {title: data["rows"]}, *chain.from_iterable(lists), said)
