"""``benchmarks plan`` as a user runs it, its random workloads, and the greedy scheme of ``plan-scale``."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.plan.workloads import random_flows
from benchmarks.plan_scale import published_greedy
from controller.fabric.topology import CandidatePaths
from controller.planning.snapshot import Flows, Snapshot, capacities
from offline.scenarios.fabrics import leaf_spine, without_random_links
from offline.scenarios.generator import jobs_of
from signalbox.errors import InvalidInput
from tests.support.command_line import Command

LITTLE = ("--no-generated", "--no-irregular", "--no-changes", "--failures", "none,1-spine")


def test_all_that_is_measured_is_in_a_file_and_in_tables(benchmark: Command, published: Path, tmp_path: Path) -> None:
    run = benchmark("plan", "--workloads", published, *LITTLE, "--out", tmp_path / "out")
    found = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert all(text in run.out for text in ("split", "published", "1-spine", "max(1, D/S)", "written to "))
    assert (run.status, found["finished"]) == (0, True)
    rows = {(row["workload"], row["failure"], row["max_subflows"]) for row in found["plans"]}
    assert rows == {("tiny", failure, subflows) for failure in ("none", "1-spine") for subflows in (1, 2)}
    assert {row["slowdown"] for row in found["plans"]} == {1.0}
    assert all(target["met"] == target["cases"] for target in found["targets"] if "D/S" in target["name"])
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["plan.json"]


def test_unknown_names_are_wrong_usage(benchmark: Command, published: Path) -> None:
    refused = benchmark("plan", "--workloads", published, "--failures", "2-spines")
    assert refused.status == 2
    assert "there is no '2-spines'" in " ".join(refused.err.split())


FABRIC = leaf_spine(16, 8, 32, 100e9, 100e9)


@given(flows=st.integers(6, 512), jobs=st.integers(1, 3), seed=st.integers(0, 99))
def test_random_flows_are_as_many_as_asked_and_load_every_host_once(flows: int, jobs: int, seed: int) -> None:
    workload = random_flows(FABRIC, flows, jobs, seed)
    made = [line for lines in workload.values() for line in lines]
    assert len(made) == len({line.src for line in made}) == len({line.dst for line in made}) == flows
    for job in jobs_of(workload, FABRIC):
        assert len({link.bytes for link in job.virtual_links}) == 1


@pytest.mark.parametrize(("flows", "jobs"), [(513, 1), (3, 2)])
def test_random_flows_need_hosts(flows: int, jobs: int) -> None:
    with pytest.raises(InvalidInput, match=r"there are 512"):
        random_flows(FABRIC, flows, jobs, seed=1)


@pytest.mark.parametrize("cables", [0, 3])
def test_the_greedy_takes_paths_that_are_there_and_at_most_twice_the_least_load(cables: int) -> None:
    fabric = leaf_spine(8, 4, 8, 1e9, 1e9)
    jobs = jobs_of(random_flows(fabric, 64, 2, seed=1), fabric)
    fabric = without_random_links(fabric, cables, 1) if cables else fabric
    flows = Flows()({job.id: job for job in jobs}, fabric.hosts)
    snapshot = Snapshot(1, capacities(fabric.links, fabric.hosts, {}), CandidatePaths(fabric, 64), flows, {})
    routes = published_greedy(snapshot)
    problem = snapshot.problem
    assert routes.keys() == {flow.id for flow in problem.flows}
    assert all(routes[flow.id] in problem.candidates(flow) for flow in problem.flows)
    taken = Counter(link for path in routes.values() for link in path)
    ends = [Counter(of) for of in zip(*((f.src_leaf, f.dst_leaf) for f in problem.flows), strict=True)]
    most = max(max(of.values()) for of in ends)
    assert max(taken.values()) <= 2 * -(-most // (4 - min(cables, 2)))
