"""Cases made from a plan, and answers made from their best plans.

In: a problem, routes, and the timings of jobs. Out: slots and classes of the jobs (``Sharing``). Each component of jobs
is a ``Case``: links that can be overfilled connect its jobs. Jobs of different components do not disturb each other.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from controller.planning.contention import circles as on_circles
from controller.planning.contention.fluid import EPSILON, Case, Choice, Objective, Phase, TimedJob, Way, iteration_s
from controller.planning.contention.large import EXACT_S, Search, Shared
from controller.planning.efficiency import passing
from controller.planning.plan import Circle, CommonLinks, Sharing, Slot
from controller.planning.problem import Bools, Floats, Ints, Problem, Routes, SharingRules, Timing, distinct
from signalbox.jobs.spec import JobId

UNTIMED = TimedJob(JobId(""), (Phase(0.0, 1.0),), (), 0.0, weight=0.0, regular=False)
"""Job whose times are not known: it may send at any time, and counts for no objective."""


class _Loads(NamedTuple):
    """Load of links by routes, with a row per link and cell. ``first``: the first row of each link and job."""

    link: Ints
    cell: Ints
    load: Floats
    first: Ints
    overfull: Bools
    """Whether the largest loads of all jobs together exceed the capacity, per link."""


def _loads(problem: Problem, routes: Routes) -> _Loads:
    numbers, rows = problem.numbers, passing(problem, routes)
    subflow, entry = numbers.entries_of(rows.flow)
    bps, count = numbers.entry_bps[entry] * rows.share[subflow], max(1, len(numbers.cell_job))
    at, row = distinct(rows.link[subflow] * count + numbers.entry_cell[entry])
    link, cell = at // count, at % count
    load = np.bincount(row, bps, len(at)) / numbers.capacity_bps[link]
    # The rows of one job's phases on one link are adjacent.
    first = np.flatnonzero(np.diff(link, prepend=-1) | np.diff(numbers.cell_job[cell], prepend=-1))
    peak: Floats = np.maximum.reduceat(load, first) if len(first) else np.zeros(0)
    overfull = np.bincount(link[first], peak, len(numbers.capacity_bps)) > 1 + EPSILON
    return _Loads(link, cell, load, first, overfull)


def cases_of(problem: Problem, routes: Routes, timings: Mapping[JobId, Timing], floor: float) -> list[Case]:
    """Return the components in which at least one job has a timing."""
    return _cases(problem, _loads(problem, routes), timings, floor)


def _cases(problem: Problem, loads: _Loads, timings: Mapping[JobId, Timing], floor: float) -> list[Case]:
    numbers, (link, cell, load, first, overfull) = problem.numbers, loads
    job, count = numbers.cell_job[cell], max(1, len(numbers.cell_job))
    known = [_known(problem, timings, number) for number in range(len(numbers.job_ids))]
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
    loads = _loads(problem, routes)
    cases = _cases(problem, loads, timings, rules.floor)
    if not cases:
        return None
    objective, numbers = Objective(rules.objective), problem.numbers
    searches = [Search(case, objective, max(1, rules.classes), rules.max_stretch) for case in cases]
    until_s = time.perf_counter() + EXACT_S
    found = [search.spread(search.chosen(until_s - time.perf_counter())) for search in searches]
    timed = {job: _timed(job, timings[job], ()) for n, job in enumerate(numbers.job_ids) if _known(problem, timings, n)}
    promise_s = {job: of.ideal_s for job, of in timed.items()}
    guaranteed_s, class_of, circles = dict(promise_s), dict[JobId, int](), list[Circle]()
    without_slots_s, without_classes_s, alone_s = dict(promise_s), dict(promise_s), dict(promise_s)
    for case, search, plan in zip(cases, searches, found, strict=True):
        ids = [job.id for job in case.jobs]

        def of_timed(times_s: Sequence[float], ids: Sequence[JobId] = ids) -> dict[JobId, float]:
            return {job: s for job, s in zip(ids, times_s, strict=True) if job in timed}

        promise_s |= of_timed(search.promise_s)
        guaranteed_s |= of_timed(plan.iteration_s)
        without_slots_s |= of_timed(_without_slots(search, plan).iteration_s)
        without_classes_s |= of_timed(_without_classes(search, plan).iteration_s)
        alone_s |= of_timed([iteration_s(case, {number: Choice()}, number) for number in range(len(ids))])
        used = sorted({*plan.ranks})
        class_of |= {job: used.index(rank) + 1 for job, rank in zip(ids, plan.ranks, strict=True)}
        for circle, places in plan.slots:
            slots = {ids[number]: _slots(circle, case.jobs[number], number, at) for number, at in places.items()}
            circles.append(Circle(circle.period_s, slots, {ids[number]: circle.turns[number] for number in places}))
    parts = _parts(problem, timings, timed)
    bound, crowded = _bound(problem, timed, parts, objective)
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
        floor=rules.floor,
        timings={job: timings[job] for job in timed},
        without_slots_s=without_slots_s,
        without_classes_s=without_classes_s,
        alone_s=alone_s,
        links=_common_links(problem, loads, parts),
        crowded=crowded,
    )


def _without_slots(search: Search, plan: Shared) -> Shared:
    return search.judged(plan.ranks, ()) if plan.slots else plan


def _without_classes(search: Search, plan: Shared) -> Shared:
    return search.judged([0 for _ in plan.ranks], plan.slots) if any(plan.ranks) else plan


def _common_links(problem: Problem, loads: _Loads, parts: Floats) -> tuple[CommonLinks, ...]:
    """Return the overfull links, those with the same jobs together."""
    numbers, ids = problem.numbers, problem.links.ids
    average = np.bincount(loads.link, loads.load * parts[loads.cell], len(ids))
    first = loads.first[loads.overfull[loads.link[loads.first]]]
    jobs_of: defaultdict[int, list[JobId]] = defaultdict(list)
    for link, job in zip(loads.link[first].tolist(), numbers.cell_job[loads.cell[first]].tolist(), strict=True):
        jobs_of[link].append(numbers.job_ids[job])
    alike: defaultdict[tuple[JobId, ...], list[int]] = defaultdict(list)
    for link, jobs in jobs_of.items():
        alike[tuple(sorted(jobs))].append(link)
    found = []
    for each, links in sorted(alike.items()):
        links.sort(key=lambda link: -average[link])
        found.append(CommonLinks(tuple(ids[link] for link in links), each, float(average[links[0]])))
    return tuple(found)


def _slots(circle: on_circles.Circle, job: TimedJob, number: int, place: int) -> tuple[Slot, ...]:
    at_s, slots = circle.start_s(place), list[Slot]()
    stretch = job.stretch(circle.part_s(number))
    for phase, (compute_s, ideal_s) in enumerate(job.phases):
        at_s += compute_s if phase else 0.0
        slots.append(Slot(at_s, ideal_s * stretch))
        at_s += ideal_s * stretch
    return tuple(slots)


def _parts(problem: Problem, timings: Mapping[JobId, Timing], timed: Mapping[JobId, TimedJob]) -> Floats:
    """Return the part of an ideal iteration that each cell sends; 0 for jobs without a timing."""
    numbers = problem.numbers

    def part(job: JobId, phase: int) -> float:
        sending_s = sum(each.ideal_s for each in timings[job].phases if each.phase == phase) if job in timed else 0.0
        return sending_s / timed[job].ideal_s if sending_s else 0.0

    cells = zip(numbers.cell_job.tolist(), numbers.cell_phase.tolist(), strict=True)
    return np.array([part(numbers.job_ids[job], phase) for job, phase in cells])


def _bound(
    problem: Problem, timed: Mapping[JobId, TimedJob], parts: Floats, objective: Objective
) -> tuple[float, tuple[CommonLinks, ...]]:
    """Return a lower bound of the total cost for any routes, and the leaves whose links carry too little for all jobs.

    Bits out of a leaf, or into it, take one of its links."""
    numbers, links = problem.numbers, problem.links
    average_bps = numbers.entry_bps * parts[numbers.entry_cell] * (numbers.src != numbers.dst)[numbers.entry_flow]
    job, count = numbers.job[numbers.entry_flow], len(numbers.job_ids)
    jobs = [timed.get(each, UNTIMED) for each in numbers.job_ids]
    best, crowded = 0.0, []
    for ends, at in ((links.tail, numbers.src), (links.head, numbers.dst)):
        through = np.bincount(at[numbers.entry_flow] * count + job, average_bps, len(numbers.leaves) * count)
        room = np.bincount(ends, links.capacity_bps[links.fabric], len(links.switch))
        for leaf, needs in zip(numbers.leaves, through.reshape(-1, count), strict=True):
            if leaf in links.switch and needs.sum() > room[number := links.switch[leaf]] > 0:
                best = max(best, objective.bound(jobs, needs.tolist(), float(room[number])))
                ids = tuple(links.ids[link] for link in links.fabric[ends == number].tolist())
                crossing = tuple(numbers.job_ids[each] for each in np.flatnonzero(needs).tolist())
                crowded.append(CommonLinks(ids, crossing, float(needs.sum() / room[number])))
    return best, tuple(crowded)


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
