"""The controller as ``signalbox serve`` runs it, counting what reaches the readers of switches' bytes.

    .venv/bin/python -m benchmarks.openflow.controller --config FILE --reached FILE [--coverage]

Out: when it is stopped, a JSON file: per reader how many messages it accepted and refused and, with ``--coverage``, the
lines that ran.
"""

from __future__ import annotations

import functools
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar

import typer
from coverage import Coverage

from controller.config import load

Result = TypeVar("Result")

READING = (
    "openflow_framing",
    "handshake",
    "multipart",
    "openflow_decode",
    "openflow_parts",
)
"""The files of the southbound that read the messages of switches."""

_DECODERS = {
    "flow_stats": "flow stats",
    "foreign_flow_keys": "others' flow stats",
    "flow_count": "aggregate stats",
    "port_stats": "port stats",
    "group_descs": "group desc",
    "meter_configs": "meter config",
    "meter_stats": "meter stats",
    "table_stats": "table stats",
    "table_features": "table features",
    "group_features": "group features",
    "meter_features": "meter features",
    "packet_in": "packet-in",
    "error": "error",
    "port_status": "port status",
    "barrier_reply": "barrier reply",
    "role_reply": "role reply",
}


class Lines(TypedDict):
    lines: int
    run: int
    missing: list[int]


class Reached(TypedDict):
    """``readers``: name to ``accepted`` and ``refused``. ``coverage``: per file, empty when it was not asked for."""

    readers: Mapping[str, Mapping[str, int]]
    coverage: Mapping[str, Lines]


def _count_readers(counts: Counter[tuple[str, str]]) -> None:
    """Wraps each reader, before any other module imports it."""
    from controller.southbound import openflow_decode

    for function, name in _DECODERS.items():
        setattr(openflow_decode, function, _counted(counts, name, getattr(openflow_decode, function)))
    from controller.southbound.handshake import Handshake

    Handshake.take = _counted(counts, "handshake", Handshake.take)  # type: ignore[method-assign]


def _counted(counts: Counter[tuple[str, str]], name: str, read: Callable[..., Result]) -> Callable[..., Result]:
    @functools.wraps(read)
    def counting(*arguments: Any) -> Result:
        try:
            result = read(*arguments)
        except Exception:
            counts[name, "refused"] += 1
            raise
        counts[name, "accepted"] += 1
        return result

    return counting


def _coverage() -> Coverage:
    logging.getLogger("coverage").setLevel(logging.ERROR)
    files = [f"*/controller/southbound/{name}.py" for name in READING]
    measured = Coverage(data_file=None, include=files, concurrency=["greenlet", "thread"])
    measured.start()
    return measured


def _lines(measured: Coverage) -> dict[str, Lines]:
    measured.stop()
    found: dict[str, Lines] = {}
    for path in sorted(measured.get_data().measured_files()):
        _, lines, _, missing, _ = measured.analysis2(path)
        found[Path(path).stem] = {"lines": len(lines), "run": len(lines) - len(missing), "missing": missing}
    return found


def main(
    config: Annotated[Path, typer.Option(help="as for signalbox serve")],
    reached: Annotated[Path, typer.Option(help="the file to write at the end")],
    coverage: Annotated[bool, typer.Option("--coverage", help="also the lines of the readers that ran")] = False,
) -> None:
    """Run the controller until SIGTERM."""
    measured = _coverage() if coverage else None
    counts: Counter[tuple[str, str]] = Counter()
    _count_readers(counts)
    from controller.serving.serve import serve

    try:
        status = serve(load(config))
    finally:
        readers: dict[str, dict[str, int]] = {}
        for (reader, what), count in sorted(counts.items()):
            readers.setdefault(reader, {})[what] = count
        lines = _lines(measured) if measured else {}
        reached.write_text(json.dumps(Reached(readers=readers, coverage=lines)))
    raise typer.Exit(status)


if __name__ == "__main__":
    typer.run(main)
