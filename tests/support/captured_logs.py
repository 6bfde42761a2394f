"""Capture of log lines while other threads also write some."""

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog
from structlog.testing import LogCapture


@contextmanager
def captured_logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """Collect the log lines of all threads in a list instead of writing them.

    ``structlog.testing.capture_logs`` empties the list of processors for a moment. A thread that writes a line at that
    moment fails, and the API then ends the process."""
    capture, before = LogCapture(), structlog.get_config()["processors"]
    structlog.configure(processors=[capture])
    try:
        yield capture.entries
    finally:
        structlog.configure(processors=before)
