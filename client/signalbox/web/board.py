"""State shared by all viewers of the page: one ``Following``, its picture, and the viewers to inform of changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from signalbox.live.following import Following
from signalbox.live.picture import Picture, picture, reloaded
from signalbox.live.state import Kind, State

Show = Callable[[frozenset[Kind]], None]
Made = TypeVar("Made")


class Board:
    """State shared by all viewers; only the thread of the server's event loop may use it."""

    def __init__(self, following: Following) -> None:
        self._following = following
        self._viewers: dict[Hashable, Show] = {}
        self._made: dict[Hashable, Any] = {}
        self._picture: Picture | None = None

    @property
    def state(self) -> State:
        return self._following.state

    @property
    def picture(self) -> Picture:
        return self.once("picture", self._newest_picture)

    def _newest_picture(self) -> Picture:
        self._picture = reloaded(self._picture, self.state) if self._picture else picture(self.state)
        return self._picture

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the result of ``make``, which is called once per change of the fabric for all viewers."""
        if key not in self._made:
            self._made[key] = make()
        made: Made = self._made[key]
        return made

    def take(self) -> None:
        """Apply the messages that have arrived, and pass the changes on to the viewers."""
        changed = self._following.changes_to_show()
        if changed & {Kind.SHAPE, Kind.RATES}:
            self._made.clear()
        if Kind.SHAPE in changed:
            self._picture = None
        if changed:
            for show in list(self._viewers.values()):
                show(changed)

    def tell(self, viewer: Hashable, show: Show) -> None:
        self._viewers[viewer] = show

    def forget(self, viewer: Hashable) -> None:
        self._viewers.pop(viewer, None)

    @property
    def viewers(self) -> int:
        return len(self._viewers)
