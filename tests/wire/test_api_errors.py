"""Refused requests, and the content of the status of each."""

import asyncio
import queue
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_reflection.v1alpha import reflection_pb2

from benchmarks.api_requests import raw
from controller.api import guard
from controller.api.lease_tokens import LeaseTokens
from controller.api.server import ApiServer
from controller.config import ApiConfig
from controller.status import StatusBoard
from signalbox.client import Client, Unreachable
from signalbox.errors import (
    AlreadyExists,
    Conflict,
    Exhausted,
    InvalidInput,
    NotAnnounced,
    NotFound,
    SignalboxError,
    WrongLeaseToken,
)
from signalbox.jobs.reports import IterationTime
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from signalbox.words import MAY_BE_REPLACED
from tests.support.waiting import until
from tests.support.wire.api_calls import detail, message, reason, refused, ring, violations
from tests.support.wire.control_stand_in import H1, Running, running_api

TOKENS = LeaseTokens()


def _without_deadline(stub_method: Any, request: Any, timeout: float) -> Any:
    del timeout
    return stub_method(request)


def test_every_wrong_field_is_named_in_details_and_message(jobs: Any) -> None:
    spec = message(
        job_id="Not Allowed",
        endpoints=[H1, "10.0.2.300"],
        groups=[pb.ParallelGroup(name="dp", ranks=[0])],
        collectives=[pb.Collective(groups=["dp"], bytes_per_iteration=-5)],
    )
    error = refused(jobs.RegisterJob, pb.RegisterJobRequest(spec=spec))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    found = violations(error)
    assert set(found) == {
        "spec.job_id", "spec.endpoints[1]", "spec.groups[0].ranks", "spec.collectives[0].algorithm",
        "spec.collectives[0].bytes_per_iteration",
    }  # fmt: skip
    assert "ALGORITHM_RING_ALL_REDUCE" in found["spec.collectives[0].algorithm"]
    assert all(f"{path}: " in error.details() for path in found)


def test_every_request_of_a_job_names_the_job(controller: Any, jobs: Any) -> None:
    for call, request, path in (
        (jobs.RegisterJob, pb.RegisterJobRequest(), "spec"),
        (jobs.GetJob, pb.GetJobRequest(), "job_id"),
        (jobs.UpdateJob, pb.UpdateJobRequest(), "spec"),
        (jobs.UpdateJob, pb.UpdateJobRequest(spec={"max_subflows": 2}), "spec.job_id"),
        (jobs.UpdateJobs, pb.UpdateJobsRequest(), "jobs"),
        (jobs.UpdateJobs, pb.UpdateJobsRequest(jobs=[{}]), "jobs[0].spec"),
        (jobs.DeregisterJob, pb.DeregisterJobRequest(), "job_id"),
        (jobs.DeregisterJob, pb.DeregisterJobRequest(force=True), "job_id"),
        (jobs.RenewLease, pb.RenewLeaseRequest(), "job_id"),
        (jobs.ReportIterations, pb.ReportIterationsRequest(), "job_id"),
        (jobs.ReportConnections, pb.ReportConnectionsRequest(address=H1), "job_id"),
        (lambda request, timeout: list(jobs.WatchRoutes(request, timeout=timeout)), pb.WatchRoutesRequest(), "job_id"),
        (controller.Explain, pb.ExplainRequest(), "job_id"),
    ):
        error = refused(call, request)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert violations(error) == {path: "is missing"}


def broadcasts(groups: int) -> pb.JobSpec:
    """Return a spec whose collectives name ``groups`` unknown groups each."""
    known = [pb.ParallelGroup(name=f"group{n}", ranks=[0, 1]) for n in range(4096)]
    collective = pb.Collective(algorithm=pb.ALGORITHM_BROADCAST, groups=["?"] * groups, bytes_per_iteration=1)
    return message(groups=known, collectives=[collective] * 256)


LONG_LISTS = {
    "many endpoints": lambda: message(endpoints=["10.0.0.1"] * 100_000),
    "many wrong endpoints": lambda: message(endpoints=["nonsense"] * 100_000),
    "many ranks": lambda: message(groups=[pb.ParallelGroup(name=f"g{n}", ranks=[0, 1] * 400) for n in range(1000)]),
    "many group names": lambda: broadcasts(4096),
    "many unknown group names": lambda: broadcasts(250),
    "many wrong transfers": lambda: message(transfers=[pb.Transfer(src=5, dst=5, bytes_per_iteration=-1)] * 65_536),
    "too many transfers": lambda: message(transfers=[pb.Transfer()] * 65_537),
    "many wrong addresses": lambda: message(rails=[pb.Rail(endpoints=["?"] * 4096)] * 7),
    "many rails": lambda: message(rails=[pb.Rail()] * 100_000),
}


@pytest.mark.parametrize("spec", LONG_LISTS.values(), ids=LONG_LISTS)
def test_long_lists_of_short_things_are_refused(jobs: Any, spec: Callable[[], pb.JobSpec]) -> None:
    error = refused(jobs.RegisterJob, pb.RegisterJobRequest(spec=spec()))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_refused_request_leaves_running_jobs_alone(client: Client, jobs: Any) -> None:
    before = client.register_job(ring()).job
    refused(jobs.RegisterJob, pb.RegisterJobRequest(spec=message(endpoints=[])))
    with pytest.raises(AlreadyExists) as error:
        client.register_job(ring(size=9))
    assert error.value.about == {"jobId": "ring", "heldBy": "caller"}, "as a program gets it"
    assert client.get_job("ring").spec == before.spec


def test_a_message_over_the_size_limit_exhausts_resources() -> None:
    endpoints = tuple(f"10.{n // 250}.{n % 250}.1" for n in range(250))
    with running_api(max_message_bytes=2048) as api, Client(api.addresses[0]) as client:
        with pytest.raises(Exhausted, match="bytes; this is more than the controller accepts"):
            client.register_job(ring(endpoints=endpoints))
        assert client.list_jobs() == ()


def test_a_control_loop_that_does_not_answer_is_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "ANSWER_S", 0.05)
    inbox: queue.Queue[Any] = queue.Queue()
    server = ApiServer(ApiConfig(listen=("127.0.0.1:0",)), StatusBoard(), inbox.put, TOKENS)
    try:
        (address,) = server.start()
        with Client(address) as client, pytest.raises(Unreachable, match="did not answer in time"):
            client.renew_lease("ring")
        assert not inbox.get_nowait().reply.cancelled()
        with grpc.insecure_channel(address) as channel:
            stub: Any = pb_grpc.JobServiceStub(channel)  # type: ignore[no-untyped-call]
            error = refused(partial(_without_deadline, stub.RenewLease), pb.RenewLeaseRequest(job_id="ring"))
        assert (error.code(), reason(error)) == (grpc.StatusCode.DEADLINE_EXCEEDED, "TOO_SLOW")
    finally:
        server.stop(0)


def test_every_error_of_the_client_has_the_reason(api: Running) -> None:
    with Client(api.addresses[0]) as client, Client(api.addresses[0]) as other:
        client.register_job(ring())
        for call, kind, why in (
            (lambda: client.get_job(""), InvalidInput, "INVALID_FIELD"),
            (lambda: client.get_job("nobody"), NotFound, "NO_SUCH_JOB"),
            (lambda: other.renew_lease("ring"), WrongLeaseToken, "WRONG_LEASE_TOKEN"),
            (lambda: other.register_job(ring()), AlreadyExists, "JOB_EXISTS"),
            (lambda: other.register_job(ring("other")), Conflict, "CONFLICT"),
            (lambda: client.report_connections("ring", H1, ()), NotAnnounced, "CONNECTIONS_NOT_ANNOUNCED"),
            (lambda: client.report_iterations("ring", [IterationTime(666, 1.0, 1.0)]), SignalboxError, "INTERNAL"),
        ):
            with pytest.raises(kind) as error:
                call()
            assert (type(error.value), error.value.reason) == (kind, why)
        assert client.get_job("ring").iterations == 0, "the server goes on after a defect"


def test_an_exhausted_controller_says_what_is_exhausted(client: Client, jobs: Any) -> None:
    for n in range(3):
        client.register_job(ring(f"job{n}", (f"10.0.{n}.1", f"10.0.{n}.2")))
    error = refused(jobs.RegisterJob, pb.RegisterJobRequest(spec=message(endpoints=["10.0.3.1", "10.0.3.2"])))
    assert (error.code(), reason(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
    (violation,) = detail(error, error_details_pb2.QuotaFailure).violations
    assert (violation.subject, violation.description) == ("controller", error.details())


@pytest.mark.parametrize(("method", "streams"), [
    ("grpc.health.v1.Health/Check", False), ("grpc.health.v1.Health/Watch", True),
    ("signalbox.v1.JobService/WatchJobs", True),
])  # fmt: skip
def test_bytes_that_are_no_message_are_an_invalid_argument_and_not_in_the_log(
    channel: grpc.Channel, caplog: pytest.LogCaptureFixture, method: str, streams: bool
) -> None:
    """The module ``test_roles`` sends such bytes to every method."""
    call: Any = channel.unary_stream(f"/{method}") if streams else channel.unary_unary(f"/{method}")
    error = refused((lambda *given, **more: next(call(*given, **more))) if streams else call, b"\x0a\xff\xff")
    assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert "not a message of" in error.details()
    assert not caplog.records


def test_a_method_that_there_is_not_is_refused_with_details(channel: grpc.Channel) -> None:
    for path in ("/signalbox.v1.JobService/Steal", "/signalbox.v2.JobService/GetJob", "/"):
        error = refused(channel.unary_unary(path), b"\x0a\xff")
        assert (error.code(), reason(error)) == (grpc.StatusCode.UNIMPLEMENTED, "NO_SUCH_METHOD")


def test_reflection_refuses_bytes_that_are_no_message(channel: grpc.Channel, caplog: pytest.LogCaptureFixture) -> None:
    path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    listing = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    call: Any = channel.stream_stream(path)
    answers = call(iter((listing, b"\x0a\xff\xff")), timeout=60)
    assert next(answers)
    error = refused(lambda _, **__: next(answers), None)
    assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert not caplog.records


def test_metadata_that_is_not_utf8_is_not_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "api.sock"
    call = raw.call(b"/signalbox.v1.ControllerService/GetStatus", b"", (b"authorization", b"Bearer secret\xff"))
    with running_api(f"unix:{path}"):
        assert raw.send_raw(str(path), raw.Raw("", "", call), 20) == "OK"
    assert not caplog.records


def test_only_the_active_controller_answers_what_it_knows_about_jobs(api: Running, jobs: Any) -> None:
    token = jobs.RegisterJob(pb.RegisterJobRequest(spec=message()), timeout=60).lease_token
    api.control.board.is_active = lambda: False
    for method, request in (
        (jobs.GetJob, pb.GetJobRequest(job_id="ring")),
        (jobs.GetJob, pb.GetJobRequest(job_id="nobody")),
        (jobs.ListJobs, pb.ListJobsRequest()),
        (jobs.RegisterJob, pb.RegisterJobRequest(spec=message())),
        (jobs.UpdateJob, pb.UpdateJobRequest(spec=message(job_id="nobody"), lease_token=token)),
        (jobs.DeregisterJob, pb.DeregisterJobRequest(job_id="nobody", force=True)),
    ):
        error = refused(method, request)
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert detail(error, error_details_pb2.ErrorInfo).reason == "NO_LEADER"
    renewed, call = jobs.RenewLease.with_call(pb.RenewLeaseRequest(job_id="ring", lease_token=token), timeout=60)
    assert renewed.lease_left.seconds
    assert MAY_BE_REPLACED in dict(call.trailing_metadata())


def test_only_the_active_controller_acknowledges_what_an_operator_changes(api: Running, controller: Any) -> None:
    """Another controller may be active, and may have undone a change that is in force here, such as a drain."""
    present = pb.SetModeRequest(mode=controller.SetMode(pb.SetModeRequest(mode=pb.MODE_ECMP), timeout=60).mode)
    api.control.board.is_active = lambda: False
    for method, request in (
        (controller.SetMode, present),
        (controller.Drain, pb.DrainRequest(names=["spine1"])),
        (controller.SilenceAlarms, pb.SilenceAlarmsRequest(kind=pb.ALARM_KIND_SWITCH_DOWN)),
        (controller.EndSilence, pb.EndSilenceRequest(kind=pb.ALARM_KIND_SWITCH_DOWN)),
    ):
        assert reason(refused(method, request)) == "NO_LEADER"


def test_a_server_of_grpc_that_has_ended_by_itself_is_an_error() -> None:
    """The guard of the thread then stops the process: an unreachable API must not look like a running one."""

    class Ended:
        async def wait_for_termination(self) -> None:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "what grpcio 1.85.1 ends with")

    async def waits() -> None:
        await server._wait_for_stop([Ended()])  # type: ignore[list-item]

    server = ApiServer(ApiConfig(), StatusBoard(), lambda _: None, TOKENS)
    with pytest.raises(UnicodeDecodeError):
        asyncio.run(waits())
    server.stop()


def test_calls_are_timed_by_method_and_by_the_code_of_the_client(
    api: Running, channel: grpc.Channel, jobs: Any
) -> None:
    jobs.RegisterJob(pb.RegisterJobRequest(spec=message()), timeout=60)
    refused(jobs.GetJob, pb.GetJobRequest(job_id="nobody"))
    refused(jobs.RegisterJob, pb.RegisterJobRequest())
    refused(channel.unary_unary("/signalbox.v1.JobService/NoSuchMethod"), b"")
    wanted = {("RegisterJob", "OK"), ("GetJob", "NOT_FOUND"), ("RegisterJob", "INVALID_ARGUMENT")}
    wanted.add(("other", "UNIMPLEMENTED"))
    until(lambda: wanted <= api.control.board.call_times.keys(), "the counts")
    methods = {method for method, _ in api.control.board.call_times}
    assert methods == {"GetJob", "RegisterJob", "other"}, "a client cannot make series by inventing methods"
