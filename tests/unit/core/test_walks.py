"""Files of the controller through which three changes pass: few, and none of an extension that is not configured."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.support.walks import walks

MOST_PASSED = {"RegisterJob to flow-mods": 40, "counters to re-plan": 43, "cable cut to re-plan": 29}
"""Largest number of files that each walk (the way of a change through the code) may pass.

A reader who follows a walk has to read each of its files. Lower these numbers when a walk gets shorter."""


@pytest.fixture(scope="module")
def passed() -> Mapping[str, list[str]]:
    return {name: walk["passed"] for name, walk in walks().items()}


@pytest.mark.parametrize("name", MOST_PASSED)
def test_no_walk_passes_more_files_than_it_did_and_none_of_an_extension(
    passed: Mapping[str, list[str]], name: str
) -> None:
    """No optical switch is configured, and jobs do not share links in time."""
    assert "core/messages.py" in passed[name]
    extensions = [file for file in passed[name] if "circuit" in file or "contention" in file or "wiring/" in file]
    assert extensions == []
    assert len(passed[name]) <= MOST_PASSED[name], passed[name]
