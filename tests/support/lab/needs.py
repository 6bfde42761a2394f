"""Check for the foreign programs that a test runs."""

import os

import pytest


def needs(missing: str | None) -> None:
    """Fail or skip the test when a program is missing.

    ``missing``: message that names the missing program, or None. The test is skipped only when ``SIGNALBOX_LIBRARIES``
    says that programs may be missing."""
    if missing:
        leave = pytest.skip if os.environ.get("SIGNALBOX_LIBRARIES") == "no" else pytest.fail
        leave(missing)
