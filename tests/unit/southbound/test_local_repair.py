"""Next hops that lead nowhere are removed without a control loop, and only on switches of this member.

The fabric has three leaves, two spines, and behind one spine a core switch that leads to a distant leaf."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import count

import pytest
from msgspec import structs

from controller.fabric.topology import Dpid, Port, PortNo, PortRef
from controller.southbound import openflow_decode as decode
from controller.southbound.connection import Connection
from controller.southbound.framework import ofp
from controller.southbound.local_repair import BEFORE_S, READ_S, LocalRepair
from controller.southbound.multipart import Reply
from controller.tables.flow_tables import bucket, path_group
from controller.tables.rules import GroupRule, ecmp_group_id, path_group_id
from tests.support.openflow_entries import GROUP_MOD_SIZE, group_entry

ONE, TWO, THREE, DISTANT = map(Dpid, (1, 2, 3, 9))
SPINE, OTHER, CORE = map(Dpid, (11, 12, 21))
LEAVES, SPINES = (ONE, TWO, THREE), (SPINE, OTHER)


def ecmp(to: Dpid, *ports: int) -> GroupRule:
    return GroupRule(ecmp_group_id(to), "select", tuple(bucket(PortNo(port)) for port in ports))


def pinned(to: Dpid, port: int, usable: bool = True) -> GroupRule:
    return path_group(path_group_id(to, PortNo(port)), PortNo(port), usable, ecmp_group_id(to), 2)


@dataclass
class Switch(Connection):
    """Switch whose answers to requests wait until the test delivers them."""

    id: Dpid
    ports: dict[PortNo, Port]
    groups: dict[int, GroupRule]
    asked: list[int] = field(default_factory=list)
    changes: int = 0
    _xids: Iterable[int] = field(default_factory=lambda: count(100))

    def send(self, *messages: bytes) -> list[int]:
        xids = [next(iter(self._xids)) for _ in messages]
        for xid, message in zip(xids, messages, strict=True):
            if message[1] == ofp.OFPT_MULTIPART_REQUEST:
                self.asked.append(xid)
            else:
                self._change(message)
        return xids

    def _change(self, message: bytes) -> None:
        kind, command, group_id = message[1], *struct.unpack_from("!H2xI", message, 8)
        assert (kind, command) == (ofp.OFPT_GROUP_MOD, ofp.OFPGC_MODIFY)
        buckets = decode._buckets(message[GROUP_MOD_SIZE:])
        assert buckets, "no group becomes empty"
        self.groups[group_id] = structs.replace(self.groups[group_id], buckets=buckets)
        self.changes += 1


class Fabric:
    """Fabric with this member as the master of ``own`` switches. Leaf n is behind port n of each spine."""

    def __init__(self, *own: Dpid) -> None:
        self.own = set(own)
        self.switches: dict[Dpid, Switch] = {}
        self.links: list[tuple[PortRef, PortRef]] = []
        self.now = 1000.0
        self.silent: Switch | None = None
        """Switch whose answers are late."""
        for number, leaf in enumerate(LEAVES, 1):
            others = [other for other in LEAVES if other is not leaf]
            groups = [ecmp(other, 1, 2) for other in (*others, DISTANT)]
            self._add(leaf, [1, 2], *groups, *(pinned(other, 1) for other in others))
            for port, spine in enumerate(SPINES, 1):
                self._link(leaf, port, spine, number)
        for spine in SPINES:
            to_leaves = [ecmp(leaf, number) for number, leaf in enumerate(LEAVES, 1)]
            self._add(spine, [1, 2, 3, 4], *to_leaves, ecmp(DISTANT, 4))
        self._link(OTHER, 4, CORE, 2)
        self._add(CORE, [1], ecmp(DISTANT, 1))
        self._add(DISTANT, [1])
        self.before = {dpid: dict(switch.groups) for dpid, switch in self.switches.items()}
        self.repair = LocalRepair(self, lambda: (link for link in self.links if link[0].dpid in self.own))

    def _add(self, dpid: Dpid, ports: Iterable[int], *groups: GroupRule) -> None:
        found = {PortNo(port): Port(PortNo(port), f"p{port}", "", True, 1e9) for port in ports}
        self.switches[dpid] = Switch(dpid, found, {group.group_id: group for group in groups})

    def _link(self, src: Dpid, src_port: int, dst: Dpid, dst_port: int) -> None:
        self.links.append((PortRef(src, PortNo(src_port)), PortRef(dst, PortNo(dst_port))))

    # ---- Switches

    @property
    def connected(self) -> frozenset[Dpid]:
        return frozenset(self.switches)

    def connection(self, dpid: Dpid) -> Connection | None:
        return self.switches.get(dpid)

    def is_master(self, dpid: Dpid) -> bool:
        return dpid in self.own

    # ---- steps

    def set_port(self, dpid: Dpid, port: int, up: bool) -> None:
        switch = self.switches[dpid]
        switch.ports[PortNo(port)] = replace(switch.ports[PortNo(port)], up=up)
        self.repair.port_changed(dpid, self.now)
        self.answer()

    def answer(self) -> None:
        """Answer the latest request to each switch, and the requests that follow from the answers."""
        while asked := [each for each in self.switches.values() if each.asked and each is not self.silent]:
            for switch in asked:
                body = b"".join(map(group_entry, switch.groups.values()))
                reply = Reply(switch.asked[-1], ofp.OFPMP_GROUP_DESC, False, body)
                switch.asked.clear()
                assert self.repair.part(switch.id, reply, self.now)

    def break_link(self) -> None:
        self.repair.broken(self.now)
        self.answer()

    def tick(self, seconds: float = 0.1) -> None:
        self.now += seconds
        self.repair.tick(self.now)
        self.answer()

    def ports(self, dpid: Dpid, to: Dpid) -> list[int | None]:
        return [found.watch_port for found in self.switches[dpid].groups[ecmp_group_id(to)].buckets]

    @property
    def changed(self) -> set[Dpid]:
        return {dpid for dpid, switch in self.switches.items() if switch.groups != self.before[dpid]}


@pytest.fixture
def fabric() -> Fabric:
    """Return a fabric without a control loop; this member holds two of the leaves and one spine."""
    fabric = Fabric(TWO, THREE, OTHER)
    fabric.break_link()
    return fabric


def test_leaves_avoid_a_spine_that_has_lost_its_cable_to_the_destination(fabric: Fabric) -> None:
    """The spine belongs to another member, who may be dead."""
    fabric.set_port(SPINE, 1, up=False)
    assert fabric.changed == {TWO, THREE}
    assert (fabric.ports(TWO, ONE), fabric.ports(TWO, THREE)) == ([2], [1, 2])
    pin = path_group_id(ONE, PortNo(1))
    assert fabric.switches[TWO].groups[pin] == pinned(ONE, 1, usable=False)
    fabric.tick()
    assert fabric.switches[TWO].changes == 2, "nothing is sent twice"
    fabric.set_port(SPINE, 1, up=True)
    assert not fabric.changed


def test_a_loss_just_before_the_break_of_the_link_is_repaired() -> None:
    fabric = Fabric(TWO)
    fabric.set_port(SPINE, 1, up=False)
    assert not any(switch.asked or switch.changes for switch in fabric.switches.values())
    fabric.set_port(OTHER, 3, up=False)
    fabric.now += BEFORE_S
    fabric.repair.port_changed(SPINE, fabric.now)
    fabric.now += 1
    fabric.break_link()
    assert (fabric.ports(TWO, ONE), fabric.ports(TWO, THREE)) == ([2], [1, 2]), "the other loss was long ago"


def test_a_group_keeps_its_last_usable_next_hop(fabric: Fabric) -> None:
    fabric.set_port(SPINE, 1, up=False)
    fabric.set_port(OTHER, 1, up=False)
    assert fabric.ports(TWO, ONE) == [1, 2], "no spine leads to the leaf: its packets are lost either way"
    fabric.set_port(OTHER, 1, up=True)
    fabric.set_port(TWO, 2, up=False)
    assert (fabric.ports(TWO, ONE), fabric.ports(THREE, ONE)) == ([1, 2], [2])


def test_a_loss_further_away_is_passed_on_over_own_switches(fabric: Fabric) -> None:
    fabric.set_port(CORE, 1, up=False)
    assert fabric.changed == {TWO, THREE}
    assert fabric.ports(TWO, DISTANT) == [1]


def test_only_switches_with_this_member_as_confirmed_master_are_changed(fabric: Fabric) -> None:
    fabric.own.discard(THREE)
    fabric.set_port(SPINE, 1, up=False)
    assert fabric.changed == {TWO}
    fabric.own.discard(TWO)
    fabric.set_port(SPINE, 1, up=True)
    assert fabric.changed == {TWO}, "who holds it now decides"


def test_foreign_groups_stay(fabric: Fabric) -> None:
    foreign = GroupRule(7, "select", (bucket(PortNo(1)), bucket(PortNo(2))))
    for dpid in (SPINE, TWO):
        fabric.switches[dpid].groups[7] = structs.replace(foreign, buckets=foreign.buckets[: 1 if dpid == SPINE else 2])
    fabric.set_port(SPINE, 1, up=False)
    assert fabric.switches[TWO].groups[7] == foreign


def test_the_next_control_loop_decides_alone(fabric: Fabric) -> None:
    fabric.set_port(SPINE, 1, up=False)
    fabric.repair.linked()
    fabric.set_port(SPINE, 1, up=True)
    fabric.tick()
    assert fabric.changed == {TWO, THREE}
    for dpid in (TWO, THREE):
        fabric.switches[dpid].groups = dict(fabric.before[dpid])
    fabric.break_link()
    assert not fabric.changed


def test_what_a_switch_lost_is_kept_while_it_is_away(fabric: Fabric) -> None:
    fabric.set_port(SPINE, 1, up=False)
    away = fabric.switches.pop(SPINE)
    fabric.repair.switch_left(SPINE)
    fabric.tick()
    assert fabric.ports(TWO, ONE) == [2]
    fabric.switches[SPINE] = away
    fabric.set_port(SPINE, 1, up=True)
    assert fabric.ports(TWO, ONE) == [1, 2]


def test_a_switch_that_does_not_answer_is_asked_again_and_delays_no_other(fabric: Fabric) -> None:
    silent = fabric.switches[THREE]
    fabric.silent = silent
    fabric.set_port(SPINE, 1, up=False)
    (first,) = silent.asked
    assert not fabric.changed
    fabric.tick()
    assert fabric.ports(TWO, ONE) == [2]
    assert silent.asked == [first]
    fabric.tick(READ_S)
    assert silent.asked[:-1] == [first], "it is asked again"
    fabric.silent = None
    fabric.answer()
    assert fabric.ports(THREE, ONE) == [2]
