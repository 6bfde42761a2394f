"""Clients that change one job at the same time, through gRPC: no change is lost."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.rpc import error_details_pb2

from controller.api import convert
from controller.jobs.messages import UpdateJob
from signalbox.client import Client
from signalbox.jobs.spec import JobSpec
from signalbox.spec_messages import spec_message
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from tests.support.waiting import in_parallel
from tests.support.wire.api_calls import detail, refused, ring
from tests.support.wire.control_stand_in import H1, H2, Running

ROUNDS = 25


def both_ways(there: int = 1, back: int = 1) -> JobSpec:
    transfers = [
        {"src": 0, "dst": 1, "bytes_per_iteration": there},
        {"src": 1, "dst": 0, "bytes_per_iteration": back},
    ]
    return JobSpec.parse({"job_id": "both", "endpoints": [H1, H2], "transfers": transfers, "lease_s": 30})


def test_every_answer_with_the_job_has_its_revision(client: Client) -> None:
    def everywhere() -> set[int]:
        watched = client.watch_jobs()
        found = {client.get_job("ring").revision, client.list_jobs()[0].revision, next(watched).jobs[0].revision}
        watched.close()
        return found

    assert client.register_job(ring()).job.revision == 1
    assert everywhere() == {1}
    assert client.update_job(ring(size=2000)).revision == 2
    assert everywhere() == {2}
    assert client.update_jobs([ring(size=3000)])[0].revision == 3
    assert everywhere() == {3}
    assert client.register_job(ring(size=3000)).job.revision == 3


def test_a_stale_revision_is_aborted_and_says_what_it_is_now(api: Running, client: Client) -> None:
    token = client.register_job(ring()).lease_token
    client.update_job(ring(size=2000))
    entry = pb.UpdateJobRequest(spec=spec_message(ring(size=3000)), lease_token=token, revision=1)
    masked = pb.UpdateJobRequest(update_mask=FieldMask(paths=["collectives"]))
    masked.MergeFrom(entry)
    with grpc.insecure_channel(api.addresses[0]) as channel:
        jobs = pb_grpc.JobServiceStub(channel)  # type: ignore[no-untyped-call]
        for call, request, place in (
            (jobs.UpdateJob, entry, {}),
            (jobs.UpdateJob, masked, {}),
            (jobs.UpdateJobs, pb.UpdateJobsRequest(jobs=[entry]), {"field": "jobs[0]"}),
        ):
            error = refused(call, request)
            info = detail(error, error_details_pb2.ErrorInfo)
            assert (error.code(), info.reason) == (grpc.StatusCode.ABORTED, "CONCURRENT_UPDATE")
            assert dict(info.metadata) == {"jobId": "ring", "revision": "2", **place}
            assert client.get_job("ring").spec.collectives[0].bytes_per_iteration == 2000
        entry.revision = 2
        assert jobs.UpdateJob(entry, timeout=60).job.revision == 3
        assert jobs.UpdateJob(entry, timeout=60).job.revision == 3, "a repetition is no error"


def test_two_clients_that_read_change_and_write_lose_nothing(api: Running, client: Client) -> None:
    token = client.register_job(both_ways()).lease_token

    def changing(place: int) -> None:
        def one_more(before: JobSpec) -> JobSpec:
            sizes = [transfer.bytes_per_iteration for transfer in before.transfers]
            sizes[place] += 1
            return both_ways(*sizes)

        with Client(api.addresses[0], timeout_s=60) as own:
            for _ in range(ROUNDS):
                own.change_job("both", one_more, token)

    in_parallel(2, changing)
    job = client.get_job("both")
    assert [transfer.bytes_per_iteration for transfer in job.spec.transfers] == [1 + ROUNDS, 1 + ROUNDS]
    assert job.revision == 1 + 2 * ROUNDS


def test_an_update_of_some_fields_that_was_overtaken_is_sent_again(
    api: Running, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client changes the job between the read and the update, three times."""
    uid = client.register_job(ring()).job.uid
    updated_spec, sizes = convert.updated_spec, [9, 10, 11]

    def late(request: pb.UpdateJobRequest, current: JobSpec) -> JobSpec:
        merged = updated_spec(request, current)
        if sizes:
            api.control.registry.update([UpdateJob(ring(size=sizes.pop(0)), owner=uid)])
            api.control.publish()
        return merged

    monkeypatch.setattr(convert, "updated_spec", late)
    client.update_job(ring(lease_s=77), fields=["lease_s"])
    job = client.get_job("ring")
    assert (job.spec.lease.seconds, job.spec.collectives[0].bytes_per_iteration, job.revision) == (77, 11, 5)
