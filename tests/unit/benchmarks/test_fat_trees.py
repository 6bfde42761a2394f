"""The fat-trees of the benchmark, the smallest of them; nothing is said about times."""

from __future__ import annotations

import pytest

from benchmarks import fat_trees
from benchmarks.fat_trees import LINK_BPS, Case, measured, rings
from offline.scenarios.fabrics import fat_tree

PER_POD = 4
"""Hosts of a pod of arity 4."""


@pytest.fixture(autouse=True)
def one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fat_trees, "RUNS", 1)


def test_whole_flows_on_an_intact_tree_are_at_level_one() -> None:
    row = measured(Case(4))
    assert (row["flows"], row["level"], row["certificate"], row["most_pieces"]) == (16, 1, "optimal", 1)
    assert float(row["cpu_ms"]) > 0


def test_where_a_core_has_failed_every_flow_is_between_pods() -> None:
    case = Case(4, (3,), 3)
    fabric = fat_tree(case.arity, LINK_BPS, LINK_BPS)
    pod = {ip: number // PER_POD for number, ip in enumerate(fabric.hosts)}
    links = [link for job in rings(fabric, case) for link in job.virtual_links]
    assert len(links) == len({link.src_ip for link in links}) == len({link.dst_ip for link in links}) == 16
    assert all(pod[link.src_ip] != pod[link.dst_ip] for link in links)
    assert measured(case)["level"] == pytest.approx(4 / 3)
