"""Fabrics on paper: their cables, and what is left after failures."""

from collections import Counter
from collections.abc import Callable
from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.fabric.topology import CandidatePaths, Dpid, Fabric, LinkId
from offline.scenarios.fabrics import (
    cable_links,
    fat_tree,
    leaf_spine,
    listing,
    spine_links,
    without,
    without_random_links,
)
from signalbox.errors import InvalidInput

RATE = 100e9


def small(cables: int = 1) -> Fabric:
    return leaf_spine(4, 3, 2, RATE, 40e9, cables)


def ends(fabric: Fabric) -> Counter[tuple[str, str]]:
    return Counter((fabric.name(link.src.dpid), fabric.name(link.dst.dpid)) for link in fabric.links.values())


@given(leaves=st.integers(1, 6), spines=st.integers(1, 5), hosts=st.integers(1, 4), cables=st.integers(1, 3))
def test_a_leaf_spine_has_every_cable_both_ways_on_own_ports(leaves: int, spines: int, hosts: int, cables: int) -> None:
    fabric = leaf_spine(leaves, spines, hosts, RATE, 40e9, cables)
    wanted = {(f"leaf{leaf}", f"spine{spine}") for leaf in range(leaves) for spine in range(spines)}
    assert ends(fabric) == Counter({pair: cables for a, b in wanted for pair in ((a, b), (b, a))})
    assert all(fabric.links[LinkId(*link.dst)].dst == link.src for link in fabric.links.values())
    used = [link.src for link in fabric.links.values()] + [host.at for host in fabric.hosts.values()]
    assert len(set(used)) == len(used) == sum(len(switch.ports) for switch in fabric.switches.values())
    assert all(fabric.switches[ref.dpid].ports[ref.port].up for ref in used)


def test_numbers_are_those_of_the_published_files() -> None:
    """The fabric has 64 leaves and 32 spines: the first host of leaf 14 is 96 + 14 * 32 = 544."""
    fabric = leaf_spine(64, 32, 32, RATE, RATE)
    assert [fabric.switches[Dpid(1 + n)].name for n in (0, 63, 64, 95)] == ["leaf0", "leaf63", "spine0", "spine31"]
    host = list(fabric.hosts.values())[544 - 96]
    assert (host.ip, fabric.name(host.at.dpid)) == ("10.0.14.1", "leaf14")


@pytest.mark.parametrize(("leaves", "hosts", "length"), [(300, 2, 24), (3, 254, 24), (3, 255, 23), (2, 600, 22)])
def test_every_leaf_owns_a_prefix(leaves: int, hosts: int, length: int) -> None:
    fabric = leaf_spine(leaves, 1, hosts, RATE, RATE)
    assert len(fabric.hosts) == leaves * hosts
    owners = {(IPv4Network((ip, length), strict=False), host.at.dpid) for ip, host in fabric.hosts.items()}
    assert len({prefix for prefix, _ in owners}) == len(owners) == leaves
    assert not fabric.hosts.keys() & {str(ip) for prefix, _ in owners for ip in (prefix[0], prefix[-1])}


def test_a_fabric_without_addresses_for_all_hosts_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"do not fit into 10\.0\.0\.0/8"):
        leaf_spine(70_000, 1, 1, RATE, RATE)


@pytest.mark.parametrize("build", [lambda: leaf_spine(10**8, 10**5, 1, RATE, RATE), lambda: fat_tree(112, RATE, RATE)])
def test_a_fabric_that_no_memory_holds_is_refused_at_once(build: Callable[[], Fabric]) -> None:
    with pytest.raises(InvalidInput, match=r"cables and NICs; at most 1,000,000 can be planned"):
        build()


def test_sizes_below_one_are_all_named() -> None:
    with pytest.raises(InvalidInput) as error:
        leaf_spine(0, 1, -1, RATE, RATE)
    assert [problem.path for problem in error.value.problems] == ["leaves", "hosts_per_leaf"]


@pytest.mark.parametrize("k", [2, 4, 6])
def test_a_fat_tree_has_full_bisection_and_its_cores_fail_by_number_other_switches_by_name(k: int) -> None:
    fabric = fat_tree(k, RATE, RATE)
    half = k // 2
    names = Counter(switch.name.rstrip("0123456789") for switch in fabric.switches.values())
    assert names == {"edge": k * half, "agg": k * half, "core": half * half}
    assert len(fabric.hosts) == k**3 // 4
    assert all(len(switch.ports) == k for switch in fabric.switches.values())
    paths = CandidatePaths(fabric, max_paths=100)
    across = paths.between(Dpid(1), Dpid(k * half))
    assert len(across) == half * half
    assert all(len(path) == 4 for path in across)
    if k > 2:
        assert len(paths.between(Dpid(1), Dpid(2))) == half
        left = without(fabric, spine_links(fabric, ["3", "agg0"]))
        assert not {"core3", "agg0"} & {name for pair in ends(left) for name in pair}


# ---- failures


def test_a_failed_spine_takes_its_cables_and_no_number() -> None:
    fabric, left = small(), without(small(), spine_links(small(), [1]))
    assert ends(fabric) - ends(left) == Counter(pair for pair in ends(fabric) if "spine1" in pair)
    assert list(left.switches) == list(fabric.switches)
    assert left.generation == fabric.generation + 1


@pytest.mark.parametrize(("spine", "message"), [(9, "no spine '9'"), ("leaf1", "'leaf1' has hosts")])
def test_what_cannot_fail_is_refused_with_what_can(spine: int | str, message: str) -> None:
    with pytest.raises(InvalidInput, match=f"{message}.*spine0, spine1, spine2"):
        spine_links(small(), [spine])


@pytest.mark.parametrize(
    ("name", "turned", "lost"), [("leaf1:spine2", "spine2:leaf1", 2), ("leaf1:spine2:1", "spine2:leaf1:1", 1)]
)
def test_a_cable_fails_both_ways_alone_or_with_its_parallels(name: str, turned: str, lost: int) -> None:
    fabric = small(cables=2)
    left = without(fabric, cable_links(fabric, [name]))
    assert left == without(fabric, cable_links(fabric, [turned]))
    assert ends(fabric) - ends(left) == {("leaf1", "spine2"): lost, ("spine2", "leaf1"): lost}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("leaf1", "must be SWITCH:SWITCH"),
        ("leaf1:spine1:0:0", "must be SWITCH:SWITCH"),
        ("leaf9:spine1", "no switch 'leaf9'; switches: leaf0"),
        ("leaf1:leaf2", "no cable between the two; leaf1 has cables to spine0, spine1, spine2"),
        ("leaf1:spine1:2", "no cable 2 between the two; cables: 0, 1"),
    ],
)
def test_an_unknown_cable_is_refused_with_what_exists(name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        cable_links(small(cables=2), [name])


@given(st.integers(0, 12), st.integers(0, 1000))
def test_random_cables_are_distinct_whole_and_named_by_their_seed(count: int, seed: int) -> None:
    fabric = small()
    left = without_random_links(fabric, count, seed)
    assert len(fabric.links) - len(left.links) == 2 * count
    assert all(LinkId(*link.dst) in left.links for link in left.links.values())
    assert left == without_random_links(fabric, count, seed)
    with pytest.raises(InvalidInput, match="13 cables cannot fail: there are 12"):
        without_random_links(fabric, 13, seed)


def test_long_lists_are_cut() -> None:
    assert listing([f"s{n}" for n in range(8)]).count(",") == 7
    assert listing([f"s{n}" for n in range(30)]) == "s0, s1, … s29 (30 in all)"
    assert listing([]) == "none"
