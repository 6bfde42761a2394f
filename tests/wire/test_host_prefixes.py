"""Hosts of tenants, through gRPC: the hosts that a listed tenant may name, and a new list while a job runs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2

from signalbox.client import Client
from signalbox.errors import HostNotAllowed
from signalbox.mapping import spec_message
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from tests.support.captured_logs import captured_logs
from tests.support.wire.api_calls import detail, refused, ring
from tests.support.wire.control_stand_in import H1, H2, Running, running_api
from tests.wire.test_roles import client, of, tokens_file

OURS = (H1, H2)
FOREIGN = (H1, "10.0.3.1")
RAILS = [{"endpoints": ["10.0.1.2", "10.0.3.2"]}]


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Running]:
    hosts = '\n[[tenant]]\nname = "blue"\nhost_prefixes = ["10.0.1.0/24", "10.0.2.1"]\n'
    with running_api(tokens=tokens_file(tmp_path, hosts), socket_role="none") as api:
        yield api


@pytest.fixture
def blue(api: Running, tmp_path: Path) -> Iterator[Client]:
    with client(api, tmp_path, "blue") as blue:
        yield blue


CHANGES: dict[str, Callable[[Client], object]] = {
    "RegisterJob": lambda blue: blue.register_job(ring("new", FOREIGN)),
    "RegisterJob, a rail": lambda blue: blue.register_job(ring("new", OURS, rails=RAILS)),
    "RegisterJob, take_over": lambda blue: blue.register_job(ring("ring", FOREIGN), lease_token="", take_over=True),
    "UpdateJob": lambda blue: blue.update_job(ring("ring", FOREIGN)),
    "UpdateJob, a field": lambda blue: blue.update_job(ring("ring", FOREIGN), ["endpoints"]),
    "UpdateJob, a rail": lambda blue: blue.update_job(ring("ring", OURS, rails=RAILS), ["rails"]),
    "UpdateJobs": lambda blue: blue.update_jobs([ring("ring", FOREIGN)]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_job_names_a_host_of_others(blue: Client, change: str) -> None:
    blue.register_job(ring("ring", OURS))
    before = [(job.uid, job.revision) for job in blue.list_jobs()]
    foreign = "10.0.3.2" if "rail" in change else FOREIGN[1]
    allowed = "its hosts are 10.0.1.0/24, 10.0.2.1/32"
    with pytest.raises(HostNotAllowed, match=f"names {foreign}, which tenant 'blue' may not use: {allowed}") as error:
        CHANGES[change](blue)
    assert error.value.reason == "HOST_NOT_ALLOWED"
    assert error.value.about["host"] == foreign
    assert [(job.uid, job.revision) for job in blue.list_jobs()] == before


def test_a_refusal_is_a_status_for_programs_and_a_line_of_the_audit_log(api: Running) -> None:
    request = pb.RegisterJobRequest(spec=spec_message(ring("new", FOREIGN)))
    with grpc.insecure_channel(api.addresses[0]) as channel, captured_logs() as lines:
        register: Any = pb_grpc.JobServiceStub(channel).RegisterJob  # type: ignore[no-untyped-call]
        error = refused(lambda *args, **more: register(*args, metadata=of("blue"), **more), request)
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    info = detail(error, error_details_pb2.ErrorInfo)
    assert (info.reason, dict(info.metadata)) == ("HOST_NOT_ALLOWED", {"jobId": "new", "host": FOREIGN[1]})
    (line,) = [line for line in lines if line["event"] == "audit"]
    assert (line["name"], line["method"], line["code"]) == ("blue", "RegisterJob", "PERMISSION_DENIED")
    assert FOREIGN[1] in line["why"]
