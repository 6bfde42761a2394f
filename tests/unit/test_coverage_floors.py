"""Coverage by folder, and the message about a folder below its floor."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import coverage_floors
from tests.support.coverage_floors import covered, problems


def of_file(lines: int, of_lines: int, branches: int = 0, of_branches: int = 0) -> Any:
    counts = {"covered_lines": lines, "num_statements": of_lines}
    return {"summary": counts | {"covered_branches": branches, "num_branches": of_branches}}


def test_lines_and_branches_of_a_folder_are_added_up_with_those_of_the_folders_in_it() -> None:
    files = {
        "controller/core/a.py": of_file(8, 10, 1, 2),
        "controller/core/deep/b.py": of_file(0, 4, 0, 2),
        "controller/status.py": of_file(1, 1),
        "client/signalbox/jobs/spec.py": of_file(1, 4),
        "client/signalbox/cli.py": of_file(0, 0),
    }
    assert covered({"files": files}) == {
        "client/signalbox": 0,
        "client/signalbox/jobs": 25,
        "controller": 100,
        "controller/core": 50,
    }


def test_a_folder_below_its_floor_or_without_files_is_a_problem() -> None:
    assert [*problems({"a": 90.0, "b": 80.0}, {"a": 90, "b": 80})] == []
    assert [*problems({"a": 89.9, "b": 80.0, "d": 0.0}, {"a": 90, "b": 80, "c": 1})] == [
        "a: 89.9 % are covered, which is below its floor of 90 %",
        "c has a floor, but no covered file",
        "d: 0.0 % are covered, and it has no floor",
    ]


@pytest.mark.parametrize(("percent", "fails"), [(91, False), (89, True)])
def test_the_exit_status_says_whether_a_folder_is_below_its_floor(
    percent: int, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "coverage.json").write_text(json.dumps({"files": {"controller/core/a.py": of_file(percent, 100)}}))
    monkeypatch.setattr(coverage_floors, "FLOORS", {"controller/core": 90})
    monkeypatch.setattr(sys, "argv", ["coverage_floors", str(tmp_path / "coverage.json")])
    with pytest.raises(SystemExit) as ended:
        coverage_floors.main()
    assert (ended.value.code is not None) is fails  # an empty text is a failure too
    assert capsys.readouterr().out.split() == ["controller/core", f"{percent}.0", "%", "floor", "90"]
