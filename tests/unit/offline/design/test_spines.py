"""Numbers of spines and cores that jobs need while some switches have failed."""

from collections.abc import Iterable, Sequence
from itertools import chain, combinations
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.planning.problem import PlanLimits
from mininet_topos.graph import Graph
from mininet_topos.lab.command import LabKind, topology
from offline.design.question import Upper
from offline.design.spines import Choice, Leaves, Pods, choices, count_of_ways, smallest, ways
from offline.scenarios.fabric_options import Placement
from offline.scenarios.fabrics import fabric_of
from offline.scenarios.generator import generate, ring_lines
from offline.scenarios.graph_file import graph_topology, write_graph
from offline.scenarios.workloads import Line, Numbering, WorkloadJob, read_workload, to_job, write_workload
from signalbox.cli import app
from signalbox.errors import InvalidInput

LEAVES = Leaves(6, 4, 100.0)
NUMBERED = LEAVES.fabric(4, 100.0)
LIMITS = PlanLimits(ecmp_draws=0)


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs"
    write_workload(folder, generate(NUMBERED, 1, 2, Placement.WHOLE_LEAF, 1, max_rings=8))
    return folder


def jobs_of(workload: Path, max_subflows: int = 1) -> tuple[WorkloadJob, ...]:
    return read_workload(workload, NUMBERED, max_subflows)


def test_whole_flows_need_as_many_spines_as_a_full_leaf_has_hosts_and_those_that_fail(workload: Path) -> None:
    """A leaf of 4 hosts sends 4 flows: at most ceil(4 / alive) of them share a spine (König)."""
    found = choices(LEAVES, jobs_of(workload), range(1, 7), [100.0], 1)
    assert [(each.count, each.intact, each.failed) for each in found] == [
        (2, 2, 4), (3, 2, 2), (4, 1, 2), (5, 1, 1), (6, 1, 1),
    ]  # fmt: skip
    assert [each.iteration for each in found] == sorted((each.iteration for each in found), reverse=True)


def test_flows_that_may_be_split_are_slowed_down_by_what_is_missing_alone(workload: Path) -> None:
    found = choices(LEAVES, jobs_of(workload, 4), range(3, 6), [100.0], 1)
    assert [each.failed for each in found] == pytest.approx([2, 4 / 3, 1])


def test_the_least_capacity_is_first_and_of_the_same_the_fewest_spines(workload: Path) -> None:
    found = choices(LEAVES, jobs_of(workload), range(2, 5), [100.0, 200.0], 1)
    assert [(each.count, each.uplink_gbps) for each in found] == [
        (2, 100), (3, 100), (2, 200), (4, 100), (3, 200), (4, 200),
    ]  # fmt: skip
    answer = smallest(LEAVES, jobs_of(workload), found, 1, 1.0, LIMITS)
    assert answer is not None
    # Two spines of twice the rate carry two flows each.
    assert (answer[0].count, answer[0].uplink_gbps, answer[1].max_slowdown) == (3, 200, 1)


def test_a_fabric_that_was_written_is_read_as_it_was(tmp_path: Path) -> None:
    topology = LEAVES.topology(3, 400.0)
    write_graph(tmp_path / "fabric.json", topology)
    read = graph_topology(tmp_path / "fabric.json")
    assert fabric_of(read).hosts == fabric_of(topology).hosts
    assert read.cables == topology.cables


def test_the_lab_has_the_rates_of_a_graph_in_proportion(tmp_path: Path) -> None:
    write_graph(tmp_path / "fabric.json", LEAVES.topology(3, 400.0))
    lab = Graph(tmp_path / "fabric.json", 5)
    assert {host.bps for host in lab.fabric.hosts} == {5e6}
    assert {cable.bps for cable in lab.fabric.cables} == {20e6}
    assert len(lab.switches()) == 9


def test_a_graph_is_a_whole_fabric_and_not_for_endless_training(tmp_path: Path) -> None:
    file = tmp_path / "fabric.json"
    write_graph(file, LEAVES.topology(3, 400.0))
    with pytest.raises(InvalidInput, match="--graph: is a whole fabric: leave out leaves"):
        topology(LabKind.LEAF_SPINE, {"leaves": 3}, (5, 5), "", file)
    assert len(topology(LabKind.LEAF_SPINE, {"leaves": None}, (5, 5), "", file).hosts()) == 24
    refused = CliRunner().invoke(app, ["lab", "--graph", str(file), "--train", "localhost:50051"])
    assert refused.exit_code == 2
    assert "leave out --graph" in " ".join(refused.output.replace("│", " ").split())


K, HALF = 4, 2
PODS = Pods(K, 100.0)
OF_PODS = PODS.fabric(HALF, 100.0)
"""Fabric of 20 switches, followed by four hosts of each of the four pods."""

Found = tuple[int, float, float]
Ring = Sequence[int]
"""Hosts of a ring, numbered from 0, in ring order."""


def lines_of(ring: Ring, number: int = 0) -> list[Line]:
    numbering = Numbering(OF_PODS)
    return list(ring_lines([numbering.first_host + host for host in ring], number, 0, 10**9, 10**9, numbering))


def jobs_round_pods(rings: Iterable[Ring]) -> list[WorkloadJob]:
    """Return a job per ring; every host of a ring sends at the rate of its NIC."""
    numbering = Numbering(OF_PODS)
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
    found = choices(PODS, jobs_round_pods(ROUND_THE_PODS), range(1, 5), [100.0], 1)
    assert [(each.count, each.intact, each.failed) for each in found] == [(1, 2, 4), (2, 1, 2), (3, 1, 1), (4, 1, 1)]
    assert best(PODS, jobs_round_pods(ROUND_THE_PODS), found, 1) == (3, 100, 1)


def test_the_links_of_a_pod_are_what_is_chosen_sparingly() -> None:
    """A pod has four links inside it, and two links per core of a group: choices with faster links come last."""
    found = choices(PODS, jobs_round_pods(ROUND_THE_PODS), range(1, 4), [100.0, 200.0], 0)
    assert [(each.count, each.uplink_gbps, each.capacity_gbps) for each in found] == [
        (1, 100, 600), (2, 100, 800), (3, 100, 1000), (1, 200, 1200), (2, 200, 1600), (3, 200, 2000),
    ]  # fmt: skip


def test_two_cores_may_fail_in_one_group_or_in_two() -> None:
    assert [*PODS.failures(3, 2)] == [("core0", "core3"), ("core0", "core1")]
    jobs = jobs_round_pods(ROUND_THE_PODS)
    assert best(PODS, jobs, choices(PODS, jobs, range(1, 6), [100.0], 2), 2) == (4, 100, 1)


def test_a_failed_aggregation_switch_asks_for_links_of_twice_the_rate() -> None:
    """The edge switches of its pod have one link left for two flows each.

    The pod has half of the links to cores."""
    failing = Pods(K, 100.0, Upper.AGGREGATION)
    assert [names for (names,) in failing.failures(2, 1)] == ["agg0", "agg2", "agg4", "agg6"]
    found = choices(failing, jobs_round_pods(ROUND_THE_PODS), range(1, 4), [100.0, 200.0], 1)
    assert best(failing, jobs_round_pods(ROUND_THE_PODS), found, 1) == (2, 200, 1)


def test_the_worst_failure_counts_where_failures_differ() -> None:
    """Two pods send to each other and two are idle: without an aggregation switch of an idle pod no flow is slower."""
    failing = Pods(K, 100.0, Upper.AGGREGATION)
    jobs = jobs_round_pods([host, host + 4] for host in range(4))
    (found,) = choices(failing, jobs, [2], [100.0], 1)
    assert (found.intact, found.failed) == (1, 2)
    assert best(failing, jobs, [found], 1, 1.5) is None
    assert best(failing, jobs, [found], 1, 2.0) == (2, 100, 2)


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("failed", range(5))
@pytest.mark.parametrize(("positions", "members"), [(1, 2), (2, 4), (3, 3), (3, 6)])
def test_each_way_is_there_once(positions: int, members: int, failed: int, alike: bool) -> None:
    """The reference is the set of all choices of ``failed`` switches, without those that differ only by names."""

    def one_of(gone: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(sorted(tuple(range(len(at))) if alike else at for at in gone))

    switches = [(at, member) for at in range(positions) for member in range(members)]
    every = {
        one_of(tuple(tuple(member for place, member in gone if place == at) for at in range(positions)))
        for gone in combinations(switches, failed)
    }
    found = [*ways(positions, members, alike, failed)]
    assert {one_of(way) for way in found} == every
    assert len(found) == len(every) == count_of_ways(positions, members, alike, failed)
    assert all(len([*chain(*way)]) == failed for way in found)


def test_ways_of_a_large_fabric_are_counted_without_listing_them() -> None:
    """Two of the 512 aggregation switches of a fat-tree of k = 32 fail.

    If both are at one position, they are in one of 32 * 31 / 2 pairs of pods. If they are at two positions, each is in
    one of 32 pods, which makes 32 * 33 / 2 ways, because positions are interchangeable."""
    assert count_of_ways(16, 32, False, 2) == 496 + 528
    assert count_of_ways(16, 32, False, 20) > 10**15
