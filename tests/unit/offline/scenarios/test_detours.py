"""Paths longer than the shortest: which paths exist, and that packets arrive where only some switches have pins."""

from __future__ import annotations

from collections.abc import Iterable

import networkx
from hypothesis import given
from hypothesis import strategies as st

from controller.fabric.topology import CandidatePaths, Dpid, Fabric, Path, next_hops
from offline.scenarios.scenario import StretchedPaths
from tests.support.planning.fabrics import fabric_of, leaf_spine, link_between

TRIANGLE = [(1, 2, 1.0), (1, 3, 10.0), (3, 2, 10.0)]


def visited(fabric: Fabric, path: Path) -> list[int]:
    return [int(link.dpid) for link in path] + [int(fabric.links[path[-1]].dst.dpid)]


def between(fabric: Fabric, src: int, dst: int, stretch: int, max_paths: int = 64) -> list[list[int]]:
    found = StretchedPaths(fabric, max_paths, stretch).between(Dpid(src), Dpid(dst))
    return [visited(fabric, path) for path in found]


def packet_ways(fabric: Fabric, dst: int, paths: Iterable[Path]) -> networkx.DiGraph[int]:
    """Return the hops of packets: by ECMP towards the destination, or by a pin of any of these paths."""
    ways: networkx.DiGraph[int] = networkx.DiGraph()
    hops = next_hops(fabric, [Dpid(dst)])[Dpid(dst)]
    for link in (*(link for links in hops.values() for link in links), *(link for path in paths for link in path)):
        ways.add_edge(int(link.dpid), int(fabric.links[link].dst.dpid))
    return ways


def test_a_detour_beside_a_direct_cable() -> None:
    fabric = fabric_of(TRIANGLE)
    assert between(fabric, 1, 2, 0) == [[1, 2]]
    assert between(fabric, 1, 2, 1) == [[1, 2], [1, 3, 2]]


def test_no_detour_to_a_switch_from_which_ecmp_leads_back() -> None:
    """The shortest path from 3 to 2 is over 1."""
    fabric = fabric_of([(1, 2, 1.0), (1, 3, 1.0), (3, 4, 1.0), (4, 5, 1.0), (5, 2, 1.0)])
    assert between(fabric, 1, 2, 4) == [[1, 2]]
    assert between(fabric, 3, 2, 1) == [[3, 1, 2], [3, 4, 5, 2]]


def test_leaf_spines_have_no_detours_of_one_link() -> None:
    fabric = leaf_spine(3, 3)
    assert between(fabric, 1, 2, 1) == between(fabric, 1, 2, 0)
    assert between(fabric, 1, 2, 2) == between(fabric, 1, 2, 0), "ECMP of a third leaf leads back over the spine"


def test_as_many_detours_as_shortest_paths_are_listed() -> None:
    fabric = fabric_of(
        [(1, 2, 1.0), *((1, middle, 1.0) for middle in range(3, 9)), *((m, 2, 1.0) for m in range(3, 9))]
    )
    for most, count in ((4, 5), (6, 7), (8, 7)):
        paths = StretchedPaths(fabric, most, 1)
        assert len(paths.between(Dpid(1), Dpid(2))) == count
        assert paths.cut(Dpid(1), Dpid(2)) == (most < 6)


def test_which_paths_are_allowed() -> None:
    fabric = fabric_of(TRIANGLE)
    detour = (link_between(fabric, 1, 3), link_between(fabric, 3, 2))
    assert StretchedPaths(fabric, 64, 1).leads(detour, Dpid(1), Dpid(2))
    assert not CandidatePaths(fabric, 64).leads(detour, Dpid(1), Dpid(2))
    assert not StretchedPaths(fabric, 64, 1).without(detour[:1]).leads(detour, Dpid(1), Dpid(2))


@st.composite
def graphs(draw: st.DrawFn) -> Fabric:
    """Draw a connected graph of up to seven switches, with some cables double."""
    switches = draw(st.integers(3, 7))
    tree = [(draw(st.integers(1, here - 1)), here) for here in range(2, switches + 1)]
    others = [(a, b) for b in range(1, switches + 1) for a in range(1, b)]
    return fabric_of((a, b, 1.0) for a, b in (*tree, *draw(st.lists(st.sampled_from(others), max_size=8))))


@given(graphs(), st.integers(1, 3))
def test_packets_arrive_with_any_of_the_pins_of_a_path(fabric: Fabric, stretch: int) -> None:
    paths, shortest = StretchedPaths(fabric, 64, stretch), CandidatePaths(fabric, 64)
    for dst in (1, 2):
        for src in set(fabric.switches) - {dst}:
            found = paths.between(src, Dpid(dst))
            assert found[: len(shortest.between(src, Dpid(dst)))] == shortest.between(src, Dpid(dst))
            assert len(set(found)) == len(found)
            for path in found:
                assert len(path) <= (shortest.distance(src, Dpid(dst)) or 0) + stretch
                assert networkx.is_directed_acyclic_graph(packet_ways(fabric, dst, [path]))
