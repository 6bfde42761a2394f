"""How busy each link is, and with what: counters in, rates and background out.

*Background* of a link is what its port sent beyond the announced flows that may have used it. A job's own bytes are
never taken for background, at the price of underestimating it:

- a flow whose path is not known (ECMP), or changed within the window, counts in full on every link it may have used;
- a flow that is split is counted by a rule per subflow, each on its own path, and one for the rest;
- port and flow counters come from different switches at different times, so both are interpolated to common instants;
- OVS collects flow counters from its datapath twice a second, so they lag: the window is cut into ``PARTS`` and only
  what is there in every part counts, beyond a small share of the capacity;
- while a flow has no counters for the whole window, the links that it may use have no background.

Pure: monotonic times come with the samples.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from controller.fabric.topology import LinkId, PortRef

PARTS = 3
SMOOTHING = 0.5


class Counted(NamedTuple):
    """What one rule counts: a flow, by source and destination address, or a part of its packets."""

    src_ip: str
    dst_ip: str
    part: Hashable = None


@dataclass(slots=True)
class _Series:
    """Samples (time, cumulative bytes), a little more than a window of them."""

    times: list[float] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)

    def add(self, at: float, total: int, window_s: float) -> None:
        if self.times and (total < self.totals[-1] or at <= self.times[-1]):
            self.times.clear()  # the counter was reset, or the clock of another switch incarnation
            self.totals.clear()
        self.times.append(at)
        self.totals.append(total)
        while len(self.times) > 2 and self.times[1] <= at - 2 * window_s:
            del self.times[0], self.totals[0]

    @property
    def idle(self) -> bool:
        """There are samples, and nothing was counted between them."""
        return bool(self.times) and self.totals[0] == self.totals[-1]

    def total_at(self, at: float) -> float | None:
        """Interpolated; None outside the samples."""
        if not self.times or not self.times[0] <= at <= self.times[-1]:
            return None
        right = bisect_right(self.times, at)
        if right == len(self.times):
            return float(self.totals[-1])
        (start, end), (low, high) = self.times[right - 1 : right + 1], self.totals[right - 1 : right + 1]
        return low + (high - low) * (at - start) / (end - start)

    def rates_bps(self, instants: list[float]) -> list[float] | None:
        """Between consecutive instants; None when the samples do not cover them."""
        if self.idle and self.times[0] <= instants[0] and instants[-1] <= self.times[-1]:
            return [0.0] * (len(instants) - 1)
        totals = [self.total_at(at) for at in instants]
        known = [total for total in totals if total is not None]
        if len(known) < len(instants):
            return None
        steps = zip(pairwise(instants), pairwise(known), strict=True)
        return [8 * (high - low) / (end - start) for (start, end), (low, high) in steps]


class LinkLoad:
    """Counters of all links and announced flows over a sliding window of ``window_s`` seconds."""

    def __init__(self, window_s: float, noise_fraction: float) -> None:
        self._window_s = window_s
        self._noise_fraction = noise_fraction
        self._links: dict[LinkId, _Series] = {}
        self._flows: dict[Counted, _Series] = {}
        self._uses: deque[tuple[float, Mapping[Counted, frozenset[LinkId]]]] = deque()
        self._background: dict[LinkId, float] = {}

    def count_links(self, at: float, totals: Mapping[LinkId, int]) -> None:
        for link, total in totals.items():
            self._links.setdefault(link, _Series()).add(at, total, self._window_s)

    def count_flows(self, at: float, totals: Mapping[Counted, int]) -> None:
        for what, total in totals.items():
            self._flows.setdefault(what, _Series()).add(at, total, self._window_s)

    def forget(self, ports: Set[PortRef]) -> None:
        """Keep only the links at these ports."""
        self._links = {link: series for link, series in self._links.items() if link.at in ports}
        self._background = {link: bps for link, bps in self._background.items() if link.at in ports}

    def routes_changed(self, now: float, uses: Mapping[Counted, frozenset[LinkId]]) -> None:
        """From ``now`` on there is a rule for each of these, whose packets use (at most) these links. What is not among
        them is forgotten with the window."""
        before = self._uses[-1][1] if self._uses else {}
        if self._uses and before == uses:
            return
        self._uses.append((now, uses))
        flows = {what[:2] for what in before}
        for what in uses.keys() - before.keys():
            if what[:2] in flows and what not in self._flows:
                # A flow is split anew: another rule has counted it until now, this one starts at nothing.
                self._flows[what] = _Series([now - 2 * self._window_s, now], [0, 0])

    def bytes_total(self, link: LinkId) -> int:
        series = self._links.get(link)
        return series.totals[-1] if series and series.totals else 0

    def rate_bps(self, link: LinkId) -> float:
        """Over the window, or as much of it as there are samples; 0 before two."""
        series = self._links.get(link)
        if series is None or len(series.times) < 2:
            return 0.0
        end = series.times[-1]
        rates = series.rates_bps([max(series.times[0], end - self._window_s), end])
        return rates[0] if rates else 0.0

    def background_bps(self, link: LinkId) -> float:
        return self._background.get(link, 0.0)

    def update(self, now: float, capacity_bps: Mapping[LinkId, float]) -> Mapping[LinkId, float]:
        """Take the windows' rates into the smoothed background; returns it for every link that has any."""
        users = self._users(now)
        self._background = {link: bps for link, bps in self._background.items() if link in capacity_bps}
        for link, capacity in capacity_bps.items():
            excess = self._lasting_excess_bps(link, users.get(link, ()))
            measured = excess if excess > self._noise_fraction * capacity else 0.0
            before = self._background.get(link, measured)
            smoothed = SMOOTHING * measured + (1 - SMOOTHING) * before
            self._background[link] = smoothed if smoothed > 0.01 * capacity else 0.0
        return {link: bps for link, bps in self._background.items() if bps}

    def _users(self, now: float) -> dict[LinkId, set[Counted]]:
        """Per link what may have used it within the window."""
        while len(self._uses) > 1 and self._uses[1][0] <= now - 2 * self._window_s:
            self._uses.popleft()
            known = {what for _, uses in self._uses for what in uses}
            self._flows = {what: series for what, series in self._flows.items() if what in known}
        users: dict[LinkId, set[Counted]] = {}
        for _, uses in self._uses:
            for what, links in uses.items():
                for link in links:
                    users.setdefault(link, set()).add(what)
        return users

    def _lasting_excess_bps(self, link: LinkId, users: Iterable[Counted]) -> float:
        """What the link carried in every part of the window beyond all of its possible users; 0 when that is not known
        for one of them."""
        series = [self._links.get(link), *(self._flows.get(what) for what in users)]
        known = [one for one in series if one is not None and one.times]
        if len(known) < len(series):
            return 0.0
        end = min(one.times[-1] for one in known)
        instants = [end - self._window_s * (PARTS - part) / PARTS for part in range(PARTS + 1)]
        rates = [one.rates_bps(instants) for one in known]
        covered = [rate for rate in rates if rate is not None]
        if len(covered) < len(rates):
            return 0.0
        link_bps, *flows_bps = covered
        return min(link_bps[part] - sum(flow[part] for flow in flows_bps) for part in range(PARTS))
