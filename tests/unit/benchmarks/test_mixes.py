"""The mixes: every case has routes, the annealer finds known optima, and more subflows give no worse plans."""

import json
import time
from itertools import count, pairwise
from pathlib import Path
from unittest.mock import patch

import pytest

from benchmarks.judge import mixed_jobs
from benchmarks.judge.adapter import problem_of
from benchmarks.judge.annealer import annealed
from benchmarks.judge.command import Records
from benchmarks.judge.exact import Exact
from benchmarks.judge.instances import Cable, Host, Instance, Send
from benchmarks.judge.mixes import CASES, FABRICS, FAILURES, MIXES, instance_for
from controller.config import Config
from controller.planning.efficiency import SLOWDOWN_TOLERANCE, is_less
from controller.planning.plan import answered
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits
from signalbox.words import Objective
from tests.support.command_line import Command

LIMITS = PlanLimits(time_limit_s=0.1, ecmp_draws=0, deterministic=True)


def test_the_cases_are_all_combinations() -> None:
    assert len(CASES) == len(FABRICS) * len(MIXES) * len(FAILURES) >= 300


@pytest.mark.parametrize("fabric", [name for name in FABRICS if not name.startswith(("32", "64"))])
def test_every_flow_of_a_case_has_a_path(fabric: str) -> None:
    for mix, failure in zip(MIXES, [*FAILURES, "5 cables"], strict=True):
        name = f"{fabric}, {mix}, {failure}"
        instance = instance_for(CASES[name])
        assert instance == instance_for(CASES[name])
        exact = Exact(instance)
        assert all(exact.paths(*flow.ends) for flow in exact.flows)
        assert 16 <= len(exact.flows) <= 6_000


@pytest.mark.parametrize(("pieces", "slowdown"), [(1, 2.0), (2, 1.5)])
def test_the_annealer_finds_the_optimum_of_three_flows_over_two_spines(pieces: int, slowdown: float) -> None:
    cables = tuple(Cable(leaf, 2 + spine, 100) for leaf in range(2) for spine in range(2))
    hosts = tuple(Host(leaf, 100) for leaf in (0, 0, 0, 1, 1, 1))
    sends = tuple(Send(0, number, 3 + number, 0, 1000) for number in range(3))
    exact = Exact(Instance("test", 4, cables, hosts, sends))
    assert annealed(exact, pieces, 0.2) == pytest.approx(slowdown)


def test_the_annealer_counts_slowdowns_over_iterations() -> None:
    """Two flows share one of two cables in the second phase, which is a third of the iteration."""
    cables = tuple(Cable(leaf, 2 + spine, 100) for leaf in range(2) for spine in range(2))
    hosts = tuple(Host(leaf, 100) for leaf in (0, 0, 0, 1, 1, 1))
    sends = (Send(0, 0, 3, 0, 2000), *(Send(0, number, 3 + number, 1, 1000) for number in range(3)))
    instance = Instance("test", 4, cables, hosts, sends)
    assert annealed(Exact(instance), 1, 0.1) == pytest.approx(2.0)
    assert annealed(Exact(instance, over_iterations=True), 1, 0.1) == pytest.approx(4 / 3)


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize(
    "name", [*[name for name in CASES if name.startswith("4x2")][1::4], "4x2 2:1, all kinds, 20 cables"]
)
def test_more_subflows_are_never_worse(name: str, objective: Objective) -> None:
    """Searches end by their numbers of steps."""
    instance = instance_for(CASES[name])
    plans = [answered(plan(problem_of(instance, most, objective), LIMITS)) for most in (1, 2, 8)]
    for fewer, more in pairwise(plans):
        assert not is_less(fewer.sorted_slowdowns, more.sorted_slowdowns)


@pytest.mark.parametrize(
    "name",
    [
        "4x2 2:1, all kinds, 1 cable",
        "4x2 2:1, halving and sharded, 1 spine",
        "8x4 2:1, experts, pipeline and rings, 5 cables",
        "8x4 4:1, pipeline, 1 spine",
        "8x4 2:1, halving and sharded, intact",
    ],
)
def test_neither_more_subflows_nor_more_time_are_worse(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock advances by 5 ms whenever it is read, so that time limits cut searches off at the same steps."""
    instance = instance_for(CASES[name])
    clock = count(0.0, 0.005)
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    plans = [
        [
            answered(plan(problem_of(instance, most), PlanLimits(time_limit_s=seconds, ecmp_draws=0)))
            for seconds in (1e-9, 0.01, 1, 10)
        ]
        for most in (1, 2, 8)
    ]
    assert all(of[0].cut_short or of[0].certificate == "optimal" for of in plans)
    for one in (plans, zip(*plans, strict=True)):
        for row in one:
            for before, after in pairwise(row):
                assert after.max_slowdown <= before.max_slowdown * (1 + SLOWDOWN_TOLERANCE)


@pytest.mark.parametrize("objective", [None, Objective.PHASE])
def test_the_command(objective: Objective | None, benchmark: Command, tmp_path: Path) -> None:
    """No slowdown is wrong, so the plans and the verdicts count slowdowns by the same objective."""
    out = tmp_path / "mixes.jsonl"
    only = "8x4 2:1, experts, 1 cable"
    options = (
        *("mixes", "--only", only, "--time-limit", 0.1, "--anneal", 0.1, "--busy", "--out", out),
        *(("--objective", objective) if objective else ()),
    )
    assert benchmark(*options).status == 0
    found = json.loads((tmp_path / "mixes.summary.json").read_text())
    assert [found[name] for name in ("judged", "left", "wrong")] == [1, 0, []]
    assert [row["max_subflows"] for row in found["rows"]] == [1, 2, 8]
    assert mixed_jobs.flows_of(only) > 16
    assert "0 judged" in benchmark("mixes", "--only", only, "--most-flows", 2, "--out", out).out
    judges = Records(out.with_suffix(".judges.jsonl")).known
    assert judges
    assert all(name.startswith(f"by {objective or Config().planning.objective}, {only}, ") for name in judges)
    assert all(record["slowdown"] >= 1 for record in judges.values())
    out.unlink()
    with patch.object(mixed_jobs, "annealed", side_effect=AssertionError("annealed again")):
        assert benchmark(*options).status == 0
    assert json.loads((tmp_path / "mixes.summary.json").read_text())["rows"][0]["plans"] == 1
