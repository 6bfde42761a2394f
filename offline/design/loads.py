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

Where a group has k of the n places of a dimension, direct links to the others are of no use to it, so that (n-1)/(k-1)
times as much counts, and adds up with what else is sent on the same links only. In a ring its bytes go all the way
round, on the links of all NPUs there; or, if its places are at most half of the ring and next to each other, forth and
back between the first and the last, twice as many on a link. Of both ways, for all groups of a phase, the one counts
that loads links less.

A transfer takes a way that changes its coordinates dimension by dimension, in a ring the shorter way (half each way
where both are as long), with direct links the one between both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul

import numpy as np
from numpy.typing import NDArray

from offline.design.shape import Dimension, Ints, Kind, Shape
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
) -> tuple[float, ...]:
    """Of each rank by dimension. ``size``: M, see ``Collective``. ``spans``: how many ranks differ in each dimension;
    1 where all are at the same place."""
    found, left = [], float(size)
    for span, dimension in zip(spans, dimensions, strict=True):
        if algorithm is Algorithm.BROADCAST:
            found.append(left if span > 1 else 0.0)
        elif algorithm is Algorithm.ALL_TO_ALL:
            hops = span * span // 4 if dimension.kind is Kind.RING else span - 1
            found.append(left * hops / span)
        else:
            found.append((2 if algorithm in ALL_REDUCES else 1) * left * (span - 1) / span)
            left /= span
    return tuple(found)


class Loads:
    """Of one phase of a job."""

    def __init__(self, shape: Shape) -> None:
        self._alike = np.zeros((len(shape.dimensions), shape.npus))
        strides = accumulate(shape.sizes[:-1], mul, initial=1)
        self._links = [
            _LINKS[d.kind](d, stride, shape.npus) for d, stride in zip(shape.dimensions, strides, strict=True)
        ]

    def add_collective(self, npus: Ints, sent: Sequence[float], places: Sequence[Ints] = ()) -> None:
        """Of one group. ``sent``: of each of the NPUs, by dimension (``collective_bytes``). ``places``: by dimension
        those that the group has, ascending; none for whole dimensions."""
        for d, size in enumerate(sent):
            if places and self._is_part(d, places[d]):
                self._links[d].add_part(npus, places[d], size)
            else:
                self._alike[d, npus] += size

    def add_everywhere(self, sent: Sequence[float], places: Sequence[Ints], beside: Sequence[float]) -> None:
        """Of groups like that of NPU 0. ``beside``: by dimension how many of them share a line of NPUs. For what is
        sent on direct links NPU 0 stands for all: no other one may have transfers on links that its group uses."""
        for d, size in enumerate(sent):
            links = self._links[d]
            if not self._is_part(d, places[d]):
                self._alike[d] += size
            elif isinstance(links, _RingLinks):
                links.add_parts(places[d], size, beside[d])
            else:
                links.add_part(np.zeros(1, int), places[d], size)

    def _is_part(self, d: int, places: Ints) -> bool:
        """Over a switch, bytes to some are as those to all."""
        dimension = self._links[d].dimension
        return dimension.kind is not Kind.SWITCH and 1 < len(places) < dimension.size

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
        return tuple(links.least(alike) for links, alike in zip(self._links, self._alike, strict=True))


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

    def add_part(self, npus: Ints, places: Ints, size: float) -> None:
        """What the NPUs of a group send each other that has some of the places. ``size``: see ``collective_bytes``."""
        raise NotImplementedError

    def least(self, alike: Floats) -> float:
        """Bytes of the most loaded link times the links of an NPU. ``alike``: of each NPU, on all of its links."""
        return float((alike + self.busiest() * self.dimension.links).max())


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

    def add_part(self, npus: Ints, places: Ints, size: float) -> None:
        here, there = np.broadcast_arrays(npus[:, None], places[None, :])
        others = self.coordinates(here) != there
        self.add(here[others], there[others], np.full(int(others.sum()), size / (len(places) - 1)))

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
        self._round = np.zeros((2, *self._begins.shape[1:]))
        """Of groups with a part of the ring, on all links of an NPU: all of them, and those that cannot turn back."""
        self._turned = np.zeros_like(self._begins)
        """On one link, of those that can."""

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

    def add_part(self, npus: Ints, places: Ints, size: float) -> None:
        ring, inner = npus // (self.dimension.size * self.stride), npus % self.stride
        ring, inner = np.unique(np.stack((ring, inner)), axis=1)
        self._round[0, ring, :, inner] += size
        if self._can_turn_back(places):
            at = self.coordinates(npus)
            for turned, end in zip(self._turned, (places[-1], places[0]), strict=True):
                turned.reshape(-1)[npus[at != end]] += size
        else:
            self._round[1, ring, :, inner] += size

    def add_parts(self, places: Ints, size: float, beside: float) -> None:
        """See ``Loads.add_everywhere``."""
        self._round[0] += beside * size
        if self._can_turn_back(places):
            at = np.arange(self.dimension.size) % len(places)
            for turned, end in zip(self._turned, (places[-1], places[0]), strict=True):
                turned[:, at != end] += size
        else:
            self._round[1] += beside * size

    def _can_turn_back(self, places: Ints) -> bool:
        return bool(np.ptp(places) < len(places) <= self.dimension.size / 2)

    def least(self, alike: Floats) -> float:
        carried = self._carried()
        ways = zip(self._round, (carried, carried + self._turned), strict=True)
        links = self.dimension.links
        return min(float((alike + around.ravel() + links * each.max(axis=0).ravel()).max()) for around, each in ways)

    def busiest(self) -> Floats:
        return np.asarray(self._carried().max(axis=0).ravel())

    def _carried(self) -> Floats:
        """Of transfers, forwards and backwards."""
        if not self._begins.any():
            return np.zeros_like(self._begins)
        forwards, backwards = self._begins.cumsum(axis=2)
        return np.stack((forwards, backwards[:, ::-1]))


_LINKS: Mapping[Kind, type[_Links]] = {
    Kind.RING: _RingLinks,
    Kind.FULLY_CONNECTED: _DirectLinks,
    Kind.SWITCH: _SwitchLinks,
}
