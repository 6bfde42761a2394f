"""Every call except streams ends by itself, whatever deadline its client has set; the tests include new methods."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from controller.api import guard
from controller.api.services import Services
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.wire.control_stand_in import running_api

UNARY = {
    method.name: method
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if not method.server_streaming
}
HUGE_S = 1e9


def about_a_job(request: Any) -> Any:
    """Fill in the job of a request, because a request without a job is refused before its handler runs."""
    for about in (request, request.spec) if "spec" in request.DESCRIPTOR.fields_by_name else (request,):
        if "job_id" in about.DESCRIPTOR.fields_by_name:
            about.job_id = "job"
    if "jobs" in request.DESCRIPTOR.fields_by_name:
        request.jobs.add().spec.job_id = "job"
    return request


@pytest.mark.parametrize("timeout_s", [None, HUGE_S])
def test_a_handler_that_never_answers_is_ended(monkeypatch: pytest.MonkeyPatch, timeout_s: float | None) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    for name in UNARY:
        monkeypatch.setattr(Services, name, never)
    for limit in ("ANSWER_S", "INSTALL_S", "ANALYSIS_S"):
        monkeypatch.setattr(guard, limit, 0.05)
    found = {}
    with running_api() as api, grpc.insecure_channel(api.addresses[0]) as channel:
        for name, method in UNARY.items():
            call: Any = channel.unary_unary(f"/{method.containing_service.full_name}/{name}")
            with pytest.raises(grpc.RpcError) as error:
                call(about_a_job(GetMessageClass(method.input_type)()).SerializeToString(), timeout=timeout_s)
            ended: Any = error.value
            found[name] = ended.code().name, ended.details()
    expected = "DEADLINE_EXCEEDED", "the controller did not answer in time"
    assert found == dict.fromkeys(UNARY, expected)
