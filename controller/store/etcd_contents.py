"""Keys of the state in etcd, below a prefix, and the meaning of their values. Pure.

- ``record/KIND/KEY``: a record, or the number of its sections if it is too large for one request.
- ``section/NUMBER/KIND/KEY``: a section of such a record.
- ``commit``: JSON with the id of the last commit, and the number of its parts, which may not be applied yet.
- ``part/ID/NUMBER``: operations of a commit that is too large for one request, as a ``TxnRequest``.
- ``format``: the format of the records, in decimal digits.
- ``epoch``: the base of epochs, in decimal digits. An epoch is this number plus a revision of etcd.
- ``lease-secret``: the secret of lease tokens.
- ``event/NUMBER``: see ``etcd_events``; ``claim``, ``claimed``, ``alive``: ``etcd_claim``; ``members/NAME/ID``,
  ``draining/NAME``: ``etcd_members``; ``assign/DPID``: ``etcd_assignments``.

Values above ``COMPRESSED_BYTES`` are compressed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from controller.store.etcd_operations import Operations, delete, key, put
from controller.store.etcd_v3 import etcd_pb2 as pb
from controller.store.records import FORMAT, Key, Kind, format_problem
from controller.store.store import LARGEST_EPOCH

MOST_RECORDS = 100
MOST_BYTES = 1_000_000
"""``MOST_RECORDS`` records and ``MOST_BYTES`` bytes are the limits of one request to etcd.

Both limits are below etcd's own default limits of 128 operations and 1.5 MB."""

MOST_DIGITS = 19
"""Largest number of digits of a number in etcd."""

COMPRESSED_BYTES = 1 << 16
"""Size above which values are compressed. A compressed value begins with ``COMPRESSED``."""

COMPRESSED = b"x"
"""First byte of the output of zlib; neither JSON nor a part begins with it."""

SECTIONS = b"#"
"""First byte of a value that is the number of sections of a record."""

Texts = Mapping[bytes, bytes | None]
"""Values by key; None for a key to delete."""


class Malformed(ValueError):
    """A value in etcd was not written by a controller. The text of the exception names the key."""

    @classmethod
    def of(cls, name: str, value: bytes) -> Malformed:
        return cls(f"the key {name} has the malformed value {value[:40]!r}")


class Contents(NamedTuple):
    """Contents of etcd at ``revision``."""

    texts: dict[bytes, bytes]
    """Values of the keys of all records, with the valid commit applied."""
    epoch: int
    """Base of epochs: an epoch is this number plus a revision of etcd. 0 if the base was not written yet."""
    commit: int
    """Revision of the key ``commit``; 0 without this key."""
    parts: list[Operations]
    """Parts of the valid commit; in etcd, they may not be applied yet."""
    has_parts: bool
    """Whether etcd has parts of any commit."""
    revision: int

    @property
    def last(self) -> int:
        """Revision of the state; 0 for a state that no controller has used. No earlier epoch is larger."""
        return self.epoch + self.revision if self.epoch else 0


def contents(root: bytes, keys: Sequence[pb.KeyValue], revision: int) -> Contents:
    """Return the contents that are described by all keys below ``root``. Raises ``Malformed``."""
    of_keys = {each.key: each.value for each in keys}
    commit = next((each for each in keys if each.key == key(root, "commit")), None)
    has_parts = any(name.startswith(key(root, "part", "")) for name in of_keys)
    names_of_parts = _names_of_parts(commit.value, len(of_keys)) if commit else []
    parts = [_part(name, of_keys.get(key(root, name))) for name in names_of_parts]
    for operation in (operation for part in parts for operation in part):
        if operation.HasField("request_put"):
            of_keys[operation.request_put.key] = operation.request_put.value
        else:
            of_keys.pop(operation.request_delete_range.key, None)
    form = number("format", of_keys.get(key(root, "format")), FORMAT)
    if why := why_unreadable(form):
        raise Malformed(why)
    epoch = number("epoch", of_keys.get(key(root, "epoch")), 0)
    of_records = key(root, "record", ""), key(root, "section", "")
    texts = {name: value for name, value in of_keys.items() if name.startswith(of_records)}
    return Contents(texts, epoch, commit.mod_revision if commit else 0, parts, has_parts, revision)


def why_unreadable(form: int) -> str:
    """Return why this version cannot read a state in this format; empty if it can."""
    if not (problem := format_problem(form)):
        return ""
    remedy = "Start the version that wrote it"
    if form > FORMAT:
        remedy += ", or stop all controllers and import a backup of this version's state"
    return f"the state {problem}. Nothing was changed. {remedy}"


def name_of_part(commit_id: str, number: int) -> str:
    return f"part/{commit_id}/{number:06}"


def _names_of_parts(commit: bytes, most: int) -> list[str]:
    """Return the names of the parts of a valid commit, from the value of the key ``commit``. Raises ``Malformed``.

    ``most``: number of all keys in etcd. The value is malformed if it announces as many parts or more."""
    try:
        data = json.loads(commit)
        commit_id, count = str(data["id"]), int(data["parts"])
        if not 0 <= count < most:
            raise ValueError
        return [name_of_part(commit_id, place) for place in range(count)]
    except (ValueError, TypeError, KeyError, OverflowError):
        raise Malformed.of("commit", commit) from None


def _part(name: str, value: bytes | None) -> Operations:
    if value is None:
        raise Malformed(f"a part of the last commit is missing: the key {name}")
    try:
        return pb.TxnRequest.FromString(expanded(value)).success
    except (DecodeError, zlib.error):
        raise Malformed.of(name, value) from None


def number(name: str, value: bytes | None, default: int) -> int:
    """Return the number in a key, or the default if the key is missing. Raises ``Malformed``."""
    if value is None:
        return default
    if not value.isdigit() or len(value) > MOST_DIGITS or int(value) > LARGEST_EPOCH:
        raise Malformed.of(name, value)
    return int(value)


def records(root: bytes, texts: Mapping[bytes, bytes]) -> Iterator[tuple[Key, str]]:
    """Yield the records that these keys describe. Raises ``ValueError`` and ``zlib.error``."""
    begin = key(root, "record", "")
    for name, value in texts.items():
        if name.startswith(begin):
            kind, _, of_kind = name[len(begin) :].decode().partition("/")
            record = Key(Kind(kind), of_kind)
            sections = names(root, record, texts)[1:]
            if missing := [section for section in sections if section not in texts]:
                raise Malformed(f"a section of a record is missing: the key {missing[0][len(root) :].decode()}")
            whole = b"".join(texts[section] for section in sections) if sections else value
            yield record, expanded(whole).decode()


def names(root: bytes, record: Key, texts: Mapping[bytes, bytes]) -> list[bytes]:
    """Return the names of all keys of a record; the first is the key of the record itself. Raises ``Malformed``."""
    first = key(root, "record", *record)
    value = texts.get(first, b"")
    if not value.startswith(SECTIONS):
        return [first]
    count = value.removeprefix(SECTIONS)
    if not count.isdigit() or len(count) > MOST_DIGITS or int(count) >= len(texts):
        raise Malformed.of(f"record/{record.kind}/{record.key}", value)
    return [first, *(_section(root, record, place) for place in range(int(count)))]


def values(root: bytes, record: Key, text: str) -> dict[bytes, bytes]:
    """Return the values of all keys of a record."""
    value = compressed(text.encode())
    first = key(root, "record", *record)
    if len(value) <= MOST_BYTES:
        return {first: value}
    sections = [value[at : at + MOST_BYTES] for at in range(0, len(value), MOST_BYTES)]
    of_sections = {_section(root, record, place): section for place, section in enumerate(sections)}
    return {first: SECTIONS + str(len(sections)).encode(), **of_sections}


def _section(root: bytes, record: Key, place: int) -> bytes:
    return key(root, "section", f"{place:06}", *record)


def parts(texts: Texts) -> Iterator[list[pb.RequestOp]]:
    """Divide the writes into requests that are small enough for etcd."""
    part: list[pb.RequestOp] = []
    size = 0
    for name, text in texts.items():
        more = len(name) + len(text or b"")
        if part and (len(part) == MOST_RECORDS or size + more > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(delete(name) if text is None else put(name, text))
        size += more
    if part:
        yield part


def compressed(text: bytes) -> bytes:
    return zlib.compress(text) if len(text) > COMPRESSED_BYTES else text


def expanded(value: bytes) -> bytes:
    """Return a value without its compression; the inverse of ``compressed``. Raises ``zlib.error``."""
    return zlib.decompress(value) if value.startswith(COMPRESSED) else value
