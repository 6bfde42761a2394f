"""Job files for a design: bytes, placements, and errors with their places in the file."""

from itertools import permutations
from pathlib import Path

import pytest

from offline.design.jobs import GIGABITS, DesignedJob, Step, best_first, designed_jobs
from offline.design.placing import Part, placements
from offline.design.shape import Shape, shape_in
from signalbox.errors import InvalidInput
from signalbox.models import Model, Parallelism
from signalbox.yaml_text import dump

NETWORK = """
dimensions:
  - {name: package, kind: ring, size: 4}
  - {name: node, kind: fully_connected, size: 8}
  - {name: pod, kind: switch, size: 2}
"""


@pytest.fixture
def shape(tmp_path: Path) -> Shape:
    (tmp_path / "network.yaml").write_text(NETWORK)
    return shape_in(tmp_path / "network.yaml")[0]


def read(tmp_path: Path, shape: Shape, text: str) -> list[DesignedJob]:
    (tmp_path / "job.yaml").write_text(text)
    return [job for (job,) in designed_jobs([tmp_path / "job.yaml"], shape)]


def problem(tmp_path: Path, shape: Shape, text: str) -> str:
    with pytest.raises(InvalidInput) as refused:
        read(tmp_path, shape, text)
    return str(refused.value).removeprefix(f"{tmp_path}/")


def sent(job: DesignedJob) -> list[list[object]]:
    return [[pytest.approx(amount / GIGABITS) for amount in step.gigabits] for step in job.steps]


def test_a_spec_without_addresses_is_of_npus(tmp_path: Path, shape: Shape) -> None:
    """Ranks 0 to 3 are a package; 0 and 32 are at the same place of two nodes."""
    text = """
job_id: a
weight: 2
groups: [{name: package, ranks: [0, 1, 2, 3]}, {name: pods, ranks: [0, 32]}]
collectives:
  - {algorithm: all_reduce, groups: [package], bytes_per_iteration: 4000}
  - {algorithm: all_gather, groups: [pods], bytes_per_iteration: 1000, phase: 1}
transfers: [{src: 5, dst: 6, bytes_per_iteration: 700, phase: 1}]
compute: [{seconds: 1.5}, {seconds: 0.5}, {seconds: 0.25, phase: 1}]
"""
    (job,) = read(tmp_path, shape, text)
    assert (job.weight, [step.phase for step in job.steps]) == (2, [None, 0, 1])
    assert [step.floor_s for step in job.steps] == [2, 0, 0.25]
    assert sent(job) == [[0, 0, 0], [6000, 0, 0], [1400, 0, 500]]


def test_a_job_file_for_a_controller_is_one_for_a_design_too(tmp_path: Path, shape: Shape) -> None:
    text = """
job_id: a
hosts: 10.0.1.1-4
groups: [{name: all, ranks: [0, 1, 2, 3]}]
collectives: [{algorithm: ring_all_reduce, groups: [all], bytes_per_iteration: 4000}]
---
job_id: b
endpoints: [10.0.1.1, 10.0.1.2]
transfers: [{src: 0, dst: 1, bytes_per_iteration: 100}]
"""
    first, second = read(tmp_path, shape, text)
    assert (sent(first), sent(second)) == ([[6000, 0, 0]], [[200, 0, 0]])


def test_a_group_that_is_no_block_sends_as_one_flat_ring(tmp_path: Path, shape: Shape) -> None:
    """The group has ranks 0, 1 and 6 at the coordinates (0, 0), (1, 0) and (2, 1): places in package and node.

    From 6 to 0, half of the bytes go each way round the package. From 1 to 6, all go one hop forwards in the package.
    Either transfer also crosses one of the node's seven links."""
    groups = [{"name": "odd", "ranks": [0, 1, 6]}]
    sends = [{"algorithm": "all_reduce", "groups": ["odd"], "bytes_per_iteration": 3000}]
    (job,) = read(tmp_path, shape, dump({"job_id": "a", "groups": groups, "collectives": sends}))
    assert sent(job) == [[2 * 4000, 7 * 4000, 0]]


MODEL = {
    "layers": 8, "hidden": 64, "heads": 8, "vocabulary": 1000, "sequence": 128, "global_batch": 64,
    "tied_embeddings": False,
}  # fmt: skip


def test_a_models_parts_fill_the_dimensions_in_order(tmp_path: Path, shape: Shape) -> None:
    parallelism = {"tensor": 8, "pipeline": 2}
    (job,) = read(tmp_path, shape, dump({"job_id": "a", "model": MODEL, "parallelism": parallelism}))
    assert job.placed is not None
    assert job.placed.order == (Part.TENSOR, Part.DATA, Part.PIPELINE)
    found = {part: job.placed.spans[part] for part in job.placed.order}
    assert found == {Part.TENSOR: (4, 2, 1), Part.DATA: (1, 4, 1), Part.PIPELINE: (1, 1, 2)}
    model = Model.model_validate(MODEL)
    tensor = 4 * 4 * 16 * model.activation_bytes  # 4 layers of a stage, 16 micro-batches
    stages = 16 * model.activation_bytes
    gradients = model.weights * 4 / 16
    assert sent(job) == [
        [tensor * 2 * 3 / 4, 7 * tensor / 4 * 2 / 2, stages],  # one of a node's seven links
        [0, 7 / 3 * gradients * 2 * 3 / 4, 0],
    ]


def test_parts_that_use_different_direct_links_at_once_wait_for_the_busier_ones_only() -> None:
    """The three links of an NPU lead to its tensor rank, to the rank with other experts, and to a third NPU."""
    dimensions = [{"name": "node", "kind": "fully_connected", "size": 4}]
    model = Model.model_validate(MODEL | {"experts": 2})
    one_shape = Shape.model_validate({"dimensions": dimensions})
    for order in permutations((Part.TENSOR, Part.EXPERT)):
        (way,) = placements(model, Parallelism(tensor=2, expert=2, data=2), one_shape, order)
        passes = 64 // 2 * model.activation_bytes
        tensor, tokens = 4 * 8 * passes * 2 / 2, 4 * 8 * 2 * passes / 2
        assert way.phases[0] == (3 * max(tensor, tokens),)


def test_parts_that_are_interleaved_share_a_rings_links(tmp_path: Path, shape: Shape) -> None:
    """The two tensor ranks of a group are neighbours in a package of four places; two replicas are not neighbours.

    The replicas also span all other dimensions."""
    parallelism = {"tensor": 2, "pipeline": 1, "data": 32}
    (job,) = read(tmp_path, shape, dump({"job_id": "a", "model": MODEL, "parallelism": parallelism}))
    model = Model.model_validate(MODEL)
    tensor, gradients = 4 * 8 * 2 * model.activation_bytes, model.weights * 4 / 2
    replicas = [2 * gradients * 2 / 2, gradients / 2 * 2 * 7 / 8, gradients / 16 * 2 / 2]
    assert sent(job) == [[2 * tensor * 2 / 2, 0, 0], replicas]


def test_every_order_that_fits_is_a_placement_and_the_fastest_is_first(tmp_path: Path, shape: Shape) -> None:
    parallelism = {"tensor": 4, "pipeline": 2, "data": 8}
    (tmp_path / "job.yaml").write_text(dump({"job_id": "a", "model": MODEL, "parallelism": parallelism}))
    (ways,) = designed_jobs([tmp_path / "job.yaml"], shape, every_placement=True)
    parts = Part.TENSOR, Part.DATA, Part.PIPELINE
    assert {way.placed.order for way in ways if way.placed} == {*permutations(parts)}
    gbps = (400.0, 100.0, 25.0)
    ordered = best_first(ways, gbps)
    times = [sum(job.step_times_s(gbps)) for job in ordered]
    assert times == sorted(times)
    assert ordered[0].placed
    assert ordered[0].placed.order[0] is Part.TENSOR


def test_of_placements_with_one_time_the_better_second_worst_step_decides() -> None:
    def job(name: str, *times: float) -> DesignedJob:
        return DesignedJob(name, 1.0, tuple(Step(n, (time_s,), 0.0) for n, time_s in enumerate(times)))

    ways = [job("5 4 1", 5, 1, 4), job("6 2 2", 2, 2, 6), job("5 3 2", 3, 2, 5), job("4 4 1", 4, 4, 1)]
    assert [way.job_id for way in best_first(ways, (1.0,))] == ["4 4 1", "5 3 2", "5 4 1", "6 2 2"]


A_TRANSFER = "transfers: [{src: 0, dst: 1, bytes_per_iteration: 1}]"
A_MODEL = dump({"job_id": "a", "model": MODEL})


@pytest.mark.parametrize(("text", "expected"), [
    ("job_id: a\nweight: 0\ntransfers: []", "2:1: weight: must be more than 0 (given: 0)"),
    ("job_id: a", "1:1: the job has no traffic: give a model, collectives or transfers"),
    (f"job_id: a\nplacement: [tensor]\n{A_TRANSFER}",
     "2:1: placement: needs a model; without a model rank r is NPU r"),
    (f"job_id: a\n{A_TRANSFER.replace('1, b', '64, b')}",
     "2:22: transfers[0].dst: rank 64 has no endpoint; ranks go from 0 to 63"),
    (f"{A_MODEL}parallelism: {{tensor: 8, data: 16}}", "3:1: parallelism: needs 128 NPUs, but the network has 64"),
    (f"{A_MODEL}placement: [tensor]\nparallelism: {{tensor: 2, pipeline: 2}}",
     "3:1: placement: must name each of these parts once: tensor, data, pipeline"),
    (f"{dump({'job_id': 'a', 'model': MODEL | {'heads': 6}})}parallelism: {{tensor: 6, data: 8}}",
     "3:1: parallelism: tensor 6 does not fit into 'package': 6 ranks must be placed, and 4 of 4 NPUs "
     "are free; one number must divide the other"),
    (f"job_id: a\nhosts: 10.0.1-4.1-32\n{A_TRANSFER}", 
     "2:1: hosts: must have at most 64 ranks, the number of NPUs (given: 128)"),
    (f"job_id: a\nparallelizations: [{{name: b, {A_TRANSFER}}}]",
     "2:1: parallelizations: are only for signalbox design wiring: give the fields of one parallelization here"),
])  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, shape: Shape, text: str, expected: str) -> None:
    assert problem(tmp_path, shape, text) == f"job.yaml:{expected}"


A_RING = "{name: a, kind: ring, size: 4}"


@pytest.mark.parametrize(("text", "expected"), [
    ("[]", "1:1: dimensions: must have at least 1 entry (given: 0)"),
    (f"[{A_RING.replace('ring', 'torus')}]",
     "1:24: dimensions[0].kind: must be 'ring', 'fully_connected' or 'switch' (given: 'torus')"),
    (f"\n- {A_RING}\n- {A_RING}",
     "2:4: dimensions[0].name: 'a' is the name of 2 dimensions; each needs a name of its own; "
     "{path}/network.yaml:3:4: dimensions[1].name: 'a' is the name of 2 dimensions; each needs a name of its own"),
    (f"[{A_RING.replace('}', ', min_gbps: 9, max_gbps: 8}')}]",
     "1:45: dimensions[0].min_gbps: must be at most max_gbps, 8 (given: 9)"),
    (f"[{A_RING}]\nbudget: 5", "2:1: budget: needs the cost_per_gbps of dimensions"),
])  # fmt: skip
def test_what_is_wrong_with_a_network_is_told_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "network.yaml").write_text(f"dimensions: {text}")
    with pytest.raises(InvalidInput) as refused:
        shape_in(tmp_path / "network.yaml")
    found = str(refused.value).removeprefix(f"{tmp_path}/")
    assert found.startswith("network.yaml:" + expected.replace("{path}", str(tmp_path)))


def test_an_existing_network_says_all_its_bandwidths(tmp_path: Path) -> None:
    (tmp_path / "network.yaml").write_text(NETWORK)
    with pytest.raises(InvalidInput, match=r"network.yaml:3:5: dimensions\[0\].gbps: is missing"):
        shape_in(tmp_path / "network.yaml", exists=True)
