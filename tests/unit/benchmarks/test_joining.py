"""Mixes of real jobs, and their announcements, compared with measured traffic matrices."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest

from benchmarks.joining.mixes import ALGORITHMS, Announced, mix, spec_of
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


# ---- mixes


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("seed", range(2))
def test_a_mix_fills_the_hosts_and_no_two_jobs_share_one(library: Library, seed: int) -> None:
    jobs = mix(seed, library, 16)
    taken = [host for job in jobs for host in job.hosts]
    assert len(taken) == len(set(taken)) > 13
    assert jobs == mix(seed, library, 16)
