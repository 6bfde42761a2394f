"""The benchmark's parts work on the smallest fabric; nothing is said about times."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fabrics import Size, leaf_spine, ring_jobs, without_a_cable, workloads
from benchmarks.planning import Case, measure_planning, measure_rules
from controller.fabric.topology import LinkId
from controller.jobs.collectives import VirtualLink

SMALLEST = Size(2, 2, 2)


def test_the_fabric_has_every_cable_both_ways_and_cutting_one_takes_both() -> None:
    fabric = leaf_spine(Size(4, 3, 2))
    assert (len(fabric.switches), len(fabric.links), len(fabric.hosts)) == (7, 24, 8)
    assert all(fabric.links[LinkId(*link.dst)].dst == link.src for link in fabric.links.values())
    assert len(fabric.links) - len(without_a_cable(fabric).links) == 2


def test_jobs_share_no_host() -> None:
    endpoints = [ip for job in ring_jobs(leaf_spine(Size(4, 4, 4)), 3) for ip in job.spec.endpoints]
    assert len(endpoints) == len(set(endpoints)) == 12


def test_a_plan_and_its_rules_are_measured() -> None:
    fabric = leaf_spine(SMALLEST)
    case = Case("smallest", fabric, ring_jobs(fabric, 1), rules=True)
    measured, routed = measure_planning(case)
    assert (measured["flows"], measured["level"]) == (4, 1.0)
    install, repair = measure_rules(case, routed)
    assert install["mods"] == install["rules"]
    assert 0 < float(repair["mods"]) < float(install["mods"])


def test_published_workloads_become_rings_of_the_announced_bytes(tmp_path: Path) -> None:
    """Nodes 0 to 3 are the switches; host 4 is the first one. Two rings of two, each flow one of two steps."""
    folder = tmp_path / "concurrent_jobs_1"
    folder.mkdir()
    lines = ("#src dst ...", "4 6 0 1 0 500 9 0", "6 4 1 0 0 500 9 0", "5 7 0 1 0 500 9 1", "7 5 1 0 0 500 9 1")
    (folder / "job_0-BLOOM.txt").write_text("\n".join(lines))
    ((name, (job,)),) = workloads(tmp_path, leaf_spine(SMALLEST))
    assert (name, job.id) == ("concurrent_jobs_1", "job_0-bloom")
    pairs = [("10.0.1.1", "10.0.2.1"), ("10.0.1.2", "10.0.2.2"), ("10.0.2.1", "10.0.1.1"), ("10.0.2.2", "10.0.1.2")]
    assert job.virtual_links == tuple(VirtualLink(src, dst, 0, 1000) for src, dst in pairs)


def test_a_workload_file_that_is_no_table_of_numbers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.txt").write_text("4 six")
    with pytest.raises(ValueError, match="six"):
        list(workloads(tmp_path, leaf_spine(SMALLEST)))
