"""Load of each dimension of a network in one phase, from collectives and transfers. Pure.

In: the shape, collectives with their ranks, and transfers between NPUs. Out: the load of each dimension in bytes: the
bytes on the most loaded link of any NPU times the NPU's number of links. The load divided by an NPU's bandwidth is the
time.

A collective runs through the dimensions one after the other, each time with the remaining part of the vector, and uses
all links of an NPU equally. docs/design.md#time has the bytes that an NPU sends, and the part of the vector that
remains. The formulas are those of Won et al., "LIBRA", ISPASS 2024, arXiv 2109.11762, section III, and Cho et al.,
"BlueConnect", MLSys 2019.

A group may have only k of the n places of a dimension:

- Direct links: the group can use only the k-1 links between its places, out of n-1 links of each NPU. The load of the
  group is therefore (n-1)/(k-1) times the bytes that an NPU sends, and adds up only with traffic on the same links.
- Ring: the bytes go all the way round, over the links of all NPUs of the ring. If the places are adjacent and at most
  half of the ring, the bytes may instead turn back at the ends. A link then carries twice the bytes. In a phase, either
  all such groups turn back, or none: the choice with the smaller load counts.

A transfer changes its coordinates dimension by dimension. In a ring, the transfer takes the shorter direction (half
each way in a tie). With direct links, the transfer takes the link between the two places.
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
"""Number of new entries after which the entries of each direct link are summed into one, to save memory."""

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
    """Return the bytes that each rank sends in each dimension.

    - ``size``: M as ``Collective`` defines it.
    - ``spans``: number of different places of the ranks in each dimension; 1 if all are at the same place."""
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
    """Bytes on the links of each dimension in one phase of a job."""

    def __init__(self, shape: Shape) -> None:
        self._alike = np.zeros((len(shape.dimensions), shape.npus))
        strides = accumulate(shape.sizes[:-1], mul, initial=1)
        self._links = [
            _LINKS[d.kind](d, stride, shape.npus) for d, stride in zip(shape.dimensions, strides, strict=True)
        ]

    def add_collective(self, npus: Ints, sent: Sequence[float], places: Sequence[Ints] = ()) -> None:
        """Add a collective of one group.

        - ``sent``: bytes of each NPU by dimension (``collective_bytes``).
        - ``places``: places of the group by dimension, ascending; empty if it has all places of all dimensions."""
        for d, size in enumerate(sent):
            if places and self._is_part(d, places[d]):
                self._links[d].add_part(npus, places[d], size)
            else:
                self._alike[d, npus] += size

    def add_everywhere(self, sent: Sequence[float], places: Sequence[Ints], beside: Sequence[float]) -> None:
        """Add a collective that is run by the group of NPU 0, and by all other groups of the same form.

        - ``sent``, ``places``: as in ``add_collective``, for the group of NPU 0.
        - ``beside``: number of such groups that share one line of NPUs, by dimension.

        On direct links the collective is added to NPU 0 alone, which represents all NPUs. No other NPU may therefore
        have transfers on the links within its own group."""
        for d, size in enumerate(sent):
            links = self._links[d]
            if not self._is_part(d, places[d]):
                self._alike[d] += size
            elif isinstance(links, _RingLinks):
                links.add_parts(places[d], size, beside[d])
            else:
                links.add_part(np.zeros(1, int), places[d], size)

    def _is_part(self, d: int, places: Ints) -> bool:
        """Return whether a group at these places of dimension ``d`` leaves some links of its NPUs unused.

        With a switch, no group leaves links unused: an NPU has only one link, to the switch."""
        dimension = self._links[d].dimension
        return dimension.kind is not Kind.SWITCH and 1 < len(places) < dimension.size

    def add_transfers(self, src: Ints, dst: Ints, size: Floats) -> None:
        """Add one transfer per entry of the three arrays, of ``size`` bytes from NPU ``src`` to NPU ``dst``."""
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
    """Loads of transfers on the links of one dimension. Neighbours in the dimension have numbers ``stride`` apart."""

    def __init__(self, dimension: Dimension, stride: int, npus: int) -> None:
        self.dimension, self.stride, self._npus = dimension, stride, npus

    def coordinates(self, npus: Ints) -> Ints:
        return npus // self.stride % self.dimension.size

    def add(self, npus: Ints, there: Ints, size: Floats) -> None:
        """Add transfers of ``size`` bytes from each NPU to the NPU whose coordinate in this dimension is ``there``.

        The other coordinates of the two NPUs are equal."""
        raise NotImplementedError

    def busiest(self) -> Floats:
        raise NotImplementedError

    def add_part(self, npus: Ints, places: Ints, size: float) -> None:
        """Add the bytes of a group that has only some places of the dimension.

        ``size``: bytes that each NPU sends in the dimension (``collective_bytes``)."""
        raise NotImplementedError

    def least(self, alike: Floats) -> float:
        """Return the load of the dimension: the bytes on the most loaded link times the number of links of an NPU.

        ``alike``: bytes of each NPU that are spread over all of its links."""
        return float((alike + self.busiest() * self.dimension.links).max())


class _SwitchLinks(_Links):
    """Links to a switch. Row 0: bytes out of each NPU; row 1: bytes into it."""

    def __init__(self, dimension: Dimension, stride: int, npus: int) -> None:
        super().__init__(dimension, stride, npus)
        self._bytes = np.zeros((2, npus))

    def add(self, npus: Ints, there: Ints, size: Floats) -> None:
        np.add.at(self._bytes[0], npus, size)
        np.add.at(self._bytes[1], npus + (there - self.coordinates(npus)) * self.stride, size)

    def busiest(self) -> Floats:
        return np.asarray(self._bytes.max(axis=0))


class _DirectLinks(_Links):
    """Direct links, each identified by its NPU and the coordinate of the other NPU.

    Only links with traffic are stored, because most links have none."""

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
    """Links of a ring. Row 0: forwards; row 1: backwards, with coordinates counted from the other end.

    An entry of ``_begins`` is the bytes of transfers that start at a place minus the bytes of transfers that end there.
    The sum of the entries up to a place is the load of the link of that place."""

    def __init__(self, dimension: Dimension, stride: int, npus: int) -> None:
        super().__init__(dimension, stride, npus)
        self._begins = np.zeros((2, npus // (dimension.size * stride), dimension.size, stride))
        self._round = np.zeros((2, *self._begins.shape[1:]))
        """Bytes that go all the way round, on the links of each NPU, from groups with only a part of the ring.

        [0]: no group turns back, so these are the bytes of all such groups. [1]: every group that can turn back does
        so, so these are the bytes of the groups that cannot."""
        self._turned = np.zeros_like(self._begins)
        """Bytes on one link from groups that turn back."""

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
            np.add.at(begins, (outer, np.zeros_like(first), inner), np.where(last < first, part, 0.0))  # wraps around

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
        """Return the bytes of transfers on each link, forwards and backwards."""
        if not self._begins.any():
            return np.zeros_like(self._begins)
        forwards, backwards = self._begins.cumsum(axis=2)
        return np.stack((forwards, backwards[:, ::-1]))


_LINKS: Mapping[Kind, type[_Links]] = {
    Kind.RING: _RingLinks,
    Kind.FULLY_CONNECTED: _DirectLinks,
    Kind.SWITCH: _SwitchLinks,
}
