"""Controller as ``signalbox serve`` runs it, with a count of the switch messages that each reader gets.

    .venv/bin/python -m benchmarks.openflow.controller --config FILE --reached FILE

A reader is a function that decodes one kind of message. When the controller stops, it writes a JSON file: for each
reader, the numbers of messages that it accepted and refused.
"""

import functools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from controller.config import load

Result = TypeVar("Result")

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


def _count_readers(counts: Counter[tuple[str, str]]) -> None:
    """Let each reader count its messages. Must be called before any other module imports a reader."""
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


def main(
    config: Annotated[Path, typer.Option(help="Configuration file, as for signalbox serve.")],
    reached: Annotated[Path, typer.Option(help="File for the counts, written at the end.")],
) -> None:
    """Run the controller until SIGTERM."""
    counts: Counter[tuple[str, str]] = Counter()
    _count_readers(counts)
    from controller.serving.serve import serve

    try:
        status = serve(load(config))
    finally:
        readers: dict[str, dict[str, int]] = {}
        for (reader, what), count in sorted(counts.items()):
            readers.setdefault(reader, {})[what] = count
        reached.write_text(json.dumps(readers))
    raise typer.Exit(status)


if __name__ == "__main__":
    typer.run(main)
