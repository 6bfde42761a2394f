"""Samples of many cumulative counters, and the figures of links derived from them.

In: totals as they are read. Out: totals and rates at any instants that the samples cover, and the latest figures of all
links as one frozen mapping over arrays. Each counter has a row, newest sample last, so that thousands of counters are
evaluated together. Times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, ItemsView, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from controller.fabric.topology import Fabric, Host, Link, LinkId
from controller.shared_map import Memo

Key = TypeVar("Key", bound=Hashable)
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

DEPTH = 32
"""Largest number of samples per counter; samples that arrive more often are thinned out evenly over the span."""

WRAP = 1 << 48
"""Limit for counters that fell: an increase modulo 2^64 below it is a wrap-around, any other a reset of the counter."""

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

        The history of a counter restarts if the value fell without a wrap-around. The history also restarts if ``at``
        is not later than the last sample, which means that the switch has started again."""
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

    def keep(self, wanted: Callable[[Key], bool]) -> None:
        """Forget all counters that are not ``wanted``. If any counter is forgotten, the rows are numbered again."""
        kept = {key: row for key, row in self.row_of.items() if wanted(key)}
        if len(kept) < len(self.row_of):
            rows = np.fromiter(kept.values(), np.int64, len(kept))
            self._times, self._totals = self._times[rows], self._totals[rows]
            self.row_of = {key: row for row, key in enumerate(kept)}
            self._rows_used, self._free = len(kept), []
            self._numbered += 1

    def forget(self, keys: Iterable[Key]) -> None:
        """Forget these counters. Other counters keep their rows; the free rows are used for new counters."""
        rows = [self.row_of.pop(key) for key in keys if key in self.row_of]
        self._times[rows] = _MISSING
        self._free += rows

    def not_read_since(self, at: float) -> list[Key]:
        """Return the counters that were not read at or after the time ``at``."""
        unread = self._times[: self._rows_used, -1] < at
        return [key for key, row in self.row_of.items() if unread[row]] if unread.any() else []

    def begin_anew(self, keys: Iterable[Key]) -> None:
        """Drop the samples of these counters."""
        self._times[[self.row_of[key] for key in keys if key in self.row_of]] = _MISSING

    @property
    def numbering(self) -> int:
        """Number that changes whenever a counter gets a row or another row, so that callers look up the rows again."""
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
        """Return each counter's value at the instants in its row, and the uncertainty of the instants in seconds.

        Values are relative to the newest sample and NaN before the oldest sample. After its newest sample a counter is
        assumed to keep its value if the last two samples were equal; otherwise the value is NaN. The uncertainty is the
        time from each instant to the nearest sample, or 0 where the counter did not change."""
        times = self._times[rows]
        apart = np.abs(times[:, None, :] - instants[:, :, None]).min(axis=2, initial=np.inf)
        totals, more = self._between(rows, np.minimum(instants, times[:, -1:]))
        stood_still = self._totals[rows, -1:] == self._totals[rows, -2:-1]
        known = (instants <= times[:, -1:]) | (stood_still & (times[:, -2:-1] > _MISSING))
        return np.where(known, totals, np.nan), np.where(more > 0, apart, 0.0)

    def sampled_before(self, rows: Rows, instants: Floats) -> Floats:
        """Return the time of the newest sample at or before each instant, or the instant itself where there is none.

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
        """Return the shortest time and the largest increase between a counter's first and last sample after ``at``.

        The time is in seconds and the increase in bytes; they may be of different counters. Returns None while some
        counter has fewer than two samples after ``at``."""
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


class LinkStatus(NamedTuple):
    """Figures of a link with counters."""

    bytes_total: int
    """Bytes that the port of the switch has counted since the switch started counting."""
    rate_bps: float | None
    """Rate in bit/s over the load window; None while the link has fewer than two samples."""
    background_bps: float | None
    """Background in bit/s; None until it was measured over a whole window."""


class LinkFigures(Mapping[LinkId, LinkStatus]):
    """Figures of all links with counters, kept in arrays.

    ``place``: index of each link in the arrays. Rates are in bit/s, NaN where a rate is not known."""

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
        """Yield all items. Converting whole arrays is much faster than reading their numbers one by one."""
        figures = self._mapping
        columns = (figures._bytes.tolist(), _or_none(figures._rate_bps), _or_none(figures._background_bps))
        rows = list(zip(*columns, strict=True))
        return ((link, LinkStatus(*rows[at])) for link, at in figures._place.items())


def _or_none(values: Floats) -> list[float | None]:
    """Return the values with None for NaN."""
    return [None if value != value else value for value in values.tolist()]


def known(value: np.float64) -> float | None:
    """Return the value, or None for NaN."""
    return None if np.isnan(value) else float(value)


class RecentFigures:
    """Figures of links, recomputed only for links with new samples. ``links``: samples of the links."""

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
        """Record that these rows have new samples."""
        self._counted.append(rows)
        self._readings += 1

    def renumbered(self) -> None:
        """Record that ``Samples`` has numbered its rows again, so that all figures are computed again."""
        self._rates_bps = np.zeros(0)
        self._counted = [np.arange(len(self._links.row_of))]
        self._readings += 1

    def rates_bps(self) -> Floats:
        """Return the rate in bit/s of every row over the window, or over all its samples if they cover less.

        The rate is NaN for rows with fewer than two samples."""
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
        """Return the figures of all links of the fabric with counters, links of hosts included.

        ``background_bps``: background of the links that have any. ``measured``: whether a link was measured over a
        whole window. The caller passes new mappings when values change. The result is the same object while nothing
        changes."""
        place, rows = self._found(fabric.links, fabric.hosts, self._links.numbering)
        return self._figures(place, rows, self._spread(background_bps, measured, place), self._readings)

    def _find(
        self, links: Mapping[LinkId, Link], hosts: Mapping[str, Host], _numbering: int
    ) -> tuple[Mapping[LinkId, int], Rows]:
        """Return the index of each link with samples, and the rows of these links in the same order."""
        at_hosts = (link for host in hosts.values() for link in (host.uplink, host.downlink))
        counted = [link for link in dict.fromkeys((*links, *at_hosts)) if link in self._links.row_of]
        return {link: at for at, link in enumerate(counted)}, self._links.rows_of(counted)

    def _make(self, place: Mapping[LinkId, int], rows: Rows, background_bps: Floats, _readings: int) -> LinkFigures:
        return LinkFigures(place, self._links.last(rows), self.rates_bps()[rows], background_bps)


def _spread(values: Mapping[LinkId, float], measured: Mapping[LinkId, bool], place: Mapping[LinkId, int]) -> Floats:
    """Return the values as an array in the order of ``place``: NaN for links not ``measured``, 0 for missing values."""
    spread = np.array([0.0 if measured.get(link) else np.nan for link in place])
    for link, value in values.items():
        if link in place and measured.get(link):
            spread[place[link]] = value
    return spread
