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
that (n-1)/(k-1) times as much counts, and adds up with what else is sent on the same links only. In a ring its bytes go
all the way round, and n/k groups share each link; or, if its places are next to each other, forth and back between the
first and the last: the less of n/k and 2 counts.

A transfer takes a way that changes its coordinates dimension by dimension, in a ring the shorter way (half each way
where both are as long), with direct links the one between both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from operator import mul

import numpy as np
from numpy.typing import NDArray

from controller.design.shape import Dimension, Ints, Kind, Shape
from signalbox.jobs.spec import Algorithm

Floats = NDArray[np.float64]

_MOST_WAITING = 1 << 22
"""Numbers of bytes on direct links before those of one link are added up, to bound memory."""

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
        self._alike = np.zeros((len(shape.dimensions), shape.npus))
        strides = accumulate(shape.sizes[:-1], mul, initial=1)
        self._links = [
            _LINKS[d.kind](d, stride, shape.npus) for d, stride in zip(shape.dimensions, strides, strict=True)
        ]

    def add_collective(self, npus: Ints | slice, sent: Sequence[float], places: Sequence[Ints] = ()) -> None:
        """``sent``: of each of the NPUs, by dimension (``collective_bytes``). ``places``: by dimension those that the
        group has, none for whole dimensions. Of a slice, all NPUs, NPU 0 stands for what is sent on direct links: no
        other one may have transfers on links that the group uses."""
        for d, size in enumerate(sent):
            links = self._links[d]
            if places and isinstance(links, _DirectLinks) and 1 < len(places[d]) < links.dimension.size:
                links.add_group(np.zeros(1, int) if isinstance(npus, slice) else npus, places[d], size)
            else:
                self._alike[d, npus] += size

    def add_transfers(self, src: Ints, dst: Ints, size: Floats) -> None:
        """NPUs that send, those that receive, and bytes."""
        at = src
        for links in self._links:
            here, there = links.coordinates(at), links.coordinates(dst)
            moves = here != there
            if moves.any():
                links.add(at[moves], there[moves], size[moves])
            at = at + (there - here) * links.stride

    def bytes_per_dimension(self) -> tuple[float, ...]:
        busiest = (links.busiest() * links.dimension.links for links in self._links)
        return tuple(float((alike + most).max()) for alike, most in zip(self._alike, busiest, strict=True))


class _Links:
    """What transfers put on the links of a dimension. NPUs whose coordinates in it follow each other are ``stride``
    apart."""

    def __init__(self, dimension: Dimension, stride: int, npus: int) -> None:
        self.dimension, self.stride, self._npus = dimension, stride, npus

    def coordinates(self, npus: Ints) -> Ints:
        """Their own ones in this dimension."""
        return npus // self.stride % self.dimension.size

    def add(self, npus: Ints, there: Ints, size: Floats) -> None:
        """From the NPUs to those that have the coordinates ``there`` instead of theirs."""
        raise NotImplementedError

    def busiest(self) -> Floats:
        """The bytes of each NPU's most loaded link."""
        raise NotImplementedError


class _SwitchLinks(_Links):
    """Row 0: out of each NPU, row 1: into it."""

    def __init__(self, dimension: Dimension, stride: int, npus: int) -> None:
        super().__init__(dimension, stride, npus)
        self._bytes = np.zeros((2, npus))

    def add(self, npus: Ints, there: Ints, size: Floats) -> None:
        np.add.at(self._bytes[0], npus, size)
        np.add.at(self._bytes[1], npus + (there - self.coordinates(npus)) * self.stride, size)

    def busiest(self) -> Floats:
        return np.asarray(self._bytes.max(axis=0))


class _DirectLinks(_Links):
    """A link is an NPU and the coordinate of the other one; few of them carry anything."""

    def __init__(self, dimension: Dimension, stride: int, npus: int) -> None:
        super().__init__(dimension, stride, npus)
        self._links: list[Ints] = []
        self._bytes: list[Floats] = []
        self._waiting = 0

    def add(self, npus: Ints, there: Ints, size: Floats) -> None:
        self._links.append(npus * self.dimension.size + there)
        self._bytes.append(size)
        self._waiting += len(npus)
        if self._waiting > _MOST_WAITING:
            self._add_up()

    def add_group(self, npus: Ints, places: Ints, size: float) -> None:
        """What the NPUs, at the places, send each other. ``size``: of each, times all links / those to the others."""
        here, there = np.broadcast_arrays(npus[:, None], places[None, :])
        others = self.coordinates(here) != there
        self.add(here[others], there[others], np.full(int(others.sum()), size / self.dimension.links))

    def _add_up(self) -> None:
        links, at = np.unique(np.concatenate(self._links), return_inverse=True)
        self._links, self._bytes = [links], [np.bincount(at, np.concatenate(self._bytes)).astype(float)]
        self._waiting = 0

    def busiest(self) -> Floats:
        found = np.zeros(self._npus)
        if self._links:
            self._add_up()
            np.maximum.at(found, self._links[0] // self.dimension.size, self._bytes[0])
        return found


class _RingLinks(_Links):
    """Row 0: forwards, row 1: backwards, with coordinates counted from the other end. A place has what begins there
    less what ends there, so that the sum up to it is what its link carries."""

    def __init__(self, dimension: Dimension, stride: int, npus: int) -> None:
        super().__init__(dimension, stride, npus)
        self._begins = np.zeros((2, npus // (dimension.size * stride), dimension.size, stride))

    def add(self, npus: Ints, there: Ints, size: Floats) -> None:
        n, here = self.dimension.size, self.coordinates(npus)
        outer, inner = npus // (n * self.stride), npus % self.stride
        forwards = 2 * ((there - here) % n)
        share = np.where(forwards == n, 0.5, np.where(forwards < n, 1.0, 0.0))
        for begins, first, last, part in (
            (self._begins[0], here, there, share * size),
            (self._begins[1], n - 1 - here, n - 1 - there, (1 - share) * size),
        ):
            np.add.at(begins, (outer, first, inner), part)
            np.add.at(begins, (outer, last, inner), -part)
            np.add.at(begins, (outer, np.zeros_like(first), inner), np.where(last < first, part, 0.0))  # over the end

    def busiest(self) -> Floats:
        forwards, backwards = self._begins.cumsum(axis=2)
        return np.asarray(np.maximum(forwards, backwards[:, ::-1])).ravel()


_LINKS: Mapping[Kind, type[_Links]] = {
    Kind.RING: _RingLinks,
    Kind.FULLY_CONNECTED: _DirectLinks,
    Kind.SWITCH: _SwitchLinks,
}
