"""How busy each link is, and with what: counters in, rates and background out.

*Background* of a link is what its port sent beyond the announced flows that may have used it. A job's own bytes are
never taken for background, at the price of underestimating it:

- a flow whose path is not known (ECMP), or changed within the window, counts in full on every link it may have used;
- a flow that is split is counted by a rule per subflow, each on its own path, and one for the rest;
- port and flow counters come from different switches at different times, so both are interpolated to common instants;
- OVS collects flow counters from its datapath twice a second, so they lag: the window is cut into ``PARTS`` and only
  what is there in every part counts, beyond a small share of the capacity;
- while a flow has no counters for the whole window, the links that it may use have no background.

Thousands of links are worked out together, in arrays whose indices are made anew only when the fabric or the routes
change. Pure: monotonic times come with the samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Set
from typing import NamedTuple

import numpy as np

from controller.fabric.link_figures import LinkFigures, RecentFigures
from controller.fabric.samples import Floats, Rows, Samples
from controller.fabric.topology import Fabric, LinkId, PortRef

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


class _Sized(NamedTuple):
    """Links by capacity, the background that each has had so far (NaN: none yet), and their rows of samples as long as
    there were so many."""

    capacity_bps: Mapping[LinkId, float]
    links: tuple[LinkId, ...]
    bps: Floats
    smoothed: Floats
    rows: Rows
    known: int


class LinkLoad:
    """Counters of all links and announced flows over a sliding window of ``window_s`` seconds."""

    def __init__(self, window_s: float, noise_fraction: float) -> None:
        self._window_s = window_s
        self._noise_fraction = noise_fraction
        self._links: Samples[LinkId] = Samples(2 * window_s)
        self._flows: Samples[Counted] = Samples(2 * window_s)
        self._recent = RecentFigures(self._links, window_s)
        self._announced: tuple[float, float, Callable[[], Uses]] | None = None
        self._uses: deque[tuple[float, Uses]] = deque()
        self._users: _Users | None = None
        self._sized: _Sized | None = None
        self._background: Mapping[LinkId, float] = {}

    def count_links(self, at: float, totals: Mapping[LinkId, int]) -> None:
        if totals:
            before = len(self._links.row_of)
            self._recent.counted(self._links.add(at, totals))
            if len(self._links.row_of) > before:
                self._users = None

    def count_flows(self, at: float, totals: Mapping[Counted, int]) -> None:
        if totals:
            before = len(self._flows.row_of)
            self._flows.add(at, totals)
            if len(self._flows.row_of) > before:
                self._users = None

    def forget(self, ports: Set[PortRef]) -> None:
        """Keep only the links at these ports."""
        if all(link.at in ports for link in self._links.row_of):
            return
        self._links.keep(lambda link: link.at in ports)
        self._recent.renumbered()
        self._background = {link: bps for link, bps in self._background.items() if link.at in ports}
        if self._sized:
            gone = [link.at not in ports for link in self._sized.links]
            self._sized.smoothed[gone] = np.nan
            self._sized = self._sized._replace(known=-1)
        self._users = None

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
        self._uses.append((since, uses))
        self._users = None
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

    def background_bps(self, link: LinkId) -> float:
        return self._background.get(link, 0.0)

    def figures(self, fabric: Fabric) -> LinkFigures:
        """Of every link of the fabric, host links too. The same object while nothing new was counted."""
        return self._recent.of(fabric, self._background)

    # ---- background

    def update(self, now: float, capacity_bps: Mapping[LinkId, float]) -> Mapping[LinkId, float]:
        """Take the windows' rates into the smoothed background; returns it for every link that has any.
        ``capacity_bps``: another object whenever it changes."""
        self._take_announced()
        self._forget_flows(now)
        sized = self._sized = self._size(capacity_bps)
        measured = self._lasting_excess_bps(sized.rows, self._noise_fraction * sized.bps)
        before = np.where(np.isnan(sized.smoothed), measured, sized.smoothed)
        mixed = SMOOTHING * measured + (1 - SMOOTHING) * before
        sized.smoothed[:] = np.where(mixed > 0.01 * sized.bps, mixed, 0.0)
        some = np.flatnonzero(sized.smoothed)
        self._background = {
            sized.links[at]: bps for at, bps in zip(some.tolist(), sized.smoothed[some].tolist(), strict=True)
        }
        return self._background

    def _size(self, capacity_bps: Mapping[LinkId, float]) -> _Sized:
        sized, known = self._sized, len(self._links.row_of)
        if sized and sized.capacity_bps is capacity_bps:
            return (
                sized if sized.known == known else sized._replace(rows=self._links.rows_of(capacity_bps), known=known)
            )
        before = dict(zip(sized.links, sized.smoothed.tolist(), strict=True)) if sized else {}
        return _Sized(
            capacity_bps,
            tuple(capacity_bps),
            np.fromiter(capacity_bps.values(), np.float64, len(capacity_bps)),
            np.array([before.get(link, np.nan) for link in capacity_bps]),
            self._links.rows_of(capacity_bps),
            known,
        )

    def _forget_flows(self, now: float) -> None:
        """Whose last use the window has passed."""
        if len(self._uses) < 2 or self._uses[1][0] > now - 2 * self._window_s:
            return
        while len(self._uses) > 1 and self._uses[1][0] <= now - 2 * self._window_s:
            self._uses.popleft()
        known = {what for _, uses in self._uses for what in uses}
        self._flows.keep(known.__contains__)
        self._users = None

    def _lasting_excess_bps(self, rows: Rows, noise_bps: Floats) -> Floats:
        """Per link what it carried in every part of the window beyond all of its possible users; 0 when that is not
        known for one of them, and when it is noise. Only links that carry more than noise at all are worked out."""
        excess = np.zeros(len(rows))
        place = np.full(len(self._links.row_of), -1)
        place[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
        users = self._users = self._users or self._find_users()
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

    def _find_users(self) -> _Users:
        """What may have used which link within the window."""
        by_flow: dict[Counted, tuple[frozenset[LinkId], ...]] = {}
        twice = False
        for _, uses in self._uses:
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


def _joined(rows: list[Rows]) -> Rows:
    return np.concatenate(rows) if rows else np.zeros(0, np.int64)
