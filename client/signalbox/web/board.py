"""What all viewers of the page share: one ``Following``, the picture of its state, and who is to be told of changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from signalbox.live.following import Following
from signalbox.live.picture import Picture, picture, reloaded
from signalbox.live.state import Kind, State

TAKE_S = 0.25
"""Between two looks for changes."""
OFTEN_S = 1.0
"""Between two showings of what changes all the time."""
OFTEN = frozenset({Kind.RATES, Kind.JOBS, Kind.STATUS})

Show = Callable[[frozenset[Kind]], None]
Made = TypeVar("Made")


class Board:
    """Belongs to the thread of the server's event loop."""

    def __init__(self, following: Following) -> None:
        self._following = following
        self._viewers: dict[Hashable, Show] = {}
        self._made: dict[Hashable, Any] = {}
        self._picture: Picture | None = None
        self._later = frozenset[Kind]()
        self._shown = 0.0

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
        """What ``make`` returns, made once per change of the fabric, for all viewers."""
        if key not in self._made:
            self._made[key] = make()
        made: Made = self._made[key]
        return made

    def take(self) -> None:
        """Takes in what has come and tells viewers; of ``OFTEN`` every second only."""
        changed = self._later | self._following.changes()
        now = time.monotonic()
        if Kind.SHAPE in changed or now - self._shown >= OFTEN_S:
            self._later = frozenset()
            self._shown = now if changed & OFTEN else self._shown
            if changed & {Kind.SHAPE, Kind.RATES}:
                self._made.clear()
            if Kind.SHAPE in changed:
                self._picture = None
        else:
            self._later, changed = changed & OFTEN, changed - OFTEN
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
