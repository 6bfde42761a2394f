"""The controller as ``serve`` runs it, in a process of its own that counts what reaches the readers of switches' bytes.

In: a configuration and where to write. Out: when it is stopped, a JSON file: per reader how many messages it accepted
and refused, and, when asked for, the lines that ran.
"""

from __future__ import annotations

import functools
import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from coverage import Coverage

from controller.config import Config
from mininet_topos.lab.record import wait_for

Result = TypeVar("Result")

READING = (
    "framing",
    "handshake",
    "message_guard",
    "multipart",
    "openflow_decode",
    "openflow_parts",
    "openflow_objects",
)
"""The files of the southbound that read what switches say."""

_DECODERS = {
    "flow_stats": "flow stats",
    "foreign_flow_keys": "others' flow stats",
    "flow_count": "aggregate stats",
    "port_stats": "port stats",
    "group_descs": "group desc",
    "meter_configs": "meter config",
    "meter_stats": "meter stats",
    "packet_in": "packet-in",
}
_GUARDED = {1: "error", 3: "echo reply", 12: "port status", 21: "barrier reply", 25: "role reply"}
_START_S = 30.0


class Lines(TypedDict):
    lines: int
    run: int
    missing: list[int]


class Reached(TypedDict):
    """``readers``: name to ``accepted`` and ``refused``. ``coverage``: per file, empty when it was not asked for."""

    readers: Mapping[str, Mapping[str, int]]
    coverage: Mapping[str, Lines]


class FuzzedController:
    """A context: the controller runs in it. ``result``, ``log`` and ``exit_status`` are known afterwards."""

    def __init__(self, config: Config, with_coverage: bool) -> None:
        self._config = config
        self._directory = tempfile.TemporaryDirectory()
        self._out = Path(self._directory.name) / "reached.json"
        self._log = Path(self._directory.name) / "log"
        self.log = ""
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_serve, args=(config, self._out, self._log, with_coverage))
        self.result: Reached = {"readers": {}, "coverage": {}}
        self.exit_status: int | None = None

    def __enter__(self) -> FuzzedController:
        self._process.start()
        address = ("127.0.0.1", self._config.openflow.port)
        wait_for(lambda: self.alive and _accepts(address), "the controller listens", _START_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.is_alive() and self._process.pid:
            os.kill(self._process.pid, signal.SIGTERM)
        self._process.join(_START_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.exit_status = self._process.exitcode
        if self._out.exists():
            self.result = json.loads(self._out.read_text())
        self.log = self.log_so_far()
        self._directory.cleanup()

    def log_so_far(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    @property
    def rss_mb(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


def _accepts(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True


def _serve(config: Config, out: Path, log: Path, with_coverage: bool) -> None:
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT, 0o600), sys.stderr.fileno())
    measured = _coverage() if with_coverage else None
    counts: Counter[tuple[str, str]] = Counter()
    _count_readers(counts)
    from controller.serving.serve import serve

    try:
        status = serve(config)
    finally:
        readers: dict[str, dict[str, int]] = {}
        for (reader, what), count in sorted(counts.items()):
            readers.setdefault(reader, {})[what] = count
        lines = _lines(measured) if measured else {}
        out.write_text(json.dumps(Reached(readers=readers, coverage=lines)))
    sys.exit(status)


def _count_readers(counts: Counter[tuple[str, str]]) -> None:
    """Stands before each reader. Before anything else is imported, so that nobody holds the reader itself."""
    from controller.southbound import message_guard, openflow_decode
    from controller.southbound.handshake import Handshake

    for function, name in _DECODERS.items():
        setattr(openflow_decode, function, _counted(counts, name, getattr(openflow_decode, function)))
    message_guard.CHECKS = {
        kind: _counted(counts, _GUARDED[kind], check) for kind, check in message_guard.CHECKS.items()
    }
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
