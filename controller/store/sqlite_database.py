"""SQLite database of the saved state: records with checksums, written and read.

In: changes of records. Out: the revision that contains the changes; all records, or an error that describes the damage.

The database is in WAL mode with ``synchronous=FULL`` (sqlite.org/wal.html). So a commit is on disk when the call
returns, and after a crash the database contains the state of exactly one commit. Reading verifies this by a checksum
per record, and one of all records together. If SQLite's log (the WAL) is damaged, SQLite silently drops all commits
after the damage. The log is therefore copied into the database after each commit, so that damage costs at most the last
commit.
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

from controller.jobs.messages import SavedState
from controller.store.disk import sync_directory
from controller.store.records import FORMAT, ChangedRecords, Key, Kind, Written, changes, encode, format_problem

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
"""Tables of the database.

``revision.checksum``: XOR of the checksums of all records. ``revision.seal``: checksum of the other columns of
``revision``."""


class NewerFormat(ValueError):
    """The database was written by a newer version."""


def opened(path: Path) -> sqlite3.Connection:
    """Return the open database, for the store's thread. Raises ``sqlite3.Error``.

    The files of the database stay open, so that a commit needs no new file descriptor."""
    database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    return database


def empty_log(database: sqlite3.Connection) -> None:
    """Copy all commits from the log into the database.

    The call does not wait for readers. Commits that cannot be copied now stay in the log until the next commit
    (sqlite.org/pragma.html, ``wal_checkpoint``)."""
    with suppress(sqlite3.Error):
        database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def beside(path: Path) -> tuple[Path, ...]:
    """Return the paths of the log and of its index, which exist while the database is open, and after a crash."""
    return tuple(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))


def make(path: Path, saved: SavedState, least: int = 0) -> None:
    """Create a database with this state, completely or not at all.

    Only the owner can read its files. ``least``: smallest allowed revision. Raises ``sqlite3.Error`` and
    ``OSError``."""
    made = path.with_suffix(".new")
    made.unlink(missing_ok=True)
    os.close(os.open(made, os.O_RDWR | os.O_CREAT, 0o600))
    with closing(opened(made)) as database:
        with _transaction(database):
            for statement in TABLES.split(";")[:-1]:
                database.execute(statement)
            database.execute("INSERT INTO revision VALUES (?, ?, ?, ?)", sealed(0, 0, 0))
            database.execute(f"PRAGMA application_id = {APPLICATION}")
            raise_format(database)
        if first := changes(SavedState(), saved):
            write(database, [first])
        if least:
            raise_revision(database, least)
    made.replace(path)
    sync_directory(path.parent)


def read(path: Path) -> Written:
    """Return the contents of a database, read from a copy, because reading can change a database.

    Raises ``sqlite3.Error``, ``OSError`` and ``ValueError``."""
    with TemporaryDirectory(prefix="signalbox-state.") as scratch:
        for file in (path, *beside(path)[:1]):
            if file.exists():
                shutil.copy(file, scratch)
        with closing(sqlite3.connect(Path(scratch, path.name))) as database:
            return _checked(database)


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Run the statements of the block as one transaction. An exception rolls it back."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def write(database: sqlite3.Connection, commits: Iterable[ChangedRecords]) -> int:
    """Write the changes in one transaction, and return its revision.

    If ``sqlite3.Error`` is raised, nothing has changed."""
    merged: dict[Key, object] = {}
    for changed in commits:
        merged |= changed
    with _transaction(database):
        return _put(database, merged)


def raise_format(database: sqlite3.Connection) -> None:
    """Give the database the format of this version, so that earlier versions refuse the database.

    If it already has this format, nothing is written, since the disk may be full. Raises ``sqlite3.Error``."""
    if _pragmas(database, "user_version") != [FORMAT]:
        database.execute(f"PRAGMA user_version = {FORMAT}")


def raise_revision(database: sqlite3.Connection, least: int) -> int:
    """Raise the revision by 1, or to ``least`` if that is more, and return it. Raises ``sqlite3.Error``."""
    with _transaction(database):
        return _put(database, {}, least)


def _put(database: sqlite3.Connection, merged: ChangedRecords, least: int = 0) -> int:
    """Write the changes in the present transaction, and return the new revision, which is at least ``least``."""
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
    number = max(int(revision) + 1, least)
    database.execute(
        "UPDATE revision SET number = ?, records = ?, checksum = ?, seal = ?", sealed(number, records, total)
    )
    return number


def _checked(database: sqlite3.Connection) -> Written:
    """Return the verified contents. Raises ``sqlite3.Error`` and ``ValueError`` for a damaged or unknown database."""
    found = dict(zip(("application", "format"), _pragmas(database, "application_id", "user_version"), strict=True))
    if found["application"] != APPLICATION:
        raise ValueError("it is not a state database of signalbox")
    if problem := format_problem(found["format"]):
        raise (NewerFormat if found["format"] > FORMAT else ValueError)(f"it {problem}")
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
    return Written(tuple((Key(Kind(kind), key), value) for kind, key, value, _ in rows), int(number))


def _pragmas(database: sqlite3.Connection, *names: str) -> list[int]:
    return [int(database.execute(f"PRAGMA {name}").fetchone()[0]) for name in names]


def sealed(number: int, records: int, total: int) -> tuple[int, int, bytes, bytes]:
    """Return the row of the table ``revision``. ``total``: XOR of the checksums of all records."""
    of_all = total.to_bytes(CHECKSUM_BYTES)
    return number, records, of_all, checksum(str(number), str(records), of_all.hex())


def checksum(kind: str, key: str, value: str) -> bytes:
    """Return the checksum of one record."""
    return hashlib.blake2b("\0".join((kind, key, value)).encode(), digest_size=CHECKSUM_BYTES).digest()
