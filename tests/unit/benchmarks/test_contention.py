"""Parts of the benchmark of jobs that share links."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.contention import fabric, headline, recomputed
from benchmarks.contention.independent import STEP_S, Job, integrated
from benchmarks.contention.kept import kept
from controller.planning.contention.fluid import Case, Choices, guaranteed_s
from offline.simulator.baselines import BASELINES


def test_the_recomputer_sees_jobs_share_a_link_and_members_keep_apart() -> None:
    alike = Job([2.0], [2.0], [{0: 1.0}])
    begins_s = np.array([[0.0, 0.0], [0.0, 2.0]])
    free = integrated([1.0], [alike, alike], 0.1, begins_s, 20.0)
    assert free.longest_s == pytest.approx([6.0, 6.0], abs=4 * STEP_S)
    assert free.iterations.tolist() == [[3, 3], [5, 5]]
    members = [Job([2.0], [2.0], [{0: 1.0}], start_s=start_s, every_s=4.0) for start_s in (0.0, 2.0)]
    assert integrated([1.0], members, 0.1, begins_s, 20.0).longest_s == pytest.approx([4.0, 4.0], abs=STEP_S)


def test_the_recomputer_leaves_the_second_rank_its_floor() -> None:
    """The first job sends 9 of 10 bits, until it is done after 2 / 0.9 s; then the second has 2 - 0.222 s left."""
    jobs = [Job([10.0], [2.0], [{0: 1.0}]), Job([10.0], [2.0], [{0: 1.0}], rank=1)]
    seen = integrated([1.0], jobs, 0.1, np.zeros((1, 2)), 30.0)
    assert seen.longest_s == pytest.approx([10 + 2 / 0.9, 10 + 2 / 0.9 + 2 - 0.2 / 0.9], abs=4 * STEP_S)


@pytest.mark.parametrize("seed", [0, 1])
def test_no_guaranteed_time_and_no_bound_is_refuted_but_smaller_times_are(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, refuted = recomputed.refuted(seed)
    assert count > 10
    assert not refuted

    def smaller_s(case: Case, choices: Choices, period_s: float = 0.0) -> dict[int, float]:
        return {job: 0.8 * most_s for job, most_s in guaranteed_s(case, choices, period_s).items()}

    monkeypatch.setattr("benchmarks.contention.recomputed.guaranteed_s", smaller_s)
    assert recomputed.refuted(seed)[1]


def test_mixes_of_models_send_as_long_as_stated() -> None:
    for seed in range(10):
        jobs = headline.mix(seed).jobs
        assert len(jobs) >= 2
        assert all(headline.DUTY[0] <= job.sending_s / job.ideal_s <= headline.DUTY[1] + 1e-9 for job in jobs)
    found = headline.run(0)
    assert {row["shifts, starts"] for row in headline.summary([found])} == found["gains"].keys()


def test_cells_are_computed_once_and_compared_with_the_best_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [fabric.Setting(2, 2, seed) for seed in (0, 1)]
    assert kept(tmp_path, [("a", dict)], budget_s=0.0) == []
    monkeypatch.setattr(fabric, "JITTERS", (0.0,))
    found = kept(tmp_path, [(each.name, partial(fabric.cell, each)) for each in settings], budget_s=1e9)
    assert kept(tmp_path, [(each.name, pytest.fail) for each in settings], budget_s=1e9) == found
    figures = {name: {"worst": 1.2, "mean": 1.1, "tail": 1.3, "gpu_seconds": 0.9} for name in BASELINES}
    mine = {f"ours, {objective}": {**figures["today"], "worst": 1.21} for objective in fabric.OBJECTIVES}
    at_least = {row["objective"]: row["kept"] for row in fabric.verdicts({"figures": {"0": {**figures, **mine}}})}
    assert at_least == {"worst": False, "gpu-seconds": True}
    assert [row["seeds"] for row in fabric.summary(found)] == [2]
    assert [row["cells"] for row in fabric.gains(found)] == [2]
