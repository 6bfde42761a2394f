"""How busy each link is, and with what: counters in, rates out, and what links carry beyond counted flows.

That is what a link's port sent beyond the announced flows that may have used it. ``background`` takes off what flows
may be of it that nothing has counted yet. A job's own bytes are never taken for background, at the price of
underestimating it:

- a flow whose path is not known (ECMP), or changed within the window, counts in full on every link it may have used;
- a flow that is split is counted by a rule per subflow, each on its own path, and one for the rest;
- port and flow counters come from different switches at different times, so both are interpolated to common instants;
- OVS collects flow counters from its datapath twice a second, so they lag: the window is cut into ``PARTS`` and only
  what is there in every part counts, beyond a small share of the capacity;
- a flow is counted when its counters reach back a whole window. Then the links that it may use are measured anew:
  what was smoothed before held its bytes.

Thousands of links are evaluated together, in arrays. Pure: monotonic times come with the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.fabric.counter_samples import Floats, LinkFigures, RecentFigures, Rows, Samples, known
from controller.fabric.recent_uses import NO_USES, Counted, Pair, RecentUses, Users, Uses, UsesOf
from controller.fabric.topology import Fabric, LinkId, PortRef
from controller.memo import Memo

PARTS = 3
SMOOTHING = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What ``update`` has found. Arrays hold a value per link, at its ``place``, in bit/s. ``beyond_bps``: what lasts
    beyond the flows that are counted. ``sent_bps``: of the links of hosts the mean beyond these flows, lasting or not;
    infinite where it is not known. ``noise_bps``: less than this is none. ``counted``: flows whose bytes are known for
    the whole window. ``reached``: of which links the samples reach back a whole window."""

    place: Mapping[LinkId, int]
    beyond_bps: Floats
    sent_bps: Floats
    noise_bps: Floats
    counted: frozenset[Pair]
    reached: NDArray[np.bool_]


class _Sized(NamedTuple):
    """``place``: of each link in the arrays. ``at_host``: whether a host is at one end."""

    place: Mapping[LinkId, int]
    bps: Floats
    at_host: NDArray[np.bool_]


class LinkLoad:
    """Counters of all links and announced flows over a sliding window of ``window_s`` seconds. ``measured``: another
    object whenever it was measured anew, which it was at ``measured_at``. ``background``: bit/s of every link that
    carries more than the flows that are counted. ``noise_fraction``: of a link's capacity, less than this is none; it
    may change at any time."""

    def __init__(self, window_s: float, noise_fraction: float, now: float = 0.0) -> None:
        self._window_s = window_s
        self.noise_fraction = noise_fraction
        self._links: Samples[LinkId] = Samples(2 * window_s)
        self._flows: Samples[Counted] = Samples(2 * window_s)
        self._recent = RecentFigures(self._links, window_s)
        self._announced: tuple[float, float, Callable[[], UsesOf]] | None = None
        self._uses = RecentUses(2 * window_s)
        self._counted = Memo(self._counted_now)
        self._sized = Memo(_sized)
        self._rows = Memo[Mapping[LinkId, int], int, Rows](lambda links, _numbering: self._links.rows_of(links))
        self._keep_links = Memo(self._keep_links_at)
        self._reached = Memo(_reached)
        self.measured = Measured({}, np.zeros(0), np.zeros(0), np.zeros(0), frozenset(), np.zeros(0, bool))
        self.measured_at = now

    @property
    def beyond(self) -> bool:
        """Some link carries more than the flows that are counted."""
        return bool(self.measured.beyond_bps.any())

    @property
    def background(self) -> Mapping[LinkId, float]:
        return in_use(self.measured, self.measured.beyond_bps)

    def count_links(self, at: float, totals: Mapping[LinkId, int]) -> None:
        if totals:
            self._recent.counted(self._links.add(at, totals))

    def count_flows(self, at: float, totals: Mapping[Counted, int]) -> None:
        if totals:
            self._flows.add(at, totals)

    def forget(self, ports: Set[PortRef]) -> None:
        """Keep only the links at these ports."""
        self._keep_links(ports, self._links.numbering)

    def _keep_links_at(self, ports: Set[PortRef], _numbering: int) -> None:
        if not all(link.at in ports for link in self._links.row_of):
            self._links.keep(lambda link: link.at in ports)
            self._recent.renumbered()
            m = self.measured
            kept = [link for link in m.place if link.at in ports]
            rows = np.array([m.place[link] for link in kept], np.int64)
            place = {link: number for number, link in enumerate(kept)}
            of_kept = (m.beyond_bps[rows], m.sent_bps[rows], m.noise_bps[rows])
            self.measured = Measured(place, *of_kept, m.counted, m.reached[rows])

    def routes_changed(self, now: float, uses: Callable[[], UsesOf]) -> None:
        """From ``now`` on there is a rule for each of these, whose packets use (at most) these links. What is not among
        them is forgotten with the window. ``uses`` is called with the next ``update``, if at all: it must not hold up
        what the change is about, and what lasts for less than a part of the window is no background of any link."""
        if self._announced and now >= self._announced[0] + self._window_s / PARTS:
            self.take_announced()
        since = self._announced[0] if self._announced else now
        self._announced = since, now, uses

    def take_announced(self) -> None:
        """Work out what the rules of now may use, if that was not done since they changed."""
        if self._announced is None:
            return
        first, since, work_out = self._announced
        self._announced = None
        appeared = self._uses.change(since, work_out())
        self._flows.begin_anew(appeared.again)  # what was counted before does not reach on
        for what in appeared.anew:
            # A flow is split anew: another rule has counted it until then, this one started at nothing.
            self._flows.begin_at_zero(what, first - 2 * self._window_s, first)

    def bytes_total(self, link: LinkId) -> int | None:
        """None before the first sample."""
        row = self._links.row_of.get(link)
        return None if row is None else int(self._links.last(np.array([row]))[0])

    def rate_bps(self, link: LinkId) -> float | None:
        """Over the window, or as much of it as there are samples; None before two."""
        row = self._links.row_of.get(link)
        return None if row is None else known(self._links.recent_bps(np.array([row]), self._window_s)[0])

    def counted_since(self, links: Collection[LinkId], at: float) -> tuple[float, float] | None:
        """What the busiest of these has carried between its first and last sample after ``at``: seconds, at least of
        all, and bytes, at most of all. None while one has no two samples."""
        rows = self._links.rows_of(links)
        return None if (rows < 0).any() else self._links.since(rows, at)

    def figures(self, fabric: Fabric, background_bps: Mapping[LinkId, float]) -> LinkFigures:
        """Of every link of the fabric that was counted, host links too. ``background_bps``: where there is any; another
        object whenever it changes. The same object while nothing new was counted."""
        return self._recent.of(fabric, background_bps, self._reached(self.measured))

    # ---- what is carried beyond counted flows

    def update(
        self, now: float, capacity_bps: Mapping[LinkId, float], uncounted: Callable[[], Uses] = lambda: NO_USES
    ) -> None:
        """Take the windows' rates into what is ``measured``, smoothed. ``capacity_bps``: another object whenever it
        changes. ``uncounted``: gives the announced flows that were not counted so far, with all links that they may
        use; it is called when some flow is counted."""
        self.measured_at = now
        self.take_announced()
        self._flows.forget(self._uses.forget(now))
        sized = self._sized(capacity_bps)
        noise_bps = self.noise_fraction * sized.bps
        lasting, sent, counted, reached = self._excess_bps(now, sized, noise_bps)
        anew = np.zeros(len(lasting), bool)
        announced = uncounted() if counted else NO_USES
        for links in {links for what, sets in announced.items() if what[:2] in counted for links in sets}:
            anew[[sized.place[link] for link in links if link in sized.place]] = True
        before, sent_before = self._measured_of(sized.place)
        mixed = _mixed(lasting, before, anew)
        # What hosts send more is known at once: smoothing must not turn it into background of the links that it takes.
        sent = np.maximum(sent, _mixed(sent, sent_before, anew))
        beyond = np.where(mixed > 0.01 * sized.bps, mixed, 0.0)
        self.measured = Measured(sized.place, beyond, sent, noise_bps, counted, reached)

    def _measured_of(self, place: Mapping[LinkId, int]) -> tuple[Floats, Floats]:
        """Beyond counted flows, and sent by hosts; infinite for links of which nothing is known yet."""
        known = self.measured
        if known.place is place:
            return known.beyond_bps, known.sent_bps
        rows = np.array([known.place.get(link, -1) for link in place], np.int64)
        return np.append(known.beyond_bps, np.inf)[rows], np.append(known.sent_bps, np.inf)[rows]

    def _excess_bps(
        self, now: float, sized: _Sized, noise_bps: Floats
    ) -> tuple[Floats, Floats, frozenset[Pair], NDArray[np.bool_]]:
        """Per link what it carried in every part of the window beyond all of its possible users that are counted; 0
        when that is not known, and when it is noise. Per link at a host the mean beyond them. Which are counted. And of
        which links the samples reach back a whole window.
        Only links that carry more than noise are evaluated; of the others, and of
        those that flows use whose rules are gone, all that they carry is taken for sent."""
        rows = self._rows(sized.place, self._links.numbering)
        lasting, carried = np.zeros(len(rows)), np.append(np.nan_to_num(self._recent.rates_bps()), np.inf)[rows]
        sent = carried.copy()
        place = np.full(self._links.rows, -1)
        place[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
        users = self._uses.users(self._links, self._flows)
        pairs = place[users.links]
        listed = (pairs >= 0) & self._flows.read(users.flows)
        pairs, flows = all_pairs, all_flows = pairs[listed], users.flows[listed]
        end = np.full(len(rows), -np.inf)
        end[rows >= 0] = self._links.last_at(rows[rows >= 0])
        np.minimum.at(end, pairs, self._flows.last_at(flows))
        reached = rows >= 0
        reached[reached] = self._links.first_at(rows[reached]) <= end[reached] - self._window_s
        known = self._reach_back(pairs, flows, np.where(end > now - self._window_s, end, np.inf))
        counted = self._counted(users, np.append(known, False)[users.rows].tobytes())

        left = np.flatnonzero(rows >= 0)
        left = left[self._links.most_bps(rows[left], self._window_s) > noise_bps[left]]
        links_bps = self._links.rates_bps(rows[left], self._instants(end[left]))
        loud = (links_bps.min(axis=1) > noise_bps[left]) | sized.at_host[left]  # not where a rate is NaN
        left, links_bps = left[loud], links_bps[loud]
        number = np.full(len(rows), -1)
        number[left] = np.arange(len(left))
        on = (number[pairs] >= 0) & known[flows]
        pairs, flows = pairs[on], flows[on]
        # Links of one switch were read together: most pairs of a flow ask for the same instants.
        ends, which_end = np.unique(end[pairs], return_inverse=True)
        asked, which = np.unique(flows * len(ends) + which_end, return_inverse=True)
        flows_bps = self._flows.rates_bps(asked // max(len(ends), 1), self._instants(ends[asked % max(len(ends), 1)]))
        for part in range(PARTS):
            links_bps[:, part] -= np.bincount(number[pairs], flows_bps[which, part], len(left))
        least, mean = links_bps.min(axis=1), links_bps.mean(axis=1)
        lasting[left] = np.where(least > noise_bps[left], least, 0.0)  # nor where a flow's rate is NaN
        sent[left] = np.where(np.isnan(mean), np.inf, np.maximum(mean, 0.0))
        is_gone = np.zeros(len(known), bool)
        is_gone[users.gone] = True
        of_gone = all_pairs[is_gone[all_flows]]
        sent[of_gone] = carried[of_gone]
        return lasting, sent, counted, reached

    def _reach_back(self, pairs: Rows, flows: Rows, end: Floats) -> NDArray[np.bool_]:
        """Of every counter of a flow whether it reaches back a whole window on all links that it may have used.
        ``end``: of each link's window, infinite where the link is not read any more."""
        earliest = np.full(self._flows.rows, np.inf)
        np.minimum.at(earliest, flows, end[pairs])
        first_at = self._flows.first_at(np.arange(len(earliest)))
        reach: NDArray[np.bool_] = (first_at <= earliest - self._window_s) & np.isfinite(first_at)
        return reach

    def _counted_now(self, users: Users, known: bytes) -> frozenset[Pair]:
        """The flows all of whose rules have counted for long enough. ``known``: whether each of the ``users``' rules
        has."""
        if not any(known):
            return frozenset()
        missing = {users.pairs[number] for number, found in enumerate(known) if not found}
        return self._uses.counted_pairs - missing

    def _instants(self, end: Floats) -> Floats:
        """Where the parts of the windows that end there begin and end."""
        return end[:, None] - self._window_s * np.arange(PARTS, -1, -1) / PARTS


def _reached(measured: Measured) -> Mapping[LinkId, bool]:
    return dict(zip(measured.place, measured.reached.tolist(), strict=True))


def in_use(measured: Measured, bps: Floats) -> Mapping[LinkId, float]:
    """The links that have any of these."""
    links = tuple(measured.place)
    return {links[number]: float(bps[number]) for number in np.flatnonzero(bps)}


def _mixed(new: Floats, before: Floats, anew: NDArray[np.bool_]) -> Floats:
    """Smoothed, but for links that are measured anew."""
    mixed: Floats = np.where(anew | np.isinf(before), new, SMOOTHING * new + (1 - SMOOTHING) * before)
    return mixed


def _sized(capacity_bps: Mapping[LinkId, float]) -> _Sized:
    at_host = {link.at for link in capacity_bps if link.direction == "in"}
    return _Sized(
        {link: number for number, link in enumerate(capacity_bps)},
        np.fromiter(capacity_bps.values(), np.float64, len(capacity_bps)),
        np.array([link.at in at_host for link in capacity_bps], bool),
    )
