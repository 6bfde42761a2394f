"""Jobs updated through gRPC: several by one request, and one by several clients, which lose no change."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.rpc import error_details_pb2

from signalbox.client import Client
from signalbox.errors import Conflict, Exhausted, InvalidInput, NotFound, SignalboxError, WrongLeaseToken
from signalbox.jobs.spec import JobSpec
from signalbox.mapping import spec_message
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.captured_logs import captured_logs
from tests.support.waiting import in_parallel
from tests.support.wire.api_calls import detail, refused, ring, violations
from tests.support.wire.control_stand_in import H1, H2, Running, running_api
from tests.wire.test_roles import client as client_of
from tests.wire.test_roles import tokens_file

NEAR, FAR = (H1, H2), ("10.0.8.1", "10.0.9.1")


@pytest.fixture
def two(api: Running) -> Iterator[Client]:
    """Yield a client that has registered job a on the hosts ``NEAR``, and job b on the hosts ``FAR``."""
    with Client(api.addresses[0]) as client:
        client.register_job(ring("a", NEAR))
        client.register_job(ring("b", FAR))
        yield client


def specs(two: Client) -> dict[str, pb.JobSpec]:
    return {job.spec.job_id: job.spec for job in two.list_jobs()}


def endpoints(two: Client) -> list[tuple[str, ...]]:
    return [tuple(job.spec.endpoints) for job in two.list_jobs()]


def test_each_entry_has_its_own_mask(two: Client, jobs: Any) -> None:
    def entry(spec: JobSpec, *fields: str) -> pb.UpdateJobRequest:
        token = two._tokens[spec.job_id]
        return pb.UpdateJobRequest(spec=spec_message(spec), update_mask=FieldMask(paths=fields), lease_token=token)

    changed = jobs.UpdateJobs(
        pb.UpdateJobsRequest(jobs=[entry(ring("a", FAR, size=7), "endpoints"), entry(ring("b", NEAR, size=7))]),
        timeout=60,
    )
    sizes = [job.spec.collectives[0].bytes_per_iteration for job in changed.jobs]
    assert ([tuple(job.spec.endpoints) for job in changed.jobs], sizes) == ([FAR, NEAR], [1000, 7])


def test_a_refused_request_names_the_entry_and_the_field_and_changes_nothing(two: Client, jobs: Any) -> None:
    before = specs(two)
    other = two.register_job(ring("other", ("10.0.6.1", "10.0.7.1"))).job
    a, b, taken = ring("a", FAR), ring("b", NEAR), ring("b", tuple(other.spec.endpoints))
    wrong: list[tuple[type[SignalboxError], str, list[JobSpec], dict[str, str]]] = [
        (Conflict, r"^jobs\[1\]: job 'b' cannot announce .*: job 'other' announces it", [a, taken], {}),
        (WrongLeaseToken, r"^jobs\[1\]: the lease token is not", [a, b], {"b": "none"}),
        (NotFound, r"^jobs\[0\]: there is no job 'x'", [ring("x", FAR), b], {}),
        (InvalidInput, r"^jobs\[2\]\.job_id: 'a' is also in jobs\[0\]", [a, b, a], {}),
        (InvalidInput, "^jobs: is missing", [], {}),
        (InvalidInput, r"^jobs: at most 256 are allowed \(given: 257\)", [a] * 257, {}),
    ]
    for kind, text, wanted, tokens in wrong:
        with pytest.raises(kind, match=text) as error:
            two.update_jobs(wanted, lease_tokens=tokens)
        assert error.value.about.get("field", "") == (
            "" if kind is InvalidInput else str(error.value).partition(":")[0]
        )
        assert {name: spec for name, spec in specs(two).items() if name != "other"} == before
    transfers = [pb.Transfer(src=0, dst=dst, bytes_per_iteration=1) for dst in (1, 1, 1, 9)]
    changed = spec_message(a), pb.JobSpec(job_id="b", endpoints=NEAR, transfers=transfers)
    entries = [pb.UpdateJobRequest(spec=spec, lease_token=two._tokens[spec.job_id]) for spec in changed]
    invalid = refused(jobs.UpdateJobs, pb.UpdateJobsRequest(jobs=entries))
    assert set(violations(invalid)) == {"jobs[1].spec.transfers[3].dst"}
    entries[1].update_mask.paths.append("colour")
    invalid = refused(jobs.UpdateJobs, pb.UpdateJobsRequest(jobs=entries))
    assert set(violations(invalid)) == {"jobs[1].update_mask.paths[0]"}
    entries[1].ClearField("spec")
    assert violations(refused(jobs.UpdateJobs, pb.UpdateJobsRequest(jobs=entries))) == {"jobs[1].spec": "is missing"}


def test_specs_with_too_many_virtual_links_in_all_are_refused_before_these_are_made(two: Client) -> None:
    """A small request may stand for millions of virtual links."""
    hosts = [f"10.{a}.{b}.1" for a in range(2) for b in range(105)]
    many: dict[str, Any] = {
        "groups": [{"name": "dp", "ranks": range(len(hosts))}],
        "collectives": [{"algorithm": "all_to_all", "groups": ["dp"], "bytes_per_iteration": 1_000_000}],
    }
    large = [ring(name, tuple(hosts), **many) for name in "ab"]
    with pytest.raises(
        InvalidInput, match=r"^jobs: the jobs make 87780 virtual links; at most 8192 are allowed in one"
    ):
        two.update_jobs(large)


def test_a_request_counts_as_so_many_calls() -> None:
    with running_api(max_client_calls_per_s=20) as api, Client(api.addresses[0]) as client:
        client.register_job(ring("a", NEAR))
        entries = [ring("a", NEAR)] * 200
        with pytest.raises(InvalidInput, match="is also in"):
            client.update_jobs(entries)
        with pytest.raises(Exhausted, match="exceeded the limit of 20 calls per second"):
            client.get_job("a")


def test_an_operator_changes_jobs_of_several_tenants_and_a_tenant_its_own_only(tmp_path: Path) -> None:
    with (
        running_api(tokens=tokens_file(tmp_path)) as api,
        client_of(api, tmp_path, "blue") as blue,
        client_of(api, tmp_path, "red") as red,
        client_of(api, tmp_path, "operator") as operator,
    ):
        tokens = {
            "a": blue.register_job(ring("a", NEAR)).lease_token,
            "b": red.register_job(ring("b", FAR)).lease_token,
        }
        swap = [ring("a", FAR), ring("b", NEAR)]
        with captured_logs() as lines, pytest.raises(NotFound, match=r"^jobs\[1\]: there is no job 'b'"):
            blue.update_jobs(swap, lease_tokens=tokens)
        refused_lines = [line for line in lines if line["event"] == "audit" and line.get("method") == "UpdateJobs"]
        assert [(line["job_id"], line["code"], line["why"]) for line in refused_lines] == [
            (job_id, "NOT_FOUND", "the job belongs to another tenant") for job_id in "ab"
        ]
        assert endpoints(operator) == [NEAR, FAR]
        with captured_logs() as lines:
            operator.update_jobs(swap, lease_tokens=tokens)
        done = [line for line in lines if line["event"] == "audit"]
        assert [(line["method"], line["job_id"], line["code"]) for line in done] == [
            ("UpdateJobs", job_id, "OK") for job_id in "ab"
        ]
        assert not any(token in str(lines) for token in tokens.values())
        assert endpoints(operator) == [FAR, NEAR]
        assert [job.tenant for job in operator.list_jobs()] == ["blue", "red"]


ROUNDS = 25


def both_ways(there: int = 1, back: int = 1) -> JobSpec:
    transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": there}, {"src": 1, "dst": 0, "bytes_per_iteration": back}]
    return JobSpec.parse({"job_id": "both", "endpoints": [H1, H2], "transfers": transfers, "lease_s": 30})


def test_a_stale_revision_is_aborted_and_says_what_it_is_now(client: Client, jobs: Any) -> None:
    token = client.register_job(ring()).lease_token
    client.update_job(ring(size=2000))
    entry = pb.UpdateJobRequest(spec=spec_message(ring(size=3000)), lease_token=token, revision=1)
    masked = pb.UpdateJobRequest(update_mask=FieldMask(paths=["collectives"]))
    masked.MergeFrom(entry)
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
