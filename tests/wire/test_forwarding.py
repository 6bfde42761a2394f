"""Calls that a standby forwards: the real forwarder and client, and as leader the real server with a stand-in loop."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from benchmarks.api_abuse import http2
from controller.api.files import ApiFiles, Certificates
from controller.api.forwarding import Forwarder
from controller.api.server import MemberPort
from controller.config import ApiConfig, MembersConfig
from controller.store.members import Member
from mininet_topos.controller_process import reserve_port
from mininet_topos.haproxy_process import haproxy_before
from signalbox.client import Client, Unreachable
from signalbox.errors import NotAllowed, NotFound, SignalboxError, TooSlow, Unauthenticated
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from tests.support.captured_logs import captured_logs
from tests.support.known_members import KnownMembers
from tests.support.waiting import DEADLINE_S, until
from tests.support.wire.api_calls import reason, refused, ring
from tests.support.wire.control_stand_in import Running, running_api
from tests.support.wire.raw_client import raw
from tests.support.wire.secured import TOKEN, Secured, status_of

PLAIN = Certificates("members", None)
STATUS = "/signalbox.v1.ControllerService/GetStatus"


def member(name: str, api: str) -> Member:
    return Member(name, name, api, "1", 0.0)


@dataclass
class Standby:
    """Forwarder in front of one or more leaders. ``valid``: whether the leaders are sure of their claim."""

    addresses: tuple[str, ...]
    members: KnownMembers
    leader: Running
    valid: list[bool] = field(default_factory=lambda: [True])

    def client(self) -> Client:
        return Client(self.addresses[0])


@contextmanager
def forwarder(
    members: KnownMembers, *listen: str, certificates: Certificates = PLAIN, **config: Any
) -> Iterator[tuple[str, ...]]:
    settings = ApiConfig(listen=listen or ("127.0.0.1:0",), **config)
    server = Forwarder(settings, ApiFiles(settings), members, certificates)
    members.changed = server.look
    try:
        yield server.start()
    finally:
        server.stop(0.0)


@contextmanager
def standby(folder: Path, *listen: str, behind: dict[str, Any] | None = None, **config: Any) -> Iterator[Standby]:
    """Run a leader and a standby that share a folder for the socket between them.

    ``behind``: settings of the leader; ``config``: settings of the standby."""
    valid, address = [True], f"unix:{folder / 'members.sock'}"
    port = MemberPort(address, PLAIN, frozenset(), lambda: valid[0])
    members = KnownMembers((member("b", ""), member("a", address)), "a")
    with running_api(members=port, **(behind or {})) as leader, forwarder(members, *listen, **config) as addresses:
        yield Standby(addresses, members, leader, valid)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Standby]:
    with standby(tmp_path) as found:
        yield found


def test_calls_and_watches_have_the_answers_of_the_leader(pair: Standby) -> None:
    with pair.client() as client, Client(pair.leader.addresses[0]) as direct:
        token = client.register_job(ring()).lease_token
        assert [job.spec.job_id for job in direct.list_jobs()] == ["ring"]
        watch = client.watch_jobs()
        assert [job.spec.job_id for job in next(watch).jobs] == ["ring"]
        direct.deregister_job("ring", token)
        assert [end.job_id for end in next(watch).ended] == ["ring"]
        watch.close()
        with pytest.raises(NotFound) as gone:
            client.get_job("ring")
        assert gone.value.reason == "JOB_DEREGISTERED"
        assert gone.value.about == {"jobId": "ring"}


def test_methods_that_only_the_leader_knows_are_served_too(pair: Standby) -> None:
    with grpc.insecure_channel(pair.addresses[0]) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
        assert "signalbox.v1.JobService" in ProtoReflectionDescriptorDatabase(channel).get_services()
        assert reason(refused(channel.unary_unary("/signalbox.v1.JobService/Nothing"), b"")) == "NO_SUCH_METHOD"


def test_a_deadline_ends_the_call_at_the_leader_as_well(pair: Standby) -> None:
    go_on = Event()

    def hold() -> None:
        go_on.wait(DEADLINE_S)

    pair.leader.control.put(hold)
    with captured_logs() as lines, Client(pair.addresses[0], timeout_s=1.0) as client:
        with pytest.raises(TooSlow):
            client.register_job(ring())
        until(lambda: [line["code"] for line in lines if line.get("method") == "RegisterJob"] == ["CANCELLED"])
        go_on.set()
        assert client.get_status()


def test_a_client_that_cancels_a_watch_ends_it_at_the_leader(pair: Standby) -> None:
    with pair.client() as client:
        watch = client.watch_jobs()
        next(watch)
        streams = pair.leader.server._gates[-1]._streams
        assert len(streams) == 1
        watch.close()
        until(lambda: not streams)


def test_a_request_that_is_too_large_is_refused_by_the_standby(tmp_path: Path) -> None:
    with standby(tmp_path, max_message_bytes=2000) as found, grpc.insecure_channel(found.addresses[0]) as channel:
        large = refused(channel.unary_unary(STATUS), bytes(3000))
        assert large.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_without_a_leader_a_call_is_unavailable_and_says_why(pair: Standby) -> None:
    assert not why_not(pair.addresses[0])
    for leader, why in (
        ("", "the controller stands by, and no controller is active, or etcd does not answer; retry later"),
        ("b", "the controller stands by, but takes over now; retry later"),
        ("c", "the controller stands by, and no controller is active, or etcd does not answer; retry later"),
        ("a", ""),
    ):
        pair.members.lead(leader)
        until(partial(says, pair, f"NO_LEADER: {why}" if why else ""))
    pair.members.is_old = True
    pair.members.lead("a")
    until(partial(says, pair, "NO_LEADER: the controller stands by, and etcd does not answer; retry later"))


def says(pair: Standby, why: str) -> bool:
    found = why_not(pair.addresses[0])
    return why in found if why else not found


def why_not(address: str) -> str:
    """Return why there is no leader at the address, or an empty text; gRPC repeats no call."""
    with grpc.insecure_channel(address) as channel:
        method: Any = channel.unary_unary(STATUS)
        call = method.future(b"", timeout=60)
        return f"{reason(call)}: {call.details()}" if call.exception() else ""


def test_a_leader_that_takes_no_calls_is_named(pair: Standby) -> None:
    for api, why in (
        ("", "the active one, a, has no members.api: call it directly"),
        ("10.0.0.1:50052", "has no members.certificate to call the active one at 10.0.0.1:50052"),
        ("unix:/nowhere", "the active one, a, does not answer"),
    ):
        pair.members.all = member("b", ""), member("a", api)
        pair.members.changed()
        until(partial(says, pair, why))


def test_a_standby_that_could_not_take_calls_as_leader_does_not_start(tmp_path: Path) -> None:
    """The start fails, not the takeover, if ``members.api`` is the address of another member, for example."""
    taken = f"unix:{tmp_path / 'taken.sock'}"
    with socket.create_server(("127.0.0.1", 0)) as other, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(taken.removeprefix("unix:"))
        listener.listen()
        for api in (f"127.0.0.1:{other.getsockname()[1]}", "192.0.2.1:50052", taken):
            members = KnownMembers((member("b", api), member("a", "")), "a")
            with pytest.raises(OSError, match=f"cannot listen on {api}"), forwarder(members):
                pass


def test_a_socket_of_another_user_gets_no_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of the socket comes from etcd, and a forwarded call would give its token to the owner of the socket."""
    with standby(tmp_path) as found:
        assert not why_not(found.addresses[0])
        monkeypatch.setattr("controller.api.forwarding.of_another_user", lambda _path: "belongs to another user")
        until(partial(says, found, "members.sock, the socket of the active one, a, belongs to another user"))


def test_a_leader_whose_claim_may_have_ended_answers_nothing(pair: Standby) -> None:
    pair.valid[0] = False
    assert "may have been replaced" in why_not(pair.addresses[0])
    with Client(pair.leader.addresses[0]) as direct:
        assert direct.get_status()
    with pair.client() as client, pytest.raises(Unreachable, match="may have been replaced"):
        client.get_status()


def test_watches_end_when_another_leads_and_calls_go_there(pair: Standby, tmp_path: Path) -> None:
    other = f"unix:{tmp_path / 'other.sock'}"
    port = MemberPort(other, PLAIN, frozenset(), lambda: True)
    with running_api(members=port) as leader, pair.client() as client:
        with Client(leader.addresses[0]) as direct:
            direct.register_job(ring("other"))
        watch = client.watch_jobs()
        next(watch)
        pair.members.all = (*pair.members.all, member("c", other))
        pair.members.lead("c")
        with pytest.raises(Unreachable, match="is no longer active"):
            next(watch)
        assert [job.spec.job_id for job in client.list_jobs()] == ["other"]


def test_a_call_is_never_forwarded_twice(tmp_path: Path) -> None:
    """A standby does not listen for members, so another standby that takes it for the leader gets no answer."""
    address = f"unix:{tmp_path / 'b.sock'}"
    first = KnownMembers((member("b", address), member("c", "")), "c")
    second = KnownMembers((member("c", ""), member("b", address)), "b")
    with forwarder(first), forwarder(second) as addresses:
        until(lambda: "the active one, b, does not answer" in why_not(addresses[0]))


def test_the_leader_sees_the_client_and_not_the_standby(tmp_path: Path) -> None:
    """No client can pass itself off as another by header fields."""
    forged = [("x-signalbox-address", "192.0.2.9"), ("x-signalbox-port", "1"), ("x-signalbox-tls", "1")]
    with standby(tmp_path) as found, grpc.insecure_channel(found.addresses[0]) as channel, captured_logs() as lines:
        stub: Any = pb_grpc.ControllerServiceStub(channel)  # type: ignore[no-untyped-call]
        for metadata in ([], forged, [("x-signalbox-socket", "operator")]):
            stub.SetMode(pb.SetModeRequest(mode=pb.MODE_ECMP), metadata=metadata)
    peers = [line["peer"] for line in lines if line.get("method") == "SetMode"]
    assert len(peers) == 3
    assert all(peer.startswith("127.0.0.1:") for peer in peers)


def test_header_fields_that_grpc_cannot_send_are_left_out(pair: Standby, capfd: pytest.CaptureFixture[str]) -> None:
    with raw(Running(pair.addresses, pair.leader.control, pair.leader.server)) as client:
        client.hello()
        for number, value in enumerate((b"\x7f", "\u00e9".encode(), b"\x01")):
            stream = 2 * number + 1
            fields = http2.headers(stream, STATUS)[9:] + b"\x00\x05x-odd" + bytes([len(value)]) + value
            head = http2.frame(http2.Kind.HEADERS, http2.END_HEADERS, stream, fields)
            client.socket.sendall(head + http2.request(stream, b""))
            assert client.answered()
    assert "is invalid" not in capfd.readouterr().err


def test_a_role_through_a_socket_is_that_of_the_standby(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'api.sock'}"
    for role, error in (("operator", None), ("reader", NotAllowed), ("none", Unauthenticated)):
        with standby(tmp_path, address, socket_role=role) as found, found.client() as client:
            if error is None:
                assert client.register_job(ring())
            else:
                with pytest.raises(error):
                    client.register_job(ring())


def test_certificates_and_tokens_of_clients_count_at_the_leader(secured: Secured, tmp_path: Path) -> None:
    settings = {**secured.settings, "ca_certificates": secured.ours.certificate, "tokens": secured.tokens}
    with standby(tmp_path, behind=settings, **settings) as found:
        address = found.addresses[0]
        scheduler, stranger = secured.ours.sign("scheduler"), secured.ours.sign("stranger")
        assert status_of(address, secured.credentials(scheduler))
        assert status_of(address, secured.credentials(stranger, TOKEN))
        with pytest.raises(Unauthenticated, match=r"no role belongs to this client certificate: .*\(stranger\)"):
            status_of(address, secured.credentials(stranger))
        with pytest.raises(Unauthenticated, match="the token is not known"):
            status_of(address, secured.credentials(scheduler, "sbx_wrong"))
        with Client(address, credentials=secured.credentials(scheduler)) as client, pytest.raises(NotAllowed):
            client.register_job(ring())


def test_a_client_of_haproxy_before_the_standby_is_the_client(secured: Secured, tmp_path: Path) -> None:
    address = f"127.0.0.1:{reserve_port()}"
    settings = {**secured.settings, "ca_certificates": secured.ours.certificate, "tokens": secured.tokens}
    proxied = {**settings, "proxy_socket": tmp_path / "proxy.sock"}
    behind = ApiConfig(listen=(address,), **proxied)
    with standby(tmp_path, address, behind=settings, **proxied), haproxy_before(tmp_path, behind):
        assert status_of(address, secured.credentials(secured.ours.sign("scheduler")))
        with pytest.raises(Unauthenticated, match="no role belongs to this client certificate"):
            status_of(address, secured.credentials(secured.ours.sign("stranger")))


def test_only_members_with_a_certificate_of_their_name_are_believed(secured: Secured) -> None:
    address = f"127.0.0.1:{reserve_port()}"
    names = {name: secured.ours.sign(name, also="IP:127.0.0.1") for name in ("a", "b", "scheduler")}

    def certificates(name: str) -> Certificates:
        files = {"certificate": names[name].certificate, "private_key": names[name].private_key}
        files["ca_certificates"] = secured.ours.certificate
        return Certificates("members", MembersConfig(**files).tls_files)

    port = MemberPort(address, certificates("a"), frozenset(("a", "b")), lambda: True)
    members = KnownMembers((member("b", ""), member("a", address)), "a")
    with ExitStack() as ends:
        ends.enter_context(running_api(members=port))
        (good,) = ends.enter_context(forwarder(members, certificates=certificates("b")))
        assert status_of(good)
        (bad,) = ends.enter_context(forwarder(members, certificates=certificates("scheduler")))
        with pytest.raises(Unauthenticated, match=r"members\.certificate_names has none of the names"):
            status_of(bad)
        with pytest.raises(Unreachable), Client(address, 5, secured.credentials()) as client:
            client.get_status()
        with pytest.raises(Unauthenticated), Client(address, 5, secured.credentials(names["scheduler"])) as client:
            client.get_status()
        with pytest.raises(Unauthenticated), Client(address, 5, secured.credentials(names["b"])) as client:
            client.get_status()  # a member that names no client


def test_a_new_certificate_of_a_member_is_used_without_a_restart(secured: Secured) -> None:
    address = f"127.0.0.1:{reserve_port()}"

    def files(name: str) -> Any:
        made = secured.ours.sign(name, also="IP:127.0.0.1")
        settings = {"certificate": made.certificate, "private_key": made.private_key}
        return MembersConfig(**settings, ca_certificates=secured.ours.certificate).tls_files

    port = MemberPort(address, Certificates("members", files("a")), frozenset(("a", "new")), lambda: True)
    members, own = KnownMembers((member("b", ""), member("a", address)), "a"), Certificates("members", files("old"))
    with running_api(members=port), forwarder(members, certificates=own) as addresses:
        with pytest.raises(Unauthenticated):
            status_of(addresses[0])
        own.prepare(files("new"))()
        members.changed()

        def is_believed() -> bool:
            try:
                return bool(status_of(addresses[0]))
            except SignalboxError:
                return False

        until(is_believed)
