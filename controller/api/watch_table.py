"""Table of the rows of a watch, each encoded once for all watchers. Pure.

In: all present rows. Out: messages for watchers. The table has a version, which grows with each change, and each row
has the version of its last change. A message has the rows that have changed since the version of the watcher's latest
message. So a watcher that reads late gets each row once, in its newest form. Removed rows are remembered for a while.

A serialized message is made by concatenating serialized parts: protobuf merges them and appends their repeated fields
(https://protobuf.dev/programming-guides/encoding/, "Last One Wins"). All calls must be made in one thread; only
``changes`` may run in another thread, between two calls of ``apply``.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from controller.status import Status
from signalbox.errors import InvalidInput

MESSAGE_BYTES = 32 * 1024
"""Approximate largest size of a message in bytes; a single larger row is a message too. gRPC buffers one message for
each watcher that does not read."""

REMEMBERED = 10_000
"""Number of removed rows that the table remembers, so that watchers that read late still learn of the removals."""

SHARED = 32
"""Largest number of messages that are kept until the next change, because most watchers need the same messages."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class ResumeTokens:
    """Texts that name a position in a stream.

    After a restart, positions in earlier tokens are invalid, but the registration that a token names can still be
    read."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(16)

    def token(self, stream: str, position: int, uid: str = "") -> str:
        """Return a token for this position. ``uid``: registration whose stream it is, if any."""
        return f"{uid}.{self._digest(stream)}-{position:x}".removeprefix(".")

    def position(self, stream: str, token: str) -> int | None:
        """Return the position; None without a token, and for a token of another stream or an earlier start.

        Raises ``InvalidInput`` for a malformed token."""
        found = _parts(token)
        return int(found["position"], 16) if found and found["stream"] == self._digest(stream) else None

    @staticmethod
    def uid(token: str) -> str:
        """Return the uid of the registration that the token names; empty if it names none.

        Raises ``InvalidInput`` for a malformed token."""
        found = _parts(token)
        return (found["uid"] or "") if found else ""

    def _digest(self, stream: str) -> str:
        return hashlib.blake2b(stream.encode(), key=self._key, digest_size=8).hexdigest()


def _parts(token: str) -> re.Match[str] | None:
    if not token:
        return None
    found = re.fullmatch(r"((?P<uid>[0-9a-f-]{1,64})\.)?(?P<stream>[0-9a-f]{16})-(?P<position>[0-9a-f]{1,16})", token)
    if not found:
        raise InvalidInput.of("resume_token", "is not a token that a watch sent; leave it empty for a new watch")
    return found


class Rows(ABC, Generic[Key, Value]):
    """Conversion of a status into the rows of one watch, and of each row into a serialized response."""

    @abstractmethod
    def of(self, status: Status) -> Mapping[Key, Value]:
        """Return all present rows."""

    @abstractmethod
    def row(self, key: Key, value: Value) -> bytes:
        """Return the response for a row that is new or has changed."""

    @abstractmethod
    def gone(self, key: Key, value: Value) -> bytes:
        """Return the response for a row that was removed; ``value`` is its last value."""

    def same(self, before: Value, now: Value) -> bool:
        """Return whether two values certainly have the same encoding.

        If unsure, return False: the row is then encoded."""
        return bool(before == now)

    def owner(self, value: Value) -> str:  # noqa: ARG002
        """Return the owner of the row, such as a tenant; it must be the same for all values of a key."""
        return ""


@dataclass(slots=True)
class _Row(Generic[Value]):
    """Encoded row.

    ``value``: None for a removed row. ``encoded``: response with the row, or with its removal. ``version``: version of
    the table at the row's last change."""

    value: Value | None
    encoded: bytes
    owner: str
    version: int = 0

    @property
    def gone(self) -> bool:
        return self.value is None


class WatchTable(Generic[Key, Value]):
    """Versioned table of encoded rows.

    ``response``: message type of the watch, with the field ``resume_token`` and perhaps ``snapshot``."""

    def __init__(
        self,
        response: type[Message],
        rows: Rows[Key, Value],
        remembered: int = REMEMBERED,
        message_bytes: int = MESSAGE_BYTES,
    ) -> None:
        self.version = 0
        self.forgotten = 0
        """Version of the latest removal that the table has forgotten; removals up to this version may be missing."""
        self._encoding = rows
        self._remembered = remembered
        self._message_bytes = message_bytes
        self._rows: dict[Key, _Row[Value]] = {}
        self._gone: dict[Key, None] = {}  # oldest removal first
        self._listed: tuple[_Row[Value], ...] | None = ()
        self._shared: dict[tuple[int | None, int, str | None], tuple[bytes | None, int | None]] = {}
        self._tokens = ResumeTokens()
        self._response: Any = response
        self._snapshot = (
            _serialized(response, snapshot=True) if "snapshot" in response.DESCRIPTOR.fields_by_name else b""
        )

    # ---- changes of the rows

    def changes(self, values: Mapping[Key, Value]) -> list[tuple[Key, _Row[Value]]]:
        """Return the differences between the table and ``values``, which are all present rows.

        Encodes the changed rows."""
        encoding, found = self._encoding, list[tuple[Key, _Row[Value]]]()
        for key, value in values.items():
            row = self._rows.get(key)
            known = row.value if row else None
            if row is None or known is None or not (known is value or encoding.same(known, value)):
                encoded = encoding.row(key, value)
                if row is None or row.gone or row.encoded != encoded:
                    found.append((key, _Row(value, encoded, encoding.owner(value))))
                    continue
            row.value = value  # the comparison of identical objects at the next status is fast
        for key, row in self._rows.items():
            if row.value is not None and key not in values:
                found.append((key, _Row(None, encoding.gone(key, row.value), row.owner)))
        return found

    def apply(self, changes: Iterable[tuple[Key, _Row[Value]]]) -> None:
        """Apply the differences that ``changes`` has returned."""
        version = self.version + 1
        for key, new in changes:
            self.version = new.version = version
            row = self._rows.get(key)
            if row is None:
                self._rows[key] = new
                self._listed = None
            else:
                row.value, row.encoded, row.version = new.value, new.encoded, version
            self._gone.pop(key, None)
            if new.gone:
                self._gone[key] = None
        while len(self._gone) > self._remembered:
            key = next(iter(self._gone))
            self.forgotten = self._rows.pop(key).version
            del self._gone[key]
            self._listed = None
        if self.version == version:
            self._shared.clear()

    def update(self, values: Mapping[Key, Value]) -> None:
        """Replace the rows by ``values``."""
        self.apply(self.changes(values))

    # ---- messages for watchers

    def position(self, token: str, only: str | None = None) -> int | None:
        """Return the version of the table that a watcher with this token knows; None if the watcher needs a snapshot.

        ``only``: as in ``Reader``. Raises ``InvalidInput`` for a malformed token."""
        known = self._tokens.position(f"only {only}" if only is not None else "all", token)
        return known if known is not None and self.forgotten <= known <= self.version else None

    def listed(self) -> tuple[_Row[Value], ...]:
        """Return all rows, including removed ones. The tuple is the same object until a row is added or forgotten."""
        if self._listed is None:
            self._listed = tuple(self._rows.values())
        return self._listed

    def message(
        self, rows: tuple[_Row[Value], ...], at: int, after: int | None, until: int, only: str | None
    ) -> tuple[bytes | None, int | None]:
        """Return a message, and the index of the row with which the next message begins.

        The message has rows from index ``at`` on: those that changed after version ``after``, or, if ``after`` is None,
        all present rows. In the last message, the resume token names version ``until``, and the returned index is None.
        The message is None if there is nothing to send."""
        if rows is not self._listed or until != self.version:
            return self._message(rows, at, after, until, only)
        place = (after, at, only)
        if place not in self._shared:
            if len(self._shared) >= SHARED:
                self._shared.clear()
            self._shared[place] = self._message(rows, at, after, until, only)
        return self._shared[place]

    def _message(
        self, rows: tuple[_Row[Value], ...], at: int, after: int | None, until: int, only: str | None
    ) -> tuple[bytes | None, int | None]:
        parts = [self._snapshot] if after is None and at == 0 else []
        size, following = 0, None
        for index in range(at, len(rows)):
            row = rows[index]
            if (row.gone if after is None else row.version <= after) or (only is not None and row.owner != only):
                continue
            if size and size + len(row.encoded) > self._message_bytes:
                following = index
                break
            parts.append(row.encoded)
            size += len(row.encoded)
        if not parts and at == 0:
            return None, None
        if following is None:
            token = self._tokens.token(f"only {only}" if only is not None else "all", until)
            parts.append(_serialized(self._response, resume_token=token))
        return b"".join(parts), following


class Reader(Generic[Key, Value]):
    """Position of one watcher. ``only``: owner whose rows the watcher receives; None: all rows."""

    def __init__(self, table: WatchTable[Key, Value], token: str = "", only: str | None = None) -> None:
        """Begin at the position in the resume token. Raises ``InvalidInput`` for a malformed token."""
        self._table = table
        self._only = only
        self._after = table.position(token, only)
        self._until = 0
        self._rows: tuple[_Row[Value], ...] = ()
        self._at: int | None = None  # None: between two passes over the rows

    def message(self) -> bytes | None:
        """Return the next message; None when the watcher has received all changes.

        A row that changes during a pass over all rows may be sent in its newest form, and again in the next pass."""
        table = self._table
        if self._at is None:
            if self._after is not None and self._after < table.forgotten:
                self._after = None
            if self._after == table.version:
                return None
            self._rows, self._until, self._at = table.listed(), table.version, 0
        message, self._at = table.message(self._rows, self._at, self._after, self._until, self._only)
        if self._at is None:
            self._after, self._rows = self._until, ()
        return message


def _serialized(kind: Any, **fields: Any) -> bytes:
    encoded: bytes = kind(**fields).SerializeToString()
    return encoded
