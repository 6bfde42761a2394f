"""Frozen mappings with tens of thousands of entries of which few change at a time.

One is made from the other, and what has not changed is shared between them. Each knows which keys the latest few
changes were about. So both a change and the difference of two of them cost what has changed, not what there is.
"""

from __future__ import annotations

from collections.abc import Hashable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from itertools import chain, compress
from operator import is_not
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

FEW = 128
"""Up to so many entries are one piece, in the order in which they came. More are in no particular order."""

FULL = 16
"""Entries in a piece, on average, above which there are more pieces."""

MOST_PIECES = 4096
"""A change copies the list of them."""

STEPS = 16
"""Changes of which the keys are known."""


class SharedMap(Mapping[Key, Value]):
    """Its entries are in pieces, divided by the hashes of their keys. No value is None."""

    __slots__ = ("_pieces", "_size", "_steps", "_version")

    _pieces: tuple[dict[Key, Value], ...]
    _size: int
    _version: object
    """The same object in no other mapping."""
    _steps: tuple[tuple[object, tuple[Key, ...]], ...]
    """The versions of mappings before this one, the oldest first, each with the keys that were changed then."""

    def __init__(self, entries: Mapping[Key, Value] | None = None) -> None:
        pieces = entries._pieces if isinstance(entries, SharedMap) else ({**entries} if entries else {},)
        self._set(pieces, len(entries or ()))

    @classmethod
    def of(cls, entries: Mapping[Key, Value]) -> SharedMap[Key, Value]:
        """Itself, if it is one."""
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
        """Hashes are others in another process."""
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
            return self._pieces == other._pieces  # pieces that are the same objects are not looked at
        if isinstance(other, Mapping):
            return len(other) == self._size and all(
                key in other and (other[key] is value or other[key] == value) for key, value in self.items()
            )
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SharedMap({dict(self.items())!r})"

    def updated(self, changes: Mapping[Key, Value | None]) -> SharedMap[Key, Value]:
        """With these values, and without the keys whose value is None. The same object without any changes."""
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
        """The keys that changes have been about since both were one mapping, which may have the same values again; None
        when that is not known."""
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
        """The latest first."""
        yield self._version
        yield from (version for version, _ in reversed(self._steps))

    def part(self, keys: Iterable[Key]) -> dict[Key, Value]:
        """The entries with these keys."""
        pieces, last = self._pieces, len(self._pieces) - 1
        found = [(key, pieces[hash(key) & last].get(key)) for key in keys]
        return {key: value for key, value in found if value is not None}

    def become(self, entries: Mapping[Key, Value]) -> SharedMap[Key, Value]:
        """These entries, made from this mapping. Looks at all of them."""
        return self.updated({key: value for key, _, value in differing(self, entries)})

    def like(self, other: Mapping[Key, Value]) -> Mapping[Key, Value]:
        """The other mapping itself, if the entries are the same. Else the same entries as in this one, with pieces of
        the other mapping where it is not known which keys to compare: those need not be compared again."""
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
    """The pieces, more of them if they are too full. Their number is a power of two."""
    if size <= (FEW if len(pieces) == 1 else FULL * len(pieces)) or len(pieces) == MOST_PIECES:
        return pieces
    count = min(1 << (4 * size // FULL).bit_length(), MOST_PIECES)
    divided: tuple[dict[Key, Value], ...] = tuple({} for _ in range(count))
    for key, value in chain.from_iterable(piece.items() for piece in pieces):
        divided[hash(key) & (count - 1)][key] = value
    return divided


def like(entries: Mapping[Key, Value], other: Mapping[Key, Value]) -> Mapping[Key, Value]:
    """As ``SharedMap.like``."""
    return other if entries is other else SharedMap.of(entries).like(other)


def updated(entries: Mapping[Key, Value], changes: Mapping[Key, Value | None]) -> Mapping[Key, Value]:
    """As ``SharedMap.updated``; the same object without any changes."""
    return SharedMap.of(entries).updated(changes) if changes else entries


def unequal(
    before: Mapping[Key, Value], now: Mapping[Key, Value]
) -> Iterator[tuple[Mapping[Key, Value], Mapping[Key, Value]]]:
    """Both in pairs of parts, without what is known to be the same in both: a key is in no part but those of one
    pair."""
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
    """Every key whose value is not the same object in both, with both values; None where it is not."""
    for old, new in unequal(before, now):
        for key, value in new.items():
            was = old.get(key)
            if was is not value:
                yield key, was, value
        for key, was in old.items():
            if key not in new:
                yield key, was, None


class Edits(Generic[Key, Value]):
    """``changed``: what is to become of some entries, None for those that go."""

    def __init__(self, entries: Mapping[Key, Value]) -> None:
        self.changed: dict[Key, Value | None] = {}
        self._entries = entries

    def get(self, key: Key) -> Value | None:
        """As it will be."""
        return self.changed[key] if key in self.changed else self._entries.get(key)
