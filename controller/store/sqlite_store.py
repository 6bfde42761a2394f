"""``Store`` with a SQLite database in the state directory.

The store never changes or moves files that it cannot read.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile, gettempdir

import structlog

from controller.jobs.messages import SavedState
from controller.store import lease_secret
from controller.store.commit_queue import CommitQueue
from controller.store.directory_claim import LOCK, DirectoryClaim, cannot_write
from controller.store.disk import ROOM_BYTES, full, sync_directory
from controller.store.records import ChangedRecords, Written, decode, forget, without
from controller.store.sqlite_database import (
    NewerFormat,
    beside,
    empty_log,
    make,
    opened,
    raise_format,
    raise_revision,
    read,
    write,
)
from controller.store.store import Done, epoch_at, refuse_above
from signalbox.errors import InvalidInput

log = structlog.get_logger(__name__)

FILE = "state.db"

IMPORTED, IMPORTED_SECRET = "state.import", "lease.import"
"""Names of the database and the secret of an imported state. Once this database exists, the import is final, and the
next process that claims the directory completes it."""

FileNumber = tuple[int, int]
"""Identity of a file, independent of its name: device and inode."""

LOOKS = 5
LOOK_AGAIN_S = 0.1


class SqliteStore(DirectoryClaim):
    """Store in ``directory``, which is created if it is missing. Methods are documented at ``Store``."""

    events = None

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.where = str(directory)
        self._path = directory / FILE
        self._imported = directory / IMPORTED
        self._commits: CommitQueue | None = None
        self._revision = 0
        self._has_failed = False
        self._loaded = SavedState()
        self._database: FileNumber | None = None

    def close(self) -> None:
        if self._commits is not None:
            self._commits.close()
            self._commits = None
        self.release()

    def load(self) -> SavedState:
        self._claim_now("stop it first; 'serve --standby' waits for its end")
        self._loaded = saved = _saved_in(self._directory)
        self._revision = saved.revision
        log.info("state read", revision=self._revision, jobs=len(saved.jobs))
        return saved

    def look(self) -> SavedState:
        """Return the saved state. Reading is tried up to ``LOOKS`` times, because another process may be writing."""
        for _ in range(LOOKS - 1):
            try:
                self._loaded = _saved_in(self._directory)
                break
            except InvalidInput:
                time.sleep(LOOK_AGAIN_S)
        else:
            self._loaded = _saved_in(self._directory)
        return self._loaded

    def written(self) -> Written:
        if not any(path.exists() for path in (self._path, self._imported)):
            raise InvalidInput.of("state_dir", f"there is no {FILE} in {self._directory}")
        self._claim_now("stop it, and any controller that stands by")
        try:
            return read(self._path)
        except (sqlite3.Error, OSError, ValueError) as error:
            raise InvalidInput.of("state_dir", _instructions(self._directory, error)) from None

    def drop(self, job_ids: Iterable[str]) -> int:
        gone = without(self.written().records, job_ids, self.where)
        try:
            with closing(opened(self._path)) as database:
                return write(database, [gone])
        except (sqlite3.Error, OSError) as error:
            raise cannot_write(self._directory, error) from None

    def replace(self, state: SavedState, secret: bytes, above: int) -> None:
        refuse_above(above)
        try:
            lease_secret.make(self._directory / IMPORTED_SECRET, secret)
            make(self._imported, state, max(above, self._revision) + 1)
        except (sqlite3.Error, OSError) as error:
            raise cannot_write(self._directory, error) from None
        self._finish_import()

    def _finish_import(self) -> None:
        """Replace the saved state by an imported one, if there is one. Raises ``InvalidInput``."""
        if not self._imported.exists():
            return
        secret = self._directory / IMPORTED_SECRET
        try:
            if secret.exists():
                secret.replace(self._directory / lease_secret.FILE)
            for file in beside(self._path):
                file.unlink(missing_ok=True)
            sync_directory(self._directory)
            self._imported.replace(self._path)
            sync_directory(self._directory)
        except OSError as error:
            raise cannot_write(self._directory, error) from None

    def raise_epoch(self, above: int) -> None:
        refuse_above(above)
        self.written()
        try:
            with closing(opened(self._path)) as database:
                raise_revision(database, above + 1)
        except (sqlite3.Error, OSError) as error:
            raise cannot_write(self._directory, error) from None

    def _claim_now(self, else_: str) -> None:
        if not self.claim():
            who = f"another controller uses {self._directory} (process {self.owner()})"
            raise InvalidInput.of("state_dir", f"{who}; {else_}")
        self._finish_import()

    def secret(self, in_use: bool) -> bytes:
        return lease_secret.secret_in(self._directory, in_use)

    def begin(self, lost: Callable[[], None] = lambda: None) -> int:  # noqa: ARG002
        saved = self._loaded
        try:
            if not self._path.exists():
                make(self._path, saved)
            database = opened(self._path)
            raise_format(database)
            epoch = self._revision = raise_revision(database, epoch_at(time.time()))
            self._database = _file_number(self._path)
        except (sqlite3.Error, OSError) as error:
            raise cannot_write(self._directory, error) from None
        self._commits = CommitQueue(partial(self._write, database), partial(empty_log, database), database.close)
        return epoch

    def commit(self, changed: ChangedRecords, done: Done) -> None:
        """Queue the changes. All waiting changes share one commit of the database."""
        assert self._commits, "begin() comes first"
        self._commits.put(changed, done)

    def _write(self, database: sqlite3.Connection, commits: Sequence[ChangedRecords]) -> int | OSError:
        try:
            self._refuse_elsewhere()
            if self._has_failed:
                self._find_room()
            self._revision = write(database, commits)
        except (sqlite3.Error, OSError) as error:
            self._has_failed = True
            return OSError(full(self._directory, error) or str(error))
        self._has_failed = False
        return self._revision

    def _find_room(self) -> None:
        """Raise ``OSError`` when the file system is full.

        Without this check, a small commit could succeed in free pages of the database, and hide that the disk is
        full."""
        with TemporaryFile(dir=self._directory) as file:
            os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)

    def _refuse_elsewhere(self) -> None:
        """Raise ``OSError`` when the database or the lock file was removed or replaced.

        Commits to a removed database would be lost, and with another lock file a second controller could write too."""
        for path, number in (
            (self._path, self._database),
            (self._path.with_name(LOCK), _file_number(self._lock)),
        ):
            try:
                found = _file_number(path)
            except FileNotFoundError:
                found = None
            if found != number:
                raise OSError(f"{path} was {'removed' if found is None else 'replaced'} while the controller runs")


# ---- database


def _saved_in(directory: Path) -> SavedState:
    path = directory / FILE
    try:
        if path.exists():
            records, revision = read(path)
            return replace(decode(records), revision=revision)
        if left := [file.name for file in beside(path) if file.exists()]:
            raise ValueError(f"{path.name} is missing, although {' and '.join(left)} exist")
        return SavedState()
    except (sqlite3.Error, OSError, ValueError) as error:
        needed = path.stat().st_size if path.exists() else 0
        if no_room := full(Path(gettempdir()), error, needed):
            raise InvalidInput.of(
                "state_dir", f"the state in {directory} cannot be copied to read it: {no_room}"
            ) from None
        raise InvalidInput.of("state_dir", _instructions(directory, error)) from None


def _file_number(file: Path | int | None) -> FileNumber:
    assert file is not None
    found = os.stat(file)
    return found.st_dev, found.st_ino


# ---- unreadable states


def _instructions(directory: Path, error: Exception) -> str:
    if isinstance(error, NewerFormat):
        return (
            f"the state in {directory} is of a newer version: {error}. Nothing was changed. Start the version that "
            "wrote it, or restore the backup from before the upgrade"
        )
    return (
        f"the state in {directory} cannot be read: {error}. Nothing was changed. Restore the directory from a copy"
        f"{forget(error, f'--state-dir {directory}')}, or "
        "move its files away to start without jobs: they register again with their next renewal"
    )
