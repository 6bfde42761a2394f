"""Samples of many cumulative counters at once, and the figures of links made from them.

In: totals as they are read. Out: totals and rates at any instants that the samples cover; the latest figures of all
links as one frozen mapping over arrays. One row per counter, newest sample last, so that thousands of counters are
evaluated together. Times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, ItemsView, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from controller.fabric.topology import Fabric, Host, Link, LinkId
from controller.memo import Memo

Key = TypeVar("Key", bound=Hashable)
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

DEPTH = 32
"""Samples that are kept of each counter; where more come within the span, they are thinned out evenly."""

WRAP = 1 << 48
"""A counter that fell by nearly 2^64 has gone on by less than this: it wrapped around. Otherwise it was reset."""

_MISSING = -1e15
"""The time of samples that are not there; before any that are."""


class Samples(Generic[Key]):
    """``span_s``: how long samples are of use."""

    def __init__(self, span_s: float) -> None:
        self._spacing_s = span_s / (DEPTH - 2)
        self.row_of: dict[Key, int] = {}
        self._numbered = self._rows_used = 0
        self._free: list[int] = []
        self._times = np.full((0, DEPTH), _MISSING)
        self._totals = np.zeros((0, DEPTH), np.uint64)

    def add(self, at: float, totals: Mapping[Key, int]) -> Rows:
        """What the counters said at one moment, below 2^64 each; returns their rows. A counter that went back was
        reset, unless it wrapped around, and one read at an earlier time than before is of a switch that has started
        again: they begin anew."""
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
        """A counter that is known to have stood at 0 all the time between, before its first sample. One that was read
        before ``until`` is left as it is."""
        (row,) = self._rows({key: 0})
        read = int((self._times[row] > _MISSING).sum())
        first = DEPTH - read
        if first < 2 or (read and self._times[row, first] <= until):
            return
        self._times[row, first - 2 : first] = since, until
        self._totals[row, first - 2 : first] = 0

    def keep(self, wanted: Callable[[Key], bool]) -> None:
        """Forgets all others. Rows get other numbers when there are any."""
        kept = {key: row for key, row in self.row_of.items() if wanted(key)}
        if len(kept) < len(self.row_of):
            rows = np.fromiter(kept.values(), np.int64, len(kept))
            self._times, self._totals = self._times[rows], self._totals[rows]
            self.row_of = {key: row for row, key in enumerate(kept)}
            self._rows_used, self._free = len(kept), []
            self._numbered += 1

    def forget(self, keys: Iterable[Key]) -> None:
        """The others keep their rows; those of these are given to other counters."""
        rows = [self.row_of.pop(key) for key in keys if key in self.row_of]
        self._times[rows] = _MISSING
        self._free += rows

    def not_read_since(self, at: float) -> list[Key]:
        """The counters that were not read at or after this time."""
        unread = self._times[: self._rows_used, -1] < at
        return [key for key, row in self.row_of.items() if unread[row]] if unread.any() else []

    def begin_anew(self, keys: Iterable[Key]) -> None:
        """What was read of these does not count any more."""
        self._times[[self.row_of[key] for key in keys if key in self.row_of]] = _MISSING

    @property
    def numbering(self) -> int:
        """Another value whenever a counter gets a row, or another one."""
        return self._numbered

    @property
    def rows(self) -> int:
        """All rows are below; some may belong to no counter."""
        return self._rows_used

    def read(self, rows: Rows) -> NDArray[np.bool_]:
        """Which of these counters were read at all."""
        found: NDArray[np.bool_] = self._times[rows, -1] > _MISSING
        return found

    def rows_of(self, keys: Collection[Key]) -> Rows:
        """-1 for counters that were never read."""
        return np.fromiter((self.row_of.get(key, -1) for key in keys), np.int64, len(keys))

    def first_at(self, rows: Rows) -> Floats:
        """When the oldest samples that are kept of each counter were read."""
        times = self._times[rows]
        oldest: Floats = np.where(times > _MISSING, times, np.inf).min(axis=1, initial=np.inf)
        return oldest

    def last_at(self, rows: Rows) -> Floats:
        """When each counter was read last."""
        newest: Floats = self._times[rows, -1]
        return newest

    def last(self, rows: Rows) -> NDArray[np.uint64]:
        """What each counter said last, exactly."""
        newest: NDArray[np.uint64] = self._totals[rows, -1]
        return newest

    def rates_bps(self, rows: Rows, instants: Floats) -> Floats:
        """Bytes counted between consecutive instants, a row of which is given per counter, in bit/s; NaN where the
        samples do not reach."""
        totals, _ = self._between(rows, instants)
        return 8 * np.diff(totals, axis=1) / np.diff(instants, axis=1)

    def read_near(self, rows: Rows, instants: Floats) -> tuple[Floats, Floats]:
        """Return what each counter said at its row of instants, relative to its newest sample, NaN before the oldest
        one; and how many seconds each instant is away from a sample, 0 where the counter stood still. After its newest
        sample it is taken to stand still if it did before, else nothing is known."""
        times = self._times[rows]
        apart = np.abs(times[:, None, :] - instants[:, :, None]).min(axis=2, initial=np.inf)
        totals, more = self._between(rows, np.minimum(instants, times[:, -1:]))
        stood_still = self._totals[rows, -1:] == self._totals[rows, -2:-1]
        known = (instants <= times[:, -1:]) | (stood_still & (times[:, -2:-1] > _MISSING))
        return np.where(known, totals, np.nan), np.where(more > 0, apart, 0.0)

    def sampled_before(self, rows: Rows, instants: Floats) -> Floats:
        """Return the time of the newest sample at or before each instant, and the instant itself where there is none;
        a row of instants per counter."""
        times = self._times[rows][:, None, :]
        newest = np.where(times <= instants[:, :, None], times, _MISSING).max(axis=2, initial=_MISSING)
        return np.where(newest > _MISSING, newest, instants)

    def recent_bps(self, rows: Rows, window_s: float) -> Floats:
        """Over the last ``window_s`` of samples, or as much of it as there are; NaN before two samples."""
        end = self.last_at(rows)
        start = np.maximum(self.first_at(rows), end - window_s)
        enough = start < end
        instants = np.stack([start[enough], end[enough]], axis=1)
        rates = np.full(len(rows), np.nan)
        rates[enough] = self.rates_bps(rows[enough], instants)[:, 0]
        return rates

    def since(self, rows: Rows, at: float) -> tuple[float, float] | None:
        """Between the first and the last sample of each after ``at``: the shortest time (s) and the most bytes; None
        while some counter has no two."""
        times, totals = self._times[rows], self._totals[rows]
        first = (times <= at).sum(axis=1)
        if (first > DEPTH - 2).any():
            return None
        place = np.arange(len(rows))
        counted = totals[:, -1] - totals[place, first]
        return float((times[:, -1] - times[place, first]).min()), float(counted.max())

    def most_bps(self, rows: Rows, window_s: float) -> Floats:
        """The most that the mean over the last ``window_s`` of samples can be; infinite where there are few samples.
        Quickly worked out."""
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
        """Return totals, interpolated, relative to the newest sample, NaN outside the samples; and how much was counted
        between the two samples around each instant."""
        times, totals = self._times[rows], self._totals[rows]
        since = -(totals[:, -1:] - totals).astype(np.float64)  # unsigned: right across a wrap
        right = (times[:, None, :] <= instants[:, :, None]).sum(axis=2)
        after = np.minimum(right, DEPTH - 1)
        before = np.maximum(right - 1, 0)
        start, end = np.take_along_axis(times, before, 1), np.take_along_axis(times, after, 1)
        low, high = np.take_along_axis(since, before, 1), np.take_along_axis(since, after, 1)
        between = end > start
        share = np.where(between, (instants - start) / np.where(between, end - start, 1.0), 0.0)
        known = (right > 0) & (start > _MISSING) & ((right < DEPTH) | (instants <= times[:, -1:]))
        return np.where(known, low + (high - low) * share, np.nan), high - low


class LinkStatus(NamedTuple):
    """Of a link that was counted. ``bytes_total``: what the port of the switch says, since the switch began to count.
    ``rate_bps``: in bit/s over the load window, None before two samples. ``background_bps``: None until a whole window
    was measured."""

    bytes_total: int
    rate_bps: float | None
    background_bps: float | None


class LinkFigures(Mapping[LinkId, LinkStatus]):
    """Of the links that were counted. ``place``: of each of them in the arrays: cumulative bytes, bit/s, bit/s; NaN
    where a rate is not known."""

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
        return LinkStatus(int(self._bytes[at]), known(self._rate_bps[at]), known(self._background_bps[at]))

    def __iter__(self) -> Iterator[LinkId]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)

    def items(self) -> ItemsView[LinkId, LinkStatus]:
        return _Items(self)


class _Items(ItemsView[LinkId, LinkStatus]):
    _mapping: LinkFigures

    def __iter__(self) -> Iterator[tuple[LinkId, LinkStatus]]:
        """All together: numbers of arrays one by one take much longer."""
        figures = self._mapping
        columns = (figures._bytes.tolist(), _or_none(figures._rate_bps), _or_none(figures._background_bps))
        rows = list(zip(*columns, strict=True))
        return ((link, LinkStatus(*rows[at])) for link, at in figures._place.items())


def _or_none(values: Floats) -> list[float | None]:
    """None for NaN."""
    return [None if value != value else value for value in values.tolist()]


def known(value: np.float64) -> float | None:
    """None for NaN."""
    return None if np.isnan(value) else float(value)


class RecentFigures:
    """Keeps the figures of links up to date: only of those that were counted anew. ``links``: their samples."""

    def __init__(self, links: Samples[LinkId], window_s: float) -> None:
        self._links = links
        self._window_s = window_s
        self._rates_bps = np.zeros(0)
        self._counted: list[Rows] = []
        self._readings = 0
        self._found = Memo(self._find)
        self._spread = Memo(_spread)
        self._figures = Memo(self._make)

    def counted(self, rows: Rows) -> None:
        """There are new samples of these."""
        self._counted.append(rows)
        self._readings += 1

    def renumbered(self) -> None:
        """Rows have other numbers."""
        self._rates_bps = np.zeros(0)
        self._counted = [np.arange(len(self._links.row_of))]
        self._readings += 1

    def rates_bps(self) -> Floats:
        """Of every row of samples, over the window or as much of it as there are samples; NaN before two."""
        new = len(self._links.row_of) - len(self._rates_bps)
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
        """Of every link of the fabric that was counted, host links too. ``background_bps``: where there is any;
        ``measured``: whether a whole window was measured; other objects whenever they change. The same object as before
        when nothing has changed."""
        place, rows = self._found(fabric.links, fabric.hosts, self._links.numbering)
        return self._figures(place, rows, self._spread(background_bps, measured, place), self._readings)

    def _find(
        self, links: Mapping[LinkId, Link], hosts: Mapping[str, Host], _numbering: int
    ) -> tuple[Mapping[LinkId, int], Rows]:
        """Return the links that have samples, each with its place, and their rows in this order."""
        at_hosts = (link for host in hosts.values() for link in (host.uplink, host.downlink))
        counted = [link for link in dict.fromkeys((*links, *at_hosts)) if link in self._links.row_of]
        return {link: at for at, link in enumerate(counted)}, self._links.rows_of(counted)

    def _make(self, place: Mapping[LinkId, int], rows: Rows, background_bps: Floats, _readings: int) -> LinkFigures:
        return LinkFigures(place, self._links.last(rows), self.rates_bps()[rows], background_bps)


def _spread(values: Mapping[LinkId, float], measured: Mapping[LinkId, bool], place: Mapping[LinkId, int]) -> Floats:
    """NaN where nothing was measured, 0 where there is no value."""
    spread = np.array([0.0 if measured.get(link) else np.nan for link in place])
    for link, value in values.items():
        if link in place and measured.get(link):
            spread[place[link]] = value
    return spread
