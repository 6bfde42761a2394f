"""What a restarted controller has to know, on disk: jobs, how others ended, strategy, shares of split flows, measured
traffic.

Owns the state directory: a database of records, and a lock that keeps a second controller out. In: the records that a
change alters. Out: a revision once they are on disk, or why they are not; after a restart all of them, or a refusal.
Nothing that cannot be read is changed or set aside.
"""

from __future__ import annotations

import fcntl
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import NamedTuple

import structlog

from controller.jobs.messages import SavedState
from controller.store.disk_space import ROOM_BYTES, full
from controller.store.records import FORMAT, Changes, Key, Kind, Unreadable, decode, first_format
from controller.store.sqlite_database import (
    OLDEST,
    NewerFormat,
    Written,
    beside,
    empty_log,
    make,
    opened,
    read,
    sync_directory,
    upgrade,
    write,
)
from signalbox.errors import InvalidInput, NotFound, cut

log = structlog.get_logger(__name__)

FILE = "state.db"

FIRST_FORMAT = "state.json"
TAKEN_OVER = ".taken-over"
"""Put behind that name once the database has what is in it: a version that reads it would start with jobs of then."""

OWNED = 3
"""The first format whose jobs have owners."""

Done = Callable[[int | OSError], None]
"""Is given the revision that holds the changes, or why nothing does. Called in the store's thread."""


LOCK = "lock"

FileNumber = tuple[int, int]
"""Of a file, whatever its name: device and inode."""


LOOKS = 5
LOOK_AGAIN_S = 0.1


class _Commit(NamedTuple):
    changes: Changes
    done: Done


class StateStore:
    """``state_dir`` None keeps nothing, and says that everything is kept."""

    def __init__(self, state_dir: Path | None) -> None:
        self.directory = state_dir
        self._path = state_dir / FILE if state_dir else None
        self._lock: int | None = None
        self._commits: queue.SimpleQueue[_Commit | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._revision = 0
        self._has_failed = False
        self._loaded = SavedState(), FORMAT
        self._database: FileNumber | None = None

    # ---- the directory

    def claim(self, wait: bool = False) -> bool:
        """Keep every other controller from the directory, which is made when it is missing, until ``close`` or the
        process's end. False when another has it; ``wait`` for it instead. Raises ``InvalidInput`` when the directory
        cannot be written."""
        if self._lock is None and self.directory is not None:
            self._lock = _lock(self.directory, wait)
        return self._lock is not None or self.directory is None

    @property
    def is_claimed(self) -> bool:
        """By this process."""
        return self._lock is not None

    def owner(self) -> str:
        """The process id of the controller that claimed the directory last."""
        try:
            return (self.directory / LOCK).read_text(errors="replace")[:20] or "unknown" if self.directory else "none"
        except OSError:
            return "unknown"

    def close(self) -> None:
        """Ends when everything is on disk that was to be; lets another controller have the directory."""
        if self._thread is not None:
            self._commits.put(None)
            self._thread.join()
            self._thread = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # ---- what is saved

    def load(self) -> SavedState:
        """What was committed last; nothing in a new directory. Claims the directory, if that was not done before, and
        changes nothing else in it.

        Raises ``InvalidInput`` when another controller uses the directory, when it cannot be written, and when what is
        there cannot be read."""
        if self.directory is None:
            return SavedState()
        self._claim_now("stop it, or start with --standby to take over when it ends")
        self._loaded = saved, _ = _saved_in(self.directory)
        self._revision = saved.revision
        log.info("state read", revision=self._revision, jobs=len(saved.jobs))
        return saved

    def look(self) -> SavedState:
        """What was committed last, also while another controller uses the directory. Raises ``InvalidInput`` when it
        cannot be read, several times: it may be written meanwhile."""
        if self.directory is None:
            return SavedState()
        for _ in range(LOOKS - 1):
            try:
                self._loaded = _saved_in(self.directory)
                break
            except InvalidInput:
                time.sleep(LOOK_AGAIN_S)
        else:
            self._loaded = _saved_in(self.directory)
        return self._loaded[0]

    @property
    def has_owners(self) -> bool:
        """Whether jobs were loaded that somebody has a lease token of: there were none before format 3."""
        saved, found = self._loaded
        return bool(saved.jobs) and found >= OWNED

    def written(self) -> Written:
        """The records, whether they would be accepted or not. Raises ``InvalidInput`` as ``load`` does."""
        if self._path is None or not self._path.exists():
            raise InvalidInput.of("state_dir", f"there is no {FILE} in {self.directory}")
        self._claim_now("stop it, and any that stands by")
        try:
            return read(self._path)
        except (sqlite3.Error, OSError, ValueError) as error:
            raise InvalidInput.of("state_dir", _instructions(self._path.parent, error)) from None

    def drop(self, job_ids: Iterable[str]) -> int:
        """Forget these jobs, in one commit; returns its revision. All other records stay as they are, whether they
        would be accepted or not. Raises ``NotFound``, and ``InvalidInput`` as ``load`` does."""
        saved, wanted = {key.key for key, _ in self.written().records if key.kind is Kind.JOB}, tuple(job_ids)
        if unknown := [job_id for job_id in wanted if job_id not in saved]:
            raise NotFound(f"{self.directory} has no job '{cut(unknown[0])}'")
        gone = {Key(kind, job_id): None for job_id in wanted for kind in (Kind.JOB, Kind.CONNECTIONS, Kind.MEASURED)}
        assert self._path is not None
        try:
            with closing(opened(self._path)) as database:
                return write(database, [gone])
        except (sqlite3.Error, OSError) as error:
            raise _cannot_write(self._path.parent, error) from None

    def _claim_now(self, else_: str) -> None:
        if not self.claim():
            who = f"another controller uses {self.directory} (process {self.owner()})"
            raise InvalidInput.of("state_dir", f"{who}; {else_}")

    def begin(self) -> None:
        """Take commits from now on. To be called when what was loaded is accepted: it is written in today's format, if
        it had an older one, which the version before cannot read. Raises ``InvalidInput`` when it cannot be written."""
        if self._path is None or self.directory is None:
            return
        saved, found = self._loaded
        try:
            if not self._path.exists():
                make(self._path, saved)
            database = opened(self._path)
            if OLDEST <= found < FORMAT:
                self._revision = upgrade(database, saved)
            _put_by(self.directory / FIRST_FORMAT)
            database.execute("SELECT number FROM revision").fetchone()  # opens the log and its index
            self._database = _file_number(self._path)
        except (sqlite3.Error, OSError) as error:
            raise _cannot_write(self.directory, error) from None
        if found < FORMAT and saved != SavedState():
            log.info("the state of an older version was taken over", jobs=len(saved.jobs), revision=self._revision)
        self._thread = threading.Thread(target=self._run, args=(database,), name="state-store", daemon=True)
        self._thread.start()

    def commit(self, changed: Changes, done: Done) -> None:
        """Have the changes written; returns at once. Those that wait for the disk at the same time share a commit."""
        if self._path is None:
            done(0)
        else:
            self._commits.put(_Commit(changed, done))

    def _run(self, database: sqlite3.Connection) -> None:
        with closing(database):
            while (commit := self._commits.get()) is not None:
                together = [commit, *self._waiting()]
                found = self._write(database, together)
                for one in together:
                    one.done(found)
                empty_log(database)

    def _waiting(self) -> Iterator[_Commit]:
        while not self._commits.empty():
            commit = self._commits.get()
            if commit is None:
                self._commits.put(None)
                return
            yield commit

    def _write(self, database: sqlite3.Connection, commits: Iterable[_Commit]) -> int | OSError:
        try:
            self._refuse_elsewhere()
            if self._has_failed:
                self._find_room()
            self._revision = write(database, [commit.changes for commit in commits])
        except (sqlite3.Error, OSError) as error:
            self._has_failed = True
            assert self.directory is not None
            return OSError(full(self.directory, error) or str(error))
        self._has_failed = False
        return self._revision

    def _find_room(self) -> None:
        """Raises ``OSError`` when the file system is full: a small commit may fit into pages that the database has
        already, and would say that all is well."""
        assert self._path is not None
        with TemporaryFile(dir=self._path.parent) as file:
            os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)

    def _refuse_elsewhere(self) -> None:
        """Raises ``OSError`` when the database or the lock is not the file any more that has its name: what is written
        would not be there after a restart, or another controller writes too."""
        assert self._path is not None
        for path, number in ((self._path, self._database), (self._path.with_name(LOCK), _file_number(self._lock))):
            try:
                found = _file_number(path)
            except FileNotFoundError:
                found = None
            if found != number:
                raise OSError(f"{path} was {'removed' if found is None else 'replaced'} while the controller runs")


# ---- the database


def _saved_in(directory: Path) -> tuple[SavedState, int]:
    """With the format that it has. Raises ``InvalidInput``."""
    path = directory / FILE
    try:
        if path.exists():
            records, revision, found = read(path)
            return replace(decode(records, found), revision=revision), found
        if left := [file.name for file in beside(path) if file.exists()]:
            raise ValueError(f"{path.name} is missing beside {' and '.join(left)}")
        return first_format(directory / FIRST_FORMAT), 1
    except (sqlite3.Error, OSError, ValueError) as error:
        needed = path.stat().st_size if path.exists() else 0
        if no_room := full(Path(gettempdir()), error, needed):
            raise InvalidInput.of(
                "state_dir", f"the state in {directory} cannot be copied to read it: {no_room}"
            ) from None
        raise InvalidInput.of("state_dir", _instructions(directory, error)) from None


def _file_number(file: Path | int | None) -> FileNumber:
    """Of a path or a descriptor. Raises ``OSError``."""
    assert file is not None
    found = os.stat(file)
    return found.st_dev, found.st_ino


# ---- older and unreadable states


def _put_by(path: Path) -> None:
    """Nothing that was put by before is overwritten. Raises ``OSError``."""
    aside = path.with_name(path.name + TAKEN_OVER)
    if not path.exists():
        return
    if aside.exists():
        log.warning("not read: the database counts", file=str(path))
        return
    path.replace(aside)
    sync_directory(path.parent)


def _instructions(directory: Path, error: Exception) -> str:
    if isinstance(error, NewerFormat):
        return (
            f"the state in {directory} is of a newer version: {error}. Nothing was changed. Start the version that "
            "wrote it, or restore the backup from before the upgrade"
        )
    drop = f", or forget single jobs (signalbox state drop --state-dir {directory} JOB)"
    return (
        f"the state in {directory} cannot be read: {error}. Nothing was changed. Restore the directory from a copy"
        f"{drop if isinstance(error, Unreadable) else ''}, or "
        "move its files away to start without jobs: they register again with their next heartbeat"
    )


def _cannot_write(directory: Path, error: Exception) -> InvalidInput:
    return InvalidInput.of("state_dir", f"cannot write in {directory}: {full(directory, error) or error}")


def _lock(state_dir: Path, wait: bool) -> int | None:
    """The descriptor of a lock, which ends with the process; None when another process holds it."""
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(state_dir / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        why = full(state_dir, error) or error.strerror or error
        raise InvalidInput.of("state_dir", f"cannot write in {state_dir}: {why}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    try:
        os.truncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())
    except OSError as error:
        os.close(lock)
        raise _cannot_write(state_dir, error) from None
    return lock
