"""Benchmark ``workloads``: slowdowns of plans for the published workloads with failures, against the fluid optimum.

The fluid optimum is the smallest worst slowdown if flows may be split at will; it is computed without the controller's
code. The workloads are those in a folder, or generated ones of the same kind. Every verdict is saved in a file, and a
run continues where the previous one ended.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks.judge.adapter import answer, instance_of
from benchmarks.judge.command import Line, Record, Records, Within, show_verdicts
from benchmarks.judge.exact import Exact
from benchmarks.judge.instances import Instance
from benchmarks.judge.verdicts import SOLVE_S, Judge
from benchmarks.measures import chosen
from benchmarks.plan.workloads import Setting, workloads
from controller.planning.problem import PlanLimits

MAX_SUBFLOWS = (1, 2, 4, 8)
SEEDS = 10
FAILURES = ("0 spines", "1 spines", "4 spines", "8 spines", "1 cables", "5 cables", "20 cables")
PLAIN, SCALED, BACKGROUND = "plain", "scaled", "background"
VARIANTS = (PLAIN, SCALED, BACKGROUND)
"""Variants of a workload.

"plain": as published. "scaled": the bytes of each job are multiplied by a random number from 0.5 to 2. "background":
other traffic uses up to 2 % of every link and NIC.
"""
_GENERATED = 18
_NONE = 1e-6
_LITTLE = 1e-3


class Case(NamedTuple):
    workload: str
    failure: str
    seed: int
    variant: str

    def __str__(self) -> str:
        return f"{self.workload}, {self.failure}, seed {self.seed}, {self.variant}"


def main(
    folder: Annotated[
        Path | None,
        typer.Option("--workloads", metavar="DIR", help="Folder of published workloads, with folders of job files."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Number of draws of the failures.")] = SEEDS,
    variants: Annotated[
        str, typer.Option(metavar="NAME,…", help="Variants to plan: plain, scaled, background.")
    ] = ",".join(VARIANTS),
    only: Annotated[str, typer.Option(metavar="TEXT", help="Plan only cases whose name contains TEXT.")] = "",
    seconds: Within = math.inf,
    time_limit: Annotated[float, typer.Option(min=0.01, metavar="S", help="Seconds that the solver may take.")] = 2.0,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File of verdicts; new ones are added.")] = Path(
        "out/bench/workloads.jsonl"
    ),
) -> None:
    """Plan the published workloads with failures, in up to 8 subflows, and compare with the fluid optimum."""
    settings = {setting.name: setting for setting in _settings(folder)}
    cases = {
        str(case): case
        for case in all_cases(settings, seeds, chosen("--variants", variants, VARIANTS))
        if only in str(case)
    }
    limits = PlanLimits(time_limit_s=time_limit, ecmp_draws=0)
    records = Records(out)

    def judged_here(name: str) -> Record:
        return judged(cases[name], settings[cases[name].workload], limits)

    left = records.fill(cases, judged_here, seconds)
    found = [records.known[name] for name in cases if name in records.known]
    data = summary(found, left)
    show_verdicts(data, out.with_suffix(".summary.json"), "gaps by number of subflows", ("wrong", "worst"))


def _settings(folder: Path | None) -> tuple[Setting, ...]:
    found = workloads(folder, 0 if folder else _GENERATED, irregular=False)
    return found.published or tuple(setting for setting in found.generated if setting.group == "whole-leaf")


def all_cases(names: Iterable[str], seeds: int, variants: Iterable[str]) -> Iterator[Case]:
    """Yield the cases seed by seed, so that a run that is cut short has cases of every kind."""
    names, variants = list(names), list(variants)
    for seed in range(seeds):
        for variant in variants:
            for failure in FAILURES:
                if seed == 0 or variant != PLAIN or failure != FAILURES[0]:
                    yield from (Case(name, failure, seed, variant) for name in names)


def instance_for(case: Case, setting: Setting) -> Instance:
    """Return the instance of a case, always the same one."""
    instance = instance_of(str(case), setting.fabric, setting.jobs)
    rng = random.Random(f"{case.failure} {case.seed}")
    count, what = case.failure.split()
    cables = list(instance.cables)
    if what == "spines":
        with_hosts = {host.switch for host in instance.hosts}
        failed = set(rng.sample(sorted(set(range(instance.switches)) - with_hosts), int(count)))
        cables = [cable for cable in cables if not {cable.a, cable.b} & failed]
    else:
        failed = set(rng.sample(range(len(cables)), int(count)))
        cables = [cable for number, cable in enumerate(cables) if number not in failed]
    instance = instance._replace(cables=tuple(cables))
    return _CHANGES[case.variant](instance, random.Random(str(case)))


def _scaled(instance: Instance, rng: random.Random) -> Instance:
    factor = {job: rng.uniform(0.5, 2) for job in range(1 + max(send.job for send in instance.sends))}
    sends = (send._replace(size=int(factor[send.job] * send.size)) for send in instance.sends)
    return instance._replace(sends=tuple(sends))


def _with_background(instance: Instance, rng: random.Random) -> Instance:
    def taken(bps: int) -> int:
        return rng.randrange(bps // 50)

    cables = (cable._replace(taken_ab=taken(cable.bps), taken_ba=taken(cable.bps)) for cable in instance.cables)
    hosts = (host._replace(taken_out=taken(host.bps), taken_in=taken(host.bps)) for host in instance.hosts)
    return instance._replace(cables=tuple(cables), hosts=tuple(hosts))


_CHANGES: dict[str, Callable[[Instance, random.Random], Instance]] = {
    PLAIN: lambda instance, _: instance,
    SCALED: _scaled,
    BACKGROUND: _with_background,
}


def judged(case: Case, setting: Setting, limits: PlanLimits) -> Record:
    instance = instance_for(case, setting)
    exact = Exact(instance)
    judge = Judge(exact, SOLVE_S)
    verdicts = [judge.quick(answer(instance, max_subflows, limits)) for max_subflows in MAX_SUBFLOWS]
    return {
        "name": instance.name,
        **case._asdict(),
        "flows": len(exact.flows),
        "plans": [verdict.as_json() for verdict in verdicts],
    }


def summary(found: Sequence[Record], left: int) -> dict[str, Any]:
    rows: dict[tuple[str, str], list[Record]] = {}
    for record in found:
        rows.setdefault((record["variant"], record["failure"]), []).append(record)
    worst = sorted(
        (
            (plan, record)
            for record in found
            for plan in record["plans"]
            if plan["max_subflows"] > 1 and plan["gap"] > _LITTLE
        ),
        key=lambda of: -of[0]["gap"],
    )
    return {
        "judged": len(found),
        "left": left,
        "rows": [_line(*row, records) for row, records in rows.items()],
        "wrong": [
            f"{record['name']}, {plan['max_subflows']} subflows: {text}"
            for record in found
            for plan in record["plans"]
            for text in (*plan["refuted"], *plan["faults"], *plan["worse"])
        ],
        "worst": [
            f"{record['name']}, {plan['max_subflows']} subflows: slowdown {plan['slowdown']:.6g}, "
            f"fluid optimum {plan['least']:.6g} (gap {plan['gap']:.2%}), "
            f"the plan's bound {plan['bound']:.6g}, {plan['solver']}, {plan['wall_s']:.2f} s"
            for plan, record in worst
        ],
    }


def _line(variant: str, failure: str, records: list[Record]) -> Line:
    """Return a line of the table.

    Gaps of split plans are to the fluid optimum, gaps of whole plans to the largest bound of a cut. Times are CPU
    times: the median of the split plans, and the longest of all plans."""
    line: Line = {"variant": variant, "failed": failure, "cases": len(records)}
    for index, max_subflows in enumerate(MAX_SUBFLOWS):
        gaps = [record["plans"][index]["gap"] for record in records]
        for name, most in (("0", _NONE), ("≤ 0.1 %", _LITTLE)):
            line[f"{max_subflows}: gap {name}"] = f"{sum(gap <= most for gap in gaps) / len(gaps):.0%}"
        line[f"{max_subflows}: worst"] = f"{max(gaps):.2%}"
    times = [[plan["cpu_s"] for plan in record["plans"]] for record in records]
    split = median(time for of_case in times for time in of_case[1:])
    return line | {"median s": f"{split:.2f}", "longest s": f"{max(map(max, times)):.2f}"}
