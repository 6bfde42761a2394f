"""Slowdowns for the real traffic of jobs on a leaf-spine fabric, computed independently of the planner to check it.

The input is the bytes of one iteration by job, phase and pair of addresses, as sockets count them, and the leaf of each
address. The results are the slowdown of every job for given spines, and the smallest worst slowdown over all choices of
spines, which CP-SAT proves. docs/explanation/planning.md defines the slowdown. All links have one rate, and there is no
other traffic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ortools.sat.python import cp_model

Pair = tuple[str, str]
Link = tuple[str, str, str]
Traffic = Mapping[str, Mapping[int, Mapping[Pair, float]]]
"""Bytes by job, phase and pair."""

UNITS = 10_000
"""Integer units of a link's capacity, in which CP-SAT counts."""
SOLVE_S = 20.0


def shares(traffic: Traffic) -> Iterator[tuple[str, int, Pair, float]]:
    """Yield (job, phase, pair, share of a link's capacity), if each phase takes the time that its busiest NIC needs."""
    for job, phases in traffic.items():
        for phase, sent in phases.items():
            nics: defaultdict[tuple[str, str], float] = defaultdict(float)
            for (src, dst), count in sent.items():
                nics["out", src] += count
                nics["in", dst] += count
            for pair, count in sent.items():
                yield job, phase, pair, count / max(nics.values())


def links_of(pair: Pair, leaf_of: Mapping[str, str], spine: str) -> Iterator[Link]:
    """Yield the NICs of a pair and, between leaves, the cables to and from the spine."""
    src, dst = pair
    yield "out", src, ""
    yield "in", dst, ""
    if leaf_of[src] != leaf_of[dst]:
        yield "up", leaf_of[src], spine
        yield "down", leaf_of[dst], spine


def slowdowns(traffic: Traffic, leaf_of: Mapping[str, str], spine_of: Mapping[Pair, str]) -> dict[str, float]:
    """Return the slowdown of each job. ``spine_of``: spine of every pair between leaves."""
    loads: defaultdict[Link, defaultdict[tuple[str, int], float]] = defaultdict(lambda: defaultdict(float))
    for job, phase, pair, share in shares(traffic):
        for link in links_of(pair, leaf_of, spine_of.get(pair, "")):
            loads[link][job, phase] += share
    found = dict.fromkeys(traffic, 1.0)
    for on_link in loads.values():
        peaks: defaultdict[str, float] = defaultdict(float)
        for (job, _), load in on_link.items():
            peaks[job] = max(peaks[job], load)
        for job in peaks:
            found[job] = max(found[job], sum(peaks.values()))
    return found


def least_slowdown(traffic: Traffic, leaf_of: Mapping[str, str], spines: Sequence[str]) -> tuple[float, bool]:
    """Return the smallest worst slowdown over all choices of spines, and whether it is proven."""
    model = cp_model.CpModel()
    worst = model.new_int_var(UNITS, 100 * UNITS, "worst")
    loads: defaultdict[Link, defaultdict[tuple[str, int], list[cp_model.LinearExprT]]] = defaultdict(
        lambda: defaultdict(list)
    )
    chosen: dict[Pair, dict[str, cp_model.IntVar]] = {}
    for job, phase, pair, share in shares(traffic):
        units = round(share * UNITS)
        if pair not in chosen:
            chosen[pair] = {spine: model.new_bool_var(f"{pair} {spine}") for spine in spines}
            model.add_exactly_one(chosen[pair].values())
        for spine, taken in chosen[pair].items():
            for link in links_of(pair, leaf_of, spine):
                loads[link][job, phase].append(units * taken)
    for link, on_link in loads.items():
        peaks: dict[str, cp_model.IntVar] = {}
        for (job, _), terms in on_link.items():
            if job not in peaks:
                peaks[job] = model.new_int_var(0, 100 * UNITS, f"{link} {job}")
            model.add(cp_model.LinearExpr.sum(terms) <= peaks[job])
        model.add(cp_model.LinearExpr.sum(list(peaks.values())) <= worst)
    model.minimize(worst)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = SOLVE_S
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    return solver.objective_value / UNITS, status == cp_model.OPTIMAL
