"""Next hops that are updated link by link equal the next hops of a search from scratch."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.shortest_paths import ShortestPaths, next_hops
from controller.fabric.topology import Link, LinkId, PortNo
from offline.scenarios.fabrics import fat_tree, leaf_spine

FABRICS = [leaf_spine(3, 2, 1, 1, 1), leaf_spine(2, 2, 1, 1, 1, 2), fat_tree(4, 1, 1)]


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
