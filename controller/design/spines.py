"""How many spines a leaf-spine fabric should have, and how fast their links should be, for jobs while some have failed.

In: the jobs of a workload, the leaves and hosts that there are, and what may be chosen. Out: per choice the least
slow-down of the all-reduces that any routing can reach (the planner's bound), and the smallest fabric for which the
planner's own routes reach a goal. All spines are alike, so it does not matter which of them have failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import NamedTuple

from controller.fabric.topology import Fabric
from controller.jobs.workload import WorkloadJob
from controller.planning.bounds import Bounds, level_bounds
from controller.planning.plan import Plan, answered
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem
from controller.scenarios.fabrics import fabric_of, spine_links, without
from controller.scenarios.scenario import GIGABIT, problem_of
from controller.scenarios.topologies import OFFLINE, Topology, leaf_spine

REACHED = 1 + 1e-9


class Leaves(NamedTuple):
    """What there is: leaves, hosts on each of them, and the rate of their NICs."""

    leaves: int
    hosts_per_leaf: int
    link_gbps: float

    def topology(self, spines: int, uplink_gbps: float) -> Topology:
        rates = self.link_gbps * GIGABIT, uplink_gbps * GIGABIT
        return leaf_spine(self.leaves, spines, self.hosts_per_leaf, *rates, scheme=OFFLINE)

    def fabric(self, spines: int, uplink_gbps: float) -> Fabric:
        return fabric_of(self.topology(spines, uplink_gbps))


@dataclass(frozen=True, slots=True)
class Choice:
    """``intact``, ``failed``: the bound of the slow-down of the job that is slowed most, without and with the failures.
    ``iteration``: with them, by how much an iteration takes longer than without a network's limits, on average over
    the jobs; computing counts."""

    spines: int
    uplink_gbps: float
    intact: float
    failed: float
    iteration: float

    @property
    def capacity_gbps(self) -> float:
        """Of a leaf, up."""
        return self.spines * self.uplink_gbps


def choices(
    there: Leaves, jobs: Sequence[WorkloadJob], spines: Iterable[int], uplinks_gbps: Sequence[float], failures: int
) -> list[Choice]:
    """Those with more spines than fail, from the least capacity on, of the same the fewest spines first. Raises
    ``InvalidInput`` for sizes that cannot be."""

    @cache
    def bounds(alive: int, uplink_gbps: float) -> Bounds:
        return level_bounds(problem_of(there.fabric(alive, uplink_gbps), jobs))

    def choice(count: int, uplink_gbps: float) -> Choice:
        intact, failed = bounds(count, uplink_gbps), bounds(count - failures, uplink_gbps)
        iteration = fmean(
            (job.compute_s + failed.job.get(job.id, 1.0) * job.ideal_s) / (job.compute_s + job.ideal_s) for job in jobs
        )
        return Choice(count, uplink_gbps, intact.worst, failed.worst, iteration)

    found = [choice(count, uplink) for count in spines for uplink in uplinks_gbps if count > failures]
    return sorted(found, key=lambda each: (each.capacity_gbps, each.spines))


def smallest(
    there: Leaves, jobs: Sequence[WorkloadJob], found: Iterable[Choice], failures: int, goal: float, limits: PlanLimits
) -> tuple[Choice, Plan] | None:
    """The first choice for which the planner's routes slow no job down by more than ``goal`` with the failures, and its
    plan. What the bound excludes is not planned. Raises ``SignalboxError``."""
    for each in found:
        if each.failed <= goal * REACHED:
            made = answered(plan(_failed(there, jobs, each.spines, each.uplink_gbps, failures), limits))
            if made.max_level <= goal * REACHED:
                return each, made
    return None


def _failed(there: Leaves, jobs: Sequence[WorkloadJob], spines: int, uplink_gbps: float, failures: int) -> Problem:
    fabric = there.fabric(spines, uplink_gbps)
    return problem_of(without(fabric, spine_links(fabric, range(spines - failures, spines))), jobs)
