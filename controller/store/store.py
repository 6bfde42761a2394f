"""Interface of the store, in which the controller saves its state: one writer at a time, and commits.

In: the records that a change alters. Out: a revision once the records are safe, or the reason why they are not; after a
restart, all records or a refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from controller.jobs.messages import SavedState
from controller.store.records import ChangedRecords, Written
from signalbox.errors import InvalidInput

Done = Callable[[int | OSError], None]
"""Callback with the revision that contains the changes, or with the error when nothing was saved.

A thread of the store calls it."""


EPOCHS_PER_S = 1 << 20
"""Number of epochs that begin in a second, so that commits hardly ever reach the epochs of later seconds.

Metrics are read as floating-point numbers, which represent all epochs of this century exactly."""


LARGEST_EPOCH = 1 << 62
"""Generation id from which epochs cannot be raised, so that 2**62 larger epochs are left for commits and restarts.

Epochs end below 2**63, because a switch compares generation ids by their signed difference of 64 bits."""


def refuse_above(above: int) -> None:
    """Raise ``InvalidInput`` when no epoch can be larger than the generation id ``above``."""
    if not 0 <= above < LARGEST_EPOCH:
        raise InvalidInput.of("above", f"is {above}; it must be from 0 to {LARGEST_EPOCH - 1}")


def epoch_at(unix_s: float) -> int:
    """Return the smallest epoch of a process that starts at this Unix time in seconds.

    Of two controllers with states of their own, the one that was started last thus has the larger epoch."""
    return int(unix_s * EPOCHS_PER_S)


AHEAD_S = 86400
"""Seconds by which generation ids may be ahead of the clock, because of a wrong clock or many commits."""


def is_ahead(generation: int, unix_s: float) -> bool:
    """Return whether a generation id is larger than controllers can have at this Unix time in seconds."""
    return generation > epoch_at(unix_s + AHEAD_S)


class EventLines(Protocol):
    """Lines of the latest events in a store. Each line begins with a newline."""

    @property
    def where(self) -> str:
        """Name of their place, for a message."""

    def read(self) -> Iterable[bytes]:
        """Return all lines, the oldest first, without newlines. Raises ``OSError``."""

    @property
    def is_full(self) -> bool:
        """Whether the next call of ``write`` replaces all lines."""

    def write(self, lines: Sequence[bytes]) -> None:
        """Add lines, which may be written twice. The state must be claimed. Raises ``OSError``."""


class Store(Protocol):
    """Store of the state.

    A controller calls ``claim`` or ``load``, then ``begin``, any number of ``commit``, and ``close``. Commands that
    repair or move a state call ``written``, ``drop``, ``replace`` or ``raise_epoch`` instead of ``begin``."""

    @property
    def where(self) -> str:
        """Name of the place of the state, for a message."""

    @property
    def events(self) -> EventLines | None:
        """Lines of the latest events; None if events are kept in a file of the state directory."""

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
        """Return the state of the last commit, empty in a new store, where its revision is 0.

        No earlier epoch is larger than the revision.

        Claims the state, unless that was done before, and changes nothing else. Raises ``InvalidInput`` when another
        controller has the state, when it cannot be written, and when it cannot be read."""

    def look(self) -> SavedState:
        """Return the state of the last commit, also while another controller has claimed it.

        Raises ``InvalidInput`` when it cannot be read."""

    def written(self) -> Written:
        """Return the records of the last commit, valid or not.

        Raises ``InvalidInput`` as ``load`` does, but not for records that are invalid."""

    def drop(self, job_ids: Iterable[str]) -> int:
        """Forget these jobs in one commit, and return its revision.

        All other records stay as they are, valid or not. Raises ``NotFound``, and ``InvalidInput`` as ``written``."""

    def replace(self, state: SavedState, secret: bytes, above: int) -> None:
        """Replace the loaded state and the secret, both or none, and make all later epochs larger than ``above``.

        Raises ``InvalidInput`` when the state cannot be written, and when no later epoch can be that large."""

    def secret(self, in_use: bool) -> bytes | None:
        """Return the secret of lease tokens; None if nothing is saved. The state must be claimed.

        A missing secret is created unless one is ``in_use``. Raises ``InvalidInput``."""

    def raise_epoch(self, above: int) -> None:
        """Make all later epochs larger than ``above``, a generation id of a switch, and change nothing else.

        Raises ``InvalidInput`` as ``load`` does, and when no later epoch can be that large."""

    def begin(self, lost: Callable[[], None]) -> int:
        """Accept commits from now on, and return the epoch; to be called when the loaded state is accepted.

        ``lost`` is called from a thread of the store when another process has claimed the state, after which no commit
        succeeds.

        The epoch is larger than the epoch of every earlier process, and less than 2**63. It is on disk when this
        returns. Switches accept it as the generation id of their master (``southbound.admission``). Raises
        ``InvalidInput`` when the state cannot be written."""

    def commit(self, changes: ChangedRecords, done: Done) -> None:
        """Queue the changes for writing, and return at once."""

    def close(self) -> None:
        """Write all queued changes, and release the claim."""
