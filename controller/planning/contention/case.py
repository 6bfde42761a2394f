"""Cases made from a plan, and answers made from their best plans.

In: a problem, routes, and the timings of jobs. Out: slots and classes of the jobs (``Sharing``). Each component of jobs
is a ``Case``: links that can be overfilled connect its jobs. Jobs of different components do not disturb each other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from controller.planning.contention import circles as on_circles
from controller.planning.contention.fluid import EPSILON, Case, Objective, Phase, TimedJob, Way
from controller.planning.contention.large import EXACT_S, Search
from controller.planning.efficiency import passing
from controller.planning.plan import Circle, Sharing, Slot
from controller.planning.problem import Bools, Floats, Ints, Problem, Routes, SharingRules, Timing, distinct
from signalbox.jobs.spec import JobId

UNTIMED = TimedJob(JobId(""), (Phase(0.0, 1.0),), (), 0.0, weight=0.0, regular=False)
"""Job whose times are not known: it may send at any time, and counts for no objective."""


def cases_of(problem: Problem, routes: Routes, timings: Mapping[JobId, Timing], floor: float) -> list[Case]:
    """Return the components in which at least one job has a timing."""
    numbers, rows = problem.numbers, passing(problem, routes)
    subflow, entry = numbers.entries_of(rows.flow)
    bps, count = numbers.entry_bps[entry] * rows.share[subflow], max(1, len(numbers.cell_job))
    at, row = distinct(rows.link[subflow] * count + numbers.entry_cell[entry])
    link, cell = at // count, at % count
    load = np.bincount(row, bps, len(at)) / numbers.capacity_bps[link]
    job = numbers.cell_job[cell]
    known = [_known(problem, timings, number) for number in range(len(numbers.job_ids))]
    # The rows of one job's phases on one link are adjacent.
    first = np.flatnonzero(np.diff(link, prepend=-1) | np.diff(job, prepend=-1))
    peak: Floats = np.maximum.reduceat(load, first) if len(first) else np.zeros(0)
    overfull = np.bincount(link[first], peak, len(numbers.capacity_bps)) > 1 + EPSILON
    found = []
    for jobs, links in _components(link[first], job[first], overfull):
        here = np.flatnonzero(np.isin(link, links) & (load > 0))
        matrix = np.zeros((len(links), count))
        matrix[np.searchsorted(links, link[here]), cell[here]] = load[here]
        matrix = _undominated(matrix)
        made = [_job(problem, timings[numbers.job_ids[each]] if known[each] else None, each, matrix) for each in jobs]
        found += [Case((1.0,) * len(matrix), tuple(made), floor)] if any(known[each] for each in jobs) else []
    return found


def sharing(problem: Problem, routes: Routes, timings: Mapping[JobId, Timing], rules: SharingRules) -> Sharing | None:
    """Return slots and classes for jobs with a timing that share links under these routes; None without such jobs."""
    cases = cases_of(problem, routes, timings, rules.floor)
    if not cases:
        return None
    objective, numbers = Objective(rules.objective), problem.numbers
    searches = [Search(case, objective, max(1, rules.classes), rules.max_stretch) for case in cases]
    until_s = time.perf_counter() + EXACT_S
    found = [search.spread(search.chosen(until_s - time.perf_counter())) for search in searches]
    timed = {job: _timed(job, timings[job], ()) for n, job in enumerate(numbers.job_ids) if _known(problem, timings, n)}
    promise_s = {job: of.ideal_s for job, of in timed.items()}
    guaranteed_s, class_of, circles = dict(promise_s), dict[JobId, int](), list[Circle]()
    for case, search, plan in zip(cases, searches, found, strict=True):
        ids = [job.id for job in case.jobs]
        promise_s |= {job: s for job, s in zip(ids, search.promise_s, strict=True) if job in timed}
        guaranteed_s |= {job: s for job, s in zip(ids, plan.iteration_s, strict=True) if job in timed}
        used = sorted({*plan.ranks})
        class_of |= {job: used.index(rank) + 1 for job, rank in zip(ids, plan.ranks, strict=True)}
        for circle, places in plan.slots:
            slots = {ids[number]: _slots(circle, case.jobs[number], number, at) for number, at in places.items()}
            circles.append(Circle(circle.period_s, slots, {ids[number]: circle.turns[number] for number in places}))
    bound = _bound(problem, timings, timed, objective)
    of_routes = objective.total([search.bound() for search in searches])
    unit = sum(job.weight for job in timed.values()) if objective is Objective.WEIGHTED else 1.0
    least = 0.0 if objective is Objective.WORK else 1.0
    return Sharing(
        circles=tuple(circles),
        class_of=class_of if rules.classes > 1 else {},
        guaranteed_s=guaranteed_s,
        promise_s=promise_s,
        value=least + objective.total([cost for plan in found for cost in plan.costs]) / unit,
        bound=least + bound / unit,
        searched=least + max(bound, of_routes) / unit,
        objective=rules.objective,
    )


def _slots(circle: on_circles.Circle, job: TimedJob, number: int, place: int) -> tuple[Slot, ...]:
    at_s, slots = circle.start_s(place), list[Slot]()
    stretch = job.stretch(circle.part_s(number))
    for phase, (compute_s, ideal_s) in enumerate(job.phases):
        at_s += compute_s if phase else 0.0
        slots.append(Slot(at_s, ideal_s * stretch))
        at_s += ideal_s * stretch
    return tuple(slots)


def _bound(
    problem: Problem, timings: Mapping[JobId, Timing], timed: Mapping[JobId, TimedJob], objective: Objective
) -> float:
    """Return a lower bound of the total cost for any routes: bits out of a leaf, or into it, take one of its links."""
    numbers, links = problem.numbers, problem.links

    def part(job: JobId, phase: int) -> float:
        sending_s = sum(each.ideal_s for each in timings[job].phases if each.phase == phase) if job in timed else 0.0
        return sending_s / timed[job].ideal_s if sending_s else 0.0

    cells = zip(numbers.cell_job.tolist(), numbers.cell_phase.tolist(), strict=True)
    parts = np.array([part(numbers.job_ids[job], phase) for job, phase in cells])
    average_bps = numbers.entry_bps * parts[numbers.entry_cell] * (numbers.src != numbers.dst)[numbers.entry_flow]
    job, count = numbers.job[numbers.entry_flow], len(numbers.job_ids)
    jobs = [timed.get(each, UNTIMED) for each in numbers.job_ids]
    best = 0.0
    for ends, at in ((links.tail, numbers.src), (links.head, numbers.dst)):
        through = np.bincount(at[numbers.entry_flow] * count + job, average_bps, len(numbers.leaves) * count)
        room = np.bincount(ends, links.capacity_bps[links.fabric], len(links.switch))
        for leaf, needs in zip(numbers.leaves, through.reshape(-1, count), strict=True):
            if leaf in links.switch and needs.sum() > room[links.switch[leaf]]:
                best = max(best, objective.bound(jobs, needs.tolist(), float(room[links.switch[leaf]])))
    return best


def _known(problem: Problem, timings: Mapping[JobId, Timing], number: int) -> bool:
    """Return whether the timing of a job covers all phases of its flows."""
    timing = timings.get(problem.numbers.job_ids[number])
    timed = {each.phase for each in timing.phases if each.ideal_s > 0} if timing else set[int]()
    phases = problem.numbers.cell_phase[problem.numbers.cell_job == number].tolist()
    return bool(timed) and {*phases} <= timed


def _job(problem: Problem, timing: Timing | None, number: int, matrix: Floats) -> TimedJob:
    numbers = problem.numbers
    cells = np.flatnonzero(numbers.cell_job == number)
    of_phase = {int(numbers.cell_phase[cell]): matrix[:, cell] for cell in cells}
    if timing is None:
        return replace(UNTIMED, id=numbers.job_ids[number], ways=((_demand(matrix[:, cells].max(axis=1)),),))
    none = np.zeros(len(matrix))
    way = tuple(_demand(of_phase.get(each.phase, none)) for each in timing.phases)
    return _timed(numbers.job_ids[number], timing, (way,))


def _timed(job: JobId, timing: Timing, ways: tuple[Way, ...]) -> TimedJob:
    phases = tuple(Phase(each.compute_s, each.ideal_s) for each in timing.phases)
    return TimedJob(job, phases, ways, timing.work, weight=timing.weight, regular=timing.keeps_slots)


def _demand(load: Floats) -> dict[int, float]:
    return {int(link): float(load[link]) for link in np.flatnonzero(load)}


def _components(link: Ints, job: Ints, overfull: Bools) -> Iterator[tuple[list[int], Ints]]:
    """Yield the jobs and the overfull links of each component. Rows are pairs of a link and a job that uses it."""
    link, job = link[overfull[link]], job[overfull[link]]
    first, before = np.arange(job.max(initial=-1) + 1), np.zeros(0)
    while not np.array_equal(first, before):  # the first job that each job is connected with
        before, of_link = first.copy(), np.full(len(overfull), len(first))
        np.minimum.at(of_link, link, first[job])
        np.minimum.at(first, job, of_link[link])
    for each in np.unique(first[job]):
        rows = first[job] == each
        yield np.unique(job[rows]).tolist(), np.unique(link[rows])


def _undominated(matrix: Floats) -> Floats:
    """Return the rows (links) without those that are at most as large as another row in every column."""
    rows = np.unique(matrix.round(9), axis=0)
    rows = rows[np.argsort(-rows.sum(axis=1), kind="stable")]
    kept: list[int] = []
    for at, row in enumerate(rows):
        if not kept or not (rows[kept] >= row).all(axis=1).any():
            kept.append(at)
    return rows[kept]
