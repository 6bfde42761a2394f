"""Caching of derived values: the last result of a function, as long as its inputs stay the same.

Snapshots are frozen and replaced when they change, so two inputs are the same if they are the same object. Plain values
(numbers, texts, tuples, frozen sets) are also the same if they are equal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar, TypeVarTuple, cast, overload

from controller.shared_map import SharedMap, differing

Key = TypeVar("Key", bound=Hashable)
Other = TypeVar("Other", bound=Hashable)
Value = TypeVar("Value")
Inputs = TypeVarTuple("Inputs")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")

_PLAIN = (tuple, frozenset, str, int, float, type(None))


def same(before: object, now: object) -> bool:
    """Return whether a value that was derived from ``before`` is valid for ``now``."""
    return before is now or (isinstance(now, _PLAIN) and before == now)


class Memo(Generic[*Inputs, Value]):
    """Function that is called again only when an input has changed since the last call."""

    def __init__(self, function: Callable[[*Inputs], Value]) -> None:
        self._function = function
        self._last: tuple[tuple[*Inputs], Value] | None = None

    def __call__(self, *inputs: *Inputs) -> Value:
        if self._last is None or not all(map(same, self._last[0], inputs)):
            self._last = inputs, self._function(*inputs)
        return self._last[1]


class Row(Generic[*Inputs, Value]):
    """Derived value: a ``Memo`` together with its inputs."""

    def __init__(self, function: Callable[[*Inputs], Value], inputs: Callable[[], tuple[*Inputs]]) -> None:
        self._value = Memo(function)
        self._inputs = inputs

    def __call__(self) -> Value:
        return self._value(*self._inputs())

    def later(self) -> Callable[[], Value]:
        """Return a function that derives the value from the present inputs when it is called."""
        return partial(self._value, *self._inputs())


def when(
    condition: Callable[[], object], row: Callable[[], Value], otherwise: Callable[[], Value]
) -> Callable[[], Value]:
    """Return a function that returns the value of ``row`` while the condition is true, else of ``otherwise``.

    While the condition is false, ``row`` is not derived."""
    return lambda: row() if condition() else otherwise()


class Touched(NamedTuple, Generic[Key]):
    """Keys with changes since the last call."""

    changed: list[Key]
    """Keys that are new or have another value."""
    gone: list[Key]
    """Keys that were removed."""


class ChangedKeys(Generic[Key]):
    """Detection of the keys whose entries, in any of several mappings, changed since the last call.

    For a ``SharedMap``, only entries that may have changed are examined."""

    def __init__(self) -> None:
        self._before: tuple[Mapping[Key, object], ...] | None = None

    def __call__(self, mapping: Mapping[Key, object], *beside: Mapping[Key, object]) -> Touched[Key]:
        """Return the keys with changes, divided by whether ``mapping`` has the key.

        At the first call, all keys of ``mapping`` count as changed."""
        before, self._before = self._before, (mapping, *beside)
        if before is None:
            return Touched(list(mapping), [])
        touched = dict.fromkeys(chain.from_iterable(map(_changed, before, self._before)))
        return Touched([key for key in touched if key in mapping], [key for key in touched if key not in mapping])


def _changed(before: Mapping[Key, object], now: Mapping[Key, object]) -> Iterator[Key]:
    return (key for key, was, value in differing(before, now) if not same(was, value))


class _Kept(Generic[Key, Value]):
    """Derived mapping of which a few values change at a time."""

    def __init__(self) -> None:
        self._known: SharedMap[Key, Value] = SharedMap()

    def __call__(self, values: Mapping[Key, Value | None], gone: Iterable[Key]) -> Mapping[Key, Value]:
        """Return the mapping with these values, where None means no value; the same object while no value changes."""
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
    """Return a function that derives a mapping, each value from the entries of its key in other mappings.

    ``function`` gets the key, its value in the first mapping, and its values in the other mappings; a missing value is
    None. ``function`` returns None for a key without a derived value. ``function`` is called only for keys with other
    values than at the last call. The derived mapping is the same object while no value changes."""
    changed_keys, kept = ChangedKeys[Any](), _Kept[Any, Any]()

    def derive(mapping: Mapping[Any, Any], *beside: Mapping[Any, Any]) -> Mapping[Any, Any]:
        changed, gone = changed_keys(mapping, *beside)
        return kept({key: function(key, mapping[key], *(one.get(key) for one in beside)) for key in changed}, gone)

    return derive


def joined(
    refers_to: Callable[[A], Set[Other]], function: Callable[[A, *Inputs], Value | None]
) -> Callable[[Mapping[Any, A], *Inputs], Mapping[Any, Value]]:
    """Return a function that derives a mapping, each value from the same key's value and from entries of tables.

    ``refers_to`` returns the keys of the table entries that a value depends on. ``function`` gets the value and the
    tables, and returns None for a key without a derived value. ``function`` is called for values that have changed, and
    for values that refer to changed entries. The derived mapping is the same object while no value changes."""
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
    """Index of a mapping: the keys whose values refer to a thing, by thing. Only changed entries are examined.

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
    """A ``Memo`` per key; keys that a call does not contain are forgotten."""

    def __init__(self, function: Callable[[*Inputs], Value]) -> None:
        self._function = function
        self._known: dict[Key, tuple[tuple[*Inputs], Value]] = {}
        self._values: Mapping[Key, Value] = {}

    def __call__(self, inputs_of: Mapping[Key, tuple[*Inputs]]) -> Mapping[Key, Value]:
        """Return the value of every key; the same mapping as last time if no value has changed."""
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
