"""Samples of cumulative counters, the figures of links derived from them, and the links that counted rules may use.

``Samples`` keeps totals as they are read, and interpolates totals and rates at any instant that the samples cover. Each
counter has a row of an array, newest sample last, so that thousands of counters are evaluated together. Times are
monotonic seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, takewhile
from operator import is_
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from controller.fabric.topology import Fabric, Host, Link, LinkId
from controller.shared_map import Memo, differing, subtract

Key = TypeVar("Key", bound=Hashable)
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

DEPTH = 32
"""Largest number of samples per counter; if more arrive within the span, they are thinned out evenly."""

WRAP = 1 << 48
"""Limit that tells whether a counter whose value fell has wrapped around at 2^64, or has restarted.

The counter has wrapped around if its increase modulo 2^64 is below this limit; if not, the counter has restarted."""

_MISSING = -1e15
"""Time in place of missing samples; earlier than the time of any sample."""


class Samples(Generic[Key]):
    """Latest samples of cumulative counters, a row per counter. ``span_s``: seconds for which samples are kept."""

    def __init__(self, span_s: float) -> None:
        self._spacing_s = span_s / (DEPTH - 2)
        self.row_of: dict[Key, int] = {}
        self._numbered = self._rows_used = 0
        self._free: list[int] = []
        self._times = np.full((0, DEPTH), _MISSING)
        self._totals = np.zeros((0, DEPTH), np.uint64)

    def add(self, at: float, totals: Mapping[Key, int]) -> Rows:
        """Add the value of each counter at one moment and return the rows of the counters. Values are below 2^64.

        A restart of the switch drops the earlier samples of a counter. A restart shows by a value that fell without a
        wrap-around, or by a time ``at`` that is not later than the last sample."""
        rows = self._rows(totals)
        values = np.fromiter(totals.values(), np.uint64, len(totals))
        last_at, last = self._times[rows, -1], self._totals[rows, -1]
        reset = (at <= last_at) | ((values < last) & (values - last >= np.uint64(WRAP)))
        self._times[rows[reset]] = _MISSING
        dense = self._times[rows, -1] - self._times[rows, -2] < self._spacing_s
        moved = rows[~dense]
        self._times[moved, :-1] = self._times[moved, 1:]
        self._totals[moved, :-1] = self._totals[moved, 1:]
        self._times[rows, -1] = at
        self._totals[rows, -1] = values
        return rows

    def begin_at_zero(self, key: Key, since: float, until: float) -> None:
        """Record that a counter was 0 from ``since`` to ``until``, before its first sample.

        A counter that was read before ``until`` is not changed."""
        (row,) = self._rows({key: 0})
        read = int((self._times[row] > _MISSING).sum())
        first = DEPTH - read
        if first < 2 or (read and self._times[row, first] <= until):
            return
        self._times[row, first - 2 : first] = since, until
        self._totals[row, first - 2 : first] = 0

    def forget(self, keys: Iterable[Key]) -> None:
        """Forget these counters; their rows become free for new counters."""
        rows = [self.row_of.pop(key) for key in keys if key in self.row_of]
        self._times[rows] = _MISSING
        self._free += rows
        self._numbered += bool(rows)

    def not_read_since(self, at: float) -> list[Key]:
        """Return the counters that were not read at or after the time ``at``."""
        unread = self._times[: self._rows_used, -1] < at
        return [key for key, row in self.row_of.items() if unread[row]] if unread.any() else []

    def begin_anew(self, keys: Iterable[Key]) -> None:
        """Drop the samples of these counters."""
        self._times[[self.row_of[key] for key in keys if key in self.row_of]] = _MISSING

    @property
    def numbering(self) -> int:
        """Number that changes whenever a counter gets or loses a row, so that callers look up the rows again."""
        return self._numbered

    @property
    def rows(self) -> int:
        """Upper bound of the row numbers; some rows may belong to no counter."""
        return self._rows_used

    def read(self, rows: Rows) -> NDArray[np.bool_]:
        """Return whether each row has a sample."""
        found: NDArray[np.bool_] = self._times[rows, -1] > _MISSING
        return found

    def rows_of(self, keys: Collection[Key]) -> Rows:
        """Return the row of each counter; -1 for counters that were never read."""
        return np.fromiter((self.row_of.get(key, -1) for key in keys), np.int64, len(keys))

    def first_at(self, rows: Rows) -> Floats:
        """Return the time of the oldest sample of each row."""
        times = self._times[rows]
        oldest: Floats = np.where(times > _MISSING, times, np.inf).min(axis=1, initial=np.inf)
        return oldest

    def last_at(self, rows: Rows) -> Floats:
        """Return the time of the newest sample of each row."""
        newest: Floats = self._times[rows, -1]
        return newest

    def last(self, rows: Rows) -> NDArray[np.uint64]:
        """Return the newest value of each row, exactly."""
        newest: NDArray[np.uint64] = self._totals[rows, -1]
        return newest

    def rates_bps(self, rows: Rows, instants: Floats) -> Floats:
        """Return the rate in bit/s between consecutive instants; ``instants`` has a row per counter.

        The rate is NaN where the samples do not cover the time between the instants."""
        totals, _ = self._between(rows, instants)
        return 8 * np.diff(totals, axis=1) / np.diff(instants, axis=1)

    def read_near(self, rows: Rows, instants: Floats) -> tuple[Floats, Floats]:
        """Return each counter's value at the given instants, and by how many seconds the reading may be off.

        ``instants`` has a row per counter. Values are relative to the newest sample, and interpolated between samples.
        Before the oldest sample, the value is NaN. After the newest sample, the value is the newest value if the last
        two samples are equal, else NaN. The second result is the time from the instant to the nearest sample, or 0
        where the counter did not change."""
        times = self._times[rows]
        apart = np.abs(times[:, None, :] - instants[:, :, None]).min(axis=2, initial=np.inf)
        totals, more = self._between(rows, np.minimum(instants, times[:, -1:]))
        stood_still = self._totals[rows, -1:] == self._totals[rows, -2:-1]
        known = (instants <= times[:, -1:]) | (stood_still & (times[:, -2:-1] > _MISSING))
        return np.where(known, totals, np.nan), np.where(more > 0, apart, 0.0)

    def sampled_before(self, rows: Rows, instants: Floats) -> Floats:
        """Return the time of the newest sample at or before each instant, or the instant itself without such a sample.

        ``instants`` has a row per counter."""
        times = self._times[rows][:, None, :]
        newest = np.where(times <= instants[:, :, None], times, _MISSING).max(axis=2, initial=_MISSING)
        return np.where(newest > _MISSING, newest, instants)

    def recent_bps(self, rows: Rows, window_s: float) -> Floats:
        """Return the rate in bit/s over the last ``window_s`` of samples, or over all samples if they cover less.

        The rate is NaN for counters with fewer than two samples."""
        end = self.last_at(rows)
        start = np.maximum(self.first_at(rows), end - window_s)
        enough = start < end
        instants = np.stack([start[enough], end[enough]], axis=1)
        rates = np.full(len(rows), np.nan)
        rates[enough] = self.rates_bps(rows[enough], instants)[:, 0]
        return rates

    def since(self, rows: Rows, at: float) -> tuple[float, float] | None:
        """Return the seconds over which all counters were sampled after ``at``, and the largest increase in bytes.

        The first and the last sample after ``at`` are compared for each counter. The result is the shortest time
        between these two samples, and the largest increase between them. The two values may belong to different
        counters. Returns None while some counter has fewer than two samples after ``at``."""
        times, totals = self._times[rows], self._totals[rows]
        first = (times <= at).sum(axis=1)
        if (first > DEPTH - 2).any():
            return None
        place = np.arange(len(rows))
        counted = totals[:, -1] - totals[place, first]
        return float((times[:, -1] - times[place, first]).min()), float(counted.max())

    def most_bps(self, rows: Rows, window_s: float) -> Floats:
        """Return an upper bound of the mean rate in bit/s over the last ``window_s`` of samples; fast to compute.

        The bound is infinite for a counter with fewer than ``DEPTH`` samples."""
        counted = (self._totals[rows, -1] - self._totals[rows, 0]).astype(np.float64)
        return np.where(self._times[rows, 0] > _MISSING, 8 * counted / window_s, np.inf)

    def _rows(self, totals: Mapping[Key, int]) -> Rows:
        row_of = self.row_of
        if not totals.keys() <= row_of.keys():
            self._numbered += 1
            for key in totals:
                if key not in row_of:
                    row_of[key] = self._free.pop() if self._free else self._rows_used
                    self._rows_used = max(self._rows_used, row_of[key] + 1)
        if self._rows_used > len(self._times):
            new = max(self._rows_used, 2 * len(self._times)) - len(self._times)
            self._times = np.concatenate([self._times, np.full((new, DEPTH), _MISSING)])
            self._totals = np.concatenate([self._totals, np.zeros((new, DEPTH), np.uint64)])
        return np.fromiter(map(row_of.__getitem__, totals), np.int64, len(totals))

    def _between(self, rows: Rows, instants: Floats) -> tuple[Floats, Floats]:
        """Return the interpolated total at each instant, and the bytes counted between the samples around the instant.

        Totals are relative to the newest sample and NaN outside the samples."""
        times, totals = self._times[rows], self._totals[rows]
        since = -(totals[:, -1:] - totals).astype(np.float64)  # unsigned arithmetic is right across a wrap-around
        right = (times[:, None, :] <= instants[:, :, None]).sum(axis=2)
        after = np.minimum(right, DEPTH - 1)
        before = np.maximum(right - 1, 0)
        start, end = np.take_along_axis(times, before, 1), np.take_along_axis(times, after, 1)
        low, high = np.take_along_axis(since, before, 1), np.take_along_axis(since, after, 1)
        between = end > start
        share = np.where(between, (instants - start) / np.where(between, end - start, 1.0), 0.0)
        known = (right > 0) & (start > _MISSING) & ((right < DEPTH) | (instants <= times[:, -1:]))
        return np.where(known, low + (high - low) * share, np.nan), high - low


# ---- figures of links


class LinkStatus(NamedTuple):
    """Figures of a link with counters."""

    bytes_total: int
    """Bytes that the port of the switch has counted since the switch started counting."""
    rate_bps: float | None
    """Rate in bit/s over the load window; None while the link has fewer than two samples."""
    background_bps: float | None
    """Background in bit/s; None until it was measured over a whole window."""


class LinkFigures(Mapping[LinkId, LinkStatus]):
    """Figures of all links with counters. The first access converts the arrays to ``LinkStatus`` objects.

    ``links``: order of the links in the arrays. Rates are in bit/s, NaN where a rate is not known."""

    def __init__(
        self, links: Collection[LinkId], bytes_total: NDArray[np.uint64], rate_bps: Floats, background_bps: Floats
    ) -> None:
        self._links = links
        self._arrays = (bytes_total, rate_bps, background_bps)

    @cached_property
    def _figures(self) -> Mapping[LinkId, LinkStatus]:
        columns = ([None if value != value else value for value in array.tolist()] for array in self._arrays)
        return dict(zip(self._links, map(LinkStatus, *columns), strict=True))

    def __getitem__(self, link: LinkId) -> LinkStatus:
        return self._figures[link]

    def __iter__(self) -> Iterator[LinkId]:
        return iter(self._links)

    def __len__(self) -> int:
        return len(self._links)


class RecentFigures:
    """Figures of links, recomputed only for links with new samples. ``links``: samples of the links."""

    def __init__(self, links: Samples[LinkId], window_s: float) -> None:
        self._links = links
        self._window_s = window_s
        self._rates_bps = np.zeros(0)
        self._counted: list[Rows] = []
        self._readings = 0
        self._found = Memo(self._rows_by_link)
        self._in_order = Memo(_in_order)
        self._figures = Memo(self._make)

    def counted(self, rows: Rows) -> None:
        """Record that these rows have new samples."""
        self._counted.append(rows)
        self._readings += 1

    def rates_bps(self) -> Floats:
        """Return the rate in bit/s of every row over the window, or over all its samples if they cover less.

        The rate is NaN for rows with fewer than two samples, and meaningless for free rows."""
        new = self._links.rows - len(self._rates_bps)
        self._rates_bps = np.append(self._rates_bps, np.full(new, np.nan))
        if self._counted:
            is_new = np.zeros(len(self._rates_bps), bool)
            is_new[np.concatenate(self._counted)] = True
            self._counted, counted = [], np.flatnonzero(is_new)
            self._rates_bps[counted] = self._links.recent_bps(counted, self._window_s)
        return self._rates_bps

    def of(
        self, fabric: Fabric, background_bps: Mapping[LinkId, float], measured: Mapping[LinkId, bool]
    ) -> LinkFigures:
        """Return the figures of all links of the fabric with counters, links of hosts included.

        ``background_bps``: background of each link with background. ``measured``: whether a link was measured over a
        whole window. The caller passes new mappings when values change. The result is the same object while nothing
        changes."""
        place, rows = self._found(fabric.links, fabric.hosts, self._links.numbering)
        return self._figures(place, rows, self._in_order(background_bps, measured, place), self._readings)

    def _rows_by_link(
        self, links: Mapping[LinkId, Link], hosts: Mapping[str, Host], _numbering: int
    ) -> tuple[Mapping[LinkId, int], Rows]:
        at_hosts = (link for host in hosts.values() for link in (host.uplink, host.downlink))
        counted = [link for link in dict.fromkeys((*links, *at_hosts)) if link in self._links.row_of]
        return {link: at for at, link in enumerate(counted)}, self._links.rows_of(counted)

    def _make(self, place: Mapping[LinkId, int], rows: Rows, background_bps: Floats, _readings: int) -> LinkFigures:
        return LinkFigures(place, self._links.last(rows), self.rates_bps()[rows], background_bps)


def _in_order(values: Mapping[LinkId, float], measured: Mapping[LinkId, bool], place: Mapping[LinkId, int]) -> Floats:
    """Return the values in the order of ``place``: NaN for a link that is not ``measured``, 0 for a missing value."""
    spread = np.array([0.0 if measured.get(link) else np.nan for link in place])
    for link, value in values.items():
        if link in place and measured.get(link):
            spread[place[link]] = value
    return spread


# ---- links that rules may have used


class Counted(NamedTuple):
    """Traffic that one rule counts: all packets from one address to another, or some of these packets.

    ``part``: the packets that the rule matches; None for a rule that matches all packets of an announced flow."""

    src_ip: str
    dst_ip: str
    part: Hashable = None


Uses = Mapping[Counted, tuple[frozenset[LinkId], ...]]
"""Links that the packets of each counting rule may use, as disjoint sets; many rules may share one set."""

NO_USES: Uses = {}

UsesOf = Mapping[str, Uses]
"""Uses by owner of the rules, for example a job. The value is the same object while the uses do not change."""

Pair = tuple[str, str]
"""Source and destination address."""


class Appeared(NamedTuple):
    """Rules that have just appeared."""

    again: list[Counted]
    """Rules that exist again after they were removed, if no other rule counted their flow in between."""
    anew: Mapping[Counted, list[Counted]]
    """New rules for pairs of addresses that had other rules before; the value is the list of these earlier rules."""


@dataclass(frozen=True, slots=True, eq=False)
class Users:
    """Links that rules have used within the span. Entry i of the arrays ``links``, ``flows`` and ``until`` is one use.

    A use is a link and a rule whose packets may have used the link."""

    links: Rows
    """Row of each use's link in the samples of links."""
    flows: Rows
    """Row of each use's rule in the samples of rules."""
    until: Floats
    """Monotonic time at which each use ended; infinite while the rule may use the link."""
    gone: Rows
    """Rows of removed rules in the samples of rules."""
    pairs: tuple[Pair, ...]
    """Source and destination address of each rule that exists now."""
    rows: Rows
    """Row of each rule of ``pairs`` in the samples of rules; -1 for a rule without samples."""


@dataclass(frozen=True, slots=True, eq=False)
class _UsersOfJob:
    """Contents of ``Users`` for one job."""

    uses: tuple[Uses, ...]
    """Links that the job's rules use now, followed by the links that they used earlier, latest first."""
    links: Rows
    flows: Rows
    until: Floats
    pairs: tuple[Pair, ...]
    rows: Rows
    known: Rows
    """Rows of the job's rules in the samples of rules; rules without samples are left out."""
    partial: bool
    """Whether some rule has no samples."""


_NONE = np.zeros(0, np.int64)
_NO_USERS = _UsersOfJob((), _NONE, _NONE, np.zeros(0), (), _NONE, _NONE, False)


class RecentUses:
    """Uses of links by rules, kept for ``span_s`` seconds after they end. Times are monotonic seconds."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._latest: UsesOf | None = None
        self._earlier: dict[str, list[tuple[float, Uses]]] = {}
        self._made_for: Counter[Counted] = Counter()
        self._rules_of: Counter[Pair] = Counter()
        self._gone: dict[Counted, float] = {}
        self._parts: dict[str, _UsersOfJob] = {}
        self._numbering: tuple[object, object] | None = None
        self._users: Users | None = None

    def change(self, since: float, uses: UsesOf) -> Appeared:
        """Record that rules use these links from ``since`` on, and return the rules that have appeared."""
        before, self._latest = self._latest or {}, uses
        other = [name for name, was, now in differing(before, uses) if was != now]
        times = Counter(chain.from_iterable(uses.get(name, NO_USES) for name in other))
        times.subtract(chain.from_iterable(before.get(name, NO_USES) for name in other))
        appeared = [what for what, more in times.items() if more > 0 and what not in self._made_for]
        gone = [what for what, more in times.items() if more < 0 and self._made_for[what] + more == 0]
        known = {what[:2] for what in appeared if what[:2] in self._rules_of}
        others: dict[Pair, list[Counted]] = {pair: [] for pair in known}
        for what in chain.from_iterable(before.get(name, NO_USES) for name in other if known):
            if what[:2] in known:
                others[what[:2]].append(what)
        found = Appeared(
            [what for what in appeared if what in self._gone and what[:2] not in known],
            {what: others[what[:2]] for what in appeared if what[:2] in known},
        )
        for name in other:
            if name in before:
                self._earlier.setdefault(name, []).append((since, before[name]))
        self._made_for.update(times)
        for what in appeared:
            self._rules_of[what[:2]] += 1
            self._gone.pop(what, None)
        for what in gone:
            del self._made_for[what]
            self._gone[what] = since
            subtract(self._rules_of, what[:2])
        if other:
            self._users = None
        return found

    def forget(self, now: float) -> list[Counted]:
        """Forget uses that ended more than ``span_s`` ago, and return the rules that were removed as long ago."""
        oldest = now - self._span_s
        over = [what for what, _ in takewhile(lambda item: item[1] <= oldest, self._gone.items())]
        for what in over:
            del self._gone[what]
        for name, ended in list(self._earlier.items()):
            if ended[0][0] <= oldest:
                self._users = None
                self._earlier[name] = [(at, uses) for at, uses in ended if at > oldest]
                if not self._earlier[name]:
                    del self._earlier[name]
        return over

    def __contains__(self, what: Counted) -> bool:
        """Return whether this rule exists or existed within the span."""
        return what in self._made_for or what in self._gone

    def users(self, links: Samples[LinkId], flows: Samples[Counted]) -> Users:
        """Return the uses as arrays; the same object while nothing changes."""
        if self._numbering is None or self._numbering[0] != links.numbering:
            self._parts, self._users = {}, None
        counted_anew = self._numbering is None or self._numbering[1] != flows.numbering
        if self._users is None or counted_anew:
            self._numbering = links.numbering, flows.numbering
            self._parts = dict(self._followed(links, flows, counted_anew))
            self._users = self._joined(flows)
        return self._users

    @property
    def counted_pairs(self) -> frozenset[Pair]:
        return frozenset(self._rules_of)

    def _followed(
        self, links: Samples[LinkId], flows: Samples[Counted], counted_anew: bool
    ) -> Iterator[tuple[str, _UsersOfJob]]:
        rows_of: dict[frozenset[LinkId], Rows] = {}
        latest = self._latest or {}
        for name in dict.fromkeys((*latest, *self._earlier)):
            earlier = self._earlier.get(name, [])[::-1]
            uses = latest.get(name, NO_USES), *(ended for _, ended in earlier)
            part = self._parts.get(name, _NO_USERS)
            same = len(uses) == len(part.uses) and all(map(is_, uses, part.uses))
            if not same or (part.partial and counted_anew):
                part = _users_of_job(uses, (math.inf, *(at for at, _ in earlier)), links, flows, rows_of)
            yield name, part

    def _joined(self, flows: Samples[Counted]) -> Users:
        parts = [_NO_USERS, *self._parts.values()]
        gone = flows.rows_of(self._gone)
        links, rules = (np.concatenate([getattr(part, name) for part in parts]) for name in ("links", "flows"))
        until = np.concatenate([part.until for part in parts])
        times = np.bincount(np.concatenate([part.known for part in parts]))
        if times.max(initial=0) > 1:  # a rule that has changed its owner is in several parts
            links, rules, until = _latest_use_of_each(links, rules, until)
        return Users(
            links,
            rules,
            until,
            gone[gone >= 0],
            tuple(chain.from_iterable(part.pairs for part in parts)),
            np.concatenate([part.rows for part in parts]),
        )


def _users_of_job(
    uses: tuple[Uses, ...],
    until: tuple[float, ...],
    links: Samples[LinkId],
    flows: Samples[Counted],
    rows_of: dict[frozenset[LinkId], Rows],
) -> _UsersOfJob:
    """Return the contents of ``Users`` for one job.

    ``until``: time when each of the ``uses`` ended. ``rows_of``: cache of the rows of each set of links."""
    used = [(what, sets, ended) for some, ended in zip(uses, until, strict=True) for what, sets in some.items()]
    known = dict.fromkeys(what for what, *_ in used)
    rows = dict(zip(known, flows.rows_of(known).tolist(), strict=True))
    link_rows, sizes, flow_rows, ends = [_NONE], [0], [0], [0.0]
    for what, sets, ended in used:
        for links_of in sets if rows[what] >= 0 else ():
            found = rows_of.get(links_of)
            if found is None:
                found = links.rows_of(links_of)
                found = rows_of[links_of] = found[found >= 0]
            link_rows.append(found)
            sizes.append(len(found))
            flow_rows.append(rows[what])
            ends.append(ended)
    pairs = (
        np.concatenate(link_rows),
        np.repeat(np.array(flow_rows, np.int64), sizes),
        np.repeat(np.array(ends, np.float64), sizes),
    )
    if len(used) > len(known):
        pairs = _latest_use_of_each(*pairs)
    of_now = np.array([rows[what] for what in uses[0]], np.int64)
    all_rows = np.array([*rows.values()], np.int64)
    return _UsersOfJob(
        uses, *pairs, tuple(what[:2] for what in uses[0]), of_now, all_rows[all_rows >= 0], bool((all_rows < 0).any())
    )


def _latest_use_of_each(links: Rows, flows: Rows, until: Floats) -> tuple[Rows, Rows, Floats]:
    order = np.lexsort((-until, flows, links))
    links, flows, until = links[order], flows[order], until[order]
    first = np.ones(len(links), bool)
    first[1:] = (np.diff(links) != 0) | (np.diff(flows) != 0)
    return links[first], flows[first], until[first]
