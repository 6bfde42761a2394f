"""The API's limits without HAProxy, against malicious clients that speak HTTP/2 in bytes."""

from __future__ import annotations

import gc
import threading
from contextlib import suppress
from itertools import count
from typing import Any, cast

import grpc
import pytest

from benchmarks.api_abuse import http2
from controller.api import servers, services
from controller.jobs import replacements
from mininet_topos.lab.record import wait_for
from signalbox.jobs.collectives import VirtualLinks, virtual_links
from signalbox.jobs.spec import JobSpec
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from tests.support.wire.control_stand_in import running_api
from tests.support.wire.raw_client import DEADLINE_S, HEALTH, STATUS, raw, stub

OF_CALLS = ("Timeout", "_ServicerContext")
"""Names of types of which an object exists for every call: a type of the controller, and a type of gRPC."""


# ---- connections


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


# ---- calls


def test_a_call_without_its_request_ends() -> None:
    with running_api(silent_s=0.5) as api, raw(api) as client:
        client.hello()
        client.call(1, STATUS)
        ended = client.ended_stream()
        assert ended
        assert ended.kind == http2.Kind.HEADERS
        assert b"the request did not arrive in time" in ended.payload


@pytest.mark.parametrize(("path", "message"), [(STATUS, None), (HEALTH, b"")], ids=["half open", "watch"])
def test_calls_at_one_time_are_limited_and_end_with_their_client(
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
        wait_for(is_answered, "the end of its calls", DEADLINE_S, 0.01)


def objects_of_calls() -> int:
    return sum(type(found).__name__ in OF_CALLS for found in gc.get_objects())


def test_what_a_call_has_taken_is_free_without_a_garbage_collection() -> None:
    """The memory of gRPC for a call, tens of kB that the call's context refers to, is free too."""
    with running_api(silent_s=2.0) as api:
        gc.collect()  # not later: a client that makes no call meanwhile would be refused
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
            wait_for(lambda: objects_of_calls() <= before, "the end of all calls", DEADLINE_S, 0.01)
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


def test_a_job_of_many_virtual_links_costs_its_client_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """The links are made in the API's threads, not in the control loop."""
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
