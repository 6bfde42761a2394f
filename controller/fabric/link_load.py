"""How busy each link is, and with what: counters in, rates and background out.

*Background* of a link is what its port sent beyond the announced flows that may have used it in the same window. A flow
whose path is not known (ECMP), or changed within the window, counts in full on every link it may have used: a job's
own bytes are never taken for background, at the price of underestimating background meanwhile. Flow counters lag port
counters by up to half a second (OVS collects them from its datapath twice a second), so a small share of the capacity
is treated as noise. Pure: monotonic times come with the samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from controller.fabric.topology import LinkId, PortRef

SMOOTHING = 0.5


@dataclass(slots=True)
class _Series:
    """Samples (time, cumulative bytes) that span the window."""

    samples: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, at: float, total: int, window_s: float) -> None:
        if self.samples and (total < self.samples[-1][1] or at <= self.samples[-1][0]):
            self.samples.clear()  # the counter was reset, or the clock of another switch incarnation
        self.samples.append((at, total))
        while len(self.samples) > 2 and self.samples[1][0] <= at - window_s:
            self.samples.popleft()

    def rate_bps(self) -> float | None:
        if len(self.samples) < 2:
            return None
        (start, first), (end, last) = self.samples[0], self.samples[-1]
        return 8 * (last - first) / (end - start)


Pair = tuple[str, str]
"""Source and destination address of a flow."""


class LinkLoad:
    """Counters of all links and announced flows over a sliding window of ``window_s`` seconds."""

    def __init__(self, window_s: float, noise_fraction: float) -> None:
        self._window_s = window_s
        self._noise_fraction = noise_fraction
        self._links: dict[LinkId, _Series] = {}
        self._flows: dict[Pair, _Series] = {}
        self._uses: deque[tuple[float, Mapping[Pair, frozenset[LinkId]]]] = deque()
        self._background: dict[LinkId, float] = {}

    def count_links(self, at: float, totals: Mapping[LinkId, int]) -> None:
        for link, total in totals.items():
            self._links.setdefault(link, _Series()).add(at, total, self._window_s)

    def count_flows(self, at: float, totals: Mapping[Pair, int]) -> None:
        for pair, total in totals.items():
            self._flows.setdefault(pair, _Series()).add(at, total, self._window_s)

    def forget(self, ports: Set[PortRef], pairs: Set[Pair]) -> None:
        """Keep only the links at these ports and these flows."""
        self._links = {link: series for link, series in self._links.items() if link.at in ports}
        self._flows = {pair: series for pair, series in self._flows.items() if pair in pairs}
        self._background = {link: bps for link, bps in self._background.items() if link.at in ports}

    def routes_changed(self, now: float, uses: Mapping[Pair, frozenset[LinkId]]) -> None:
        """From ``now`` on each flow uses (at most) these links."""
        self._uses.append((now, uses))

    def bytes_total(self, link: LinkId) -> int:
        series = self._links.get(link)
        return series.samples[-1][1] if series and series.samples else 0

    def rate_bps(self, link: LinkId) -> float:
        """0 before two samples."""
        series = self._links.get(link)
        return (series.rate_bps() or 0.0) if series else 0.0

    def background_bps(self, link: LinkId) -> float:
        return self._background.get(link, 0.0)

    def update(self, now: float, capacity_bps: Mapping[LinkId, float]) -> Mapping[LinkId, float]:
        """Take the windows' rates into the smoothed background; returns it for every link that has any."""
        announced = self._announced_bps(now)
        for link, capacity in capacity_bps.items():
            excess = self.rate_bps(link) - announced.get(link, 0.0)
            measured = excess if excess > self._noise_fraction * capacity else 0.0
            before = self._background.get(link, measured)
            smoothed = SMOOTHING * measured + (1 - SMOOTHING) * before
            self._background[link] = smoothed if smoothed > 0.01 * capacity else 0.0
        return {link: bps for link, bps in self._background.items() if bps}

    def _announced_bps(self, now: float) -> dict[LinkId, float]:
        """Per link the rates of all flows that may have used it within the window."""
        while len(self._uses) > 1 and self._uses[1][0] <= now - self._window_s:
            self._uses.popleft()
        may_use: dict[Pair, set[LinkId]] = {}
        for _, uses in self._uses:
            for pair, links in uses.items():
                may_use.setdefault(pair, set()).update(links)
        announced: dict[LinkId, float] = {}
        for pair, used in may_use.items():
            series = self._flows.get(pair)
            rate = series.rate_bps() if series else None
            for link in used if rate else ():
                announced[link] = announced.get(link, 0.0) + (rate or 0.0)
        return announced
