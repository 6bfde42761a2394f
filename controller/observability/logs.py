"""Configuration of logging: format and destination of all log lines.

All lines go to stderr, so that stdout stays free for answers. The controller logs with structlog, and libraries with
the standard library; both use the same handler.
"""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import EventDict, Processor

from signalbox.errors import legible

# Loggers whose INFO lines only repeat the controller's own lines.
QUIET_LOGGERS = ("ryu", "os_ken", "eventlet", "grpc", "asyncio")


def configure(*, json: bool = False, level: str = "info") -> None:
    """Configure logging, in place of any earlier configuration.

    ``json``: whether each line is a JSON object; if not, lines have colours on a terminal, and key=value elsewhere.
    ``level``: debug, info, warning or error."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(json)],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))


def _renderers(json: bool) -> list[Processor]:
    if json:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    if sys.stderr.isatty():
        # The default shows the values of local variables, including lease tokens.
        return [_legible, structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    order = ["timestamp", "level", "logger", "event"]
    return [structlog.processors.format_exc_info, _legible, structlog.processors.LogfmtRenderer(key_order=order)]


def _legible(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Escape characters that control a terminal, because switches and clients choose names.

    Tracebacks are not changed. A list is written with commas, without Python's brackets and quotes."""
    for key, value in line.items():
        if isinstance(value, list | tuple | set | frozenset) and key != "exc_info":
            line[key] = legible(", ".join(map(str, value)))
        elif isinstance(value, str | BaseException) and key != "exc_info":
            line[key] = legible(str(value), kept="\n" if key == "exception" else "")
    return line
