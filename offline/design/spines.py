"""Number and rate of top-tier switches of a leaf-spine or fat-tree for given jobs, while some switches have failed.

In: the jobs of a workload, the leaves and hosts of the fabric, and the choices. Out: for each choice the least slowdown
of the all-reduces that any routing can reach (the planner's bound). ``smallest`` finds the smallest fabric for which
the planner's own routes reach a goal with every failure.

Failures that differ only by symmetry are tried once. In a fat-tree, the aggregation switches at one *position*, one in
each pod, share one group of cores. At each position either some pods lose their aggregation switch, or a number of
cores of the group fail. Positions are interchangeable: failures X at one position and Y at another have the same effect
as Y at the first and X at the second. So a way to fail is a multiset: the failed members of each position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Protocol

from controller.public.plans import Bounds, Plan, answered, plan, slowdown_bounds
from controller.public.problems import Fabric, PlanLimits
from offline.design.question import COUNTED, Upper
from offline.scenarios.fabric_options import FabricKind
from offline.scenarios.fabrics import fabric_of, spine_links, without
from offline.scenarios.graph_file import write_graph
from offline.scenarios.scenario import GIGABIT, problem_of
from offline.scenarios.topologies import OFFLINE, Topology, fat_tree, leaf_spine
from offline.scenarios.workloads import Numbering, WorkloadJob, lines_in, read_workload, write_workload

Members = tuple[int, ...]
"""Indices of the failed members of one position, ascending.

The members of a position are the cores of its group, or the aggregation switches that have this position in their
pods."""


def ways(positions: int, members: int, alike: bool, failed: int) -> Iterator[tuple[Members, ...]]:
    """Yield each distinct way to fail, as the failed members by position; positions without failures are last.

    - ``members``: number of members of each position.
    - ``alike``: whether the members of a position are interchangeable.
    - ``failed``: number of failed members, over all positions."""

    def some(size: int) -> Iterator[Members]:
        return iter((tuple(range(size)),)) if alike else combinations(range(members), size)

    return _ways_of_remaining(positions, failed, min(members, failed), None, some)


def _ways_of_remaining(
    positions: int, failed: int, largest: int, last: Members | None, some: Callable[[int], Iterator[Members]]
) -> Iterator[tuple[Members, ...]]:
    """Yield the ways in which ``failed`` members of the remaining positions can fail.

    ``last``: failed members of the previous position; None for the first position. ``largest``: largest number of
    failures at one position.

    Each multiset appears once, because positions are sorted: a position has at most as many failures as the previous
    one. If a position has equally many failures, its failed members are the same as those of the previous position, or
    later in order. The first ways have few failures per position, since failures at many positions are most likely to
    cut off a pod."""
    if not failed:
        yield ((),) * positions
        return
    for size in range(-(-failed // positions) if positions else failed + 1, min(largest, failed) + 1):
        for gone in some(size):
            if last is None or len(last) > size or gone >= last:
                for rest in _ways_of_remaining(positions - 1, failed - size, size, gone, some):
                    yield (gone, *rest)


@lru_cache(maxsize=256)  # a design needs it for each number of cores
def count_of_ways(positions: int, members: int, alike: bool, failed: int) -> int:
    """Return the number of ``ways``. m positions with c choices each have C(c + m - 1, m) multisets."""
    found = {(0, 0): 1}
    for size in range(1, min(failed, members) + 1):
        choices, before, found = 1 if alike else comb(members, size), found, {}
        for (used, gone), count in before.items():
            for more in range(min(positions - used, (failed - gone) // size) + 1):
                at = used + more, gone + more * size
                found[at] = found.get(at, 0) + count * comb(choices + more - 1, more)
    return sum(count for (_, gone), count in found.items() if gone == failed)


REACHED = 1 + 1e-9
"""Largest slowdown / goal at which the goal counts as reached; it allows for rounding errors."""
MOST_LINKS = 4_000_000
"""Largest number of links that are examined, over all fabrics, intact and with each failure; takes half a minute."""

Names = tuple[str, ...]


class Family(Protocol):
    """Fixed part of a fabric; the design chooses ``count`` and ``uplink_gbps``.

    ``count`` is the number of switches in the top tier, or in one group of the top tier; ``uplink_gbps`` is the rate of
    links between switches. Methods raise ``InvalidInput`` for impossible sizes."""

    kind: ClassVar[FabricKind]

    @property
    def failing(self) -> str:
        """Name of the tier whose switches may fail."""

    def topology(self, count: int, uplink_gbps: float) -> Topology: ...

    def capacity_gbps(self, count: int, uplink_gbps: float) -> float:
        """Return the Gbit/s of all uplinks of a leaf, or of a pod of a fat-tree."""

    def failures(self, count: int, failed: int) -> Iterator[Names]:
        """Yield the failed switches of each distinct way to fail; nothing when the tier has too few switches."""

    def count_of_failures(self, count: int, failed: int) -> int:
        """Return the number of distinct ways to fail that ``failures`` yields."""

    def links(self, count: int) -> int:
        """Return the number of links of the whole fabric, including the links to hosts."""

    def fabric(self, count: int, uplink_gbps: float) -> Fabric:
        return fabric_of(self.topology(count, uplink_gbps))

    def fabrics(self, count: int, uplink_gbps: float, failed: int) -> Iterator[Fabric]:
        """Return one fabric for each way to fail (``failures``), without the links of the failed switches."""
        intact = self.fabric(count, uplink_gbps)
        return (without(intact, spine_links(intact, names)) for names in self.failures(count, failed))


@dataclass(frozen=True, slots=True)
class Leaves(Family):
    """Leaf-spine with given leaves, hosts per leaf and rate of NICs. ``count``: spines, which are interchangeable."""

    leaves: int
    hosts_per_leaf: int
    link_gbps: float
    kind: ClassVar = FabricKind.LEAF_SPINE
    failing: ClassVar = "spine"

    def topology(self, count: int, uplink_gbps: float) -> Topology:
        rates = self.link_gbps * GIGABIT, uplink_gbps * GIGABIT
        return leaf_spine(self.leaves, count, self.hosts_per_leaf, *rates, scheme=OFFLINE)

    def capacity_gbps(self, count: int, uplink_gbps: float) -> float:
        return count * uplink_gbps

    def failures(self, count: int, failed: int) -> Iterator[Names]:
        if failed <= count:
            yield tuple(f"spine{n}" for n in range(count - failed, count))

    def count_of_failures(self, count: int, failed: int) -> int:
        return 1 if failed <= count else 0

    def links(self, count: int) -> int:
        return self.leaves * (self.hosts_per_leaf + count)


@dataclass(frozen=True, slots=True)
class Pods(Family):
    """Fat-tree with k pods and given rate of NICs. ``count``: cores in each of the k/2 groups.

    The cores of a group connect the aggregation switches that have the same position in their pods. Groups are
    interchangeable, and so are the cores of one group. Pods are not interchangeable, because each runs jobs of its
    own."""

    k: int
    link_gbps: float
    failing: Upper = Upper.CORE
    kind: ClassVar = FabricKind.FAT_TREE

    def topology(self, count: int, uplink_gbps: float) -> Topology:
        return fat_tree(self.k, self.link_gbps * GIGABIT, uplink_gbps * GIGABIT, OFFLINE, count)

    def capacity_gbps(self, count: int, uplink_gbps: float) -> float:
        """Return the rate of all uplinks of a pod: (k/2)² links to aggregation switches, and k/2 * count to cores."""
        half = self.k // 2
        return half * (half + count) * uplink_gbps

    def failures(self, count: int, failed: int) -> Iterator[Names]:
        half, core = self.k // 2, self.failing is Upper.CORE
        for way in ways(half, *self._members(count), failed):
            gone = [(at, member) for at, members in enumerate(way) for member in members]
            yield tuple(f"core{at * count + each}" if core else f"agg{each * half + at}" for at, each in gone)

    def _members(self, count: int) -> tuple[int, bool]:
        return (count, True) if self.failing is Upper.CORE else (self.k, False)

    def count_of_failures(self, count: int, failed: int) -> int:
        return count_of_ways(self.k // 2, *self._members(count), failed)

    def links(self, count: int) -> int:
        return self.k * self.k // 2 * (self.k + count)


@dataclass(frozen=True, slots=True)
class Choice:
    """Size of the top tier with its predicted slowdowns."""

    count: int
    uplink_gbps: float
    capacity_gbps: float
    """Rate of all uplinks of a leaf or pod (``Family.capacity_gbps``)."""
    intact: float
    """Lower bound of the slowdown of the worst job in the intact fabric."""
    failed: float
    """Lower bound of the slowdown of the worst job with the worst failures."""
    iteration: float
    """Iteration time, computing included, with the worst failures / that on an idle fabric; mean over the jobs."""


def possible(family: Family, counts: Iterable[int], rates: int, failed: int) -> bool:
    """Return whether at most ``MOST_LINKS`` links have to be examined. ``rates``: number of rates that are tried."""
    most = MOST_LINKS // rates
    for count in counts:
        most -= family.links(count) * (1 + family.count_of_failures(count, failed))
        if most < 0:
            return False
    return True


def choices(
    family: Family, jobs: Sequence[WorkloadJob], counts: Iterable[int], uplinks_gbps: Sequence[float], failed: int
) -> list[Choice]:
    """Return the choices that cut off no flow, smallest capacity first, then fewest switches.

    Raises ``InvalidInput`` for impossible sizes."""
    tried = [_choice(family, jobs, count, uplink, failed) for count in counts for uplink in uplinks_gbps]
    found = [each for each in tried if each]
    return sorted(found, key=lambda each: (each.capacity_gbps, each.count))


def _choice(family: Family, jobs: Sequence[WorkloadJob], count: int, uplink_gbps: float, failed: int) -> Choice | None:
    left = []
    for fabric in family.fabrics(count, uplink_gbps, failed):
        bounds = _bounds(fabric, jobs)
        if not bounds:
            return None
        left.append(bounds)
    intact = _bounds(family.fabric(count, uplink_gbps), jobs)
    if not intact or not left:
        return None
    iteration = max(_relative_iteration_time(each, jobs) for each in left)
    capacity_gbps = family.capacity_gbps(count, uplink_gbps)
    return Choice(count, uplink_gbps, capacity_gbps, intact.worst, max(each.worst for each in left), iteration)


def _bounds(fabric: Fabric, jobs: Sequence[WorkloadJob]) -> Bounds | None:
    problem = problem_of(fabric, jobs)
    bounds = slowdown_bounds(problem)
    return bounds if len(bounds.cuts.routable) == len(problem.flows) else None


def _relative_iteration_time(bounds: Bounds, jobs: Sequence[WorkloadJob]) -> float:
    """Return the mean over jobs of (compute + slowdown * ideal time) / (compute + ideal time)."""
    return fmean(
        (job.compute_s + bounds.job.get(job.id, 1.0) * job.ideal_s) / (job.compute_s + job.ideal_s) for job in jobs
    )


def smallest(
    family: Family, jobs: Sequence[WorkloadJob], found: Iterable[Choice], failed: int, goal: float, limits: PlanLimits
) -> tuple[Choice, Plan] | None:
    """Return the first choice whose planned routes reach the goal with all failures, and one of its plans.

    A choice has one plan for each way to fail; the plan with the largest slowdown is returned. ``goal`` is the largest
    allowed slowdown of any job with any failures. Choices whose bound is above the goal are not planned. Returns None
    when no choice reaches the goal. Raises ``SignalboxError`` when the planner has no answer."""
    for each in found:
        if each.failed <= goal * REACHED and (made := _planned(family, jobs, each, failed, goal, limits)):
            return each, max(made, key=lambda plan: plan.max_slowdown)
    return None


def _planned(
    family: Family, jobs: Sequence[WorkloadJob], choice: Choice, failed: int, goal: float, limits: PlanLimits
) -> list[Plan]:
    made = []
    for fabric in family.fabrics(choice.count, choice.uplink_gbps, failed):
        made.append(answered(plan(problem_of(fabric, jobs), limits)))
        if made[-1].max_slowdown > goal * REACHED:
            return []
    return made


def spines_report(
    workload: Path,
    numbered: Fabric,
    family: Family,
    tried: Iterable[int],
    uplinks_gbps: Sequence[float],
    failures: int,
    goal: float,
    max_subflows: int,
) -> dict[str, Any]:
    """Return the report on the top tier; ``answer`` is None when no choice is enough.

    Raises ``InvalidInput``, ``OSError``."""
    jobs = read_workload(workload, numbered, max_subflows)
    found = choices(family, jobs, tried, uplinks_gbps, failures)
    answer = smallest(family, jobs, found, failures, goal, PlanLimits(ecmp_draws=0))
    return {
        "fabric": family.kind.value,
        "failing": family.failing,
        "failures": failures,
        "max_slowdown": goal,
        "choices": [_row(family, each) for each in found],
        "answer": answer and _row(family, answer[0]) | {"planned": answer[1].max_slowdown, "bound": answer[1].bound},
    }


def _row(family: Family, choice: Choice) -> dict[str, Any]:
    row = asdict(choice)
    return {COUNTED[family.kind]: row.pop("count"), **row}


def exported(folder: Path, workload: Path, numbered: Fabric, family: Family, answer: Mapping[str, Any]) -> None:
    """Write ``fabric.json`` and the folder ``workload`` to ``folder``.

    Raises ``InvalidInput`` when the folder holds files of other jobs, and ``OSError``."""
    topology = family.topology(answer[COUNTED[family.kind]], answer["uplink_gbps"])
    lines = lines_in(workload, Numbering(numbered))
    shift = len(topology.switches) - len(numbered.switches)
    shifted = {
        job: [line._replace(src=line.src + shift, dst=line.dst + shift) for line in of_job]
        for job, of_job in lines.items()
    }
    write_workload(folder / "workload", shifted)
    write_graph(folder / "fabric.json", topology)
