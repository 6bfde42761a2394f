"""Calls and watches over loopback: the real server and client in front of a stand-in control loop."""

import itertools
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2

from controller.api import watches
from controller.planning.problem import FlowId
from signalbox.client import Client, Unreachable
from signalbox.errors import Conflict, InvalidInput, NotFound
from signalbox.jobs.reports import Connected, IterationTime
from signalbox.mapping import seconds
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.waiting import DEADLINE_S, beside
from tests.support.wire.api_calls import detail, reason, refused, ring, violations
from tests.support.wire.control_stand_in import BACK, H1, H2, VIA_SPINE, Running, running_api


def test_an_error_that_repeats_a_long_name_still_fits_into_a_status(client: Client) -> None:
    with pytest.raises(NotFound, match="there is no job 'xxx"):
        client.get_job("x" * 100_000)


def test_numbers_that_are_none_are_refused_by_their_fields(client: Client) -> None:
    given: Any
    for given in (-1, 2**64, 1.5):
        with pytest.raises(InvalidInput) as error:
            client.report_iterations("ring", [IterationTime(0, 1.0, 1.0), IterationTime(given, 1.0, 1.0)], "token")
        expected = f"iterations[1].index: must be a whole number from 0 to 2^64 - 1 (given: {given})"
        assert str(error.value) == expected
    with pytest.raises(InvalidInput, match=r"^connections\[0\]\.dst_port: must be a whole number .* \(given: -1\)$"):
        client.report_connections("ring", H1, [Connected(H1, 1000, H2, -1)], "token")


def test_reported_connections_come_back_with_the_routes(api: Running, client: Client) -> None:
    client.register_job(ring(reports_connections=True))
    client.report_connections("ring", H1, [Connected(H1, 40000, H2, 50000)])
    flow = FlowId(H1, H2, "ring")
    api.control.set_route(flow, VIA_SPINE)
    routes = (route for message in client.watch_routes("ring") for route in message.routes)
    (subflow,) = next(route for route in routes if route.pinned).subflows
    assert [(c.src, c.src_port, c.dst, c.dst_port) for c in subflow.connections] == [(H1, 40000, H2, 50000)]


def test_connections_that_cannot_be_are_refused_field_by_field(client: Client) -> None:
    client.register_job(ring(reports_connections=True))
    with pytest.raises(InvalidInput) as error:
        client.report_connections("ring", H1, [Connected(H2, 1, H1, 70000)])
    paths = [problem.path for problem in error.value.problems]
    assert paths == ["connections[0].src", "connections[0].dst_port"]
    assert "for a connection that this host accepted, src_port is the port of this host" in str(error.value)
    with pytest.raises(InvalidInput, match="must be another host than src"):
        client.report_connections("ring", H1, [Connected(H1, 1, H1, 2)])
    with pytest.raises(InvalidInput, match="address: is missing"):
        client.report_connections("ring", "", [Connected(H1, 1, H2, 2)])
    with pytest.raises(InvalidInput, match=r"10\.9\.9\.9 is not an address of job 'ring'"):
        client.report_connections("ring", "10.9.9.9", [])


def test_each_connection_that_is_not_the_jobs_is_named_by_its_place(client: Client) -> None:
    client.register_job(ring(reports_connections=True))
    elsewhere = [Connected(H1, port, "10.9.9.9" if port in (3, 5) else H2, port) for port in range(1, 7)]
    with pytest.raises(InvalidInput) as error:
        client.report_connections("ring", H1, elsewhere)
    assert [str(problem) for problem in error.value.problems] == [
        f"connections[{place}].dst: 10.9.9.9 is not an address of job 'ring'" for place in (2, 4)
    ]
    client.register_job(ring("other", reports_connections=True))
    client.report_connections("other", H2, [Connected(H2, port, H1, port) for port in (6, 2)])
    with pytest.raises(Conflict, match=r"^connections\[1\]: .* job 'other' has reported it \(connections taken: 2\)$"):
        client.report_connections("ring", H1, [Connected(H1, port, H2, port) for port in range(1, 7)])


def test_jobs_are_listed_in_pages_ordered_by_id(client: Client, jobs: Any) -> None:
    for n in (2, 0, 1):
        client.register_job(ring(f"job{n}", (f"10.0.{n}.1", f"10.0.{n}.2")))
    assert [job.spec.job_id for job in client.list_jobs()] == ["job0", "job1", "job2"]
    assert [job.spec.job_id for job in client.list_jobs(page_size=1)] == ["job0", "job1", "job2"]
    first = jobs.ListJobs(pb.ListJobsRequest(page_size=2), timeout=60)
    assert [job.spec.job_id for job in first.jobs] == ["job0", "job1"]
    client.deregister_job("job1")
    rest = jobs.ListJobs(pb.ListJobsRequest(page_size=2, page_token=first.next_page_token), timeout=60)
    assert ([job.spec.job_id for job in rest.jobs], rest.next_page_token) == (["job2"], "")


def test_a_page_that_cannot_be_is_an_invalid_argument(jobs: Any) -> None:
    tokens = [pb.ListJobsRequest(page_token=token) for token in ("job1", "\u00e9", "YWZ0ZXI6", "====")]
    for request in (pb.ListJobsRequest(page_size=-1), *tokens):
        error = refused(jobs.ListJobs, request)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert set(violations(error)) == {"page_token" if request.page_token else "page_size"}


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


def test_routes_of_a_job_from_before_a_restart_wait_for_the_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The switches may hold pins of the job, so the API does not report its flows as hashed."""
    monkeypatch.setattr(watches, "time", SimpleNamespace(time=lambda: time.time() + 60))
    with running_api() as api, Client(api.addresses[0]) as client:
        api.control.routes_generation = 0
        api.control.status = replace(api.control.status, adopting=True)
        client.register_job(ring())
        first = beside(next, client.watch_routes("ring"))
        client.register_job(ring("other", endpoints=("10.0.9.1", "10.0.9.2")))
        client.get_status()  # answered after everything that was ready before
        assert not first.done()
        api.control.set_route(FlowId(H1, H2), VIA_SPINE)
        found = first.result(DEADLINE_S)
    assert [(r.src, r.pinned) for r in found.routes] == [(H1, True), (H2, False)]


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


def test_a_call_that_the_stop_ends_says_when_to_retry(
    api: Running, jobs: Any, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.register_job(ring())
    watch, of_client = jobs.WatchRoutes(pb.WatchRoutesRequest(job_id="ring")), client.watch_routes("ring")
    assert next(watch).routes == next(of_client).routes
    api.server.stop(5.0)
    with pytest.raises(grpc.RpcError):
        next(watch)
    assert (watch.code(), reason(watch)) == (grpc.StatusCode.UNAVAILABLE, "STOPPING")
    assert seconds(detail(watch, error_details_pb2.RetryInfo).retry_delay) > 0
    with pytest.raises(Unreachable, match="the controller is stopping"):
        next(of_client)
    assert not caplog.records


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
    assert [(h.ip, h.mac, h.switch_name, h.at.port) for h in fabric.hosts] == [
        (H1, "02:00:00:00:01:01", "leaf1", 2),
        (H2, "", "leaf2", 2),
    ]


def test_no_mode_is_an_invalid_argument(controller: Any) -> None:
    assert set(violations(refused(controller.SetMode, pb.SetModeRequest()))) == {"mode"}
