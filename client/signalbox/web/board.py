"""State shared by all viewers of the page: the followed network, its picture, and the viewers to notify of changes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from signalbox.live.following import Following
from signalbox.live.picture import Picture, picture, reloaded
from signalbox.live.state import Kind, State

Show = Callable[[frozenset[Kind]], None]
Made = TypeVar("Made")
log = logging.getLogger("signalbox.web")

REST = 3
"""Shortest pause after changes were shown, as a multiple of the time that showing them took.

The event loop then has time for requests of viewers, however much the controller sends."""
MOST_MADE = 32
"""Largest number of stored results of ``once``."""


class Board:
    """State shared by all viewers. Only the thread of the server's event loop may use it."""

    def __init__(self, following: Following, clock: Callable[[], float] = time.monotonic) -> None:
        self._following = following
        self._clock = clock
        self._rests_until = clock()
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
        """Return the result of ``make``, which all viewers share.

        After a change of the fabric, the jobs or the plan, the result is made anew. ``key``: identifies the result."""
        if key not in self._made:
            if len(self._made) >= MOST_MADE:
                self._made.clear()
            self._made[key] = make()
        made: Made = self._made[key]
        return made

    def take(self) -> None:
        """Apply the messages that have arrived, and show the changes to all viewers; do nothing in a pause (``REST``).

        An error of one viewer's page does not prevent the update of other pages."""
        began = self._clock()
        if began < self._rests_until:
            return
        changed = self._following.changes_to_show()
        if changed & {Kind.SHAPE, Kind.RATES, Kind.JOBS, Kind.PLAN}:
            self._made.clear()
        if Kind.SHAPE in changed:
            self._picture = None
        if changed:
            for show in list(self._viewers.values()):
                try:
                    show(changed)
                except Exception:
                    log.exception("cannot update a viewer's page")
        ended = self._clock()
        self._rests_until = ended + REST * (ended - began)

    def tell(self, viewer: Hashable, show: Show) -> None:
        self._viewers[viewer] = show

    def forget(self, viewer: Hashable) -> None:
        self._viewers.pop(viewer, None)

    @property
    def viewers(self) -> int:
        return len(self._viewers)
