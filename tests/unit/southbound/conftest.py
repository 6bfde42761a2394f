"""Fixtures of the tests of the southbound."""

from __future__ import annotations

import pytest

from controller.southbound.limits import limited_log


@pytest.fixture(autouse=True)
def _all_lines() -> None:
    """Forget the lines that earlier tests have logged, which would count against the limit of this one."""
    limited_log._events.clear()
