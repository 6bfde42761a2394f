"""Load of each link: rates from counters, and the background, which is traffic that no announced flow can have sent.

The *excess* of a link is the traffic of its port minus the counted traffic of all announced flows that may have used
the link. Uncertain measurements make the background too low rather than too high, so that a job's own bytes never count
as background (docs/explanation/discovery.md#background).

Announced flows that no rule counts yet, such as those of a new job, may have sent part of the excess. So ``background``
subtracts an upper bound of the bytes of these flows, which follows from the bytes that their sources sent and their
destinations received. ``RecentBackground`` makes sure that a link that was busy until lately does not count as free.

Thousands of links are evaluated together, in arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.fabric.counter_samples import (
    Counted,
    Floats,
    LinkFigures,
    Pair,
    RecentFigures,
    RecentUses,
    Rows,
    Samples,
    Users,
    Uses,
    UsesOf,
)
from controller.fabric.topology import Dpid, Fabric, Host, LinkId, PortRef
from controller.shared_map import Memo

PARTS = 3
"""Number of equal parts of the window. Rates are measured over the last part, the last two, and the whole window."""

LAG_S = 0.5
"""Seconds by which flow counters may lag: Open vSwitch reads them from its datapath twice a second."""

QUEUED_S = 0.1
"""Longest time in seconds that a packet waits in queues after a rule has counted it and before a link sends it."""

STEADY = 0.5
"""Largest difference between the rates in two parts of the window, for the traffic to count as steady.

The unit is the link's noise limit (``Measured.noise_bps``)."""

SETTLE_S = 2.0
"""Longest time in seconds until switches use changed rules. Until then, packets may use the old links."""


LATE_INTERVALS = 2
"""Age of counters, in intervals of polling, above which counters do not show the present load of a switch."""

APART = 0.25
"""Polls whose due times differ by at least this fraction of the interval belong to different rounds."""

HALFWAY = 0.75
"""A round less than this fraction of the interval after the previous regular one is an additional, halfway round."""

PATIENCE = 0.25
"""Longest wait for other switches after the first one has answered, as a fraction of the interval."""


class PollRounds:
    """Rounds of polls: each round of answers is evaluated once. A round is all polls with the same due time."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._evaluated_at = -math.inf
        self._round_at = -math.inf  # due time of the current or last round
        self._regular_at = -math.inf  # due time of the last regular round
        self._answers_since: float | None = None
        self._awaited: set[Dpid] = set()

    def answered(self, dpid: Dpid, due: float, at: float, polled: Collection[Dpid]) -> None:
        """Record that a switch answered a poll at ``at``. A late answer belongs to the round of its poll."""
        if due >= self._round_at + APART * self._interval_s:
            self._round_at, self._answers_since, self._awaited = due, at, set(polled)
        if due > self._round_at - APART * self._interval_s:
            self._awaited.discard(dpid)

    def switch_left(self, dpid: Dpid) -> None:
        self._awaited.discard(dpid)

    def is_over(self, now: float) -> bool:
        """Return whether all switches have answered, or the wait for late switches is over."""
        if self._answers_since is None:
            return now >= self._evaluated_at + LATE_INTERVALS * self._interval_s
        return not self._awaited or now >= self._answers_since + PATIENCE * self._interval_s

    @property
    def is_halfway(self) -> bool:
        """Whether the counters to be evaluated were read between two regular polls."""
        return self._answers_since is not None and self._round_at < self._regular_at + HALFWAY * self._interval_s

    def evaluated(self, now: float) -> None:
        """Record that this round is over, so that late answers of the round do not start another evaluation."""
        if self._answers_since is None:
            self._round_at = self._evaluated_at + LATE_INTERVALS * self._interval_s
        if not self.is_halfway:
            self._regular_at = self._round_at
        self._evaluated_at, self._answers_since = now, None


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Result of ``LinkLoad.update``. Arrays have a value or row for each link, at index ``place[link]``, in bit/s."""

    place: Mapping[LinkId, int]
    """Index of each link in the arrays."""
    beyond_bps: Floats
    """Traffic beyond counted flows (excess); 0 where the excess is uncertain or noise."""
    certain_bps: Floats
    """Lower bound of the traffic beyond counted flows (excess), which allows for late readings; NaN where unknown.

    The columns are for the last part of the window, the last two parts, and all three."""
    sent_bps: Floats
    """Estimate of the traffic beyond counted flows on links of hosts; infinite where unknown.

    The value is the largest of three estimates: for the last part of the window, the last two parts, and all three."""
    most_sent_bps: Floats
    """Upper bound of the traffic beyond counted flows on links of hosts, which allows for late readings.

    The value is infinite where the traffic is unknown. The columns are as in ``certain_bps``."""
    noise_bps: Floats
    """Rate below which traffic counts as noise."""
    counted: frozenset[Pair]
    """Flows whose bytes are known for the whole window."""
    reached: NDArray[np.bool_]
    """Whether the samples of each link reach back a whole window."""

    def of(self, links: Collection[LinkId]) -> Measured:
        rows = np.array([self.place[link] for link in links], np.int64)
        beyond, certain, sent = self.beyond_bps[rows], self.certain_bps[rows], self.sent_bps[rows]
        arrays = (beyond, certain, sent, self.most_sent_bps[rows], self.noise_bps[rows])
        return Measured({link: at for at, link in enumerate(links)}, *arrays, self.counted, self.reached[rows])


class _Capacities(NamedTuple):
    place: Mapping[LinkId, int]
    bps: Floats
    """Capacity of each link in bit/s."""
    at_host: NDArray[np.bool_]


class _Announced(NamedTuple):
    """A change of the wanted rules. Times are monotonic seconds."""

    first: float
    """Time until which the earlier rules were wanted.

    ``first`` is earlier than ``since`` if other rules were wanted in between for less than ``QUEUED_S``. Such rules are
    skipped."""
    since: float
    """Time from which the new rules are wanted."""
    uses: Callable[[], UsesOf]
    """Function that computes the links that the new rules use."""


class LinkLoad:
    """Counters of all links and announced flows over a sliding window of ``window_s`` seconds.

    ``noise_fraction``: fraction of a link's capacity; traffic below it does not count as background."""

    def __init__(self, window_s: float, noise_fraction: float, now: float = 0.0) -> None:
        self._window_s = window_s
        self.noise_fraction = noise_fraction
        self._links: Samples[LinkId] = Samples(2 * window_s)
        self._flows: Samples[Counted] = Samples(2 * window_s)
        self._recent = RecentFigures(self._links, window_s)
        self._announced: list[_Announced] = []
        self._uses = RecentUses(2 * window_s)
        self._counted = Memo(self._counted_now)
        self._sized = Memo(_sized)
        self._rows = Memo[Mapping[LinkId, int], int, Rows](lambda links, _numbering: self._links.rows_of(links))
        self._keep_links = Memo(self._keep_links_at)
        self._reached = Memo(_reached)
        none, of_parts = np.zeros(0), np.zeros((0, PARTS))
        self.measured = Measured({}, none, of_parts, none, of_parts, none, frozenset(), np.zeros(0, bool))
        """Latest result; another object after each measurement."""
        self.measured_at = now
        """Time of the latest measurement in monotonic seconds."""
        self._forget_at = now

    def take_noise_fraction(self, noise_fraction: float) -> None:
        self.noise_fraction = noise_fraction

    @property
    def beyond(self) -> bool:
        """Whether some link carries more than the counted flows."""
        return bool(self.measured.beyond_bps.any())

    def count_links(self, at: float, totals: Mapping[LinkId, int]) -> None:
        if totals:
            self._recent.counted(self._links.add(at, totals))

    def count_flows(self, at: float, totals: Mapping[Counted, int]) -> None:
        if totals:
            self._flows.add(at, totals)

    def forget(self, ports: Set[PortRef]) -> None:
        """Forget all links except the links at these ports."""
        self._keep_links(ports, self._links.numbering)

    def _keep_links_at(self, ports: Set[PortRef], _numbering: int) -> None:
        if gone := [link for link in self._links.row_of if link.at not in ports]:
            self._links.forget(gone)
            self.measured = self.measured.of([link for link in self.measured.place if link.at in ports])

    def routes_changed(self, now: float, uses: Callable[[], UsesOf]) -> None:
        """Record that the rules change at ``now``; from then on, packets use at most the links that ``uses`` returns.

        ``uses`` returns the links of each rule. A rule that ``uses`` does not return is forgotten when the window ends.
        ``uses`` is called later, by ``update`` or ``take_announced``, because computing the links must not delay the
        change of rules. Changes that lasted for less than ``QUEUED_S`` are skipped."""
        first = now
        if self._announced and now < self._announced[-1].since + QUEUED_S:
            first = self._announced.pop().first
        self._announced.append(_Announced(first, now, uses))

    def take_announced(self) -> None:
        """Compute the links that rules may use, for all changes recorded by ``routes_changed`` since the last call."""
        announced, self._announced = self._announced, []
        for first, since, work_out in announced:
            appeared = self._uses.change(since, work_out())
            self._flows.begin_anew(appeared.again)  # earlier samples belong to the removed rule
            for what, others in appeared.anew.items():
                # This rule starts at zero: other rules have counted the flow so far. The bytes of the flow are known
                # from the first sample of these other rules on.
                rows = self._flows.rows_of(others)
                known_at = self._flows.first_at(rows).max(initial=-np.inf) if (rows >= 0).all() else np.inf
                if known_at < first:
                    self._flows.begin_at_zero(what, max(known_at, first - 2 * self._window_s), first)

    def counted_since(self, links: Collection[LinkId], at: float) -> tuple[float, float] | None:
        """Return a time in seconds over which each link was sampled after ``at``, and the most bytes that a link sent.

        See ``Samples.since``. Returns None while a link has fewer than two samples after ``at``."""
        rows = self._links.rows_of(links)
        return None if (rows < 0).any() else self._links.since(rows, at)

    def figures(self, fabric: Fabric, background_bps: Mapping[LinkId, float]) -> LinkFigures:
        """Return the figures of all links of the fabric with counters, links of hosts included.

        ``background_bps``: background of each link with background; another object whenever it changes. The result is
        the same object while there are no new samples."""
        return self._recent.of(fabric, background_bps, self._reached(self.measured))

    # ---- traffic beyond counted flows

    def update(self, now: float, capacity_bps: Mapping[LinkId, float]) -> None:
        """Evaluate the counters that were read so far.

        ``capacity_bps``: capacity of each link in bit/s; the caller passes another object whenever it changes."""
        self.measured_at = now
        self.take_announced()
        self._flows.forget(self._uses.forget(now))
        if now >= self._forget_at:
            self._forget_at = now + 2 * self._window_s
            unread = self._flows.not_read_since(now - 2 * self._window_s)
            self._flows.forget([what for what in unread if what not in self._uses])
        self.measured = self._measure(now, self._sized(capacity_bps))

    def _measure(self, now: float, sized: _Capacities) -> Measured:
        """Return the traffic of each link beyond all counted flows that may have used the link.

        Only links that carry more than noise, and links of hosts that carry anything, are evaluated."""
        rows = self._rows(sized.place, self._links.numbering)
        read, noise_bps = rows >= 0, self.noise_fraction * sized.bps
        place = np.full(self._links.rows, -1)
        place[rows[read]] = np.flatnonzero(read)
        users = self._uses.users(self._links, self._flows)
        pairs = place[users.links]
        listed = (pairs >= 0) & self._flows.read(users.flows)
        on = _Pairs(pairs[listed], users.flows[listed], users.until[listed])
        end = np.full(len(rows), -np.inf)
        end[read] = self._links.last_at(rows[read])
        is_gone = np.zeros(self._flows.rows, bool)  # rules whose counters are not read any more
        is_gone[users.gone] = True
        still = on.of(~is_gone[on.flows])
        np.minimum.at(end, still.links, self._flows.last_at(still.flows))
        reached = read.copy()
        reached[read] = self._links.first_at(rows[read]) <= end[read] - self._window_s
        known = self._reach_back(on.links, on.flows, np.where(end > now - self._window_s, end, np.inf))
        counted = self._counted(users, np.append(known, False)[users.rows].tobytes())

        left = np.flatnonzero(read)
        most_bps = self._links.most_bps(rows[left], self._window_s / PARTS)
        left = left[(most_bps > noise_bps[left]) | (sized.at_host[left] & (most_bps > 0))]
        of_gone = np.zeros(len(rows), bool)
        of_gone[on.links[is_gone[on.flows]]] = True
        used = on.of((known | is_gone)[on.flows]).at(left, len(rows))
        carried, excess, slack = self._over_parts(rows[left], used, end[left])
        slack = slack * sized.bps[left, None]
        beyond, sent, certain, most_sent = *np.zeros((2, len(rows))), *np.zeros((2, len(rows), PARTS))
        certain[left] = excess - slack
        beyond[left] = _present_excess_bps(excess, certain[left], noise_bps[left])
        # On links of flows with removed rules, the bound includes all traffic: counters of these rules are not read.
        sent[left] = _largest_of_row(np.where(of_gone[left, None], carried, excess))
        at_most = np.where(of_gone[left, None], carried, np.minimum(carried, excess + slack))
        most_sent[left] = np.nan_to_num(np.maximum(at_most, 0.0), nan=np.inf)
        sent[~read] = most_sent[~read] = np.inf
        return Measured(sized.place, beyond, certain, sent, most_sent, noise_bps, counted, reached)

    def _over_parts(self, links: Rows, on: _Pairs, end: Floats) -> tuple[Floats, Floats, Floats]:
        """Return three arrays: the carried traffic, the excess and the slack of these links.

        Each array has a row per link. The three columns are for the last part of the window, the last two parts, and
        all three parts. The window ends at ``end``; its parts begin when counters of the link were read.

        Carried traffic and excess are in bit/s, NaN where unknown. The excess is the carried traffic minus the traffic
        of the flows in ``on``. Counters of the flows and of the link are not read at the same moments. The slack is the
        largest time between these readings, as a fraction of the time that the column covers."""
        ends, first, which = np.unique(end, return_index=True, return_inverse=True)
        parts = self._window_s * (np.arange(1, PARTS + 1) - 0.1) / PARTS  # allows for irregular readings
        begins = self._links.sampled_before(links[first], ends[:, None] - parts)
        instants = np.concatenate([ends[:, None], begins], axis=1)
        spans = instants[:, :1] - instants[:, 1:]
        totals, apart = self._links.read_near(links, instants[which])
        excess = totals[:, :1] - totals[:, 1:]
        with np.errstate(invalid="ignore", divide="ignore"):
            carried = 8 * excess / spans[which]
        # Counters of one switch are read together, so several links of a flow need its counts at the same instants.
        asked, of_asked = np.unique(on.flows * len(ends) + which[on.links], return_inverse=True)
        at_end = asked % max(len(ends), 1)
        totals, flows_apart = self._flows.read_near(asked // max(len(ends), 1), instants[at_end])
        sent, flows_apart = totals[:, :1] - totals[:, 1:], flows_apart[:, :1] + flows_apart[:, 1:]
        begin = instants[at_end, 1:] - SETTLE_S
        longest_s = np.zeros_like(excess)
        for part in range(PARTS):
            used = on.until > begin[of_asked, part]
            users, rows = on.links[used], of_asked[used]
            excess[:, part] -= np.bincount(users, sent[rows, part], len(links))
            np.maximum.at(longest_s[:, part], users, LAG_S + flows_apart[rows, part])
        slack_s = QUEUED_S + apart[:, :1] + apart[:, 1:] + longest_s
        with np.errstate(invalid="ignore", divide="ignore"):
            return carried, 8 * excess / spans[which], slack_s / spans[which]

    def _reach_back(self, pairs: Rows, flows: Rows, end: Floats) -> NDArray[np.bool_]:
        """Return for each flow whether its counter covers a whole window on every link that the flow may have used.

        ``pairs``, ``flows``: entry i means that flow ``flows[i]`` may have used link ``pairs[i]``. ``end``: end of each
        link's window, infinite where the link is not read any more."""
        earliest = np.full(self._flows.rows, np.inf)
        np.minimum.at(earliest, flows, end[pairs])
        first_at = self._flows.first_at(np.arange(len(earliest)))
        reach: NDArray[np.bool_] = (first_at <= earliest - self._window_s) & np.isfinite(first_at)
        return reach

    def _counted_now(self, users: Users, known: bytes) -> frozenset[Pair]:
        """Return the flows whose rules have all counted for a whole window.

        ``known``: whether each rule of ``users`` has counted for a whole window."""
        if not any(known):
            return frozenset()
        missing = {users.pairs[number] for number, found in enumerate(known) if not found}
        return self._uses.counted_pairs - missing


class _Pairs(NamedTuple):
    """Pairs of a link and a flow, each with the time until which the flow may have used the link."""

    links: Rows
    flows: Rows
    until: Floats

    def of(self, wanted: NDArray[np.bool_]) -> _Pairs:
        return _Pairs(self.links[wanted], self.flows[wanted], self.until[wanted])

    def at(self, links: Rows, count: int) -> _Pairs:
        """Return the pairs whose link is among ``links``; in the result, a link is its index in ``links``.

        ``count``: number of all links."""
        number = np.full(count, -1)
        number[links] = np.arange(len(links))
        here = self.of(number[self.links] >= 0)
        return here._replace(links=number[here.links])


def _reached(measured: Measured) -> Mapping[LinkId, bool]:
    return dict(zip(measured.place, measured.reached.tolist(), strict=True))


def in_use(measured: Measured, bps: Floats) -> Mapping[LinkId, float]:
    """Return the values in ``bps`` that are not 0, by link."""
    links = tuple(measured.place)
    return {links[number]: float(bps[number]) for number in np.flatnonzero(bps)}


def _present_excess_bps(excess: Floats, certain: Floats, noise_bps: Floats) -> Floats:
    """Return the present excess of each link in bit/s; 0 if the excess is uncertain or at most the noise.

    ``excess`` and ``certain``: values in bit/s, with the columns of ``certain_bps``. Steady traffic is averaged over
    as many parts of the window as possible."""
    found = excess[:, 0]
    for part in range(1, PARTS):
        steady = (np.abs(excess[:, :part] - excess[:, part, None]) <= STEADY * noise_bps[:, None]).all(axis=1)
        found = np.where(steady, excess[:, part], found)
    return np.where((certain > 0).any(axis=1) & (found > noise_bps), found, 0.0)


def _largest_of_row(bps: Floats) -> Floats:
    """Return the largest value of each row, but at least 0; infinite if the row's first value is unknown (NaN).

    The first value is for the latest part of the window."""
    most = np.maximum(np.fmax.reduce(bps, axis=1), 0.0)
    return np.where(np.isnan(bps[:, 0]), np.inf, most)


def _sized(capacity_bps: Mapping[LinkId, float]) -> _Capacities:
    at_host = {link.at for link in capacity_bps if link.direction == "in"}
    return _Capacities(
        {link: number for number, link in enumerate(capacity_bps)},
        np.fromiter(capacity_bps.values(), np.float64, len(capacity_bps)),
        np.array([link.at in at_host for link in capacity_bps], bool),
    )


# ---- background


def background(measured: Measured, uncounted: Uses, hosts: Mapping[str, Host]) -> Mapping[LinkId, float]:
    """Return the background in bit/s of every link with background.

    ``uncounted``: announced flows that no rule counts yet, each with all links that it may use."""
    bps = measured.beyond_bps
    if uncounted and bps.any():
        seems_bps, *at_most_bps = _bounds_of_uncounted_flows(measured, uncounted, hosts)
        left = bps - seems_bps
        certain = (left > measured.noise_bps) & (measured.certain_bps > np.transpose(at_most_bps)).any(axis=1)
        bps = np.where(seems_bps > 0, np.where(certain, left, 0.0), bps)
    return in_use(measured, bps)


def _bounds_of_uncounted_flows(measured: Measured, uncounted: Uses, hosts: Mapping[str, Host]) -> Iterator[Floats]:
    """Yield arrays with an upper bound in bit/s, for each link, of the traffic of the uncounted flows.

    The first array is computed from the estimated traffic of the hosts (``Measured.sent_bps``). Each further array is
    computed from the largest possible traffic of the hosts (one column of ``Measured.most_sent_bps``).

    The bound is 0 on links without traffic beyond counted flows. On every other link, three sums over the uncounted
    flows that may use the link are computed. The bound is the smallest of them:

    - the traffic of all sources of these flows, each host counted once;
    - the traffic of all destinations of these flows, each host counted once;
    - for each flow, the smaller of the traffic of its source and of its destination."""
    place = measured.place
    src = np.array([place.get(hosts[flow.src_ip].uplink, -1) for flow in uncounted], np.int64)
    dst = np.array([place.get(hosts[flow.dst_ip].downlink, -1) for flow in uncounted], np.int64)
    rows_of = {links: _carrying(measured, links) for links in set(chain.from_iterable(uncounted.values()))}
    rows = [np.concatenate([rows_of[links] for links in sets]) for sets in uncounted.values()]
    links = np.concatenate(rows)
    flows = np.repeat(np.arange(len(rows)), [len(some) for some in rows])

    def by_host(of: Rows) -> tuple[Rows, Rows]:
        """Return all pairs (link, host with a flow on the link), as two arrays of link indices.

        No pair occurs twice. The second array has the index of the host's own link in place of the host. ``of``: index
        of the source's uplink, or of the destination's downlink, by flow."""
        pairs = np.sort(links * (len(place) + 1) + of[flows] % (len(place) + 1))
        pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # np.unique would hash: far slower
        return np.divmod(pairs, len(place) + 1)

    ends = by_host(src), by_host(dst)
    for of_hosts in (measured.sent_bps, *measured.most_sent_bps.T):
        sent_bps = np.append(of_hosts, np.inf)
        by_flow = np.bincount(links, np.minimum(sent_bps[src], sent_bps[dst])[flows], len(place))
        by_end = [np.bincount(of, sent_bps[end], len(place)) for of, end in ends]
        yield np.minimum(by_flow, np.minimum(*by_end))


def _carrying(measured: Measured, links: frozenset[LinkId]) -> Rows:
    """Return the indices (``Measured.place``) of the given links that carry traffic beyond counted flows."""
    rows = np.array([measured.place[link] for link in links if link in measured.place], np.int64)
    carrying: Rows = rows[measured.beyond_bps[rows] > 0]
    return carrying


# ---- links that were busy

HOLD_S = 15.0
"""Seconds for which a link without pinned flows counts as busy after its background has ended.

Intermittent traffic would otherwise attract flows between its bursts and drive them away again with each burst."""

NEAR = 0.9
"""Fraction of its largest recent background that a link must carry to count as still busy."""

LEFT_S = 2 * SETTLE_S
"""Seconds for which bytes of a flow may still be counted on a link after the flow has moved to another link.

In these seconds, the bytes may hide background on the old link."""


class _Held(NamedTuple):
    """Largest recent background of a link in bit/s, and the monotonic time at which the link last carried it."""

    bps: float
    at: float


class RecentBackground:
    """Largest background of each link in the last ``HOLD_S`` seconds."""

    def __init__(self) -> None:
        self.held: Mapping[LinkId, float] = {}
        """Largest recent background in bit/s of each link that carries less now; a new mapping on each change."""
        self.left: frozenset[LinkId] = frozenset()
        """Links from which a flow has moved away in the last ``LEFT_S`` seconds."""
        self._most: dict[LinkId, _Held] = {}
        self._flows: Mapping[LinkId, Collection[object]] = {}
        self._left_at: dict[LinkId, float] = {}

    def follow(
        self,
        background_bps: Mapping[LinkId, float],
        flows: Mapping[LinkId, Collection[object]],
        uncounted: Uses,
        now: float,
    ) -> None:
        """Record the measured background of links between switches.

        Links of hosts are left out, because no route can avoid them. ``flows``: flows pinned to each link. Links that
        ``uncounted`` flows may use are forgotten, because these flows may have sent the traffic."""
        unknown = _links_of(uncounted) if self._most else frozenset()
        self._most = {link: most for link, most in self._most.items() if now < most.at + HOLD_S and link not in unknown}
        for link, bps in background_bps.items():
            most = self._most.get(link)
            if most is None or bps >= NEAR * most.bps:
                self._most[link] = _Held(max(bps, most.bps if most else 0.0), now)
        was, self._flows = self._flows, {link: flows[link] for link in self._most if link in flows}
        gone = {link for link, before in was.items() if not set(before) <= set(flows.get(link, ()))}
        self._left_at = {link: at for link, at in self._left_at.items() if now < at + LEFT_S} | dict.fromkeys(gone, now)
        self.held = {link: most.bps for link, most in self._most.items() if most.bps > background_bps.get(link, 0.0)}
        self.left = frozenset(self._left_at)


def planned_background(
    background_bps: Mapping[LinkId, float],
    held: Mapping[LinkId, float],
    left: frozenset[LinkId],
    carrying: Container[LinkId],
    uncounted: Uses,
) -> Mapping[LinkId, float]:
    """Return the background to plan with, in bit/s.

    The value of a link is the larger of its present background and its ``held`` background, with two exceptions: a link
    that ``uncounted`` flows may use, and a link in ``carrying`` (used by pinned flows) that is not in ``left`` (a flow
    has just moved away). For these links, only the present background counts."""
    kept = [link for link in held if link in left or link not in carrying]
    if not kept:
        return background_bps
    unknown = _links_of(uncounted)
    more = {link: held[link] for link in kept if link not in unknown}
    return {**background_bps, **{link: max(bps, background_bps.get(link, 0.0)) for link, bps in more.items()}}


def _links_of(uses: Uses) -> frozenset[LinkId]:
    return frozenset[LinkId]().union(*set(chain.from_iterable(uses.values())))
