"""The mixes: every flow has a path, and the annealer finds known optima."""

from pathlib import Path

import pytest

from benchmarks.judge import mixed_jobs
from benchmarks.judge.annealer import annealed
from benchmarks.judge.exact import Exact
from benchmarks.judge.instances import Cable, Host, Instance, Send
from benchmarks.judge.mixes import CASES, FABRICS, FAILURES, MIXES, instance_for
from tests.support.command_line import Command


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


def test_the_command(benchmark: Command, tmp_path: Path) -> None:
    out = tmp_path / "mixes.jsonl"
    only = "4x2 2:1, tensor, intact"
    run = benchmark("mixes", "--only", only, "--time-limit", 0.1, "--anneal", 0.1, "--busy", "--out", out, "--json")
    assert run.status == 0
    assert [run.json[name] for name in ("judged", "left", "wrong")] == [1, 0, []]
    assert [row["max_subflows"] for row in run.json["rows"]] == [1, 2, 8]
    assert mixed_jobs.flows_of(only) > 16
    assert "0 judged" in benchmark("mixes", "--only", only, "--most-flows", 2, "--out", out).out
