"""``simulate`` as a user runs it: exit status, JSON, the table, and errors."""

from functools import partial
from pathlib import Path

import pytest

from offline.scenarios.workloads import HEADER
from tests.support.command_line import Signalbox, signalbox

__all__ = ("signalbox",)

FABRIC = ("--leaves", 2, "--spines", 2, "--hosts-per-leaf", 2)
"""Options of a fabric with leaves 0 and 1, spines 2 and 3, and hosts 4 to 7."""
STEP_BYTES = 1_250_000_000
"""Bytes of a step, which take 0.1 s at 100 Gbit/s."""


@pytest.fixture
def simulate(tmp_path: Path, signalbox: Signalbox) -> Signalbox:
    """Return ``simulate`` with a workload of two rings over all hosts of two leaves; the rings compute for 0.3 s."""
    rings = ((4, 6, 0, 1, 0), (6, 4, 1, 0, 0), (5, 7, 0, 1, 1), (7, 5, 1, 0, 1))
    lines = [f"{src} {dst} {up} {down} 0 {STEP_BYTES} 300000000 {ring}" for src, dst, up, down, ring in rings]
    (tmp_path / "job_0-TEST.txt").write_text("\n".join([HEADER, *lines]))
    return partial(signalbox, "simulate", "--workload", tmp_path, *FABRIC)


def test_json_has_every_iteration_of_every_job_under_every_scheme(simulate: Signalbox) -> None:
    result = simulate("--scheme", "greedy,ecmp", "--scheme", "greedy", "--iterations", 2, "--json")
    found = result.json
    assert result.status == 0
    assert found | {"schemes": []} == {
        "iterations": 2, "random_starts_s": None, "replan": "hysteresis", "striping": "by_share", "sharing": "equal",
        "lose_sent": False, "max_moves": 256, "seed": 1, "bound": 1.0, "schemes": [],
    }  # fmt: skip
    assert [scheme["scheme"] for scheme in found["schemes"]] == ["greedy", "ecmp"]
    greedy = found["schemes"][0]
    assert list(greedy) == ["scheme", "mean_slowdown", "plans", "adopted", "moves", "end_s", "jobs"]
    (job,) = greedy["jobs"]
    assert (job["job"], job["cut_off"]) == ("job_0-TEST", False)
    assert job["ideal_s"] == pytest.approx(0.2)
    assert [list(iteration) for iteration in job["iterations"]] == [["start_s", "all_reduce_s", "slowdown"]] * 2
    assert [iteration["start_s"] for iteration in job["iterations"]] == pytest.approx([0.0, 0.5])
    assert greedy["end_s"] == pytest.approx(0.7)


def test_half_the_spines_take_whole_flows_and_split_ones_twice_as_long(simulate: Signalbox) -> None:
    one_left = ("--fail-spines", 1, "--json", "--iterations", 2)
    for found in (simulate(*one_left), simulate(*one_left, "--max-subflows", 2)):
        assert (found.status, found.json["bound"]) == (0, 2.0)
        assert found.json["schemes"][0]["mean_slowdown"] == pytest.approx(2.0)


def test_failures_may_come_and_go(simulate: Signalbox) -> None:
    """The spine fails at 0.5 s, when the second of three iterations begins, and returns before the third."""
    result = simulate("--fail-spines", 0, "--fail-at", 0.5, "--repair-at", 1.0, "--iterations", 3, "--json")
    (job,) = result.json["schemes"][0]["jobs"]
    assert [iteration["slowdown"] for iteration in job["iterations"]] == pytest.approx([1.0, 2.0, 1.0])


def test_a_job_without_a_path_is_cut_off(simulate: Signalbox) -> None:
    cut = ("--fail-links", "leaf0:spine0,leaf0:spine1")
    result = simulate(*cut, "--json")
    assert result.status == 3
    (job,) = result.json["schemes"][0]["jobs"]
    assert job == {"job": "job_0-TEST", "ideal_s": 0.2, "mean_slowdown": None, "cut_off": True, "iterations": []}
    later = simulate(*cut, "--fail-at", 0.25, "--json")
    assert later.status == 3
    assert len(later.json["schemes"][0]["jobs"][0]["iterations"]) == 1
    assert "cut off" in simulate(*cut).out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--scheme", "shortest"), "there is no scheme 'shortest'; choose planned,"),
        (("--fail-at", "2", "--repair-at", "1"), "must be after --fail-at (2)"),
        (("--iterations", "0"), "--iterations"),
        (("--replan", "often"), "--replan"),
    ],
)
def test_wrong_usage_is_told(simulate: Signalbox, arguments: tuple[str, ...], complaint: str) -> None:
    result = simulate(*arguments)
    assert result.status == 2
    assert complaint in " ".join(result.err.replace("│", " ").split())
