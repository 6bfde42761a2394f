"""Figures and verdicts of the benchmark ``contention-lab``."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.contention.lab import SCENARIOS, SETTLING, Way, broken, figures, interval, rows_of
from mininet_topos.trainer.log import Iteration, TrainingLog

SETTLED = SETTLING[Way.TODAY]


def runs(name: str, **ratios: list[float]) -> dict[str, Any]:
    """Return runs in which all jobs take the given multiples of 1.2 s."""
    jobs = [job.name for job in SCENARIOS[name].jobs]
    return {
        name: {
            Way[way.upper()]: [
                {
                    job: {"iterations": 300, "iteration_s": 1.2 * each, "communication_s": 0.6 * each, "right": True}
                    for job in jobs
                }
                for each in of_way
            ]
            for way, of_way in ratios.items()
        }
    }


def test_only_iterations_count_in_which_all_jobs_trained_and_had_settled(tmp_path: Path) -> None:
    for job, duration_s, count in (("first", 2.0, SETTLED + 5), ("second", 1.0, 2 * SETTLED + 30)):
        log = TrainingLog(tmp_path / f"{job}-rank0.jsonl")
        log.begin(job, 0, ["10.0.1.1", "10.0.2.1"], "ring", 1)
        for index in range(count):
            start = index * duration_s
            log.iteration(Iteration(index, start, start + duration_s, index != 3, (), duration_s / 2, 1))
        log.end()
    (tmp_path / "first-rank1.jsonl").write_text(json.dumps({"job": "first", "rank": 1, "ip": "10.0.2.1"}) + "\n")
    found = figures(tmp_path, Way.TODAY)
    assert found["first"] == {"iterations": 5, "iteration_s": 2.0, "communication_s": 1.0, "right": False}
    assert found["second"]["iterations"] == 2 * (SETTLED + 5) - SETTLED


def test_ratios_are_those_of_each_repetition_with_the_interval_of_their_mean() -> None:
    found = runs("two", alone=[1.0, 2.0, 1.0], worst=[1.5, 3.0, 1.5], today=[1.2, 2.6, 1.4], shared=[1.02, 2.04, 1.02])
    row = next(row for row in rows_of(found) if row["way"] == "today" and row["job"] == "first")
    assert (row["iteration s"], row["/ alone"], row["±"]) == (2.08, 1.3, 0.248)
    assert list(broken(found)) == []
    assert interval([1.5])[1] == math.inf


@pytest.mark.parametrize(
    ("name", "ratios", "words"),
    [
        ("two", {"alone": [1.0], "worst": [1.5], "shared": [1.06]}, "1.060 times as long as alone"),
        ("two", {"alone": [1.0], "worst": [1.4], "shared": [1.04]}, "1.346 times better than the worst alignment"),
        ("loop", {"alone": [1.0], "worst": [1.33], "shared": [1.04]}, ""),  # a third of the time cannot lose more
        ("jitter", {"alone": [1.0], "today": [1.2], "shared": [1.21]}, "slower than without slots"),
        ("classes", {"alone": [1.0], "today": [1.2], "shared": [1.04]}, "high takes 1.040 times"),
        ("classes", {"alone": [1.0], "today": [1.2], "shared": [20.0]}, "below its floor"),
        ("two", {"alone": [1.0], "worst": [1.5]}, ""),
    ],
)
def test_a_line_that_is_not_kept_is_named(name: str, ratios: dict[str, list[float]], words: str) -> None:
    found = list(broken(runs(name, **ratios)))
    assert any(words in line for line in found) if words else found == []


def test_a_wrong_result_of_a_collective_is_named() -> None:
    found = runs("two", alone=[1.0], shared=[1.0])
    found["two"][Way.SHARED][0]["first"]["right"] = False
    assert list(broken(found)) == ["two: a result of a collective is wrong"]
