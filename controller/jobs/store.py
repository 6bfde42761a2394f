"""What a restarted controller has to know, on disk: jobs, how others ended, strategy, shares of split flows, measured
traffic.

Owns the state directory: a database of records, and a lock that keeps a second controller out. In: the records that a
change alters. Out: a revision once they are on disk, or why they are not; after a restart all of them, or a refusal.
Nothing that cannot be read is changed or set aside.

The database is SQLite's in WAL mode with ``synchronous=FULL`` (sqlite.org/wal.html): a commit is on disk when it
returns, and after a crash the database is at one commit. That it is at one is checked when it is opened: each record
has a checksum, and the revision has one of all records together. SQLite drops what follows damage in its log (the WAL)
without a word, so the log is copied into the database after each commit, and damage there costs the last one at most.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import queue
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import structlog

from controller.errors import InvalidInput, NotFound
from controller.jobs.messages import SavedState
from controller.jobs.records import FORMAT, Changes, Key, Kind, Unreadable, changes, decode, encode, first_format
from controller.private_directory import private_directory

log = structlog.get_logger(__name__)

FILE = "state.db"

OLDEST = 2
"""Format (SQLite's ``user_version``) that is still read. 1 was a JSON file, which is read too."""
FIRST_FORMAT = "state.json"
TAKEN_OVER = ".taken-over"
"""Put behind that name once the database has what is in it: a version that reads it would start with jobs of then."""

OWNED = 3
"""The first format whose jobs have owners."""

APPLICATION = 0x5347_4258
"""SQLite's ``application_id`` of these files: SGBX."""

CHECKSUM_BYTES = 8
BUSY_S = 5.0

TABLES = """
CREATE TABLE record (
    number INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, checksum BLOB NOT NULL,
    UNIQUE (kind, key)
);
CREATE TABLE revision (number INTEGER NOT NULL, records INTEGER NOT NULL, checksum BLOB NOT NULL, seal BLOB NOT NULL);
"""
"""``checksum``: of all records together, the exclusive or of theirs. ``seal``: of the other columns."""

Done = Callable[[int | OSError], None]
"""Is given the revision that holds the changes, or why nothing does. Called in the store's thread."""


class Written(NamedTuple):
    """What a database holds, as text of the format that it has: nothing is accepted by today's rules yet."""

    records: tuple[tuple[Key, str], ...]
    revision: int
    format: int


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
        self._loaded = SavedState(), FORMAT

    # ---- the directory

    def claim(self, wait: bool = False) -> bool:
        """Keep every other controller from the directory, which is made when it is missing, until ``close`` or the
        process's end. False when another has it; ``wait`` for it instead. Raises ``InvalidInput`` when the directory
        cannot be written."""
        if self._lock is None and self.directory is not None:
            self._lock = _lock(self.directory, wait)
        return self._lock is not None or self.directory is None

    def owner(self) -> str:
        """The process id of the controller that claimed the directory last."""
        try:
            return (self.directory / "lock").read_text(errors="replace")[:20] or "unknown" if self.directory else "none"
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
        if self._path is None or self.directory is None:
            return SavedState()
        self._claim_now("stop it, or start with --standby to take over when it ends")
        try:
            if self._path.exists():
                records, revision, found = _read(self._path)
                saved = replace(decode(records, found), revision=revision)
            elif left := [file.name for file in _beside(self._path) if file.exists()]:
                raise ValueError(f"{self._path.name} is missing beside {' and '.join(left)}")
            else:
                saved, found = first_format(self.directory / FIRST_FORMAT), 1
        except (sqlite3.Error, OSError, ValueError) as error:
            raise InvalidInput.of("state_dir", _instructions(self.directory, error)) from None
        self._loaded, self._revision = (saved, found), saved.revision
        log.info("state read", revision=self._revision, jobs=len(saved.jobs))
        return saved

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
            return _read(self._path)
        except (sqlite3.Error, OSError, ValueError) as error:
            raise InvalidInput.of("state_dir", _instructions(self._path.parent, error)) from None

    def drop(self, job_ids: Iterable[str]) -> int:
        """Forget these jobs, in one commit; returns its revision. All other records stay as they are, whether they
        would be accepted or not. Raises ``NotFound``, and ``InvalidInput`` as ``load`` does."""
        saved, wanted = {key.key for key, _ in self.written().records if key.kind is Kind.JOB}, tuple(job_ids)
        if unknown := [job_id for job_id in wanted if job_id not in saved]:
            raise NotFound(f"{self.directory} has no job '{unknown[0]}'")
        gone = {Key(kind, job_id): None for job_id in wanted for kind in (Kind.JOB, Kind.CONNECTIONS, Kind.MEASURED)}
        assert self._path is not None
        try:
            with closing(_opened(self._path)) as database:
                return _write(database, [gone])
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
                _make(self._path, saved)
            database = _opened(self._path)
            if OLDEST <= found < FORMAT:
                self._revision = _upgrade(database, saved)
            _put_by(self.directory / FIRST_FORMAT)
            database.execute("SELECT number FROM revision").fetchone()  # opens the log and its index
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
                _empty_log(database)

    def _waiting(self) -> Iterator[_Commit]:
        while not self._commits.empty():
            commit = self._commits.get()
            if commit is None:
                self._commits.put(None)
                return
            yield commit

    def _write(self, database: sqlite3.Connection, commits: Iterable[_Commit]) -> int | OSError:
        try:
            self._revision = _write(database, [commit.changes for commit in commits])
        except (sqlite3.Error, OSError) as error:
            return OSError(str(error))
        return self._revision


# ---- the database


def _opened(path: Path) -> sqlite3.Connection:
    """For the store's thread. Its files stay open, so that a commit needs no descriptor. Raises ``sqlite3.Error``."""
    database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    return database


def _empty_log(database: sqlite3.Connection) -> None:
    """Copy all commits from the log into the database. What cannot be copied now stays in the log until the next
    commit; readers are not waited for (sqlite.org/pragma.html, ``wal_checkpoint``)."""
    with suppress(sqlite3.Error):
        database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def _beside(path: Path) -> tuple[Path, ...]:
    """The files that SQLite keeps beside the database while it is open, and after a crash: the log and its index."""
    return tuple(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))


def _make(path: Path, saved: SavedState) -> None:
    """A database with this state, whole or not at all: an empty file is never one. Its files can be read by their owner
    only. Raises ``sqlite3.Error`` and ``OSError``."""
    made = path.with_suffix(".new")
    made.unlink(missing_ok=True)
    os.close(os.open(made, os.O_RDWR | os.O_CREAT, 0o600))
    with closing(_opened(made)) as database:
        with _transaction(database):
            for statement in TABLES.split(";")[:-1]:
                database.execute(statement)
            database.execute("INSERT INTO revision VALUES (?, ?, ?, ?)", _sealed(0, 0, 0))
            database.execute(f"PRAGMA application_id = {APPLICATION}")
            database.execute(f"PRAGMA user_version = {FORMAT}")
        if first := changes(SavedState(), saved):
            _write(database, [first])
    made.replace(path)
    _sync_directory(path.parent)


def _upgrade(database: sqlite3.Connection, saved: SavedState) -> int:
    """Write all jobs in today's format; returns the revision. Raises ``sqlite3.Error``: then nothing has changed."""
    with _transaction(database):
        revision = _put(database, changes(SavedState(), SavedState(saved.jobs)))
        database.execute(f"PRAGMA user_version = {FORMAT}")
    return revision


def _read(path: Path) -> Written:
    """A copy is read: reading a database can change it. Raises ``sqlite3.Error``, ``OSError`` and ``ValueError``."""
    with private_directory("state") as scratch:
        for file in (path, *_beside(path)[:1]):
            if file.exists():
                shutil.copy(file, scratch)
        with closing(sqlite3.connect(scratch / path.name)) as database:
            return _checked(database)


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, whatever raises."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _write(database: sqlite3.Connection, commits: Iterable[Changes]) -> int:
    """In one transaction; returns its revision. Raises ``sqlite3.Error``: then nothing has changed."""
    merged: dict[Key, object] = {}
    for changed in commits:
        merged |= changed
    with _transaction(database):
        return _put(database, merged)


def _put(database: sqlite3.Connection, merged: Changes) -> int:
    """Within a transaction; returns the revision that it makes."""
    revision, records, checksum = database.execute("SELECT number, records, checksum FROM revision").fetchone()
    total = int.from_bytes(checksum)
    for key, value in merged.items():
        old = database.execute("SELECT checksum FROM record WHERE kind = ? AND key = ?", key).fetchone()
        if old:
            total ^= int.from_bytes(old[0])
            records -= 1
        if value is None:
            database.execute("DELETE FROM record WHERE kind = ? AND key = ?", key)
            continue
        text = encode(key, value)
        own = _checksum(*key, text)
        total ^= int.from_bytes(own)
        records += 1
        database.execute(
            "INSERT INTO record (kind, key, value, checksum) VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET value = excluded.value, checksum = excluded.checksum",
            (*key, text, own),
        )
    sealed = _sealed(revision + 1, records, total)
    database.execute("UPDATE revision SET number = ?, records = ?, checksum = ?, seal = ?", sealed)
    return int(revision) + 1


def _checked(database: sqlite3.Connection) -> Written:
    """Raises ``sqlite3.Error`` and ``ValueError`` for what is not as it was written."""
    found = dict(zip(("application", "format"), _pragmas(database, "application_id", "user_version"), strict=True))
    if found["application"] != APPLICATION:
        raise ValueError("it is no state of signalbox")
    if not OLDEST <= found["format"] <= FORMAT:
        raise ValueError(f"it has format {found['format']}, this version reads {OLDEST} to {FORMAT}")
    damage = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if damage != "ok":
        raise ValueError(f"it is damaged: {damage}")
    ((number, *revision),) = database.execute("SELECT number, records, checksum, seal FROM revision").fetchall()
    rows = database.execute("SELECT kind, key, value, checksum FROM record ORDER BY number").fetchall()
    total = 0
    for kind, key, value, own in rows:
        if not all(isinstance(text, str) for text in (kind, key, value)) or _checksum(kind, key, value) != own:
            raise ValueError(f"it is damaged: {kind} {key!r} is not what was written")
        total ^= int.from_bytes(own)
    if _sealed(number, len(rows), total) != (number, *revision):
        raise ValueError(f"it is damaged: the records are not those of revision {number}")
    return Written(tuple((Key(Kind(kind), key), value) for kind, key, value, _ in rows), int(number), found["format"])


def _pragmas(database: sqlite3.Connection, *names: str) -> list[int]:
    return [int(database.execute(f"PRAGMA {name}").fetchone()[0]) for name in names]


def _sealed(number: int, records: int, total: int) -> tuple[int, int, bytes, bytes]:
    """The row of a revision."""
    checksum = total.to_bytes(CHECKSUM_BYTES)
    return number, records, checksum, _checksum(str(number), str(records), checksum.hex())


def _checksum(kind: str, key: str, value: str) -> bytes:
    """Of one record."""
    return hashlib.blake2b("\0".join((kind, key, value)).encode(), digest_size=CHECKSUM_BYTES).digest()


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
    _sync_directory(path.parent)


def _instructions(directory: Path, error: Exception) -> str:
    drop = f", or forget single jobs (signalbox state drop --state-dir {directory} JOB)"
    return (
        f"the state in {directory} cannot be read: {error}. Nothing was changed. Restore the directory from a copy"
        f"{drop if isinstance(error, Unreadable) else ''}, or "
        "move its files away to start without jobs: they register again with their next heartbeat"
    )


def _cannot_write(directory: Path, error: Exception) -> InvalidInput:
    return InvalidInput.of("state_dir", f"cannot write in {directory}: {error}")


def _sync_directory(directory: Path) -> None:
    """A rename survives a power failure only when its directory was synced (rename(2), fsync(2))."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(state_dir: Path, wait: bool) -> int | None:
    """The descriptor of a lock, which ends with the process; None when another process holds it."""
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InvalidInput.of("state_dir", f"cannot write in {state_dir}: {error.strerror or error}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    os.truncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    return lock
