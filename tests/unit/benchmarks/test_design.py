"""The benchmark of designs: LIBRA's inputs, and the spines that a workload needs."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.design import command
from benchmarks.design.libra import GBPS, cases
from offline.design.bandwidth import fastest
from offline.design.question import Objective
from offline.design.time_cost import best_product
from offline.scenarios.workloads import HEADER
from tests.support.doc_pages import ROOT

LIBRA = {case.workload: case for case in cases(ROOT / "tests/data/libra/inputs")}
EQUAL_3D = (500 / 3 * GBPS,) * 3


def test_gpt_3_in_three_dimensions_is_as_libra_and_a_formula_say() -> None:
    """Tensor ranks send in the first dimension, replicas in the other two dimensions.

    The rate of the first dimension and the sum of the other two rates are in proportion to the square roots of the
    bytes. The other two rates are in proportion to their bytes."""
    tensor = 8 * 2 * 805306368 * 15 / 16 + 2 * 15 * 50331648
    node, pod = (2 * 452984832 * share for share in (7 / 8, 31 / 32 / 8))
    root = math.sqrt(tensor / (node + pod))
    first = 500 * root / (1 + root)
    expected = [first, (500 - first) * node / (node + pod), (500 - first) * pod / (node + pod)]
    case = LIBRA["GPT_3 3-D"]
    design = fastest(case.question)
    assert design.gbps == pytest.approx([rate * GBPS for rate in expected], rel=1e-5)
    assert [round(rate / GBPS, 2) for rate in design.gbps] == [397.55, 89.99, 12.45]
    assert case.communication_s(EQUAL_3D) / case.communication_s(design.gbps) == pytest.approx(2.007, abs=5e-4)


@pytest.mark.parametrize("workload", LIBRA)
def test_libras_workloads_have_answers_that_are_proven(workload: str) -> None:
    question = LIBRA[workload].question
    design, tradeoff = fastest(question), best_product(question)
    assert max(design.gap, tradeoff.gap) < 1e-6
    assert sum(design.gbps) <= 500 * GBPS * (1 + 1e-12)
    assert sum(tradeoff.design.gbps) == pytest.approx(500 * GBPS)
    assert tradeoff.product <= design.time_s * design.cost * (1 + 1e-7)


def test_figures_are_printed_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The workload has two full leaves of the published fabric, and 32 rings between them."""
    workloads = tmp_path / "full"
    workloads.mkdir()
    rings = [f"{96 + n} {128 + n} 0 1 0 500 9 {n}\n{128 + n} {96 + n} 1 0 0 500 9 {n}" for n in range(32)]
    (workloads / "job_0-BLOOM.txt").write_text("\n".join([HEADER, *rings]))
    monkeypatch.setattr(command, "TRIED", range(31, 34))
    monkeypatch.setattr(command, "RESULTS", tmp_path / "design.json")
    monkeypatch.setattr(command, "TIMES", 1)
    monkeypatch.setattr(command, "cases", lambda _: [LIBRA["GPT_3 3-D"]])
    command.main(tmp_path, workloads=workloads)
    found = json.loads((tmp_path / "design.json").read_text())
    [time, _] = found["libra"]
    assert [round(rate, 2) for rate in time["gbps"]] == [397.55, 89.99, 12.45]
    # Whole flows of a full leaf need a spine each and one spare spine; in two halves, 32 suffice for the goal 1.05.
    whole, split = (row["goals"] for row in found["published"])
    assert whole == {"1.0": [33, 1.0], "1.05": [33, 1.0]}
    assert split == {"1.0": [33, 1.0], "1.05": [32, pytest.approx(1.032, abs=5e-4)]}
    printed = capsys.readouterr().out
    assert f"written to {tmp_path / 'design.json'}" in printed
    assert Objective.TIME_COST in printed
