"""Certificates of random instances and their changed copies, and the command ``certificates``.

The controller's checker agrees with ``implied``, which decides by itself whether a certificate proves its claims."""

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from benchmarks.judge.adapter import certificate_of
from benchmarks.judge.certificates import MAX_SUBFLOWS, accepted, judged, summary
from benchmarks.judge.implied import boasting, changed, follows, refuted, slowdowns, walks
from benchmarks.judge.instances import generate
from controller.planning.problem import PlanLimits
from signalbox.words import Objective
from tests.support.command_line import Command

LIMITS = PlanLimits(time_limit_s=10, ecmp_draws=0, deterministic=True)
WITH_PROOF = 51
"""Seed of an instance whose whole flows need a slowdown above 1."""


@pytest.fixture(scope="module")
def plan() -> Any:
    return certificate_of(generate(WITH_PROOF), 1, LIMITS, Objective.PHASE)


@pytest.mark.parametrize("seed", range(3))
def test_certificates_are_accepted_and_what_does_not_follow_is_refused(seed: int) -> None:
    record = judged(seed, LIMITS)
    assert all(plan["accepted"] and plan["follows"] for plan in record["plans"])
    mutants = [mutant for plan in record["plans"] for mutant in plan["mutants"]]
    assert [mutant for mutant in mutants if not mutant[2] and not mutant[3]] == []
    found = summary([record], 0)
    assert found["wrong"] == []
    assert found["certificates"] == len(MAX_SUBFLOWS)


def test_the_checker_and_the_second_decision_agree_on_changed_copies(plan: Any) -> None:
    assert plan["proofs"]
    agreed = []
    for seed in range(100):
        what, mutant = changed(plan, random.Random(seed))
        if accepted(mutant):
            assert follows(mutant), what
        agreed.append((accepted(mutant), follows(mutant)))
    assert {(False, False), (True, True)} <= set(agreed)


def test_worse_routes_that_claim_to_be_the_best_are_refuted_by_the_better_ones(plan: Any) -> None:
    best = sorted(slowdowns(plan), reverse=True)
    found = [boasting(plan, lambda flow: walks(plan, flow), random.Random(seed)) for seed in range(20)]
    boasts = [mutant for mutant in found if mutant]
    assert boasts
    for mutant in boasts:
        assert refuted(sorted(slowdowns(mutant), reverse=True), best)
        assert mutant["proven"] == len(best)
        assert not accepted(mutant)
        assert not follows(mutant)


def test_slowdowns_are_refuted_by_smaller_ones_after_none_that_are_larger() -> None:
    claimed = [Fraction(3), Fraction(2)]
    assert refuted(claimed, [Fraction(3), Fraction(1)])
    assert refuted(claimed, [Fraction(2), Fraction(2)])
    assert not refuted(claimed, [Fraction(4), Fraction(1)])
    assert not refuted(claimed, claimed)


def test_the_command(benchmark: Command, tmp_path: Path) -> None:
    arguments = ("certificates", "--count", 4, "--seed", WITH_PROOF, "--out", tmp_path / "c")
    run = benchmark(*arguments)
    found = json.loads((tmp_path / "c.summary.json").read_text())
    assert (run.status, *(found[name] for name in ("certificates", "left", "wrong"))) == (0, 4, 0, [])
    assert "4 certificates, 0 left" in run.out
