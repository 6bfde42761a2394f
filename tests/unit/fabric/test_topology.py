"""Candidate paths and next hops: with parallel cables, while links are added and removed, and on islands."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import (
    ALONE,
    CandidatePaths,
    Dpid,
    Fabric,
    Islands,
    Link,
    LinkId,
    Path,
    PortNo,
    ShortestPaths,
    Switch,
    connected,
    islands_beside_the_largest,
    next_hops,
)
from offline.scenarios.fabrics import fat_tree
from offline.scenarios.fabrics import leaf_spine as hosts_on_leaves
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


# ---- next hops that are updated link by link equal the next hops of a search from scratch


FABRICS = [hosts_on_leaves(3, 2, 1, 1, 1), hosts_on_leaves(2, 2, 1, 1, 1, 2), fat_tree(4, 1, 1)]


@given(st.data())
@settings(max_examples=60)
def test_any_links_may_come_and_go(data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from(FABRICS))
    known = ShortestPaths()
    for _ in range(data.draw(st.integers(1, 6))):
        missing = data.draw(st.sets(st.sampled_from(sorted(whole.links)), max_size=8))
        links = {link: whole.links[link] for link in whole.links if link not in missing}
        fabric = replace(whole, links=links)
        found = known.towards(fabric, whole.switches)
        assert {dst: towards.hops for dst, towards in found.items()} == next_hops(fabric, whole.switches)
        for dst, towards in found.items():
            assert towards.distance.keys() == towards.hops.keys() | {dst}
            for here, hops in towards.hops.items():
                assert {towards.distance[links[hop].dst.dpid] for hop in hops} == {towards.distance[here] - 1}


def test_what_does_not_change_is_the_same_object() -> None:
    fabric = FABRICS[0]
    known = ShortestPaths()
    before = known.towards(fabric, fabric.switches)
    assert all(known.towards(fabric, fabric.switches)[dst] is before[dst] for dst in fabric.switches)
    cut = LinkId(fabric.hosts["10.0.0.1"].at.dpid, PortNo(1))
    after = known.towards(replace(fabric, links={k: v for k, v in fabric.links.items() if k != cut}), fabric.switches)
    assert after[cut.dpid] is before[cut.dpid], "no switch reaches a leaf over the leaf's own link"
    assert sum(after[dst] is not before[dst] for dst in fabric.switches) == len(fabric.switches) - 2


def test_a_cable_that_leads_elsewhere_now_is_another_link() -> None:
    fabric = FABRICS[0]
    known = ShortestPaths()
    known.towards(fabric, fabric.switches)
    (first, second), *_ = zip(fabric.links, list(fabric.links)[1:], strict=False)
    swapped = {**fabric.links, first: Link(first.at, fabric.links[second].dst, 1.0)}
    moved = replace(fabric, links=swapped)
    found = known.towards(moved, fabric.switches)
    assert {dst: towards.hops for dst, towards in found.items()} == next_hops(moved, fabric.switches)


# ---- islands

LEAVES = Dpid(1), Dpid(2), Dpid(3)


@pytest.fixture
def fabric() -> Fabric:
    return hosts_on_leaves(3, 2, 2, 1e9, 1e9)


def islands(fabric: Fabric) -> Islands:
    return islands_beside_the_largest(fabric.switches, fabric.links, fabric.hosts)


def cut_off(fabric: Fabric, *leaves: Dpid) -> Fabric:
    links = {k: v for k, v in fabric.links.items() if not {v.src.dpid, v.dst.dpid} & {*leaves}}
    return replace(fabric, links=links)


def with_switch(fabric: Fabric, switch: Switch) -> Fabric:
    return replace(fabric, switches={**fabric.switches, switch.dpid: switch})


def test_hosts_of_a_leaf_without_links_reach_each_other_only(fabric: Fabric) -> None:
    found = islands(cut_off(fabric, LEAVES[1]))
    assert found == {"10.0.1.1": LEAVES[1], "10.0.1.2": LEAVES[1]}
    assert connected(found, "10.0.1.1", "10.0.1.2")
    assert not connected(found, "10.0.1.1", "10.0.0.1")
    assert not connected(found, "10.0.0.1", "10.0.1.1")
    assert connected(found, "10.0.0.1", "10.0.2.1")
    found = islands(cut_off(fabric, *LEAVES))
    assert len(found) == 4
    assert not connected(found, "10.0.1.1", "10.0.2.1")


@pytest.mark.parametrize("is_removed", [True, False], ids=["removed", "down"])
def test_a_host_whose_port_is_down_or_gone_reaches_none_not_even_at_its_leaf(fabric: Fabric, is_removed: bool) -> None:
    at = fabric.hosts["10.0.0.1"].at
    switch = fabric.switches[at.dpid]
    ports = {n: p for n, p in switch.ports.items() if n != at.port}
    if not is_removed:
        ports[at.port] = replace(switch.ports[at.port], up=False)
    found = islands(with_switch(fabric, replace(switch, ports=MappingProxyType(ports))))
    assert found == {"10.0.0.1": ALONE}
    assert not connected(found, "10.0.0.1", "10.0.0.2")
    assert not connected(found, "10.0.2.1", "10.0.0.1")


def test_hosts_of_a_switch_that_has_left_reach_none(fabric: Fabric) -> None:
    left = cut_off(fabric, LEAVES[0])
    left = replace(left, switches={k: v for k, v in left.switches.items() if k != LEAVES[0]})
    found = islands(left)
    assert found == {"10.0.0.1": ALONE, "10.0.0.2": ALONE}
    assert not connected(found, "10.0.0.1", "10.0.0.2")


def test_while_all_are_connected_there_is_one_part_whatever_the_ports_of_other_switches(fabric: Fabric) -> None:
    assert islands(fabric) == {}
    assert islands(Fabric()) == {}
    spine = max(fabric.switches)
    ports = {PortNo(99): replace(next(iter(fabric.switches[spine].ports.values())), number=PortNo(99), up=False)}
    ports |= fabric.switches[spine].ports
    assert islands(with_switch(fabric, replace(fabric.switches[spine], ports=MappingProxyType(ports)))) == {}
