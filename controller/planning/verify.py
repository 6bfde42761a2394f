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
import sys
from collections import Counter, defaultdict
from fractions import Fraction
from operator import itemgetter
from typing import Any


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


if __name__ == "__main__":
    try:
        said, unchecked = verify(read(sys.argv[1]))
    except (OSError, ValueError) as problem:
        sys.exit(f"error: {problem}")
    sys.stdout.write(f"{said}\n")
    sys.exit(4 if unchecked else 0)
