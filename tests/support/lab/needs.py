"""Foreign programs that a test runs."""

from __future__ import annotations

import os

import pytest


def needs(missing: str | None) -> None:
    """``missing``: says what is not installed, None when nothing is. That is a failure, unless ``SIGNALBOX_LIBRARIES``
    says that programs may be missing."""
    if missing:
        leave = pytest.skip if os.environ.get("SIGNALBOX_LIBRARIES") == "no" else pytest.fail
        leave(missing)
