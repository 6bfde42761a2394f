"""The database of the saved state: records with checksums, written and read.

In: changes of records. Out: the revision that holds them; all records, or what is wrong with them. The database is
SQLite's in WAL mode with ``synchronous=FULL`` (sqlite.org/wal.html): a commit is on disk when it returns, and after a
crash the database is at one commit. That it is at one is checked when it is opened: each record has a checksum, and the
revision has one of all records together. SQLite drops what follows damage in its log (the WAL) without a word, so the
log is copied into the database after each commit, and damage there costs the last one at most.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from controller.jobs.messages import SavedState
from controller.store.disk import sync_directory
from controller.store.records import FORMAT, ChangedRecords, Key, Kind, changes, encode

OLDEST = 2
"""Format (SQLite's ``user_version``) that is still read. 1 was a JSON file, which is read too."""

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


class NewerFormat(ValueError):
    """A newer version has written the database."""


class Written(NamedTuple):
    """What a database holds, as text of the format that it has: nothing is accepted by today's rules yet."""

    records: tuple[tuple[Key, str], ...]
    revision: int
    format: int


def opened(path: Path) -> sqlite3.Connection:
    """For the store's thread. Its files stay open, so that a commit needs no descriptor. Raises ``sqlite3.Error``."""
    database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    return database


def empty_log(database: sqlite3.Connection) -> None:
    """Copy all commits from the log into the database. What cannot be copied now stays in the log until the next
    commit; readers are not waited for (sqlite.org/pragma.html, ``wal_checkpoint``)."""
    with suppress(sqlite3.Error):
        database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def beside(path: Path) -> tuple[Path, ...]:
    """The files that SQLite keeps beside the database while it is open, and after a crash: the log and its index."""
    return tuple(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))


def make(path: Path, saved: SavedState) -> None:
    """A database with this state, whole or not at all: an empty file is never one. Its files can be read by their owner
    only. Raises ``sqlite3.Error`` and ``OSError``."""
    made = path.with_suffix(".new")
    made.unlink(missing_ok=True)
    os.close(os.open(made, os.O_RDWR | os.O_CREAT, 0o600))
    with closing(opened(made)) as database:
        with _transaction(database):
            for statement in TABLES.split(";")[:-1]:
                database.execute(statement)
            database.execute("INSERT INTO revision VALUES (?, ?, ?, ?)", sealed(0, 0, 0))
            database.execute(f"PRAGMA application_id = {APPLICATION}")
            database.execute(f"PRAGMA user_version = {FORMAT}")
        if first := changes(SavedState(), saved):
            write(database, [first])
    made.replace(path)
    sync_directory(path.parent)


def upgrade(database: sqlite3.Connection, saved: SavedState) -> int:
    """Write all jobs and ends in today's format, which others have had from the start; returns the revision. Raises
    ``sqlite3.Error``: then nothing has changed."""
    with _transaction(database):
        revision = _put(database, changes(SavedState(), SavedState(saved.jobs, ends=saved.ends)))
        database.execute(f"PRAGMA user_version = {FORMAT}")
    return revision


def read(path: Path) -> Written:
    """A copy is read: reading a database can change it. Raises ``sqlite3.Error``, ``OSError`` and ``ValueError``."""
    with TemporaryDirectory(prefix="signalbox-state.") as scratch:
        for file in (path, *beside(path)[:1]):
            if file.exists():
                shutil.copy(file, scratch)
        with closing(sqlite3.connect(Path(scratch, path.name))) as database:
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


def write(database: sqlite3.Connection, commits: Iterable[ChangedRecords]) -> int:
    """In one transaction; returns its revision. Raises ``sqlite3.Error``: then nothing has changed."""
    merged: dict[Key, object] = {}
    for changed in commits:
        merged |= changed
    with _transaction(database):
        return _put(database, merged)


def _put(database: sqlite3.Connection, merged: ChangedRecords) -> int:
    """Within a transaction; returns the revision that it makes."""
    revision, records, before = database.execute("SELECT number, records, checksum FROM revision").fetchone()
    total = int.from_bytes(before)
    for key, value in merged.items():
        old = database.execute("SELECT checksum FROM record WHERE kind = ? AND key = ?", key).fetchone()
        if old:
            total ^= int.from_bytes(old[0])
            records -= 1
        if value is None:
            database.execute("DELETE FROM record WHERE kind = ? AND key = ?", key)
            continue
        text = encode(key, value)
        own = checksum(*key, text)
        total ^= int.from_bytes(own)
        records += 1
        database.execute(
            "INSERT INTO record (kind, key, value, checksum) VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET value = excluded.value, checksum = excluded.checksum",
            (*key, text, own),
        )
    row = sealed(revision + 1, records, total)
    database.execute("UPDATE revision SET number = ?, records = ?, checksum = ?, seal = ?", row)
    return int(revision) + 1


def _checked(database: sqlite3.Connection) -> Written:
    """Raises ``sqlite3.Error`` and ``ValueError`` for what is not as it was written."""
    found = dict(zip(("application", "format"), _pragmas(database, "application_id", "user_version"), strict=True))
    if found["application"] != APPLICATION:
        raise ValueError("it is no state of signalbox")
    if not OLDEST <= found["format"] <= FORMAT:
        kind = NewerFormat if found["format"] > FORMAT else ValueError
        raise kind(f"it has format {found['format']}, this version reads {OLDEST} to {FORMAT}")
    damage = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if damage != "ok":
        raise ValueError(f"it is damaged: {damage}")
    ((number, *revision),) = database.execute("SELECT number, records, checksum, seal FROM revision").fetchall()
    rows = database.execute("SELECT kind, key, value, checksum FROM record ORDER BY number").fetchall()
    total = 0
    for kind, key, value, own in rows:
        if not all(isinstance(text, str) for text in (kind, key, value)) or checksum(kind, key, value) != own:
            raise ValueError(f"it is damaged: {kind} {key!r} is not what was written")
        total ^= int.from_bytes(own)
    if sealed(number, len(rows), total) != (number, *revision):
        raise ValueError(f"it is damaged: the records are not those of revision {number}")
    return Written(tuple((Key(Kind(kind), key), value) for kind, key, value, _ in rows), int(number), found["format"])


def _pragmas(database: sqlite3.Connection, *names: str) -> list[int]:
    return [int(database.execute(f"PRAGMA {name}").fetchone()[0]) for name in names]


def sealed(number: int, records: int, total: int) -> tuple[int, int, bytes, bytes]:
    """The row of a revision."""
    of_all = total.to_bytes(CHECKSUM_BYTES)
    return number, records, of_all, checksum(str(number), str(records), of_all.hex())


def checksum(kind: str, key: str, value: str) -> bytes:
    """Of one record."""
    return hashlib.blake2b("\0".join((kind, key, value)).encode(), digest_size=CHECKSUM_BYTES).digest()
