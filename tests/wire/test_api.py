"""The real server and client over loopback and a Unix socket, in front of a stand-in control loop."""

from __future__ import annotations

import asyncio
import itertools
import queue
import socket
import stat
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from benchmarks.api_requests import raw
from controller.api import convert, guard
from controller.api.client import Client, Unreachable
from controller.api.lease_tokens import LeaseTokens
from controller.api.mapping import message_of, seconds
from controller.api.pb.signalbox.v1 import signalbox_pb2 as pb
from controller.api.pb.signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from controller.api.server import ApiServer
from controller.config import ApiConfig, Strategy
from controller.errors import AlreadyExists, Conflict, Exhausted, InvalidInput, NotFound, SignalboxError
from controller.jobs.messages import Connected, IterationTime
from controller.jobs.spec import JobSpec
from controller.planning.problem import FlowId
from controller.status import StatusBoard
from tests.support.wire.control_stand_in import BACK, H1, H2, VIA_SPINE, Running, running_api

TOKENS = LeaseTokens.of(None)


def ring(job_id: str = "ring", endpoints: tuple[str, ...] = (H1, H2), size: int = 1000, **more: Any) -> JobSpec:
    return JobSpec.parse(
        {
            "job_id": job_id,
            "endpoints": endpoints,
            "groups": [{"name": "dp", "ranks": range(len(endpoints))}],
            "collectives": [{"algorithm": "ring_all_reduce", "groups": ["dp"], "bytes_per_iteration": size}],
            "lease_s": 30,
            **more,
        }
    )


def message(**changes: Any) -> pb.JobSpec:
    fields: dict[str, Any] = {
        "job_id": "ring",
        "endpoints": [H1, H2],
        "groups": [pb.ParallelGroup(name="dp", ranks=[0, 1])],
        "collectives": [pb.Collective(algorithm=pb.ALGORITHM_RING_ALL_REDUCE, groups=["dp"], bytes_per_iteration=1000)],
    }
    return pb.JobSpec(**{**fields, **changes})


@pytest.fixture
def api() -> Iterator[Running]:
    with running_api() as running:
        yield running


@pytest.fixture
def client(api: Running) -> Iterator[Client]:
    with Client(api.addresses[0]) as client:
        yield client


@pytest.fixture
def channel(api: Running) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(api.addresses[0]) as channel:
        yield channel


@pytest.fixture
def jobs(channel: grpc.Channel) -> Any:
    """The generated stub, for requests that the typed client cannot make."""
    return pb_grpc.JobServiceStub(channel)  # type: ignore[no-untyped-call]


def refused(stub_method: Any, request: Any) -> grpc.Call:
    with pytest.raises(grpc.RpcError) as error:
        stub_method(request, timeout=20)
    assert isinstance(error.value, grpc.Call)
    return error.value


def _without_deadline(stub_method: Any, request: Any, timeout: float) -> Any:
    del timeout
    return stub_method(request)


def violations(error: grpc.Call) -> dict[str, str]:
    details = detail(error, error_details_pb2.BadRequest)
    return {violation.field: violation.description for violation in details.field_violations}


def detail(error: grpc.Call, kind: Any) -> Any:
    """The status's detail of that kind."""
    (found,) = (packed for packed in rpc_status.from_call(error).details if packed.Is(kind.DESCRIPTOR))
    unpacked = kind()
    assert found.Unpack(unpacked)
    return unpacked


def reason(error: grpc.Call) -> str:
    info = detail(error, error_details_pb2.ErrorInfo)
    assert info.domain == "signalbox"
    return str(info.reason)


# ---- jobs


def test_a_registered_job_is_described_and_listed(client: Client) -> None:
    job = client.register_job(ring()).job
    assert (job.spec.job_id, job.state, job.virtual_links, job.pinned) == ("ring", pb.JOB_STATE_ECMP, 2, 0)
    assert 25 < job.lease_left.seconds + 1 <= 30
    assert client.get_job("ring").spec == job.spec
    assert [j.spec.job_id for j in client.list_jobs()] == ["ring"]


def test_registering_the_same_spec_again_is_no_error_and_one_job(client: Client) -> None:
    client.register_job(ring())
    client.register_job(ring())
    assert len(client.list_jobs()) == 1


def test_hosts_that_are_not_found_leave_the_job_pending_and_are_named(client: Client) -> None:
    job = client.register_job(ring(endpoints=(H1, "10.0.8.8", "10.0.9.9"))).job
    assert job.state == pb.JOB_STATE_PENDING
    assert list(job.missing_hosts) == ["10.0.8.8", "10.0.9.9"]


def test_another_spec_under_a_taken_id_already_exists(client: Client) -> None:
    client.register_job(ring())
    with pytest.raises(AlreadyExists, match="another spec"):
        client.register_job(ring(size=2000))


def test_a_taken_pair_is_a_failed_precondition_naming_both_jobs(client: Client) -> None:
    client.register_job(ring("first"))
    with pytest.raises(Conflict, match=r"'second' cannot announce 10\.0\.1\.1 > 10\.0\.2\.1: job 'first'"):
        client.register_job(ring("second"))


def test_too_many_jobs_exhaust_the_controller(client: Client) -> None:
    for n in range(3):
        client.register_job(ring(f"job{n}", (f"10.0.{n}.1", f"10.0.{n}.2")))
    with pytest.raises(Exhausted, match="3 jobs"):
        client.register_job(ring("job3", ("10.0.3.1", "10.0.3.2")))


def test_leases_are_renewed_and_jobs_deregistered(client: Client) -> None:
    client.register_job(ring())
    assert client.renew_lease("ring") == 30.0
    client.deregister_job("ring")
    assert client.list_jobs() == ()


def test_an_update_changes_the_fields_that_it_names(client: Client) -> None:
    before = client.register_job(ring()).job
    job = client.update_job(ring(size=7, max_subflows=4, lease_s=99), ["max_subflows", "lease_s"])
    expected = pb.JobSpec()
    expected.CopyFrom(before.spec)
    expected.max_subflows, expected.lease.seconds = 4, 99
    assert job.spec == expected == client.get_job("ring").spec
    assert client.update_job(ring(size=7)).spec == convert.spec_message(ring(size=7))
    with pytest.raises(NotFound):
        client.update_job(ring("nobody"))
    with pytest.raises(InvalidInput, match=r"update_mask.paths\[0\]: JobSpec has no field 'colour'; choose '\*'"):
        client.update_job(ring(), ["colour"])


def test_an_update_takes_no_pair_of_another_job(client: Client) -> None:
    client.register_job(ring("first"))
    client.register_job(ring("second", (H1, "10.0.8.8")))
    with pytest.raises(Conflict, match="'second' cannot announce"):
        client.update_job(ring("second", (H1, H2)))
    assert list(client.get_job("second").spec.endpoints) == [H1, "10.0.8.8"]


def test_unknown_jobs_are_not_found(client: Client) -> None:
    for call in (client.get_job, client.renew_lease, client.deregister_job, lambda job: next(client.watch_routes(job))):
        with pytest.raises(NotFound, match="there is no job 'nobody'"):
            call("nobody")
    with pytest.raises(NotFound):
        client.report_iterations("nobody", [IterationTime(0, 2.0, 1.0)])


def test_an_error_that_repeats_a_long_name_still_fits_into_a_status(client: Client) -> None:
    with pytest.raises(NotFound, match="there is no job 'xxx"):
        client.get_job("x" * 100_000)


def test_reported_iterations_become_measured_efficiency(client: Client) -> None:
    client.register_job(ring())
    client.report_iterations("ring", [IterationTime(0, 2.0, 0.5), IterationTime(1, 2.0, 1.5)])
    job = client.get_job("ring")
    assert (job.iterations, seconds(job.last_communication)) == (2, 1.5)
    assert job.efficiency_measured == pytest.approx(0.5)


def test_times_that_are_no_times_are_refused(client: Client) -> None:
    client.register_job(ring())
    with pytest.raises(InvalidInput) as error:
        client.report_iterations(
            "ring", [IterationTime(0, 1.0, 1.0), IterationTime(1, float("nan"), -1.0), IterationTime(2, 1.0, 1.5)]
        )
    assert [p.path for p in error.value.problems] == [
        "iterations[1].duration",
        "iterations[1].communication",
        "iterations[2].communication",
    ]


def test_reported_connections_come_back_with_the_routes(api: Running, client: Client) -> None:
    client.register_job(ring(reports_connections=True))
    client.report_connections("ring", H1, [Connected(H1, 40000, H2, 50000)])
    flow = FlowId(H1, H2, "ring")
    api.control.set_route(flow, VIA_SPINE)
    route = next(route for route in next(client.watch_routes("ring")).routes if route.src == H1)
    (subflow,) = route.subflows
    assert [(c.src, c.src_port, c.dst, c.dst_port) for c in subflow.connections] == [(H1, 40000, H2, 50000)]


def test_connections_that_cannot_be_are_refused_field_by_field(client: Client) -> None:
    client.register_job(ring(reports_connections=True))
    with pytest.raises(InvalidInput) as error:
        client.report_connections("ring", H1, [Connected(H2, 1, H1, 70000)])
    paths = [problem.path for problem in error.value.problems]
    assert paths == ["connections[0].src", "connections[0].dst_port"]
    assert "a connection that it accepted has its own port as src_port" in str(error.value)
    with pytest.raises(InvalidInput, match="cannot be connected with itself"):
        client.report_connections("ring", H1, [Connected(H1, 1, H1, 2)])
    with pytest.raises(InvalidInput, match="address: is missing"):
        client.report_connections("ring", "", [Connected(H1, 1, H2, 2)])
    with pytest.raises(InvalidInput, match=r"10\.9\.9\.9 is not an address of job 'ring'"):
        client.report_connections("ring", "10.9.9.9", [])


def test_connections_of_a_job_that_does_not_report_them_are_refused(client: Client) -> None:
    client.register_job(ring())
    with pytest.raises(Conflict, match="reports_connections"):
        client.report_connections("ring", H1, [])


def test_two_clients_see_the_same_jobs(api: Running, client: Client) -> None:
    with Client(api.addresses[0]) as other:
        client.register_job(ring())
        assert other.get_job("ring").spec == client.get_job("ring").spec
        other.deregister_job("ring", force=True)
    assert client.list_jobs() == ()


# ---- pages


def test_jobs_are_listed_in_pages_ordered_by_id(client: Client, jobs: Any) -> None:
    for n in (2, 0, 1):
        client.register_job(ring(f"job{n}", (f"10.0.{n}.1", f"10.0.{n}.2")))
    assert [job.spec.job_id for job in client.list_jobs()] == ["job0", "job1", "job2"]
    assert [job.spec.job_id for job in client.list_jobs(page_size=1)] == ["job0", "job1", "job2"]
    first = jobs.ListJobs(pb.ListJobsRequest(page_size=2), timeout=20)
    assert [job.spec.job_id for job in first.jobs] == ["job0", "job1"]
    client.deregister_job("job1")
    rest = jobs.ListJobs(pb.ListJobsRequest(page_size=2, page_token=first.next_page_token), timeout=20)
    assert ([job.spec.job_id for job in rest.jobs], rest.next_page_token) == (["job2"], "")


@pytest.mark.parametrize(
    ("request_", "field"),
    [(pb.ListJobsRequest(page_size=-1), "page_size")]
    + [(pb.ListJobsRequest(page_token=token), "page_token") for token in ("job1", "\u00e9", "YWZ0ZXI6", "====")],
)
def test_a_page_that_cannot_be_is_an_invalid_argument(jobs: Any, request_: pb.ListJobsRequest, field: str) -> None:
    error = refused(jobs.ListJobs, request_)
    assert (error.code(), set(violations(error))) == (grpc.StatusCode.INVALID_ARGUMENT, {field})


# ---- wrong requests


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
        "spec.job_id",
        "spec.endpoints[1]",
        "spec.groups[0].ranks",
        "spec.collectives[0].algorithm",
        "spec.collectives[0].bytes_per_iteration",
    }
    assert "ALGORITHM_RING_ALL_REDUCE" in found["spec.collectives[0].algorithm"]
    assert all(f"{path}: " in error.details() for path in found)


@pytest.mark.parametrize("size", [0, -1, 1 << 51])
def test_bytes_out_of_range_are_refused(jobs: Any, size: int) -> None:
    collective = pb.Collective(algorithm=pb.ALGORITHM_ALL_TO_ALL, groups=["dp"], bytes_per_iteration=size)
    error = refused(jobs.RegisterJob, pb.RegisterJobRequest(spec=message(collectives=[collective])))
    assert set(violations(error)) == {"spec.collectives[0].bytes_per_iteration"}


def test_an_empty_request_names_what_is_missing(jobs: Any) -> None:
    error = refused(jobs.RegisterJob, pb.RegisterJobRequest())
    assert set(violations(error)) == {"spec"}
    error = refused(jobs.RegisterJob, pb.RegisterJobRequest(spec={}))
    assert set(violations(error)) == {"spec.job_id", "spec.endpoints"}


@pytest.mark.parametrize("endpoint", ["10.0.0.1", "nonsense"])
def test_a_hundred_thousand_endpoints_are_refused(jobs: Any, endpoint: str) -> None:
    spec = message(endpoints=[endpoint] * 100_000)
    error = refused(jobs.RegisterJob, pb.RegisterJobRequest(spec=spec))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "endpoints" in error.details()


def test_a_flood_of_problems_is_listed_in_part_and_counted(jobs: Any) -> None:
    spec = message(endpoints=["host\u00e9" * 30] * 4000)
    error = refused(jobs.RegisterJob, pb.RegisterJobRequest(spec=spec))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert 1 < len(violations(error)) <= 17
    assert error.details().endswith("more")


@pytest.mark.parametrize(
    "spec",
    [
        message(groups=[pb.ParallelGroup(name=f"g{n}", ranks=[0, 1] * 400) for n in range(1000)]),
        message(
            groups=[pb.ParallelGroup(name=f"group{n}", ranks=[0, 1]) for n in range(4096)],
            collectives=[
                pb.Collective(algorithm=pb.ALGORITHM_BROADCAST, groups=["?"] * 4096, bytes_per_iteration=1)
                for _ in range(256)
            ],
        ),
        message(
            groups=[pb.ParallelGroup(name=f"group{n}", ranks=[0, 1]) for n in range(4096)],
            collectives=[
                pb.Collective(algorithm=pb.ALGORITHM_BROADCAST, groups=["?"] * 250, bytes_per_iteration=1)
                for _ in range(256)
            ],
        ),
        message(transfers=[pb.Transfer(src=5, dst=5, bytes_per_iteration=-1)] * 65_536),
        message(transfers=[pb.Transfer(src=5, dst=5, bytes_per_iteration=1)] * 65_536),
        message(transfers=[pb.Transfer()] * 65_537),
        message(rails=[pb.Rail(endpoints=["?"] * 4096)] * 7),
        message(rails=[pb.Rail()] * 100_000),
    ],
    ids=[
        "many ranks",
        "many group names",
        "many unknown group names",
        "many wrong transfers",
        "many transfers without rank",
        "too many transfers",
        "many wrong addresses",
        "many rails",
    ],
)
def test_long_lists_of_short_things_are_refused(jobs: Any, spec: pb.JobSpec) -> None:
    error = refused(jobs.RegisterJob, pb.RegisterJobRequest(spec=spec))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_refused_request_leaves_running_jobs_alone(client: Client, jobs: Any) -> None:
    before = client.register_job(ring()).job
    refused(jobs.RegisterJob, pb.RegisterJobRequest(spec=message(endpoints=[])))
    with pytest.raises(AlreadyExists):
        client.register_job(ring(size=9))
    assert client.get_job("ring").spec == before.spec


def test_a_message_over_the_size_limit_exhausts_resources() -> None:
    with running_api(max_message_bytes=2048) as api, grpc.insecure_channel(api.addresses[0]) as channel:
        stub: Any = pb_grpc.JobServiceStub(channel)  # type: ignore[no-untyped-call]
        error = refused(stub.RegisterJob, pb.RegisterJobRequest(spec=message(endpoints=[H1] * 250)))
        assert (error.code(), reason(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
        assert "the controller accepts 2,048 (api.max_message_bytes)" in (error.details() or "")
        assert detail(error, error_details_pb2.QuotaFailure).violations
        assert stub.ListJobs(pb.ListJobsRequest(), timeout=20).jobs == []


def test_a_message_that_grpc_itself_refuses_is_told_in_similar_words() -> None:
    endpoints = tuple(f"10.{n // 250}.{n % 250}.1" for n in range(500))
    with (
        running_api(max_message_bytes=2048) as api,
        Client(api.addresses[0]) as client,
        pytest.raises(Exhausted, match="bytes; the controller does not accept so many"),
    ):
        client.register_job(ring(endpoints=endpoints))


def test_a_defect_is_internal_and_the_server_goes_on(client: Client) -> None:
    client.register_job(ring())
    with pytest.raises(SignalboxError, match="INTERNAL: internal error"):
        client.report_iterations("ring", [IterationTime(666, 1.0, 1.0)])
    assert client.get_job("ring").iterations == 0


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


# ---- status details


def test_every_refusal_has_its_reason(jobs: Any) -> None:
    spec = message()
    jobs.RegisterJob(pb.RegisterJobRequest(spec=spec), timeout=20)
    for method, request, code, why in (
        (jobs.RegisterJob, pb.RegisterJobRequest(), grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"),
        (jobs.GetJob, pb.GetJobRequest(job_id="nobody"), grpc.StatusCode.NOT_FOUND, "NO_SUCH_JOB"),
        (
            jobs.RegisterJob,
            pb.RegisterJobRequest(spec=message(max_subflows=2)),
            grpc.StatusCode.ALREADY_EXISTS,
            "JOB_EXISTS",
        ),
        (
            jobs.RegisterJob,
            pb.RegisterJobRequest(spec=message(job_id="other")),
            grpc.StatusCode.FAILED_PRECONDITION,
            "CONFLICT",
        ),
        (
            jobs.ReportIterations,
            pb.ReportIterationsRequest(
                job_id="ring", iterations=[message_of(pb.Iteration, IterationTime(666, 1.0, 1.0))]
            ),
            grpc.StatusCode.INTERNAL,
            "INTERNAL",
        ),
    ):
        error = refused(method, request)
        assert (error.code(), reason(error)) == (code, why)


def test_an_exhausted_controller_says_what_is_exhausted(client: Client, jobs: Any) -> None:
    for n in range(3):
        client.register_job(ring(f"job{n}", (f"10.0.{n}.1", f"10.0.{n}.2")))
    error = refused(jobs.RegisterJob, pb.RegisterJobRequest(spec=message(endpoints=["10.0.3.1", "10.0.3.2"])))
    assert (error.code(), reason(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
    (violation,) = detail(error, error_details_pb2.QuotaFailure).violations
    assert (violation.subject, violation.description) == ("controller", error.details())


METHODS = [
    (f"/{service.full_name}/{method.name}", method.server_streaming)
    for file in (pb.DESCRIPTOR, health_pb2.DESCRIPTOR)
    for service in file.services_by_name.values()
    for method in service.methods
    if not method.client_streaming and method.name != "List"
]


@pytest.mark.parametrize(("method", "streams"), METHODS, ids=[name for name, _ in METHODS])
def test_bytes_that_are_no_message_are_an_invalid_argument_and_not_in_the_log(
    channel: grpc.Channel, caplog: pytest.LogCaptureFixture, method: str, streams: bool
) -> None:
    call: Any = channel.unary_stream(method) if streams else channel.unary_unary(method)
    error = refused((lambda *given, **more: next(call(*given, **more))) if streams else call, b"\x0a\xff\xff")
    assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert "no message of" in error.details()
    assert not caplog.records


def test_a_method_that_there_is_not_is_refused_with_details(channel: grpc.Channel) -> None:
    for path in ("/signalbox.v1.JobService/Steal", "/signalbox.v2.JobService/GetJob", "/"):
        error = refused(channel.unary_unary(path), b"\x0a\xff")
        assert (error.code(), reason(error)) == (grpc.StatusCode.UNIMPLEMENTED, "UNSPECIFIED")


def test_reflection_refuses_bytes_that_are_no_message(channel: grpc.Channel, caplog: pytest.LogCaptureFixture) -> None:
    path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    listing = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    call: Any = channel.stream_stream(path)
    answers = call(iter((listing, b"\x0a\xff\xff")), timeout=20)
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


def test_a_server_of_grpc_that_has_ended_by_itself_is_an_error() -> None:
    """The thread's guard then stops the process: an API that nobody can reach must not look like one that runs."""

    class Ended:
        async def wait_for_termination(self) -> None:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "what grpcio 1.85.1 ends with")

    async def waits() -> None:
        ticking = asyncio.create_task(asyncio.sleep(3600))
        await server._stopped(ticking, Ended())  # type: ignore[arg-type]

    server = ApiServer(ApiConfig(), StatusBoard(), lambda _: None, TOKENS)
    with pytest.raises(UnicodeDecodeError):
        asyncio.run(waits())
    server.stop()


# ---- watching


def test_watching_sends_the_routes_now_and_on_each_change_and_ends_with_the_job(api: Running, client: Client) -> None:
    client.register_job(ring())
    watch = client.watch_routes("ring")
    first = next(watch)
    assert [(r.src, r.dst, r.pinned) for r in first.routes] == [(H1, H2, False), (H2, H1, False)]

    api.control.set_route(FlowId(H1, H2), VIA_SPINE)
    second = next(watch)
    assert second.generation > first.generation
    assert list(second.routes[0].switches) == ["leaf1", "spine1", "leaf2"]
    assert not second.routes[1].pinned

    client.deregister_job("ring")
    with pytest.raises(NotFound, match="job 'ring' was deregistered"):
        next(watch)


def test_what_does_not_change_the_routes_is_not_sent(api: Running, client: Client) -> None:
    client.register_job(ring())
    watch = client.watch_routes("ring")
    generation = next(watch).generation
    client.report_iterations("ring", [IterationTime(0, 1.0, 1.0)])
    client.renew_lease("ring")
    api.control.set_route(FlowId(H2, H1), BACK)
    assert next(watch).generation == generation + 1
    watch.close()


def test_a_reader_who_falls_behind_ends_up_with_the_newest_routes(api: Running, client: Client) -> None:
    client.register_job(ring())
    watch = client.watch_routes("ring")
    next(watch)
    for _ in range(200):
        api.control.set_route(FlowId(H1, H2), VIA_SPINE)
    generations = [response.generation for response in itertools.takewhile(lambda r: r.generation < 201, watch)]
    assert generations == sorted(set(generations))
    watch.close()


def test_a_watcher_is_told_that_the_controller_stops(
    api: Running, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.register_job(ring())
    watch = client.watch_routes("ring")
    next(watch)
    api.server.stop(5.0)
    with pytest.raises(Unreachable, match="the controller is stopping"):
        next(watch)
    assert not caplog.records


def test_a_call_that_the_stop_ends_says_when_to_come_again(api: Running, channel: grpc.Channel, client: Client) -> None:
    client.register_job(ring())
    stub: Any = pb_grpc.JobServiceStub(channel)  # type: ignore[no-untyped-call]
    watch = stub.WatchRoutes(pb.WatchRoutesRequest(job_id="ring"))
    next(watch)
    api.server.stop(5.0)
    with pytest.raises(grpc.RpcError):
        next(watch)
    assert (watch.code(), reason(watch)) == (grpc.StatusCode.UNAVAILABLE, "STOPPING")
    assert seconds(detail(watch, error_details_pb2.RetryInfo).retry_delay) > 0


def test_watchers_that_leave_are_forgotten(api: Running, client: Client) -> None:
    client.register_job(ring())
    watches = [client.watch_routes("ring") for _ in range(5)]
    for watch in watches:
        next(watch)
        watch.close()
    deadline = time.monotonic() + 20
    while api.control.board._listeners and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert not api.control.board._listeners


# ---- operators


def test_the_fabric_is_described_with_names_rates_and_hosts(client: Client) -> None:
    fabric = client.get_fabric()
    assert fabric.generation == 7
    assert [(s.name, s.in_sync, s.rules, s.foreign_rules) for s in fabric.switches] == [
        ("leaf1", True, 12, 1),
        ("leaf2", False, 0, 0),
        ("spine1", False, 0, 0),
    ]
    link = fabric.links[0]
    assert (link.name, link.capacity_bps, link.rate_bps, link.background_bps) == ("leaf1:1>spine1", 5e6, 4e6, 1e6)
    assert [(h.ip, h.mac, h.switch, h.at.port) for h in fabric.hosts] == [
        (H1, "02:00:00:00:01:01", "leaf1", 2),
        (H2, "", "leaf2", 2),
    ]


def test_a_plan_is_absent_until_there_is_one_then_certified_and_routed(client: Client) -> None:
    assert client.get_plan() is None
    client.register_job(ring())
    outcome = client.replan()
    assert (outcome.outcome, outcome.reason) == (pb.REPLAN_OUTCOME_ADOPTED, "better")
    plan = client.get_plan()
    assert plan is not None
    assert plan == outcome.plan
    assert (plan.max_level, plan.bound, plan.gap, plan.installed) == (1.25, 1.0, 0.25, True)
    assert plan.certificate == pb.CERTIFICATE_GAP
    assert [(r.job_id, list(r.route.switches)) for r in plan.routes] == [
        ("ring", ["leaf1", "spine1", "leaf2"]),
        ("ring", ["leaf2", "spine1", "leaf1"]),
    ]
    assert list(plan.unrouted) == [pb.Pair(src=H1, dst="10.0.9.9")]


def test_the_strategy_is_set_and_shown(client: Client) -> None:
    done = client.set_strategy(Strategy.SHADOW)
    assert (done.strategy, seconds(done.install_time), done.pins) == (pb.STRATEGY_SHADOW, 0.25, 4)
    status = client.get_status()
    assert (status.strategy, status.switches, status.links, status.hosts) == (pb.STRATEGY_SHADOW, 3, 4, 2)
    (alarm,) = status.alarms
    assert (alarm.kind, alarm.severity) == (pb.ALARM_KIND_FOREIGN_RULES, pb.SEVERITY_WARNING)
    assert (alarm.subject, alarm.text) == ("spine1", "spine1 holds 2 foreign rules")


def test_no_strategy_is_an_invalid_argument(channel: grpc.Channel) -> None:
    stub: Any = pb_grpc.ControllerServiceStub(channel)  # type: ignore[no-untyped-call]
    assert set(violations(refused(stub.SetStrategy, pb.SetStrategyRequest()))) == {"strategy"}


# ---- standard services


def test_health_is_serving_then_not_serving_while_stopping(api: Running, channel: grpc.Channel) -> None:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    for name in ("", "signalbox.v1.JobService", "signalbox.v1.ControllerService"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=20)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=""))
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    stopper = threading.Thread(target=api.server.stop, args=(5.0,))
    stopper.start()
    assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert list(watch) == []
    watch.cancel()
    stopper.join()


def test_reflection_lists_and_describes_the_services(channel: grpc.Channel) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="signalbox.v1.JobService"),
    ]
    listed, described = stub.ServerReflectionInfo(iter(requests), timeout=20)
    names = {service.name for service in listed.list_services_response.service}
    assert {"signalbox.v1.JobService", "signalbox.v1.ControllerService", "grpc.health.v1.Health"} <= names
    assert described.file_descriptor_response.file_descriptor_proto


# ---- addresses


def test_both_a_port_and_a_unix_socket_serve(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with running_api("127.0.0.1:0", f"unix:{path}") as api:
        assert api.addresses[1] == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with Client(api.addresses[0]) as tcp, Client(api.addresses[1]) as unix:
            tcp.register_job(ring())
            assert unix.get_job("ring").spec.job_id == "ring"
    assert not path.exists()


def test_the_directory_of_a_socket_is_made(tmp_path: Path) -> None:
    with running_api(f"unix:{tmp_path}/run/signalbox/api.sock") as api, Client(api.addresses[0]) as client:
        assert client.list_jobs() == ()


def test_a_directory_that_cannot_be_made_is_an_error_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    server = ApiServer(ApiConfig(listen=(f"unix:{tmp_path}/file/api.sock",)), StatusBoard(), lambda _: None, TOKENS)
    with pytest.raises(OSError, match=f"cannot make {tmp_path}/file for the API's socket: "):
        server.start()
    server.stop()


def test_a_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    with running_api(f"unix:{path}") as api, Client(api.addresses[0]) as client:
        assert client.list_jobs() == ()


def test_a_living_server_keeps_its_socket(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'api.sock'}"
    with running_api(address), Client(address) as client:
        second = ApiServer(ApiConfig(listen=(address,)), StatusBoard(), lambda _: None, TOKENS)
        with pytest.raises(OSError, match="another process does"):
            second.start()
        second.stop()
        assert client.list_jobs() == ()


def test_a_file_that_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("keep me")
    server = ApiServer(ApiConfig(listen=(f"unix:{path}",)), StatusBoard(), lambda _: None, TOKENS)
    with pytest.raises(OSError, match="not a socket"):
        server.start()
    server.stop()
    assert path.read_text() == "keep me"


def test_a_taken_port_is_an_error_at_start(api: Running) -> None:
    second = ApiServer(ApiConfig(listen=(api.addresses[0],)), StatusBoard(), lambda _: None, TOKENS)
    with pytest.raises(OSError, match=f"cannot listen on {api.addresses[0]}: Address already in use"):
        second.start()
    second.stop()


def test_stopping_a_server_that_never_started_is_nothing() -> None:
    ApiServer(ApiConfig(), StatusBoard(), lambda _: None, TOKENS).stop()


def test_nobody_at_the_address_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with Client(address) as client, pytest.raises(Unreachable) as error:
            client.get_status()
        expected = f"no answer from the controller at {address}: no process listens there; is the controller running?"
        assert str(error.value) == expected
