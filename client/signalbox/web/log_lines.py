"""Log of the page's process: one line per record, without control characters, and a limited number of lines.

Data from browsers reaches NiceGUI and its server unfiltered: a wrong event raises an error in one of their tasks, and a
browser can cause log messages. So the log has the kind and the place of an error, without a traceback."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Callable

from signalbox.errors import cut, legible

MOST_LINES = 10
"""Largest number of lines in each period of ``PERIOD_S`` seconds."""
PERIOD_S = 10.0
MAX_CHARS = 500


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        try:
            said = record.getMessage()
        except (TypeError, ValueError):
            said = str(record.msg)
        if record.exc_info and record.exc_info[1]:
            error = record.exc_info[1]
            place = traceback.extract_tb(error.__traceback__)[-1:]
            at = "".join(f", {frame.filename}:{frame.lineno}" for frame in place)
            said = f"{said.splitlines()[0] if said else 'failed'} ({type(error).__name__}: {cut(str(error))}{at})"
        if len(said) > MAX_CHARS:
            said = f"{said[: MAX_CHARS - 3]}..."
        return f"{record.levelname.lower()}: {record.name}: {legible(said)}"


class _Few(logging.Filter):
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._since, self._written, self._left_out = clock(), 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        if self._clock() > self._since + PERIOD_S:
            left_out, self._since, self._written, self._left_out = self._left_out, self._clock(), 0, 0
            if left_out:
                record.msg, record.args = f"({left_out} lines were left out) {record.msg}", record.args
        self._written += 1
        self._left_out += self._written > MOST_LINES
        return self._written <= MOST_LINES


def configure() -> None:
    """Replace the handlers of all loggers by one handler that writes a limited number of short lines to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    handler.addFilter(_Few())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    for logger in [*root.manager.loggerDict.values()]:
        if isinstance(logger, logging.Logger):
            logger.handlers.clear()
            logger.propagate = True
