"""The benchmark of planned levels against what senders get of them, on a workload of a few flows."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import dealing
from offline.scenarios.workloads import HEADER
from signalbox.errors import InvalidInput


@pytest.fixture
def workloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two full leaves: 32 rings between them."""
    folder = tmp_path / "full"
    folder.mkdir()
    rings = [f"{96 + n} {128 + n} 0 1 0 500 9 {n}\n{128 + n} {96 + n} 1 0 0 500 9 {n}" for n in range(32)]
    (folder / "job_0-BLOOM.txt").write_text("\n".join([HEADER, *rings]))
    monkeypatch.setattr(dealing, "RESULTS", tmp_path / "out" / "dealing.json")
    return tmp_path


def test_every_dealing_stands_beside_its_level(workloads: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dealing.main(workloads, "2", "paced,even", "1 spine", iterations=1)
    dealing.main(workloads, "8", "even", "1 spine", iterations=1)
    found = {(cell["dealing"], cell["pieces"]): (cell["level"], cell["slow_down"]) for cell in dealing._kept()}
    assert found == {
        ("paced", 2): pytest.approx((32 / 31, 32 / 31)),
        ("even", 2): pytest.approx((3 / 2, 3 / 2)),
        ("even", 8): pytest.approx((9 / 8, 9 / 8)),
    }
    assert "1.125 (1.125)" in capsys.readouterr().out


def test_a_failure_that_is_none_is_refused(workloads: Path) -> None:
    with pytest.raises(InvalidInput, match="neither '4 spines' nor '5 cables'"):
        dealing.main(workloads, "2", "even", "4 leaves")
