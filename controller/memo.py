"""The one way to keep a derived value: the last result of a function, as long as its inputs stay the same.

Snapshots are frozen and replaced when they change, so an input is the same when it is the same object. Plain values
(numbers, texts, tuples, frozen sets) are also the same when they are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar, TypeVarTuple

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Inputs = TypeVarTuple("Inputs")

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


class Changed(Generic[Key]):
    """Which keys of a mapping have another value than at the last call, or have another one in one of the mappings
    beside it. Values are compared by identity, and mappings that are the same object are not looked at: with one change
    among thousands of keys this costs far less than a ``MemoPerKey``."""

    def __init__(self) -> None:
        self._before: tuple[Mapping[Key, object], ...] | None = None

    def __call__(self, mapping: Mapping[Key, object], *beside: Mapping[Key, object]) -> list[Key]:
        """All keys at the first call. Keys that have gone from ``mapping`` are not among them."""
        before, self._before = self._before, (mapping, *beside)
        if before is None:
            return list(mapping)
        changed: dict[Key, None] = {}
        for old, new in zip(before, self._before, strict=True):
            if old is not new:
                changed.update({key: None for key, value in new.items() if old.get(key) is not value})
                if new is not mapping:
                    changed.update({key: None for key in old if key not in new})
        return [key for key in changed if key in mapping]


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
