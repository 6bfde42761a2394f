"""The controller as its next version might be: the formats of state and link have higher numbers and a new field.

Jobs in the state have the new field, and so has every message of the link. Run it as ``python -m
tests.support.wire.next_version``, with the arguments of ``python -m controller``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from controller.jobs.messages import Registration
from controller.link import codec
from controller.store import members, records

FIELD, VALUE = "color", "blue"
NAME = "tests.support.wire.next_version"

_encode, _registration, _pack = records.encode, records._registration, codec.pack


def encode(key: records.Key, value: Any) -> str:
    text = _encode(key, value)
    return json.dumps({**json.loads(text), FIELD: VALUE}) if key.kind is records.Kind.JOB else text


def registration(job_id: str, data: Mapping[str, Any]) -> Registration:
    assert data.get(FIELD, VALUE) == VALUE, "states of the present version have no such field"
    return _registration(job_id, data)


def pack(message: object) -> codec.Packed:
    kind, body = msgspec.msgpack.decode(_pack(message))
    more = {**body, FIELD: VALUE} if isinstance(body, dict) else [*body, VALUE]
    return codec.Packed(msgspec.msgpack.encode((kind, more)))


def become_next() -> None:
    """Give the present modules the next version's formats and functions. Call this before other modules import them."""
    records.OLDEST_FORMAT = records.FORMAT
    records.FORMAT += 1
    records.encode, records._registration = encode, registration
    members.LINK_FORMATS = members.LINK_FORMATS[0], members.LINK_FORMATS[1] + 1
    codec.pack = pack


if __name__ != NAME:  # runs in the controller, and in the processes that it starts
    become_next()

if __name__ == "__main__":
    from signalbox.__main__ import main

    main()
