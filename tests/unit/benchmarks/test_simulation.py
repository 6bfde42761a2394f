"""The parts of the simulation benchmark work on a workload of two rings; times are not checked."""

from pathlib import Path

import pytest

from benchmarks import simulation
from benchmarks.simulation import by_workload, summary
from offline.scenarios.workloads import HEADER


def test_every_scheme_is_measured_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = tmp_path / "concurrent_jobs_1" / "ring_size_2"
    workload.mkdir(parents=True)
    lines = (HEADER, "96 128 0 1 0 500 9 0", "128 96 1 0 0 500 9 0", "97 129 0 1 0 500 9 1", "129 97 1 0 0 500 9 1")
    (workload / "job_0-BLOOM.txt").write_text("\n".join(lines))
    monkeypatch.setattr(simulation, "RESULTS", tmp_path / "out" / "simulation.json")
    for scheme, failed in (("greedy", "0,8"), ("planned split", "8")):
        simulation.main(tmp_path, scheme, failed, iterations=2)
    kept = simulation._kept()
    cells = [(cell["scheme"], cell["failed_spines"]) for cell in kept]
    assert cells == [("greedy", 0), ("greedy", 8), ("planned split", 8)]
    assert [cell["slowdown"] for cell in kept] == pytest.approx([1.0] * 3)
    assert "planned split" in capsys.readouterr().out


def test_figures_stand_beside_the_published_ones() -> None:
    cell = {"scheme": "greedy", "workload": "w", "failed_spines": 4, "bound": 8 / 7}
    cells = [{**cell, "slowdown": 1.8}, {**cell, "workload": "v", "slowdown": 2.0}]
    greedy, bound = summary(cells)
    assert (greedy["4 failed"], bound["4 failed"]) == ("1.900 (2.000); 1.900 +0%", "1.143 (1.143)")
    assert [row["greedy"] for row in by_workload(cells)] == [2.0, 1.8]
