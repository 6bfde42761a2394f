"""The controller as its next version might be: the format of the state has a higher number, and jobs have a new field.

Run it as ``python -m tests.support.wire.next_version``, with the arguments of ``python -m controller``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from controller.jobs.messages import Registration
from controller.store import records

FIELD, VALUE = "color", "blue"

_encode, _registration = records.encode, records._registration


def encode(key: records.Key, value: Any) -> str:
    text = _encode(key, value)
    return json.dumps({**json.loads(text), FIELD: VALUE}) if key.kind is records.Kind.JOB else text


def registration(job_id: str, data: Mapping[str, Any]) -> Registration:
    assert data.get(FIELD, VALUE) == VALUE, "states of the present version have no such field"
    return _registration(job_id, data)


def main() -> None:
    records.OLDEST_FORMAT = records.FORMAT
    records.FORMAT += 1
    records.encode, records._registration = encode, registration
    from signalbox.__main__ import main as run  # other modules import the format from ``records``

    run()


if __name__ == "__main__":
    main()
