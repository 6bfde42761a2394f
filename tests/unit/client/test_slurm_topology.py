"""The tree that Slurm gets for fabrics of two and more tiers."""

import pytest

from signalbox.commands.get import NoTree, TreeSwitch, refuse_circuits, topology_conf, tree


def leaf_spine(leaves: int, spines: int) -> list[tuple[str, str]]:
    return [(f"leaf{leaf}", f"spine{spine}") for leaf in range(1, leaves + 1) for spine in range(1, spines + 1)]


def test_the_spines_of_a_leaf_spine_fabric_are_one_switch_and_circuits_are_no_tree() -> None:
    nodes = {"leaf1": ["n2", "n10", "n1"], "leaf2": ["n3"]}
    assert topology_conf(tree(leaf_spine(2, 4), nodes)) == (
        "SwitchName=leaf1 Nodes=n1,n2,n10\nSwitchName=leaf2 Nodes=n3\nSwitchName=tier1-1 Switches=leaf1,leaf2\n"
    )
    refuse_circuits([])
    with pytest.raises(NoTree, match="2 circuits of optical switches"):
        refuse_circuits(["server1:2>server2", "server2:2>server1"])


def test_a_fat_tree_has_its_pods_below_one_switch_unless_a_pod_has_one_leaf() -> None:
    cables = [(f"edge{p}{e}", f"agg{p}{a}") for p in "12" for e in "ab" for a in "xy"]
    cables += [(f"agg{p}{a}", f"core{a}{c}") for p in "12" for a in "xy" for c in "12"]
    nodes = {f"edge{p}{e}": [f"n{p}{e}"] for p in "12" for e in "ab"}
    assert tree(cables, nodes)[4:] == [
        TreeSwitch("tier1-1", (), ("edge1a", "edge1b")),
        TreeSwitch("tier1-2", (), ("edge2a", "edge2b")),
        TreeSwitch("tier2-1", (), ("tier1-1", "tier1-2")),
    ]
    cables = [("edge1", "agg1"), ("edge2", "agg2"), ("edge3", "agg2"), ("agg1", "core"), ("agg2", "core")]
    found = tree(cables, {"edge1": ["a"], "edge2": ["b"], "edge3": ["c"]})[3:]
    assert found == [TreeSwitch("tier1-1", (), ("edge2", "edge3")), TreeSwitch("tier2-1", (), ("edge1", "tier1-1"))]


def test_leaves_without_nodes_are_left_out_and_parts_that_nothing_connects_stay_apart() -> None:
    found = tree(leaf_spine(3, 2), {"leaf1": ["n1"], "leaf2": [], "leaf3": ["n3"]})
    assert [switch.name for switch in found] == ["leaf1", "leaf3", "tier1-1"]
    found = tree([("leaf1", "spine1"), ("leaf2", "spine1")], {"leaf1": ["n1"], "leaf2": ["n2"], "leaf3": ["n3"]})
    assert found[3:] == [TreeSwitch("tier1-1", (), ("leaf1", "leaf2"))]
    assert tree(leaf_spine(1, 2), {"leaf1": ["n1"]}) == [TreeSwitch("leaf1", ("n1",), ())]
    assert topology_conf(tree([], {})) == ""


@pytest.mark.parametrize(("leaves", "spine", "names"), [
    (("leaf1", "leaf 2"), "tier1-1", ("leaf1", "leaf_2", "tier1-1-")),
    (("leaf 1", "leaf/1"), "spine", ("leaf_1", "leaf_1-", "tier1-1")),
])  # fmt: skip
def test_names_are_such_as_slurm_takes_and_unlike(leaves: tuple[str, str], spine: str, names: tuple[str, ...]) -> None:
    one, other, top = names
    found = topology_conf(tree([(leaf, spine) for leaf in leaves], {leaves[0]: ["n1"], leaves[1]: ["n2"]}))
    expected = f"SwitchName={one} Nodes=n1\nSwitchName={other} Nodes=n2\nSwitchName={top} Switches={one},{other}\n"
    assert found == expected


def test_switches_with_nodes_that_are_connected_without_others_are_below_one() -> None:
    """Slurm does not allocate nodes together that no switch of its tree connects.

    In the first case the switches form a ring; in the second case a spine has a node too."""
    ring = [("leaf1", "leaf2"), ("leaf2", "leaf3"), ("leaf3", "leaf1")]
    assert tree(ring, {f"leaf{k}": [f"n{k}"] for k in (1, 2, 3)})[3:] == [
        TreeSwitch("tier0-1", (), ("leaf1", "leaf2", "leaf3"))
    ]
    found = tree(leaf_spine(2, 1), {"leaf1": ["n1"], "leaf2": ["n2"], "spine1": ["storage"]})
    assert found[3:] == [TreeSwitch("tier0-1", (), ("leaf1", "leaf2", "spine1"))]
