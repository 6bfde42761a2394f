"""The fabric benchmark without Open vSwitch: its observations and conclusions, and its errors when it cannot run."""

import random
import struct
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fabric import figures
from benchmarks.fabric.blueprint import Blueprint, Cut, lost_hops
from benchmarks.fabric.capture import KEPT, LOST, MOST_WAITING, RECORD, Capture
from benchmarks.fabric.figures import TARGETS, Dead, Figures, rows
from benchmarks.fabric.observed import Observed
from benchmarks.fabric.steps import unpinned
from benchmarks.measures import Spread
from benchmarks.openflow_bytes import Type, message
from controller.fabric.topology import Dpid, LinkId, PortNo
from controller.planning.problem import FlowId
from controller.southbound.openflow_encode import mod_message
from controller.tables.flow_tables import destination_rules, ecmp_group, path_group, pin_key
from controller.tables.rules import (
    FlowRule,
    GroupRule,
    Prefix,
    Rule,
    RuleMod,
    Table,
    ToGroup,
    cookie,
    ecmp_group_id,
    path_group_id,
)
from offline.scenarios.fabrics import fat_tree, leaf_spine
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.command_line import Command, Result

LINK_BPS = 1e9
HOST = "10.0.{}.1"


def blueprint(leaves: int = 4, spines: int = 3, hosts: int = 2) -> Blueprint:
    return Blueprint(leaf_spine(leaves, spines, hosts, LINK_BPS, LINK_BPS), "tst")


class Wire:
    """Connection that sends the controller's own messages past an observer; time advances by a second per message."""

    def __init__(self, plan: Blueprint) -> None:
        self.plan = plan
        self.observed = Observed(plan.dpids)
        self.now = 100.0

    def pass_by(self, dpid: Dpid, data: bytes) -> float:
        self.now += 1
        self.observed.message(self.now, dpid, data)
        return self.now

    def mod(self, dpid: Dpid, rule: Rule, op: str = "add") -> None:
        self.pass_by(dpid, mod_message(RuleMod(op, rule)))  # type: ignore[arg-type]

    def barrier(self, dpid: Dpid) -> float:
        self.pass_by(dpid, message(Type.BARRIER_REQUEST, 7))
        return self.pass_by(dpid, message(Type.BARRIER_REPLY, 7))

    def port_gone(self, dpid: Dpid, port: PortNo) -> float:
        return self.pass_by(dpid, message(Type.PORT_STATUS, 0, b"\x01" + b"\0" * 7 + struct.pack("!I", port)))


def routed(plan: Blueprint) -> Wire:
    """Return a connection over which every switch has confirmed its groups."""
    wire = Wire(plan)
    for (dpid, destination), ports in plan.next_hops().items():
        wire.mod(dpid, group(dpid, destination, ports))
        for rule in destination_rules(Prefix(f"10.0.{destination - 1}.0", 24), ToGroup(ecmp_group_id(destination)), 1):
            wire.mod(dpid, rule)
    for dpid in plan.dpids:
        wire.barrier(dpid)
    return wire


def group(dpid: Dpid, destination: Dpid, ports: Iterable[PortNo]) -> GroupRule:
    return ecmp_group(ecmp_group_id(destination), tuple(LinkId(dpid, port) for port in ports), 1)


# ---- rules of correct switches, and cuts


@pytest.mark.parametrize("plan", [blueprint(), Blueprint(fat_tree(4, LINK_BPS, LINK_BPS), "tst")])
def test_cuts_leave_every_pair_of_hosts_a_way_that_is_as_short(plan: Blueprint) -> None:
    cuts = list(plan.draw_cuts(seed=1))
    assert cuts
    assert len({cut.cable for cut in cuts}) == len(cuts)
    for before, after in pairwise(cuts):
        assert before.after == after.before
    few = [cut.cable.b.dpid for cut in blueprint(leaves=2, spines=3).draw_cuts(seed=1)]
    assert len({*few}) == len(few) == 2, "a cable that nobody uses any more is not cut"
    full, last = plan.next_hops(), cuts[-1].after
    assert last == plan.next_hops([cut.cable for cut in cuts])
    for here in plan.destinations:
        for there in plan.destinations:
            assert here == there or (last[here, there] and last[here, there] <= full[here, there])


# ---- observations


def pinned(wire: Wire, cut: Cut) -> tuple[Dpid, FlowRule, GroupRule]:
    """Pin a flow to the cable that will be cut; return the leaf at one end, the flow's rule and the path's group."""
    leaf, port = cut.cable.a
    other = next(dpid for dpid in wire.plan.destinations if dpid != leaf)
    path = path_group(path_group_id(other, port), port, True, ecmp_group_id(other), 2)
    key = pin_key(FlowId(HOST.format(leaf - 1), HOST.format(other - 1)))
    pin = FlowRule(key, cookie(Table.PINNED, 1), (ToGroup(path.group_id),))
    wire.mod(leaf, path)
    wire.mod(leaf, pin)
    wire.barrier(leaf)
    return leaf, pin, path


def test_a_repair_ends_when_no_group_leads_to_the_cut_any_more() -> None:
    wire = routed(blueprint())
    plan, observed = wire.plan, wire.observed
    cut = next(plan.draw_cuts(seed=3))
    leaf, pin, path = pinned(wire, cut)
    assert observed.pins() == 1
    dead = Dead.of(observed, lost_hops(cut.before, cut.after), plan.switch_of_address)
    others = len(plan.destinations) - 1
    assert len(dead.groups) == 2 * others + 1  # groups between this leaf and each other, and the path's group
    assert len(dead.pins) == 1
    ports, changes = len(observed.ports), len(observed.changes)

    def repair() -> figures.Repair | None:
        return figures.repair(dead, [cut.cable], observed, ports, changes)

    seen = wire.port_gone(*cut.cable.a)
    wire.port_gone(*cut.cable.b)
    for dpid, destination, _ in lost_hops(cut.before, cut.after):
        wire.mod(dpid, group(dpid, destination, cut.after[dpid, destination]), "modify")
    for dpid in plan.dpids:
        wire.barrier(dpid)
    assert repair() is None  # the group of the path still leads to the cable
    (port,) = {port for dpid, _, port in lost_hops(cut.before, cut.after) if dpid == leaf}
    other = next(dpid for dpid in plan.destinations if dpid != leaf)
    wire.mod(leaf, path_group(path.group_id, port, False, ecmp_group_id(other), 2), "modify")
    sent = wire.now
    assert repair() is None  # not confirmed yet
    done = wire.barrier(leaf)
    assert repair() == (sent - seen, done - seen, None)
    wire.mod(leaf, FlowRule(pin.key, pin.cookie, (ToGroup(ecmp_group_id(other)),)), "modify")
    # The flow's new group lost a next hop too. The flow has moved when it uses a group that the cut did not touch.
    assert repair() == (sent - seen, done - seen, None)
    elsewhere = path_group(path_group_id(other, PortNo(99)), PortNo(99), True, ecmp_group_id(other), 2)
    wire.mod(leaf, elsewhere)
    wire.mod(leaf, FlowRule(pin.key, pin.cookie, (ToGroup(elsewhere.group_id),)), "modify")
    moved = wire.barrier(leaf)
    assert repair() == (sent - seen, done - seen, moved - seen)


def test_a_lost_connection_confirms_nothing() -> None:
    wire = Wire(blueprint())
    wire.mod(Dpid(1), group(Dpid(1), Dpid(2), [PortNo(1)]))
    wire.pass_by(Dpid(1), message(Type.FEATURES_REPLY, 1, b"\0" * 8))
    wire.barrier(Dpid(1))
    assert wire.observed.changes[0].confirmed is None


# ---- captures

PORT, PEER = 6653, 40_000
START = 0xFFFF_FF00
"""First TCP sequence number of a connection; it wraps around after 256 bytes."""
SYN, ACK = 0x02, 0x10


def packet(number: int, data: bytes = b"", flags: int = ACK, from_switch: bool = True, peer: int = PEER) -> bytes:
    """Return an IPv4 packet with a TCP segment between a switch and the controller."""
    ports = (peer, PORT) if from_switch else (PORT, peer)
    tcp = struct.pack("!HHIIBBHHH4x", *ports, number & 0xFFFFFFFF, 0, 6 << 4, flags, 0, 0, 0)
    return struct.pack("!BBHIBBH8x", 0x45, 0, 44 + len(data), 0, 64, 6, 0) + tcp + data


def connected(capture: Capture, dpid: Dpid, peer: int = PEER) -> int:
    """Capture the features reply of a switch; return the next TCP sequence number, the same in both directions."""
    reply = message(Type.FEATURES_REPLY, 1, struct.pack("!Q16x", dpid))
    for from_switch in (True, False):
        capture.packet(packet(START, flags=SYN, from_switch=from_switch, peer=peer), 0, bytearray())
    for from_switch, data in ((False, message(Type.FEATURES_REQUEST, 1, bytes(24))), (True, reply)):
        capture.packet(packet(START + 1, data, from_switch=from_switch, peer=peer), 0, bytearray())
    return START + 1 + len(reply)


def records(data: bytearray) -> list[tuple[int, int, int]]:
    found, at = [], 0
    while at < len(data):
        now_ns, dpid, length = RECORD.unpack_from(data, at)
        found.append((now_ns, dpid, data[at + RECORD.size + 1]))
        at += RECORD.size + length
    return found


@given(
    st.lists(st.sampled_from(sorted(Type)), max_size=20),
    st.lists(st.integers(0, 400), max_size=20),
    st.randoms(use_true_random=False),
)
def test_records_do_not_depend_on_segments_or_order(kinds: list[Type], cuts: list[int], order: random.Random) -> None:
    sent = b"".join(message(kind, xid, bytes(16 + xid % 50)) for xid, kind in enumerate(kinds))
    whole, parts = bytearray(), bytearray()
    capture = Capture(PORT)
    at = connected(capture, Dpid(5))
    capture.packet(packet(at, sent), 1, whole)
    capture = Capture(PORT)
    at = connected(capture, Dpid(5))
    ends = [0, *sorted(min(cut, len(sent)) for cut in cuts), len(sent)]
    segments = [packet(at + start, sent[start:end]) for start, end in pairwise(ends)]
    segments += order.choices(segments, k=3)  # sent again
    order.shuffle(segments)
    for segment in segments:
        assert capture.packet(segment, 1, parts) == 0
    assert parts == whole
    assert len(whole) == sum(
        RECORD.size + min(KEPT[kind], 24 + xid % 50) for xid, kind in enumerate(kinds) if kind in KEPT
    )


def test_a_connection_that_begins_anew_is_another_switch_s() -> None:
    capture, into = Capture(PORT), bytearray()
    at = connected(capture, Dpid(1))
    capture.packet(packet(at, message(Type.BARRIER_REPLY, 0)[:5]), 1, into)  # the rest never arrives
    at = connected(capture, Dpid(2))
    capture.packet(packet(at, message(Type.BARRIER_REPLY, 0)), 2, into)
    assert records(into) == [(2, 2, Type.BARRIER_REPLY)]


def test_a_segment_that_never_comes_is_a_loss_and_ends_the_record_of_its_connection() -> None:
    capture, into = Capture(PORT), bytearray()
    at = connected(capture, Dpid(1)) + 8
    lost = 0
    for turn in range(MOST_WAITING + 5):
        lost += capture.packet(packet(at + 8 * turn, message(Type.BARRIER_REPLY, turn)), 1, into)
    assert lost == 1
    assert not into
    assert LOST not in blueprint().dpids


def test_every_figure_is_a_row_and_every_target_one_of_them() -> None:
    empty = Figures(switches=4, links_expected=16)
    full = Figures(switches=4, links_expected=16, echo_ms=Spread(1.0, 2.0, 3.0))
    names = [name for name, _ in rows(empty)]
    assert names == [name for name, _ in rows(full)]
    assert TARGETS.keys() <= set(names)
    assert dict(rows(full))["echo_ms p99"] == 2.0
    assert Spread.of([]) is None
    assert Spread.of([float(n) for n in range(200, 0, -1)]) == Spread(100.0, 198.0, 200.0), "measured values"
    assert full.data()["echo_ms"] == {"p50": 1.0, "p99": 2.0, "max": 3.0}
    assert empty.data()["repair_ms"] is None


# ---- the command


@pytest.mark.parametrize(("arguments", "said"), [
    ((), "error: --leaves: is needed for this kind of fabric\nerror: --spines: is needed for this kind of fabric\n"),
    (("--fabric", "fat-tree", "--k", "3"), "error: k: must be an even number, at least 2 (given: 3)\n"),
])  # fmt: skip
def test_a_fabric_that_is_not_described(benchmark: Command, arguments: tuple[str, ...], said: str) -> None:
    assert benchmark("fabric", *arguments) == Result(1, "", said)


def test_without_root_or_open_vswitch_it_says_what_is_needed(
    benchmark: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OVS_RUNDIR", str(tmp_path))
    for user, needed in ((1000, "needs root: it makes Open vSwitch bridges\n"), (0, "scripts/openvswitch.sh run")):
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        refused = benchmark("fabric", "--leaves", 4, "--spines", 2)
        assert (refused.status, needed in refused.err) == (1, True)


def test_jobs_that_are_waited_for_are_named_with_what_is_missing() -> None:
    states = pb.JOB_STATE_PINNED, pb.JOB_STATE_PARTLY_PINNED
    jobs = [
        pb.Job(spec=pb.JobSpec(job_id=f"job{number}"), state=state, pinned=3, virtual_links=4)
        for number, state in enumerate(states)
    ]
    assert unpinned(jobs) == ["job1 is partly_pinned, 3 of 4 flows pinned"]
