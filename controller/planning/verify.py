"""Checker of a plan and its proofs from the plan's file alone: ``python3 docs/verify_plan.py plan.json``.

Only Python is needed, and no solver. docs/reference/json-output.md describes the file,
docs/explanation/planning.md#check-a-plan-yourself the proofs.

The peak slowdown of a job is the largest load of a link that it uses, at least 1. If its phases have shares, its
slowdown is the sum of share * slowdown over its phases; otherwise it is the peak slowdown. A phase counts with its own
demand on a link, and other jobs with their largest demand in any phase.

All numbers are integers; slowdowns, bounds and shares are multiples of 1 / ``denominator``. The proof for n jobs
states: let the flows take any walks of ``hops`` links, and let the n - 1 worst peak slowdowns be at most those of the
plan. Then the n-th peak slowdown is at least the bound of the proof. The plan's own n-th peak slowdown is at most
``tolerance`` (relative) above that bound.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple


def read(file: Any) -> Any:
    """Return the plan that the file contains.

    Raises ``ValueError`` for a file without a plan, or with numbers that are no integers."""
    with open(file, encoding="utf-8") as text:
        try:
            plan = json.load(text, parse_float=int, parse_constant=int)
        except json.JSONDecodeError as error:
            raise ValueError(f"the file is not JSON: {error}") from error
    _require(isinstance(plan, dict), f"a plan with its proofs is a JSON object, but this is a {type(plan).__name__}")
    missing = [name for name in ("links", "jobs", "flows", "cuts", "proofs") if name not in plan]
    _require(not missing, f"the file is not a plan with its proofs; it has no {', '.join(missing)}")
    return plan


def verify(plan: Any) -> tuple[str, int]:
    """Return a text on the proven slowdowns, and the number of peak slowdowns that only a search has proven.

    The proofs of a search cannot be checked. Raises ``ValueError`` with the first claim that does not follow from the
    plan."""
    try:
        of_job, whole, near = slowdowns_of(plan), plan["denominator"], plan["denominator"] + plan["tolerance"]
        for job, slowdown in zip(plan["jobs"], of_job, strict=True):
            _require(
                job["slowdown"] == slowdown,
                f"job {job['name']} has slowdown {slowdown / whole:.9g} by its routes, but the plan claims "
                f"{job['slowdown'] / whole:.9g}",
            )
        slowdowns, graph = sorted(peaks_of(plan), reverse=True), Graph(plan["links"] if plan["cuts"] else [])
        cuts = [Cut(plan, graph, cut) for cut in plan["cuts"]]
        bounds = [_bound(cuts, proof, slowdowns, whole) for proof in plan["proofs"]]
        proven, searched = plan["proven"], plan["searched"]
        _require(
            0 <= proven <= proven + searched <= len(slowdowns),
            "the plan claims more proven slowdowns than it has jobs",
        )
        _require(whole <= near <= whole + whole // 10_000, "the tolerance must be from 0 to 1/10,000")
        for place, slowdown in enumerate(slowdowns[:proven], 1):
            bound = max([whole, *(bound for jobs, bound in bounds if jobs >= place)])
            _require(
                slowdown * whole <= bound * near,
                f"slowdown number {place} from the worst is {slowdown / whole:.9g}, but the proofs show only that it "
                f"is at least {bound / whole:.9g}",
            )
        worst, least = max([whole, *slowdowns]), _least_peak(plan)
        known = proven + sum(slowdown <= near for slowdown in slowdowns[proven + searched :])
        text = f"worst slowdown {worst / whole:.6g}, at least {least / whole:.6g} with any routes; "
        text += f"{known} of {len(slowdowns)} slowdowns proven"
        text += f", {searched} more by a search, which cannot be checked" * (searched > 0)
        if _has_shares(plan):
            least = least_of(plan, cuts)
            over_phases = f"worst slowdown {max(of_job) / whole:.6g}, at least {least / whole:.6g} with any routes; "
            text = f"{over_phases}by the slowest phase of each job: {text}"
        if "sharing" in plan:
            text += f"; {Sharing(plan).check(cuts)}"
        return text, searched
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError) as error:
        raise ValueError(f"the file is not a plan with its proofs: {type(error).__name__} {error}") from error


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _loads(plan: Any) -> dict[Any, dict[int, int]]:
    """Return the load of each job and phase by link.

    Raises ``ValueError`` for a flow on a path that it may not take."""
    starts, ends, capacities = zip(*plan["links"], strict=True) if plan["links"] else ((), (), ())
    start, end, jobs, whole = starts.__getitem__, ends.__getitem__, len(plan["jobs"]), plan["denominator"]
    _require(whole > 0 and min(capacities, default=1) > 0, "a link has no capacity")
    loads = defaultdict[Any, dict[int, int]](lambda: defaultdict(int))
    for number, flow in enumerate(plan["flows"]):
        job, demand, route, hops, left = flow["job"], flow["demand"], flow["route"], flow["hops"], whole
        sound = 0 <= job < jobs and len(route) <= flow["max_subflows"]
        for share, path in route:
            left -= share
            sound = sound and share > 0 and len(path) == hops and min(path) >= 0
            sound = sound and [flow["from"], *map(end, path)] == [*map(start, path), flow["to"]]
            for phase, rate in demand:
                cell, part = loads[job, phase], rate * share
                sound = sound and rate > 0
                for link in path:
                    cell[link] += part
        if not sound or left:
            raise ValueError(f"the route of flow {number} is not valid")
    return loads


def peaks_of(plan: Any) -> list[int]:
    """Return the peak slowdown of each job, rounded up.

    Raises ``ValueError`` for a flow on a path that it may not take."""
    peaks, total = _peaks(plan, _loads(plan))
    load = {link: -(-rate // plan["links"][link][2]) for link, rate in total.items()}
    return [max([plan["denominator"], *(load[link] for link in of_job)]) for of_job in peaks]


def slowdowns_of(plan: Any) -> list[int]:
    """Return the slowdown of each job, rounded up.

    Raises ``ValueError`` for a flow on a path that it may not take, and for shares that do not add up to 1."""
    if not _has_shares(plan):
        return peaks_of(plan)
    whole, jobs, loads = plan["denominator"], plan["jobs"], _loads(plan)
    peaks, total = _peaks(plan, loads)
    found = [0] * len(jobs)
    for number, job in enumerate(jobs):
        total_share = sum(share for _, share in job["shares"])
        _require(total_share == whole, f"the shares of job {job['name']} do not add up to 1")
        for phase, share in job["shares"]:
            cell, peak = loads.get((number, phase), {}), peaks[number]
            seen = [-((peak[link] - total[link] - own) // plan["links"][link][2]) for link, own in cell.items()]
            found[number] += share * max([whole, *seen])
            _require(share >= 0, f"a share of job {job['name']} is negative")
    return [-(-slowdown // whole) for slowdown in found]


def _has_shares(plan: Any) -> bool:
    return any("shares" in job for job in plan["jobs"])


def _peaks(plan: Any, loads: dict[Any, dict[int, int]]) -> tuple[list[dict[int, int]], dict[int, int]]:
    """Return the load of each job's largest phase by link, and their sum over all jobs."""
    peaks: list[dict[int, int]] = [{} for _ in plan["jobs"]]
    for (job, _), cell in loads.items():
        own = peaks[job]
        peaks[job] = {at: max(own.get(at, 0), cell.get(at, 0)) for at in own.keys() | cell.keys()} if own else cell
    total = defaultdict[int, int](int)
    for of_job in peaks:
        for link, rate in of_job.items():
            total[link] += rate
    return peaks, total


def _least_peak(plan: Any) -> int:
    least: int = max([plan["denominator"], *(proof["bound"] for proof in plan["proofs"])])
    return least


def least_of(plan: Any, cuts: list[Cut] | None = None) -> int:
    """Return the lower bound of the worst slowdown that the proofs and meetings show, for any routes.

    When a cut shows that a job has at least the peak slowdown ``bound``, one phase of the job has at least this
    slowdown."""
    if not _has_shares(plan):
        return _least_peak(plan)
    whole: int = plan["denominator"]
    graph = Graph(plan["links"])
    cuts = cuts or [Cut(plan, graph, of) for of in plan["cuts"]]
    least = _of_meetings(plan, cuts)
    for cut in cuts:
        shares = [share for job in cut.needs for _, share in plan["jobs"][job]["shares"]]
        for bound in {proof["bound"] for proof in plan["proofs"]}:
            if shares and cut.proves(set(cut.needs), 1, bound, bound):
                least = max(least, whole + min(shares) * (bound - whole) // whole)
    return least


def _of_meetings(plan: Any, cuts: list[Cut]) -> int:
    """Return the lower bound of the worst slowdown that the meetings show. A meeting has a phase of some jobs.

    On each link of the meeting's cut, each phase sees at least the sum of the phases' rates. So the sum of need *
    slowdown is at least the square of the sum of needs, divided by the sum of price * capacity. A job with slowdown S
    adds at most the sum of weight * need * bound over its phases, plus S - (sum of share * bound) times its largest
    weight * need / share. The bounds of phases follow from single cuts."""
    whole: int = plan["denominator"]
    shares = [dict(job["shares"]) for job in plan["jobs"]]
    slowest = Counter({(job, phase): whole for job, of in enumerate(shares) for phase in of})
    for cut in cuts:
        for cell, load in cut.loads().items():
            slowest[cell] = max(slowest[cell], load)
    sums, total = Counter[Any](), 0
    for meeting in plan.get("meetings", ()):
        cut, phases, weight = cuts[meeting["cut"]], dict(meeting["phases"]), meeting["weight"]
        _require(
            weight > 0 <= meeting["cut"]
            and cut.adds_up
            and len(phases) == len(meeting["phases"])
            and all(job >= 0 < shares[job][phase] for job, phase in phases.items()),
            "a meeting needs a weight above 0, a cut by demands, and at most one phase per job, with a share",
        )
        needs = {cell: weight * cut.cells[cell] for cell in phases.items()}
        sums.update(needs)
        total += sum(needs.values()) ** 2 * whole // (weight * cut.room)
    own = [sum(share * slowest[job, phase] for phase, share in of.items()) // whole for job, of in enumerate(shares)]
    most = [
        max([-(-sums[job, phase] * whole // share) for phase, share in of.items() if share], default=0)
        for job, of in enumerate(shares)
    ]
    total += sum(of * own[job] for job, of in enumerate(most)) - sum(of * slowest[cell] for cell, of in sums.items())
    least: int = max([whole, *own, total // (sum(most) or 1)])
    return least


def _bound(cuts: list[Cut], proof: Any, slowdowns: list[int], whole: int) -> tuple[int, int]:
    """Return the number of jobs and the bound of one proof. Raises ``ValueError`` when the proof is wrong.

    The proof states that at least ``jobs`` jobs are *slow*: their peak slowdown is at least ``bound``. It consists of
    groups of jobs. A cut shows for each group that at least ``least`` of its jobs are slow.

    The groups have weights, and the weight of a job is the sum over its groups. The sum of weight * ``least`` over all
    groups is larger than ``jobs - 1`` times the largest weight of a job. Therefore ``jobs - 1`` slow jobs cannot be
    enough for all groups."""
    jobs, bound = proof["jobs"], proof["bound"]
    _require(
        jobs > 0 and whole <= bound <= slowdowns[jobs - 1],
        f"the bound of a proof is below 1 or above slowdown number {jobs} from the worst",
    )
    total, of_job = 0, Counter[int]()
    for group in proof["groups"]:
        members, least, weight = set(group["jobs"]), group["least"], group["weight"]
        _require(
            weight > 0 < least <= len(members) and group["cut"] >= 0,
            "a group of a proof needs a weight above 0, jobs and a cut",
        )
        proves = cuts[group["cut"]].proves(members, least, bound, slowdowns[0])
        _require(
            proves,
            f"cut {group['cut']} does not prove the bound {bound / whole:.6g} for {least} of {len(members)} jobs",
        )
        total += weight * least
        of_job.update(dict.fromkeys(members, weight))
    _require(
        total > (jobs - 1) * max(of_job.values()),
        f"the groups of a proof show fewer than the {jobs} slow jobs that the proof claims",
    )
    return jobs, bound


class Cut:
    """Prices of links, which prove lower bounds of slowdowns.

    ``needs``: per job the sum over its flows of demand * price of the cheapest walk, in the phase with the largest sum.
    ``cells``: this sum by job and phase. ``room``: sum of price * capacity. ``adds_up``: whether the sums count all
    demands, each phase by itself. Three fields of the cut change the sums:

    - ``phases``: divides the prices of links among the phases of some jobs. The sums of all phases of such a job, each
      with the phase's own prices, are added.
    - ``unit``: if it is above 0, only whole flows count, and their demands are in units, rounded down.
    - ``subflows``: if it is above 1, each flow that may have at most so many subflows counts as 1. Its demand must be
      at least one unit, and each of its walks must have a price."""

    def __init__(self, plan: Any, graph: Graph, cut: Any) -> None:
        price, self._unit, self._whole = dict(cut["prices"]), int(cut["unit"]), int(plan["denominator"])
        self._single, self._rooms, self._most = len(price) == 1, Counter[int](), int(cut.get("subflows", 1))
        counts = self._most > 1 and self._unit > 0 and not cut["phases"]
        _require(self._most == 1 or counts, "a cut that counts subflows needs a unit above 0, and must have no phases")
        self._links = [plan["links"][link][2] for link in price]
        for link, of in price.items():
            self._rooms[plan["links"][link][2]] += of
        parts, divided = defaultdict[Any, dict[int, int]](dict), Counter[Any]()
        for job, phase, link, part in cut["phases"]:
            parts[job, phase][link] = part
            divided[job, link] += part
            _require(
                part >= 0 <= price[link] - divided[job, link],
                "the prices of the phases of a link add up to more than the price of the link",
            )
        _require(
            self._unit >= 0 and all(link >= 0 <= of for link, of in price.items()),
            "the unit and the prices of a cut must not be negative",
        )
        every, nowhere, own = Walks(graph, price), Walks(graph, {}), {job for job, _ in parts}
        walks = {cell: Walks(graph, of) for cell, of in parts.items()}
        cells = Counter[Any]()
        for number in set(cut["flows"]):
            flow = plan["flows"][number]
            job, ends = flow["job"], (flow["from"], flow["to"], flow["hops"])
            for phase, rate in flow["demand"] if flow["max_subflows"] <= self._most or not self._unit else ():
                priced = walks.get((job, phase), nowhere) if job in own else every
                need = priced.cheapest(*ends) * (rate // (self._unit or 1))
                cells[job, None if job in own else phase] += min(1, need) if self._most > 1 else need
        self.needs, self.cells, self.adds_up = dict[int, int](), cells, not own and not self._unit
        self.room = sum(price * capacity for capacity, price in self._rooms.items())
        for (job, _), need in cells.items():
            self.needs[job] = max(need, self.needs.get(job, 0))

    def proves(self, members: set[int], least: int, bound: int, worst: int) -> bool:
        """Return whether at least ``least`` of these jobs have at least the slowdown ``bound``, in every routing.

        Only routings in which no job exceeds ``worst`` count. Suppose that fewer jobs, those with the largest needs,
        have at least the slowdown ``bound``. The proof shows that the links of the cut then have no room for all flows.
        When the cut is a single link, the load of this link counts for all jobs on it."""
        inside, total = sorted([self.needs.get(job, 0) for job in members]), sum(self.needs.values())
        low = total if self._single and inside[0] else sum(inside[: len(inside) - least + 1])
        if not self._unit:
            return low > 0 and (low * worst + (total - low) * bound) * self._whole >= self.room * bound * worst
        unit = self._whole * self._unit
        if self._most > 1:
            return low > 0 and self._crowded(low, unit, bound)
        fits = [(of, (bound * capacity - 1) // unit, worst * capacity // unit) for capacity, of in self._rooms.items()]
        others = (total - low) * min([Fraction(below, most) for _, below, most in fits if most], default=0)
        return low + others > sum(price * below for price, below, _ in fits)

    def loads(self) -> dict[Any, int]:
        """Return a lower bound of the slowdown of each job and phase, rounded down, if the needs count all demands.

        The phase's own need counts. When the cut is a single link, so do the needs of all other jobs."""
        if not self.adds_up or not self.room:
            return {}
        others = sum(self.needs.values()) if self._single else 0
        return {
            (job, phase): (need + (others - self.needs[job] if self._single else 0)) * self._whole // self.room
            for (job, phase), need in self.cells.items()
            if need
        }

    def _crowded(self, flows: int, unit: int, bound: int) -> bool:
        """Return whether the links have no room for these flows of one unit when all loads are below ``bound``.

        The flows use at most ``flows * most`` links. A group of n flows that share links uses at most
        ``n * (most - 1) + 1`` links, because each subflow joins one flow and one link."""
        rooms = sorted((capacity * bound for capacity in self._links), reverse=True)
        if flows * unit >= sum(rooms[: flows * self._most]):
            return True
        short = unit - (self._most - 1) * rooms[0]
        if short <= 0:  # a group of any size has room for its flows
            return False
        largest = int(-(-rooms[0] // short)) - 1
        return flows * (self._most - 1) - (-flows // largest) > len(rooms)


class Graph:
    """Links between nodes.

    ``cables``: number of links per pair of nodes. ``after``: per node the nodes to which it has a link. ``before``: per
    node the nodes from which it has a link."""

    def __init__(self, links: Any) -> None:
        self.links, self.cables = links, Counter(map(itemgetter(0, 1), links))
        self.after, self.before = defaultdict[Any, set[Any]](set), defaultdict[Any, set[Any]](set)
        for start, end in self.cables:
            self.after[start].add(end)
            self.before[end].add(start)


class Walks:
    """Cheapest walks by prices of links; a link without a price costs 0."""

    def __init__(self, graph: Graph, price: dict[int, int]) -> None:
        self._graph, self._known, cables = graph, dict[Any, Any](), defaultdict[Any, list[int]](list)
        for link, of in price.items():
            cables[graph.links[link][0], graph.links[link][1]].append(of)
        self._price = {ends: min(of) for ends, of in cables.items() if len(of) == graph.cables[ends]}

    def cheapest(self, src: Any, dst: Any, hops: int) -> Any:
        """Return the price of the cheapest walk with ``hops`` links, at least two; infinity when there is none."""
        if (src, dst, hops) not in self._known:
            after, before, price = self._graph.after[src], self._graph.before[dst], self._price.get
            if hops == 2:
                ways = [price((src, node), 0) + price((node, dst), 0) for node in after & before]
            elif len(after) <= len(before):
                ways = [price((src, node), 0) + self.cheapest(node, dst, hops - 1) for node in after]
            else:
                ways = [self.cheapest(src, node, hops - 1) + price((node, dst), 0) for node in before]
            self._known[src, dst, hops] = min(ways, default=float("inf"))
        return self._known[src, dst, hops]


# ---- jobs that share links in time


_NEAR, _CLOSE = 1e-8, 1e-6
"""Relative differences up to which times count as equal: within a computation, and of a claim."""
_LONGEST = 1_000.0
"""Multiple of its ideal duration above which an iteration counts as endless."""
OBJECTIVES = {
    "worst": "worst slowdown of an iteration",
    "weighted": "weighted mean slowdown of iterations",
    "gpu-seconds": "part of the GPU-seconds that sharing costs",
}


class TimedJob(NamedTuple):
    """Job in time: a phase computes, then communicates. Times are in seconds.

    ``loads``: per phase the load of each link while the job sends alone. ``circle`` is -1 for a job without slots."""

    compute: list[float]
    ideal: list[float]
    loads: list[dict[int, float]]
    rank: int = 1
    circle: int = -1
    period: float = 0.0
    start: float = 0.0
    turns: int = 1

    @property
    def alone(self) -> float:
        """Ideal duration of an iteration."""
        return sum(self.compute) + sum(self.ideal)

    @property
    def lengths(self) -> list[float]:
        """Durations of the slots: the slack of an iteration is divided in proportion to the communication."""
        slack = max(0.0, self.period / self.turns - self.alone)
        return [ideal * (1 + slack / sum(self.ideal)) for ideal in self.ideal]

    def burst(self, links: set[int], within: float) -> float:
        """Return how long the job can send over any of these links within so many seconds."""
        uses = [not links.isdisjoint(load) for load in self.loads]
        turns, rest = divmod(within, self.alone)
        most = 0.0
        for first in range(len(uses)):
            left, sent = rest, 0.0
            for at in (*range(first, len(uses)), *range(first)):
                left -= self.compute[at] if at != first else 0.0
                sent += max(0.0, min(left, self.ideal[at])) * uses[at]
                left -= self.ideal[at]
            most = max(most, sent)
        return most + turns * sum(ideal for ideal, used in zip(self.ideal, uses, strict=True) if used)


class _Share(NamedTuple):
    """Link of a phase. Loads of the phase, of jobs of its class and of higher classes are fractions of ``room``.

    ``room``: fraction of the link that lower classes leave. ``floor``: fraction of ``room`` that higher classes
    leave."""

    link: int
    room: float
    own: float
    equal: dict[int, float]
    ahead: dict[int, float]
    floor: float

    @property
    def load(self) -> float:
        return self.own + sum(self.equal.values())


class Guarantees:
    """Longest iterations of jobs over all moments at which jobs may begin.

    docs/explanation/sharing-links.md#check-slots-and-classes-yourself has the formulas.

    ``floor``: fraction of each link that each class but the first keeps."""

    def __init__(self, jobs: list[TimedJob], floor: float) -> None:
        self._jobs, self._floor, self._peaks = jobs, floor, [_largest(job.loads) for job in jobs]
        self._users = defaultdict[int, list[int]](list)
        for number, peak in enumerate(self._peaks):
            for link in peak:
                self._users[link].append(number)

    def iteration(self, number: int) -> float:
        """Return the longest iteration of a job in seconds; infinity for a job with slots that are too short."""
        job = self._jobs[number]
        if job.circle < 0:
            return sum(job.compute) + sum(self._longest(number, phase) for phase in range(len(job.ideal)))
        fits = job.period >= job.turns * job.alone * (1 - _NEAR)
        for turn in range(job.turns):
            at = job.start + turn * job.period / job.turns
            for phase, length in enumerate(job.lengths):
                at += job.compute[phase] if phase else 0.0
                fits = fits and self._fits(number, phase, at, length)
                at += length
        return job.period / job.turns if fits else math.inf

    def _longest(self, number: int, phase: int) -> float:
        """Return the longest communication of a phase of a job without slots."""
        ideal, shares = self._jobs[number].ideal[phase], self._shares(number, phase)
        full, delays = self._full(shares), self._delays(shares)
        most = ideal * max([1.0, *(share.load for share, _ in full)])
        floors = [share.load / share.floor if share.floor else math.inf for share in shares if share.ahead]
        capped = max(most, ideal * max(floors)) if delays else most
        took, grown = -math.inf, ideal
        while grown > took + _NEAR * ideal:
            took, own = grown, ideal
            for share, on in full:
                until = {other: min(ideal, self._jobs[other].burst(on, took)) for other in share.equal}
                for here, there in pairwise(sorted({0.0, ideal, *until.values()})):
                    load = share.own + sum(part for other, part in share.equal.items() if until[other] >= there)
                    own += (there - here) * max(0.0, load - 1)
            waits = sum(part * self._jobs[other].burst(on, took) for other, (part, on) in delays.items())
            grown = min(capped, min(own, most) + waits)
            if grown > _LONGEST * self._jobs[number].alone:
                return math.inf
        return grown

    def _fits(self, number: int, phase: int, begin: float, length: float) -> bool:
        """Return whether a phase of a job with slots ends within its slot."""
        job, shares, seen = self._jobs[number], self._shares(number, phase), list[tuple[float, float, int, Any]]()
        mates = {other for other, each in enumerate(self._jobs) if each.circle == job.circle} - {number}
        for other in mates:
            for since, long, loads in self._seen(other):
                at = (since - begin) % job.period - job.period
                seen += [(at + turn * job.period, at + turn * job.period + long, other, loads) for turn in range(3)]
        left = job.ideal[phase]
        for other, (part, on) in self._delays(shares).items():
            left += part * self._jobs[other].burst(on, length) if other not in mates else 0.0
        marks = {min(max(0.0, at), length) for each in seen for at in each[:2]}
        for here, there in pairwise(sorted({0.0, length, *marks})):
            now = [(other, loads) for since, until, other, loads in seen if since <= here and until >= there]
            speed = 1.0
            for share in shares:
                load = share.own + sum(part for other, part in share.equal.items() if other not in mates)
                load += sum(loads.get(share.link, 0.0) for other, loads in now if other in share.equal) / share.room
                first = sum(loads.get(share.link, 0.0) for other, loads in now if other in share.ahead) / share.room
                speed = min(speed, max(share.floor, 1 - first) / load)
            left -= speed * (there - here)
        return left <= _NEAR * job.alone

    def _seen(self, number: int) -> Iterator[tuple[float, float, dict[int, float]]]:
        """Yield begin, length and loads of each slot of a job; it may begin early if earlier phases ended early."""
        job = self._jobs[number]
        for turn in range(job.turns):
            earliest = at = job.start + turn * job.period / job.turns
            for phase, length in enumerate(job.lengths):
                earliest, at = (each + job.compute[phase] if phase else each for each in (earliest, at))
                yield earliest, at + length - earliest, job.loads[phase]
                earliest, at = earliest + job.ideal[phase], at + length

    def _shares(self, number: int, phase: int) -> list[_Share]:
        """Return the links of a phase on which other jobs send, or which the job overfills by itself."""
        jobs, rank, shares = self._jobs, self._jobs[number].rank, []
        for link, load in self._jobs[number].loads[phase].items():
            users = self._users[link]
            room = 1 - self._floor * len({jobs[other].rank for other in users if jobs[other].rank > rank})
            part = {other: self._peaks[other][link] / room for other in users if other != number}
            equal = {other: of for other, of in part.items() if jobs[other].rank == rank}
            ahead = {other: of for other, of in part.items() if jobs[other].rank < rank}
            if part or load > room:
                shares.append(_Share(link, room, load / room, equal, ahead, self._floor / room))
        return shares

    @staticmethod
    def _full(shares: list[_Share]) -> list[tuple[_Share, set[int]]]:
        """Return the links that a class overfills, with links on which every job sends at most as much.

        A job cannot wait for the same bits at two links, so only the first of these links counts."""
        kept: list[tuple[_Share, set[int]]] = []
        for share in sorted(shares, key=lambda each: -each.load):
            for other, on in kept if share.load > 1 + _NEAR else ():
                equal = all(part <= other.equal.get(job, 0.0) * (1 + _NEAR) for job, part in share.equal.items())
                if equal and share.own <= other.own * (1 + _NEAR):
                    on.add(share.link)
                    break
            else:
                kept += [(share, {share.link})] if share.load > 1 + _NEAR else []
        return kept

    @staticmethod
    def _delays(shares: list[_Share]) -> dict[int, tuple[float, set[int]]]:
        """Return for each job that goes first its largest load on full links, and the full links that it uses."""
        found: dict[int, tuple[float, set[int]]] = {}
        for share in shares:
            for job, part in share.ahead.items() if share.load + sum(share.ahead.values()) > 1 + _NEAR else ():
                most, on = found.get(job, (0.0, set[int]()))
                found[job] = max(most, part), {*on, share.link}
        return found


def least_cost(objective: str, jobs: list[tuple[float, float]], room: float) -> float:
    """Return a lower bound of the cost of jobs (weight, need) whose need * x add up to at most the room.

    x is the ideal duration / duration of an iteration, so at most 1. The cost is the largest 1 / x - 1 (``worst``), or
    the sum of weight * (1 / x - 1) (``weighted``) or of weight * (1 - x) (``gpu-seconds``)."""
    jobs = [(weight, need) for weight, need in jobs if weight > 0 < need]
    excess = sum(need for _, need in jobs) - room
    if excess <= 0 or room <= 0:
        return 0.0
    if objective == "worst":
        return excess / room
    if objective == "gpu-seconds":  # the jobs wait first whose bits are worth least
        cost = 0.0
        for value, need in sorted((weight / need, need) for weight, need in jobs):
            cost += value * max(0.0, min(need, excess))
            excess -= need
        return cost
    low, high = 0.0, max(math.sqrt(weight / need) for weight, need in jobs) * sum(need for _, need in jobs) / room
    for _ in range(100):  # any root of the price of room gives a bound: Lagrangian relaxation
        root = (low + high) / 2
        used = sum(need * min(1.0, math.sqrt(weight / need) / root) for weight, need in jobs)
        low, high = (root, high) if used > room else (low, root)
    x = [min(1.0, math.sqrt(weight / need) / high) for weight, need in jobs]
    cost = sum(weight * (1 / at - 1) + high * high * need * at for (weight, need), at in zip(jobs, x, strict=True))
    return cost - high * high * room


class Sharing:
    """Slots and classes of a plan (its key ``sharing``). Raises ``ValueError`` where they contradict the plan."""

    def __init__(self, plan: Any) -> None:
        self._of, self._whole = plan["sharing"], plan["denominator"]
        self._names, self.floor = [job["name"] for job in plan["jobs"]], self._of["floor"] / self._whole
        _require(self._of["objective"] in OBJECTIVES, "the objective of the sharing is not known")
        _require(0 <= self.floor < 1, "the floor of the sharing is not from 0 to 1")
        _require(len(self._of["jobs"]) == len(self._names), "the sharing does not have the jobs of the plan")
        loads, room = _loads(plan), [capacity * self._whole for *_, capacity in plan["links"]]
        full = {link for link, rate in _peaks(plan, loads)[1].items() if rate > room[link] * (1 + _NEAR)}
        sent: list[dict[Any, dict[int, float]]] = [{} for _ in self._names]
        for (job, phase), load in loads.items():
            sent[job][phase] = {link: rate / room[link] for link, rate in load.items() if link in full}
        self.jobs = [self._job(*of) for of in zip(self._names, self._of["jobs"], sent, strict=True)]

    def _job(self, name: str, of: Any, sent: dict[Any, dict[int, float]]) -> TimedJob:
        phases, (circle, start, turns) = of["phases"], of.get("slot", (-1, 0, 1))
        period = self._of["periods"][circle] if circle >= 0 else 0
        _require(
            of["weight"] >= 0 < turns and start >= 0 <= period and (bool(phases) or circle < 0),
            f"the weight or slot of job {name} is not valid",
        )
        _require(
            not phases or sent.keys() <= {phase for phase, _, ideal in phases if ideal > 0},
            f"the times of job {name} lack a phase",
        )
        _require(all(min(times) >= 0 for _, *times in phases), f"a time of job {name} is negative")
        if not phases:  # the job may send at any time
            return TimedJob([0.0], [1.0], [_largest(sent.values())], of["class"])
        compute, ideal = ([phase[at] / self._whole for phase in phases] for at in (1, 2))
        slot = circle, period / self._whole, start / self._whole, turns
        return TimedJob(compute, ideal, [sent.get(phase, {}) for phase, *_ in phases], of["class"], *slot)

    def check(self, cuts: list[Cut]) -> str:
        """Return a text on the objective and its bounds. Raises ``ValueError`` with the first claim that is wrong."""
        now, costs = Guarantees(self.jobs, self.floor), list[float]()
        without = Guarantees([job._replace(rank=1, circle=-1) for job in self.jobs], self.floor)
        for number, (name, job, of) in enumerate(zip(self._names, self.jobs, self._of["jobs"], strict=True)):
            if not of["phases"]:
                continue
            claimed, longest, most = of["guaranteed"] / self._whole, now.iteration(number), without.iteration(number)
            _require(longest < math.inf, f"job {name} cannot keep its slots, or its iterations have no limit")
            _require(
                longest <= claimed * (1 + _CLOSE),
                f"an iteration of job {name} may take {longest:.9g} s, but the plan claims at most {claimed:.9g} s",
            )
            if self._of["objective"] == "gpu-seconds" and self.floor:
                most = max(most, job.alone + sum(job.ideal) * (1 / self.floor - 1))
            _require(
                claimed <= most * (1 + _CLOSE),
                f"an iteration of job {name} takes up to {claimed:.9g} s, but its promise is {most:.9g} s",
            )
            costs.append(self._cost(of["weight"] / self._whole, claimed / job.alone))
        value = self._total(max(costs, default=0.0) if self._of["objective"] == "worst" else sum(costs))
        any_routes, claimed = self.bound(cuts), [self._of[key] / self._whole for key in ("value", "bound")]
        _require(
            abs(value - claimed[0]) <= _CLOSE * max(1.0, value),
            f"the guaranteed iterations have the value {value:.9g}, but the plan claims {claimed[0]:.9g}",
        )
        _require(
            claimed[1] <= any_routes + _CLOSE * max(1.0, any_routes),
            f"the cuts show only that the value is at least {any_routes:.9g}, but the plan claims {claimed[1]:.9g}",
        )
        what, of_routes = OBJECTIVES[self._of["objective"]], max(any_routes, self._bound_of_routes())
        return f"{what} {value:.6g}, at least {of_routes:.6g} on these routes and {any_routes:.6g} on any routes"

    def bound(self, cuts: list[Cut]) -> float:
        """Return the largest lower bound of the objective that a cut shows, for any routes, slots and classes."""
        best = self._total(0.0)
        for cut in cuts:
            if cut.adds_up:
                needs = [
                    sum(
                        ideal * cut.cells[number, phase[0]]
                        for ideal, phase in zip(job.ideal, of["phases"], strict=False)
                    )
                    for number, (job, of) in enumerate(zip(self.jobs, self._of["jobs"], strict=True))
                ]
                best = max(best, self._least(needs, cut.room))
        return best

    def _bound_of_routes(self) -> float:
        """Return the largest lower bound of the objective that a single link shows, for any slots and classes."""
        needs = defaultdict[int, list[float]](lambda: [0.0] * len(self.jobs))
        for number, (job, of) in enumerate(zip(self.jobs, self._of["jobs"], strict=True)):
            for ideal, load in zip(job.ideal, job.loads if of["phases"] else (), strict=False):
                for link, part in load.items():
                    needs[link][number] += ideal * part
        return max([self._total(0.0), *(self._least(of_link, 1.0) for of_link in needs.values())])

    def _least(self, bits: list[float], room: float) -> float:
        """Return the objective's lower bound if each job sends so many bits per iteration through so much room."""
        needs = [sent / job.alone for sent, job in zip(bits, self.jobs, strict=True)]
        weights = [of["weight"] / self._whole for of in self._of["jobs"]]
        return self._total(least_cost(self._of["objective"], [*zip(weights, needs, strict=True)], room))

    def _cost(self, weight: float, slowdown: float) -> float:
        if self._of["objective"] == "worst":
            return (slowdown - 1) * (weight > 0)
        return weight * (slowdown - 1 if self._of["objective"] == "weighted" else 1 - 1 / slowdown)

    def _total(self, cost: float) -> float:
        return cost if self._of["objective"] == "gpu-seconds" else 1 + cost


def _largest(loads: Iterable[dict[int, float]]) -> dict[int, float]:
    """Return the largest load of each link."""
    found: dict[int, float] = {}
    for load in loads:
        found |= {link: max(part, found.get(link, 0.0)) for link, part in load.items()}
    return found


if __name__ == "__main__":
    try:
        said, unchecked = verify(read(sys.argv[1]))
    except (OSError, ValueError) as problem:
        sys.exit(f"error: {problem}")
    sys.stdout.write(f"{said}\n")
    sys.exit(4 if unchecked else 0)
