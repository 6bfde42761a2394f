"""Benchmark ``contention``: plans for jobs that share links, beside published systems and beside proofs.

- ``example``: Crux's worked example.
- ``recipe``: small cases by Crux's recipe: the best plans with proofs, and what parts of Crux lose.
- ``headline``: CASSINI's headline on comparable mixes of models.
- ``recomputed``: guaranteed times and bounds of random plans, which a recomputer tries to refute.
- ``search``: time and values of the planner's search for 16 and 64 jobs, beside bounds.
- ``fabric``: many jobs on an oversubscribed fabric: ours beside all baselines.

Figures of ``recipe`` and ``fabric`` are kept for the present code, in ``out/bench/contention``. A run computes missing
ones until its budget is spent, so an interrupted run continues where it ended.

The exit status is 1 if the worked example has other figures, a plan is not proven to be the best, a statement is
refuted, a search takes too long, or a baseline is better than our plan: in a cell, by more than 0.5 %.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track

from benchmarks.contention import fabric, fast_search, headline, recipe, recomputed
from benchmarks.contention.kept import folder_of, kept
from benchmarks.measures import Row, chosen, report

RESULTS = Path("out/bench/contention.json")
KEPT = Path("out/bench/contention")
PARTS = ("example", "recipe", "headline", "recomputed", "search", "fabric")


def main(
    parts: Annotated[str, typer.Option(metavar="NAME,…", help="Parts to run.")] = ",".join(PARTS),
    cases: Annotated[int, typer.Option(min=1, help="Number of small cases by Crux's recipe.")] = 100,
    first: Annotated[int, typer.Option(min=0, help="Seed of the first case, mix, instance and cell.")] = 0,
    mixes: Annotated[int, typer.Option(min=1, help="Number of mixes of CASSINI's models.")] = 100,
    instances: Annotated[int, typer.Option(min=1, help="Number of random plans to recompute.")] = 300,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds of each fabric and number of jobs.")] = 4,
    jobs: Annotated[str, typer.Option(metavar="N,…", help="Numbers of jobs on the fabric.")] = "8,16,32,64",
    budget_s: Annotated[
        float, typer.Option(min=0, help="CPU seconds for new small cases, and for new cells of the fabric.")
    ] = 300.0,
) -> None:
    """Compare plans for jobs that share links with published systems, and check their proofs."""
    wanted = chosen("--parts", parts, PARTS)
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    tables: dict[str, list[Row]] = {}
    lines, broken = list[str](), list[str]()
    folder = folder_of(KEPT)
    if "example" in wanted:
        results["example"] = example = recipe.worked_example()
        tables["worked example"] = [example]
        broken += recipe.broken(example, [])
    if "recipe" in wanted:
        seeds_of_cases = _tracked("solving", first, cases)
        found = kept(folder, ((f"case-{seed}", partial(recipe.run, seed)) for seed in seeds_of_cases), budget_s)
        results["cases"] = found
        tables |= {"Crux / best": recipe.summary(found), "small cases": recipe.times(found)}
        missed = recipe.broken(recipe.EXPECTED, found)
        every = sum(case["plans"] for case in found)
        lines.append(f"{len(found)} of {cases} small cases are done; the others wait for another run")
        lines.append(
            f"in {len(found) - len(missed)} of them the plan is proven, and is the best of all ({every:,} plans)"
        )
        broken += missed
    if "headline" in wanted:
        rows = [headline.run(seed) for seed in _tracked("simulating mixes", first, mixes)]
        results["mixes"] = rows
        tables["iterations without shifts / with shifts"] = headline.summary(rows)
    if "recomputed" in wanted:
        tested = [recomputed.refuted(seed) for seed in _tracked("recomputing", first, instances)]
        refuted = [each for _, of in tested for each in of]
        results["recomputed"] = {
            "instances": instances,
            "tested": sum(count for count, _ in tested),
            "refuted": refuted,
        }
        lines.append(f"{results['recomputed']['tested']} statements were tested; {len(refuted)} are refuted")
        broken += refuted
    if "search" in wanted:
        results["search"] = searched = fast_search.cases(range(first, first + seeds))
        tables["search on 64 leaves and 32 spines, 2:1"] = fast_search.table(searched)
        broken += fast_search.broken(searched)
    if "fabric" in wanted:
        settings = [
            fabric.Setting(ratio, int(number), seed)
            for seed in range(first, first + seeds)
            for number in jobs.split(",")
            for ratio in fabric.RATIOS
        ]
        cells = kept(folder, ((each.name, partial(fabric.cell, each)) for each in settings), budget_s)
        tables |= {"iteration / ideal, mean of jobs": fabric.summary(cells), "today / ours": fabric.gains(cells)}
        hours = sum(sum(each["cpu_s"].values()) for each in cells) / 3600
        lines += [*_verdicts(cells, len(settings), broken), f"the cells took {hours:.2f} CPU hours"]
    report(results, RESULTS, tables, *lines)
    if broken:
        sys.exit(f"error: {len(broken)} broken: {', '.join(broken[:MOST_NAMED])}")


MOST_NAMED = 20


def _tracked(what: str, first: int, count: int) -> Any:
    return track(range(first, first + count), what, console=Console(stderr=True), transient=True)


def _verdicts(cells: Sequence[dict[str, Any]], settings: int, broken: list[str]) -> list[str]:
    """Return lines about the verdicts of the cells; append to ``broken`` the cells in which a baseline is better."""
    rows = [
        (fabric.Setting(*(cell[name] for name in fabric.Setting._fields)).name, row)
        for cell in cells
        for row in fabric.verdicts(cell)
    ]
    lost = [(name, row) for name, row in rows if not row["kept"]]
    broken += [f"{name} {row['objective']} jitter {row['jitter']} ({row['of']})" for name, row in lost]
    winners = Counter(row["of"] for _, row in lost)
    names = ", ".join(f"{name} {count}" for name, count in winners.most_common()) or "none"
    return [
        f"{len(cells)} of {settings} cells are done; the others wait for another run",
        f"ours is at least as good as all baselines in {len(rows) - len(lost)} of {len(rows)} figures; better: {names}",
    ]
