"""Options become a scenario: fabric, failures, jobs and names."""

from pathlib import Path
from typing import Any

import pytest

from controller.fabric.topology import Dpid
from offline.scenarios.fabric_options import FabricKind, FabricOptions, WrongUsage
from offline.scenarios.scenario import scenario
from signalbox.errors import InvalidInput

LINES = "5 7 0 1 0 1000 0 0\n7 5 1 0 0 1000 0 0\n6 5 0 0 0 1000 0 1\n5 6 0 0 0 1000 0 1\n"
"""Lines of a ring across two leaves and one inside leaf 0.

Leaves are 0 and 1, spines 2 to 4; hosts 5 and 6 are on leaf 0, 7 and 8 on leaf 1."""


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    (tmp_path / "job.txt").write_text(LINES)
    return tmp_path


def options(workload: Path, **more: Any) -> FabricOptions:
    return FabricOptions(workload=workload, leaves=2, spines=3, hosts_per_leaf=2, **more)


def test_failures_of_all_kinds_add_up_and_change_no_name(workload: Path) -> None:
    known = scenario(options(workload, cables=2, fail_spines="0", fail_links="leaf1:spine1:1"))
    assert len(known.intact.links) - len(known.fabric.links) == 2 * (4 + 1)
    problem = known.problem()
    across, _, inside, _ = problem.flows
    # Two cables up to spine 1, one down; two by two over spine 2.
    assert len(problem.candidates(across)) == 2 * 1 + 2 * 2
    named = {known.names.path(across.src_leaf, path) for path in problem.candidates(across)}
    assert {"leaf0:1>spine1:0>leaf1", "leaf0:0>spine2:1>leaf1"} <= named
    assert len(named) == 6
    assert known.names.path(inside.src_leaf, ()) == "leaf0"
    assert known.names.flow(across) == "5>7 (leaf0>leaf1)"
    assert [known.names.link(link) for link in across.nic_links] == ["5>leaf0", "leaf1>7"]


def test_random_failures_come_on_top(workload: Path) -> None:
    known = scenario(options(workload, fail_spines="0,1", fail_random_links=1))
    assert len(known.fabric.links) == 2
    with pytest.raises(InvalidInput, match="there are 2 left"):
        scenario(options(workload, fail_spines="0,1", fail_random_links=3))


def test_rates_and_subflows_reach_the_problem(workload: Path) -> None:
    problem = scenario(options(workload, link_gbps=10, uplink_gbps=5, max_subflows=3)).problem()
    flow = problem.flows[0]
    assert {problem.capacity_bps[link] for link in problem.candidates(flow)[0]} == {5e9}
    assert problem.capacity_bps[flow.nic_links[0]] == 10e9
    assert flow.max_subflows == 3
    default = scenario(options(workload, link_gbps=25))
    assert {link.capacity_bps for link in default.fabric.links.values()} == {25e9}, "as fast as NICs"
    path = default.problem().candidates(flow)[2]
    assert default.names.path(Dpid(1), path) == "leaf0>spine2>leaf1", "single cables have no numbers"


@pytest.mark.parametrize(("given", "problem"), [
    ({"leaves": 2, "spines": 3}, "--hosts-per-leaf: is needed for this kind of fabric"),
    ({"fabric": FabricKind.FAT_TREE}, "--k: is needed for this kind of fabric"),
    ({"fabric": FabricKind.FAT_TREE, "k": 4, "leaves": 2}, "--leaves: does not apply to a fat-tree"),
    ({"fabric": FabricKind.FAT_TREE, "k": 4, "cables": 2}, "--cables: does not apply to a fat-tree"),
    ({"leaves": 2, "spines": 3, "hosts_per_leaf": 2, "k": 4}, "--k: does not apply to a leaf-spine"),
    ({"graph": Path("g.json"), "spines": 3}, "--spines: does not apply to a --graph"),
    ({"leaves": 2, "spines": 3, "hosts_per_leaf": 2, "uplink_gbps": float("nan")}, "--uplink-gbps: must be from"),
    ({"leaves": 2, "spines": 3, "hosts_per_leaf": 2, "link_gbps": 1e300},
     "--link-gbps: must be from 1e-06 to 1e+06 (given: 1e+300)"),
])  # fmt: skip
def test_options_that_do_not_go_together_are_wrong_usage(tmp_path: Path, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(WrongUsage) as error:
        scenario(FabricOptions(workload=tmp_path, **given))
    assert [str(p)[: len(problem)] for p in error.value.problems] == [problem]
