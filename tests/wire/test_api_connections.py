"""Addresses where the API listens, the services beside it, and its limits without HAProxy.

The tests of malicious clients send HTTP/2 frames that they pack themselves, without a gRPC library."""

import asyncio
import gc
import re
import socket
import stat
import threading
from contextlib import suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from benchmarks.api_abuse import http2
from controller.api import servers, services
from controller.api.lease_tokens import LeaseTokens
from controller.api.server import ApiServer
from controller.config import ApiConfig
from controller.jobs import requested
from controller.status import StatusBoard
from signalbox.client import Client, Unreachable
from signalbox.jobs.collectives import VirtualLinks, virtual_links
from signalbox.jobs.spec import JobSpec
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from tests.support.waiting import DEADLINE_S, beside, until
from tests.support.wire.api_calls import ring
from tests.support.wire.control_stand_in import Running, running_api
from tests.support.wire.raw_client import HEALTH, STATUS, raw, stub

TOKENS = LeaseTokens()


def test_health_is_serving_then_not_serving_while_stopping(api: Running, channel: grpc.Channel) -> None:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    for name in ("", "signalbox.v1.JobService", "signalbox.v1.ControllerService"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=60)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=""))
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    stopped = beside(api.server.stop, 5.0)
    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert list(watch) == []
    watch.cancel()
    stopped.result(DEADLINE_S)


def test_reflection_lists_and_describes_the_services(channel: grpc.Channel) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="signalbox.v1.JobService"),
    ]
    listed, described = stub.ServerReflectionInfo(iter(requests), timeout=60)
    names = {service.name for service in listed.list_services_response.service}
    assert {"signalbox.v1.JobService", "signalbox.v1.ControllerService", "grpc.health.v1.Health"} <= names
    assert described.file_descriptor_response.file_descriptor_proto


def refused(address: str, problem: str) -> None:
    server = ApiServer(ApiConfig(listen=(address,)), StatusBoard(), lambda _: None, TOKENS)
    with pytest.raises(OSError, match=problem):
        server.start()
    server.stop()


def test_both_a_port_and_a_unix_socket_serve(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with running_api("127.0.0.1:0", f"unix:{path}") as api:
        assert api.addresses[1] == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with Client(api.addresses[0]) as tcp, Client(api.addresses[1]) as unix:
            tcp.register_job(ring())
            assert unix.get_job("ring").spec.job_id == "ring"
    assert not path.exists()


def test_the_directory_of_a_socket_is_made_or_an_error(tmp_path: Path) -> None:
    with running_api(f"unix:{tmp_path}/run/signalbox/api.sock") as api, Client(api.addresses[0]) as client:
        assert client.list_jobs() == ()
    (tmp_path / "file").touch()
    refused(f"unix:{tmp_path}/file/api.sock", f"cannot make {tmp_path}/file for the API's socket: ")


def test_a_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    with running_api(f"unix:{path}") as api, Client(api.addresses[0]) as client:
        assert client.list_jobs() == ()


def test_a_living_server_keeps_its_socket(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'api.sock'}"
    with running_api(address), Client(address) as client:
        refused(address, "another process listens there")
        assert client.list_jobs() == ()


def test_a_listener_that_takes_no_connection_keeps_its_socket(tmp_path: Path) -> None:
    """The listener may belong to a stopped process: its queue is full, and connecting clients wait."""
    path = str(tmp_path / "api.sock")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as waiting:
        listener.bind(path)
        listener.listen(0)
        waiting.connect(path)
        refused(f"unix:{path}", "another process listens there")


def test_a_file_that_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("keep me")
    refused(f"unix:{path}", "not a socket")
    assert path.read_text() == "keep me"


def test_a_taken_port_is_an_error_at_start(api: Running) -> None:
    refused(api.addresses[0], f"cannot listen on {api.addresses[0]}: Address already in use")


def test_calls_that_grpc_does_not_end_hold_up_no_takeover(monkeypatch: pytest.MonkeyPatch) -> None:
    server_type: Any = import_module("grpc.aio._server").Server
    shutting_down = server_type.stop

    async def stop(server: Any, grace_s: float) -> None:
        await shutting_down(server, grace_s)
        await asyncio.Event().wait()

    monkeypatch.setattr(servers, "STOP_S", 0.01)
    monkeypatch.setattr(server_type, "stop", stop)
    with running_api() as api:
        address = api.addresses[0]
    with Client(address) as client, pytest.raises(Unreachable):
        client.get_status()


def test_stopping_a_server_that_never_started_is_nothing() -> None:
    ApiServer(ApiConfig(), StatusBoard(), lambda _: None, TOKENS).stop()


@pytest.mark.parametrize("timeout_s", [0.3, 10.0])
def test_nobody_at_the_address_is_unreachable(timeout_s: float) -> None:
    """The shorter time-out leaves no time for gRPC's usual retries."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with Client(address, timeout_s) as client, pytest.raises(Unreachable) as error:
            client.get_status()
        expected = f"no answer from the controller at {address}: no process listens there; is the controller running?"
        assert str(error.value) == expected


def test_nobody_at_a_name_says_which_address_was_tried() -> None:
    """A name may have several addresses, and gRPC reports only the last one."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with Client(f"localhost:{port}", 10.0) as client, pytest.raises(Unreachable) as error:
            client.get_status()
    tried = rf"no process listens at (127\.0\.0\.1|\[::1\]):{port}, one of the addresses of this name"
    assert re.search(tried, str(error.value))


OF_CALLS = ("Timeout", "_ServicerContext")
"""Names of two types, of the controller and of gRPC, that have one object per call."""


@pytest.mark.parametrize("first_bytes", [b"", http2.PREFACE[:5], http2.PREFACE, b"GET / HTTP/1.1\r\n\r\n"])
def test_a_connection_that_does_not_speak_http2_ends(first_bytes: bytes) -> None:
    with running_api(silent_s=0.5) as api, raw(api) as client:
        client.socket.sendall(first_bytes)
        client.wait_closed()


def test_the_first_bytes_may_come_one_by_one_or_with_a_whole_call() -> None:
    with running_api() as api, raw(api) as slow, raw(api) as quick:
        for byte in http2.hello():
            slow.socket.sendall(bytes([byte]))
        slow.call(1, STATUS, b"")
        assert slow.answered()
        quick.socket.sendall(http2.hello() + http2.headers(1, STATUS) + http2.request(1, b""))
        assert quick.answered()


def test_a_call_without_its_request_ends() -> None:
    with running_api(silent_s=0.5) as api, raw(api) as client:
        client.hello()
        client.call(1, STATUS)
        ended = client.ended_stream()
        assert ended
        assert ended.kind == http2.Kind.HEADERS
        assert b"the request did not arrive within" in ended.payload


@pytest.mark.parametrize(("path", "message"), [(STATUS, None), (HEALTH, b"")], ids=["half open", "watch"])
def test_calls_are_limited_and_end_with_their_client(
    monkeypatch: pytest.MonkeyPatch, path: str, message: bytes | None
) -> None:
    monkeypatch.setattr(servers, "MOST_CALLS", 3)
    with running_api() as api, stub(api) as controller:

        def is_answered() -> bool:
            with suppress(grpc.RpcError):
                controller.GetStatus(pb.GetStatusRequest(), timeout=DEADLINE_S)
                return True
            return False

        with raw(api) as client:
            client.hello()
            for stream in (1, 3, 5):
                client.call(stream, path, message)
            for stream in count(7, 2):
                client.call(stream, STATUS, b"")
                ended = client.ended_stream(stream)
                if ended and b"Concurrent RPC limit exceeded" in ended.payload:
                    break
        until(is_answered, "the end of its calls")


def objects_of_calls() -> int:
    return sum(type(found).__name__ in OF_CALLS for found in gc.get_objects())


def test_what_a_call_has_taken_is_free_without_a_garbage_collection() -> None:
    """The memory of gRPC for a call is freed too: tens of kB, to which the call's context refers."""
    with running_api(silent_s=2.0) as api:
        gc.collect()  # before the client connects, which would be refused while it waited
        before = objects_of_calls()  # of servers of earlier tests
        gc.disable()
        try:
            with raw(api) as client:
                client.hello()
                client.call(1, STATUS, b"")  # answered
                client.call(3, HEALTH, b"")  # a watch, which ends with the connection
                client.call(5, STATUS)  # its request never arrives
                client.call(7, "/signalbox.v1.JobService/GetJob", b"")  # refused
                assert client.ended_stream(5)
            until(lambda: objects_of_calls() <= before, "the end of all calls")
        finally:
            gc.enable()


def test_log_lines_of_a_call_name_its_peer(capsys: pytest.CaptureFixture[str]) -> None:
    with running_api() as api, stub(api) as controller:
        controller.GetStatus(pb.GetStatusRequest())
        api.control.board.publish(cast(Any, None))  # stands for a defect of the controller
        with pytest.raises(grpc.RpcError, match="internal error"):
            controller.GetStatus(pb.GetStatusRequest())
    assert "peer=127.0.0.1:" in capsys.readouterr().out


def test_a_job_of_many_virtual_links_costs_its_client_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The links are made in the API's threads, not in the control loop."""
    made_in = []

    def noted(spec: JobSpec) -> VirtualLinks:
        made_in.append(threading.current_thread().name)
        return virtual_links(spec)

    monkeypatch.setattr(requested, "virtual_links", noted)
    monkeypatch.setattr(services, "virtual_links", noted)
    ranks = range(64)
    spec = pb.JobSpec(
        job_id="large",
        endpoints=[f"10.0.0.{1 + rank}" for rank in ranks],
        groups=[pb.ParallelGroup(name="all", ranks=ranks)],
        collectives=[pb.Collective(algorithm=pb.ALGORITHM_ALL_TO_ALL, groups=["all"], bytes_per_iteration=1 << 20)],
    )
    with (
        running_api(max_client_calls_per_s=2) as api,
        grpc.insecure_channel(api.addresses[0]) as channel,
        raw(api, "127.0.0.2") as other,
    ):
        jobs: Any = pb_grpc.JobServiceStub(channel)  # type: ignore[no-untyped-call]
        jobs.RegisterJob(pb.RegisterJobRequest(spec=spec), timeout=DEADLINE_S)
        with pytest.raises(grpc.RpcError, match="has exceeded the limit of 2 calls per second") as error:
            jobs.GetJob(pb.GetJobRequest(job_id="large"), timeout=DEADLINE_S)
        assert other.is_served()
    assert cast(grpc.Call, error.value).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    (thread,) = made_in
    assert thread.startswith("grpc-api")
