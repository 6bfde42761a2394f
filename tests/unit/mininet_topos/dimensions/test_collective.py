"""All-reduces over several dimensions, whose pieces arrive in any order that connections allow."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest

from mininet_topos.dimensions.cabling import channels, places, segments
from mininet_topos.dimensions.collective import AllReduce, Piece, Sends, Vector
from offline.design.loads import collective_bytes
from offline.design.shape import Shape, shape_of
from signalbox.jobs.spec import Algorithm

CHUNKS = 6
CASES = [
    ([("fully_connected", 3), ("ring", 2), ("switch", 2)], (0, 1, 2)),
    ([("ring", 4), ("switch", 3)], (0, 1)),
    ([("ring", 3), ("ring", 3)], (0, 1)),
    ([("ring", 4), ("switch", 3)], (1,)),
    ([("switch", 2), ("fully_connected", 4)], (0, 1)),
]


def network(dimensions: Sequence[tuple[str, int]]) -> Shape:
    return shape_of(
        {"dimensions": [{"name": str(d), "kind": kind, "size": size} for d, (kind, size) in enumerate(dimensions)]}
    )


def vectors(shape: Shape, elements: int) -> list[Vector]:
    return [np.arange(elements, dtype=np.float32) % 97 * (npu + 1) for npu in range(shape.npus)]


def run(shape: Shape, spanned: Sequence[int], own: Sequence[Vector], seed: int) -> Counter[tuple[int, int]]:
    """Of any connection the first piece, by their order, is delivered next. Out: bytes sent by NPU and dimension."""
    rng, there = random.Random(seed), channels(segments(shape))
    ranks = [AllReduce(0, own[npu], place, spanned, CHUNKS) for npu, place in enumerate(places(shape))]
    waiting = defaultdict[tuple[int, int, int], list[Piece]](list)
    sent = Counter[tuple[int, int]]()

    def send(npu: int, sends: Sends) -> None:
        for channel, piece in sends:
            waiting[npu, *channel].append(piece)
            sent[npu, channel.dimension] += piece.data.nbytes

    for npu in rng.sample(range(shape.npus), shape.npus):
        send(npu, ranks[npu].begin())
    while busy := [key for key, pieces in waiting.items() if pieces]:
        npu, dimension, offset = key = rng.choice(busy)
        piece = waiting[key].pop(min(range(len(waiting[key])), key=lambda at: waiting[key][at][:4]))
        to = next(end.npu for channel, end in there[npu].items() if channel == (dimension, offset))
        send(to, ranks[to].arrived(piece._replace(data=piece.data.copy()), offset))
    assert all(rank.done for rank in ranks)
    return sent


@pytest.mark.parametrize(("dimensions", "spanned"), CASES)
@pytest.mark.parametrize("elements", [5040, 1001])
def test_every_rank_has_the_sum_of_those_that_differ_in_the_dimensions_alone(
    dimensions: list[tuple[str, int]], spanned: tuple[int, ...], elements: int
) -> None:
    shape = network(dimensions)
    before, own = vectors(shape, elements), vectors(shape, elements)
    run(shape, spanned, own, seed=elements)
    at = [tuple(place.at for d, place in enumerate(of) if d not in spanned) for of in places(shape)]
    for npu, result in enumerate(own):
        members = [peer for peer in range(shape.npus) if at[peer] == at[npu]]
        assert np.array_equal(result, np.sum([before[peer] for peer in members], axis=0))


@pytest.mark.parametrize(("dimensions", "spanned"), CASES)
def test_in_each_dimension_a_rank_sends_what_a_design_says(
    dimensions: list[tuple[str, int]], spanned: tuple[int, ...]
) -> None:
    shape, elements = network(dimensions), 15120
    sent = run(shape, spanned, vectors(shape, elements), seed=1)
    spans = [size if d in spanned else 1 for d, size in enumerate(shape.sizes)]
    model = collective_bytes(Algorithm.ALL_REDUCE, 4 * elements, spans, shape.dimensions)
    for npu in range(shape.npus):
        assert tuple(sent[npu, d] for d in range(len(spans))) == model
