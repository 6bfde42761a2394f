"""The benchmark of designs: LIBRA's inputs, and random cases against another method."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.design import command, published
from benchmarks.design.cases import compared
from benchmarks.design.independent import Case, searched
from benchmarks.design.libra import GBPS, cases
from offline.design.bandwidth import fastest
from offline.design.question import Objective, Relation
from offline.design.time_cost import best_product
from offline.scenarios.workloads import HEADER
from tests.support.doc_pages import ROOT

LIBRA = {case.workload: case for case in cases(ROOT / "tests/data/libra/inputs")}
EQUAL_3D = (500 / 3 * GBPS,) * 3


def in_gb(gbps: tuple[float, ...]) -> list[float]:
    return [round(rate / GBPS, 2) for rate in gbps]


def test_gpt_3_in_three_dimensions_gets_what_libra_gives_it() -> None:
    case = LIBRA["GPT_3 3-D"]
    design = fastest(case.question)
    assert in_gb(design.gbps) == [397.55, 89.99, 12.45]
    assert case.communication_s(EQUAL_3D) / case.communication_s(design.gbps) == pytest.approx(2.007, abs=5e-4)


def test_gpt_3_in_three_dimensions_is_as_a_formula_says() -> None:
    """Tensor ranks send in the first dimension, replicas in the other two dimensions.

    The rate of the first dimension and the sum of the other two rates are in proportion to the square roots of the
    bytes. The other two rates are in proportion to the bytes."""
    tensor = 8 * 2 * 805306368 * 15 / 16 + 2 * 15 * 50331648
    node, pod = (2 * 452984832 * share for share in (7 / 8, 31 / 32 / 8))
    root = math.sqrt(tensor / (node + pod))
    first = 500 * root / (1 + root)
    expected = [first, (500 - first) * node / (node + pod), (500 - first) * pod / (node + pod)]
    assert fastest(LIBRA["GPT_3 3-D"].question).gbps == pytest.approx([rate * GBPS for rate in expected], rel=1e-5)


@pytest.mark.parametrize("workload", LIBRA)
def test_libras_workloads_have_answers_that_are_proven(workload: str) -> None:
    question = LIBRA[workload].question
    design, tradeoff = fastest(question), best_product(question)
    assert max(design.gap, tradeoff.gap) < 1e-6
    assert sum(design.gbps) <= 500 * GBPS * (1 + 1e-12)
    assert sum(tradeoff.design.gbps) == pytest.approx(500 * GBPS)
    assert tradeoff.product <= design.time_s * design.cost * (1 + 1e-7)


def test_libras_example_of_relations_is_answered() -> None:
    """The example is LIBRA's file ``multiple_constraints.py``, in GB/s.

    Its relations are b1 = 500, b1 >= b2 >= b3, b3 + b4 = 200, and 1000 in all. They leave only the division of 200
    between b3 and b4 open. For one all-reduce, the best division is in proportion to the bytes of b3 and b4."""
    question = LIBRA["GPT_3 4-D"].question
    each = np.eye(4)
    relations = (
        *(Relation(tuple(factors.tolist()), 0.0) for factors in (each[0] - each[1], each[1] - each[2])),
        Relation((0.0, 0.0, 1.0, 1.0), 200.0 * GBPS, 200.0 * GBPS),
        Relation((1.0,) * 4, 1000.0 * GBPS, 1000.0 * GBPS),
    )
    least, most = ((500.0 * GBPS, *(other,) * 3) for other in (0.0, math.inf))
    limits = replace(question.limits, least=least, most=most, total=None, relations=relations)
    design = fastest(replace(question, limits=limits))
    third, fourth = 3 / 4 / 2, 31 / 32 / 8
    shares = [200 * share / (third + fourth) for share in (third, fourth)]
    assert design.gbps == pytest.approx([rate * GBPS for rate in (500, 300, *shares)], rel=1e-5)
    assert design.gap < 1e-9


PARTS = [range(15), *(pytest.param(range(n, n + 250), marks=pytest.mark.long) for n in range(0, 1000, 250))]


@pytest.mark.parametrize("seeds", PARTS, ids=["short", "1", "2", "3", "4"])
def test_another_method_finds_nothing_better(seeds: range) -> None:
    outcomes = [compared(seed) for seed in seeds]
    assert max(outcome.gap for outcome in outcomes) < 1e-6
    assert min(outcome.others for outcome in outcomes) > -1e-6
    assert np.median([outcome.others for outcome in outcomes]) < 1e-4, "the other method does find good ones"


def test_the_other_method_finds_what_is_known_to_be_best() -> None:
    """The minimum of 9 / x + 1 / (8 - x) is 2, at x = 6."""
    ones, zeros = np.ones(2), np.zeros(2)
    limits = {"least": zeros, "most": np.full(2, np.inf), "cost": ones, "relations": np.zeros((0, 2))}
    terms = {"weight": ones, "floor": zeros, "gigabits": np.array([[9.0, 0.0], [0.0, 1.0]])}
    found, value = searched(Case(total=8.0, budget=np.inf, by_cost=False, **limits, **terms), 1)
    assert value == pytest.approx(2, rel=1e-9)
    assert found == pytest.approx([6, 2], rel=1e-3)


def test_figures_are_printed_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The workload has two full leaves of the published fabric, and 32 rings between them."""
    workloads = tmp_path / "full"
    workloads.mkdir()
    rings = [f"{96 + n} {128 + n} 0 1 0 500 9 {n}\n{128 + n} {96 + n} 1 0 0 500 9 {n}" for n in range(32)]
    (workloads / "job_0-BLOOM.txt").write_text("\n".join([HEADER, *rings]))
    monkeypatch.setattr(published, "TRIED", range(31, 34))
    monkeypatch.setattr(command, "RESULTS", tmp_path / "design.json")
    monkeypatch.setattr(command, "TIMES", 1)
    monkeypatch.setattr(command, "cases", lambda _: [LIBRA["GPT_3 3-D"]])
    command.main(tmp_path, random=2, workloads=workloads)
    printed = capsys.readouterr().out
    assert "397.55 / 89.99 / 12.45" in printed
    # Whole flows of a full leaf need a spine each and one spare spine; in two halves, 32 suffice for the goal 1.05.
    assert [line.split() for line in printed.splitlines() if "planned" in line] == [
        ["│", ".", "│", "1", "│", "2", "│", "33", "(planned", "1)", "│", "33", "(planned", "1)", "│"],
        ["│", ".", "│", "2", "│", "1.032", "│", "33", "(planned", "1)", "│", "32", "(planned", "1.032)", "│"],
    ]
    assert f"written to {tmp_path / 'design.json'}" in printed
    assert Objective.TIME_COST in (tmp_path / "design.json").read_text()
