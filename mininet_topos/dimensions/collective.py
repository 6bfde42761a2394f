"""An all-reduce over several dimensions of a network, as one rank does it. Pure: pieces in, pieces out.

The vector is cut into chunks. A chunk is reduced and scattered in each dimension, from the first one on, and gathered
again from the last one back (Cho et al., "BlueConnect", MLSys 2019): in a dimension of n ranks, 1/n of it is left for
the next. Chunks do not wait for each other, so that all dimensions are busy at once, as a design's model says. In a
ring even chunks go forwards and odd ones backwards, over a switch all go forwards, over direct links each part goes
straight to its rank: all links of a rank in a dimension carry as much.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Vector = np.ndarray[Any, np.dtype[np.float32]]

DIRECT = "fully_connected"
RING = "ring"


class Place(NamedTuple):
    """Of a rank in a dimension: its kind (``offline.design.shape.Kind``) and size, and the rank's coordinate."""

    kind: str
    size: int
    at: int


class Piece(NamedTuple):
    """What one rank sends to another, in the order in which it is sent: of earlier all-reduces and chunks first.
    ``stage``: how many dimensions the chunk has passed. ``step``: around a ring."""

    call: int
    chunk: int
    stage: int
    step: int
    data: Vector


class Channel(NamedTuple):
    """To the rank whose coordinate in the dimension is ``offset`` more; -1 is backwards in a ring."""

    dimension: int
    offset: int


Sends = list[tuple[Channel, Piece]]
"""The data of a piece does not change any more until the all-reduce is over."""


class AllReduce:
    """Number ``call`` of this rank. ``vector`` becomes the sum over all ranks that differ in ``dimensions`` alone."""

    def __init__(
        self, call: int, vector: Vector, places: Sequence[Place], dimensions: Sequence[int], chunks: int
    ) -> None:
        self.call, self._places = call, places
        self._stages = (*dimensions, *reversed(dimensions))
        self._stage = [0] * chunks
        self._missing = [0] * chunks
        self._regions = [[part(vector, chunk, chunks)] for chunk in range(chunks)]
        self._early: defaultdict[tuple[int, int], list[tuple[Piece, int]]] = defaultdict(list)
        self._left = chunks

    @property
    def done(self) -> bool:
        return self._left == 0

    def begin(self) -> Sends:
        return [send for chunk in range(len(self._stage)) for send in self._enter(chunk)]

    def arrived(self, piece: Piece, offset: int) -> Sends:
        """``offset``: of the channel that it came through, as its sender counts it."""
        if self._stage[piece.chunk] < piece.stage:
            self._early[piece.chunk, piece.stage].append((piece, offset))
            return []
        return self._take(piece, offset)

    def _enter(self, chunk: int) -> Sends:
        stage = self._stage[chunk]
        if stage == len(self._stages):
            self._left -= 1
            return []
        place, gathers = self._places[self._stages[stage]], self._gathers(stage)
        if gathers:
            self._regions[chunk].pop()
        self._missing[chunk] = place.size - 1
        if place.kind == DIRECT:
            offsets = range(1, place.size)
            sends = [self._send(chunk, 0, offset, 0 if gathers else offset) for offset in offsets]
        else:
            way = _way(place, chunk)
            sends = [self._send(chunk, 0, way, way if gathers else 0)]
        for piece, offset in self._early.pop((chunk, stage), ()):
            sends += self._take(piece, offset)
        return sends

    def _take(self, piece: Piece, offset: int) -> Sends:
        """Around a ring, rank r adds to part r - 1 - step and passes it on; in a second round it gets part r - step."""
        chunk, gathers = piece.chunk, self._gathers(piece.stage)
        place = self._places[self._stages[piece.stage]]
        direct = place.kind == DIRECT
        distance = -offset * (gathers if direct else piece.step + (not gathers))
        region = self._region(chunk, place, distance)
        if gathers:
            region[:] = piece.data
        else:
            region += piece.data
        self._missing[chunk] -= 1
        sends: Sends = []
        if not direct and self._missing[chunk]:
            sends.append(self._send(chunk, piece.step + 1, offset, distance))
        if not self._missing[chunk]:
            if not gathers:
                self._regions[chunk].append(self._region(chunk, place, 0 if direct else offset))
            self._stage[chunk] += 1
            sends += self._enter(chunk)
        return sends

    def _send(self, chunk: int, step: int, offset: int, distance: int) -> tuple[Channel, Piece]:
        stage = self._stage[chunk]
        dimension = self._stages[stage]
        data = self._region(chunk, self._places[dimension], distance)
        return Channel(dimension, offset), Piece(self.call, chunk, stage, step, data)

    def _region(self, chunk: int, place: Place, distance: int) -> Vector:
        """The part of the rank that is so far away in the dimension."""
        return part(self._regions[chunk][-1], (place.at + distance) % place.size, place.size)

    def _gathers(self, stage: int) -> bool:
        return stage >= len(self._stages) // 2


def part(vector: Vector, index: int, count: int) -> Vector:
    """Part ``index`` of ``count`` nearly equal parts, as a view."""
    return vector[index * len(vector) // count : (index + 1) * len(vector) // count]


def _way(place: Place, chunk: int) -> int:
    return -1 if place.kind == RING and chunk % 2 else 1
