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


class MemoPerKey(Generic[Key, *Inputs, Value]):
    """A ``Memo`` per key. Keys that a call does not name are forgotten."""

    def __init__(self, function: Callable[[*Inputs], Value]) -> None:
        self._function = function
        self._known: dict[Key, tuple[tuple[*Inputs], Value]] = {}
        self._values: Mapping[Key, Value] = {}

    def __call__(self, inputs_of: Mapping[Key, tuple[*Inputs]]) -> Mapping[Key, Value]:
        """The value of every key; the same mapping as last time when no value has changed."""
        before, self._known = self._known, {}
        changed = list(before) != list(inputs_of)
        for key, inputs in inputs_of.items():
            known = before.get(key)
            if known is None or not all(map(same, known[0], inputs)):
                value = self._function(*inputs)
                changed = changed or known is None or not same(known[1], value)
                known = inputs, value
            self._known[key] = known
        if changed:
            self._values = {key: value for key, (_, value) in self._known.items()}
        return self._values
