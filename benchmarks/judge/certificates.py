"""Benchmark ``certificates``: whether the checker of proofs accepts all right proofs, and refuses wrong proofs.

It plans random instances by their slowest phases, and checks their certificates, which the checker must accept. It also
checks changed copies, which the checker must refuse unless the change is harmless. ``implied`` decides whether the
claims of a plan follow from its proofs; it shares no code with the controller. Every verdict is saved in a file, and a
run continues where the previous one ended. docs/benchmarks.md has the results.
"""

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.judge.adapter import certificate_of
from benchmarks.judge.command import Record, Records, Within, name_of
from benchmarks.judge.implied import boasting, changed, follows, walks
from benchmarks.judge.instances import MIXED, generate
from benchmarks.measures import report
from controller.planning.problem import PlanLimits
from controller.planning.verify import verify
from signalbox.words import Objective

MAX_SUBFLOWS = (1, 2, 3, MIXED)
CHANGES = 3
"""Number of copies of each certificate in which a proof or the problem is changed."""
BOASTS = 2
"""Number of copies of each certificate that have worse routes and claim that these are the best."""
_MOST_SHOWN = 30


def main(
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Number of certificates.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Seed of the first instance.")] = 0,
    seconds: Within = math.inf,
    time_limit: Annotated[float, typer.Option(min=0.01, metavar="S", help="Seconds that the solver may take.")] = 2.0,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File of verdicts; new ones are added.")] = Path(
        "out/bench/certificates.jsonl"
    ),
) -> None:
    """Plan random instances, and check their proofs and those of changed copies."""
    limits = PlanLimits(time_limit_s=time_limit, ecmp_draws=0)
    made = {name_of(number): number for number in range(seed, seed - (-count // len(MAX_SUBFLOWS)))}
    records = Records(out)
    left = records.fill(made, lambda name: judged(made[name], limits), seconds)
    data = summary([records.known[name] for name in made if name in records.known], left)
    wrong = (f"wrong: {len(data['wrong'])}", *data["wrong"][:_MOST_SHOWN])
    said = f"{data['certificates']} certificates, {data['left']} left"
    tables = {"certificates": data["rows"], "changed copies": data["mutants"]}
    report(data, out.with_suffix(".summary.json"), tables, *wrong, said)


def judged(seed: int, limits: PlanLimits) -> Record:
    instance = generate(seed)
    return {
        "name": name_of(seed),
        "plans": [
            _of_plan(
                certificate_of(instance, max_subflows, limits, Objective.PHASE),
                max_subflows,
                random.Random(f"{seed} {max_subflows}"),
            )
            for max_subflows in MAX_SUBFLOWS
        ],
    }


def _of_plan(plan: Any, max_subflows: int, rng: random.Random) -> Record:
    """Return the verdicts on a plan and on its changed copies.

    ``mutants``: one entry per copy: [kind, name of the change, whether the copy is refused, whether it is harmless]."""
    boasts = [boasting(plan, lambda flow: walks(plan, flow), rng) for _ in range(BOASTS)]
    mutants = [("claim", "a better routing is known", boast) for boast in boasts if boast]
    mutants += [("witness", *changed(plan, rng)) for _ in range(CHANGES)]
    whole = plan["denominator"]
    return {
        "max_subflows": max_subflows,
        "jobs": len(plan["jobs"]),
        "above_1": sum(job["slowdown"] * 10_000 > 10_001 * whole for job in plan["jobs"]),
        "proven": plan["proven"],
        "searched": plan["searched"],
        "proofs": len(plan["proofs"]),
        "accepted": accepted(plan),
        "follows": follows(plan),
        "mutants": [[kind, what, not accepted(of), kind == "witness" and follows(of)] for kind, what, of in mutants],
    }


def accepted(plan: Any) -> bool:
    try:
        verify(plan)
    except ValueError:
        return False
    return True


def summary(found: Sequence[Record], left: int) -> dict[str, Any]:
    plans = [(record["name"], plan) for record in found for plan in record["plans"]]
    rows = [
        {
            "max_subflows": max_subflows,
            "plans": len(of),
            "accepted": sum(plan["accepted"] and plan["follows"] for plan in of),
            "with proofs": sum(plan["proofs"] > 0 for plan in of),
            "slowdowns": sum(plan["jobs"] for plan in of),
            "slowdowns above 1": sum(plan["above_1"] for plan in of),
            "of these proven": sum(min(plan["above_1"], plan["proven"]) for plan in of),
            "by a search only": sum(max(0, min(plan["searched"], plan["above_1"] - plan["proven"])) for plan in of),
        }
        for max_subflows in MAX_SUBFLOWS
        if (of := [plan for _, plan in plans if plan["max_subflows"] == max_subflows])
    ]
    counts: Counter[tuple[str, str, str]] = Counter(
        (kind, what, f"{'harmless change, ' if harmless else ''}{'refused' if refused else 'accepted'}")
        for _, plan in plans
        for kind, what, refused, harmless in plan["mutants"]
    )
    outcomes = ("refused", "accepted", "harmless change, refused", "harmless change, accepted")
    mutants: list[dict[str, Any]] = [
        {"kind": kind, "changed": what, **{outcome: counts[kind, what, outcome] for outcome in outcomes}}
        for kind, what in sorted({(kind, what) for kind, what, _ in counts})
    ]
    total = {outcome: sum(row[outcome] for row in mutants) for outcome in outcomes}
    return {
        "certificates": len(plans),
        "left": left * len(MAX_SUBFLOWS),
        "rows": rows,
        "mutants": [*mutants, {"kind": "all", "changed": "", **total}],
        "wrong": list(_wrong(plans)),
    }


def _wrong(plans: Sequence[tuple[str, Record]]) -> Iterator[str]:
    for name, plan in plans:
        where = f"{name}, {plan['max_subflows']} subflows"
        if not plan["accepted"] or not plan["follows"]:
            yield f"{where}: the certificate is {'accepted, but does not follow' if plan['accepted'] else 'refused'}"
        for _, what, refused, harmless in plan["mutants"]:
            if not refused and not harmless:
                yield f"{where}: accepted although changed: {what}"
