"""What the controller knows of the place where it saves its state: one writer at a time, and commits.

In: the records that a change alters. Out: a revision once they are safe, or why they are not; after a restart all of
them, or a refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from controller.jobs.messages import SavedState
from controller.store.records import ChangedRecords

Done = Callable[[int | OSError], None]
"""Is given the revision that holds the changes, or why nothing does. Called in a thread of the store."""


class Store(Protocol):
    """``claim`` or ``load``, then ``begin``, then any number of ``commit``, at last ``close``."""

    def claim(self, wait: bool = False) -> bool:
        """Keep every other controller from the state until ``close`` or the process's end. False when another has it;
        ``wait`` for it instead. Raises ``InvalidInput`` when the state cannot be written."""

    @property
    def is_claimed(self) -> bool:
        """By this process."""

    def owner(self) -> str:
        """Who claimed the state last, for people."""

    def standing_by(self) -> AbstractContextManager[None]:
        """While this process waits for its claim: who has it can see that."""

    def has_standby(self) -> bool:
        """Whether a controller stands by. Asking delays nobody."""

    def load(self) -> SavedState:
        """What was committed last; nothing in a new store. Claims the state, if that was not done before, and changes
        nothing else. Raises ``InvalidInput`` when another controller has it, when it cannot be written, and when what
        is there cannot be read."""

    def look(self) -> SavedState:
        """What was committed last, also while another controller has the state. Raises ``InvalidInput`` when it cannot
        be read."""

    @property
    def has_owners(self) -> bool:
        """Whether jobs were loaded that somebody has a lease token of."""

    def begin(self) -> None:
        """Take commits from now on. To be called when what was loaded is accepted: only then is a state of an older
        version written in today's format. Raises ``InvalidInput`` when it cannot be written."""

    def commit(self, changes: ChangedRecords, done: Done) -> None:
        """Have the changes written; returns at once."""

    def close(self) -> None:
        """Returns when everything is written that was to be; lets another controller have the state."""
