"""Turns of lab tests: several tests run together, or one test runs alone."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

from tests.support.lab import turns


@pytest.fixture(autouse=True)
def _files_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use lock files of this test alone: lab tests may run at the same time with the real lock files."""
    for name in ("QUEUE", "RUNNING"):
        (tmp_path / name).touch()
        monkeypatch.setattr(turns, name, tmp_path / name)


def is_free(path: Path, how: int) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_others_run_together_but_not_beside_one_that_is_alone() -> None:
    with turns.turn(alone=False), turns.turn(alone=False):
        assert not is_free(turns.RUNNING, fcntl.LOCK_EX)
    with turns.turn(alone=True):
        assert not is_free(turns.RUNNING, fcntl.LOCK_SH)
    assert is_free(turns.RUNNING, fcntl.LOCK_EX)


def test_nobody_overtakes_one_that_waits_to_be_alone() -> None:
    def alone() -> None:
        with turns.turn(alone=True):
            pass

    with turns.turn(alone=False):
        waiting = threading.Thread(target=alone)
        waiting.start()
        while is_free(turns.QUEUE, fcntl.LOCK_EX):
            assert waiting.is_alive()
    waiting.join()
