"""``python -m benchmarks plan`` as a user runs it, on two flows."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import Command

LITTLE = ("--no-generated", "--no-irregular", "--no-changes", "--failures", "none,1-spine")


def test_all_that_is_measured_is_in_a_file_and_in_tables(benchmark: Command, published: Path, tmp_path: Path) -> None:
    run = benchmark("plan", "--workloads", published, *LITTLE, "--schemes", "planned,greedy", "--out", tmp_path / "out")
    found = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert all(text in run.out for text in ("planned, split", "published", "1-spine", "max(1, D/S)", "written: "))
    assert (run.status, found["finished"]) == (0, True)
    rows = {(row["workload"], row["failure"], row["scheme"], row["max_subflows"]) for row in found["plans"]}
    assert rows == {
        ("tiny", failure, *scheme)
        for failure in ("none", "1-spine")
        for scheme in (("planned", 1), ("planned", 2), ("greedy", 1))
    }
    assert {row["slowdown"] for row in found["plans"]} == {1.0}
    assert all(target["met"] == target["cases"] for target in found["targets"] if "D/S" in target["name"])
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["plan.json"]


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--schemes", "best", "there is no 'best'"), ("--failures", "2-spines", "there is no '2-spines'")],
)
def test_unknown_names_are_wrong_usage(benchmark: Command, published: Path, option: str, value: str, said: str) -> None:
    refused = benchmark("plan", "--workloads", published, option, value)
    assert refused.status == 2
    assert said in " ".join(refused.err.split())
