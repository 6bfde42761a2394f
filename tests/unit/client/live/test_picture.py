"""Tiers and cables of the picture, and its parts that are down or drained."""

from collections.abc import Sequence

import pytest

from signalbox.live.picture import Condition, Picture, counted_cables, picture, reloaded
from signalbox.live.state import State
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.circuit_messages import rings
from tests.support.fabric_messages import cable, leaf_spine, link, state_of


def names(found: Picture) -> list[list[str]]:
    return [[node.name for node in tier] for tier in found.tiers]


def fabric_of(
    names: dict[int, str], cables: Sequence[tuple[tuple[int, int], tuple[int, int]]], leaves: Sequence[int] = ()
) -> pb.GetFabricResponse:
    return pb.GetFabricResponse(
        switches=[pb.Switch(dpid=dpid, name=name, in_sync=True) for dpid, name in names.items()],
        links=[each for a, b in cables for each in cable(a, b, names)],
        hosts=[pb.Host(ip=f"10.0.0.{dpid}", at=pb.PortRef(dpid=dpid, port=9)) for dpid in leaves],
    )


def test_leaves_are_below_spines_and_further_tiers() -> None:
    assert (picture(State()).tiers, list(picture(State()).cables)) == ([], [])
    found = picture(state_of(leaf_spine(11, 2)))
    assert names(found) == [[f"leaf{n}" for n in range(1, 12)], ["spine1", "spine2"]]
    assert found.nodes[1].hosts == ("10.0.1.1",)
    assert len(found.cables) == 22
    switches = {1: "edge1", 2: "edge2", 11: "aggregation1", 12: "aggregation2", 21: "core1"}
    cables = [((1, 1), (11, 1)), ((2, 1), (12, 1)), ((11, 2), (21, 1)), ((12, 2), (21, 2))]
    found = picture(state_of(fabric_of(switches, cables, leaves=(1, 2))))
    assert names(found) == [["edge1", "edge2"], ["aggregation1", "aggregation2"], ["core1"]]


def test_before_hosts_are_found_leaves_are_known_by_other_hosts_or_by_ports_that_no_link_uses() -> None:
    fabric = leaf_spine(4, 2)
    del fabric.hosts[1:]
    assert names(picture(state_of(fabric))) == [["leaf1", "leaf2", "leaf3", "leaf4"], ["spine1", "spine2"]]
    fabric = leaf_spine(2, 2, hosts=False)
    for switch in fabric.switches[:2]:
        switch.ports.add(number=99, name="eth99", up=True)
    assert names(picture(state_of(fabric))) == [["leaf1", "leaf2"], ["spine1", "spine2"]]


def test_a_cable_has_the_loads_of_both_directions() -> None:
    state = state_of(leaf_spine(2, 1))
    state.take_fabric(pb.WatchFabricResponse(links=[link((0x101, 1), (1, 1), "spine1:1>leaf1", 0.9)]))
    (found,) = picture(state).matrices[0].cells[0, 0]
    assert (found.name, found.up_load, found.down_load, found.load) == ("leaf1:1>spine1", 0.5, 0.9, 0.9)
    (other,) = picture(state).matrices[0].cells[0, 1]
    assert (other.up_load, other.down_load, other.load) == (0.5, None, 0.5)
    fabric = leaf_spine(1, 1)
    del fabric.links[1]
    (one_way,) = picture(state_of(fabric)).cables
    assert (one_way.up, one_way.down, one_way.load) == ((1, 1), None, 0.5)


@pytest.mark.parametrize("fabric", [leaf_spine(3, 2), rings(4, (1, 3))], ids=["cables", "circuits"])
def test_rates_alone_give_the_picture_that_is_made_anew(fabric: pb.GetFabricResponse) -> None:
    state = state_of(fabric)
    before = picture(state)
    fabric.links[0].rate_bps *= 3
    state.take_fabric(pb.WatchFabricResponse(links=[fabric.links[0]]))
    assert reloaded(before, state) == picture(state)
    assert reloaded(before, state) != before


def test_what_is_down_drained_or_out_of_sync_says_so() -> None:
    fabric = leaf_spine(3, 2)
    fabric.switches[1].in_sync = False
    fabric.drains.add(name="leaf3")
    fabric.parts_down.add(kind=pb.PART_KIND_SWITCH, name="spine3", id="0x103")
    fabric.parts_down.add(kind=pb.PART_KIND_LINK, name="leaf1:3>spine3", id="0x1:3 0x103:1")
    fabric.parts_down.add(kind=pb.PART_KIND_HOST, name="10.0.1.9", id="10.0.1.9")
    found = picture(state_of(fabric))
    conditions = {node.name: node.condition for node in found.nodes.values()}
    assert conditions["leaf2"] is Condition.UNSYNCED
    assert conditions["leaf3"] is Condition.DRAINED
    assert conditions["spine3"] is Condition.DOWN
    assert found.nodes[0x103].tier == 1
    assert {each.name: each.condition for each in found.at(0x103)} == {"leaf1:3>spine3": Condition.DOWN}
    assert {each.condition for each in found.at(3)} == {Condition.DRAINED}


def test_switches_of_one_name_and_their_cables_are_parts_by_their_dpids() -> None:
    switches = {1: "br0", 2: "br0", 0x101: "spine1", 0x102: "spine2"}
    fabric = fabric_of(switches, [((1, 1), (0x101, 1)), ((2, 1), (0x101, 2)), ((1, 2), (0x102, 1))])
    fabric.parts_down.add(kind=pb.PART_KIND_LINK, name="br0:2>spine2", id="0x2:2 0x102:2")
    fabric.drains.extend([pb.DrainedPart(name="0x1:2 0x102:1"), pb.DrainedPart(name="0x2")])
    found = picture(state_of(fabric))
    assert {node.part for node in found.nodes.values()} == {"0x1", "0x2", "spine1", "spine2"}
    assert {node.title for node in found.nodes.values()} == {"br0 (0x1)", "br0 (0x2)", "spine1", "spine2"}
    assert {each.part: (each.title, each.condition) for each in found.cables} == {
        "0x1:1": ("br0:1>spine1 (0x1:1)", Condition.UP),
        "0x1:2": ("br0:2>spine2 (0x1:2)", Condition.DRAINED),
        "0x2:1": ("br0:1>spine1 (0x2:1)", Condition.DRAINED),
        "0x2:2 0x102:2": ("br0:2>spine2 (0x2:2 0x102:2)", Condition.DOWN),
    }
    assert {each.ends for each in found.cables if each.condition is Condition.DOWN} == {(2, 0x102)}
    assert [node.condition for node in found.nodes.values() if node.dpid in (1, 2)] == [Condition.UP, Condition.DRAINED]


@pytest.mark.parametrize(("leaves", "as_matrix"), [(16, False), (17, True)])
def test_more_cables_than_a_graph_shows_are_a_matrix(leaves: int, as_matrix: bool) -> None:
    assert picture(state_of(leaf_spine(leaves, 16))).as_matrix is as_matrix


def test_a_circuit_is_an_edge_of_its_own_whatever_its_server_sends_by_the_port_where_it_ends() -> None:
    drawn = picture(state_of(rings(5, (1, 2))))
    assert [(each.name, each.ends) for each in drawn.at(1)] == [
        ("server1:2>server2", (1, 2)),
        ("server1:3>server3", (1, 3)),
        ("server4:3>server1", (4, 1)),
        ("server5:2>server1", (5, 1)),
    ]
    assert len(drawn.cables) == 10
    assert {(each.one_way, each.up_load, each.down, each.condition) for each in drawn.cables} == {
        (True, 0.25, None, Condition.UP)
    }
    assert counted_cables(drawn.cables) == "10 circuits"
    assert counted_cables([*drawn.cables, *picture(state_of(leaf_spine(1, 1))).cables]) == "1 cable, 10 circuits"


def test_servers_that_only_circuits_connect_are_on_a_circle_though_only_some_hosts_are_found() -> None:
    fabric = rings(6, (1,))
    del fabric.hosts[2:]
    drawn = picture(state_of(fabric))
    assert drawn.without_tiers
    assert [node.name for node in drawn.tiers[0]] == [f"server{n}" for n in range(1, 7)]
    places = [drawn.on_circle(node) for node in drawn.tiers[0]]
    assert len({(round(x, 6), round(y, 6)) for x, y in places}) == 6
    assert {round((x - 0.5) ** 2 + (y - 0.5) ** 2, 6) for x, y in places} == {0.25}
    fabric = leaf_spine(2, 2)
    fabric.links.append(link((1, 9), (2, 9), "leaf1:9>leaf2"))
    fabric.links[-1].one_way = True
    drawn = picture(state_of(fabric))
    assert names(drawn) == [["leaf1", "leaf2"], ["spine1", "spine2"]]
    assert not drawn.without_tiers


def test_circuits_between_servers_of_one_name_are_told_apart_and_those_of_a_drained_server_are_drained() -> None:
    fabric = rings(3, (1,))
    fabric.switches[1].name = "server1"
    parts = [each.part for each in picture(state_of(fabric)).cables]
    assert parts == ["0x1:2>0x2", "0x2:2>server3", "server3:2>0x1"]
    fabric = rings(4, (1,))
    fabric.drains.add(name="server2")
    drained = {each.name for each in picture(state_of(fabric)).cables if each.condition is Condition.DRAINED}
    assert drained == {"server1:2>server2", "server2:2>server3"}
