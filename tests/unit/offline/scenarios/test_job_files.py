"""Jobs of a plan on paper that are announced in files of job specs."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller.config import Config
from controller.jobs.messages import RegisterJob
from controller.jobs.registry import JobRegistry
from controller.planning.snapshot import take_snapshot
from offline.scenarios.fabrics import leaf_spine
from offline.scenarios.job_files import read_jobs
from offline.scenarios.scenario import problem_of
from offline.scenarios.workloads import HEADER, read_workload
from signalbox.errors import InvalidInput, SignalboxError
from signalbox.jobs.spec import JobSpec, Striping

FABRIC = leaf_spine(2, 2, 4, 100e9, 100e9)
"""Leaves with the hosts 10.0.0.1 to 10.0.0.4 and 10.0.1.1 to 10.0.1.4."""
PHASES: dict[str, Any] = {
    "job_id": "phases",
    "endpoints": ["10.0.0.1", "10.0.1.1", "10.0.0.2", "10.0.1.2"],
    "groups": [{"name": "all", "ranks": [0, 1, 2, 3]}],
    "collectives": [
        {"algorithm": "all_to_all", "groups": ["all"], "bytes_per_iteration": 4000},
        {"algorithm": "halving_doubling_all_reduce", "groups": ["all"], "bytes_per_iteration": 8000, "phase": 1},
    ],
    "transfers": [{"src": 0, "dst": 3, "bytes_per_iteration": 500, "phase": 2}],
    "max_subflows": 2,
    "striping": "even",
}
PAIR: dict[str, Any] = {
    "job_id": "pair",
    "endpoints": ["10.0.0.1", "10.0.1.1"],
    "transfers": [{"src": 0, "dst": 1, "bytes_per_iteration": 500}],
}


def write(folder: Path, **files: Any) -> Path:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_a_job_is_planned_as_the_controller_plans_it(tmp_path: Path) -> None:
    (job,) = read_jobs(write(tmp_path, a=PHASES), FABRIC)
    registered = JobRegistry(1).register(RegisterJob(JobSpec.parse(PHASES)), 0.0)
    assert job.virtual_links == registered.virtual_links
    assert {link.phase for link in job.virtual_links} == {0, 1, 2, 3}, "the all-reduce has two steps"
    assert (job.dividing, job.transport) == (registered.dividing, registered.transport)
    assert problem_of(FABRIC, [job]).flows == take_snapshot(1, FABRIC, [registered], {}, {}, 1).flows


def test_files_come_by_name_and_their_jobs_in_order(tmp_path: Path) -> None:
    """A job on a single host has no flows."""
    one_host = PHASES | {"job_id": "one-host", "endpoints": ["10.0.0.4"] * 4}
    files = write(tmp_path, b=[PHASES | {"job_id": "second"}, one_host], a=PHASES | {"endpoints": [
        "10.0.0.3", "10.0.1.3", "10.0.0.4", "10.0.1.4"]})  # fmt: skip
    (files / "notes.txt").write_text("not a job")
    assert [job.id for job in read_jobs(files, FABRIC)] == ["phases", "second"]
    assert [job.id for job in read_jobs(files / "b.json", FABRIC)] == ["second"]


def test_jobs_that_report_connections_share_pairs_and_have_as_many_as_subflows(tmp_path: Path) -> None:
    shared = PAIR | {"job_id": "shared", "reports_connections": True, "max_subflows": 3, "striping": "even"}
    jobs = read_jobs(write(tmp_path, a=[PAIR, shared]), FABRIC)
    flows = problem_of(FABRIC, jobs).flows
    assert [(flow.job_id, flow.id.subflow) for flow in flows] == [
        ("pair", 0), ("shared", 0), ("shared", 1), ("shared", 2)]  # fmt: skip
    (shares,) = read_jobs(write(tmp_path, a=[shared | {"striping": "paced"}]), FABRIC)
    assert [flow.max_subflows for flow in problem_of(FABRIC, [shares]).flows] == [3]


def test_the_first_parallelization_computes_before_it_sends(tmp_path: Path) -> None:
    sends = {name: PHASES[name] for name in ("groups", "collectives", "transfers")}
    compute = [{"seconds": 0.5}, {"seconds": 0.25}, {"seconds": 8, "phase": 0}]
    ways = [{"name": "one", "compute": compute, **sends}, {"name": "two", **sends}]
    job = {name: value for name, value in PHASES.items() if name not in sends} | {"parallelizations": ways}
    (found,) = read_jobs(write(tmp_path, a=job), FABRIC)
    assert (found.compute_s, found.parts, found.striping) == (0.75, (0, 1, 2, 3), Striping.EVEN)


@pytest.mark.parametrize(
    ("jobs", "problem"),
    [
        ([PAIR | {"max_subflows": 99}], "a.json:1:125: max_subflows: must be at most 16 (given: 99)"),
        ([{"job_id": "seen", "endpoints": PAIR["endpoints"]}], "the job announces no traffic, so there is nothing to"),
        ([PAIR | {"endpoints": ["10.0.0.1", "10.0.9.1"]}],
         "endpoints[1]: 10.0.9.1: no host of the fabric; it has 8 hosts, 10.0.0.1 to 10.0.1.4"),
        ([PAIR | {"rails": [{"endpoints": ["10.1.0.1", "10.1.1.1"]}]}],
         "rails[0].endpoints[0]: 10.1.0.1 and 1 more: no host of the fabric"),
        ([], "there is no job in this file"),
    ],
)  # fmt: skip
def test_a_wrong_job_names_the_place_and_field(tmp_path: Path, jobs: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(InvalidInput) as error:
        read_jobs(write(tmp_path, a=jobs), FABRIC)
    assert problem in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "a.json"))


@pytest.mark.parametrize("other", [PAIR | {"max_subflows": 2}, PAIR | {"job_id": "other"}])
def test_jobs_exclude_each_other_as_at_the_controller(tmp_path: Path, other: dict[str, Any]) -> None:
    registry = JobRegistry(Config().jobs.max_jobs)
    registry.register(RegisterJob(JobSpec.parse(PAIR)), 0.0)
    with pytest.raises(SignalboxError) as refused:
        registry.register(RegisterJob(JobSpec.parse(other)), 0.0)
    with pytest.raises(type(refused.value)) as error:
        read_jobs(write(tmp_path, a=PAIR, b=other), FABRIC)
    assert str(error.value) == str(refused.value)


def test_jobs_beside_a_workload_have_other_ids_and_pairs(tmp_path: Path) -> None:
    """Host 4 is 10.0.0.1, and host 8 is 10.0.1.1."""
    (tmp_path / "ring.txt").write_text(f"{HEADER}\n4 8 0 1 0 1000 0 0\n8 4 1 0 0 1000 0 0\n")
    workload = read_workload(tmp_path, FABRIC)
    with pytest.raises(InvalidInput) as error:
        read_jobs(write(tmp_path, a=PAIR | {"job_id": "ring"}), FABRIC, workload)
    assert list(map(str, error.value.problems)) == [
        "'ring' is the id of a job of --workload and of one of --jobs; rename one of them",
        "job 'ring' cannot announce 10.0.0.1 > 10.0.1.1: job 'ring' of --workload has this pair",
    ]
    (beside,) = read_jobs(write(tmp_path, a=PAIR | {"reports_connections": True}), FABRIC, workload)
    assert [flow.job_id for flow in problem_of(FABRIC, [*workload, beside]).flows] == ["pair", "ring", "ring"]


def test_there_must_be_a_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"holds no file of job specs \(\*\.toml"):
        read_jobs(tmp_path, FABRIC)
    with pytest.raises(InvalidInput, match=r"absent\.yaml: No such file"):
        read_jobs(tmp_path / "absent.yaml", FABRIC)
