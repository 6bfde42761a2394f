"""The benchmark's parts work on the smallest fabric; nothing is said about times."""

from __future__ import annotations

from pathlib import Path

from benchmarks.planning import Size, cases, measure_planning, measure_rules, random_case
from controller.offline.workloads import HEADER


def test_a_plan_and_its_rules_are_measured() -> None:
    case = random_case(Size(2, 2, 2), 1, rules=True)
    measured, routed = measure_planning(case)
    assert (measured["flows"], measured["level"]) == (4, 1.0)
    install, repair = measure_rules(case, routed)
    assert install["mods"] == install["rules"]
    assert 0 < float(repair["mods"]) < float(install["mods"])


def test_published_workloads_are_cases_by_their_folder(tmp_path: Path) -> None:
    for folder in ("concurrent_jobs_1/ring_size_2", "concurrent_jobs_2/ring_size_2"):
        (tmp_path / folder).mkdir(parents=True)
        lines = (HEADER, "96 128 0 1 0 500 9 0", "128 96 1 0 0 500 9 0")
        (tmp_path / folder / "job_0-BLOOM.txt").write_text("\n".join(lines))
    published = list(cases(tmp_path))[-2:]
    assert [case.name for case in published] == ["concurrent_jobs_1/ring_size_2", "concurrent_jobs_2/ring_size_2"]
    assert measure_planning(published[0])[0]["flows"] == 2
