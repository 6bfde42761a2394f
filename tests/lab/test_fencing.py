"""Fencing by real switches: which of two controllers Open vSwitch lets write, by the generation ids of their claims."""

import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count

import pytest

from benchmarks.openflow_bytes import Type
from controller.config import Config
from controller.fabric.messages import MastershipLost, PortChanged, SwitchConnected, SwitchLeft, SwitchMoved
from controller.fabric.topology import Dpid, PortNo
from controller.southbound import openflow_encode as encode
from controller.tables.messages import InstallStage, StageDone
from controller.tables.rules import FlowKey, FlowRule, Match, Output, RuleMod, Stage, Table, cookie
from mininet_topos.controller_process import reserve_port
from mininet_topos.lab.record import run, wait_for
from tests.support.wire.fake_switch import EQUAL, MASTER, NOCHANGE, SLAVE, FakeSwitch, Heard
from tests.support.wire.openflow_controller import EPOCH, Southbound, southbound

DPID = Dpid(0x5E)
GRANTED, STALE, IS_SLAVE = None, (11, 0), (1, 10)
"""Results of a request over a raw connection: type and code of its error, if there is one."""


def flow_of(priority: int) -> RuleMod:
    return RuleMod(
        "add", FlowRule(FlowKey(Table.PINNED, priority, Match()), cookie(Table.PINNED), (Output(PortNo(1)),))
    )


class Raw:
    """Raw connection of a controller to the bridge, which listens at ``port``; the test decides what it sends."""

    def __init__(self, port: int) -> None:
        self._connection = FakeSwitch(port, DPID, mute=True)
        self._connection.send(Type.HELLO, b"")
        self._connection.expect(Type.HELLO)
        self._xids = count(1)

    def claims(self, generation: int, role: int = MASTER) -> tuple[int, int] | None:
        return self._result(self._ask(role, generation))

    def generation(self) -> int:
        return int(struct.unpack("!I4xQ", self._ask(NOCHANGE, 0).body)[1])

    def writes(self, priority: int) -> tuple[int, int] | None:
        """Write a flow with this priority, and return type and code of the switch's error, or None."""
        xid = next(self._xids)
        self._connection.send(Type.FLOW_MOD, encode.mod_message(flow_of(priority))[8:], xid)
        self._connection.send(Type.BARRIER_REQUEST, b"", xid)
        answer = self._answer(xid)
        if answer.kind == Type.ERROR:
            assert self._answer(xid).kind == Type.BARRIER_REPLY
        return self._result(answer)

    def close(self) -> None:
        self._connection.close()

    def _ask(self, role: int, generation: int) -> Heard:
        xid = next(self._xids)
        self._connection.send(Type.ROLE_REQUEST, encode.role_request(role, generation % (1 << 64))[8:], xid)
        return self._answer(xid)

    def _answer(self, xid: int) -> Heard:
        while (heard := self._connection.hear()).xid != xid:
            self._connection.answer(heard)
        return heard

    @staticmethod
    def _result(answer: Heard) -> tuple[int, int] | None:
        if answer.kind != Type.ERROR:
            return GRANTED
        kind, code = struct.unpack_from("!HH", answer.body)
        return kind, code


class Fenced:
    """Bridge that connects to every controller that ``controller`` has started."""

    def __init__(self, name: str, stack: ExitStack) -> None:
        self.name = name
        self._stack = stack
        self._targets: list[str] = []
        self._changes = 0
        self.make()

    def make(self) -> None:
        settings = ["datapath_type=netdev", "protocols=OpenFlow13", "fail_mode=secure"]
        settings.append(f"other-config:datapath-id={DPID:016x}")
        run("ovs-vsctl", "add-br", self.name, "--", "set", "bridge", self.name, *settings)
        self._connect()

    def forget(self) -> None:
        """Create the bridge anew, so that it forgets the generation id of its master."""
        run("ovs-vsctl", "del-br", self.name)
        self.make()

    def _connect(self) -> None:
        if self._targets:
            run("ovs-vsctl", "set-controller", self.name, *self._targets)

    def controller(self, epoch: int | None, may_claim: bool = True) -> Southbound:
        settings = Config.model_validate({"openflow": {"port": reserve_port(), "barrier_timeout_s": 1.0}})
        controller = self._stack.enter_context(southbound(settings, epoch=epoch, may_claim=may_claim))
        self._targets.append(f"tcp:127.0.0.1:{settings.openflow.port}")
        self._connect()
        return controller

    def raw(self) -> Raw:
        port = reserve_port()
        self._targets.append(f"ptcp:{port}:127.0.0.1")
        self._connect()
        found: list[Raw] = []

        def connects() -> bool:
            with suppress(ConnectionRefusedError):
                found.append(Raw(port))
            return bool(found)

        wait_for(connects, "a bridge that listens", 10)
        self._stack.callback(found[0].close)
        return found[0]

    def install(self, controller: Southbound, priority: int) -> None:
        self._changes += 1
        controller.send(InstallStage(self._changes, Stage("test", {DPID: (flow_of(priority),)})))
        controller.first(StageDone, change_id=self._changes)

    def priorities(self) -> set[int]:
        flows = run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "--no-stats", self.name, "table=1").splitlines()
        return {int(line.split("priority=")[1].split()[0].split(",")[0]) for line in flows if "priority=" in line}

    def roles(self) -> list[str]:
        """Return the role of each controller, as the switch reports it within some seconds."""
        controllers = run("ovs-vsctl", "get", "bridge", self.name, "controller").strip().strip("[]").split(", ")
        return sorted(run("ovs-vsctl", "get", "controller", one, "role").strip() for one in controllers)

    def reconnect(self) -> None:
        run("ovs-appctl", "bridge/reconnect", self.name)


@pytest.fixture
def fenced(lab_prefix: str) -> Iterator[Fenced]:
    with _bridge(f"{lab_prefix}fence") as bridge:
        yield bridge


@contextmanager
def _bridge(name: str) -> Iterator[Fenced]:
    with ExitStack() as stack:
        stack.callback(run, "ovs-vsctl", "--if-exists", "del-br", name)
        yield Fenced(name, stack)


def connected(controller: Southbound, since: int = 0) -> None:
    controller.first(SwitchConnected, since, dpid=DPID)


def lost(controller: Southbound, since: int = 0, **fields: object) -> MastershipLost:
    return controller.first(MastershipLost, since, dpid=DPID, **fields)


def test_open_vswitch_behaves_as_the_fence_needs(fenced: Fenced) -> None:
    """Raw connections show what the switch refuses, and which writes only the controllers themselves can avoid."""
    a, b, equal = fenced.raw(), fenced.raw(), fenced.raw()
    assert (a.claims(100), b.claims(99), b.claims(101)) == (GRANTED, STALE, GRANTED)
    assert (a.writes(1), b.writes(2)) == (IS_SLAVE, GRANTED)
    assert (a.claims(a.generation() + 1), b.writes(3)) == (GRANTED, IS_SLAVE), "whoever asks and adds one wins"
    assert (equal.writes(4), equal.claims(0, EQUAL), equal.writes(5)) == (GRANTED, GRANTED, GRANTED)
    far = 102 + (1 << 63) - 1
    assert (b.claims(far + 1), b.claims(far), a.claims(103)) == (STALE, GRANTED, STALE), "the distance has a sign"
    assert (b.claims(far + (1 << 63) - 1, SLAVE), a.claims(103)) == (GRANTED, GRANTED), "two long steps lead back"
    assert (b.claims(110, SLAVE), a.writes(6), a.claims(104)) == (GRANTED, GRANTED, STALE), "the master is not told"
    assert fenced.priorities() == {2, 4, 5, 6}
    fenced.forget()
    assert fenced.raw().claims(5) == GRANTED


def test_a_controller_that_is_outbid_by_one_steps_down_and_does_not_outbid(fenced: Fenced) -> None:
    holder, thief = fenced.controller(EPOCH), fenced.raw()
    connected(holder)
    assert thief.claims(EPOCH + (1 << 63)) == STALE
    fenced.install(holder, 10)
    assert thief.claims(thief.generation() + 1) == GRANTED
    fenced.install(holder, 11)
    lost(holder)
    assert (thief.writes(12), thief.generation()) == (GRANTED, EPOCH + 1)
    assert fenced.priorities() == {10, 12}


@pytest.mark.parametrize("more", [0, 7])
def test_a_holder_takes_a_switch_back_from_a_stranger_once_it_is_assigned_anew(fenced: Fenced, more: int) -> None:
    holder, stranger = fenced.controller(EPOCH), fenced.raw()
    connected(holder)
    assert stranger.claims(EPOCH + more) == GRANTED
    lost(holder)
    fenced.install(holder, 10)
    assert (stranger.writes(11), fenced.priorities()) == (GRANTED, {11})
    since = len(holder.received)
    holder.assign(DPID, EPOCH + more + 1)
    connected(holder, since)
    fenced.install(holder, 12)
    assert (stranger.writes(13), fenced.priorities()) == (IS_SLAVE, {11, 12})


def test_a_deposed_controller_writes_nothing_and_never_wins_the_switch_back(fenced: Fenced) -> None:
    old = fenced.controller(EPOCH)
    connected(old)
    fenced.install(old, 10)
    new = fenced.controller(EPOCH + 1)
    connected(new)
    fenced.install(old, 11)
    lost(old)
    fenced.install(new, 12)
    for _ in range(3):
        since, since_new = len(old.received), len(new.received)
        fenced.reconnect()
        lost(old, since)
        connected(new, since_new)
        fenced.install(old, 13)
        assert not any(isinstance(message, SwitchConnected) for message in old.received[since:])
    fenced.install(new, 14)
    assert fenced.priorities() == {10, 12, 14}


def test_an_older_controller_that_comes_later_is_refused(fenced: Fenced) -> None:
    new = fenced.controller(EPOCH)
    connected(new)
    old = fenced.controller(EPOCH - 1)
    lost(old)
    fenced.install(old, 10)
    fenced.install(new, 11)
    assert fenced.priorities() == {11}
    assert not any(isinstance(message, MastershipLost | SwitchLeft) for message in new.received)


def test_a_switch_that_has_forgotten_its_generation_is_claimed_by_its_holder_again(fenced: Fenced) -> None:
    holder = fenced.controller(EPOCH)
    connected(holder)
    since = len(holder.received)
    fenced.forget()
    connected(holder, since)
    fenced.install(holder, 10)
    wait_for(lambda: fenced.priorities() == {10}, "the flow of the holder", 10)


def test_a_controller_that_may_have_lost_the_state_claims_only_switches_of_its_own_generation(fenced: Fenced) -> None:
    holder = fenced.controller(EPOCH)
    connected(holder)
    cut_off = fenced.controller(EPOCH, may_claim=False)
    connected(cut_off)
    fenced.install(cut_off, 10)
    assert fenced.priorities() == {10}
    holder.stop()
    since = len(cut_off.received)
    fenced.forget()
    cut_off.first(SwitchLeft, since, dpid=DPID)
    new = fenced.controller(EPOCH + 1)
    connected(new)
    fenced.install(cut_off, 11)
    fenced.install(new, 12)
    assert fenced.priorities() == {12}
    assert not any(isinstance(message, SwitchConnected) for message in cut_off.received[since:])


@pytest.mark.parametrize("ahead", [1 << 40, (1 << 63) - 1])
def test_a_generation_from_the_future_is_not_outbid_until_the_switch_forgets_it(fenced: Fenced, ahead: int) -> None:
    holder = fenced.controller(EPOCH)
    connected(holder)
    thief = fenced.controller(EPOCH + ahead)
    connected(thief)
    since = len(holder.received)
    thief.stop()
    fenced.reconnect()
    assert lost(holder, since, ahead=EPOCH + ahead)
    fenced.install(holder, 10)
    assert fenced.priorities() == set()
    since = len(holder.received)
    fenced.forget()
    connected(holder, since)


def test_a_handover_is_one_role_request_over_connections_that_stay(fenced: Fenced) -> None:
    first, second = fenced.controller(None), fenced.controller(None)
    generation = EPOCH
    for holder, other in ((first, second), (second, first), (first, second)):
        generation += 1
        since, since_other = len(holder.received), len(other.received)
        holder.assign(DPID, generation)
        connected(holder, since)
        other.assign(DPID, None)
        if generation > EPOCH + 1:
            other.first(SwitchLeft, since_other, dpid=DPID)
        fenced.install(other, 20)
        fenced.install(holder, generation - EPOCH)
    since = len(first.received)
    first.assign(DPID, generation + 1)
    first.first(SwitchMoved, since, dpid=DPID)
    fenced.install(first, 4)
    assert fenced.priorities() == {1, 2, 3, 4}
    for member in (first, second):
        assert not any(isinstance(message, MastershipLost) and message.refused for message in member.received)
    wait_for(lambda: fenced.roles() == ["master", "slave"], "both roles", 30)


def test_a_member_that_does_not_hold_a_switch_leaves_its_generation_id_as_it_is(fenced: Fenced) -> None:
    """A replaced holder may claim only a switch that has the holder's own generation id; this switch never has it."""
    other = fenced.controller(None)
    holder = fenced.controller(EPOCH + 1)
    connected(holder)
    replaced = fenced.controller(EPOCH, may_claim=False)
    wait_for(lambda: fenced.roles() == ["master", "other", "slave"], "the roles", 30)
    holder.stop()
    fenced.forget()
    wait_for(lambda: fenced.roles().count("other") == 2, "the switch without a master", 30)
    assert "master" not in fenced.roles()
    for member in (other, replaced):
        fenced.install(member, 10)  # in the role EQUAL
        assert not any(isinstance(message, SwitchConnected) for message in member.received)
    assert fenced.priorities() == set()


def test_ports_that_change_while_another_member_holds_the_switch_are_known_to_the_next_holder(fenced: Fenced) -> None:
    holder, next_holder = fenced.controller(EPOCH), fenced.controller(None)
    connected(holder)
    wait_for(lambda: fenced.roles() == ["master", "slave"], "both roles", 30)
    port = f"{fenced.name}p"
    run("ovs-vsctl", "add-port", fenced.name, port, "--", "set", "interface", port, "type=internal")
    holder.wait_for(lambda messages: any(isinstance(one, PortChanged) and one.port.name == port for one in messages))
    holder.assign(DPID, None)
    next_holder.assign(DPID, EPOCH + 1)
    told = next_holder.first(SwitchConnected, dpid=DPID)
    assert port in {known.name for known in told.ports}
