"""Links that plans may use, and the ports at which hosts are."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from controller.fabric.topology import Dpid, LinkId, Port, PortNo, PortRef
from controller.fabric.topology_state import (
    MAX_HOSTS_PER_PORT,
    MAX_HOSTS_PER_SWITCH,
    DeclaredHost,
    HoldDowns,
    TopologySettings,
    TopologyState,
)

A, B = PortRef(Dpid(1), PortNo(1)), PortRef(Dpid(2), PortNo(7))
EDGE, OTHER_EDGE = PortRef(Dpid(1), PortNo(2)), PortRef(Dpid(2), PortNo(2))


def port(number: int, up: bool = True) -> Port:
    return Port(PortNo(number), f"eth{number}", "02:00:00:00:00:01", up, 10e9)


@pytest.fixture
def state() -> TopologyState:
    """Return two ready switches at time 0, with ports 1, 2 and 7, and no link between them yet."""
    state = TopologyState(TopologySettings(hold_down_s=(2, 60), edge_after_s=3, capacity_bps=lambda *_: 1e9))
    for dpid in (Dpid(1), Dpid(2)):
        state.switch_connected(dpid, f"s{dpid}", [port(1), port(2), port(7)], 0)
        assert state.switch_ready(dpid)
    return state


SECOND = PortRef(Dpid(1), PortNo(7)), PortRef(Dpid(2), PortNo(1))
"""A second cable between the two switches."""


def see(state: TopologyState, now: float, *cables: tuple[PortRef, PortRef]) -> None:
    for one, other in ((A, B), *cables):
        state.link_seen(one, other, now)
        state.link_seen(other, one, now)


def links(state: TopologyState) -> set[PortRef]:
    return {link.at for link in state.fabric.links}


def test_a_link_needs_both_directions(state: TopologyState) -> None:
    state.link_seen(A, B, 1)
    assert links(state) == set()
    state.link_seen(B, A, 1)
    assert links(state) == {A, B}


def test_a_link_needs_switches_that_have_their_rules(state: TopologyState) -> None:
    state.switch_connected(Dpid(2), "s2", [port(1), port(2), port(7)], 1)
    see(state, 1)
    assert links(state) == set()
    assert state.switch_ready(Dpid(2))
    assert not state.switch_ready(Dpid(2)), "no news"
    assert links(state) == {A, B}


def test_a_snapshot_keeps_the_ports_that_it_had(state: TopologyState) -> None:
    before = state.fabric
    assert not state.port_changed(Dpid(1), port(1), False, 1), "no change"
    for number in range(10, 20):
        assert state.port_changed(Dpid(1), port(number), False, 1)
    assert state.port_changed(Dpid(1), port(2, up=False), False, 1)
    between = state.fabric
    assert state.port_changed(Dpid(1), port(10), True, 2)
    assert not state.port_changed(Dpid(1), port(10), True, 2), "no news"
    after = state.fabric
    ports = [set(each.switches[Dpid(1)].ports) for each in (before, between, after)]
    assert ports == [{1, 2, 7}, {1, 2, 7, *range(10, 20)}, {1, 2, 7, *range(11, 20)}]
    assert [each.switches[Dpid(1)].ports[PortNo(2)].up for each in (before, between)] == [True, False]


@pytest.mark.parametrize("removed", [True, False])
def test_a_link_that_failed_returns_after_probes_both_ways_and_its_hold_down(
    state: TopologyState, removed: bool
) -> None:
    see(state, 1)
    assert state.port_changed(Dpid(2), port(7, up=False), removed, 2)
    assert links(state) == set()
    state.port_changed(Dpid(2), port(7), False, 3)
    state.advance(100)
    assert links(state) == set(), "time alone does not bring it back"
    state.link_seen(A, B, 101)
    state.advance(200)
    assert links(state) == set(), "nor does one direction"
    state.link_seen(B, A, 201)
    state.advance(202.9)
    assert links(state) == set()
    state.advance(203)
    assert links(state) == {A, B}


def fail_and_return(state: TopologyState, now: float) -> None:
    state.port_changed(Dpid(2), port(7, up=False), False, now)
    state.port_changed(Dpid(2), port(7), False, now)
    see(state, now)


def out_for(state: TopologyState, since: float) -> float:
    """Return the seconds from ``since`` until the link is used again."""
    for tenths in range(2000):
        state.advance(since + tenths / 10)
        if links(state):
            return tenths / 10
    raise AssertionError("it never comes back")


def test_a_link_that_keeps_failing_is_left_out_twice_as_long_each_time(state: TopologyState) -> None:
    see(state, 1)
    now, holds = 2.0, []
    for _ in range(7):
        fail_and_return(state, now)
        holds.append(out_for(state, now))
        now += holds[-1] + 1
    assert holds == [2, 4, 8, 16, 32, 60, 60]
    now += 4 * 60
    state.advance(now)
    fail_and_return(state, now)
    assert out_for(state, now) == 2, "forgiven after four times its last hold-down"


def test_a_link_that_flaps_while_held_down_starts_again(state: TopologyState) -> None:
    see(state, 1)
    for now in (2.0, 3.0, 4.0):
        fail_and_return(state, now)
    for tenths in range(1, 20):
        see(state, 4 + tenths / 10)  # probes that keep coming do not prolong the hold-down
    state.advance(5.5)
    assert links(state) == set()
    state.advance(6)
    assert links(state) == {A, B}


def test_a_switch_with_hosts_and_no_other_way_uses_a_link_that_is_held_down(state: TopologyState) -> None:
    state.place_host("10.0.0.2", None, OTHER_EDGE)
    see(state, 1, SECOND)
    assert links(state) == {A, B, *SECOND}, "parallel cables are two links"
    fail_and_return(state, 2)
    state.advance(2.1)
    assert links(state) == set(SECOND), "another way: the cable that failed is held down"
    state.port_changed(Dpid(1), port(7, up=False), False, 2.5)
    state.advance(2.6)
    assert links(state) == {A, B}, "the last one failed: better one that is held down than none"
    fail_and_return(state, 3)
    state.advance(3)
    assert links(state) == {A, B}, "and so again, as long as there is no other"


def test_hosts_of_a_switch_that_was_made_anew_do_not_wait_for_hold_downs(state: TopologyState) -> None:
    state.place_host("10.0.0.2", None, OTHER_EDGE)
    see(state, 1, SECOND)
    state.switch_left(Dpid(2), 2)
    assert links(state) == set()
    assert len(state.intact.links) == 4, "its cables are known to have failed"
    state.switch_connected(Dpid(2), "s2", [port(1), port(2), port(7)], 3)
    see(state, 3, SECOND)
    state.advance(3.1)
    assert links(state) == set(), "it has no rules yet"
    assert state.switch_ready(Dpid(2))
    assert links(state) == {A, B, *SECOND}
    fail_and_return(state, 4)
    state.advance(4.1)
    assert links(state) == set(SECOND), "a cable that fails by itself is held down as ever"


def test_silent_loss_and_a_switch_that_leaves(state: TopologyState) -> None:
    see(state, 1)
    state.link_lost(A, B, 2)
    assert links(state) == set()
    see(state, 2)
    state.advance(4)
    assert links(state) == {A, B}
    state.switch_left(Dpid(1), 5)
    assert links(state) == set()
    assert Dpid(1) not in state.fabric.switches


def test_a_cable_plugged_in_elsewhere_is_another_link(state: TopologyState) -> None:
    see(state, 1)
    state.link_seen(A, OTHER_EDGE, 2)
    assert links(state) == set()
    state.link_seen(OTHER_EDGE, A, 2)
    assert links(state) == {A, OTHER_EDGE}


def test_a_snapshot_stays_the_same_until_something_changes(state: TopologyState) -> None:
    before = state.fabric
    assert state.fabric is before
    see(state, 1)
    assert state.fabric.generation == before.generation + 1
    assert not before.links
    assert isinstance(state.fabric.links, MappingProxyType)


def test_a_port_is_an_edge_only_after_discovery_had_its_chance(state: TopologyState) -> None:
    assert EDGE not in state.edge_ports(2.9)
    assert EDGE in state.edge_ports(3)
    state.host_seen("10.0.0.1", "02:00:00:00:00:aa", EDGE, 3.5)
    state.link_seen(EDGE, OTHER_EDGE, 4)
    assert {EDGE, OTHER_EDGE}.isdisjoint(state.edge_ports(4))
    assert "10.0.0.1" not in state.fabric.hosts, "the port has turned out to be a link"


def test_hosts_are_learned_at_edge_ports_and_stay_when_silent(state: TopologyState) -> None:
    see(state, 1)
    assert state.host_seen("10.0.0.1", "02:00:00:00:00:aa", EDGE, 1) == "ignored", "too early to be sure"
    assert state.host_seen("10.0.0.1", "02:00:00:00:00:aa", A, 5) == "ignored", "a fabric port"
    assert state.host_seen("10.0.0.1", "02:00:00:00:00:aa", EDGE, 5) == "new"
    before = state.fabric
    assert state.host_seen("10.0.0.1", "02:00:00:00:00:bb", EDGE, 6) == "known"
    assert state.fabric.hosts["10.0.0.1"].mac == "02:00:00:00:00:bb"
    assert (state.fabric.generation, state.fabric.links) == (before.generation, before.links)
    state.port_changed(Dpid(1), port(2, up=False), False, 7)
    assert state.fabric.hosts["10.0.0.1"].at == EDGE


def test_a_host_moves_at_once_only_when_its_old_port_is_down(state: TopologyState) -> None:
    state.host_seen("10.0.0.1", "02:00:00:00:00:aa", EDGE, 5)
    assert state.host_seen("10.0.0.1", "02:00:00:00:00:bb", OTHER_EDGE, 6) == "contested"
    state.adopt_host("10.0.0.1", OTHER_EDGE)
    assert state.fabric.hosts["10.0.0.1"].at == EDGE, "rules do not move it either"
    state.port_changed(Dpid(1), port(2, up=False), False, 7)
    assert state.host_seen("10.0.0.1", "02:00:00:00:00:aa", OTHER_EDGE, 8) == "moved"
    assert state.fabric.hosts["10.0.0.1"].at == OTHER_EDGE


def test_a_host_that_is_not_where_it_was_moves_where_a_host_can_be(state: TopologyState) -> None:
    see(state, 1)
    state.host_seen("10.0.0.1", "02:00:00:00:00:aa", EDGE, 5)
    state.move_host("10.0.0.1", "02:00:00:00:00:aa", A, 6)
    assert state.fabric.hosts["10.0.0.1"].at == EDGE
    state.move_host("10.0.0.1", "02:00:00:00:00:aa", OTHER_EDGE, 6)
    assert state.fabric.hosts["10.0.0.1"].at == OTHER_EDGE
    state.link_seen(EDGE, A, 7)
    assert "10.0.0.1" in state.fabric.hosts, "it is not at its old port any more"


def test_a_port_claims_only_so_many_addresses(state: TopologyState) -> None:
    for number in range(MAX_HOSTS_PER_PORT):
        assert state.host_seen(f"10.0.1.{number}", "02:00:00:00:00:aa", EDGE, 5) == "new"
    assert state.host_seen("10.0.2.0", "02:00:00:00:00:aa", EDGE, 5) == "refused"
    state.adopt_host("10.0.2.0", EDGE)
    assert len(state.fabric.hosts) == MAX_HOSTS_PER_PORT, "nor do its rules bring more"


def test_a_switch_has_only_so_many_hosts(state: TopologyState) -> None:
    ports = range(1, MAX_HOSTS_PER_SWITCH // MAX_HOSTS_PER_PORT + 3)
    state.switch_connected(Dpid(3), "s3", map(port, ports), 0)
    for number in ports:
        for of_port in range(MAX_HOSTS_PER_PORT):
            state.adopt_host(f"10.{number}.0.{of_port}", PortRef(Dpid(3), PortNo(number)))
    last = PortRef(Dpid(3), PortNo(ports[-1]))
    assert len(state.fabric.hosts) == MAX_HOSTS_PER_SWITCH
    assert state.host_seen("10.0.0.1", "02:00:00:00:00:aa", last, 5) == "refused"
    assert state.host_seen("10.0.0.1", "02:00:00:00:00:aa", EDGE, 5) == "new", "another switch has room"
    state.link_seen(PortRef(Dpid(3), PortNo(1)), EDGE, 6)
    assert state.host_seen("10.0.0.2", "02:00:00:00:00:aa", last, 7) == "new", "there is a cable where hosts were"


def test_beyond_a_number_of_hosts_only_addresses_that_jobs_name_are_added(
    state: TopologyState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.fabric.topology_state.MAX_HOSTS", 10)
    mac = "02:00:00:00:00:aa"
    for number in range(10):
        assert state.host_seen(f"10.0.1.{number}", mac, EDGE, 5) == "new"
    assert state.host_seen("10.0.2.0", mac, OTHER_EDGE, 5) == "refused"
    state.adopt_host("10.0.2.0", OTHER_EDGE)
    assert "10.0.2.0" not in state.fabric.hosts
    assert state.host_seen("10.0.2.0", mac, OTHER_EDGE, 5, is_named=True) == "new"
    state.adopt_host("10.0.2.1", OTHER_EDGE, is_named=True)
    assert "10.0.2.1" in state.fabric.hosts
    state.port_changed(EDGE.dpid, port(EDGE.port, up=False), False, 6)
    assert state.host_seen("10.0.1.0", mac, OTHER_EDGE, 7) == "moved", "it is no new host"


def calls_to_lose_all_links(links: int) -> int:
    """Return the number of function calls that the removal of a switch with this number of links takes."""
    topology, calls = TopologyState(TopologySettings((2, 60), 3, lambda *_: 1e9)), 0
    for dpid in (1, 2):
        topology.switch_connected(Dpid(dpid), f"s{dpid}", map(port, range(links)), 0)
        topology.switch_ready(Dpid(dpid))
    for number in range(links):
        a, b = (PortRef(Dpid(dpid), PortNo(number)) for dpid in (1, 2))
        topology.link_seen(a, b, 1)
        topology.link_seen(b, a, 1)
    assert len(topology.fabric.links) == 2 * links

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    topology.switch_left(Dpid(1), 2)
    sys.setprofile(None)
    assert not topology.fabric.links
    return calls


def test_a_switch_that_leaves_costs_as_much_per_link_however_many_it_has() -> None:
    assert calls_to_lose_all_links(400) < 2.5 * calls_to_lose_all_links(200)


def test_the_hold_downs_of_cables_that_never_return_take_limited_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.fabric.topology_state.MOST_HELD", 3)
    held = HoldDowns(2, 60)
    cables = [frozenset((PortRef(Dpid(1), PortNo(n)), PortRef(Dpid(2), PortNo(n)))) for n in range(5)]
    for cable in cables:
        held.failed(cable, 0)
    assert held.held == cables[2:]


def declaring(*declared: DeclaredHost, dpid_of: Mapping[str, Dpid | None] = MappingProxyType({})) -> TopologyState:
    state = TopologyState(TopologySettings((2, 60), 3, lambda *_: 1e9), declared, dpid_of)
    for dpid in (Dpid(1), Dpid(2)):
        state.switch_connected(dpid, f"s{dpid}", [port(1), port(2), port(7)], 0)
    return state


def test_declared_hosts_are_placed_by_names() -> None:
    state = declaring(
        DeclaredHost("10.0.0.9", None, "s1", "eth2"),
        DeclaredHost("10.0.0.8", None, "s1", "eth3"),
        DeclaredHost("10.0.0.7", None, "elsewhere", "eth1"),
    )
    assert {ip: host.at for ip, host in state.fabric.hosts.items()} == {"10.0.0.9": EDGE}
    assert state.fabric.hosts["10.0.0.9"].uplink == LinkId(Dpid(1), PortNo(2), "in")
    state.port_changed(Dpid(1), port(3), False, 1)
    assert state.fabric.hosts["10.0.0.8"].at == PortRef(Dpid(1), PortNo(3))


def test_a_switch_with_the_name_of_another_gets_none_of_its_declared_hosts() -> None:
    state = declaring(DeclaredHost("10.0.0.9", None, "s1", "eth2"))
    state.switch_connected(Dpid(3), "s1", [port(2)], 1)
    state.port_changed(Dpid(3), port(2, up=False), False, 1)
    assert state.fabric.hosts["10.0.0.9"].at == EDGE
    state.switch_connected(Dpid(1), "s1", [port(1)], 2)
    state.port_changed(Dpid(1), port(2), False, 2)
    assert state.fabric.hosts["10.0.0.9"].at == EDGE
    state.switch_left(Dpid(1), 3)
    state.switch_connected(Dpid(3), "s1", [port(2)], 4)
    assert state.fabric.hosts["10.0.0.9"].at == PortRef(Dpid(3), PortNo(2)), "it is in the place of the other one"


def test_only_the_switch_with_the_declared_dpid_gets_its_declared_hosts() -> None:
    state = declaring(DeclaredHost("10.0.0.9", None, "s1", "eth2"), dpid_of={"s1": Dpid(3), "s2": None})
    assert not state.fabric.hosts
    state.switch_connected(Dpid(3), "s1", [port(2)], 1)
    assert state.fabric.hosts["10.0.0.9"].at == PortRef(Dpid(3), PortNo(2))


def test_no_packet_moves_a_declared_host() -> None:
    state = declaring(DeclaredHost("10.0.0.9", "02:00:00:00:00:aa", "s1", "eth2"))
    assert state.host_seen("10.0.0.9", "02:00:00:00:00:bb", OTHER_EDGE, 5) == "refused"
    state.port_changed(Dpid(1), port(2, up=False), False, 7)
    assert state.host_seen("10.0.0.9", "02:00:00:00:00:bb", OTHER_EDGE, 8) == "refused"
    state.port_changed(Dpid(1), port(2), False, 9)
    assert state.host_seen("10.0.0.9", "02:00:00:00:00:bb", EDGE, 15) == "known"
    assert state.fabric.hosts["10.0.0.9"].mac == "02:00:00:00:00:aa"


def test_a_port_that_loses_its_link_is_no_edge_port_at_once(state: TopologyState) -> None:
    see(state, 1)
    state.link_lost(A, B, 9)
    state.link_lost(B, A, 10)
    assert state.host_seen("10.0.0.1", "02:00:00:00:00:aa", A, 12) == "ignored"
    assert state.host_seen("10.0.0.1", "02:00:00:00:00:aa", A, 13) == "new", "a host was plugged in instead"


def test_hosts_of_a_switch_that_only_the_controller_does_not_reach_are_not_at_its_neighbours_port(
    state: TopologyState,
) -> None:
    see(state, 1)
    state.host_seen("10.0.0.1", "02:00:00:00:00:aa", EDGE, 5)
    state.switch_left(Dpid(1), 10)
    assert state.host_seen("10.0.0.1", "02:00:00:00:00:aa", B, 60) == "ignored", "its packets go on"
    assert state.fabric.hosts["10.0.0.1"].at == EDGE
    assert B not in state.edge_ports(60), "no host is asked for there"
    state.switch_connected(Dpid(1), "s1", [port(1), port(2)], 61)
    assert B not in state.edge_ports(62), "discovery has its chance again"
    state.switch_left(Dpid(1), 63)
    state.port_changed(B.dpid, port(B.port, up=False), False, 70)
    state.port_changed(B.dpid, port(B.port), False, 71)
    assert state.host_seen("10.0.0.1", "02:00:00:00:00:aa", B, 76) == "moved", "it was plugged in there"
