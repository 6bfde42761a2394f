"""Slow answers: others are answered meanwhile, one answer to many clients is encoded once, and a stuck call ends.

The tests of deadlines include new methods."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from controller.api import convert, convert_fabric, convert_plan, guard, watches
from controller.api.long_work import SMALL
from controller.api.services import Services
from controller.planning.problem import FlowId
from signalbox import mapping
from signalbox.client import Client
from signalbox.jobs.spec import JobSpec
from signalbox.v1 import signalbox_pb2 as pb
from tests.support.waiting import DEADLINE_S, beside
from tests.support.wire.control_stand_in import H1, VIA_SPINE, running_api


class Held:
    """Stand-in for a function that makes an answer: it counts its calls, and returns when the test lets it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.calls = 0
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, *args: Any, **more: Any) -> Any:
        self.calls += 1
        self.begun.set()
        assert self.may_end.wait(DEADLINE_S)
        return self._function(*args, **more)


def large_job(job_id: str = "large") -> JobSpec:
    """Return a job with more virtual links than are converted at once."""
    endpoints = [f"10.0.{n // 250}.{n % 250 + 1}" for n in range(SMALL + 1)]
    transfers = [{"src": n, "dst": n + 1, "bytes_per_iteration": 1} for n in range(SMALL)]
    transfers.append({"src": SMALL, "dst": 0, "bytes_per_iteration": 1})
    return JobSpec.parse({"job_id": job_id, "endpoints": endpoints, "transfers": transfers})


@pytest.mark.parametrize(("module", "function", "call"), [
    (convert_plan, "plan_bytes", Client.get_plan),
    (convert_fabric, "fabric_message", Client.get_fabric),
    (convert_plan, "replan_bytes", Client.replan),
    (convert, "jobs_bytes", Client.list_jobs),
    (mapping, "job_spec", lambda client: client.register_job(large_job("another"), take_over=True)),
    (convert, "job_message", lambda client: client.get_job("large")),
    (convert, "updated_spec", lambda client: client.update_job(large_job(), ["lease_s"])),
])  # fmt: skip
def test_others_are_answered_meanwhile(
    module: Any, function: str, call: Callable[[Client], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_api() as api, Client(api.addresses[0]) as client, Client(api.addresses[0]) as other:
        client.register_job(large_job())
        if function == "job_spec":
            client.deregister_job("large")
        client.replan()
        held = Held(getattr(module, function))
        monkeypatch.setattr(module, function, held)
        answer = beside(call, client)
        assert held.begun.wait(DEADLINE_S)
        assert other.get_status().switches == 3
        assert not answer.done()
        held.may_end.set()
        answer.result(DEADLINE_S)


def test_the_conversion_of_a_request_is_no_part_of_the_time_of_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    limits, timeout = [], asyncio.timeout

    def recorded(seconds: float | None) -> asyncio.Timeout:
        limit = timeout(seconds)
        if seconds == guard.ANSWER_S:
            limits.append(limit)
        return limit

    monkeypatch.setattr(guard, "ANSWER_S", 1234.5)
    monkeypatch.setattr(asyncio, "timeout", recorded)
    with running_api() as api, Client(api.addresses[0]) as client:
        held = Held(mapping.job_spec)
        monkeypatch.setattr(mapping, "job_spec", held)
        answer = beside(client.register_job, large_job())
        assert held.begun.wait(DEADLINE_S)
        assert [limit.when() for limit in limits] == [None]
        held.may_end.set()
        answer.result(DEADLINE_S)
    assert limits[0].when() is not None


def test_a_plan_is_encoded_once_until_something_of_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_api() as api, Client(api.addresses[0]) as client:
        client.replan()
        held = Held(convert_plan.plan_bytes)
        held.may_end.set()
        monkeypatch.setattr(convert_plan, "plan_bytes", held)
        plans = [client.get_plan() for _ in range(5)]
        assert held.calls == 1
        assert all(plan == plans[0] for plan in plans)
        client.replan()
        before = held.calls
        client.get_plan()
        assert held.calls == before + 1


def test_the_routes_of_a_large_job_are_encoded_once_for_all_watchers(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_api() as api, Client(api.addresses[0]) as client:
        job = client.register_job(large_job()).job
        held = Held(watches._encoded)
        monkeypatch.setattr(watches, "_encoded", held)
        answers = [beside(next, client.watch_routes("large")) for _ in range(8)]
        assert held.begun.wait(DEADLINE_S)
        assert client.get_status().switches == 3
        held.may_end.set()
        assert [len(answer.result(DEADLINE_S).routes) for answer in answers] == [job.virtual_links] * 8
        assert held.calls == 1
        api.control.set_route(FlowId(H1, "10.0.0.2"), VIA_SPINE)
        next(message for message in client.watch_routes("large") if message.generation == 2)
        calls = held.calls
        assert next(client.watch_routes("large")).generation == 2
        assert held.calls == calls


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
