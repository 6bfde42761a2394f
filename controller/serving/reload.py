"""Reload at SIGHUP: reads the configuration file again, and applies settings that may change at run time.

If one of the new contents is invalid, nothing changes, and the log names every problem. The log also names changes that
need a restart.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from controller import config as configuration
from controller.config import Config
from signalbox.errors import FieldProblem, InvalidInput

log = structlog.get_logger(__name__)

TakeOver = Callable[[], Mapping[str, object] | None]
"""Function that puts prepared contents in force, and returns facts for the log."""
Prepare = Callable[[Config], TakeOver]
"""Function that reads files that the configuration names. Raises ``InvalidInput`` if their contents are invalid."""


Hangups = queue.SimpleQueue[bool]
"""Queue with True for each SIGHUP to handle; False ends the handling. A signal handler may add entries."""


@contextmanager
def hangups() -> Iterator[Hangups]:
    """Queue SIGHUPs, which would otherwise end the process. For use in the main thread."""
    received: Hangups = queue.SimpleQueue()
    before = signal.signal(signal.SIGHUP, lambda *_: received.put(True))
    try:
        yield received
    finally:
        signal.signal(signal.SIGHUP, before)


@contextmanager
def reloading(received: Hangups, reload: Reload) -> Iterator[None]:
    """Handle SIGHUPs in a separate thread, including SIGHUPs that arrived before."""
    thread = threading.Thread(target=reload.run, args=(received,), name="reload", daemon=True)
    thread.start()
    try:
        yield
    finally:
        received.put(False)
        thread.join()


class Reload:
    """Reload of the configuration, callable from any thread.

    ``file``: configuration file; None without one. ``config``: configuration of the running controller. ``refused``:
    called at each reload with whether the reload has found a problem."""

    def __init__(
        self,
        file: Path | None,
        config: Config,
        prepare: Iterable[Prepare],
        refused: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._refused = refused
        self._file = file
        self._config = config
        self._prepare = tuple(prepare)
        self._lock = threading.Lock()

    def run(self, received: Hangups) -> None:
        while received.get():
            self.once()

    def once(self, partly: bool = False) -> None:
        """Reload all contents, or nothing if one is invalid. ``partly``: reload all valid contents instead."""
        try:
            with self._lock:
                self._once(partly)
        except Exception:
            self._refused(True)
            log.exception("reloading failed; settings that were not applied yet stay as before")

    def _once(self, partly: bool) -> None:
        wanted, wrong = self._config, dict[FieldProblem, None]()
        try:
            wanted = configuration.load(self._file) if self._file else self._config
        except InvalidInput as error:
            wrong |= dict.fromkeys(error.problems)
        config = configuration.with_settings(self._config, wanted)
        take_over: list[TakeOver] = []
        for prepare in self._prepare:
            try:
                take_over.append(prepare(config))
            except InvalidInput as error:
                wrong |= dict.fromkeys(error.problems)
        self._refused(bool(wrong))
        if wrong:
            what = (
                "reloaded in part: files with problems stay as before"
                if partly
                else "not reloaded: nothing has changed"
            )
            log.error(what, problems=[str(problem) for problem in wrong])
            if not partly:
                return
        changed: dict[str, object] = {}
        for take in take_over:
            changed |= take() or {}
        before, self._config = self._config, config
        for key, old, new in sorted(_differing(before.model_dump(), config.model_dump())):
            log.info("setting changed", key=key, change=f"{old} → {new}")
        log.info("reloaded", file=str(self._file), **changed)
        if restart := sorted(key for key, *_ in _differing(config.model_dump(), wanted.model_dump())):
            log.warning("changed in the file, but needs a restart", keys=restart)


def _differing(running: dict[str, Any], wanted: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    for key, value in running.items():
        if isinstance(value, dict):
            yield from _differing(value, wanted[key], f"{prefix}{key}.")
        elif value != wanted[key]:
            yield prefix + key, value, wanted[key]
