"""SIGHUP: reads the configuration file again and takes over what may change while the controller runs.

In: the signal; the owners of certificates, identities and log level. Out: all of it is new, or, when anything of it is
wrong, nothing is and the log names every problem. What needs a restart is named.
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
from controller.config import Config, TlsFiles
from controller.serving.validity import TLS_SECTIONS
from signalbox.errors import FieldProblem, InvalidInput

log = structlog.get_logger(__name__)

TakeOver = Callable[[], Mapping[str, object] | None]
"""Has what was read count from now on. Returns what the log should have of it."""
Prepare = Callable[[Config], TakeOver]
"""Reads what the configuration names, and raises ``InvalidInput`` when it is wrong."""


Hangups = queue.SimpleQueue[bool]
"""SIGHUPs wait here until they are asked for; False after the last. Safe in a signal handler."""


@contextmanager
def hangups() -> Iterator[Hangups]:
    """From here on a SIGHUP does not end the process. For the main thread."""
    received: Hangups = queue.SimpleQueue()
    before = signal.signal(signal.SIGHUP, lambda *_: received.put(True))
    try:
        yield received
    finally:
        signal.signal(signal.SIGHUP, before)


@contextmanager
def reloading(received: Hangups, reload: Reload) -> Iterator[None]:
    """Does what SIGHUPs ask for, also those that came before, in a thread of its own."""
    thread = threading.Thread(target=reload.run, args=(received,), name="reload", daemon=True)
    thread.start()
    try:
        yield
    finally:
        received.put(False)
        thread.join()


class Reload:
    """``file``: None when the configuration is from none. ``config``: what the controller runs with. ``refused``: is
    told of each reload whether it changed nothing because something was wrong. Any thread may use it."""

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
        """Takes over all or nothing; ``partly``: whatever of it is not wrong."""
        try:
            with self._lock:
                self._once(partly)
        except Exception:
            self._refused(True)
            log.exception("reloading failed; what was not taken over stays as it was")

    def _once(self, partly: bool) -> None:
        wanted, wrong = self._config, dict[FieldProblem, None]()
        try:
            wanted = configuration.load(self._file) if self._file else self._config
        except InvalidInput as error:
            wrong |= dict.fromkeys(error.problems)
        config = changeable(self._config, wanted)
        take_over: list[TakeOver] = []
        for prepare in self._prepare:
            try:
                take_over.append(prepare(config))
            except InvalidInput as error:
                wrong |= dict.fromkeys(error.problems)
        self._refused(bool(wrong))
        if wrong:
            what = "not all is reloaded: what is wrong is as it was" if partly else "not reloaded: nothing has changed"
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


def changeable(running: Config, wanted: Config) -> Config:
    """What is running, with what of ``wanted`` needs no restart: the settings that are marked so, certificates and
    tokens. Whether there is TLS at all, whether peers need a certificate, and whether there are tokens needs one."""
    running = configuration.with_settings(running, wanted)
    sections: dict[str, Any] = {}
    for name in TLS_SECTIONS:
        old, new = getattr(running, name), getattr(wanted, name)
        files = {field: getattr(new, field) for field in TlsFiles._fields}
        alike = all((getattr(old, field) is None) == (path is None) for field, path in files.items())
        sections[name] = old.model_copy(update=files if alike else {})
    if running.api.tokens and wanted.api.tokens:
        sections["api"] = sections["api"].model_copy(update={"tokens": wanted.api.tokens})
    return running.model_copy(update=sections)


def _differing(running: dict[str, Any], wanted: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Keys with both values."""
    for key, value in running.items():
        if isinstance(value, dict):
            yield from _differing(value, wanted[key], f"{prefix}{key}.")
        elif value != wanted[key]:
            yield prefix + key, value, wanted[key]
