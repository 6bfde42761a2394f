"""Frozen mappings that are cheap to copy with a few changes, and derived values that are computed only on changes.

A ``SharedMap`` may have tens of thousands of entries. A changed copy shares the unchanged entries with the original,
and records which keys changed. So making a copy, and comparing two such mappings, takes time in proportion to the
number of changes.

A derived value (``Row``) is computed by a function from inputs, and kept as long as the inputs stay the same. Two
inputs are the same if they are the same object, because snapshots are frozen. Plain values (numbers, texts, tuples,
frozen sets) are also the same if they are equal.

A ``Histogram`` of durations has frozen counts, which one thread replaces and others read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, ItemsView, Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, compress
from operator import is_, is_not
from typing import Any, Generic, NamedTuple, TypeVar, TypeVarTuple, cast, overload

Key = TypeVar("Key", bound=Hashable)
Other = TypeVar("Other", bound=Hashable)
Value = TypeVar("Value")
Inputs = TypeVarTuple("Inputs")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")

FEW = 128
"""Largest number of entries of a mapping that is not divided into pieces.

Such a mapping keeps the order of its entries; larger mappings have no order."""

FULL = 16
"""Mean number of entries per piece above which the mapping is divided into more pieces."""

MOST_PIECES = 4096
"""Largest number of pieces. Each change copies the list of pieces, so this bounds its cost."""

STEPS = 16
"""Number of latest changes whose keys a mapping records."""


class SharedMap(Mapping[Key, Value]):
    """Frozen mapping, divided into pieces by the hashes of the keys. Values must not be None."""

    __slots__ = ("_pieces", "_size", "_steps", "_version")

    _pieces: tuple[dict[Key, Value], ...]
    _size: int
    _version: object
    """Object that identifies this mapping; each mapping has its own."""
    _steps: tuple[tuple[object, tuple[Key, ...]], ...]
    """Latest changes that led to this mapping, oldest first: version before the change, and changed keys."""

    def __init__(self, entries: Mapping[Key, Value] | None = None) -> None:
        pieces = entries._pieces if isinstance(entries, SharedMap) else ({**entries} if entries else {},)
        self._set(pieces, len(entries or ()))

    @classmethod
    def of(cls, entries: Mapping[Key, Value]) -> SharedMap[Key, Value]:
        """Return the mapping itself if it is a ``SharedMap``, else a copy that is a ``SharedMap``."""
        return entries if isinstance(entries, SharedMap) else cls(entries)

    @classmethod
    def _made(
        cls, pieces: tuple[dict[Key, Value], ...], size: int, steps: tuple[tuple[object, tuple[Key, ...]], ...] = ()
    ) -> SharedMap[Key, Value]:
        made = cls.__new__(cls)
        made._set(pieces, size, steps)
        return made

    def _set(
        self, pieces: tuple[dict[Key, Value], ...], size: int, steps: tuple[tuple[object, tuple[Key, ...]], ...] = ()
    ) -> None:
        self._pieces, self._size = _divided(pieces, size), size
        self._version, self._steps = object(), steps

    def __reduce__(self) -> tuple[type[SharedMap[Key, Value]], tuple[dict[Key, Value]]]:
        """Pickle the entries only, because hashes differ in another process."""
        return SharedMap, (dict(self.items()),)

    def __getitem__(self, key: Key) -> Value:
        return self._pieces[hash(key) & (len(self._pieces) - 1)][key]

    def get(self, key: Key, default: Value | None = None) -> Value | None:  # type: ignore[override]
        return self._pieces[hash(key) & (len(self._pieces) - 1)].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._pieces[hash(key) & (len(self._pieces) - 1)]

    def __iter__(self) -> Iterator[Key]:
        return chain.from_iterable(self._pieces)

    def __len__(self) -> int:
        return self._size

    def items(self) -> ItemsView[Key, Value]:
        return _Items(self)

    def values(self) -> ValuesView[Value]:
        return _Values(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SharedMap) and len(self._pieces) == len(other._pieces):
            return self._pieces == other._pieces  # pieces that are the same objects compare at once
        if isinstance(other, Mapping):
            return len(other) == self._size and all(
                (found := other.get(key)) is value or found == value for key, value in self.items()
            )
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SharedMap({dict(self.items())!r})"

    def updated(self, changes: Mapping[Key, Value | None]) -> SharedMap[Key, Value]:
        """Return the mapping with these values, where None removes a key; ``self`` if there are none."""
        if not changes:
            return self
        pieces, last, size = list(self._pieces), len(self._pieces) - 1, self._size
        copied: dict[int, dict[Key, Value]] = {}
        for key, value in changes.items():
            number = hash(key) & last
            if number not in copied:
                copied[number] = pieces[number] = pieces[number].copy()
                size -= len(copied[number])
            if value is None:
                copied[number].pop(key, None)
            else:
                copied[number][key] = value
        size += sum(map(len, copied.values()))
        return self._made(tuple(pieces), size, (*self._steps[1 - STEPS :], (self._version, tuple(changes))))

    def maybe_other(self, other: SharedMap[Key, Value]) -> Iterable[Key] | None:
        """Return the keys that have changed in either mapping since their latest common predecessor.

        Some of these keys may have equal values in both mappings. Returns None if no common predecessor is known."""
        mine, theirs = self._steps[-1:], other._steps[-1:]
        if mine and mine[0][0] is other._version:
            return mine[0][1]
        if mine and theirs and mine[0][0] is theirs[0][0]:
            return {**dict.fromkeys(mine[0][1]), **dict.fromkeys(theirs[0][1])}
        known = {version: back for back, version in enumerate(self._versions())}
        for back, version in enumerate(other._versions()):
            if version in known:
                steps = self._steps[len(self._steps) - known[version] :], other._steps[len(other._steps) - back :]
                return dict.fromkeys(chain.from_iterable(keys for _, keys in chain.from_iterable(steps)))
        return None

    def _versions(self) -> Iterator[object]:
        yield self._version
        yield from (version for version, _ in reversed(self._steps))

    def part(self, keys: Iterable[Key]) -> dict[Key, Value]:
        """Return the entries with these keys; missing keys are left out."""
        pieces, last = self._pieces, len(self._pieces) - 1
        found = [(key, pieces[hash(key) & last].get(key)) for key in keys]
        return {key: value for key, value in found if value is not None}

    def become(self, entries: Mapping[Key, Value]) -> SharedMap[Key, Value]:
        """Return a mapping with exactly these entries, which shares unchanged pieces with this one.

        Compares all entries."""
        return self.updated({key: value for key, _, value in differing(self, entries)})

    def like(self, other: Mapping[Key, Value]) -> Mapping[Key, Value]:
        """Return a mapping with the entries of this one, which shares as much as possible with ``other``.

        The result is ``other`` itself if all entries are equal. Otherwise it is this mapping, or a copy of it that
        takes its equal pieces from ``other``. Later comparisons skip shared pieces."""
        if not isinstance(other, SharedMap):
            return other if self == other else self
        if (keys := self.maybe_other(other)) is not None:
            return other if all(self.get(key) == other.get(key) for key in keys) else self
        if len(other._pieces) != len(self._pieces):
            return other if self == other else self
        pieces, theirs = list(self._pieces), other._pieces
        unequal = [*compress(range(len(pieces)), map(is_not, pieces, theirs))]
        equal = [number for number in unequal if pieces[number] == theirs[number]]
        if len(equal) == len(unequal):
            return other
        for number in equal:
            pieces[number] = theirs[number]
        return self._made(tuple(pieces), self._size) if equal else self


class _Items(ItemsView[Key, Value], Generic[Key, Value]):
    _mapping: SharedMap[Key, Value]

    def __iter__(self) -> Iterator[tuple[Key, Value]]:
        return chain.from_iterable(piece.items() for piece in self._mapping._pieces)


class _Values(ValuesView[Value], Generic[Value]):
    _mapping: SharedMap[Hashable, Value]

    def __iter__(self) -> Iterator[Value]:
        return chain.from_iterable(piece.values() for piece in self._mapping._pieces)


def _divided(pieces: tuple[dict[Key, Value], ...], size: int) -> tuple[dict[Key, Value], ...]:
    """Return the pieces, divided further if they are too full; their number is a power of two."""
    if size <= (FEW if len(pieces) == 1 else FULL * len(pieces)) or len(pieces) == MOST_PIECES:
        return pieces
    count = min(1 << (4 * size // FULL).bit_length(), MOST_PIECES)
    divided: tuple[dict[Key, Value], ...] = tuple({} for _ in range(count))
    for key, value in chain.from_iterable(piece.items() for piece in pieces):
        divided[hash(key) & (count - 1)][key] = value
    return divided


def like(entries: Mapping[Key, Value], other: Mapping[Key, Value]) -> Mapping[Key, Value]:
    """Return the result of ``SharedMap.like`` for any mappings."""
    return other if entries is other else SharedMap.of(entries).like(other)


def updated(entries: Mapping[Key, Value], changes: Mapping[Key, Value | None]) -> Mapping[Key, Value]:
    """Return the result of ``SharedMap.updated`` for any mapping."""
    return SharedMap.of(entries).updated(changes) if changes else entries


def unequal(
    before: Mapping[Key, Value], now: Mapping[Key, Value]
) -> Iterator[tuple[Mapping[Key, Value], Mapping[Key, Value]]]:
    """Yield pairs of mappings, as small as possible, that contain every difference between ``before`` and ``now``.

    The mappings of a pair have the entries of the same keys: the first one those in ``before``, the second one those in
    ``now``. A key whose entries differ occurs in one pair, any other key in at most one pair."""
    if before is now:
        return
    if not (isinstance(before, SharedMap) and isinstance(now, SharedMap)):
        yield before, now
    elif (keys := now.maybe_other(before)) is not None:
        yield before.part(keys), now.part(keys)
    elif len(before._pieces) == len(now._pieces):
        both = zip(before._pieces, now._pieces, strict=True)
        yield from compress(both, map(is_not, before._pieces, now._pieces))
    else:
        yield before, now


def differing(
    before: Mapping[Key, Value], now: Mapping[Key, Value]
) -> Iterator[tuple[Key, Value | None, Value | None]]:
    """Yield (key, value before, value now) for each key whose values are different objects; None if missing."""
    for old, new in unequal(before, now):
        for key, value in new.items():
            was = old.get(key)
            if was is not value:
                yield key, was, value
        for key, was in old.items():
            if key not in new:
                yield key, was, None


class Edits(Generic[Key, Value]):
    """Changes of a mapping that are collected, and applied together later."""

    def __init__(self, entries: Mapping[Key, Value]) -> None:
        self.changed: dict[Key, Value | None] = {}
        """New values by key; None removes an entry."""
        self._entries = entries

    def get(self, key: Key) -> Value | None:
        """Return the value of the key after the changes."""
        return self.changed[key] if key in self.changed else self._entries.get(key)


def subtract(counts: Counter[Key], key: Key) -> None:
    """Subtract one from the count of a key. Counts of 0 are removed, because peers may use any number of keys."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


_PLAIN = (tuple, frozenset, str, int, float, type(None))


def same(before: object, now: object) -> bool:
    """Return whether a value derived from the input ``before`` is still valid for the input ``now``."""
    return before is now or (isinstance(now, _PLAIN) and before == now)


class Memo(Generic[*Inputs, Value]):
    """Function with a memory for its last result, which is returned again as long as the arguments are the same."""

    def __init__(self, function: Callable[[*Inputs], Value]) -> None:
        self._function = function
        self._last: tuple[tuple[*Inputs], Value] | None = None

    def __call__(self, *inputs: *Inputs) -> Value:
        last = self._last
        if last is None or not (all(map(is_, last[0], inputs)) or all(map(same, last[0], inputs))):
            self._last = last = inputs, self._function(*inputs)
        return last[1]


class Row(Generic[*Inputs, Value]):
    """Derived value: a ``Memo`` together with its inputs."""

    def __init__(self, function: Callable[[*Inputs], Value], inputs: Callable[[], tuple[*Inputs]]) -> None:
        self._value = Memo(function)
        self._inputs = inputs

    def __call__(self) -> Value:
        return self._value(*self._inputs())

    def later(self) -> Callable[[], Value]:
        """Return a function that derives the value later, from the inputs of this moment."""
        return partial(self._value, *self._inputs())


def when(
    condition: Callable[[], object], row: Callable[[], Value], otherwise: Callable[[], Value]
) -> Callable[[], Value]:
    """Return a function that returns the value of ``row`` while the condition is true, else of ``otherwise``.

    While the condition is false, ``row`` is not derived."""
    return lambda: row() if condition() else otherwise()


class Touched(NamedTuple, Generic[Key]):
    """Keys whose entries have changed since the last call."""

    changed: list[Key]
    """Keys that are new or have another value."""
    gone: list[Key]
    """Keys that were removed."""


class ChangedKeys(Generic[Key]):
    """Detection of the keys whose entries in any of several mappings have changed since the last call.

    For a ``SharedMap``, only entries that may have changed are examined."""

    def __init__(self) -> None:
        self._before: tuple[Mapping[Key, object], ...] | None = None

    def __call__(self, mapping: Mapping[Key, object], *beside: Mapping[Key, object]) -> Touched[Key]:
        """Return the changed keys: as ``changed`` those that ``mapping`` has, as ``gone`` all others.

        At the first call, all keys of ``mapping`` count as changed."""
        before, self._before = self._before, (mapping, *beside)
        if before is None:
            return Touched(list(mapping), [])
        touched = dict.fromkeys(chain.from_iterable(map(_changed, before, self._before)))
        return Touched([key for key in touched if key in mapping], [key for key in touched if key not in mapping])


def _changed(before: Mapping[Key, object], now: Mapping[Key, object]) -> Iterator[Key]:
    return (key for key, was, value in differing(before, now) if not same(was, value))


class _Kept(Generic[Key, Value]):
    def __init__(self) -> None:
        self._known: SharedMap[Key, Value] = SharedMap()

    def __call__(self, values: Mapping[Key, Value | None], gone: Iterable[Key]) -> Mapping[Key, Value]:
        """Change these values, where None removes one, and return the mapping: the same object if no value changes."""
        changes = {key: value for key, value in values.items() if not same(self._known.get(key), value)}
        self._known = self._known.updated({**changes, **dict.fromkeys(key for key in gone if key in self._known)})
        return self._known


@overload
def per_key(function: Callable[[Key, A], Value | None]) -> Callable[[Mapping[Key, A]], Mapping[Key, Value]]: ...
@overload
def per_key(
    function: Callable[[Key, A, B | None], Value | None],
) -> Callable[[Mapping[Key, A], Mapping[Key, B]], Mapping[Key, Value]]: ...
@overload
def per_key(
    function: Callable[[Key, A, B | None, C | None], Value | None],
) -> Callable[[Mapping[Key, A], Mapping[Key, B], Mapping[Key, C]], Mapping[Key, Value]]: ...
def per_key(function: Callable[..., Any]) -> Callable[..., Mapping[Any, Any]]:
    """Return a function that derives a mapping whose values depend on the entries with the same key in other mappings.

    ``function`` gets a key of the first mapping, and its value in each mapping, None if missing. It returns the derived
    value, or None to leave the key out. It is called only if one of these values has changed since the last call. The
    derived mapping is the same object while no value changes."""
    changed_keys, kept = ChangedKeys[Any](), _Kept[Any, Any]()

    def derive(mapping: Mapping[Any, Any], *beside: Mapping[Any, Any]) -> Mapping[Any, Any]:
        changed, gone = changed_keys(mapping, *beside)
        return kept({key: function(key, mapping[key], *(one.get(key) for one in beside)) for key in changed}, gone)

    return derive


def joined(
    refers_to: Callable[[A], Set[Other]], function: Callable[[A, *Inputs], Value | None]
) -> Callable[[Mapping[Any, A], *Inputs], Mapping[Any, Value]]:
    """Return a function that derives a mapping from another mapping, and from tables to which its values refer.

    ``refers_to`` returns the keys of the table entries on which a value depends. ``function`` gets the value and the
    tables, and returns the derived value, or None to leave the key out. It is called only if the value or an entry to
    which it refers has changed. The derived mapping is the same object while no value changes."""
    changed_keys, kept, before = ChangedKeys[Any](), _Kept[Any, Value](), list[Mapping[Any, object]]()

    def derive(mapping: Mapping[Any, A], *tables: *Inputs) -> Mapping[Any, Value]:
        changed, gone = changed_keys(mapping)
        now = cast(Sequence[Mapping[Any, object]], tables)
        others = set(chain.from_iterable(map(_changed, before, now)))
        before[:] = now
        found = dict.fromkeys(changed)
        if others:
            found |= dict.fromkeys(key for key, value in mapping.items() if not others.isdisjoint(refers_to(value)))
        return kept({key: function(mapping[key], *tables) for key in found}, gone)

    return derive


class Index(Generic[Key, A, Other]):
    """Index of a mapping: for each thing, the keys whose values refer to it. Only changed entries are examined.

    ``refers_to``: returns the things that a value refers to. ``always``: things that are in the index even if nothing
    refers to them."""

    def __init__(self, refers_to: Callable[[A], Iterable[Other]], always: Iterable[Other] = ()) -> None:
        self._refers_to = refers_to
        self._always = frozenset(always)
        self._before: Mapping[Key, A] = {}
        self._found: SharedMap[Other, frozenset[Key]] = SharedMap(dict.fromkeys(self._always, frozenset()))

    def __call__(self, mapping: Mapping[Key, A]) -> Mapping[Other, frozenset[Key]]:
        """Return the keys by thing; the same object while nothing changes."""
        before, self._before = self._before, mapping
        less, more = defaultdict[Other, set[Key]](set), defaultdict[Other, set[Key]](set)
        for key, was, value in differing(before, mapping):
            old = set(self._refers_to(was)) if was is not None else set[Other]()
            new = set(self._refers_to(value)) if value is not None else set[Other]()
            for other in old - new:
                less[other].add(key)
            for other in new - old:
                more[other].add(key)
        changes: dict[Other, frozenset[Key] | None] = {}
        for other in less.keys() | more.keys():
            keys = (self._found.get(other) or frozenset[Key]()) - less[other] | more[other]
            changes[other] = keys if keys or other in self._always else None
        self._found = self._found.updated(changes)
        return self._found


class MemoPerKey(Generic[Key, *Inputs, Value]):
    """Values by key, each remembered as by a ``Memo``. A call without a key forgets this key."""

    def __init__(self, function: Callable[[*Inputs], Value]) -> None:
        self._function = function
        self._known: dict[Key, tuple[tuple[*Inputs], Value]] = {}
        self._values: Mapping[Key, Value] = {}

    def __call__(self, inputs_of: Mapping[Key, tuple[*Inputs]]) -> Mapping[Key, Value]:
        """Return the value of every key; the same mapping as at the last call if no value has changed."""
        before, known_now = self._known, {}
        changed = list(before) != list(inputs_of)
        for key, inputs in inputs_of.items():
            known = before.get(key)
            if known is None or not all(map(same, known[0], inputs)):
                value = self._function(*inputs)
                changed = changed or known is None or not same(known[1], value)
                known = inputs, value
            known_now[key] = known
        self._known = known_now
        if changed:
            self._values = {key: value for key, (_, value) in known_now.items()}
        return self._values


# ---- histograms


def _each_decade(*steps: float) -> tuple[float, ...]:
    """Return bounds from 1 ms to less than 100 s. ``steps``: bounds of one decade, from 1 to less than 10."""
    return tuple(round(step * decade, 6) for decade in (0.001, 0.01, 0.1, 1.0, 10.0) for step in steps)


SECONDS = _each_decade(1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.3, 8.0)
"""Bounds in seconds, ten per decade (ISO 3, R 10).

A percentile that is estimated from the counts is wrong by at most a quarter."""
FEW_SECONDS = _each_decade(1.0, 2.5, 5.0)
"""Bounds in seconds, three per decade, for metrics with many histograms."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Frozen histogram: number of values in each interval."""

    bounds: tuple[float, ...] = SECONDS
    """Upper bounds of the intervals, ascending; an interval includes its upper bound."""
    counts: tuple[int, ...] = ()
    """Number of values in each interval, and finally of values above all bounds. Empty if there are no values."""
    total: float = 0.0
    """Sum of the values."""

    def observed(self, *values: float) -> Histogram:
        """Return the histogram with these values added."""
        counts = list(self.counts) or [0] * (len(self.bounds) + 1)
        for value in values:
            counts[bisect_left(self.bounds, value)] += 1
        return Histogram(self.bounds, tuple(counts), self.total + sum(values))

    @property
    def buckets(self) -> Iterator[tuple[str, int]]:
        """Buckets as in Prometheus: number of values up to each bound, and the total number."""
        counts = self.counts or (0,) * (len(self.bounds) + 1)
        return zip((*map(str, self.bounds), "+Inf"), accumulate(counts), strict=True)
