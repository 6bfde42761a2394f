"""Multipart requests that belong together: gathers the parts of their replies (OpenFlow 1.3.5 section 7.3.5).

Sans-IO. In: the numbers of the requests that were sent, parts as they arrive. Out: all bodies, once the last part of
the last reply is in. Parts that nobody waits for are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

Key = TypeVar("Key")


class Gathered(Generic[Key]):
    """Replies to the requests of one batch, by the name of each."""

    def __init__(self, names: Mapping[int, Key]) -> None:
        self._waiting = dict(names)
        self._bodies: dict[Key, list[Any]] = {name: [] for name in names.values()}

    def part(self, xid: int, body: Any, more: bool) -> bool:
        """Takes one part, a list or a single structure; False when the batch has no such request open."""
        name = self._waiting.get(xid)
        if name is None:
            return False
        self._bodies[name].extend(body if isinstance(body, list) else [body])
        if not more:
            del self._waiting[xid]
        return True

    def refused(self, xid: int) -> Key | None:
        """The switch answered with an error: that reply stays empty. None when the batch has no such request open."""
        return self._waiting.pop(xid, None)

    @property
    def bodies(self) -> Mapping[Key, list[Any]] | None:
        """Everything, or None while something is missing."""
        return None if self._waiting else self._bodies
