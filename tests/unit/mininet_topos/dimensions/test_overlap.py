"""Whether the dimensions of an all-reduce are busy at once, on links without latency: time is in bytes per rate."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import count

import numpy as np
import pytest

from mininet_topos.dimensions.cabling import channels, places, segments
from mininet_topos.dimensions.collective import AllReduce, Channel, Piece, Sends
from offline.design.loads import collective_bytes
from offline.design.shape import shape_of
from signalbox.jobs.spec import Algorithm

CHUNKS = 64
ELEMENTS = CHUNKS * 96
NETWORKS = [[("ring", 4), ("switch", 3)], [("fully_connected", 3), ("ring", 2), ("switch", 2)]]
Key = tuple[int, Channel]


def taken(dimensions: Sequence[tuple[str, int]], order: Callable[[Piece, int], tuple[int, ...]]) -> float:
    """Over the model's time, with bandwidths that keep all dimensions equally busy. ``order``: of a piece, and how many
    were queued before it, where it waits for a link."""
    shape = shape_of(
        {"dimensions": [{"name": str(d), "kind": kind, "size": size} for d, (kind, size) in enumerate(dimensions)]}
    )
    load = collective_bytes(Algorithm.ALL_REDUCE, 4 * ELEMENTS, shape.sizes, shape.dimensions)
    link_rates = [size / dimension.links for size, dimension in zip(load, shape.dimensions, strict=True)]
    there, everyone = channels(segments(shape)), tuple(range(len(dimensions)))
    own = [np.zeros(ELEMENTS, np.float32) for _ in range(shape.npus)]
    ranks = [AllReduce(0, own[npu], place, everyone, CHUNKS) for npu, place in enumerate(places(shape))]
    waiting = defaultdict[Key, list[tuple[tuple[int, ...], int, Piece]]](list)
    arrivals: list[tuple[float, int, Key, Piece]] = []
    busy: set[Key] = set()
    numbers, now = count(), 0.0

    def send_next(key: Key) -> None:
        if key not in busy and waiting[key]:
            *_, piece = heapq.heappop(waiting[key])
            busy.add(key)
            ends = now + piece.data.nbytes / link_rates[key[1].dimension]
            heapq.heappush(arrivals, (ends, next(numbers), key, piece))

    def send(npu: int, sends: Sends) -> None:
        for channel, piece in sends:
            number = next(numbers)
            heapq.heappush(waiting[npu, channel], (order(piece, number), number, piece))
            send_next((npu, channel))

    for npu, rank in enumerate(ranks):
        send(npu, rank.begin())
    while arrivals:
        now, _, key, piece = heapq.heappop(arrivals)
        busy.discard(key)
        send_next(key)
        npu, channel = key
        to = there[npu][channel].npu
        send(to, ranks[to].arrived(piece, channel.offset))
    assert all(rank.done for rank in ranks)
    return now


@pytest.mark.parametrize("dimensions", NETWORKS)
def test_all_dimensions_are_busy_until_the_first_and_last_chunks(dimensions: list[tuple[str, int]]) -> None:
    assert 1 < taken(dimensions, lambda piece, _: piece[:4]) < 1 + 3.1 / CHUNKS


def test_first_come_first_served_would_hold_chunks_up() -> None:
    assert taken(NETWORKS[0], lambda _, number: (number,)) > 1.4
