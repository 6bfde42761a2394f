"""The API's limits against clients that speak HTTP/2 in bytes and do not mean well."""

from __future__ import annotations

import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, cast

import grpc
import pytest

from benchmarks.api_abuse import http2
from controller.api import services
from controller.jobs import replacements
from signalbox import spec_messages
from signalbox.client import Client
from signalbox.jobs.collectives import VirtualLinks, virtual_links
from signalbox.jobs.spec import JobSpec
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from tests.support.wire.control_stand_in import Running, running_api

STATUS = "/signalbox.v1.ControllerService/GetStatus"
HEALTH = "/grpc.health.v1.Health/Watch"
OF_CALLS = ("Timeout", "Call", "_ServicerContext")
"""Types of objects that there are for every call: ours, and gRPC's."""
DEADLINE_S = 60.0


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def refused(api: Running, reason: str) -> int:
    return api.control.board.api_refused.get(reason, 0)


class RawClient:
    """``source``: its address, so that one machine is several clients."""

    def __init__(self, api: Running, source: str = "127.0.0.1") -> None:
        host, _, port = api.addresses[0].rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=DEADLINE_S, source_address=(source, 0))

    def hello(self, window: int | None = None) -> None:
        self.socket.sendall(http2.hello(window))
        assert next(iter(http2.frames(self.socket))).kind == http2.Kind.SETTINGS

    def call(self, stream: int, path: str, message: bytes | None = None) -> None:
        """Without a message the call is half open."""
        data = b"" if message is None else http2.request(stream, message)
        self.socket.sendall(http2.headers(stream, path) + data)

    def answered(self) -> bool:
        """Whether a message comes before the connection ends."""
        return any(frame.kind == http2.Kind.DATA for frame in http2.frames(self.socket))

    def wait_closed(self) -> None:
        for _ in http2.frames(self.socket):
            pass


@contextmanager
def raw(api: Running, source: str = "127.0.0.1") -> Iterator[RawClient]:
    client = RawClient(api, source)
    try:
        yield client
    finally:
        client.socket.close()


@contextmanager
def stub(api: Running) -> Iterator[Any]:
    with grpc.insecure_channel(api.addresses[0]) as channel:
        yield pb_grpc.ControllerServiceStub(channel)  # type: ignore[no-untyped-call]


# ---- connections


def test_a_connection_that_says_nothing_ends_and_one_that_makes_no_call_too() -> None:
    with running_api(silent_s=0.5) as api, raw(api) as silent, raw(api) as waiting:
        waiting.hello()
        silent.wait_closed()
        waiting.wait_closed()
        wait_for(lambda: refused(api, "silent") == 1 and refused(api, "no_call") == 1)


def test_other_protocols_are_refused_at_their_first_bytes() -> None:
    with running_api() as api, raw(api) as browser:
        browser.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        browser.wait_closed()
        wait_for(lambda: refused(api, "not_http2") == 1)


def test_the_first_bytes_may_come_one_by_one_or_with_a_whole_call() -> None:
    with running_api() as api, raw(api) as slow, raw(api) as quick:
        for byte in http2.hello():
            slow.socket.sendall(bytes([byte]))
            time.sleep(0.001)
        slow.call(1, STATUS, b"")
        assert slow.answered()
        quick.socket.sendall(http2.hello() + http2.headers(1, STATUS) + http2.request(1, b""))
        assert quick.answered()


@pytest.mark.parametrize("first_bytes", [b"", http2.PREFACE[:5], http2.PREFACE])
def test_a_client_that_goes_at_its_first_bytes_is_forgotten(first_bytes: bytes) -> None:
    with running_api() as api:
        connections = api.server._relay.connections
        with raw(api) as client:
            client.socket.sendall(first_bytes)
            wait_for(lambda: len(connections) == 1)
        wait_for(lambda: len(connections) == 0)


def test_silent_connections_do_not_keep_clients_out() -> None:
    with running_api(max_silent=8) as api, ExitStack() as stack:
        silent = [stack.enter_context(raw(api)) for _ in range(40)]
        with Client(api.addresses[0]) as client:
            client.get_status()
        silent[0].wait_closed()
        wait_for(lambda: refused(api, "silent") >= 32)


def test_idle_connections_of_a_client_give_way_to_its_newer_ones() -> None:
    with running_api(max_client_connections=4, max_client_connections_per_s=1000) as api, ExitStack() as stack:
        clients = [stack.enter_context(raw(api)) for _ in range(6)]
        for client in clients:
            client.hello()
            client.call(1, STATUS, b"")
            assert client.answered()
        for client in clients[:2]:
            client.wait_closed()
        wait_for(lambda: refused(api, "client_connections") == 2)
        clients[5].call(3, STATUS, b"")
        assert clients[5].answered()


def test_a_client_with_many_connections_makes_room_for_another_address() -> None:
    with running_api(max_connections=6, max_client_connections=6) as api, ExitStack() as stack:
        greedy = [stack.enter_context(raw(api, "127.0.0.2")) for _ in range(6)]
        for connection in greedy:
            connection.hello()
        with Client(api.addresses[0]) as client:
            client.get_status()
        greedy[0].wait_closed()
        wait_for(lambda: refused(api, "connections") == 1)


def test_a_client_that_connects_too_often_is_refused_and_others_are_not() -> None:
    with running_api(max_client_connections=3, max_client_connections_per_s=1) as api, ExitStack() as stack:
        eager = [stack.enter_context(raw(api, "127.0.0.2")) for _ in range(8)]
        eager[7].wait_closed()
        wait_for(lambda: refused(api, "connections_per_s") >= 4)
        with Client(api.addresses[0]) as client:
            client.get_status()


def test_a_client_that_sends_too_fast_is_slowed_down() -> None:
    with running_api(max_client_bytes_per_s=4096) as api, grpc.insecure_channel(api.addresses[0]) as channel:
        jobs = pb_grpc.JobServiceStub(channel)  # type: ignore[no-untyped-call]
        began = time.monotonic()
        for _ in range(3):
            with pytest.raises(grpc.RpcError, match="there is no job"):
                jobs.RenewLease(pb.RenewLeaseRequest(job_id="x" * 6000), timeout=DEADLINE_S)
        assert time.monotonic() - began >= 1.0


def test_programs_behind_one_address_do_not_wait_for_one_that_floods() -> None:
    """Its connections, not the address, wait for what they have sent."""
    with running_api(max_client_calls_per_s=20) as api, ExitStack() as stack:
        for _ in range(4):
            flood = stack.enter_context(raw(api))
            flood.hello()
            frames = b"".join(http2.headers(1 + 2 * n, STATUS) + http2.request(1 + 2 * n, b"") for n in range(1000))
            flood.socket.setblocking(False)
            with suppress(BlockingIOError):
                flood.socket.sendall(frames)
        with raw(api) as quiet:  # minutes behind the others, if they had one queue
            quiet.hello()
            quiet.call(1, STATUS, b"")
            ended = (frame for frame in http2.frames(quiet.socket) if frame.stream == 1)
            assert next(ended).kind == http2.Kind.HEADERS


def test_health_watches_keep_no_place_that_calls_need() -> None:
    """Whoever there is may open them, and they never end."""
    with running_api(max_connections=4, max_client_connections=4) as api, ExitStack() as stack:
        for _ in range(4):
            watcher = stack.enter_context(raw(api, "127.0.0.2"))
            watcher.hello()
            watcher.call(1, HEALTH, b"")
            assert watcher.answered()
        with stub(api) as controller:
            controller.GetStatus(pb.GetStatusRequest(), timeout=DEADLINE_S)


# ---- calls


def test_a_call_without_its_request_ends() -> None:
    with running_api(silent_s=0.5) as api, raw(api) as client:
        client.hello()
        client.call(1, STATUS)
        ended = (frame for frame in http2.frames(client.socket) if frame.stream == 1 and frame.flags & http2.END_STREAM)
        assert next(ended).kind == http2.Kind.HEADERS
        wait_for(lambda: refused(api, "silent_call") == 1)


def test_half_open_calls_give_way_to_complete_ones() -> None:
    with running_api(max_client_calls=4, max_calls=4) as api, raw(api) as attacker:
        attacker.hello()
        for number in range(4):
            attacker.call(1 + 2 * number, STATUS)
        with stub(api) as controller:

            def answered() -> bool:
                with suppress(grpc.RpcError):
                    controller.GetStatus(pb.GetStatusRequest())
                    return True
                return False

            wait_for(answered)
        wait_for(lambda: refused(api, "silent_call") >= 1)


def test_streams_of_a_client_are_limited_and_end_with_it() -> None:
    with running_api(max_client_streams=2) as api, raw(api) as first, raw(api) as second:
        for client in (first, second):
            client.hello()
            client.call(1, HEALTH, b"")
            assert client.answered()
        with raw(api) as third:
            third.hello()
            third.call(1, HEALTH, b"")
            wait_for(lambda: refused(api, "calls") == 1)
        first.socket.close()

        def opens() -> bool:
            with raw(api) as client:
                client.hello()
                client.call(1, HEALTH, b"")
                kinds = (frame.kind for frame in http2.frames(client.socket) if frame.stream == 1)
                next(kinds)  # the headers, with the status when there is nothing else
                return next(kinds, None) == http2.Kind.DATA

        wait_for(opens)


def test_calls_per_second_are_limited_for_each_address() -> None:
    with running_api(max_client_calls_per_s=5) as api, stub(api) as controller, raw(api, "127.0.0.2") as other:
        calls = [controller.GetStatus.future(pb.GetStatusRequest()) for _ in range(60)]
        codes = [call.code().name for call in calls]
        assert set(codes) == {"OK", "RESOURCE_EXHAUSTED"}
        assert codes.count("OK") >= 5
        other.hello()
        other.call(1, STATUS, b"")
        assert other.answered()


def test_a_watcher_that_does_not_read_is_disconnected() -> None:
    with running_api(stalled_s=0.2) as api, raw(api) as watcher:
        watcher.hello(window=0)
        watcher.call(1, HEALTH, b"")
        watcher.wait_closed()
        wait_for(lambda: refused(api, "not_reading") == 1)


def test_an_answer_that_is_not_read_counts_until_the_client_is_disconnected() -> None:
    with running_api(stalled_s=0.2, max_client_calls=1) as api, raw(api) as client:
        client.hello(window=0)
        client.call(1, STATUS, b"")
        client.wait_closed()
        wait_for(lambda: refused(api, "not_reading") == 1)
        with stub(api) as controller:
            controller.GetStatus(pb.GetStatusRequest())


def test_a_client_that_goes_leaves_nothing_behind() -> None:
    with running_api(max_client_calls=2, max_client_streams=2) as api:
        for _ in range(20):
            with raw(api) as client:
                client.hello()
                client.call(1, STATUS, b"")
                client.call(3, HEALTH, b"")
                client.call(5, STATUS)
        with stub(api) as controller:
            controller.GetStatus(pb.GetStatusRequest(), wait_for_ready=True)
        wait_for(lambda: threading.active_count() < 50)


def test_what_a_call_has_taken_is_free_without_a_garbage_collection() -> None:
    """gRPC's part of it too, which hangs on the context: tens of kB for each call."""
    with running_api(silent_s=0.5) as api:
        gc.collect()  # not later: a client that makes no call meanwhile would be refused
        gc.disable()
        try:
            with raw(api) as client:
                client.hello()
                client.call(1, STATUS, b"")  # answered
                client.call(3, HEALTH, b"")  # a watch, which ends with the connection
                client.call(5, STATUS)  # its request does not come
                client.call(7, "/signalbox.v1.JobService/GetJob", b"")  # refused
                wait_for(lambda: refused(api, "silent_call") == 1)
            wait_for(lambda: not any(type(found).__name__ in OF_CALLS for found in gc.get_objects()))
        finally:
            gc.enable()


def test_log_lines_of_a_call_name_its_peer(capsys: pytest.CaptureFixture[str]) -> None:
    with running_api() as api, stub(api) as controller:
        controller.GetStatus(pb.GetStatusRequest())
        api.control.board.publish(cast(Any, None))  # a fault of ours
        with pytest.raises(grpc.RpcError, match="internal error"):
            controller.GetStatus(pb.GetStatusRequest())
    assert "peer=127.0.0.1:" in capsys.readouterr().out


# ---- large requests


def test_a_request_that_is_compressed_is_refused() -> None:
    """What it holds when it is unpacked no limit of bytes has counted."""
    with running_api() as api, grpc.insecure_channel(api.addresses[0]) as channel:
        jobs: Any = pb_grpc.JobServiceStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.RpcError) as error:
            jobs.RegisterJob(pb.RegisterJobRequest(), timeout=DEADLINE_S, compression=grpc.Compression.Gzip)
    assert cast(grpc.Call, error.value).code() is grpc.StatusCode.UNIMPLEMENTED


def test_other_calls_are_answered_while_a_large_request_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, answered = threading.Event(), threading.Event()
    job_spec = spec_messages.job_spec

    def slow(message: pb.JobSpec) -> JobSpec:
        reading.set()
        assert answered.wait(DEADLINE_S)
        return job_spec(message)

    monkeypatch.setattr(spec_messages, "job_spec", slow)
    many = [pb.Transfer(src=0, dst=1, bytes_per_iteration=1 + n) for n in range(10_000)]
    spec = pb.JobSpec(job_id="large", endpoints=["10.0.0.1", "10.0.0.2"], transfers=many)
    with running_api() as api, grpc.insecure_channel(api.addresses[0]) as channel:
        jobs: Any = pb_grpc.JobServiceStub(channel)  # type: ignore[no-untyped-call]
        registered = jobs.RegisterJob.future(pb.RegisterJobRequest(spec=spec), timeout=DEADLINE_S)
        assert reading.wait(DEADLINE_S)
        with stub(api) as controller:
            controller.GetStatus(pb.GetStatusRequest(), timeout=DEADLINE_S)
        answered.set()
        assert registered.result().job.spec.job_id == "large"


def test_a_job_of_many_virtual_links_costs_its_client_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made in the API's threads, not in the control loop."""
    made_in = []

    def noted(spec: JobSpec) -> VirtualLinks:
        made_in.append(threading.current_thread().name)
        return virtual_links(spec)

    monkeypatch.setattr(replacements, "virtual_links", noted)
    monkeypatch.setattr(services, "virtual_links", noted)
    ranks = range(64)
    spec = pb.JobSpec(
        job_id="large",
        endpoints=[f"10.0.0.{1 + rank}" for rank in ranks],
        groups=[pb.ParallelGroup(name="all", ranks=ranks)],
        collectives=[pb.Collective(algorithm=pb.ALGORITHM_ALL_TO_ALL, groups=["all"], bytes_per_iteration=1 << 20)],
    )
    with running_api(max_client_calls_per_s=2) as api, grpc.insecure_channel(api.addresses[0]) as channel:
        jobs: Any = pb_grpc.JobServiceStub(channel)  # type: ignore[no-untyped-call]
        jobs.RegisterJob(pb.RegisterJobRequest(spec=spec), timeout=DEADLINE_S)
        with pytest.raises(grpc.RpcError) as error:
            jobs.GetJob(pb.GetJobRequest(job_id="large"), timeout=DEADLINE_S)
    assert cast(grpc.Call, error.value).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    (thread,) = made_in
    assert thread.startswith("grpc-api")
