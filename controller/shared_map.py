"""Frozen mappings with tens of thousands of entries of which few change at a time.

One is made from the other, and what has not changed is shared between them. So both a change and the difference of two
of them cost what has changed, not what there is.
"""

from __future__ import annotations

from collections.abc import Hashable, ItemsView, Iterator, Mapping, ValuesView
from itertools import chain, compress
from operator import is_not
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

FEW = 128
"""Up to so many entries are one piece, in the order in which they came. More are in no particular order."""

PIECES = 256
"""A power of two."""


class SharedMap(Mapping[Key, Value]):
    """Its entries are in pieces, divided by the hashes of their keys. No value is None."""

    __slots__ = ("_pieces", "_size")

    _pieces: tuple[dict[Key, Value], ...]
    _size: int

    def __init__(self, entries: Mapping[Key, Value] | None = None) -> None:
        if isinstance(entries, SharedMap):
            self._pieces, self._size = entries._pieces, entries._size
        else:
            self._pieces, self._size = _divided(({**entries} if entries else {},))

    @classmethod
    def of(cls, entries: Mapping[Key, Value]) -> SharedMap[Key, Value]:
        """Itself, if it is one."""
        return entries if isinstance(entries, SharedMap) else cls(entries)

    @classmethod
    def _of_pieces(cls, pieces: tuple[dict[Key, Value], ...]) -> SharedMap[Key, Value]:
        made = cls.__new__(cls)
        made._pieces, made._size = _divided(pieces)
        return made

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
        pieces, last = list(self._pieces), len(self._pieces) - 1
        copied: dict[int, dict[Key, Value]] = {}
        for key, value in changes.items():
            number = hash(key) & last
            if number not in copied:
                copied[number] = pieces[number] = pieces[number].copy()
            if value is None:
                copied[number].pop(key, None)
            else:
                copied[number][key] = value
        return self._of_pieces(tuple(pieces))

    def become(self, entries: Mapping[Key, Value]) -> SharedMap[Key, Value]:
        """These entries, made from this mapping. Looks at all of them."""
        return self.updated({key: value for key, _, value in differing(self, entries)})

    def like(self, other: Mapping[Key, Value]) -> Mapping[Key, Value]:
        """The same entries, with the pieces of the other mapping where they are equal, which need not be compared
        again; the other mapping itself if all are."""
        if not isinstance(other, SharedMap) or len(other._pieces) != len(self._pieces):
            return other if self == other else self
        pieces, theirs = list(self._pieces), other._pieces
        unequal = [*compress(range(len(pieces)), map(is_not, pieces, theirs))]
        equal = [number for number in unequal if pieces[number] == theirs[number]]
        if len(equal) == len(unequal):
            return other
        for number in equal:
            pieces[number] = theirs[number]
        return self._of_pieces(tuple(pieces)) if equal else self


class _Items(ItemsView[Key, Value], Generic[Key, Value]):
    _mapping: SharedMap[Key, Value]

    def __iter__(self) -> Iterator[tuple[Key, Value]]:
        return chain.from_iterable(piece.items() for piece in self._mapping._pieces)


class _Values(ValuesView[Value], Generic[Value]):
    _mapping: SharedMap[Hashable, Value]

    def __iter__(self) -> Iterator[Value]:
        return chain.from_iterable(piece.values() for piece in self._mapping._pieces)


def _divided(pieces: tuple[dict[Key, Value], ...]) -> tuple[tuple[dict[Key, Value], ...], int]:
    """The pieces, more of them if one is too large; and how many entries they have."""
    size = sum(map(len, pieces))
    if len(pieces) == 1 and size > FEW:
        divided: tuple[dict[Key, Value], ...] = tuple({} for _ in range(PIECES))
        for key, value in pieces[0].items():
            divided[hash(key) & (PIECES - 1)][key] = value
        return divided, size
    return pieces, size


def updated(entries: Mapping[Key, Value], changes: Mapping[Key, Value | None]) -> Mapping[Key, Value]:
    """As ``SharedMap.updated``; the same object without any changes."""
    return SharedMap.of(entries).updated(changes) if changes else entries


def unequal(
    before: Mapping[Key, Value], now: Mapping[Key, Value]
) -> Iterator[tuple[Mapping[Key, Value], Mapping[Key, Value]]]:
    """Both in pairs of pieces, without those that are the same objects: a key is in no piece but those of one pair."""
    if before is now:
        return
    if isinstance(before, SharedMap) and isinstance(now, SharedMap) and len(before._pieces) == len(now._pieces):
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


class Changes(Generic[Key, Value]):
    """``changed``: what is to become of some entries, None for those that go."""

    def __init__(self, entries: Mapping[Key, Value]) -> None:
        self.changed: dict[Key, Value | None] = {}
        self._entries = entries

    def get(self, key: Key) -> Value | None:
        """As it will be."""
        return self.changed[key] if key in self.changed else self._entries.get(key)
