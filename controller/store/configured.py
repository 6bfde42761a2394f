"""Which store a controller has: a database in its state directory, or none."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from controller.jobs.messages import SavedState
from controller.store.records import ChangedRecords
from controller.store.sqlite_store import FILE, SqliteStore
from controller.store.store import Done, Store

STATE_FILES = (FILE,)
"""What the store keeps in the state directory, for nobody else to read."""


class NothingSaved:
    """A ``Store`` that keeps nothing, and says that everything is kept: for a controller without ``state_dir``."""

    is_claimed = True
    has_owners = False

    def claim(self, wait: bool = False) -> bool:  # noqa: ARG002
        return True

    def owner(self) -> str:
        return "none"

    def standing_by(self) -> AbstractContextManager[None]:
        return nullcontext()

    def has_standby(self) -> bool:
        return False

    def load(self) -> SavedState:
        return SavedState()

    look = load

    def begin(self) -> None:
        pass

    def commit(self, changes: ChangedRecords, done: Done) -> None:  # noqa: ARG002
        done(0)

    def close(self) -> None:
        pass


def store_of(state_dir: Path | None) -> Store:
    """As configured."""
    return SqliteStore(state_dir) if state_dir else NothingSaved()
