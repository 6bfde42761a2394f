"""The number and rate of cores that a fat-tree needs.

The tests compare results with values by hand."""

from collections.abc import Iterable, Sequence

from controller.planning.problem import PlanLimits
from offline.design.question import Upper
from offline.design.spines import Choice, Pods, choices, smallest
from offline.scenarios.generator import ring_lines
from offline.scenarios.workloads import Line, Numbering, WorkloadJob, to_job

K, HALF = 4, 2
PODS = Pods(K, 100.0)
NUMBERED = PODS.fabric(HALF, 100.0)
"""Fabric of 20 switches, followed by four hosts of each of the four pods."""
LIMITS = PlanLimits(ecmp_draws=0)

Found = tuple[int, float, float]
Ring = Sequence[int]
"""Hosts of a ring, numbered from 0, in ring order."""


def lines_of(ring: Ring, number: int = 0) -> list[Line]:
    numbering = Numbering(NUMBERED)
    return list(ring_lines([numbering.first_host + host for host in ring], number, 0, 10**9, 10**9, numbering))


def jobs_of(rings: Iterable[Ring]) -> list[WorkloadJob]:
    """Return a job per ring; every host of a ring sends at the rate of its NIC."""
    numbering = Numbering(NUMBERED)
    return [to_job(f"job{n}", lines_of(ring), numbering, 1) for n, ring in enumerate(rings)]


def best(
    pods: Pods, jobs: list[WorkloadJob], found: Sequence[Choice], failures: int, goal: float = 1.0
) -> Found | None:
    """Return count, uplink rate (Gbit/s) and planned slowdown of the smallest choice that reaches the goal."""
    answer = smallest(pods, jobs, found, failures, goal, LIMITS)
    return answer and (answer[0].count, answer[0].uplink_gbps, answer[1].max_slowdown)


ROUND_THE_PODS = [[host + 4 * pod for pod in range(K)] for host in range(4)]
"""Rings in which every host sends to the same host of the next pod.

Four flows leave each pod, two leave each edge switch."""


def test_whole_flows_need_a_core_each_and_one_more_in_every_group_when_one_fails() -> None:
    """Four flows of a pod use 2 c links to cores, when each group has c cores.

    An edge switch has one flow for each aggregation switch. If a core of a group fails, two flows of a pod share the
    group's remaining links."""
    found = choices(PODS, jobs_of(ROUND_THE_PODS), range(1, 5), [100.0], 1)
    assert [(each.count, each.intact, each.failed) for each in found] == [(1, 2, 4), (2, 1, 2), (3, 1, 1), (4, 1, 1)]
    assert best(PODS, jobs_of(ROUND_THE_PODS), found, 1) == (3, 100, 1)


def test_the_links_of_a_pod_are_what_is_chosen_sparingly() -> None:
    """A pod has four links inside it, and two links per core of a group: choices with faster links come last."""
    found = choices(PODS, jobs_of(ROUND_THE_PODS), range(1, 4), [100.0, 200.0], 0)
    assert [(each.count, each.uplink_gbps, each.capacity_gbps) for each in found] == [
        (1, 100, 600), (2, 100, 800), (3, 100, 1000), (1, 200, 1200), (2, 200, 1600), (3, 200, 2000),
    ]  # fmt: skip


def test_two_cores_may_fail_in_one_group_or_in_two() -> None:
    assert [*PODS.failures(3, 2)] == [("core0", "core3"), ("core0", "core1")]
    jobs = jobs_of(ROUND_THE_PODS)
    assert best(PODS, jobs, choices(PODS, jobs, range(1, 6), [100.0], 2), 2) == (4, 100, 1)


def test_a_failed_aggregation_switch_asks_for_links_of_twice_the_rate() -> None:
    """The edge switches of its pod have one link left for two flows each.

    The pod has half of the links to cores."""
    failing = Pods(K, 100.0, Upper.AGGREGATION)
    assert [names for (names,) in failing.failures(2, 1)] == ["agg0", "agg2", "agg4", "agg6"]
    found = choices(failing, jobs_of(ROUND_THE_PODS), range(1, 4), [100.0, 200.0], 1)
    assert best(failing, jobs_of(ROUND_THE_PODS), found, 1) == (2, 200, 1)


def test_the_worst_failure_counts_where_failures_differ() -> None:
    """Two pods send to each other and two are idle: without an aggregation switch of an idle pod no flow is slower."""
    failing = Pods(K, 100.0, Upper.AGGREGATION)
    jobs = jobs_of([host, host + 4] for host in range(4))
    (found,) = choices(failing, jobs, [2], [100.0], 1)
    assert (found.intact, found.failed) == (1, 2)
    assert best(failing, jobs, [found], 1, 1.5) is None
    assert best(failing, jobs, [found], 1, 2.0) == (2, 100, 2)
