"""How busy each link is, and with what: counters in, rates and background out.

*Background* of a link is what its port sent beyond the announced flows that may have used it. A job's own bytes are
never taken for background, at the price of underestimating it:

- a flow whose path is not known (ECMP), or changed within the window, counts in full on every link it may have used;
- a flow that is split is counted by a rule per subflow, each on its own path, and one for the rest;
- port and flow counters come from different switches at different times, so both are interpolated to common instants;
- OVS collects flow counters from its datapath twice a second, so they lag: the window is cut into ``PARTS`` and only
  what is there in every part counts, beyond a small share of the capacity;
- while a flow has no counters for the whole window, the links that it may use have no background.

Thousands of links are evaluated together, in arrays. Pure: monotonic times come with the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Set
from typing import NamedTuple

import numpy as np

from controller.fabric.counter_samples import Floats, LinkFigures, RecentFigures, Rows, Samples
from controller.fabric.topology import Fabric, LinkId, PortRef
from controller.memo import Memo

PARTS = 3
SMOOTHING = 0.5


class Counted(NamedTuple):
    """What one rule counts: a flow, by source and destination address, or a part of its packets."""

    src_ip: str
    dst_ip: str
    part: Hashable = None


Uses = Mapping[Counted, tuple[frozenset[LinkId], ...]]
"""Per rule that counts the links that its packets use, at most: sets of them, of which many rules may share one."""


class _Users(NamedTuple):
    """Which flow may have used which link: a pair of rows of samples each, by link. ``unknown``: rows of links that a
    flow without samples may have used."""

    links: Rows
    flows: Rows
    unknown: Rows


class LinkLoad:
    """Counters of all links and announced flows over a sliding window of ``window_s`` seconds. ``background``: bit/s of
    every link that has any, another object whenever it was measured anew, which it was at ``measured_at``."""

    def __init__(self, window_s: float, noise_fraction: float, now: float = 0.0) -> None:
        self._window_s = window_s
        self._noise_fraction = noise_fraction
        self._links: Samples[LinkId] = Samples(2 * window_s)
        self._flows: Samples[Counted] = Samples(2 * window_s)
        self._recent = RecentFigures(self._links, window_s)
        self._announced: tuple[float, float, Callable[[], Uses]] | None = None
        self._uses: tuple[tuple[float, Uses], ...] = ()
        self._users = Memo(self._find_users)
        self._sized = Memo(_sized)
        self._rows = Memo(lambda links, _numbering: self._links.rows_of(links))
        self._keep_links = Memo(self._keep_links_at)
        self._smoothed: tuple[tuple[LinkId, ...], Floats] = (), np.zeros(0)
        self.background: Mapping[LinkId, float] = {}
        self.measured_at = now

    def count_links(self, at: float, totals: Mapping[LinkId, int]) -> None:
        if totals:
            self._recent.counted(self._links.add(at, totals))

    def count_flows(self, at: float, totals: Mapping[Counted, int]) -> None:
        if totals:
            self._flows.add(at, totals)

    def forget(self, ports: Set[PortRef]) -> None:
        """Keep only the links at these ports."""
        self._keep_links(ports, self._links.numbering)

    def _keep_links_at(self, ports: Set[PortRef], _numbering: tuple[int, int]) -> None:
        if not all(link.at in ports for link in self._links.row_of):
            self._links.keep(lambda link: link.at in ports)
            self._recent.renumbered()
            known, bps = self._smoothed
            kept = np.array([link.at in ports for link in known], bool)
            self._smoothed = tuple(link for link in known if link.at in ports), bps[kept]
            self.background = {link: bps for link, bps in self.background.items() if link.at in ports}

    def routes_changed(self, now: float, uses: Callable[[], Uses]) -> None:
        """From ``now`` on there is a rule for each of these, whose packets use (at most) these links. What is not among
        them is forgotten with the window. ``uses`` is called with the next ``update``, if at all: it must not hold up
        what the change is about, and what lasts for less than a part of the window is no background of any link."""
        if self._announced and now >= self._announced[0] + self._window_s / PARTS:
            self._take_announced()
        since = self._announced[0] if self._announced else now
        self._announced = since, now, uses

    def _take_announced(self) -> None:
        if self._announced is None:
            return
        first, since, work_out = self._announced
        self._announced = None
        before, uses = self._uses[-1][1] if self._uses else {}, work_out()
        if self._uses and before == uses:
            return
        self._uses = (*self._uses, (since, uses))
        flows = {what[:2] for what in before}
        for what in uses.keys() - before.keys():
            if what[:2] in flows:
                # A flow is split anew: another rule has counted it until then, this one started at nothing.
                self._flows.begin_at_zero(what, first - 2 * self._window_s, first)

    def bytes_total(self, link: LinkId) -> int:
        row = self._links.row_of.get(link)
        return 0 if row is None else int(self._links.last(np.array([row]))[0])

    def rate_bps(self, link: LinkId) -> float:
        """Over the window, or as much of it as there are samples; 0 before two."""
        row = self._links.row_of.get(link)
        return 0.0 if row is None else float(self._links.recent_bps(np.array([row]), self._window_s)[0])

    def figures(self, fabric: Fabric) -> LinkFigures:
        """Of every link of the fabric, host links too. The same object while nothing new was counted."""
        return self._recent.of(fabric, self.background)

    # ---- background

    def update(self, now: float, capacity_bps: Mapping[LinkId, float]) -> Mapping[LinkId, float]:
        """Take the windows' rates into the smoothed background; returns it for every link that has any.
        ``capacity_bps``: another object whenever it changes."""
        self.measured_at = now
        self._take_announced()
        self._forget_flows(now)
        links, bps = self._sized(capacity_bps)
        measured = self._lasting_excess_bps(self._rows(links, self._links.numbering), self._noise_fraction * bps)
        before = self._smoothed_of(links)
        mixed = SMOOTHING * measured + (1 - SMOOTHING) * np.where(np.isnan(before), measured, before)
        smoothed = np.where(mixed > 0.01 * bps, mixed, 0.0)
        self._smoothed = links, smoothed
        self.background = {links[number]: float(smoothed[number]) for number in np.flatnonzero(smoothed)}
        return self.background

    def _smoothed_of(self, links: tuple[LinkId, ...]) -> Floats:
        """NaN for links that have no smoothed background yet."""
        known, bps = self._smoothed
        if known is links:
            return bps
        of = dict(zip(known, bps.tolist(), strict=True))
        return np.array([of.get(link, np.nan) for link in links])

    def _forget_flows(self, now: float) -> None:
        """Those that were used last before the window."""
        oldest = now - 2 * self._window_s
        kept = self._uses
        while len(kept) > 1 and kept[1][0] <= oldest:
            kept = kept[1:]
        if len(kept) < len(self._uses):
            self._uses = kept
            known = {what for _, uses in kept for what in uses}
            self._flows.keep(known.__contains__)

    def _lasting_excess_bps(self, rows: Rows, noise_bps: Floats) -> Floats:
        """Per link what it carried in every part of the window beyond all of its possible users; 0 when that is not
        known for one of them, and when it is noise. Only links that carry more than noise are evaluated."""
        excess = np.zeros(len(rows))
        place = np.full(len(self._links.row_of), -1)
        place[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
        users = self._users(self._uses, self._links.numbering, self._flows.numbering)
        pairs = place[users.links]
        listed = pairs >= 0
        pairs, flows = pairs[listed], users.flows[listed]
        end = np.full(len(rows), -np.inf)
        end[rows >= 0] = self._links.last_at(rows[rows >= 0])
        np.minimum.at(end, pairs, self._flows.last_at(flows))
        noise_bps = noise_bps.copy()
        unknown = place[users.unknown]
        noise_bps[unknown[unknown >= 0]] = np.inf

        left = np.flatnonzero(rows >= 0)
        left = left[self._links.most_bps(rows[left], self._window_s) > noise_bps[left]]
        links_bps = self._links.rates_bps(rows[left], self._instants(end[left]))
        loud = links_bps.min(axis=1) > noise_bps[left]  # not where a rate is NaN
        left, links_bps = left[loud], links_bps[loud]
        number = np.full(len(rows), -1)
        number[left] = np.arange(len(left))
        on = number[pairs] >= 0
        pairs, flows = pairs[on], flows[on]
        # Links of one switch were read together: most pairs of a flow ask for the same instants.
        ends, which_end = np.unique(end[pairs], return_inverse=True)
        asked, which = np.unique(flows * len(ends) + which_end, return_inverse=True)
        flows_bps = self._flows.rates_bps(asked // max(len(ends), 1), self._instants(ends[asked % max(len(ends), 1)]))
        for part in range(PARTS):
            links_bps[:, part] -= np.bincount(number[pairs], flows_bps[which, part], len(left))
        lasting = links_bps.min(axis=1)
        excess[left] = np.where(lasting > noise_bps[left], lasting, 0.0)  # nor where a flow's rate is NaN
        return excess

    def _instants(self, end: Floats) -> Floats:
        """Where the parts of the windows that end there begin and end."""
        return end[:, None] - self._window_s * np.arange(PARTS, -1, -1) / PARTS

    def _find_users(
        self, uses_since: tuple[tuple[float, Uses], ...], _links: tuple[int, int], _flows: tuple[int, int]
    ) -> _Users:
        """What may have used which link within the window."""
        by_flow: dict[Counted, tuple[frozenset[LinkId], ...]] = {}
        twice = False
        for _, uses in uses_since:
            for what, sets in uses.items():
                known = by_flow.setdefault(what, sets)
                if known is not sets and known != sets:
                    by_flow[what] = (*known, *(links for links in sets if links not in known))
                    twice = True
        rows_of: dict[frozenset[LinkId], Rows] = {}
        links, flows, unknown = [], [], []
        for what, sets in by_flow.items():
            flow = self._flows.row_of.get(what)
            for some in sets:
                rows = rows_of.get(some)
                if rows is None:
                    rows = self._links.rows_of(some)
                    rows = rows_of[some] = rows[rows >= 0]
                if flow is None:
                    unknown.append(rows)
                else:
                    links.append(rows)
                    flows.append(flow)
        sizes = np.fromiter(map(len, links), np.int64, len(links))
        pairs = np.stack([_joined(links), np.repeat(np.array(flows, np.int64), sizes)])
        if twice:
            pairs = np.unique(pairs, axis=1)
        return _Users(pairs[0], pairs[1], _joined(unknown))


def _sized(capacity_bps: Mapping[LinkId, float]) -> tuple[tuple[LinkId, ...], Floats]:
    return tuple(capacity_bps), np.fromiter(capacity_bps.values(), np.float64, len(capacity_bps))


def _joined(rows: list[Rows]) -> Rows:
    return np.concatenate(rows) if rows else np.zeros(0, np.int64)
