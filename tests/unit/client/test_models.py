"""Traffic of transformer training: groups of Megatron-LM, bytes by hand, and bytes of a published workload."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from signalbox.errors import InvalidInput
from signalbox.file_forms import job_in
from signalbox.jobs.collectives import virtual_links
from signalbox.models import Model, Parallelism, Preset, Traffic, groups_of, traffic

SMALL: dict[str, Any] = {
    "layers": 6, "hidden": 16, "heads": 4, "vocabulary": 10, "sequence": 5, "micro_batch": 2, "global_batch": 48,
    "tied_embeddings": False,
}  # fmt: skip
"""Small model, with numbers that are easy to check.

An activation is 2·5·16 = 160 elements of 2 bytes. There are 12·6·16² + 2·10·16 = 18,752 parameters, whose gradients
have 4 bytes."""

ACTIVATION, PARAMETERS = 320, 18_752


def sent(ranks_per_host: int = 1, model: dict[str, Any] | None = None, **parallelism: Any) -> Traffic:
    """Return the traffic of as many ranks as the parallelism needs."""
    kinds = Parallelism(**parallelism)
    ranks = kinds.tensor * kinds.pipeline * (kinds.data or 1)
    endpoints = [f"10.0.{rank // ranks_per_host}.1" for rank in range(ranks)]
    return traffic(Model(**{**SMALL, **(model or {})}), kinds, endpoints)


def collectives(found: Traffic) -> list[tuple[str, list[tuple[int, ...]], int, int]]:
    ranks = {group.name: group.ranks for group in found.groups}
    return [(c.algorithm, [ranks[g] for g in c.groups], c.bytes_per_iteration, c.phase) for c in found.collectives]


# ---- sizes


@pytest.mark.parametrize(
    ("preset", "published"),
    [
        # Brown et al., table D.1; the safetensors index of each Llama and Mixtral repository (total_size / 2).
        (Preset.GPT3_175B, 174_600_000_000),
        (Preset.LLAMA2_70B, 68_976_648_192),
        (Preset.LLAMA3_8B, 8_030_261_248),
        (Preset.LLAMA3_70B, 70_553_706_496),
        (Preset.LLAMA3_405B, 405_853_388_800),
        (Preset.MIXTRAL_8X7B, 46_702_792_704),
    ],
)
def test_the_formula_gives_the_published_number_of_parameters(preset: Preset, published: int) -> None:
    model = Model.model_validate({"preset": preset, "parameters": None, "global_batch": 8})
    assert model.weights == pytest.approx(published, rel=5e-4)
    assert model.weights < published, "biases and norms are left out"


def test_what_is_given_counts_more_than_the_preset() -> None:
    model = Model.model_validate({"preset": "gpt3-175b", "layers": 2, "parameters": 7})
    assert (model.layers, model.weights, model.hidden) == (2, 7, 12_288)


# ---- groups


def test_groups_are_those_of_megatron() -> None:
    """The example is from the docstring of ``initialize_model_parallel``: 16 ranks, tensor 2, pipeline 4."""
    groups = [*groups_of(Parallelism(tensor=2, pipeline=4), 2)]
    of = {kind: [members for k, members in groups if k == kind] for kind in ("data", "tensor", "pipeline", "embedding")}
    assert of["data"] == [(0, 2), (1, 3), (4, 6), (5, 7), (8, 10), (9, 11), (12, 14), (13, 15)]
    assert of["tensor"] == [(n, n + 1) for n in range(0, 16, 2)]
    assert of["pipeline"] == [(n, n + 4, n + 8, n + 12) for n in range(4)]
    assert of["embedding"] == [(n, n + 12) for n in range(4)]
    groups = [*groups_of(Parallelism(tensor=2, expert=2), 4)]
    of = {kind: [members for k, members in groups if k == kind] for kind in ("expert", "expert-data", "data")}
    assert of["expert"] == [(0, 2), (1, 3), (4, 6), (5, 7)], "experts are spread over consecutive replicas"
    assert of["expert-data"] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert of["data"] == [(0, 2, 4, 6), (1, 3, 5, 7)]


# ---- bytes


def test_replicas_reduce_the_gradients_of_their_share_in_the_stages_of_zero() -> None:
    assert collectives(sent(data=4)) == [("all_reduce", [(0, 1, 2, 3)], 4 * PARAMETERS, 1)]
    shared = sent(ranks_per_host=2, tensor=2, data=4)
    assert collectives(shared) == [("all_reduce", [(0, 2, 4, 6), (1, 3, 5, 7)], 2 * PARAMETERS, 1)]
    assert collectives(sent(data=4, overlap_gradients=True))[0][3] == 0
    group = [(0, 1, 2, 3)]
    found = collectives(sent(data=4, zero=1))
    assert found == [("reduce_scatter", group, 4 * PARAMETERS, 1), ("all_gather", group, 2 * PARAMETERS, 1)]
    assert collectives(sent(data=4, zero=3)) == [  # 48 / (4·2) = 6 micro-batches
        ("reduce_scatter", group, 6 * 4 * PARAMETERS, 0),
        ("all_gather", group, 6 * 2 * 2 * PARAMETERS, 0),
    ]


def test_pipelines_send_activations_on_and_gradients_back_and_keep_tied_embeddings_alike() -> None:
    """The iteration has 24 micro-batches. Traffic between stages on one host does not count."""
    found = sent(pipeline=3, data=1)
    assert [(t.src, t.dst, t.bytes_per_iteration, t.phase) for t in found.transfers] == [
        (src, dst, 24 * ACTIVATION, 0) for src, dst in ((0, 1), (1, 0), (1, 2), (2, 1))
    ]
    assert (found.groups, found.collectives) == ([], [])
    assert [(t.src, t.dst) for t in sent(ranks_per_host=2, pipeline=3, data=1).transfers] == [(1, 2), (2, 1)]
    (tied,) = collectives(sent(model={"tied_embeddings": True}, pipeline=3, tensor=2, data=1, ranks_per_host=2))
    assert tied == ("all_reduce", [(0, 4), (1, 5)], 10 * 16 * 4 // 2, 1)


def test_tensor_ranks_on_several_hosts_reduce_each_layer_or_its_share_of_the_sequence() -> None:
    """The iteration has 24 micro-batches; each of two stages has 3 layers with 4 all-reduces each."""
    (whole,) = collectives(sent(tensor=2, pipeline=2, data=1))
    assert whole == ("all_reduce", [(0, 1), (2, 3)], 4 * 3 * 24 * ACTIVATION, 0)
    assert {t.bytes_per_iteration for t in sent(tensor=2, pipeline=2, data=1).transfers} == {24 * ACTIVATION}
    (uneven,) = collectives(sent(tensor=2, pipeline=4, data=1))
    assert uneven[2] == 4 * 2 * 24 * ACTIVATION, "stages of 2, 2, 1 and 1 layers count as the largest"
    found = sent(tensor=2, pipeline=2, data=1, sequence_parallel=True)
    groups = [(0, 1), (2, 3)]
    assert collectives(found) == [
        ("reduce_scatter", groups, 4 * 3 * 24 * ACTIVATION, 0),
        ("all_gather", groups, 6 * 3 * 24 * ACTIVATION, 0),
    ]
    assert {t.bytes_per_iteration for t in found.transfers} == {24 * ACTIVATION // 2}


def test_experts_exchange_tokens_and_are_replicated_less_often() -> None:
    """Every second of 6 layers has 4 experts of 2·16·64 parameters.

    There are 6 micro-batches, and each token goes to two experts."""
    found = sent(model={"experts": 4, "expert_layers": 3}, data=4, expert=2)
    experts = 3 * 4 * 2 * 16 * 64
    rest = PARAMETERS - 3 * 2 * 16 * 64
    assert collectives(found) == [
        ("all_to_all", [(0, 1), (2, 3)], 4 * 3 * 6 * 2 * ACTIVATION, 0),
        ("all_reduce", [(0, 1, 2, 3)], 4 * rest, 1),
        ("all_reduce", [(0, 2), (1, 3)], 4 * experts // 2, 1),
    ]
    everywhere = sent(model={"experts": 4, "expert_layers": 3}, data=4)
    assert collectives(everywhere) == [("all_reduce", [(0, 1, 2, 3)], 4 * (rest + experts), 1)]


@pytest.mark.parametrize(("model", "parallelism", "path", "message"), [
    ({}, {"tensor": 8, "data": 3}, "parallelism.tensor", "must divide the number of heads, 4 (given: 8)"),
    ({}, {"data": 5}, "model.global_batch", "must be a multiple of 10: data 5 x micro_batch 2 (given: 48)"),
    ({}, {"pipeline": 8, "data": 1}, "parallelism.pipeline", "must be at most 6, the number of layers (given: 8)"),
    ({}, {"data": 4, "expert": 2}, "parallelism.expert", "must be 1: the model has no experts"),
    ({"experts": 3}, {"data": 4, "expert": 2}, "parallelism.expert", "must divide data, 4, and the number of"),
    ({"experts": 1}, {"data": 4}, "model.experts_per_token", "must be at most the number of experts, 1 (given: 2)"),
    ({"experts": 4, "expert_layers": 7}, {"data": 4}, "model.expert_layers", "must be at most 6, the number of layers"),
    ({"experts": 4, "parameters": 9}, {"data": 4}, "model.parameters", "must be at least the parameters of the"),
    ({"kv_heads": 8}, {"data": 4}, "model.kv_heads", "must be at most the number of heads, 4 (given: 8)"),
    ({"parameters": 1 << 50}, {"data": 4}, "model", "data groups send 4503599627370496 bytes in each iteration; at"),
    ({}, {"data": 1}, "model", "sends nothing between hosts, so there is nothing to announce"),
])  # fmt: skip
def test_numbers_that_do_not_fit_are_refused(
    model: dict[str, Any], parallelism: dict[str, Any], path: str, message: str
) -> None:
    with pytest.raises(InvalidInput) as error:
        sent(model=model, **parallelism)
    found = {problem.path: problem.message for problem in error.value.problems}
    assert found[path].startswith(message)


def test_ranks_that_are_left_are_replicas_and_others_are_refused() -> None:
    model, endpoints = Model(**SMALL), [f"10.0.{rank}.1" for rank in range(8)]
    assert collectives(traffic(model, Parallelism(tensor=2), endpoints))[1][1] == [(0, 2, 4, 6), (1, 3, 5, 7)]
    for parallelism, message in (
        (Parallelism(tensor=2, data=3), "tensor 2 x pipeline 1 x data 3: 6 ranks are needed"),
        (Parallelism(pipeline=3), "tensor 1 x pipeline 3: a multiple of 3 ranks is needed"),
    ):
        with pytest.raises(InvalidInput) as error:
            traffic(model, parallelism, endpoints)
        assert str(error.value) == f"parallelism: {message} (given: 8)"


# ---- a published workload


def replicas(model: dict[str, Any], pipeline: int, ring: int) -> Counter[int]:
    """Return the number of transfers of each size between NICs, for data parallelism alone.

    The job has 8 ranks and NICs per host, and tensor parallelism of 8."""
    hosts = f"10.{{}}.0-{pipeline * ring - 1}.1"
    job: dict[str, Any] = {"job_id": "published", "hosts": hosts.format(0), "ranks_per_host": 8}
    job["rails"] = [{"hosts": hosts.format(nic)} for nic in range(1, 8)]
    job["model"] = {**model, "tied_embeddings": False, "global_batch": ring}
    links = virtual_links(job_in({**job, "parallelism": {"tensor": 8, "pipeline": pipeline, "data": ring}}))
    last = max(link.phase for link in links)
    return Counter(link.bytes for link in links if link.phase == last)


def test_gpt_3_sends_what_the_published_workload_does() -> None:
    """The published workload is ``concurrent_jobs_3/ring_size_4/job_2-GPT_3.txt`` of arXiv 2503.05324.

    Each of 8·8 ranks has 2,734,375,000 of 175·10⁹ parameters, with gradients of 4 bytes: M = 10,937,500,000. A ring of
    4 sends 2·(4-1)/4·M = 16,406,250,000 from each rank to the next: 6 steps of 2,734,375,000. There are 8·8 rings of
    4."""
    assert replicas({"preset": "gpt3-175b"}, pipeline=8, ring=4) == {6 * 2_734_375_000: 8 * 8 * 4}


WORKLOADS = os.environ.get("WORKLOADS", "")
PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {
    "GPT_3": ({"preset": "gpt3-175b"}, 8),
    "LLaMA2_70B": ({"preset": "llama2-70b", "parameters": 70 * 10**9}, 16),
}
"""Preset and pipeline stages, by the end of a file's name.

BLOOM (4·12) is absent, because the published files round its numbers up in another way."""


@pytest.mark.skipif(not WORKLOADS, reason="make test WORKLOADS=DIR: the published workloads (arXiv 2503.05324)")
def test_models_send_what_each_published_file_says() -> None:
    compared = 0
    for file in Path(WORKLOADS).rglob("job_*.txt"):
        found = PUBLISHED.get(file.stem.partition("-")[2])
        if found:
            lines = [line.split() for line in file.read_text().splitlines() if not line.startswith("#")]
            (ring,) = set(Counter(stage for *_, stage in lines).values())
            steps = 2 * (ring - 1)
            assert replicas(*found, ring) == Counter(steps * int(line[5]) for line in lines), file
            compared += 1
    assert compared
