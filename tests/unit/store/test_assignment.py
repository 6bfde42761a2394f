"""Assignment of switches to members: load, moves, and what a member that joins or leaves changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain, combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.fabric.topology import Dpid
from controller.store.assignment import MOST_MOVES, Holder, Site, assign, most_held

A, B, C = (Holder(name, f"id of {name}") for name in "abc")


def members_of(count: int) -> list[Holder]:
    return [Holder(f"member{number}", str(number)) for number in range(count)]


def everywhere(members: list[Holder], switches: int, **more: object) -> Site:
    site = Site(frozenset(members), {Dpid(number): members for number in range(switches)}, {})
    return replace(site, **more)  # type: ignore[arg-type]


def settled(site: Site) -> Site:
    """Return the site after all moves, of which at most ``MOST_MOVES`` are made at a time."""
    for _ in range(10 + len(site.connected)):
        if not (changes := assign(site)):
            return site
        site = replace(site, holders={**site.holders, **changes})
    raise AssertionError("the moves do not end")


def loads(site: Site) -> Counter[Holder]:
    return Counter(site.holders.values())


@st.composite
def sites(draw: st.DrawFn) -> Site:
    """Return any site: members that live, drain or are gone, and any connections, racks and holders."""
    everyone = members_of(draw(st.integers(1, 5)))
    switches = [Dpid(number) for number in range(draw(st.integers(0, 30)))]
    member = st.sampled_from(everyone)
    return Site(
        members=draw(st.frozensets(member)),
        connected={dpid: draw(st.frozensets(member)) for dpid in switches},
        holders=draw(st.dictionaries(st.sampled_from(switches), member)) if switches else {},
        draining=draw(st.frozensets(member.map(lambda one: one.name))),
        racks=draw(st.dictionaries(st.sampled_from(switches), st.sampled_from("xyz"))) if switches else {},
    )


def able(site: Site, dpid: Dpid) -> set[Holder]:
    """Return the members that can control the switch; those that drain only if there are no others."""
    found = {member for member in site.connected[dpid] if member in site.members}
    return {member for member in found if member.name not in site.draining} or found


@settings(max_examples=25)
@given(sites())
def test_the_order_of_the_input_changes_nothing(site: Site) -> None:
    turned = Site(
        site.members,
        {dpid: list(connected)[::-1] for dpid, connected in reversed(list(site.connected.items()))},
        dict(reversed(list(site.holders.items()))),
        site.draining,
        dict(reversed(list(site.racks.items()))),
    )
    assert assign(turned) == assign(site)


@settings(max_examples=25)
@given(sites())
def test_every_switch_that_can_be_controlled_has_a_holder_that_can_and_no_other_switch_moves(site: Site) -> None:
    changes = assign(site)
    for dpid in site.connected:
        if living := set(site.connected[dpid]) & site.members:
            assert {**site.holders, **changes}[dpid] in living
        else:
            assert dpid not in changes
    assert all(changes[dpid] != site.holders.get(dpid) for dpid in changes)


@settings(max_examples=25)
@given(sites())
def test_no_switch_moves_without_a_reason(site: Site) -> None:
    changes, needless = assign(site), assign(site, most_moves=0)
    load = loads(replace(site, holders={**site.holders, **needless}))
    usable = set().union(*(able(site, dpid) for dpid in site.connected))
    known = site.connected.keys() | site.holders.keys()
    most = most_held(len(known), len({one for one in usable if one.name not in site.draining} or usable))
    for dpid, holder in changes.items():
        before = site.holders.get(dpid)
        if before is None or before not in set(site.connected[dpid]) & site.members:
            continue  # it had to move
        alone = replace(site, holders={}, connected={dpid: site.connected[dpid]}, racks=site.racks)
        is_first = assign(alone)[dpid] == holder
        assert before not in able(site, dpid) or load[before] > most or is_first
    voluntary = [dpid for dpid, holder in changes.items() if needless.get(dpid) != holder]
    assert len(voluntary) <= MOST_MOVES


@settings(max_examples=25)
@given(sites())
def test_the_moves_end_and_no_single_move_would_make_the_result_better(site: Site) -> None:
    site = settled(site)
    usable = set().union(*(able(site, dpid) for dpid in site.connected))
    known = site.connected.keys() | site.holders.keys()
    most = most_held(len(known), len({one for one in usable if one.name not in site.draining} or usable))
    controlled = {dpid: site.holders[dpid] for dpid in site.connected if able(site, dpid)}
    load = Counter(controlled.values())
    for dpid, holder in controlled.items():
        choices = able(site, dpid)
        assert holder in choices
        assert load[holder] <= most or all(load[other] >= most for other in choices - {holder})
        first = assign(replace(site, holders={}, connected={dpid: site.connected[dpid]}))[dpid]
        assert holder == first or load[first] >= most or dpid in site.racks


@given(st.integers(1, 6), st.integers(0, 60))
def test_no_member_has_more_than_its_bound_when_all_are_connected_everywhere(members: int, switches: int) -> None:
    site = settled(everywhere(members_of(members), switches))
    assert max(loads(site).values(), default=0) <= most_held(switches, members)
    assert len(site.holders) == switches


@given(st.integers(2, 6), st.integers(1, 60))
def test_a_member_that_leaves_moves_only_its_own_switches_at_once(members: int, switches: int) -> None:
    everyone = members_of(members)
    before = settled(everywhere(everyone, switches))
    gone = everyone[0]
    changes = assign(replace(before, members=before.members - {gone}), most_moves=0)
    assert changes.keys() == {dpid for dpid, holder in before.holders.items() if holder == gone}


@given(st.integers(1, 5), st.integers(1, 60))
def test_a_member_that_joins_gets_switches_and_few_others_move(members: int, switches: int) -> None:
    """A switch moves between two other members only where the smaller share of each makes one overfull."""
    *old, new = members_of(members + 1)
    before = settled(everywhere(old, switches))
    after = settled(everywhere([*old, new], switches, holders=before.holders))
    moved = {dpid for dpid in after.holders if after.holders[dpid] != before.holders[dpid]}
    to_new = {dpid for dpid in moved if after.holders[dpid] == new}
    most = most_held(switches, members + 1)
    overfull = sum(max(0, held - most) for held in loads(before).values())
    displaced = sum(_first(before, dpid) != before.holders[dpid] for dpid in before.holders)
    assert len(to_new) <= most
    assert len(moved - to_new) <= overfull + displaced


def _first(site: Site, dpid: Dpid) -> Holder:
    return assign(replace(site, holders={}, connected={dpid: site.connected[dpid]}))[dpid]


def test_a_member_that_joins_takes_about_its_share_of_a_large_fabric() -> None:
    *old, new = members_of(5)
    before = settled(everywhere(old, 1000))
    after = settled(everywhere([*old, new], 1000, holders=before.holders))
    moved = sum(after.holders[dpid] != before.holders[dpid] for dpid in after.holders)
    assert 150 <= loads(after)[new] <= most_held(1000, 5) == 250
    assert moved <= 300


def test_all_small_sites() -> None:
    """Every combination of connections, holders, and one member that drains, for two switches and three members."""
    subsets = [set(some) for some in chain.from_iterable(combinations((A, B, C), size) for size in range(4))]
    count = 0
    for first, second, living in product(subsets, subsets, subsets):
        for one, other, draining in product((None, A, B), (None, A, C), ((), ("a",))):
            holders = {Dpid(number): holder for number, holder in enumerate((one, other)) if holder}
            site = Site(frozenset(living), {Dpid(0): first, Dpid(1): second}, holders, frozenset(draining))
            after = settled(site).holders
            for dpid in site.connected:
                choices = able(site, dpid)
                assert after.get(dpid) in (choices or [site.holders.get(dpid)])
            shared = able(site, Dpid(0)) & able(site, Dpid(1))
            if len(shared) > 1 and able(site, Dpid(0)) == able(site, Dpid(1)):
                assert max(Counter(after.values()).values()) <= most_held(2, len(shared))
            count += 1
    assert count == 8**3 * 18


def test_a_member_that_drains_holds_nothing_after_some_rounds_and_gets_its_switches_back() -> None:
    members = members_of(3)
    site = settled(everywhere(members, 60))
    drains = replace(site, draining=frozenset({members[0].name}))
    first_round = assign(drains)
    assert len(first_round) == MOST_MOVES
    empty = settled(drains)
    assert loads(empty)[members[0]] == 0
    assert settled(replace(empty, draining=frozenset())).holders.keys() == site.holders.keys()
    assert loads(settled(replace(empty, draining=frozenset())))[members[0]] > 0


def test_a_switch_that_only_a_draining_member_reaches_stays_there() -> None:
    site = Site(frozenset({A, B}), {Dpid(1): [A], Dpid(2): [A, B]}, {Dpid(1): A, Dpid(2): A}, frozenset("a"))
    assert assign(site) == {Dpid(2): B}


def test_a_process_that_started_again_is_another_holder_with_the_same_rank() -> None:
    again = Holder(A.name, "another process")
    before = settled(everywhere([A, B], 40))
    after = settled(everywhere([again, B], 40, holders=before.holders))
    assert {dpid for dpid, holder in after.holders.items() if holder == again} == {
        dpid for dpid, holder in before.holders.items() if holder == A
    }


def test_a_switch_that_has_left_all_members_keeps_its_holder() -> None:
    site = Site(frozenset({A, B}), {Dpid(1): []}, {Dpid(1): A, Dpid(2): B})
    assert assign(site) == {}


@pytest.mark.parametrize("racks", [2, 5, 12])
def test_the_switches_of_a_rack_have_one_holder_where_it_has_room_for_them(racks: int) -> None:
    of_racks = {Dpid(number): f"r{number % racks}" for number in range(60)}
    site = settled(everywhere(members_of(3), 60, racks=of_racks))
    holders = {rack: {site.holders[dpid] for dpid in of_racks if of_racks[dpid] == rack} for rack in of_racks.values()}
    split = [rack for rack, of_rack in holders.items() if len(of_rack) > 1]
    assert len(split) <= (2 if racks == 2 else 1)
    assert max(loads(site).values()) <= most_held(60, 3)
