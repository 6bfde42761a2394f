"""Fluid model of jobs in time on links: the iteration time that a plan guarantees to each job.

An iteration of a job is a sequence of phases; a phase computes, then communicates. A plan gives every job a *way* (its
links), a *rank* (class of strict priority, 0 first) and maybe a *start*. The plan fixes how some jobs are aligned in
time; other alignments are open. The *guaranteed* iteration time of a job is the largest over all open alignments, when
links share by demand among equal ranks and a lower rank keeps ``Case.floor`` of each link.

- A *member* has a start. A circle has the perimeter ``period_s``, and a member does r iterations per turn. A member
  begins each iteration in its slot, so its iteration takes ``period_s`` / r. Slots are as long as this time allows.
  Members count as sending during all of their slots. The circle is *kept* if each member's bits get through in its
  slots.
- A *free* job begins an iteration whenever it likes. A job of the same rank costs it at most the bits that this job can
  send meanwhile, and at most this job's share of the link. A job of a higher rank costs all bits that it can send
  meanwhile: response-time analysis (Joseph and Pandya, "Finding response times in a real-time system", 1986).

With free jobs of one rank, guaranteed times are at most the iteration slowdowns of ``planning.phases`` x ideal times. A
further job makes no guaranteed time smaller.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from signalbox.jobs.spec import JobId

Demand = Mapping[int, float]
"""Demand of a job on each link that it uses, in bit/s, by number of the link."""
Way = tuple[Demand, ...]
"""Links that a job can use: its demand in each phase."""

EPSILON = 1e-9
"""Relative difference up to which two times or loads count as equal."""
_LONGEST = 1_000.0
"""Multiple of the ideal iteration above which a guaranteed time counts as infinite."""


class Phase(NamedTuple):
    """Part of an iteration: it computes for ``compute_s``, then communicates for ``ideal_s`` on an idle fabric."""

    compute_s: float
    ideal_s: float


@dataclass(frozen=True)
class TimedJob:
    """Job with the times of its phases, and the ways among which a plan chooses."""

    id: JobId
    phases: tuple[Phase, ...]
    ways: tuple[Way, ...]
    work: float = 1.0
    """Work of one iteration, in a unit that is the same for all jobs, such as GPU-seconds."""
    weight: float = 1.0
    """Weight of the job's slowdown; 0 for a job that counts for no objective."""
    regular: bool = True
    """Whether the job can be a member of a circle."""

    @cached_property
    def compute_s(self) -> float:
        return sum(phase.compute_s for phase in self.phases)

    @cached_property
    def sending_s(self) -> float:
        """Communication time of an iteration on an idle fabric."""
        return sum(phase.ideal_s for phase in self.phases)

    @cached_property
    def ideal_s(self) -> float:
        """Duration of an iteration on an idle fabric."""
        return self.compute_s + self.sending_s

    @cached_property
    def peaks(self) -> tuple[Demand, ...]:
        """Largest demand over the phases on each link, for each way."""
        links = (frozenset().union(*way) for way in self.ways)
        return tuple(
            {link: max(of.get(link, 0.0) for of in way) for link in sorted(used)}
            for way, used in zip(self.ways, links, strict=True)
        )

    def stretch(self, iteration_s: float) -> float:
        """Return the length of a slot / ideal communication time: the slack is divided over the phases."""
        return 1 + max(0.0, iteration_s - self.ideal_s) / self.sending_s

    def average_bps(self, way: int) -> Demand:
        """Return the bits of an iteration on each link / the ideal duration of the iteration."""
        sent: defaultdict[int, float] = defaultdict(float)
        for phase, of in zip(self.phases, self.ways[way], strict=True):
            for link, bps in of.items():
                sent[link] += bps * phase.ideal_s / self.ideal_s
        return sent

    def burst_s(self, way: int, links: Collection[int], within_s: float) -> float:
        """Return how many of ``within_s`` seconds the job can send over any of these of its links, at full demand.

        The densest seconds of an undisturbed job begin with a phase that uses the links. Delays only thin them out."""
        turns, rest_s = divmod(within_s, self.ideal_s)
        if len(self.phases) == 1:
            return turns * self.sending_s + min(rest_s, self.sending_s)
        uses = [any(link in of for link in links) for of in self.ways[way]]
        most, count = 0.0, len(self.phases)
        for first in range(count):
            left_s, sent_s = rest_s, 0.0
            for at in (*range(first, count), *range(first)):
                left_s -= self.phases[at].compute_s if at != first else 0.0
                sent_s += max(0.0, min(left_s, self.phases[at].ideal_s)) * uses[at]
                left_s -= self.phases[at].ideal_s
            most = max(most, sent_s)
        return most + turns * sum(phase.ideal_s for phase, used in zip(self.phases, uses, strict=True) if used)


class Choice(NamedTuple):
    """Choice of a plan for one job."""

    way: int = 0
    rank: int = 0
    start_s: float | None = None
    """Begin of the first slot on the circle in seconds; None for a free job."""
    turns: int = 1
    """Number of iterations of a member per turn of the circle."""


Choices = Mapping[int, Choice]
"""Choice of each job, by its position in ``Case.jobs``. A job that is left out does not send."""


@dataclass(frozen=True)
class Case:
    """Jobs that share links."""

    capacity_bps: tuple[float, ...]
    jobs: tuple[TimedJob, ...]
    floor: float = 0.1
    """Fraction of each link that every rank but the first keeps."""


class Objective(StrEnum):
    """Objective of a plan: the ``WORST`` slowdown of an iteration, a ``WEIGHTED`` sum, or ``WORK`` lost per second."""

    WORST = "worst"
    WORK = "gpu-seconds"
    WEIGHTED = "weighted"

    def cost(self, job: TimedJob, iteration_s: float) -> float:
        """Return the cost of one job. It is 0 for an undisturbed job, and grows with the time of an iteration."""
        if not job.weight:
            return 0.0
        if self is Objective.WORK:
            return job.work / job.ideal_s - job.work / iteration_s
        return (min(iteration_s / job.ideal_s, _LONGEST) - 1) * (job.weight if self is Objective.WEIGHTED else 1.0)

    def total(self, costs: Sequence[float]) -> float:
        return max(costs, default=0.0) if self is Objective.WORST else sum(costs)

    def bound(self, jobs: Sequence[TimedJob], needs: Sequence[float], room: float) -> float:
        """Return a lower bound of the total, if needs x ideal time / iteration time add up to at most the room."""
        needy = [(job, need) for job, need in zip(jobs, needs, strict=True) if need * job.weight > 0]
        excess = sum(need for _, need in needy) - room
        if excess <= 0 or room <= 0:
            return 0.0
        if self is Objective.WORST:
            return excess / room
        if self is Objective.WORK:
            lost = 0.0
            for value, need in sorted((job.work / job.ideal_s / need, need) for job, need in needy):
                lost += value * max(0.0, min(need, excess))  # the job waits first that loses least work per bit
                excess -= need
            return lost

        def least(root: float) -> float:
            """Return the least sum of weight / x + price x need x over 0 < x <= 1, without the price of the room.

            ``root``: square root of the price. The price itself may underflow to 0 if weights are tiny."""
            price = root * root
            best = ((min(1.0, math.sqrt(job.weight / need) / root), job.weight, need) for job, need in needy)
            return sum(weight * (1 / x - 1) + price * need * x for x, weight, need in best) - price * room

        best, waiting = 0.0, 0.0
        for job, need in sorted(needy, key=lambda each: each[0].weight / each[1]):  # those wait first that cost least
            waiting, excess = waiting + math.sqrt(job.weight * need), excess - need
            if excess < 0:
                best = max(best, least(waiting / -excess))
        return best


def guaranteed_s(case: Case, choices: Choices, period_s: float = 0.0, max_wait: float = math.inf) -> dict[int, float]:
    """Return the guaranteed iteration time of each job; infinite for a member whose circle is not kept.

    ``max_wait``: largest wait for a slot, as a fraction of the ideal iteration. The circle of a member that would wait
    longer counts as not kept."""
    plan = _Plan(case, choices, period_s)
    return {job: plan.iteration_s(job, max_wait) for job in choices}


def iteration_s(case: Case, choices: Choices, number: int, period_s: float = 0.0, max_wait: float = math.inf) -> float:
    """Return the guaranteed iteration time of one job, as ``guaranteed_s`` does."""
    return _Plan(case, choices, period_s).iteration_s(number, max_wait)


# ---- one plan


class _Slot(NamedTuple):
    """Slot of a phase as other jobs see it. It begins when the phase can begin at the earliest."""

    begin_s: float
    length_s: float
    sends: Demand


class _Link(NamedTuple):
    """Link of a job in one phase; numbers are fractions of the room that the job's rank has on the link."""

    own: float
    same: dict[int, float]
    """Demand of each other job of the same rank."""
    higher: dict[int, float]
    """Demand of each job of a higher rank."""
    floor: float
    """Room that higher ranks leave in any case."""
    link: int

    @property
    def load(self) -> float:
        return self.own + sum(self.same.values())

    @property
    def overfull(self) -> bool:
        return self.load + sum(self.higher.values()) > 1 + EPSILON

    def worst_s(self, ideal_s: float, sends_s: Mapping[int, float]) -> float:
        """Return the longest time for ``ideal_s`` seconds of communication beside jobs of the same rank.

        ``sends_s``: seconds at full demand that each of these jobs can send meanwhile; at worst, all begin at once."""
        total, before, needed_s = self.load, 0.0, 0.0
        for until_s, bps in sorted((min(sends_s[job], ideal_s), bps) for job, bps in self.same.items()):
            needed_s += (until_s - before) * max(1.0, total)
            total, before = total - bps, until_s
        return needed_s + (ideal_s - before) * max(1.0, total)


class _Plan:
    def __init__(self, case: Case, choices: Choices, period_s: float) -> None:
        self._case, self._choices, self._period_s = case, choices, period_s
        self._users: defaultdict[int, list[int]] = defaultdict(list)
        self._peak = {job: case.jobs[job].peaks[choice.way] for job, choice in choices.items()}
        for job, peak in self._peak.items():
            for link in peak:
                self._users[link].append(job)
        self._slots = {job: [*self._slots_of(job)] for job, choice in choices.items() if choice.start_s is not None}

    def iteration_s(self, number: int, max_wait: float) -> float:
        if self._choices[number].start_s is not None:
            return self._member_s(number, max_wait)
        job = self._case.jobs[number]
        phases = range(len(job.phases))
        return job.compute_s + sum(self._free_phase_s(number, phase) for phase in phases)

    def _free_phase_s(self, number: int, phase: int) -> float:
        job = self._case.jobs[number]
        ideal_s = job.phases[phase].ideal_s
        links = self._links(number, phase)
        crowded = _undominated([link for link in links if link.load > 1 + EPSILON])
        delays = _delays(links)
        most_s = capped_s = ideal_s * max([1.0, *(link.load for link, _ in crowded)])
        if delays:
            floors = [link.load / link.floor if link.floor else math.inf for link in links if link.higher]
            capped_s = max(most_s, ideal_s * max(floors))
        took_s = 0.0
        grown_s = ideal_s
        while took_s < grown_s - EPSILON * ideal_s:
            took_s = grown_s
            if took_s > _LONGEST * job.ideal_s:
                return math.inf
            own_s = ideal_s
            for link, on in crowded:
                sends_s = {other: self._burst_s(other, on, took_s) for other in link.same}
                own_s += link.worst_s(ideal_s, sends_s) - ideal_s
            delay_s = sum(part * self._burst_s(other, on, took_s) for other, (part, on) in delays.items())
            grown_s = min(capped_s, min(own_s, most_s) + delay_s)
        return grown_s

    def _member_s(self, number: int, max_wait: float) -> float:
        job, choice = self._case.jobs[number], self._choices[number]
        count = choice.turns
        assert choice.start_s is not None
        if self._period_s < count * job.ideal_s * (1 - EPSILON):
            return math.inf
        waits_s = []
        for turn in range(count):
            wait_s, at = 0.0, choice.start_s + turn * self._period_s / count
            for phase, (compute_s, _) in enumerate(job.phases):
                at += compute_s if phase else 0.0
                length_s = self._length_s(number, phase)
                needed_s = self._needed_s(number, phase, at, length_s)
                if needed_s > length_s + EPSILON * job.ideal_s:
                    return math.inf
                wait_s += length_s - needed_s
                at += length_s
            waits_s.append(wait_s)
        return self._period_s / count if min(waits_s) <= max_wait * job.ideal_s + EPSILON else math.inf

    def _needed_s(self, number: int, phase: int, begin_s: float, length_s: float) -> float:
        """Return how long a phase of a member takes that begins with its slot; more than ``length_s`` if it is late."""
        ideal_s, rank = self._case.jobs[number].phases[phase].ideal_s, self._choices[number].rank
        links = self._links(number, phase)
        others = [
            (max(0.0, at), min(length_s, at + slot.length_s), other, slot.sends)
            for other, slots in self._slots.items()
            if other != number
            for slot in slots
            for at in self._begins(slot, begin_s, length_s)
        ]
        delays = {job: delay for job, delay in _delays(links).items() if job not in self._slots}
        left_s = ideal_s + sum(part * self._burst_s(job, on, length_s) for job, (part, on) in delays.items())
        marks = sorted({0.0, length_s, *(at for each in others for at in each[:2])})
        for here, there in pairwise(marks):
            now = [(other, sends) for since, until, other, sends in others if since <= here and until >= there]
            speed = 1.0
            for link in links:
                room = 1 / self._room(link.link, rank)
                load = link.own + sum(bps for other, bps in link.same.items() if other not in self._slots)
                load += sum(sends.get(link.link, 0.0) * room for other, sends in now if other in link.same)
                ahead = sum(sends.get(link.link, 0.0) * room for other, sends in now if other in link.higher)
                speed = min(speed, max(link.floor, 1 - ahead) / load)
            if left_s <= speed * (there - here) * (1 + EPSILON):
                return here + left_s / speed
            left_s -= speed * (there - here)
        return math.inf

    def _begins(self, slot: _Slot, begin_s: float, length_s: float) -> Iterator[float]:
        """Yield the begins of a slot, counted from ``begin_s``, whose slots overlap with the next ``length_s``."""
        at = (slot.begin_s - begin_s) % self._period_s - self._period_s
        while at < length_s:
            if at + slot.length_s > 0:
                yield at
            at += self._period_s

    def _slots_of(self, number: int) -> Iterator[_Slot]:
        job, choice = self._case.jobs[number], self._choices[number]
        for turn in range(choice.turns):
            assert choice.start_s is not None
            earliest = planned = choice.start_s + turn * self._period_s / choice.turns
            for phase, (compute_s, ideal_s) in enumerate(job.phases):
                earliest, planned = (at + compute_s if phase else at for at in (earliest, planned))
                end_s = planned + self._length_s(number, phase)
                yield _Slot(earliest, end_s - earliest, job.ways[choice.way][phase])
                earliest, planned = earliest + ideal_s, end_s

    def _length_s(self, number: int, phase: int) -> float:
        job = self._case.jobs[number]
        return job.phases[phase].ideal_s * job.stretch(self._period_s / self._choices[number].turns)

    def _links(self, number: int, phase: int) -> list[_Link]:
        """Return the links of a job's phase that it shares with other jobs, or overfills by itself."""
        way, rank = self._choices[number][:2]
        links = []
        for link, bps in self._case.jobs[number].ways[way][phase].items():
            room = self._room(link, rank)
            if len(self._users[link]) == 1 and bps <= room:
                continue
            others = [(job, self._choices[job].rank, self._peak[job][link] / room) for job in self._users[link]]
            same = {job: peak for job, of, peak in others if of == rank and job != number}
            higher = {job: peak for job, of, peak in others if of < rank}
            links.append(_Link(bps / room, same, higher, self._case.floor * self._case.capacity_bps[link] / room, link))
        return links

    def _room(self, link: int, rank: int) -> float:
        """Return the bits per second that lower ranks leave to a rank on a link."""
        lower = {self._choices[job].rank for job in self._users[link]}
        return self._case.capacity_bps[link] * (1 - self._case.floor * sum(of > rank for of in lower))

    def _burst_s(self, number: int, links: Collection[int], within_s: float) -> float:
        return self._case.jobs[number].burst_s(self._choices[number].way, links, within_s)


def _delays(links: Sequence[_Link]) -> dict[int, tuple[float, tuple[int, ...]]]:
    """Return for each job of a higher rank its cost as a multiple of its sending time, and the links where it costs.

    The same bits of a job cross all of its links at once, so only the link where they cost most counts."""
    found: dict[int, tuple[float, tuple[int, ...]]] = {}
    for link in links:
        if link.overfull:
            for job, part in link.higher.items():
                most, on = found.get(job, (0.0, ()))
                found[job] = max(most, part), (*on, link.link)
    return found


def _undominated(links: Sequence[_Link]) -> list[tuple[_Link, tuple[int, ...]]]:
    """Return the links without those on which every job is at most as large as on another link of the list.

    With each link come the omitted links that it stands for, because a job may use them in different phases."""
    kept: list[tuple[_Link, tuple[int, ...]]] = []
    for link in sorted(links, key=lambda each: -each.load):
        for place, (other, on) in enumerate(kept):
            if link.own <= other.own * (1 + EPSILON) and all(
                part <= other.same.get(job, 0.0) * (1 + EPSILON) for job, part in link.same.items()
            ):
                kept[place] = other, (*on, link.link)
                break
        else:
            kept.append((link, (link.link,)))
    return kept
