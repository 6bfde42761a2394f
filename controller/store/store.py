"""Interface of the store, in which the controller saves its state: one writer at a time, and commits.

In: the records that a change alters. Out: a revision once the records are safe, or the reason why they are not; after a
restart, all records or a refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from controller.jobs.messages import SavedState
from controller.store.records import ChangedRecords

Done = Callable[[int | OSError], None]
"""Callback with the revision that contains the changes, or with the error when nothing was saved.

A thread of the store calls it."""


class Store(Protocol):
    """Store of the state.

    The order of calls is: ``claim`` or ``load``, ``begin``, any number of ``commit``, ``close``."""

    def claim(self, wait: bool = False) -> bool:
        """Claim the state for this process alone, until ``close`` or the end of the process.

        Return False when another process has the claim; with ``wait``, wait for the claim instead. Raises
        ``InvalidInput`` when the state cannot be written."""

    @property
    def is_claimed(self) -> bool:
        """True while this process has the claim of the state."""

    def owner(self) -> str:
        """Return the name, for a message, of the process that claimed the state last."""

    def standing_by(self) -> AbstractContextManager[None]:
        """Show the active controller that this process waits for its claim, while the context lasts."""

    def has_standby(self) -> bool:
        """Return whether another controller waits for the claim. The call delays no other process."""

    def load(self) -> SavedState:
        """Return the state of the last commit, empty in a new store.

        Claims the state, unless that was done before, and changes nothing else. Raises ``InvalidInput`` when another
        controller has the state, when it cannot be written, and when it cannot be read."""

    def look(self) -> SavedState:
        """Return the state of the last commit, also while another controller has claimed it.

        Raises ``InvalidInput`` when it cannot be read."""

    def begin(self) -> None:
        """Accept commits from now on; to be called when the loaded state is accepted.

        Raises ``InvalidInput`` when the state cannot be written."""

    def commit(self, changes: ChangedRecords, done: Done) -> None:
        """Queue the changes for writing, and return at once."""

    def close(self) -> None:
        """Write all queued changes, and release the claim."""
