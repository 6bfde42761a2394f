from pathlib import Path

import pytest

from benchmarks.__main__ import main
from tests.support.command_line import Command, runs


@pytest.fixture
def benchmark(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return runs("benchmarks", main, capsys, monkeypatch)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    folder = tmp_path / "published" / "tiny"
    folder.mkdir(parents=True)
    (folder / "job_0-X.txt").write_text("96 128 0 1 0 500 9 0\n128 96 1 0 0 500 9 0\n")
    return folder.parent
