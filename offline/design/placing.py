"""Placement of a model's parallelism on the dimensions of a network, and the bytes sent in each dimension. Pure.

In: a model, its parallelism, and the order in which the parts of the parallelism fill the dimensions, beginning with
the first dimension. Out: the bytes of each dimension by phase.

A part fills the free places of a dimension and continues in the next dimension, so each of its groups is a block of
NPUs. No placement exists if the number of a part's remaining ranks is neither a divisor nor a multiple of the number of
free places in a dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import permutations
from math import prod
from typing import NamedTuple

import numpy as np

from offline.design.loads import Loads, collective_bytes
from offline.design.shape import Ints, Shape
from signalbox.errors import InvalidInput
from signalbox.models import Model, Parallelism, misfits, sent


class Part(StrEnum):
    """Part of a model's parallelism.

    The data-parallel ranks of a model are divided into ``EXPERT`` and ``DATA``: the product of the sizes of these two
    parts is the data parallelism."""

    TENSOR = "tensor"
    EXPERT = "expert"
    DATA = "data"
    PIPELINE = "pipeline"


MEGATRON = (Part.TENSOR, Part.EXPERT, Part.DATA, Part.PIPELINE)
"""Order of ranks in Megatron-LM and in ``models.groups_of``."""

_PARTS_OF = {
    "tensor": (Part.TENSOR,),
    "expert": (Part.EXPERT,),
    "data": (Part.EXPERT, Part.DATA),
    "expert-data": (Part.DATA,),
}
"""Parts in which the ranks of a group differ, by the kind of the group (``models.sent``).

Groups of the kinds "pipeline" and "embedding" are not listed: their ranks differ in the stage, and their traffic is
transfers between NPUs."""


class Placed(NamedTuple):
    """Placement of a model."""

    order: tuple[Part, ...]
    """Parts with several ranks, in the order in which they fill the dimensions."""
    spans: Mapping[Part, tuple[int, ...]]
    """Number of ranks of each part in each dimension."""
    phases: Mapping[int, tuple[float, ...]]
    """Bytes of each dimension by phase (``Loads``)."""


def part_sizes(model: Model, parallelism: Parallelism, npus: int) -> dict[Part, int]:
    """Return the number of ranks of each part. A parallelism without ``data`` uses all NPUs.

    Raises ``InvalidInput`` when the numbers do not fit."""
    divided = parallelism.tensor * parallelism.pipeline
    data = parallelism.data or max(1, npus // divided)
    InvalidInput.refuse(misfits(model, parallelism, data, divided * data if parallelism.data else npus))
    if divided * data > npus:
        message = f"needs {divided * data:,} NPUs, but the network has {npus:,}"
        raise InvalidInput.of("parallelism", message)
    return {
        Part.TENSOR: parallelism.tensor,
        Part.EXPERT: parallelism.expert,
        Part.DATA: data // parallelism.expert,
        Part.PIPELINE: parallelism.pipeline,
    }


def placements(
    model: Model, parallelism: Parallelism, shape: Shape, order: Sequence[Part] | None = None
) -> list[Placed]:
    """Return the placement in every order that the sizes allow, or in ``order`` alone.

    ``order`` may leave out parts of one rank. Raises ``InvalidInput`` when there is no placement."""
    sizes = part_sizes(model, parallelism, shape.npus)
    several = [part for part in MEGATRON if sizes[part] > 1]
    orders = list(permutations(several)) if order is None else [tuple(part for part in order if part in several)]
    if set(orders[0]) != set(several) or len(orders[0]) != len(several):
        raise InvalidInput.of("placement", f"must name each of these parts once: {', '.join(several)}")
    found, last = [], None
    for each in orders:
        try:
            spans = _spans(each, sizes, shape)
        except InvalidInput as error:
            last = error
            continue
        found.append(Placed(each, spans, _phases(model, parallelism, shape, each, sizes, spans)))
    if last and not found:
        raise last
    return found


def _spans(order: Sequence[Part], sizes: Mapping[Part, int], shape: Shape) -> dict[Part, tuple[int, ...]]:
    """Return the ranks of each part by dimension. Raises ``InvalidInput`` when a part does not fit into a dimension."""
    places = list(shape.sizes)
    spans = {part: [1] * len(places) for part in MEGATRON}
    for part in order:
        rest = sizes[part]
        for d, free in enumerate(places):
            taken = free if rest % free == 0 else rest
            if free % taken:
                size, name = shape.sizes[d], shape.names[d]
                ranks = (
                    f"{rest} ranks must be placed, and {free} of {size} NPUs are free; one number must divide the other"
                )
                raise InvalidInput.of("parallelism", f"{part} {sizes[part]} does not fit into '{name}': {ranks}")
            spans[part][d] = taken
            places[d], rest = free // taken, rest // taken
            if rest == 1:
                break
    return {part: tuple(span) for part, span in spans.items()}


def _phases(
    model: Model,
    parallelism: Parallelism,
    shape: Shape,
    order: Sequence[Part],
    sizes: Mapping[Part, int],
    spans: Mapping[Part, tuple[int, ...]],
) -> dict[int, tuple[float, ...]]:
    loads: dict[int, Loads] = {}
    stages = _stages(order, sizes)
    in_all = [prod(spans[part][d] for part in order) for d in range(len(shape.sizes))]
    for kind, algorithm, size, phase in sent(model, parallelism, sizes[Part.EXPERT] * sizes[Part.DATA]):
        of_phase = loads.setdefault(phase, Loads(shape))
        if kind in _PARTS_OF:
            places = _block(_PARTS_OF[kind], order, spans)
            counts = [len(at) for at in places]
            beside = [taken / count for taken, count in zip(in_all, counts, strict=True)]
            of_phase.add_everywhere(collective_bytes(algorithm, size, counts, shape.dimensions), places, beside)
            continue
        # Stages of a pipeline send to their neighbours. The embedding's all-reduce of two ranks is one transfer each
        # way.
        one, other = (stages[:-1], stages[1:]) if kind == "pipeline" else (stages[:1], stages[-1:])
        if len(stages) > 1:
            pairs = one.ravel(), other.ravel()
            of_phase.add_transfers(*pairs, np.full(len(pairs[0]), float(size)))
            of_phase.add_transfers(*pairs[::-1], np.full(len(pairs[0]), float(size)))
    return {phase: of_phase.bytes_per_dimension() for phase, of_phase in sorted(loads.items())}


def _block(parts: Sequence[Part], order: Sequence[Part], spans: Mapping[Part, tuple[int, ...]]) -> list[Ints]:
    """Return the places of a group in each dimension, in ascending order.

    The group is that of NPU 0: all ranks that differ from NPU 0 only in ``parts``."""
    places = []
    for d in range(len(spans[Part.TENSOR])):
        taken, stride = np.zeros(1, int), 1
        for part in order:
            if part in parts:
                taken = np.add.outer(np.arange(spans[part][d]) * stride, taken).ravel()
            stride *= spans[part][d]
        places.append(taken)
    return places


def _stages(order: Sequence[Part], sizes: Mapping[Part, int]) -> Ints:
    """Return the NPUs of each pipeline stage, shape (stages, ranks).

    A column has the same rank of every stage."""
    others = prod(size for part, size in sizes.items() if part is not Part.PIPELINE)
    if Part.PIPELINE not in order:
        return np.arange(others)[None, :]
    axes = np.arange(others * sizes[Part.PIPELINE]).reshape([sizes[part] for part in reversed(order)])
    stage = len(order) - 1 - order.index(Part.PIPELINE)
    return np.moveaxis(axes, stage, 0).reshape(sizes[Part.PIPELINE], -1)
