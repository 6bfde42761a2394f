"""Traffic of one training iteration of a transformer, from its size and its parallelization.

A ``Model``, a ``Parallelism`` and the address of each rank give the groups, collectives and transfers of a job spec.
docs/reference/model-traffic.md lists the formulas, their sources, and what they leave out. Which ranks form a group
follows Megatron-LM's ``initialize_model_parallel`` in ``megatron/core/parallel_state.py``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import chain, pairwise, product
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, StrictBool, model_validator

from signalbox.errors import FieldProblem, InvalidInput
from signalbox.jobs.spec import MAX_BYTES, Algorithm, Collective, Frozen, ParallelGroup, Transfer, Whole

MAX_SIZE = 1 << 50
"""Largest value of any number of a model. The traffic has a limit of its own, ``MAX_BYTES``."""

Size = Annotated[Whole, Field(ge=1, le=MAX_SIZE)]
Count = Annotated[Whole, Field(ge=0, le=MAX_SIZE)]


class Preset(StrEnum):
    """Names of models with published sizes."""

    GPT3_175B = "gpt3-175b"
    LLAMA2_70B = "llama2-70b"
    LLAMA3_8B = "llama3-8b"
    LLAMA3_70B = "llama3-70b"
    LLAMA3_405B = "llama3-405b"
    MIXTRAL_8X7B = "mixtral-8x7b"


_LLAMA = {"gated_mlp": True, "tied_embeddings": False}
_LLAMA3 = {**_LLAMA, "kv_heads": 8, "vocabulary": 128_256, "sequence": 8192}

PRESETS: dict[Preset, dict[str, Any]] = {
    # Brown et al., "Language Models are Few-Shot Learners", 2020, table 2.1, with its 175.0 B parameters. Its batch is
    # 3.2 M tokens; 1,536 sequences come from Narayanan et al., table 2.
    Preset.GPT3_175B: {
        "layers": 96,
        "hidden": 12_288,
        "heads": 96,
        "sequence": 2048,
        "vocabulary": 50_257,
        "parameters": 175_000_000_000,
        "global_batch": 1536,
        "tied_embeddings": True,
    },
    # Touvron et al., "Llama 2", 2023, table 1 and section 2.2 (4 M tokens in a batch); widths from its params.json.
    Preset.LLAMA2_70B: {
        **_LLAMA,
        "layers": 80,
        "hidden": 8192,
        "ffn": 28_672,
        "heads": 64,
        "kv_heads": 8,
        "vocabulary": 32_000,
        "sequence": 4096,
        "global_batch": 1024,
    },
    # "The Llama 3 Herd of Models", 2024, arXiv 2407.21783, table 3; batch of the largest from table 4 (16 M tokens).
    Preset.LLAMA3_8B: {**_LLAMA3, "layers": 32, "hidden": 4096, "ffn": 14_336, "heads": 32},
    Preset.LLAMA3_70B: {**_LLAMA3, "layers": 80, "hidden": 8192, "ffn": 28_672, "heads": 64},
    Preset.LLAMA3_405B: {
        **_LLAMA3,
        "layers": 126,
        "hidden": 16_384,
        "ffn": 53_248,
        "heads": 128,
        "global_batch": 2048,
    },
    # Jiang et al., "Mixtral of Experts", 2024, arXiv 2401.04088, table 1.
    Preset.MIXTRAL_8X7B: {
        **_LLAMA,
        "layers": 32,
        "hidden": 4096,
        "ffn": 14_336,
        "heads": 32,
        "kv_heads": 8,
        "vocabulary": 32_000,
        "sequence": 32_768,
        "experts": 8,
        "experts_per_token": 2,
    },
}


def _by_name(value: object) -> object:
    return {"preset": value} if isinstance(value, str) else value


class Model(Frozen):
    """A decoder-only transformer and its batch.

    Sizes of tensors are in elements, ``sequence`` is in tokens, batches are in sequences.

    - ``preset``: published model from which missing fields get their values
    - ``parameters``: number of all parameters; when absent, it is computed (``weights``)
    - ``element_bytes``: bytes of an activation or parameter that is sent; ``gradient_bytes``: bytes of a gradient
    - ``ffn``: inner width of a feed-forward block; 4·``hidden`` when absent
    - ``gated_mlp``: whether a feed-forward block has three matrices, instead of two
    - ``kv_heads``: number of heads of keys and values; equal to ``heads`` when absent
    - ``experts``: number of feed-forward blocks in a layer with experts
    - ``expert_layers``: number of layers with experts; all layers when absent"""

    preset: Preset | None = None
    layers: Size
    hidden: Size
    heads: Size
    kv_heads: Size | None = None
    ffn: Size | None = None
    gated_mlp: StrictBool = False
    vocabulary: Size
    tied_embeddings: StrictBool = True
    experts: Count = 0
    experts_per_token: Size = 2
    expert_layers: Count | None = None
    parameters: Size | None = None
    sequence: Size
    micro_batch: Size = 1
    global_batch: Size
    element_bytes: Size = 2
    gradient_bytes: Size = 4

    @model_validator(mode="before")
    @classmethod
    def _filled_in(cls, given: Any) -> Any:
        """Give missing fields the values of the preset.

        An unknown preset is treated like a known one, so that the unknown name is the only error."""
        if not isinstance(given, dict) or given.get("preset") is None:
            return given
        name = given["preset"]
        return {**PRESETS[Preset(name) if name in tuple(Preset) else Preset.GPT3_175B], **given}

    @property
    def layers_with_experts(self) -> int:
        if not self.experts:
            return 0
        return self.layers if self.expert_layers is None else self.expert_layers

    @property
    def feed_forward(self) -> int:
        """Number of parameters of one feed-forward block."""
        return (3 if self.gated_mlp else 2) * self.hidden * (self.ffn or 4 * self.hidden)

    @property
    def expert_weights(self) -> int:
        """Number of parameters of all experts together. Expert parallelism divides them over ranks."""
        return self.layers_with_experts * self.experts * self.feed_forward

    @property
    def weights(self) -> int:
        """Number of parameters: ``parameters`` if it is given, else that of all matrices and embeddings.

        With h for ``hidden`` and V for ``vocabulary``, each layer has 2h²(1 + kv_heads/heads) for attention (4h²
        without grouped queries), and its feed-forward blocks. The embedding has V·h, and an output that is not tied
        has V·h more. Biases, norms, learned positions and routers are left out; they are below 0.05 % of each
        preset. For GPT-3 the result is 12lh² + Vh, which are the large terms of the formula of Narayanan et al.,
        section 5.1."""
        if self.parameters is not None:
            return self.parameters
        attention = 2 * self.hidden**2 + _up(2 * self.hidden**2 * (self.kv_heads or self.heads), self.heads)
        dense = (self.layers - self.layers_with_experts) * self.feed_forward
        embeddings = (1 if self.tied_embeddings else 2) * self.vocabulary * self.hidden
        return self.layers * attention + dense + self.expert_weights + embeddings

    @property
    def activation_bytes(self) -> int:
        """Bytes that one micro-batch sends from layer to layer: b·s·h elements (Narayanan et al., section 3.2).

        b is ``micro_batch``, s is ``sequence``, h is ``hidden``."""
        return self.micro_batch * self.sequence * self.hidden * self.element_bytes


NamedModel = Annotated[Model, BeforeValidator(_by_name)]
"""A model. In plain data, the name of a preset is short for a model."""


class Parallelism(Frozen):
    """Division of a model over ranks.

    - ``data``: number of replicas; when absent, the number of ranks / (``tensor`` · ``pipeline``)
    - ``expert``: number of ``data`` ranks over which the experts of a layer are distributed
    - ``sequence_parallel``: whether tensor ranks divide, along the sequence, data of which each rank would have a copy
      without this option
    - ``zero``: stage of ZeRO. 0: each rank has everything; 1: distributed optimizer; 3: fully sharded.
    - ``overlap_gradients``: whether gradients are sent during the backward pass instead of after it"""

    tensor: Size = 1
    pipeline: Size = 1
    data: Size | None = None
    expert: Size = 1
    sequence_parallel: StrictBool = False
    zero: Literal[0, 1, 3] = 0
    overlap_gradients: StrictBool = False


class Traffic(NamedTuple):
    """Traffic of one iteration, as the fields of a job spec."""

    groups: list[ParallelGroup]
    collectives: list[Collective]
    transfers: list[Transfer]


class _Sent(NamedTuple):
    """Traffic of each group of one kind. ``size``: M of the group's collective in bytes (see ``Collective``)."""

    kind: str
    algorithm: Algorithm
    size: int
    phase: int


def traffic(model: Model, parallelism: Parallelism, endpoints: Sequence[str]) -> Traffic:
    """Return the traffic of one iteration. Groups within one host are left out. ``endpoints``: address of each rank.

    Raises ``InvalidInput`` when the numbers do not fit together, with paths that begin with ``model`` and
    ``parallelism``; when the traffic exceeds the limits of a job spec; and when hosts exchange no traffic."""
    ranks = len(endpoints)
    data = parallelism.data or ranks // (parallelism.tensor * parallelism.pipeline)
    InvalidInput.refuse(misfits(model, parallelism, data, ranks))
    across_hosts: defaultdict[str, list[tuple[int, ...]]] = defaultdict(list)
    for kind, members in groups_of(parallelism, data):
        if len({endpoints[rank] for rank in members}) > 1:
            across_hosts[kind].append(members)
    groups: dict[str, ParallelGroup] = {}
    collectives: list[Collective] = []
    transfers: list[Transfer] = []
    for kind, algorithm, size, phase in sent(model, parallelism, data):
        of_kind = across_hosts[kind] if size else []
        if of_kind and size > MAX_BYTES:
            message = f"{kind} groups send {size} bytes in each iteration; at most {MAX_BYTES} are allowed"
            raise InvalidInput.of("model", message)
        if algorithm is Algorithm.PIPELINE_SEND:
            # Both directions are transfers, because two groups per pipeline could be more groups than a spec may have.
            stages = chain.from_iterable(map(pairwise, of_kind))
            pairs = chain.from_iterable(((a, b), (b, a)) for a, b in stages if endpoints[a] != endpoints[b])
            transfers += [Transfer(src=a, dst=b, bytes_per_iteration=size, phase=phase) for a, b in pairs]
        elif of_kind:
            named = {f"{kind}-{members[0]}": members for members in of_kind}
            groups |= {name: ParallelGroup(name=name, ranks=members) for name, members in named.items()}
            collective = Collective(algorithm=algorithm, groups=tuple(named), bytes_per_iteration=size, phase=phase)
            collectives.append(collective)
    if not collectives and not transfers:
        raise InvalidInput.of("model", "sends nothing between hosts, so there is nothing to announce")
    return Traffic([*groups.values()], collectives, transfers)


def groups_of(parallelism: Parallelism, data: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the kind and the ranks of each group, in Megatron-LM's order ``tp-cp-ep-dp-pp``.

    ``data``: number of replicas. With T tensor ranks and D = ``data``, tensor rank t of data rank d in pipeline stage p
    is rank t + T·(d + D·p). Expert ranks are adjacent in d. An ``embedding`` group is the first and the last stage of a
    pipeline. D must be a multiple of ``expert``."""
    sizes = (parallelism.tensor, parallelism.expert, data // parallelism.expert, parallelism.pipeline)
    kinds = {"tensor": {0}, "pipeline": {3}, "data": {1, 2}, "expert": {1}, "expert-data": {2}}
    for kind, varying in kinds.items():
        offsets = _ranks(sizes, varying)
        for first in _ranks(sizes, {0, 1, 2, 3} - varying) if len(offsets) > 1 else ():
            members = tuple(first + offset for offset in offsets)
            yield kind, members
            if kind == "pipeline":
                yield "embedding", (members[0], members[-1])


def sent(model: Model, parallelism: Parallelism, data: int) -> Iterator[_Sent]:
    """Yield the traffic of each kind of group in one iteration. ``data``: number of replicas.

    T is ``tensor``, P is ``pipeline``, E is ``expert``, V is ``vocabulary``, and h is ``hidden``. A pipeline has m =
    global_batch / (data · micro_batch) micro-batches, and a stage has L = ⌈layers / P⌉ layers. A is
    ``activation_bytes``.

    - ``tensor``: 4·L·m·A in all-reduces, two per layer forward and two backward (Shoeybi et al., section 3; the
      8bsh(t-1)/t of Narayanan et al., section 3.2). With ``sequence_parallel`` each becomes a reduce-scatter and an
      all-gather, and the backward pass needs two more all-gathers per layer: 4·L·m·A and 6·L·m·A (Korthikanti et al.,
      section 4.2.2).
    - ``pipeline``: m·A to the next stage, and m·A to the previous stage (Narayanan et al., section 3.2). Each tensor
      rank sends m·A to its counterpart, because all have the same data. With ``sequence_parallel`` each sends 1/T of
      m·A.
    - ``expert``: 4·Le·m·k·A in all-to-alls, for Le layers with experts per stage and k ``experts_per_token``: tokens to
      their experts and back, forward and backward (GShard, section 3). With ``sequence_parallel``, 1/T of these bytes.
    - ``data``: gradients of the rank's share of parameters, ``weights`` / (T·P), in one all-reduce. With ``zero`` 1, a
      reduce-scatter of gradients and an all-gather of parameters. With ``zero`` 3, for each micro-batch a
      reduce-scatter, and an all-gather both forward and backward (ZeRO, section 7).
    - ``expert-data``: like ``data``, for the 1/E of the experts on a rank, among ranks with the same experts. ``data``
      then excludes the experts.
    - ``embedding``: an all-reduce of the gradients of a tied embedding, V·h/T (Megatron-LM's
      ``_allreduce_word_embedding_grads``).

    Phase 0 is the forward and the backward pass. Phase 1 follows with the gradients, unless ``overlap_gradients`` is
    set. Fractions of bytes are rounded up."""
    micro_batches = model.global_batch // (data * model.micro_batch)
    held_by = parallelism.tensor if parallelism.sequence_parallel else 1
    per_layer = _up(model.layers, parallelism.pipeline) * micro_batches * model.activation_bytes
    if parallelism.sequence_parallel:
        yield _Sent("tensor", Algorithm.REDUCE_SCATTER, 4 * per_layer, 0)
        yield _Sent("tensor", Algorithm.ALL_GATHER, 6 * per_layer, 0)
    else:
        yield _Sent("tensor", Algorithm.ALL_REDUCE, 4 * per_layer, 0)

    across_stages = _up(micro_batches * model.activation_bytes, held_by)
    yield _Sent("pipeline", Algorithm.PIPELINE_SEND, across_stages, 0)

    layers = _up(model.layers_with_experts, parallelism.pipeline)
    tokens = micro_batches * model.experts_per_token * model.activation_bytes
    yield _Sent("expert", Algorithm.ALL_TO_ALL, _up(4 * layers * tokens, held_by), 0)

    divided = parallelism.tensor * parallelism.pipeline
    apart = model.expert_weights if parallelism.expert > 1 else 0
    after = 0 if parallelism.overlap_gradients else 1
    yield from _replicas("data", model, parallelism.zero, model.weights - apart, divided, micro_batches, after)
    divided *= parallelism.expert
    yield from _replicas("expert-data", model, parallelism.zero, apart, divided, micro_batches, after)
    if model.tied_embeddings:
        size = _up(model.vocabulary * model.hidden * model.gradient_bytes, parallelism.tensor)
        yield _Sent("embedding", Algorithm.ALL_REDUCE, size, after)


def _replicas(
    kind: str, model: Model, zero: int, parameters: int, divided: int, micro_batches: int, after: int
) -> Iterator[_Sent]:
    """Yield the traffic that keeps replicas of the same share of the parameters equal.

    A share has ``parameters`` / ``divided`` parameters. ``after``: phase in which gradients are sent."""
    gradients, elements = parameters * model.gradient_bytes, parameters * model.element_bytes
    if zero == 0:
        yield _Sent(kind, Algorithm.ALL_REDUCE, _up(gradients, divided), after)
        return
    scatters, gathers, phase = (1, 1, after) if zero == 1 else (micro_batches, 2 * micro_batches, 0)
    yield _Sent(kind, Algorithm.REDUCE_SCATTER, _up(scatters * gradients, divided), phase)
    yield _Sent(kind, Algorithm.ALL_GATHER, _up(gathers * elements, divided), phase)


def misfits(model: Model, parallelism: Parallelism, data: int, ranks: int) -> Iterator[FieldProblem]:
    """Yield a problem for each number that contradicts other numbers.

    The path of the problem begins with ``model`` or ``parallelism``.

    ``data``: number of replicas."""
    tensor, pipeline, expert = parallelism.tensor, parallelism.pipeline, parallelism.expert
    if tensor * pipeline * data != ranks:
        product_of = f"tensor {tensor} x pipeline {pipeline}"
        if parallelism.data is not None:
            product_of += f" x data {parallelism.data}"
        needed = tensor * pipeline * (parallelism.data or 1)
        what = f"{needed} ranks are" if parallelism.data is not None else f"a multiple of {needed} ranks is"
        yield FieldProblem("parallelism", f"{product_of}: {what} needed (given: {ranks})")
        return
    per_batch = data * model.micro_batch
    if model.global_batch % per_batch:
        message = f"must be a multiple of {per_batch}: data {data} x micro_batch {model.micro_batch}"
        yield FieldProblem("model.global_batch", f"{message} (given: {model.global_batch})")
    if model.heads % tensor:
        yield FieldProblem("parallelism.tensor", f"must divide the number of heads, {model.heads} (given: {tensor})")
    if model.kv_heads and model.kv_heads > model.heads:
        yield FieldProblem(
            "model.kv_heads", f"must be at most the number of heads, {model.heads} (given: {model.kv_heads})"
        )
    if pipeline > model.layers:
        yield FieldProblem(
            "parallelism.pipeline", f"must be at most {model.layers}, the number of layers (given: {pipeline})"
        )
    if model.layers_with_experts > model.layers:
        message = f"must be at most {model.layers}, the number of layers (given: {model.expert_layers})"
        yield FieldProblem("model.expert_layers", message)
    if expert > 1 and not model.layers_with_experts:
        yield FieldProblem("parallelism.expert", "must be 1: the model has no experts")
    elif data % expert or model.experts % expert:
        message = f"must divide data, {data}, and the number of experts, {model.experts} (given: {expert})"
        yield FieldProblem("parallelism.expert", message)
    if model.experts and model.experts_per_token > model.experts:
        message = f"must be at most the number of experts, {model.experts} (given: {model.experts_per_token})"
        yield FieldProblem("model.experts_per_token", message)
    if model.parameters is not None and model.parameters < model.expert_weights:
        message = f"must be at least the parameters of the experts, {model.expert_weights} (given: {model.parameters})"
        yield FieldProblem("model.parameters", message)


def _ranks(sizes: Sequence[int], varying: Iterable[int]) -> list[int]:
    """Return the ranks, ascending, whose coordinates are 0 on all axes except those in ``varying``.

    ``sizes``: number of coordinates on each axis. Along the first axis the rank changes fastest."""
    strides = [1]
    for size in sizes[:-1]:
        strides.append(strides[-1] * size)
    axes = sorted(varying, reverse=True)
    places = product(*(range(sizes[axis]) for axis in axes))
    return [sum(strides[axis] * at for axis, at in zip(axes, place, strict=True)) for place in places]


def _up(number: int, divisor: int) -> int:
    return -(-number // divisor)
