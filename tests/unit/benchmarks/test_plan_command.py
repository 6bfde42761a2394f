"""``python -m benchmarks plan`` as a user runs it, on two flows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.__main__ import main

LITTLE = ("--no-generated", "--no-irregular", "--no-changes", "--failures", "none,1-spine")

Benchmark = Callable[..., tuple[int, str, str]]


@pytest.fixture
def benchmark(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["benchmarks", "plan", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return run


@pytest.fixture
def published(tmp_path: Path) -> Path:
    folder = tmp_path / "published" / "tiny"
    folder.mkdir(parents=True)
    (folder / "job_0-X.txt").write_text("96 128 0 1 0 500 9 0\n128 96 1 0 0 500 9 0\n")
    return folder.parent


def test_everything_measured_is_in_the_json_and_in_the_folder(
    benchmark: Benchmark, published: Path, tmp_path: Path
) -> None:
    out_dir = tmp_path / "out"
    status, out, _ = benchmark(
        "--workloads", published, *LITTLE, "--strategies", "planned,greedy", "--out", out_dir, "--json"
    )
    found = json.loads(out)
    assert status == 0
    assert found == json.loads((out_dir / "plan.json").read_text())
    assert found["finished"]
    rows = {(row["workload"], row["failure"], row["strategy"], row["pieces"]) for row in found["plans"]}
    assert rows == {
        ("tiny", failure, *scheme)
        for failure in ("none", "1-spine")
        for scheme in (("planned", 1), ("planned", 2), ("greedy", 1))
    }
    assert {row["slowdown"] for row in found["plans"]} == {1.0}
    assert all(target["met"] == target["cases"] for target in found["targets"] if "D/S" in target["name"])
    assert {file.name for file in out_dir.iterdir()} == {"plan.json"}


def test_tables_for_people(benchmark: Benchmark, published: Path, tmp_path: Path) -> None:
    status, out, _ = benchmark("--workloads", published, *LITTLE, "--strategies", "planned", "--out", tmp_path / "out")
    assert status == 0
    assert all(text in out for text in ("planned, split", "published", "1-spine", "max(1, D/S)", "written: "))


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--strategies", "best", "there is no 'best'"), ("--failures", "2-spines", "there is no '2-spines'")],
)
def test_unknown_names_are_wrong_usage(
    benchmark: Benchmark, published: Path, option: str, value: str, said: str
) -> None:
    status, _, err = benchmark("--workloads", published, option, value)
    assert status == 2
    assert said in " ".join(err.split())


def test_a_folder_that_holds_nothing(benchmark: Benchmark, tmp_path: Path) -> None:
    status, _, err = benchmark("--workloads", tmp_path, *LITTLE)
    assert (status, err.startswith("error: --workloads:")) == (1, True)
