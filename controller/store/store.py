"""Interface of the store, in which the controller saves its state. A store has one writer at a time.

In: changed records. Out: a revision, once the records are safe, or the reason why they are not; after a restart, all
records or an error.
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
"""Number of epochs per second of the clock.

A process starts with an epoch that is computed from the clock (``epoch_at``), and each commit uses a later epoch.
Commits hardly ever use more epochs than this in a second, so they do not reach the epochs of later seconds.

Metrics, which are floating-point numbers, represent all epochs of this century exactly."""


LARGEST_EPOCH = 1 << 62
"""Limit of ``raise_epoch``: epochs can be raised above generation ids that are smaller than this.

All epochs are less than 2**63, because a switch compares generation ids by their signed difference of 64 bits. After
the highest raise, 2**62 epochs thus remain for commits and restarts."""


class StateAway(InvalidInput):
    """The state cannot be read or claimed now, because etcd does not answer; it may answer later."""


def refuse_above(above: int) -> None:
    """Raise ``InvalidInput`` unless 0 <= ``above`` < ``LARGEST_EPOCH``: epochs cannot be raised above other numbers."""
    if not 0 <= above < LARGEST_EPOCH:
        raise InvalidInput.of("above", f"is {above}; it must be from 0 to {LARGEST_EPOCH - 1}")


def epoch_at(unix_s: float) -> int:
    """Return the smallest epoch of a process that starts at this Unix time in seconds.

    If two controllers have separate states, the one that was started later thus has the larger epoch."""
    return int(unix_s * EPOCHS_PER_S)


AHEAD_S = 86400
"""Seconds by which a generation id may be ahead of the clock, because of a wrong clock or many commits."""


def is_ahead(generation: int, unix_s: float) -> bool:
    """Return whether a generation id is too large to come from a controller, at this Unix time in seconds."""
    return generation > epoch_at(unix_s + AHEAD_S)


NewestLines = Callable[[int], Sequence[bytes]]
"""Function that returns the latest lines of a history. The argument is the largest total size of the lines in bytes."""


class EventLines(Protocol):
    """Lines of the latest events in a store. Each line begins with a newline."""

    @property
    def where(self) -> str:
        """Name of the place where the lines are stored, for messages."""

    def read(self) -> Iterable[bytes]:
        """Return all lines, oldest first, without newlines. Raises ``OSError``."""

    @property
    def pause_s(self) -> float:
        """Seconds between two writes, so that events take little time of the store."""

    def write(self, lines: Sequence[bytes], newest: NewestLines) -> None:
        """Add lines, or replace all lines if that would be too many.

        After an error, lines may be written twice. The state must be claimed. Raises ``OSError``."""


class Store(Protocol):
    """Store of the controller's state.

    A controller calls ``claim`` or ``load``, then ``begin``, then ``commit`` any number of times, and ``close``.
    Commands that repair or move a state call ``written``, ``drop``, ``replace`` or ``raise_epoch`` in place of
    ``begin``."""

    @property
    def where(self) -> str:
        """Name of the place where the state is stored, for messages."""

    @property
    def events(self) -> EventLines | None:
        """Lines of the latest events; None if events are kept in a file of the state directory."""

    def claim(self, wait: bool = False) -> bool:
        """Claim the state: get the exclusive right to write it, until ``close`` or the end of the process.

        Returns False if another process has the claim; with ``wait``, waits for the claim instead. Raises
        ``InvalidInput`` if the state cannot be written, ``StateAway`` if the cause may end by itself."""

    @property
    def is_claimed(self) -> bool:
        """Whether this process has the claim of the state."""

    def owner(self) -> str:
        """Return the name of the process that has claimed the state last, for messages."""

    def standing_by(self) -> AbstractContextManager[None]:
        """Show the active controller, while the context lasts, that this process waits for the claim."""

    def has_standby(self) -> bool:
        """Return whether another controller waits for the claim. The call delays no other process."""

    def load(self) -> SavedState:
        """Return the state of the last commit. In a new store it is empty, with revision 0.

        The revision of the state is at least as large as every earlier epoch.

        Claims the state, unless this process has the claim already, and changes nothing else. Raises ``InvalidInput``
        if another controller has the claim, or if the state cannot be written or read."""

    def look(self) -> SavedState:
        """Return the state of the last commit, also while another controller has claimed it.

        Raises ``InvalidInput`` if the state cannot be read, ``StateAway`` if the cause may end by itself."""

    def written(self) -> Written:
        """Return the records of the last commit, valid or not.

        Raises ``InvalidInput`` as ``load`` does, but not for invalid records."""

    def drop(self, job_ids: Iterable[str]) -> int:
        """Forget these jobs in one commit, and return its revision.

        All other records, valid or not, stay unchanged. Raises ``NotFound``, and ``InvalidInput`` as ``written``
        does."""

    def replace(self, state: SavedState, secret: bytes, above: int) -> None:
        """Replace the loaded state and the secret, both or none, and make all later epochs larger than ``above``.

        Raises ``InvalidInput`` if the state cannot be written, or if epochs cannot be raised so far."""

    def secret(self, in_use: bool) -> bytes | None:
        """Return the secret of lease tokens; None if nothing is saved. The state must be claimed.

        A missing secret is created, unless clients have tokens of it (``in_use``). Raises ``InvalidInput``."""

    def raise_epoch(self, above: int) -> None:
        """Make all later epochs larger than ``above``, the generation id of a switch, and change nothing else.

        Raises ``InvalidInput`` as ``load`` does, and if epochs cannot be raised so far."""

    def begin(self, lost: Callable[[], None]) -> int:
        """Accept commits from now on, and return the epoch. Called when the loaded state has been accepted.

        ``lost``: called by a thread of the store when another process has claimed the state; then no commit succeeds
        any more.

        The epoch is a number that is larger than the epoch of every earlier process, and less than 2**63. The epoch is
        on disk when the method returns. Switches accept it as the generation id of their master
        (``southbound.admission``). Raises ``InvalidInput`` if the state cannot be written."""

    def commit(self, changes: ChangedRecords, done: Done) -> None:
        """Queue the changes for writing, and return at once."""

    def close(self) -> None:
        """Write all queued changes, and release the claim."""
