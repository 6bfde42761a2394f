"""Benchmarks work in a small form, without checks of times: simulations, scrapes, goal plans, load of the API."""

import inspect
from pathlib import Path

import pytest

from benchmarks import scrapes, simulation
from benchmarks.api_load.switches import Switches
from benchmarks.fabric.blueprint import job_spec
from benchmarks.live import goal_plan
from benchmarks.simulation import by_workload, summary
from controller.config import Config, PlanningConfig
from controller.southbound.run_hub import run_hub
from offline.scenarios.fabric_options import Placement
from offline.scenarios.fabrics import leaf_spine
from offline.scenarios.generator import generate, jobs_of
from offline.scenarios.workloads import HEADER
from signalbox.jobs.spec import JobSpec


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


def test_scrapes_are_measured_without_and_with_compression() -> None:
    plain, packed = scrapes.measured(leaves=2, spines=2, hosts_per_leaf=3, jobs=2, scrapes=1)
    assert [row["encoding"] for row in (plain, packed)] == ["identity", "gzip"]
    links = 2 * 2 * 2 + 2 * 6
    assert int(plain["series"]) > 2 * links
    assert 0 < float(packed["MB"]) < float(plain["MB"])
    assert all(float(row["CPU / plain loop"]) > 0 for row in (plain, packed))


def test_a_spine_that_dies_and_returns_is_measured_cycle_by_cycle() -> None:
    fabric = leaf_spine(8, 4, 4, 100e9, 100e9)
    jobs = jobs_of(generate(fabric, 2, 4, Placement.WHOLE_LEAF, 1, max_rings=4), fabric, max_subflows=2)
    config = Config(planning=PlanningConfig(max_moves=8))
    dies, returns = goal_plan.measured(fabric, "small", [*map(job_spec, jobs)], config)
    assert (dies.what, returns.what) == ("a spine dies", "it returns")
    assert dies.slowdowns[0][0] == 2
    assert dies.cycles > 1
    for change in (dies, returns):
        assert change.never_worse
        assert change.reached
        assert all(0 < moves <= 8 for moves in change.moves)


def test_a_change_that_moves_nothing_is_reached_at_once() -> None:
    """Each leaf has one flow each way, which one spine of four can carry."""
    job = JobSpec.parse({
        "job_id": "two", "endpoints": ["10.0.0.1", "10.0.1.1"], "groups": [{"name": "all", "ranks": [0, 1]}],
        "collectives": [{"algorithm": "ring_all_reduce", "groups": ["all"], "bytes_per_iteration": 1000}],
    })  # fmt: skip
    for change in goal_plan.measured(leaf_spine(2, 4, 1, 100e9, 100e9), "two hosts", [job], Config()):
        assert (change.cycles, change.slowdowns[-1], change.never_worse, change.reached) == (0, (1.0,), True, True)


def test_the_switches_of_the_benchmark_are_called_as_run_hub_is() -> None:
    replaced = inspect.signature(run_hub).parameters.values()
    replacement = [*inspect.signature(Switches.__call__).parameters.values()][1:]
    assert [(one.name, one.kind, one.default is one.empty) for one in replacement] == [
        (one.name, one.kind, one.default is one.empty) for one in replaced
    ]
