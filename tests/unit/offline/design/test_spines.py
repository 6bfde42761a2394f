"""The number of spines: known bounds, the verdict of the planner, and an answer that planner and lab read."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.planning.problem import PlanLimits
from mininet_topos.graph import Graph
from mininet_topos.lab.command import LabKind, topology
from offline.design.spines import Leaves, choices, smallest
from offline.scenarios.fabric_options import Placement
from offline.scenarios.fabrics import fabric_of
from offline.scenarios.generator import generate
from offline.scenarios.graph_file import graph_topology, write_graph
from offline.scenarios.workloads import WorkloadJob, read_workload, write_workload
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
