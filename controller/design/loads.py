"""What each dimension of a network has to carry in one phase, from collectives and transfers. Pure.

In: the shape, collectives by the ranks that take part, transfers between NPUs. Out: by dimension the bytes that the
bandwidth of an NPU divides: the bytes on the NPU's most loaded link times its number of links.

A collective goes through the dimensions one after the other, each time with what is left of the vector, and uses all
links of an NPU alike (Won et al., "LIBRA", ISPASS 2024, arXiv 2109.11762; Cho et al., "BlueConnect", MLSys 2019). In a
dimension in which n NPUs take part, m bytes are left of the vector:

- all-reduce 2m(n-1)/n, reduce-scatter and all-gather m(n-1)/n; then m/n are left;
- all-to-all m(n-1)/n over a switch or direct links. In a ring, bytes take the shorter way and pass m * floor(n^2/4)/n
  links in all; nothing is left out for the next dimension, which has m again;
- broadcast: each passes on m.

Where a group has k of the n places of a dimension, others have the rest. Direct links to those are of no use to it, so
that (n-1)/(k-1) times as much counts. In a ring its bytes go all the way round, and n/k groups share each link; or, if
its places are next to each other, forth and back between the first and the last: the less of n/k and 2 counts.

A transfer takes a way that changes its coordinates dimension by dimension, in a ring the shorter way (half each way
where both are as long), with direct links the one between both.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from controller.design.shape import Dimension, Ints, Kind, Shape
from signalbox.jobs.spec import Algorithm

Floats = NDArray[np.float64]

ALL_REDUCES = {
    Algorithm.ALL_REDUCE,
    Algorithm.RING_ALL_REDUCE,
    Algorithm.HALVING_DOUBLING_ALL_REDUCE,
    Algorithm.RECURSIVE_DOUBLING_ALL_REDUCE,
}


def collective_bytes(
    algorithm: Algorithm,
    size: float,
    spans: Sequence[int],
    dimensions: Sequence[Dimension],
    apart: Collection[int] = (),
) -> tuple[float, ...]:
    """Of each rank by dimension. ``size``: M, see ``Collective``. ``spans``: how many ranks differ in each dimension;
    1 where all are at the same place. ``apart``: the dimensions in which these are not next to each other."""
    found, left = [], float(size)
    for d, (span, dimension) in enumerate(zip(spans, dimensions, strict=True)):
        links = _links_for_others(dimension, span, d in apart)
        if algorithm is Algorithm.BROADCAST:
            found.append(links * left if span > 1 else 0.0)
        elif algorithm is Algorithm.ALL_TO_ALL:
            hops = span * span // 4 if dimension.kind is Kind.RING else span - 1
            found.append(links * left * hops / span)
        else:
            found.append(links * (2 if algorithm in ALL_REDUCES else 1) * left * (span - 1) / span)
            left /= span
    return tuple(found)


def _links_for_others(dimension: Dimension, span: int, apart: bool) -> float:
    """How many times as much bandwidth there is as ranks can use that are a part of a dimension."""
    if span in (1, dimension.size) or dimension.kind is Kind.SWITCH:
        return 1.0
    if dimension.kind is Kind.FULLY_CONNECTED:
        return (dimension.size - 1) / (span - 1)
    around = dimension.size / span
    return around if apart else min(around, 2.0)


class Loads:
    """Of one phase of a job."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._alike = np.zeros((len(shape.dimensions), shape.npus))
        self._links = [_Links(dimension) for dimension in shape.dimensions]

    def add_collective(self, npus: Ints | slice, sent: Sequence[float]) -> None:
        """``sent``: of each of the NPUs, by dimension (``collective_bytes``)."""
        for d, size in enumerate(sent):
            self._alike[d, npus] += size

    def add_transfers(self, src: Ints, dst: Ints, size: Floats) -> None:
        """NPUs that send, those that receive, and bytes."""
        at, stride = src, 1
        for links in self._links:
            here, there = (ends // stride % links.dimension.size for ends in (at, dst))
            moves = here != there
            links.add(at[moves], here[moves], there[moves], stride, size[moves])
            at = at + (there - here) * stride
            stride *= links.dimension.size

    def bytes_per_dimension(self) -> tuple[float, ...]:
        busiest = (links.busiest(self._shape.npus) * links.dimension.links for links in self._links)
        return tuple(float((alike + most).max()) for alike, most in zip(self._alike, busiest, strict=True))


class _Links:
    """What transfers put on the links of a dimension. A link is an NPU and a number: in a ring 0 forwards and 1
    backwards, with direct links the other one's coordinate, with a switch 0 to it and 1 from it."""

    def __init__(self, dimension: Dimension) -> None:
        self.dimension = dimension
        self._numbers = {Kind.FULLY_CONNECTED: dimension.size}.get(dimension.kind, 2)
        self._keys: list[Ints] = []
        self._sizes: list[Floats] = []

    def add(self, npus: Ints, here: Ints, there: Ints, stride: int, size: Floats) -> None:
        """``here``, ``there``: coordinates, of which one follows the other after ``stride`` NPUs."""
        if self.dimension.kind is Kind.FULLY_CONNECTED:
            self._put(npus, there, size)
        elif self.dimension.kind is Kind.SWITCH:
            self._put(npus, 0, size)
            self._put(npus + (there - here) * stride, 1, size)
        else:
            self._put_around(npus - here * stride, here, there, stride, size)

    def busiest(self, npus: int) -> Floats:
        """The bytes of each NPU's most loaded link."""
        found = np.zeros(npus)
        if self._keys:
            keys, at = np.unique(np.concatenate(self._keys), return_inverse=True)
            np.maximum.at(found, keys // self._numbers, np.bincount(at, np.concatenate(self._sizes)))
        return found

    def _put(self, npus: Ints, number: Ints | int, size: Floats) -> None:
        self._keys.append(npus * self._numbers + number)
        self._sizes.append(size)

    def _put_around(self, first: Ints, here: Ints, there: Ints, stride: int, size: Floats) -> None:
        """``first``: the NPU of each ring with coordinate 0."""
        n = self.dimension.size
        forwards = (there - here) % n
        share = np.where(2 * forwards == n, 0.5, np.where(2 * forwards < n, 1.0, 0.0))
        for number, step, hops, part in ((0, 1, forwards, share), (1, -1, n - forwards, 1 - share)):
            for hop in range(n // 2):
                passing = (hop < hops) & (part > 0)
                at = first + (here + step * hop) % n * stride
                self._put(at[passing], number, (size * part)[passing])
