"""How many switches the top tier of a leaf-spine or fat-tree should have, and how fast links should be, for jobs while
some switches have failed.

In: the jobs of a workload, the leaves and hosts that there are, and what may be chosen. Out: per choice the least
slow-down of the all-reduces that any routing can reach (the planner's bound), and the smallest fabric for which the
planner's own routes reach a goal, whichever switches have failed. Failures that differ in nothing are tried once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, Protocol

from controller.public.plans import Bounds, Plan, answered, level_bounds, plan
from controller.public.problems import Fabric, PlanLimits
from offline.design.failures import count_of_ways, ways
from offline.design.question import Upper
from offline.scenarios.fabric_options import FabricKind
from offline.scenarios.fabrics import fabric_of, spine_links, without
from offline.scenarios.scenario import GIGABIT, problem_of
from offline.scenarios.topologies import OFFLINE, Topology, fat_tree, leaf_spine
from offline.scenarios.workload_job import WorkloadJob

REACHED = 1 + 1e-9
MOST_LINKS = 4_000_000
"""Of all fabrics that are tried, intact and with each failure: about half a minute."""

Names = tuple[str, ...]


class Family(Protocol):
    """What there is, with ``count`` switches in (a group of) the top tier, and links of ``uplink_gbps`` between
    switches. Methods raise ``InvalidInput`` for sizes that cannot be."""

    kind: ClassVar[FabricKind]

    @property
    def failing(self) -> str:
        """Which switches may have failed."""

    def topology(self, count: int, uplink_gbps: float) -> Topology: ...

    def capacity_gbps(self, count: int, uplink_gbps: float) -> float:
        """Of all links up of a leaf, or of a pod of a fat-tree."""

    def failures(self, count: int, failed: int) -> Iterator[Names]:
        """The switches that have failed, in each way that differs. None when there are fewer."""

    def count_of_failures(self, count: int, failed: int) -> int:
        """How many ``failures`` there are."""

    def links(self, count: int) -> int:
        """Of the whole fabric, those to hosts too."""

    def fabric(self, count: int, uplink_gbps: float) -> Fabric:
        return fabric_of(self.topology(count, uplink_gbps))

    def fabrics(self, count: int, uplink_gbps: float, failed: int) -> Iterator[Fabric]:
        """With ``failures``."""
        intact = self.fabric(count, uplink_gbps)
        return (without(intact, spine_links(intact, names)) for names in self.failures(count, failed))


@dataclass(frozen=True, slots=True)
class Leaves(Family):
    """Leaves, hosts on each of them, and the rate of their NICs. ``count``: of spines, which are all alike."""

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
    """The pods of a ``k``-ary fat-tree, and the rate of NICs. ``count``: of the cores in each of k/2 groups, one group
    per position of an aggregation switch in its pod. Groups are alike, and so are the cores of one, but pods are not:
    their jobs differ."""

    k: int
    link_gbps: float
    failing: Upper = Upper.CORE
    kind: ClassVar = FabricKind.FAT_TREE

    def topology(self, count: int, uplink_gbps: float) -> Topology:
        return fat_tree(self.k, self.link_gbps * GIGABIT, uplink_gbps * GIGABIT, OFFLINE, count)

    def capacity_gbps(self, count: int, uplink_gbps: float) -> float:
        half = self.k // 2
        return half * (half + count) * uplink_gbps

    def failures(self, count: int, failed: int) -> Iterator[Names]:
        half, core = self.k // 2, self.failing is Upper.CORE
        for way in ways(half, *self._members(count), failed):
            gone = [(at, member) for at, members in enumerate(way) for member in members]
            yield tuple(f"core{at * count + each}" if core else f"agg{each * half + at}" for at, each in gone)

    def _members(self, count: int) -> tuple[int, bool]:
        """How many switches of a position there are, and whether they are alike."""
        return (count, True) if self.failing is Upper.CORE else (self.k, False)

    def count_of_failures(self, count: int, failed: int) -> int:
        return count_of_ways(self.k // 2, *self._members(count), failed)

    def links(self, count: int) -> int:
        return self.k * self.k // 2 * (self.k + count)


@dataclass(frozen=True, slots=True)
class Choice:
    """``capacity_gbps``: see ``Family``. ``intact``, ``failed``: the bound of the slow-down of the job that is slowed
    most, without and with the worst failures. ``iteration``: with them, by how much an iteration takes longer than
    without a network's limits, on average over the jobs; computing counts."""

    count: int
    uplink_gbps: float
    capacity_gbps: float
    intact: float
    failed: float
    iteration: float


def possible(there: Family, counts: Iterable[int], rates: int, failed: int) -> bool:
    """Whether no more than ``MOST_LINKS`` have to be looked at. ``rates``: how many of them are tried."""
    most = MOST_LINKS // rates
    for count in counts:
        most -= there.links(count) * (1 + there.count_of_failures(count, failed))
        if most < 0:
            return False
    return True


def choices(
    there: Family, jobs: Sequence[WorkloadJob], counts: Iterable[int], uplinks_gbps: Sequence[float], failed: int
) -> list[Choice]:
    """Those with which no flow is cut off, from the least capacity on, of the same the fewest switches first. Raises
    ``InvalidInput`` for sizes that cannot be."""
    tried = [_choice(there, jobs, count, uplink, failed) for count in counts for uplink in uplinks_gbps]
    found = [each for each in tried if each]
    return sorted(found, key=lambda each: (each.capacity_gbps, each.count))


def _choice(there: Family, jobs: Sequence[WorkloadJob], count: int, uplink_gbps: float, failed: int) -> Choice | None:
    left = []
    for fabric in there.fabrics(count, uplink_gbps, failed):
        bounds = _bounds(fabric, jobs)
        if not bounds:
            return None
        left.append(bounds)
    intact = _bounds(there.fabric(count, uplink_gbps), jobs)
    if not intact or not left:
        return None
    iteration = max(_iteration(each, jobs) for each in left)
    capacity_gbps = there.capacity_gbps(count, uplink_gbps)
    return Choice(count, uplink_gbps, capacity_gbps, intact.worst, max(each.worst for each in left), iteration)


def _bounds(fabric: Fabric, jobs: Sequence[WorkloadJob]) -> Bounds | None:
    """None where a flow has no path."""
    problem = problem_of(fabric, jobs)
    bounds = level_bounds(problem)
    return bounds if len(bounds.cuts.routable) == len(problem.flows) else None


def _iteration(bounds: Bounds, jobs: Sequence[WorkloadJob]) -> float:
    return fmean(
        (job.compute_s + bounds.job.get(job.id, 1.0) * job.ideal_s) / (job.compute_s + job.ideal_s) for job in jobs
    )


def smallest(
    there: Family, jobs: Sequence[WorkloadJob], found: Iterable[Choice], failed: int, goal: float, limits: PlanLimits
) -> tuple[Choice, Plan] | None:
    """The first choice for which the planner's routes slow no job down by more than ``goal`` with any failures, and the
    plan that slows one down most. What the bound excludes is not planned. Raises ``SignalboxError``."""
    for each in found:
        if each.failed <= goal * REACHED and (made := _planned(there, jobs, each, failed, goal, limits)):
            return each, max(made, key=lambda plan: plan.max_level)
    return None


def _planned(
    there: Family, jobs: Sequence[WorkloadJob], choice: Choice, failed: int, goal: float, limits: PlanLimits
) -> list[Plan]:
    """Of all failures; none when one is above the goal."""
    made = []
    for fabric in there.fabrics(choice.count, choice.uplink_gbps, failed):
        made.append(answered(plan(problem_of(fabric, jobs), limits)))
        if made[-1].max_level > goal * REACHED:
            return []
    return made
