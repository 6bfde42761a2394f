"""Choice of the store: a database in the state directory, or none."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from controller.config import Config
from controller.jobs.messages import SavedState
from controller.store.records import ChangedRecords
from controller.store.sqlite_store import FILE, SqliteStore
from controller.store.store import Done, Store

STATE_FILES = (FILE,)
"""Files of the store in the state directory, which nobody else may read."""


class NothingSaved:
    """``Store`` of a controller without ``state_dir``: it keeps nothing, and reports each commit as done."""

    is_claimed = True

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


def store_of(config: Config) -> Store:
    """Return the store that the configuration asks for. Nothing is opened yet."""
    return SqliteStore(config.state_dir) if config.state_dir else NothingSaved()
