"""Southbounds of members at the leader: real processes, gRPC and TCP.

The test is the control loop, and assigns the switches."""

import asyncio
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from benchmarks.openflow_bytes import Multipart, Type
from controller.api import leader_link, servers
from controller.api.files import ApiFiles, Certificates
from controller.api.forwarding import Forwarder
from controller.api.leader_link import MEMBER, METHOD, SERVICE, LeaderLink
from controller.api.server import MemberPort
from controller.config import ApiConfig, Config, MembersConfig, OpenFlowConfig
from controller.fabric.messages import SwitchConnected, SwitchesInReach, SwitchLeft, SwitchMoved
from controller.fabric.topology import Dpid
from controller.link.codec import pack, packet
from controller.link.ends import LinkEnd
from controller.link.messages import Report
from controller.link.routing import Router
from controller.serving import southbound_process
from controller.serving.southbound_process import SouthboundProcess
from controller.store.members import LINK_FORMATS, LinkFormats, Member
from controller.tables.messages import InstallStage, ReadRules, StageDone, SwitchResult
from controller.tables.rules import MeterRule, RuleMod, Stage
from mininet_topos.controller_process import reserve_port
from tests.support.captured_logs import captured_logs
from tests.support.known_members import KnownMembers
from tests.support.preloaded import forked_children
from tests.support.waiting import until
from tests.support.wire import held_pauses
from tests.support.wire.control_stand_in import running_api
from tests.support.wire.fake_switch import EQUAL, MASTER, NOCHANGE, SLAVE, FakeSwitch
from tests.support.wire.held_pauses import PAUSE_S
from tests.support.wire.secured import Secured

__all__ = ("forked_children",)

pytestmark = pytest.mark.usefixtures("forked_children")
A, B = Dpid(1), Dpid(2)
NO_GENERATION = (1 << 64) - 1
EXPERIMENTER, ONF, ROLE_STATUS = 4, 0x4F4E_4600, 1911
GRACE_S = 600.0
SILENT_S = 30.0
NEVER = 1000
"""Number of unanswered echo requests that no test lasts for, because the switches of these tests answer none."""
PLAIN = Certificates("members", None)


@dataclass
class Assigned:
    """Claims that the test sets."""

    claims: dict[Dpid, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.changed: Callable[[], None] = lambda: None

    def generation(self, dpid: Dpid) -> int | None:
        return self.claims.get(dpid)

    def may_claim(self, dpid: Dpid, since: float) -> bool:  # noqa: ARG002
        return True

    def set(self, dpid: Dpid, generation: int | None) -> None:
        self.claims = {dpid: generation} if generation else {}
        self.changed()


class Follower:
    """Member whose southbound has a process of its own."""

    def __init__(self, name: str) -> None:
        self.name, self.port = name, reserve_port()
        self.holding = Assigned()
        self.failed: list[BaseException] = []
        self.members: KnownMembers
        openflow = OpenFlowConfig(port=self.port, echo_misses=NEVER, barrier_timeout_s=GRACE_S)
        config = Config(openflow=openflow)
        self.process = SouthboundProcess(config, self.holding, int, self.failed.append)
        until(self._listens)

    def _listens(self) -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        return False


class Leader:
    """Control loop of the leader, which records the messages that it receives."""

    def __init__(self, address: str, certificates: Certificates = PLAIN, *names: str) -> None:
        self.heard: list[Any] = []
        self.links: list[Recorded] = []
        self.reports: set[tuple[str, SwitchesInReach]] = set()
        """All reports of switches in reach, each with its member, because a report may be replaced within seconds."""
        self.router = Router(self._put, GRACE_S, 10.0)
        self.router.changed = lambda: self.reports.update(self.router.in_reach.items())
        self.port = MemberPort(
            address, certificates, frozenset(names or ("controller",)), lambda: True, self._new_link, SILENT_S
        )

    def _put(self, message: Any, counted_by: Any = None) -> None:
        self.heard.append(message)
        if counted_by:
            counted_by.take()

    def _new_link(self, member: str, write: Callable[[bytes], None], form: int) -> "Recorded":
        return Recorded(self, member, write, form)

    def hears(self, wanted: Any) -> None:
        """Wait for the message ``wanted``, or for a message of the type ``wanted``."""
        until(lambda: wanted in self.heard or wanted in map(type, self.heard), str(wanted))

    def kinds(self, *types: type) -> list[type]:
        return [type(message) for message in self.heard if isinstance(message, types)]

    @property
    def linked(self) -> int:
        return len(self.links)


class Recorded(LinkEnd):
    """Link to a follower, which is in ``Leader.links`` while it is open."""

    def __init__(self, leader: Leader, member: str, write: Callable[[bytes], None], form: int) -> None:
        super().__init__(leader.router, b"key", frozenset(), member, write, form)
        self.leader = leader
        self.form = form

    def begin(self) -> None:
        super().begin()
        self.leader.links.append(self)

    def close(self) -> None:
        super().close()
        self.leader.links.remove(self)


def channel(address: str, secured: Secured, shown: Any) -> grpc.Channel:
    files = (secured.ours.certificate, shown.private_key, shown.certificate)
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(*(Path(file).read_bytes() for file in files)))


@contextmanager
def following(follower: Follower, members: KnownMembers, certificates: Certificates = PLAIN) -> Iterator[None]:
    settings = ApiConfig(listen=("127.0.0.1:0",))
    link = LeaderLink(members, certificates, follower.process, SILENT_S)
    server = Forwarder(settings, ApiFiles(settings), members, certificates, link.run)
    server.start()
    try:
        yield
    finally:
        server.stop(0.0)


class Switch:
    """Fake switch, with a connection to a member for each test step. It answers role requests as a switch does."""

    def __init__(self, dpid: Dpid) -> None:
        self.dpid = dpid
        self.generation = NO_GENERATION

    def connect(self, port: int) -> FakeSwitch:
        return FakeSwitch(port, self.dpid, mute=True).connect()

    def becomes(self, connection: FakeSwitch, wanted: int) -> None:
        """Answer role requests, and grant the requested roles, until the connection has the role ``wanted``."""
        while True:
            asked = connection.expect(Type.ROLE_REQUEST)
            role, generation = struct.unpack("!I4xQ", asked.body)
            if role != NOCHANGE:
                self.generation = generation
            connection.send(Type.ROLE_REPLY, struct.pack("!I4xQ", role or EQUAL, self.generation), asked.xid)
            if role == wanted:
                return


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def leader(tmp_path: Path) -> Leader:
    return Leader(f"unix:{tmp_path / 'members.sock'}")


def member(name: str, api: str, formats: LinkFormats = LINK_FORMATS) -> Member:
    return Member(name, name, api, "1", 0.0, link=formats)


def started(stack: ExitStack, leader: Leader, *names: str, certificates: Certificates = PLAIN) -> list[Follower]:
    """Start a leader and followers, which are linked when this returns."""
    stack.enter_context(running_api(members=leader.port))
    followers = [start(stack, leader, name, certificates) for name in names]
    until(lambda: leader.linked == len(names), "the links")
    return followers


def start(
    stack: ExitStack,
    leader: Leader,
    name: str,
    certificates: Certificates = PLAIN,
    formats: LinkFormats = LINK_FORMATS,
) -> Follower:
    """Start a follower that reads these formats of the link."""
    follower = Follower(name)
    stack.callback(follower.process.stop)
    follower.members = KnownMembers((member(name, "", formats), member("a", leader.port.address)), "a")
    stack.enter_context(following(follower, follower.members, certificates))
    return follower


def held(stack: ExitStack, leader: Leader, follower: Follower, switch: Switch) -> FakeSwitch:
    """Connect a switch to the follower that holds it, and return the connection."""
    connection = stack.enter_context(closing(switch.connect(follower.port)))
    follower.holding.set(A, 5)
    switch.becomes(connection, MASTER)
    leader.hears(SwitchConnected)
    return connection


def confirm(connection: FakeSwitch) -> None:
    barrier = connection.expect(Type.BARRIER_REQUEST)
    connection.send(Type.BARRIER_REPLY, b"", barrier.xid)


MODS = (RuleMod("add", MeterRule(1, 10, 10)),)


def test_a_switch_that_its_holder_does_not_hear_is_out_of_its_reach_until_it_is_heard(
    leader: Leader, stack: ExitStack
) -> None:
    (b,) = started(stack, leader, "b")
    other = Switch(B)
    other.generation = 4
    of_another = stack.enter_context(closing(other.connect(b.port)))
    other.becomes(of_another, SLAVE)
    at_b = held(stack, leader, b, Switch(A))  # last: its silence counts as soon as it is connected
    until(lambda: ("b/b", SwitchesInReach(frozenset({A, B}))) in leader.reports, "the switches in reach")
    silent = SwitchesInReach(frozenset(), frozenset({A, B}))
    until(lambda: leader.router.in_reach == {"b/b": silent}, "the switches out of reach, also that of another holder")
    assert leader.kinds(SwitchLeft) == [], "connection and role stay"
    leader.links[0].begin()
    until(lambda: len(leader.kinds(SwitchConnected)) == 2, "the switch announced again")
    assert leader.router.in_reach == {"b/b": silent}
    leader.reports.clear()
    at_b.send(Type.BARRIER_REPLY, b"", 1)
    again = SwitchesInReach(frozenset({A}), frozenset({B}))
    until(lambda: ("b/b", again) in leader.reports, "the switch in reach again")


def test_a_switch_is_controlled_through_a_follower_and_handed_over(leader: Leader, stack: ExitStack) -> None:
    b, c = started(stack, leader, "b", "c")
    switch = Switch(A)
    at_b, at_c = (stack.enter_context(closing(switch.connect(follower.port))) for follower in (b, c))
    in_reach = SwitchesInReach(frozenset({A}))
    until(lambda: {("b/b", in_reach), ("c/c", in_reach)} <= leader.reports, "the switch in reach of both")
    assert leader.heard == [], "nobody holds the switch"
    b.holding.set(A, 5)
    switch.becomes(at_b, MASTER)
    leader.hears(SwitchConnected)
    leader.router.send([ReadRules(A), InstallStage(3, Stage("install", {A: MODS}))])
    assert at_b.expect_multipart(Multipart.FLOW)
    confirm(at_b)
    leader.hears(StageDone(3, {A: SwitchResult()}))

    leader.router.send([InstallStage(4, Stage("install", {A: MODS}))])
    at_b.expect(Type.BARRIER_REQUEST)
    b.holding.set(A, None)
    c.holding.set(A, 6)
    switch.becomes(at_c, MASTER)
    leader.hears(SwitchMoved)
    leader.hears(StageDone(4, {A: SwitchResult(timed_out=True)}))
    leader.router.send([InstallStage(5, Stage("install", {A: MODS}))])
    confirm(at_c)
    leader.hears(StageDone(5, {A: SwitchResult()}))
    at_c.close()
    leader.hears(SwitchLeft(A))
    assert leader.kinds(SwitchConnected, SwitchLeft) == [SwitchConnected, SwitchLeft]


def test_a_switch_that_a_stranger_has_taken_is_claimed_anew_and_controlled_again(
    leader: Leader, stack: ExitStack
) -> None:
    """The stranger is a controller outside the cluster. It claims the switch with the generation id of its holder."""
    (b,) = started(stack, leader, "b")
    switch = Switch(A)
    at_b = held(stack, leader, b, switch)
    at_b.send(EXPERIMENTER, struct.pack("!IIIB3xQ", ONF, ROLE_STATUS, SLAVE, 0, 5))
    until(lambda: leader.router.taken == {(A, "b/b"): 0}, "the report that the switch was taken")
    leader.router.send([InstallStage(3, Stage("install", {A: MODS}))])
    leader.hears(StageDone(3, {A: SwitchResult(timed_out=True)}))
    b.holding.set(A, 6)
    switch.becomes(at_b, MASTER)
    leader.hears(SwitchMoved)
    assert leader.router.taken == {}
    leader.router.send([InstallStage(4, Stage("install", {A: MODS}))])
    confirm(at_b)
    leader.hears(StageDone(4, {A: SwitchResult()}))


def test_a_link_that_was_broken_is_made_again_and_the_switches_never_left(leader: Leader, stack: ExitStack) -> None:
    (b,) = started(stack, leader, "b")
    connection = held(stack, leader, b, Switch(A))
    b.members.lead("")
    assert leader.linked == 1, "a link stays while etcd is away"
    b.members.lead("b")
    until(lambda: leader.linked == 0)
    b.members.lead("a")
    leader.hears(SwitchMoved)
    leader.router.send([InstallStage(3, Stage("install", {A: MODS}))])
    confirm(connection)
    leader.hears(StageDone(3, {A: SwitchResult()}))
    assert leader.kinds(SwitchConnected, SwitchLeft) == [SwitchConnected]


def test_late_packets_of_an_earlier_link_do_not_take_switches_from_the_present_one(
    leader: Leader, stack: ExitStack
) -> None:
    """A network may deliver the last packets of a link after its member has linked again."""
    earlier = Recorded(leader, "b/b", lambda _: None, 1)
    earlier.begin()
    stack.enter_context(running_api(members=leader.port))
    connection = held(stack, leader, start(stack, leader, "b"), Switch(A))
    earlier.received(packet([pack(Report(earlier._session, 0.0)), pack(SwitchConnected(A, "a", (), 5))]))
    leader.router.send([InstallStage(3, Stage("install", {A: MODS}))])
    confirm(connection)
    leader.hears(StageDone(3, {A: SwitchResult()}))
    earlier.close()
    assert leader.router.holders == {A: "b/b"}
    assert leader.kinds(SwitchConnected, SwitchLeft, SwitchMoved) == [SwitchConnected]


def test_a_switch_that_was_handed_over_during_the_pause_of_a_stage_gets_no_additions(
    monkeypatch: pytest.MonkeyPatch, leader: Leader, stack: ExitStack, tmp_path: Path
) -> None:
    (held_pause := tmp_path / "held").touch()
    monkeypatch.setattr(southbound_process, "run", partial(held_pauses.run, held_pause))
    b, c = started(stack, leader, "b", "c")
    switch = Switch(A)
    at_c = stack.enter_context(closing(switch.connect(c.port)))
    at_b = held(stack, leader, b, switch)
    mods = (RuleMod("delete", MeterRule(1, 10, 10)), RuleMod("add", MeterRule(2, 10, 10)))
    leader.router.send([InstallStage(3, Stage("circuits", {A: mods}), PAUSE_S)])
    at_b.expect(Type.METER_MOD)
    b.holding.set(A, None)
    c.holding.set(A, 6)
    switch.becomes(at_c, MASTER)
    until(lambda: leader.kinds(SwitchMoved) == [SwitchMoved])
    c.holding.set(A, None)
    b.holding.set(A, 7)
    switch.becomes(at_b, MASTER)
    leader.hears(StageDone(3, {A: SwitchResult(timed_out=True)}))
    until(lambda: leader.kinds(SwitchMoved) == [SwitchMoved, SwitchMoved])
    held_pause.unlink()
    leader.router.send([InstallStage(4, Stage("later", {A: (RuleMod("add", MeterRule(3, 10, 10)),)}), PAUSE_S)])
    added = at_b.expect(Type.METER_MOD)  # after the end of the earlier pause
    assert struct.unpack_from("!HHI", added.body)[2] == 3, "no change of the earlier stage"


def test_a_call_that_grpc_never_ends_is_replaced(
    monkeypatch: pytest.MonkeyPatch, leader: Leader, stack: ExitStack
) -> None:
    """A member that was paused had a call that gRPC did not end, although it was cancelled."""
    relayed, calls = LeaderLink._relay, 0

    async def relay(link: LeaderLink, channel: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            link._silent_s = SILENT_S
            return await relayed(link, channel)
        link._silent_s = 0.1
        while calls == 1:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        return None

    monkeypatch.setattr(LeaderLink, "_relay", relay)
    started(stack, leader, "b")
    assert calls == 2


def test_a_link_that_does_not_end_delays_neither_the_link_to_a_new_leader_nor_a_takeover(
    monkeypatch: pytest.MonkeyPatch, leader: Leader, stack: ExitStack
) -> None:
    monkeypatch.setattr(leader_link, "LIVES_S", 3600.0)
    monkeypatch.setattr(servers, "STOP_S", 0.1)
    relayed, ended = LeaderLink._relay, threading.Event()

    async def relay(link: LeaderLink, _: Any) -> None:
        link._southbound.link = to_former  # as the link does when it begins
        while not ended.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    def to_former(_: bytes | None) -> None: ...

    monkeypatch.setattr(LeaderLink, "_relay", relay)
    stack.enter_context(running_api(members=leader.port))
    stack.callback(ended.set)  # only after the follower's API has stopped
    follower = start(stack, leader, "b")
    until(lambda: follower.process.link is to_former)
    monkeypatch.setattr(LeaderLink, "_relay", relayed)
    follower.members.all += (member("c", leader.port.address),)
    follower.members.leading = "c"
    until(lambda: leader.linked == 1, "the link to the new leader")


def test_members_of_two_versions_link_if_they_have_a_format_in_common(leader: Leader, stack: ExitStack) -> None:
    oldest, newest = LINK_FORMATS
    stack.enter_context(running_api(members=leader.port))
    lines = stack.enter_context(captured_logs())
    start(stack, leader, "far", formats=(newest + 1, newest + 2))
    start(stack, leader, "next", formats=(newest, newest + 1))
    start(stack, leader, "older", formats=(0, oldest))
    until(lambda: leader.linked == 2, "the links")
    refused = f"it reads the formats '{newest + 1}-{newest + 2}' of the link, and the leader {oldest}-{newest}"
    until(lambda: any(refused in line.get("why", "") for line in lines))
    assert {link.member: link.form for link in leader.links} == {"next/next": newest, "older/older": oldest}


def test_a_southbound_that_hangs_ends_its_member(monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> None:
    """Otherwise the member, which itself lives, would keep its switches."""
    monkeypatch.setattr(southbound_process, "MOST_SILENT", 2)
    follower = Follower("b")
    stack.callback(follower.process.stop)
    until(lambda: follower.process._is_begun)
    assert follower.process._child.process.pid
    os.kill(follower.process._child.process.pid, signal.SIGSTOP)
    until(lambda: follower.failed)
    assert "has sent nothing" in str(follower.failed[0])


def certificates_of(secured: Secured) -> Certificates:
    files = {"ca_certificates": secured.ours.certificate, **secured.settings}
    return Certificates("members", MembersConfig(**files).tls_files)


def call_of(channel: grpc.Channel) -> Any:
    return channel.stream_stream(f"/{SERVICE}/{METHOD}")


def test_members_show_certificates(secured: Secured, stack: ExitStack) -> None:
    certificates = certificates_of(secured)
    leader = Leader(f"127.0.0.1:{reserve_port()}", certificates)
    started(stack, leader, "b", certificates=certificates)


def test_callers_without_the_name_of_a_member_get_no_link(secured: Secured, stack: ExitStack) -> None:
    leader = Leader(f"127.0.0.1:{reserve_port()}", certificates_of(secured))
    stack.enter_context(running_api(members=leader.port))
    with channel(leader.port.address, secured, secured.ours.sign("stranger")) as open_channel:
        call = call_of(open_channel)
        with pytest.raises(grpc.RpcError, match="only members may call here"):
            next(call(iter([b""])))
    assert leader.linked == 0


def test_a_member_cannot_have_the_link_of_another_one(secured: Secured, stack: ExitStack) -> None:
    leader = Leader(f"127.0.0.1:{reserve_port()}", certificates_of(secured), "b", "c")
    stack.enter_context(running_api(members=leader.port))
    with channel(leader.port.address, secured, secured.ours.sign("b")) as open_channel:
        call = call_of(open_channel)
        with pytest.raises(grpc.RpcError, match="the link of member 'c' needs a certificate with this name"):
            next(call(iter([b""]), metadata=((MEMBER, "c/c"),)))
        answers = call(iter([b""]), metadata=((MEMBER, "b/b"),))
        assert next(answers)
        answers.cancel()


def test_a_packet_that_is_none_ends_the_link(leader: Leader, stack: ExitStack) -> None:
    stack.enter_context(running_api(members=leader.port))
    with (
        grpc.insecure_channel(leader.port.address) as open_channel,
        pytest.raises(grpc.RpcError, match="cannot be read"),
    ):
        list(call_of(open_channel)(iter([b"?"])))
    until(lambda: leader.linked == 0)
