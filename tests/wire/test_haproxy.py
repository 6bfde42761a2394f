"""The API behind a real HAProxy: identities of callers, forged claims of clients, and limits."""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from benchmarks.api_abuse import http2
from controller.serving.haproxy import CONNECTION_STREAMS
from signalbox.client import Client
from signalbox.errors import Unauthenticated, Unavailable, Unreachable
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from tests.support.captured_logs import captured_logs
from tests.support.waiting import DEADLINE_S, beside, until
from tests.support.wire.certificates import Certificate
from tests.support.wire.control_stand_in import Running
from tests.support.wire.haproxy import proxied_api
from tests.support.wire.raw_client import HEALTH, STATUS, RawClient, raw, stub
from tests.support.wire.secured import TOKEN, Secured, status_of

REPLAN = "/signalbox.v1.ControllerService/Replan"


@pytest.fixture(scope="module")
def scheduler(secured: Secured) -> Certificate:
    return secured.ours.sign("scheduler")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run an API without identities: behind HAProxy, and at a Unix socket beside it."""
    directory = tmp_path_factory.mktemp("plain")
    with proxied_api(directory, f"unix:{directory}/api.sock") as api:
        yield api


@pytest.fixture(scope="module")
def with_tokens(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run an API on loopback without TLS, and at a Unix socket through which only tokens count."""
    directory = tmp_path_factory.mktemp("tokens")
    with proxied_api(directory, f"unix:{directory}/api.sock", tokens=secured.tokens, socket_role="none") as api:
        yield api


def peers(lines: Iterable[Any]) -> list[str]:
    return [line["peer"] for line in lines if line["event"] == "audit"]


def test_a_call_is_made_by_who_has_connected_to_haproxy(plain: Running) -> None:
    """Each client has a connection of its own."""
    with captured_logs() as lines, Client(plain.addresses[0]) as first, Client(plain.addresses[0]) as second:
        first.replan()
        second.replan()
        until(lambda: len(peers(lines)) == 2, "the audit")
    assert len(set(peers(lines))) == 2
    for peer in peers(lines):
        host, _, port = peer.rpartition(":")
        assert (host, port.isdigit()) == ("127.0.0.1", True)


def forgeries(der: bytes) -> list[tuple[tuple[str, str | bytes], ...]]:
    """Return forged metadata: if the API believed it, the sender would get the role reader or another caller's role."""
    certificate = ("x-signalbox-certificate-bin", der)
    address = ("x-signalbox-address", "10.9.9.9")
    return [
        (certificate,),
        (certificate, certificate),
        (certificate, ("x-signalbox-tls", "1"), address, ("x-signalbox-port", "7")),
        (address, address),
        (("x-signalbox-address", "10.9.9.9, 10.9.9.9"),),
        (("x-signalbox-address-bin", b"10.9.9.9"),),
        (("x-signalbox-certificate", "scheduler"),),
        (("x-signalbox-", "1"),),
        (("x-signalbox_address", "10.9.9.9"),),
        (("x.signalbox.certificate-bin", der),),
    ]


@pytest.mark.parametrize("at", [0, 1], ids=["HAProxy", "Unix socket"])
def test_fields_that_a_client_sends_give_it_no_identity(scheduler: Certificate, with_tokens: Running, at: int) -> None:
    """The error asks for a token; if the server believed the address, its message would contain the address."""
    with grpc.insecure_channel(with_tokens.addresses[at]) as channel:
        controller = pb_grpc.ControllerServiceStub(channel)  # type: ignore[no-untyped-call]
        for metadata in forgeries(scheduler.der):
            with pytest.raises(grpc.RpcError, match="a token is required") as error:
                controller.GetStatus(pb.GetStatusRequest(), timeout=DEADLINE_S, metadata=metadata)
            assert cast(grpc.Call, error.value).code() is grpc.StatusCode.UNAUTHENTICATED, metadata


def field(name: bytes, value: bytes) -> bytes:
    """Return a header field, literal and not indexed."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


CLAIM = field(b"x-signalbox-address", b"10.9.9.9")


@pytest.mark.parametrize("fields", [
    CLAIM, CLAIM + CLAIM, field(b"X-Signalbox-Address", b"10.9.9.9"), field(b"x-signalbox-ADDRESS", b"10.9.9.9"),
    field(b"x-signalbox-address ", b"10.9.9.9"), field(b"x-signalbox-address\0", b"10.9.9.9"),
    field(b"a", b"b\r\nx-signalbox-address: 10.9.9.9"), field(b"connection", b"x-signalbox-address"),
    field(b"cookie", b"x-signalbox-address=10.9.9.9"),
])  # fmt: skip
def test_bytes_that_claim_an_address_are_refused_or_not_believed(plain: Running, fields: bytes) -> None:
    """No gRPC client sends such fields."""
    with captured_logs() as lines, raw(plain) as client:
        head = http2.headers(1, REPLAN)[9:]
        client.socket.sendall(http2.hello() + http2.frame(http2.Kind.HEADERS, http2.END_HEADERS, 1, head + fields))
        client.socket.sendall(http2.request(1, b""))
        with suppress(ConnectionError):
            client.ended_stream()
    assert all(peer.startswith("127.0.0.1:") for peer in peers(lines))


def test_trailers_of_a_client_say_nothing_of_it(plain: Running) -> None:
    message = http2.frame(http2.Kind.DATA, 0, 1, b"\0" + struct.pack("!I", 0))
    end = http2.END_HEADERS | http2.END_STREAM
    with captured_logs() as lines, raw(plain) as client:
        client.socket.sendall(http2.hello() + http2.headers(1, REPLAN) + message)
        client.socket.sendall(http2.frame(http2.Kind.HEADERS, end, 1, CLAIM))
        client.ended_stream()
        until(lambda: bool(peers(lines)), "the audit")
    assert [peer.rpartition(":")[0] for peer in peers(lines)] == ["127.0.0.1"]


def test_who_opens_the_socket_of_haproxy_without_its_fields_is_nobody(tmp_path: Path) -> None:
    """The group of a directory with the setgid bit may open the socket."""
    with proxied_api(tmp_path) as api:
        socket = tmp_path / "proxy.sock"
        assert socket.stat().st_mode & 0o777 == 0o600
        assert status_of(api.addresses[0])
        with pytest.raises(Unauthenticated, match="HAProxy or a member must name it in valid header fields"):
            status_of(f"unix:{socket}")
    assert not socket.exists()
    tmp_path.chmod(0o2750)
    with proxied_api(tmp_path):
        assert socket.stat().st_mode & 0o777 == 0o660


def test_certificates_have_the_roles_of_their_names(secured: Secured, scheduler: Certificate, tmp_path: Path) -> None:
    settings = {**secured.settings, "ca_certificates": secured.ours.certificate, "tokens": secured.tokens}
    with proxied_api(tmp_path, **settings) as api:
        address = api.addresses[0]
        assert status_of(address, secured.credentials(scheduler))
        assert status_of(address, secured.credentials(secured.ours.sign("worker", also="DNS:x,DNS:scheduler")))
        assert status_of(address, secured.credentials(secured.ours.sign("worker", also="IP:10.9.9.9")))
        assert status_of(address, secured.credentials(secured.ours.sign("stranger"), TOKEN))
        with pytest.raises(Unauthenticated, match=r"add a \[\[certificate\]\] with one of its names \(stranger\)"):
            status_of(address, secured.credentials(secured.ours.sign("stranger")))
        for shown in (None, secured.other.sign("scheduler"), secured.ours.sign_expired("scheduler")):
            with pytest.raises(Unreachable):
                status_of(address, secured.credentials(shown))
        forged = (("x-signalbox-certificate-bin", scheduler.der),)
        with secured.credentials(secured.ours.sign("stranger")).opener(address, [])(address) as channel:
            controller = pb_grpc.ControllerServiceStub(channel)  # type: ignore[no-untyped-call]
            with pytest.raises(grpc.RpcError, match=r"one of its names \(stranger\)"):
                controller.GetStatus(pb.GetStatusRequest(), timeout=DEADLINE_S, metadata=forged)


@pytest.mark.parametrize("size", [15_000, 100_000])
def test_large_requests_come_through_beside_a_certificate(secured: Secured, tmp_path: Path, size: int) -> None:
    """HAProxy adds the certificate when its buffer holds as much of the request as fits."""
    large = secured.ours.sign("scheduler", also=",".join(f"DNS:{number}.{'x' * 60}" for number in range(60)))
    settings = {**secured.settings, "ca_certificates": secured.ours.certificate, "tokens": secured.tokens}
    unknown = b"\xfa\x07" + bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]) + bytes(size)
    with (
        proxied_api(tmp_path, **settings) as api,
        secured.credentials(large).opener(api.addresses[0], [])(api.addresses[0]) as channel,
    ):
        status: Any = channel.unary_unary(STATUS)
        assert status(unknown, timeout=DEADLINE_S)


def test_without_authorities_only_tokens_count(secured: Secured, scheduler: Certificate, tmp_path: Path) -> None:
    with proxied_api(tmp_path, **secured.settings, tokens=secured.tokens) as api:
        assert status_of(api.addresses[0], secured.credentials(token=TOKEN))
        with pytest.raises(Unauthenticated, match="a token is required"):
            status_of(api.addresses[0], secured.credentials(scheduler))
        with pytest.raises(Unreachable):
            status_of(api.addresses[0])


def test_a_call_without_its_request_ends_and_the_controller_never_sees_it(tmp_path: Path) -> None:
    with proxied_api(tmp_path, silent_s=1.0, stalled_s=1.0) as api, raw(api) as client:
        client.hello()
        client.call(1, STATUS)
        assert client.ended_stream()
        assert ("GetStatus", "OK") not in api.control.board.call_times
        with raw(api) as large:  # more than HAProxy's buffer: the controller receives this one
            large.hello()
            large.call(1, STATUS)
            for part in (b"\0" + struct.pack("!I", 1 << 20) + bytes(15_000), bytes(15_000)):
                large.socket.sendall(http2.frame(http2.Kind.DATA, 0, 1, part))
            assert large.ended_stream()
        assert status_of(api.addresses[0])


def test_connections_without_a_call_or_of_other_protocols_end(tmp_path: Path) -> None:
    other = [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0", http2.hello() + http2.inflated(1)]
    with proxied_api(tmp_path, silent_s=0.5, stalled_s=1.0) as api, ExitStack() as stack:
        clients = [stack.enter_context(raw(api)) for _ in (b"", http2.hello(), *other)]
        for client, first_bytes in zip(clients, (b"", http2.hello(), *other), strict=True):
            client.socket.sendall(first_bytes)
        for client in clients:
            client.wait_closed()


@pytest.mark.parametrize(("limits", "stay_open"), [
    ({"max_client_connections": 4}, True),
    ({"max_client_connections": 10, "max_client_connections_per_s": 1}, False),
])  # fmt: skip
def test_connections_of_a_client_and_new_ones_are_limited(
    tmp_path: Path, limits: dict[str, int], stay_open: bool
) -> None:
    """The limits of one address leave the connections of others alone."""
    with proxied_api(tmp_path, **limits) as api, ExitStack() as stack:
        for _ in range(limits["max_client_connections"]):
            client = RawClient(api, "127.0.0.2")
            stack.callback(client.socket.close)
            client.hello() if stay_open else client.socket.close()
        with suppress(ConnectionError), raw(api, "127.0.0.2") as refused:
            refused.wait_closed()
        assert status_of(api.addresses[0])


def test_calls_per_second_are_limited_for_each_address(tmp_path: Path) -> None:
    with (
        proxied_api(tmp_path, max_client_calls_per_s=5) as api,
        stub(api) as controller,
        raw(api, "127.0.0.2") as other,
    ):
        codes = Counter[str]()

        def is_limited() -> bool:
            calls = [controller.GetStatus.future(pb.GetStatusRequest()) for _ in range(15)]
            codes.update(call.code().name for call in calls)
            return codes["RESOURCE_EXHAUSTED"] > 0

        until(is_limited)  # on a busy machine not all calls are of one second
        assert codes.keys() == {"OK", "RESOURCE_EXHAUSTED"}
        assert codes["OK"] >= 5
        assert other.is_served()


def test_a_client_that_continues_in_spite_of_refusals_loses_its_connection(tmp_path: Path) -> None:
    with (
        proxied_api(tmp_path, max_client_calls_per_s=1, max_client_streams=1) as api,
        raw(api) as client,
        raw(api, "127.0.0.2") as other,
    ):
        client.hello()
        with suppress(ConnectionError):
            for stream in range(1, 2000, 2):
                client.call(stream, HEALTH, b"")
            client.wait_closed()
        assert other.is_served()


def test_a_client_that_continues_in_spite_of_refusals_gets_no_new_connection(tmp_path: Path) -> None:
    """HAProxy sends a first frame on every connection that it accepts, so a connection without frames is refused."""

    def refused() -> bool:
        with suppress(ConnectionError), raw(api) as client:
            for stream in range(1, 400, 2):
                client.call(stream, STATUS, b"") if stream > 1 else client.hello()
            client.wait_closed()
        with suppress(ConnectionError), raw(api) as client:
            client.socket.sendall(http2.hello())
            return next(http2.frames(client.socket), None) is None
        return True

    limits = {"max_client_calls_per_s": 1, "max_client_connections_per_s": 100_000}
    with proxied_api(tmp_path, **limits) as api, raw(api, "127.0.0.2") as other:
        until(refused, "a refused connection")
        assert other.is_served()


def test_streams_of_one_connection_are_few_because_haproxy_begins_all_before_it_refuses_any(plain: Running) -> None:
    with raw(plain) as client:
        client.socket.sendall(http2.hello())
        settings = next(iter(http2.frames(client.socket))).payload
    assert dict(struct.iter_unpack("!HI", settings))[http2.MAX_CONCURRENT_STREAMS] == CONNECTION_STREAMS


def test_half_open_calls_and_streams_of_an_address_are_limited(tmp_path: Path) -> None:
    with (
        proxied_api(tmp_path, max_client_calls=2, max_client_streams=1) as api,
        raw(api, "127.0.0.2") as client,
        raw(api, "127.0.0.2") as second,
    ):
        client.hello()
        client.call(1, HEALTH, b"")
        assert client.answered()
        second.hello()
        second.call(1, HEALTH, b"")
        refused = second.ended_stream()
        assert refused
        assert b"max_client_streams" in refused.payload
        for stream in (3, 5):
            client.call(stream, STATUS)
        client.call(7, STATUS)
        refused = next(frame for frame in http2.frames(client.socket) if frame.stream == 7)
        assert b"max_client_calls" in refused.payload
        assert status_of(api.addresses[0])


def test_streams_that_are_cancelled_or_not_read_end_in_the_controller(tmp_path: Path) -> None:
    with proxied_api(tmp_path, stalled_s=1.0) as api, grpc.insecure_channel(api.addresses[0]) as channel:
        streams = api.server._proxied_gate._streams
        jobs: Any = pb_grpc.JobServiceStub(channel)  # type: ignore[no-untyped-call]
        for _ in range(5):
            watches = [jobs.WatchJobs(pb.WatchJobsRequest()) for _ in range(20)]
            for watch in watches:
                next(watch)
            assert len(streams) == 20
            for watch in watches:
                watch.cancel()
            until(lambda: not streams, "the end of cancelled streams")
        with raw(api) as stalled:
            stalled.hello(window=0)
            stalled.call(1, "/signalbox.v1.JobService/WatchJobs", b"")
            until(lambda: len(streams) == 1, "the watch")
            until(lambda: not streams, "the end of what is not read")


def test_clients_learn_that_the_controller_is_away(tmp_path: Path) -> None:
    """HAProxy's own error page would abort the client's program, or cause the status UNKNOWN there."""
    with proxied_api(tmp_path) as api, Client(api.addresses[0]) as client:
        watch = client.watch_jobs()
        next(watch)
        api.server.stop(0.0)
        with pytest.raises((Unreachable, Unavailable)):
            next(watch)
        for _ in range(3):
            for call in (client.get_status, lambda: next(client.watch_jobs())):
                with pytest.raises(Unreachable, match="the controller does not answer HAProxy: it is stopped"):
                    call()


def test_a_stream_beyond_those_of_a_connection_waits_for_the_end_of_another_and_delays_no_client(
    plain: Running,
) -> None:
    with Client(plain.addresses[0]) as client, Client(plain.addresses[0]) as other:
        watches = [client.watch_jobs() for _ in range(CONNECTION_STREAMS)]
        for watch in watches:
            next(watch)
        waiting = beside(next, client.watch_alarms())
        assert other.get_status()
        assert not waiting.done()
        watches.pop().close()
        assert waiting.result(DEADLINE_S)
        for watch in watches:
            watch.close()
