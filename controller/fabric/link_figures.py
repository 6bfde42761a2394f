"""What is measured of all links at one moment, as one frozen mapping over arrays.

Made many times a minute for thousands of links, read seldom: a link's figures become an object when somebody asks for
them, and what is measured of it is worked out when it was counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.fabric.samples import Floats, Rows, Samples
from controller.fabric.topology import Fabric, LinkId


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
        rate_bps: Floats,
        background_bps: Floats,
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


class _Listed(NamedTuple):
    """The links of a fabric, each with its row of samples, -1 where there are none."""

    fabric: Fabric
    place: Mapping[LinkId, int]
    rows: Rows


class RecentFigures:
    """Keeps the figures of links up to date: only of those that were counted anew. ``links``: their samples."""

    def __init__(self, links: Samples[LinkId], window_s: float) -> None:
        self._links = links
        self._window_s = window_s
        self._rates_bps = np.zeros(0)
        self._counted: list[Rows] = []
        self._listed: _Listed | None = None
        self._background: tuple[Mapping[LinkId, float], Floats] = ({}, np.zeros(0))
        self._figures: LinkFigures | None = None

    def counted(self, rows: Rows) -> None:
        """There are new samples of these."""
        self._counted.append(rows)
        if len(self._links.row_of) > len(self._rates_bps):
            self._rates_bps = np.append(self._rates_bps, np.zeros(len(self._links.row_of) - len(self._rates_bps)))
            self._listed = None

    def renumbered(self) -> None:
        """Rows have other numbers."""
        self._listed, self._rates_bps = None, np.zeros(len(self._links.row_of))
        self._counted = [np.arange(len(self._links.row_of))]

    def of(self, fabric: Fabric, background_bps: Mapping[LinkId, float]) -> LinkFigures:
        """Of every link of the fabric, host links too. ``background_bps``: where there is any; another object whenever
        it changes. The same object as before when nothing has changed."""
        listed = self._listed
        if listed is None or listed.fabric is not fabric:
            listed = self._listed = self._list(fabric)
        elif self._figures and not self._counted and self._background[0] is background_bps:
            return self._figures
        if self._background[0] is not background_bps or len(self._background[1]) != len(listed.rows):
            self._background = background_bps, _spread(background_bps, listed.place)
        if self._counted:
            rows = np.unique(np.concatenate(self._counted))
            self._counted = []
            self._rates_bps[rows] = self._links.recent_bps(rows, self._window_s)
        known = listed.rows >= 0
        totals, rates = np.zeros(len(known), np.uint64), np.zeros(len(known))
        totals[known] = self._links.last(listed.rows[known])
        rates[known] = self._rates_bps[listed.rows[known]]
        self._figures = LinkFigures(listed.place, totals, rates, self._background[1])
        return self._figures

    def _list(self, fabric: Fabric) -> _Listed:
        links = [*fabric.links]
        for host in fabric.hosts.values():
            links += (host.uplink, host.downlink)
        place = {link: number for number, link in enumerate(dict.fromkeys(links))}
        self._background = {}, np.zeros(0)
        return _Listed(fabric, place, self._links.rows_of(place))


def _spread(values: Mapping[LinkId, float], place: Mapping[LinkId, int]) -> Floats:
    spread = np.zeros(len(place))
    for link, value in values.items():
        if link in place:
            spread[place[link]] = value
    return spread
