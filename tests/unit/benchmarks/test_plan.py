"""The benchmark ``plan``: failures and workloads of the docs, rows that match the plan, targets that can be missed."""

import gc
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.plan import workloads as bench_workloads
from benchmarks.plan.command import change_lines, plan_lines, targets
from benchmarks.plan.measure import (
    MAX_SUBFLOWS,
    Case,
    Change,
    ChangeRow,
    Row,
    Runs,
    cases,
    changed,
    changes_of,
    measure,
    small_settings,
    timed_runs,
    undisturbed,
)
from benchmarks.plan.workloads import FAILURES, ONE_JOB, Failure, Setting, failed, few, leaves_of_one_job, workloads
from controller.planning.plan import NoPlan, Plan
from controller.planning.planner import plan
from controller.planning.problem import PlanLimits, Problem
from offline.scenarios.fabric_options import Placement
from offline.scenarios.fabrics import leaf_spine
from offline.scenarios.generator import generate, jobs_of
from offline.scenarios.scenario import problem_of
from signalbox.errors import InvalidInput

LIMITS = PlanLimits(time_limit_s=5, ecmp_draws=0, deterministic=True)


@pytest.fixture(scope="module")
def setting() -> Setting:
    """Return 8 leaves of 4 hosts and 4 spines, with a job that fills four leaves and a job on three other leaves."""
    fabric = leaf_spine(8, 4, 4, 100e9, 100e9)
    jobs = jobs_of(generate(fabric, 2, 2, Placement.WHOLE_LEAF, seed=3, max_rings=6), fabric)
    return Setting("whole-leaf", "two jobs", fabric, jobs, ("none", "1-spine"), even=True)


def measured(setting: Setting, failure: str, max_subflows: int = 1) -> Row:
    return measure(Case(setting, failure, max_subflows), LIMITS)


# ---- workloads and failures


@pytest.fixture(scope="module")
def generated() -> bench_workloads.Workloads:
    return workloads(None, generated=4)


def test_half_of_the_generated_workloads_are_fragmented_twins(generated: bench_workloads.Workloads) -> None:
    assert [setting.group for setting in generated.generated] == ["whole-leaf", "fragmented"] * 2
    whole, spread = generated.generated[2:]
    assert whole.name == spread.name
    assert [job.id for job in whole.jobs] == [job.id for job in spread.jobs]
    assert sum(len(job.pairs) for job in whole.jobs) == sum(len(job.pairs) for job in spread.jobs)
    assert ONE_JOB in whole.failures
    assert ONE_JOB not in spread.failures


def test_irregular_settings_are_what_their_groups_say(generated: bench_workloads.Workloads) -> None:
    by_group = {setting.group: setting for setting in generated.irregular}
    assert tuple(by_group) == bench_workloads.IRREGULAR

    def demands(group: str) -> set[float]:
        problem = problem_of(by_group[group].fabric, by_group[group].jobs)
        return {round(bps / 1e9, 3) for flow in problem.flows for _, bps in flow.demand_bps}

    assert demands("sizes 3:1") == {100, 33.333}
    assert demands("sizes 7:3:1") == {100, 42.857, 14.286}
    assert demands("100 and 25 Gbit/s NICs") == {100, 25}
    assert {link.capacity_bps for link in by_group["2:1 oversubscribed"].fabric.links.values()} == {50e9}
    cables = Counter((link.src.dpid, link.dst.dpid) for link in by_group["two cables each"].fabric.links.values())
    assert set(cables.values()) == {2}
    assert len(by_group["fat-tree k=8"].fabric.switches) == 80


def test_the_last_of_every_group_is_left_of_many(generated: bench_workloads.Workloads) -> None:
    kept = few(generated)
    assert kept.generated == generated.generated[2:]
    assert [setting.group for setting in kept.irregular] == [*bench_workloads.IRREGULAR]


def test_published_workloads_are_named_by_their_folders(tmp_path: Path) -> None:
    for name in ("two/ring_size_2", "one/ring_size_2"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "job_0-BLOOM.txt").write_text("96 128 0 1 0 500 9 0\n128 96 1 0 0 500 9 0\n")
    found = workloads(tmp_path, generated=0, irregular=False)
    assert [setting.name for setting in found.published] == ["one/ring_size_2", "two/ring_size_2"]
    assert not found.irregular


def test_a_folder_without_workloads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"--workloads: .* holds no workload files"):
        workloads(tmp_path, generated=0)


def test_whole_spines_fail_from_the_highest_and_cables_among_the_rest(setting: Setting) -> None:
    spines = [dpid for dpid, switch in setting.fabric.switches.items() if switch.name.startswith("spine")]
    broken = failed(setting, Failure(spines=2, cables=3))
    left = Counter(link.src.dpid for link in broken.links.values())
    assert [left[spine] for spine in spines[2:]] == [0, 0]
    assert sum(left[spine] for spine in spines[:2]) == 2 * 8 - 3
    assert broken == failed(setting, Failure(spines=2, cables=3))


def test_one_job_is_hit_and_no_other(setting: Setting) -> None:
    alone = leaves_of_one_job(setting)
    broken = failed(setting, Failure(of_one_job=2))
    others = {setting.fabric.hosts[ip].at.dpid for pair in setting.jobs[1].pairs for ip in pair}
    assert alone
    assert not others & set(alone)
    left = Counter(link.src.dpid for link in broken.links.values())
    assert {left[leaf] for leaf in alone} == {2}
    assert {left[leaf] for leaf in others} == {4}
    assert leaves_of_one_job(replace(setting, jobs=setting.jobs[:1])) == []


# ---- one plan


def test_flows_are_whole_and_split_in_each_failure_that_applies(setting: Setting) -> None:
    found = cases([setting], ["1-spine", "8-spines"])
    assert [(case.failure, case.max_subflows) for case in found] == [("1-spine", 1), ("1-spine", 2)]


def test_a_row_says_what_the_plan_is(setting: Setting) -> None:
    whole, split = measured(setting, "1-spine"), measured(setting, "1-spine", max_subflows=2)
    problem = problem_of(failed(setting, FAILURES["1-spine"]), setting.jobs)
    crossing = [flow for flow in problem.flows if flow.src_leaf != flow.dst_leaf]
    most = max(Counter(flow.src_leaf for flow in crossing).values())
    assert (whole.slowdown, whole.closed_form) == (math.ceil(most / 3), math.ceil(most / 3))
    assert split.slowdown == pytest.approx(most / 3)
    assert split.closed_form == pytest.approx(most / 3)
    assert whole.flows == len(problem.flows)
    assert whole.proven
    assert whole.subflows == whole.most_subflows == 1
    assert 1 < split.subflows <= split.most_subflows == 2
    assert whole.total_ms > 0
    assert 1 <= whole.runs <= 5, "a slow first run is the only one"
    assert split.bound <= split.slowdown <= whole.bound <= whole.slowdown
    assert measured(replace(setting, even=False), "none").closed_form is None


def test_every_run_has_a_problem_of_its_own(setting: Setting) -> None:
    made: list[Problem] = []
    asked: list[Problem] = []

    def make() -> Problem:
        made.append(problem_of(setting.fabric, setting.jobs))
        return made[-1]

    def scheme(problem: Problem, limits: PlanLimits) -> Plan | NoPlan:
        asked.append(problem)
        return plan(problem, limits)

    timed = timed_runs(make, scheme, LIMITS, Runs(most=3, budget_s=60))
    assert len(made) == 4
    assert all(problem is of for problem, of in zip(asked, made, strict=True))
    assert timed.times.runs == 3
    slow = timed_runs(make, plan, LIMITS, Runs(most=3, budget_s=0))
    assert (slow.times.runs, slow.times.total_ms > 0) == (1, True), "a slow first run is the only one"


def test_the_garbage_collector_is_as_before_afterwards() -> None:
    with undisturbed():
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


# ---- changes


@pytest.mark.parametrize("change", MAX_SUBFLOWS)
@pytest.mark.parametrize("split", [False, True])
def test_a_change_moves_no_more_than_a_plan_from_scratch(change: Change, split: bool) -> None:
    setting = next(of for of in small_settings() if of.name == "4x4x4 fragmented seed 3")
    row = changed(setting, change, split, LIMITS)
    assert row.certificate == "optimal"
    assert row.slowdown <= row.repair_slowdown
    assert row.slowdown == pytest.approx(row.scratch_slowdown)
    assert row.moves <= row.scratch_moves
    assert row.fewest or (row.moves and (split or change != "cable fails"))
    assert (row.displaced > 0) == (change == "cable fails")
    assert row.max_subflows == (MAX_SUBFLOWS[change] if split else 1)
    assert [*changes_of(replace(setting, jobs=setting.jobs[:1]))] == ["cable fails"], "the only job does not leave"


# ---- results


@pytest.fixture(scope="module")
def row(setting: Setting) -> Row:
    return measured(setting, "1-spine", max_subflows=2)


def change_row(**values: object) -> ChangeRow:
    base = ChangeRow("small", "w", "cable fails", 1, 2, 2.0, 1.5, 1.0, 1.0, "optimal", 2, True, 4.0, 1.0, 5)
    return replace(base, **values)  # type: ignore[arg-type]


def met(name: str, **rows: object) -> tuple[int, int]:
    given = {"rows": (), "changes": ()} | rows
    found = [target for target in targets(**given) if name in target.name]  # type: ignore[arg-type]
    assert len(found) == 1, found
    return found[0].met, found[0].cases


def test_targets_are_met_or_not(row: Row) -> None:
    whole = replace(row, max_subflows=1, closed_form=2.0, slowdown=2.0, most_subflows=1, flows=1200, total_ms=9.0)
    assert met("max(1, D/S)", rows=[row, replace(row, most_subflows=3), replace(row, slowdown=1.5)]) == (1, 3)
    assert met("max(1, ceil(D/S))", rows=[whole, replace(whole, slowdown=3.0)]) == (1, 2)
    assert met("within 10 ms", rows=[whole, replace(whole, total_ms=11.0), replace(whole, flows=2000)]) == (1, 2)
    cables = replace(
        row, failure="40-cables", closed_form=None, slowdown=1.009, bound=1.0, most_subflows=8, max_subflows=8
    )
    assert met("1.01 x bound", rows=[cables, replace(cables, slowdown=1.011), replace(cables, most_subflows=9)]) == (
        1,
        3,
    )
    proven = replace(whole, group="published", failure=ONE_JOB, certificate="optimal", total_ms=600.0)
    unproven = replace(proven, certificate="gap")
    assert met("hit one job", rows=[proven, unproven, replace(proven, total_ms=1001.0)]) == (1, 3)
    assert met("proven within 500 ms", rows=[proven, replace(proven, total_ms=499.0)]) == (1, 2)
    assert met("moves, proven", changes=[change_row(), change_row(fewest=False)]) == (1, 2)


def test_workloads_of_a_group_are_summed_up(row: Row) -> None:
    other = replace(row, workload="b", slowdown=3.0, total_ms=50.0, certificate="gap")
    line, alone = plan_lines([row, other, replace(row, max_subflows=1)])
    assert (line["flows"], line["workloads"], line["plans proven"]) == ("split", "2", "1")
    assert line["slowdown"] == f"{(row.slowdown + 3) / 2:.3f}"
    assert (line["worst slowdown"], line["longest ms"]) == ("3.000", f"{max(50.0, row.total_ms):.0f}")
    assert (alone["flows"], alone["workloads"]) == ("whole", "1")
    (summed,) = change_lines([change_row(), change_row(moves=4, fewest=False)])
    figures = [summed[name] for name in ("moves", "most moves", "moves proven the fewest", "plans proven")]
    assert figures == ["3.0", "4", "1", "2"]
