"""Specs, and details of refused calls, for the tests of the API."""

from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from signalbox.jobs.spec import JobSpec
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.wire.control_stand_in import H1, H2


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


def numbered_job(number: int, **more: Any) -> JobSpec:
    """Return a job that sends between two hosts of its own."""
    hosts = (f"10.{number}.0.1", f"10.{number}.0.2")
    transfers = [{"src": 0, "dst": 1, "bytes_per_iteration": 1_000_000}]
    return JobSpec.parse({"job_id": f"job{number}", "endpoints": hosts, "transfers": transfers, **more})


def message(**changes: Any) -> pb.JobSpec:
    fields: dict[str, Any] = {
        "job_id": "ring",
        "endpoints": [H1, H2],
        "groups": [pb.ParallelGroup(name="dp", ranks=[0, 1])],
        "collectives": [pb.Collective(algorithm=pb.ALGORITHM_RING_ALL_REDUCE, groups=["dp"], bytes_per_iteration=1000)],
    }
    return pb.JobSpec(**{**fields, **changes})


def refused(stub_method: Any, request: Any) -> grpc.Call:
    with pytest.raises(grpc.RpcError) as error:
        stub_method(request, timeout=60)
    assert isinstance(error.value, grpc.Call)
    return error.value


def violations(error: grpc.Call) -> dict[str, str]:
    details = detail(error, error_details_pb2.BadRequest)
    return {violation.field: violation.description for violation in details.field_violations}


def detail(error: grpc.Call, kind: Any) -> Any:
    (found,) = (packed for packed in rpc_status.from_call(error).details if packed.Is(kind.DESCRIPTOR))
    unpacked = kind()
    assert found.Unpack(unpacked)
    return unpacked


def reason(error: grpc.Call) -> str:
    info = detail(error, error_details_pb2.ErrorInfo)
    assert info.domain == "signalbox"
    return str(info.reason)
