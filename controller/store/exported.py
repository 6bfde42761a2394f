"""Text form of a state, with which a command moves the state from one store to another.

docs/reference/file-formats.md#exported-state describes the lines. The secret of lease tokens is in hexadecimal digits.
``epoch`` is not less than any epoch of the exported state.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import NamedTuple

from controller.jobs.messages import SavedState
from controller.store.lease_secret import SECRET_BYTES
from controller.store.records import FORMAT as RECORDS_FORMAT
from controller.store.records import Key, Kind, changes, decode, encode, format_problem

FORMAT = 1
"""The only version of the text that is read and written."""

NAME = "signalbox state"
"""Name of the field with the format, in the first line, which identifies the text as an exported state."""


class Exported(NamedTuple):
    state: SavedState
    secret: bytes
    epoch: int
    """Number that is not less than any epoch of the exported state."""


def text_of(exported: Exported) -> bytes:
    lines = "".join(f"{json.dumps(line)}\n" for line in _lines(exported)).encode()
    return lines + _checksum_line(lines)


def _lines(exported: Exported) -> Iterator[object]:
    yield {
        NAME: FORMAT,
        "records": RECORDS_FORMAT,
        "epoch": exported.epoch,
        "lease_secret": exported.secret.hex(),
    }
    for key, value in changes(SavedState(), exported.state).items():
        yield [*key, json.loads(encode(key, value))]


def parsed(text: bytes) -> Exported:
    """Return the state in a text. Raises ``ValueError`` for a damaged text, and for one of another format."""
    try:
        first, *records, _ = text.splitlines(keepends=True)
        header = json.loads(first)
        form, of_records = int(header[NAME]), int(header["records"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("it is not an exported state") from None
    if form != FORMAT:
        raise ValueError(f"it has format {form}; this version reads format {FORMAT}")
    if problem := format_problem(of_records):
        raise ValueError(f"its state {problem}")
    lines = first + b"".join(records)
    if text != lines + _checksum_line(lines):
        raise ValueError("it is damaged: its checksum does not match its lines")
    try:
        found = [(Key(Kind(kind), key), json.dumps(value)) for kind, key, value in map(json.loads, records)]
        secret, epoch = bytes.fromhex(header["lease_secret"]), int(header["epoch"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"it is damaged: {error}") from None
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"it is damaged: its secret has {len(secret)} of {SECRET_BYTES} bytes")
    return Exported(decode(found), secret, epoch)


def _checksum_line(lines: bytes) -> bytes:
    return f"{json.dumps({'blake2b': hashlib.blake2b(lines).hexdigest()})}\n".encode()
