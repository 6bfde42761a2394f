"""Rows that watchers follow: encoded once for all of them, and since when each is as it is.

Owns the version of the table, the encoded rows, and what is remembered of rows that are gone. In: all rows as they are
now. Out: messages for watchers, each made of the rows that have changed since the version that the watcher knows: a
watcher that asks late gets every row once, in its newest form.

A serialized message is put together from serialized parts: "concatenating the encoded forms of two messages" merges
them, and repeated fields of both add up (https://protobuf.dev/programming-guides/encoding/, "Last One Wins").

Pure. For one thread, but for ``changes``, which may run in another one between two calls of ``apply``.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from controller.status import Status
from signalbox.errors import InvalidInput

MESSAGE_BYTES = 32 * 1024
"""About as much is sent in one message, but for rows that are larger. gRPC keeps one message for a watcher that does
not read."""

REMEMBERED = 10_000
"""Rows that are gone, of which watchers can still be told."""

SHARED = 32
"""Messages that are kept for other watchers until the next change; most watchers need the same."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class ResumeTokens:
    """Texts that name a position in a stream. A process that has started again does not know those of before, but for
    the registration that they are of."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(16)

    def token(self, stream: str, position: int, uid: str = "") -> str:
        """``uid``: of the registration whose stream it is, if it is one's."""
        return f"{uid}.{self._digest(stream)}-{position:x}".removeprefix(".")

    def position(self, stream: str, token: str) -> int | None:
        """None without a token, and for one of another stream or an earlier start. Raises ``InvalidInput`` for what is
        no token."""
        found = _parts(token)
        return int(found["position"], 16) if found and found["stream"] == self._digest(stream) else None

    @staticmethod
    def uid(token: str) -> str:
        """Of the registration that the token names, empty when it names none. Raises ``InvalidInput`` as above."""
        found = _parts(token)
        return (found["uid"] or "") if found else ""

    def _digest(self, stream: str) -> str:
        return hashlib.blake2b(stream.encode(), key=self._key, digest_size=8).hexdigest()


def _parts(token: str) -> re.Match[str] | None:
    if not token:
        return None
    found = re.fullmatch(r"((?P<uid>[0-9a-f-]{1,64})\.)?(?P<stream>[0-9a-f]{16})-(?P<position>[0-9a-f]{1,16})", token)
    if not found:
        raise InvalidInput.of("resume_token", "is none that a watch has sent; leave it empty for a new watch")
    return found


class Rows(Generic[Key, Value]):
    """The rows of one watch, and how they become serialized responses with nothing in them but that row."""

    def of(self, status: Status) -> Mapping[Key, Value]:
        """Return all that there are."""
        raise NotImplementedError

    def row(self, key: Key, value: Value) -> bytes:
        """Return the response for a row that is new or has changed."""
        raise NotImplementedError

    def gone(self, key: Key, value: Value) -> bytes:
        """Return the response for a row that is gone. ``value``: its last one."""
        raise NotImplementedError

    def same(self, before: Value, now: Value) -> bool:
        """Whether a row is known to be the same for two values; False costs an encoding, no more."""
        return bool(before == now)

    def owner(self, value: Value) -> str:  # noqa: ARG002
        """Return whose the row is, the same for all values of a key."""
        return ""


@dataclass(slots=True)
class _Row(Generic[Value]):
    """``value``: None when the row is gone, since thousands of those are remembered. ``encoded``: of the row, or of its
    end. ``version``: of the table, when the row changed last."""

    value: Value | None
    encoded: bytes
    owner: str
    version: int = 0

    @property
    def gone(self) -> bool:
        return self.value is None


class WatchTable(Generic[Key, Value]):
    """``response``: the watch's message, with ``resume_token`` and perhaps ``snapshot``."""

    def __init__(
        self,
        response: type[Message],
        rows: Rows[Key, Value],
        remembered: int = REMEMBERED,
        message_bytes: int = MESSAGE_BYTES,
    ) -> None:
        self.version = 0
        self.forgotten = 0
        """Rows that were gone at this version, or before, may be forgotten."""
        self._encoding = rows
        self._remembered = remembered
        self._message_bytes = message_bytes
        self._rows: dict[Key, _Row[Value]] = {}
        self._gone: dict[Key, None] = {}  # the first to go comes first
        self._listed: tuple[_Row[Value], ...] | None = ()
        self._shared: dict[tuple[int | None, int, str | None], tuple[bytes | None, int | None]] = {}
        self._tokens = ResumeTokens()
        self._response: Any = response
        self._snapshot = (
            _serialized(response, snapshot=True) if "snapshot" in response.DESCRIPTOR.fields_by_name else b""
        )

    # ---- what the rows are

    def changes(self, values: Mapping[Key, Value]) -> list[tuple[Key, _Row[Value]]]:
        """How ``values``, all rows that there are, differ from the table. Encodes what differs."""
        encoding, found = self._encoding, list[tuple[Key, _Row[Value]]]()
        for key, value in values.items():
            row = self._rows.get(key)
            known = row.value if row else None
            if row is None or known is None or not (known is value or encoding.same(known, value)):
                encoded = encoding.row(key, value)
                if row is None or row.gone or row.encoded != encoded:
                    found.append((key, _Row(value, encoded, encoding.owner(value))))
                    continue
            row.value = value  # what is the same object next time is compared in no time
        for key, row in self._rows.items():
            if row.value is not None and key not in values:
                found.append((key, _Row(None, encoding.gone(key, row.value), row.owner)))
        return found

    def apply(self, changes: Iterable[tuple[Key, _Row[Value]]]) -> None:
        """Take in what ``changes`` has found."""
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
        """The rows are ``values`` now."""
        self.apply(self.changes(values))

    # ---- what watchers are told

    def position(self, token: str, only: str | None = None) -> int | None:
        """The version that the watcher with this token knows; None when it needs a snapshot. ``only``: as in
        ``Reader``. Raises ``InvalidInput`` for what is no token."""
        known = self._tokens.position(f"only {only}" if only is not None else "all", token)
        return known if known is not None and self.forgotten <= known <= self.version else None

    def listed(self) -> tuple[_Row[Value], ...]:
        """All rows, also those that are gone; the same object until others come or are forgotten."""
        if self._listed is None:
            self._listed = tuple(self._rows.values())
        return self._listed

    def message(
        self, rows: tuple[_Row[Value], ...], at: int, after: int | None, until: int, only: str | None
    ) -> tuple[bytes | None, int | None]:
        """A message of the rows from index ``at`` on that have changed after a version (None: of all that there are),
        and the index where the next one begins. The last one, which has None there, says that the watcher knows version
        ``until``. No message when there is nothing to say."""
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
    """One watcher: what it has been told. ``only``: of whose rows alone it is told, None: of all."""

    def __init__(self, table: WatchTable[Key, Value], token: str = "", only: str | None = None) -> None:
        """Raises ``InvalidInput`` for what is no token."""
        self._table = table
        self._only = only
        self._after = table.position(token, only)
        self._until = 0
        self._rows: tuple[_Row[Value], ...] = ()
        self._at: int | None = None  # None: between two passes over the rows

    def message(self) -> bytes | None:
        """The next message; None when the watcher knows everything. What changes while a snapshot or a change is read
        in parts is told in its newest form, and once more after it."""
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
