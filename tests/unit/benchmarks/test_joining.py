"""Mixes of real jobs, and their announcements, compared with measured traffic matrices."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import pytest

from benchmarks.joining.mixes import ALGORITHMS, Announced, Mode, Row, mix, spec_of, summary
from benchmarks.joining.watch import least_slowdown, slowdowns
from mininet_topos.joining.jobs import Library, LibraryJob
from offline.scenarios.topologies import leaf_spine
from signalbox.jobs.collectives import virtual_links

HOSTS = leaf_spine(4, 4, 4, 5e6, 5e6).hosts
CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "data" / "wire_matrices.json").read_text())
HEADERS = 0.02
LIBRARIES: tuple[Library, ...] = get_args(Library)


def job_of(case: dict[str, Any]) -> LibraryJob:
    elements = case["bytes"] // 4
    return LibraryJob("a", case["library"], case["collective"], HOSTS[: case["ranks"]], elements, case["variant"])


DESCRIBED = [case for case in CASES if case["bytes"] > 400_000 and (case["collective"], case["variant"]) in ALGORITHMS]


@pytest.mark.parametrize(
    "case", DESCRIBED, ids=lambda c: f"{c['library']}-{c['variant']}-{c['collective']}-{c['ranks']}"
)
def test_what_is_announced_is_what_was_measured(case: dict[str, Any]) -> None:
    announced = Counter[tuple[str, str]]()
    for link in virtual_links(spec_of(job_of(case), Announced.RIGHT)):
        announced[link.src_ip, link.dst_ip] += link.bytes
    for i, row in enumerate(case["matrix"]):
        for j, sent in enumerate(row):
            assert announced[HOSTS[i].ip, HOSTS[j].ip] == pytest.approx(sent, rel=HEADERS, abs=HEADERS * case["bytes"])


@pytest.mark.parametrize("announced", [a for a in Announced if a is not Announced.OBSERVED])
def test_only_the_right_announcement_has_the_jobs_pairs_and_bytes(announced: Announced) -> None:
    job = LibraryJob("a", "gloo", "all_reduce", HOSTS[:4], 120_120)
    right, told = (virtual_links(spec_of(job, a)) for a in (Announced.RIGHT, announced))
    assert (right == told) == (announced is Announced.RIGHT)
    assert not spec_of(job, Announced.OBSERVED).collectives


# ---- slowdowns


def test_two_rings_that_cross_need_two_spines() -> None:
    """Two jobs have a ring of two hosts each, one host on each leaf: each leaf sends two flows at full rate."""
    leaf_of = {"a": "leaf1", "b": "leaf2", "c": "leaf1", "d": "leaf2"}
    traffic = {"one": {0: {("a", "b"): 6.0, ("b", "a"): 6.0}}, "two": {0: {("c", "d"): 3.0, ("d", "c"): 3.0}}}
    assert least_slowdown(traffic, leaf_of, ["spine1", "spine2"]) == (1.0, True)
    assert least_slowdown(traffic, leaf_of, ["spine1"]) == (2.0, True)
    together = {pair: "spine1" for job in traffic.values() for pair in job[0]}
    assert slowdowns(traffic, leaf_of, together) == {"one": 2.0, "two": 2.0}
    apart = together | {("c", "d"): "spine2", ("d", "c"): "spine2"}
    assert slowdowns(traffic, leaf_of, apart) == {"one": 1.0, "two": 1.0}
    phases = {"one": {0: {("a", "b"): 5.0}, 1: {("c", "d"): 5.0}}}
    assert least_slowdown(phases, leaf_of, ["spine1"]) == (1.0, True), "phases of one job do not meet"


# ---- mixes and results


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("seed", range(2))
def test_a_mix_fills_the_hosts_and_no_two_jobs_share_one(library: Library, seed: int) -> None:
    jobs = mix(seed, library, 16)
    taken = [host for job in jobs for host in job.hosts]
    assert len(taken) == len(set(taken)) > 13
    assert jobs == mix(seed, library, 16)


def test_iterations_are_compared_with_the_flat_switch() -> None:
    def row(mode: Mode, seconds: float, **more: Any) -> dict[str, Any]:
        of_job: dict[str, Any] = {"job": "a", "library": "gloo", "collective": "all_reduce", "variant": "default"}
        times: dict[str, Any] = {"iterations": 5, "iteration_s": seconds, "communication_s": seconds}
        return asdict(Row(seed=0, mode=mode, draw=0, ranks=4, wrong=0, **of_job, **times)) | more

    planned = row(Mode.PLANNED, 2.2, announced="right", slowdown=2.0, right_s=4.0)
    found = summary([row(Mode.FLAT, 1.0), row(Mode.ECMP, 2.0), row(Mode.ECMP, 3.0), planned])
    assert found["hashed"] == [{"job": "a", "draws": 2, "mean": 2.5, "worst": 3.0}]
    [line] = found["planned"]
    assert (line["flat_s"], line["ratio"]) == (1.0, 1.1)
    [total] = found["totals"]
    assert (total["ratio_max"], total["routes_right"], total["alarms"]) == (1.1, 1, 0)
