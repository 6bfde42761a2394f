"""Mixes of real jobs, and what is announced of them, against the measured matrices."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest

from benchmarks.joining.mixes import KINDS, by_bytes, by_formula, mix
from benchmarks.joining.results import summary
from controller.jobs.collectives import virtual_links
from controller.scenarios.topologies import leaf_spine
from mininet_topos.joining.jobs import Library, LibraryJob

HOSTS = leaf_spine(4, 4, 4, 5e6, 5e6).hosts
CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "data" / "wire_matrices.json").read_text())
HEADERS = 0.02
LIBRARIES: tuple[Library, ...] = get_args(Library)


def job_of(case: dict[str, Any]) -> LibraryJob:
    elements = case["bytes"] // 4
    return LibraryJob("a", case["library"], case["collective"], HOSTS[: case["ranks"]], elements, case["variant"])


LARGE = [case for case in CASES if case["bytes"] > 400_000]
DESCRIBED = [case for case in LARGE if by_formula(job_of(case))]


@pytest.mark.parametrize(
    "case", DESCRIBED, ids=lambda c: f"{c['library']}-{c['variant']}-{c['collective']}-{c['ranks']}"
)
def test_what_is_announced_is_what_was_measured(case: dict[str, Any]) -> None:
    spec = by_formula(job_of(case))
    assert spec
    announced = Counter({(link.src_ip, link.dst_ip): link.bytes for link in virtual_links(spec)})
    for i, row in enumerate(case["matrix"]):
        for j, sent in enumerate(row):
            assert announced[HOSTS[i].ip, HOSTS[j].ip] == pytest.approx(sent, rel=HEADERS, abs=HEADERS * case["bytes"])


def test_what_is_announced_covers_every_collective_of_gloo_in_the_mixes() -> None:
    described = {(case["collective"], case["ranks"]) for case in DESCRIBED if case["library"] == "gloo"}
    assert described >= {(collective, ranks) for collective, _, _ in KINDS["gloo"] for ranks in range(2, 9)}


@pytest.mark.parametrize("case", LARGE[:7], ids=str)
def test_measured_bytes_are_announced_without_headers(case: dict[str, Any]) -> None:
    job = job_of(case)
    sent = {(a, b): case["matrix"][i][j] for i, a in enumerate(job.peers) for j, b in enumerate(job.peers)}
    spec = by_bytes(job, sent)
    assert spec
    links = {(link.src_ip, link.dst_ip): link.bytes for link in virtual_links(spec)}
    assert links == {pair: count for pair, count in sent.items() if count > HEADERS * case["bytes"]}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("seed", range(5))
def test_a_mix_fills_the_hosts_and_no_two_jobs_share_one(library: Library, seed: int) -> None:
    jobs = mix(seed, library, 16)
    taken = [host for job in jobs for host in job.hosts]
    assert len(taken) == len(set(taken)) > 13
    assert jobs == mix(seed, library, 16)


def test_iterations_are_compared_with_the_flat_switch() -> None:
    def row(mode: str, seconds: float, **more: Any) -> dict[str, Any]:
        return {
            "job": "a",
            "variant": "default",
            "mode": mode,
            "iteration_s": seconds,
            "wrong": 0,
            "level": None,
        } | more

    rows = [row("flat", 1.0), row("ecmp", 2.0), row("ecmp", 3.0), row("planned", 1.1, announced="formula", level=1.0)]
    [line] = summary(rows)
    assert (line["draws"], line["ecmp_over_flat"], line["worst_draw"]) == (2, 2.5, 3.0)
    assert (line["planned_formula"], line["planned_measured"], line["level"]) == (1.1, None, 1.0)
