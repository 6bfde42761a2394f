"""How log lines look and where they go: the one place that configures logging.

Everything goes to stderr, so that stdout stays for answers. Ours come from structlog, those of libraries from the
standard library; both take the same way out and look the same.
"""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import EventDict, Processor

from signalbox.errors import legible

# They tell at INFO what our own lines tell better.
QUIET_LOGGERS = ("ryu", "os_ken", "eventlet", "grpc", "asyncio")


def configure(*, json: bool = False, level: str = "info") -> None:
    """``json``: one JSON object per line; else colours on a terminal and key=value elsewhere. ``level``: debug, info,
    warning or error. Calling it again replaces the first."""
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
        # The default shows the values of local variables, and with them lease tokens.
        return [_legible, structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    order = ["timestamp", "level", "logger", "event"]
    return [structlog.processors.format_exc_info, _legible, structlog.processors.LogfmtRenderer(key_order=order)]


def _legible(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Escape what a terminal obeys: names come from switches and from whoever registers jobs. Lines of a traceback are
    left to the renderer. A list has commas between its values, and no brackets or quotes of Python."""
    for key, value in line.items():
        if isinstance(value, list | tuple | set | frozenset) and key != "exc_info":
            line[key] = legible(", ".join(map(str, value)))
        elif isinstance(value, str | BaseException) and key != "exc_info":
            line[key] = legible(str(value), kept="\n" if key == "exception" else "")
    return line
