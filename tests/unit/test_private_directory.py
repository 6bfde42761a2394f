"""A private directory goes with its process, also when that is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.private_directory import private_directory

HOLD = """
import sys, time
from controller.private_directory import private_directory
with private_directory("test") as directory:
    (directory / "file").touch()
    print(directory, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are, also of processes that are started."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def another_process() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_it_is_for_its_owner_only_and_goes_at_the_end(temporary: Path) -> None:
    with private_directory("test") as directory:
        (directory / "file").touch()
        assert directory.parent == temporary
        assert directory.stat().st_mode & 0o777 == 0o700
    assert list(temporary.iterdir()) == []


def test_what_a_killed_process_has_left_goes_when_the_next_one_begins() -> None:
    with another_process() as (process, left):
        process.kill()
        process.wait()
        assert (left / "file").exists()
        with private_directory("test") as directory:
            assert not left.exists()
            assert directory.is_dir()


def test_that_of_a_process_that_runs_stays() -> None:
    with another_process() as (_, theirs), private_directory("test"), private_directory("test"):
        assert (theirs / "file").exists()


def test_directories_for_other_purposes_stay(temporary: Path) -> None:
    others = [temporary / name for name in ("signalbox-tests.x", "signalbox-test-x", "other")]
    for other in others:
        other.mkdir()
    with private_directory("test"):
        pass
    assert all(other.exists() for other in others)


def test_files_and_links_of_its_name_stay(temporary: Path) -> None:
    target = temporary / "target"
    target.mkdir()
    (temporary / "signalbox-test.link").symlink_to(target)
    (temporary / "signalbox-test.file").touch()
    with private_directory("test"):
        pass
    assert target.is_dir()
    assert (temporary / "signalbox-test.link").is_symlink()
    assert (temporary / "signalbox-test.file").exists()


def test_those_of_other_users_stay(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = temporary / "signalbox-test.theirs"
    theirs.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("os.geteuid", lambda: theirs.stat().st_uid + 1)
        with private_directory("test"):
            assert theirs.exists()
    with private_directory("test"):
        assert not theirs.exists()
