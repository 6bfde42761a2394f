"""What is measured of all links at one moment, as one frozen mapping over arrays.

Made by ``link_load`` many times a minute for thousands of links, read seldom: a link's figures become an object when
somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.fabric.topology import LinkId


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """``bytes_total``: cumulative port counter. Rates in bit/s over the load window; 0 before two samples."""

    bytes_total: int
    rate_bps: float
    background_bps: float


class LinkFigures(Mapping[LinkId, LinkStatus]):
    """``place``: of each link in the arrays, one value per link: cumulative bytes, bit/s, bit/s."""

    __slots__ = ("_background_bps", "_bytes", "_place", "_rate_bps")

    def __init__(
        self,
        place: Mapping[LinkId, int],
        bytes_total: NDArray[np.uint64],
        rate_bps: NDArray[np.float64],
        background_bps: NDArray[np.float64],
    ) -> None:
        self._place = place
        self._bytes = bytes_total
        self._rate_bps = rate_bps
        self._background_bps = background_bps

    def __getitem__(self, link: LinkId) -> LinkStatus:
        at = self._place[link]
        return LinkStatus(int(self._bytes[at]), float(self._rate_bps[at]), float(self._background_bps[at]))

    def __iter__(self) -> Iterator[LinkId]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)

    def bytes_totals(self) -> Mapping[LinkId, int]:
        """Of every link, in one go."""
        return dict(zip(self._place, self._bytes.tolist(), strict=True))

    def backgrounds_bps(self) -> Mapping[LinkId, float]:
        """Of every link, in one go."""
        return dict(zip(self._place, self._background_bps.tolist(), strict=True))
