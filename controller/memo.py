"""The one way to keep a derived value: the last result of a function, as long as its inputs stay the same.

Snapshots are frozen and replaced when they change, so an input is the same when it is the same object. Plain values
(numbers, texts, tuples, frozen sets) are also the same when they are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, TypeVarTuple, overload

from controller.shared_map import SharedMap, differing

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Inputs = TypeVarTuple("Inputs")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")

_PLAIN = (tuple, frozenset, str, int, float, type(None))


def same(before: object, now: object) -> bool:
    """Whether a value that was derived from ``before`` holds for ``now``."""
    return before is now or (isinstance(now, _PLAIN) and before == now)


class Memo(Generic[*Inputs, Value]):
    """``function``, called again only when one of its inputs has changed since the last call."""

    def __init__(self, function: Callable[[*Inputs], Value]) -> None:
        self._function = function
        self._last: tuple[tuple[*Inputs], Value] | None = None

    def __call__(self, *inputs: *Inputs) -> Value:
        if self._last is None or not all(map(same, self._last[0], inputs)):
            self._last = inputs, self._function(*inputs)
        return self._last[1]


class Row(Generic[*Inputs, Value]):
    """A derived value: a ``Memo`` with the inputs that its value follows from."""

    def __init__(self, function: Callable[[*Inputs], Value], inputs: Callable[[], tuple[*Inputs]]) -> None:
        self._value = Memo(function)
        self._inputs = inputs

    def __call__(self) -> Value:
        return self._value(*self._inputs())

    def later(self) -> Callable[[], Value]:
        """Return what derives the value, when it is called, from the inputs as they are now."""
        return partial(self._value, *self._inputs())


class Touched(NamedTuple, Generic[Key]):
    """``changed``: keys that have another value. ``gone``: keys that are not there any more."""

    changed: list[Key]
    gone: list[Key]


class ChangedKeys(Generic[Key]):
    """Which keys of a mapping have another value than at the last call, or have another one in one of the mappings
    beside it, and which are gone. Values are compared by identity: of a ``SharedMap`` only what may have changed is
    looked at."""

    def __init__(self) -> None:
        self._before: tuple[Mapping[Key, object], ...] | None = None

    def __call__(self, mapping: Mapping[Key, object], *beside: Mapping[Key, object]) -> Touched[Key]:
        """All keys at the first call."""
        before, self._before = self._before, (mapping, *beside)
        if before is None:
            return Touched(list(mapping), [])
        pairs = zip(before, self._before, strict=True)
        touched = dict.fromkeys(key for old, new in pairs for key, *_ in differing(old, new))
        return Touched([key for key in touched if key in mapping], [key for key in touched if key not in mapping])


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
    """Derives a mapping each of whose values follows from those of its key in other mappings. ``function`` takes the
    key, its value in the first mapping, and in those beside it, None where it is not; None: there is no value. It is
    called for keys that have other values than at the last call. The same mapping while no value changes."""
    changed, known = ChangedKeys[Any](), SharedMap[Any, Any]()

    def derive(mapping: Mapping[Any, Any], *beside: Mapping[Any, Any]) -> Mapping[Any, Any]:
        nonlocal known
        touched = changed(mapping, *beside)
        values = {key: function(key, mapping[key], *(one.get(key) for one in beside)) for key in touched.changed}
        values.update(dict.fromkeys(touched.gone))
        known = known.updated({key: value for key, value in values.items() if known.get(key) is not value})
        return known

    return derive


class MemoPerKey(Generic[Key, *Inputs, Value]):
    """A ``Memo`` per key. Keys that a call does not name are forgotten."""

    def __init__(self, function: Callable[[*Inputs], Value]) -> None:
        self._function = function
        self._known: dict[Key, tuple[tuple[*Inputs], Value]] = {}
        self._values: Mapping[Key, Value] = {}

    def __call__(self, inputs_of: Mapping[Key, tuple[*Inputs]]) -> Mapping[Key, Value]:
        """The value of every key; the same mapping as last time when no value has changed."""
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
