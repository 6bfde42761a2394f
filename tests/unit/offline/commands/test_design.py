"""``design`` as a user runs it: tables, JSON, traces as jobs, and errors with their places."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mininet_topos.graph import Graph
from offline.design.proof import Design
from offline.scenarios.fabric_options import Placement
from offline.scenarios.fabrics import fat_tree, leaf_spine
from offline.scenarios.generator import generate, ring_lines
from offline.scenarios.workloads import Numbering, write_workload
from tests.support.command_line import Signalbox, signalbox
from tests.unit.client.test_chakra import collective, trace, written

__all__ = ("signalbox",)

NETWORK = """
total_gbps: 900
dimensions:
  - {name: node, kind: ring, size: 4, gbps: 450, cost_per_gbps: 1}
  - {name: pod, kind: switch, size: 2, gbps: 450, cost_per_gbps: 10}
"""
JOB = """
job_id: a
groups: [{name: all, ranks: [0, 1, 2, 3, 4, 5, 6, 7]}]
collectives: [{algorithm: all_reduce, groups: [all], bytes_per_iteration: 60 GB}]
compute: [{seconds: 2}]
"""


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "network.yaml").write_text(NETWORK)
    (tmp_path / "job.yaml").write_text(JOB)


def test_bandwidths_are_in_proportion_to_what_one_collective_sends(signalbox: Signalbox) -> None:
    """The collective sends 90 and 15 GB, 6 to 1: 720 and 120 Gbit over 900 Gbit/s, after 2 s of computing."""
    found = signalbox("design", "bandwidth", "network.yaml", "job.yaml", "--json").json
    node, pod = found["dimensions"]
    assert [node["gbps"], pod["gbps"]] == pytest.approx([900 * 6 / 7, 900 / 7], rel=1e-5)
    assert (node["links"], node["link_gbps"]) == (2, pytest.approx(node["gbps"] / 2))
    assert found["time_s"] == pytest.approx(2 + 840 / 900)
    assert found["cost"] == pytest.approx(8 * (node["gbps"] + 10 * pod["gbps"]))
    assert found["worth_of_total"] == pytest.approx(840 / 900**2, rel=1e-5)
    assert node["worth"] == pytest.approx(found["worth_of_total"], rel=1e-4)
    assert found["gap"] < 1e-8
    assert [other["name"] for other in found["others"]] == ["equal split", "as it is"]
    assert found["others"][0]["time_s"] == pytest.approx(2 + 720 / 450)
    (job,) = found["jobs"]
    assert next((step["phase"], step["by"]) for step in job["steps"]) == (None, "compute")


def test_time_x_cost_moves_bandwidth_to_where_it_is_cheap(signalbox: Signalbox) -> None:
    fast, cheap = (
        signalbox("design", "bandwidth", "network.yaml", "job.yaml", "--objective", objective, "--json").json
        for objective in ("time", "time-cost")
    )
    assert cheap["dimensions"][1]["gbps"] < fast["dimensions"][1]["gbps"]
    worths = [dimension["worth"] for dimension in cheap["dimensions"]]
    assert worths == pytest.approx([cheap["worth_of_total"]] * 2, rel=1e-2)


def test_what_is_compared_says_when_it_is_outside_the_limits(signalbox: Signalbox, tmp_path: Path) -> None:
    """An equal split has 450 Gbit/s in the node, where 100 are allowed."""
    limited = NETWORK.replace("kind: ring, size: 4,", "kind: ring, size: 4, max_gbps: 100,")
    (tmp_path / "limited.yaml").write_text(limited)
    others = signalbox("design", "bandwidth", "limited.yaml", "job.yaml", "--json").json["others"]
    assert [other["within_limits"] for other in others] == [False, False]
    printed = signalbox("design", "bandwidth", "limited.yaml", "job.yaml").out
    assert "0.3913 times as much, outside the limits" in printed
    assert signalbox("design", "bandwidth", "network.yaml", "job.yaml", "--json").json["others"][0]["within_limits"]


@pytest.mark.parametrize(
    ("gap", "says"),
    [
        (0.0, "no other bandwidths are better by more than a fraction of 1e-09"),
        (np.float64(1.01e-8), "no other bandwidths are better by more than a fraction of 2e-08"),
        (2.4e-4, "not proven to be the best: other bandwidths may be better by a fraction of 3e-04"),
    ],
)
def test_what_is_said_to_be_proven_is_no_less_than_the_gap(
    gap: float, says: str, signalbox: Signalbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Design, "gap", gap)
    assert says in signalbox("design", "bandwidth", "network.yaml", "job.yaml").out


@pytest.mark.parametrize(("change", "said"), [
    (("pod, kind", "compute, kind"), "network.yaml:5:6: dimensions[1].name: must not be 'compute'"),
    (("size: 4", "size: 1e300"), "size: is too large (given: 1e+300)"),
    (("size: 4,", "size: 4, min_gbps: 900,"),
     "total_gbps: must be at least the sum of the least bandwidths, 900.000001 (given: 900)"),
    (("total", "relations: [{factors: {node: 1}, max_gbps: 1e-300}]\ntotal"),
     "relations: leave no bandwidths within the other limits"),
    (("total", "relations: [{factors: {rack: 1}, max_gbps: 1}]\ntotal"),
     "relations[0].factors: there is no dimension 'rack'"),
    (("total", "relations: [{factors: {pod: 1}}]\ntotal"), "relations[0]: needs min_gbps or max_gbps"),
    (("total", "relations: [{factors: {pod: 0}, min_gbps: 0}]\ntotal"), "relations[0].factors: must not all be 0"),
])  # fmt: skip
def test_what_is_wrong_with_a_network_is_said(signalbox: Signalbox, change: tuple[str, str], said: str) -> None:
    Path("network.yaml").write_text(NETWORK.replace(*change))
    refused = signalbox("design", "bandwidth", "network.yaml", "job.yaml")
    assert (refused.status, said in refused.err) == (1, True), refused.err


RELATIONS = "relations: [{factors: {node: 1, pod: -2}, max_gbps: 0}]\n"


def test_relations_between_dimensions_are_kept_and_have_a_worth(signalbox: Signalbox, tmp_path: Path) -> None:
    """The node has twice the bandwidth of the pod, instead of six times: its 720 Gbit pass at 600 Gbit/s."""
    (tmp_path / "related.yaml").write_text(RELATIONS + NETWORK)
    found = signalbox("design", "bandwidth", "related.yaml", "job.yaml", "--json").json
    assert [each["gbps"] for each in found["dimensions"]] == pytest.approx([600, 300], rel=1e-5)
    (relation,) = found["relations"]
    assert (relation["factors"], relation["gbps"]) == ({"node": 1, "pod": -2}, pytest.approx(0, abs=1e-5))
    assert relation["worth"] == pytest.approx(720 / 600**2 / 3, rel=1e-3)
    printed = signalbox("design", "bandwidth", "related.yaml", "job.yaml").out
    assert "node - 2 x pod is" in printed
    assert "one more Gbit/s saves 0.000667 s" in printed
    cheap = signalbox("design", "bandwidth", "related.yaml", "job.yaml", "--objective", "time-cost", "--json").json
    assert cheap["relations"][0]["worth"] is None


def test_a_chakra_trace_can_be_designed_for(signalbox: Signalbox, tmp_path: Path) -> None:
    """Addresses do not matter, ranks are NPUs: an all-reduce of 60 GB and one of 30 GB run over all eight."""
    one = trace(collective(1, 0, 60_000_000_000), collective(2, 0, 30_000_000_000))
    files = written(tmp_path, *[one] * 8)
    addresses = ",".join(f"10.0.1.{n}" for n in range(1, 9))
    options = ("--job-id", "traced", "--endpoints", addresses, "--iterations", 1)
    (tmp_path / "traced.json").write_text(signalbox("jobs", "from", "chakra", *files, *options).out)
    found = signalbox("design", "bandwidth", "network.yaml", "traced.json", "--json").json
    assert found["time_s"] == pytest.approx(1.5 * 840 / 900)


MODEL = """
job_id: model
model: {preset: llama3-8b, global_batch: 128}
parallelism: {tensor: 4}
"""


def test_placements_are_listed_best_first(signalbox: Signalbox, tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(MODEL)
    found: dict[str, Any] = signalbox("design", "placement", "network.yaml", "model.yaml", "--json").json
    best, other = found["jobs"][0]["placements"]
    assert [part["part"] for part in best["placement"]] == ["tensor", "data"]
    assert best["placement"][0]["ranks"] == {"node": 4, "pod": 1}
    assert best["time_s"] < other["time_s"]


def test_an_answer_is_a_network_that_placements_are_asked_of(signalbox: Signalbox, tmp_path: Path) -> None:
    """A placement on the bandwidths of an answer takes the time that the answer states."""
    (tmp_path / "model.yaml").write_text(MODEL)
    options = ("bandwidth", "network.yaml", "model.yaml", "--export")
    found = signalbox("design", *options, "built.json", "--json").json
    (job,) = signalbox("design", "placement", "built.json", "model.yaml", "--json").json["jobs"]
    times = [way["time_s"] for way in job["placements"]]
    assert found["time_s"] in [pytest.approx(time_s) for time_s in times]
    again = signalbox("design", "bandwidth", "built.json", "model.yaml", "--json").json
    assert again["others"][1]["time_s"] == pytest.approx(found["time_s"])
    assert signalbox("design", *options, "built.toml").status == 2


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    lines = generate(leaf_spine(4, 2, 2, 1.0, 1.0), 1, 2, Placement.WHOLE_LEAF, 1, max_rings=4)
    write_workload(tmp_path / "jobs", lines)
    return tmp_path / "jobs"


def test_spines_are_as_many_as_the_planner_needs(signalbox: Signalbox, workload: Path, tmp_path: Path) -> None:
    fabric = ("--workload", workload, "--leaves", 4, "--spines", 2, "--hosts-per-leaf", 2)
    found = signalbox("design", "spines", *fabric, "--most-spines", 4, "--json").json
    assert (found["answer"]["spines"], found["answer"]["planned"]) == (3, 1)
    printed = signalbox("design", "spines", *fabric, "--most-spines", 4, "--export", tmp_path / "out").out
    assert "3 spines of 100 Gbit/s are enough for slowdown 1: with 1 failed, the planner reaches slowdown 1" in printed
    files = ("--workload", "out/workload", "--graph", "out/fabric.json", "--fail-spines", "spine0", "--json")
    assert signalbox("plan-file", *files).json["max_slowdown"] == 1
    too_few = signalbox("design", "spines", *fabric, "--uplink-gbps", "50,100")
    assert (too_few.status, "that was tried keeps all slowdowns at 1 or less" in too_few.out) == (3, True)
    assert "'0' must be rates from" in signalbox("design", "spines", *fabric, "--uplink-gbps", "0").err
    beyond_json = signalbox("design", "spines", *fabric, "--max-slowdown", "inf", "--json")
    assert beyond_json.status == 2, "JSON has no number for infinity"


@pytest.fixture
def between_pods(tmp_path: Path) -> Path:
    """Return a workload on a fat-tree with k = 4 where every host sends to the same host of the next pod."""
    numbering = Numbering(fat_tree(4, 1.0, 1.0))
    rings = [[numbering.first_host + host + 4 * pod for pod in range(4)] for host in range(4)]
    lines = {f"job{n}": [*ring_lines(ring, 0, 0, 10**6, 10**6, numbering)] for n, ring in enumerate(rings)}
    write_workload(tmp_path / "jobs", lines)
    return tmp_path / "jobs"


def test_a_fat_trees_cores_are_an_answer_that_is_planned_simulated_and_emulated(
    signalbox: Signalbox, between_pods: Path, tmp_path: Path
) -> None:
    asked = ("design", "spines", "--workload", between_pods, "--fabric", "fat-tree", "--k", 4)
    printed = signalbox(*asked, "--most-spines", 4, "--export", tmp_path / "out").out
    assert "3 cores per group of 100 Gbit/s are enough for slowdown 1: with 1 failed" in printed
    files = ("--workload", "out/workload", "--graph", "out/fabric.json", "--fail-spines", "core0", "--json")
    assert signalbox("plan-file", *files).json["max_slowdown"] == 1
    (simulated,) = signalbox("simulate", *files, "--scheme", "planned").json["schemes"]
    assert simulated["mean_slowdown"] == pytest.approx(1)
    lab = Graph(tmp_path / "out/fabric.json", 5)
    assert (len(lab.switches()), len(lab.hosts()), len(lab.links())) == (16 + 6, 16, 16 + 16 + 24)
    below = signalbox(*asked, "--failing", "aggregation", "--uplink-gbps", "100,200", "--json").json
    answer = below["answer"]
    assert (below["failing"], answer["cores_per_group"], answer["uplink_gbps"]) == ("aggregation", 2, 200)


def test_too_many_failures_are_refused_with_how_many_can_be_tried(signalbox: Signalbox, between_pods: Path) -> None:
    options = ("--workload", between_pods, "--fabric", "fat-tree", "--k", 4, "--failing", "aggregation")
    result = signalbox("design", "spines", *options, "--failures", 2, "--most-spines", 300)
    assert result.status == 2
    says = " ".join(result.err.replace("│", " ").split())
    assert "2 failures can happen in 16 ways, which are too many to try; give at most 1" in says
    cut = signalbox("design", "spines", *options, "--failures", 2)
    assert (
        cut.status,
        "with 2 failed, no number of cores per group that was tried keeps a path for every flow" in cut.out,
    ) == (3, True)
    result = signalbox("design", "spines", *options, "--failures", 0, "--most-spines", 10**9)
    says = " ".join(result.err.replace("│", " ").split())
    assert (result.status, "even without failures; give at most 702" in says) == (2, True)


def test_sizes_of_another_kind_of_fabric_are_refused(signalbox: Signalbox, between_pods: Path) -> None:
    asked = ("design", "spines", "--workload", between_pods)
    mixed = signalbox(*asked, "--fabric", "fat-tree", "--k", 4, "--leaves", 2)
    assert (mixed.status, "--leaves: does not apply to a fat-tree" in mixed.err) == (2, True)
    leaves = signalbox(*asked, "--leaves", 2, "--spines", 2, "--hosts-per-leaf", 2, "--failing", "core")
    assert "does not apply to a leaf-spine" in leaves.err


def test_errors_name_file_line_and_field(signalbox: Signalbox, tmp_path: Path) -> None:
    (tmp_path / "open.yaml").write_text(NETWORK.replace("total_gbps: 900", "# no total"))
    result = signalbox("design", "bandwidth", "open.yaml", "job.yaml")
    assert result.status == 1
    said = "'node' has no limit: give total_gbps, max_gbps, or a budget and cost_per_gbps"
    assert result.err.splitlines()[0] == f"error: open.yaml:4:5: dimensions[0]: {said}"
    result = signalbox("design", "bandwidth", "open.yaml", "job.yaml", "--objective", "time-cost")
    assert "total_gbps: is needed for time x cost" in result.err
    (tmp_path / "wrong.yaml").write_text(JOB.replace("7]", "8]"))
    said = "error: wrong.yaml:3:51: groups[0].ranks[7]: rank 8 has no endpoint; ranks go from 0 to 7"
    assert said in signalbox("design", "bandwidth", "network.yaml", "wrong.yaml").err
    assert signalbox("design", "bandwidth", "-", "-").status == 2
