"""Candidate paths and next hops on multigraphs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from controller.fabric.shortest_paths import CandidatePaths, next_hops
from controller.fabric.topology import Dpid, Fabric, LinkId, Path, PortNo
from tests.support.planning.fabrics import fabric_of, leaf_spine, link_between

A, B = Dpid(1), Dpid(2)


def paths_between(fabric: Fabric, src: int, dst: int, max_paths: int = 64) -> tuple[Path, ...]:
    return CandidatePaths(fabric, max_paths).between(Dpid(src), Dpid(dst))


def walk(fabric: Fabric, src: int, path: Path) -> list[int]:
    here = [src]
    for link in path:
        assert link.dpid == here[-1]
        here.append(fabric.links[link].dst.dpid)
    return here


def test_a_leaf_spine_offers_one_path_per_spine() -> None:
    fabric = leaf_spine(4, 4)
    found = paths_between(fabric, 1, 2)
    assert [walk(fabric, 1, path) for path in found] == [[1, spine, 2] for spine in (101, 102, 103, 104)]


def test_parallel_cables_are_separate_paths_and_next_hops() -> None:
    fabric = fabric_of([(1, 101, 1.0), (1, 101, 1.0), (2, 101, 1.0), (2, 101, 1.0), (2, 101, 1.0)])
    assert len(set(paths_between(fabric, 1, 2))) == 6
    assert next_hops(fabric, [B])[B][A] == (LinkId(A, PortNo(1)), LinkId(A, PortNo(2)))


def test_the_first_paths_go_over_as_many_next_hops_as_there_are() -> None:
    """Each of two spines has two cables to the destination: successive paths of the list use different spines."""
    cables = [(1, 101, 1.0), (1, 102, 1.0), *[(2, spine, 1.0) for spine in (101, 102) for _ in range(2)]]
    fabric = fabric_of(cables)
    assert [walk(fabric, 1, path)[1] for path in paths_between(fabric, 1, 2)] == [101, 102, 101, 102]


def test_a_missing_cable_takes_its_spine_out_for_that_pair_only() -> None:
    fabric = leaf_spine(3, 2, without=[(1, 1)])
    assert [walk(fabric, 1, path) for path in paths_between(fabric, 1, 2)] == [[1, 102, 2]]
    assert len(paths_between(fabric, 3, 2)) == 2
    assert next_hops(fabric, [A])[A][Dpid(101)] == (
        link_between(fabric, 101, 2),
        link_between(fabric, 101, 3),
    ), "a spine without its cable to leaf 1 goes by the other leaves, as the shortest path that is left"


def test_paths_without_a_cable_are_those_of_the_fabric_without_it() -> None:
    fabric = leaf_spine(3, 2)
    cut = {link_between(fabric, 1, 101), link_between(fabric, 101, 1)}
    whole = CandidatePaths(fabric, 64)
    left = whole.without(cut)
    broken = CandidatePaths(leaf_spine(3, 2, without=[(1, 1)]), 64)
    assert (
        [len(left.between(A, Dpid(n))) for n in (2, 3)] == [len(broken.between(A, Dpid(n))) for n in (2, 3)] == [1, 1]
    )
    assert left.far_end.keys() == whole.far_end.keys() - cut
    assert len(whole.between(A, B)) == 2, "the original is unchanged"


def test_a_link_that_works_in_one_direction_only_is_used_in_that_direction_only() -> None:
    fabric = leaf_spine(2, 2)
    one_way = {k: v for k, v in fabric.links.items() if k != link_between(fabric, 1, 101)}
    fabric = replace(fabric, links=one_way)
    assert len(paths_between(fabric, 1, 2)) == 1
    assert len(paths_between(fabric, 2, 1)) == 2


def test_a_cap_is_shared_by_the_first_hops() -> None:
    """The edge switch of three tiers has 4 uplinks, and each uplink leads to a switch with 4 next hops."""
    up = [(1, 100 + a, 1.0) for a in range(4)]
    core = [(100 + a, 200 + 4 * a + c, 1.0) for a in range(4) for c in range(4)]
    down = [(200 + 4 * a + c, 150 + a, 1.0) for a in range(4) for c in range(4)]
    fabric = fabric_of([*up, *core, *down, *((150 + a, 2, 1.0) for a in range(4))])
    assert len(paths_between(fabric, 1, 2)) == 16
    for cap in (1, 3, 4, 6, 8):
        chosen = paths_between(fabric, 1, 2, cap)
        per_first_hop = Counter(path[0] for path in chosen)
        assert len(set(chosen)) == cap
        assert max(per_first_hop.values()) - min(per_first_hop.values()) <= 1
        assert len(per_first_hop) == min(cap, 4)


def test_the_cap_is_cheap_where_paths_are_exponentially_many() -> None:
    ladder = [(stage, stage + 1, 1.0) for stage in range(1, 41) for _ in range(3)]
    assert len(set(paths_between(fabric_of(ladder), 1, 41, 50))) == 50


def test_switches_that_cannot_be_reached_have_no_paths_and_no_next_hops() -> None:
    fabric = fabric_of([(1, 101, 1.0), (2, 102, 1.0)])
    assert paths_between(fabric, 1, 2) == ()
    assert paths_between(fabric, 1, 77) == ()
    assert set(next_hops(fabric, [B])[B]) == {102}
    assert next_hops(fabric, [Dpid(77)])[Dpid(77)] == {}
    assert paths_between(fabric, 1, 1) == ((),), "a switch reaches itself"
    assert A not in next_hops(fabric, [A])[A]


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)).filter(lambda ends: ends[0] != ends[1]), max_size=14))
def test_on_any_multigraph_paths_are_distinct_equally_long_loop_free_and_made_of_next_hops(
    cables: list[tuple[int, int]],
) -> None:
    fabric = fabric_of((a, b, 1.0) for a, b in cables)
    shuffled = replace(fabric, links=dict(reversed(list(fabric.links.items()))))
    pairs = [(a, b) for a in fabric.switches for b in fabric.switches if a != b]
    candidates, others = CandidatePaths(fabric, 10_000), CandidatePaths(shuffled, 10_000)
    for src, dst in pairs:
        paths = candidates.between(src, dst)
        assert paths == others.between(src, dst)
        assert candidates.connected(src, dst) == bool(paths)
        assert all(candidates.leads(path, src, dst) for path in paths)
        assert not any(candidates.leads(path, dst, src) for path in paths)
        hops = next_hops(fabric, [dst])[dst]
        assert bool(paths) == (src in hops)
        assert len(set(paths)) == len(paths)
        assert len({len(path) for path in paths}) <= 1
        assert {path[0] for path in paths} == set(hops.get(src, ()))
        first, last = candidates.ends(src, dst)
        assert (sorted(first), sorted(last)) == (sorted({p[0] for p in paths}), sorted({p[-1] for p in paths}))
        for path in paths:
            switches = walk(fabric, src, path)
            assert switches[-1] == dst
            assert len(set(switches)) == len(switches)
            assert all(link in hops[Dpid(here)] for (here, _), link in zip(pairwise(switches), path, strict=True))
