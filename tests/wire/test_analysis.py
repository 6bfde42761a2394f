"""``explain`` and ``what-if`` from the command to the worker process, over the real server."""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from controller import answerer
from controller.answerer import Answerer
from controller.api.convert_analysis import what_if_message
from controller.api.convert_explain import explain_message
from controller.api.lease_tokens import LeaseTokens
from controller.api.server import ApiServer
from controller.config import ApiConfig
from controller.core.messages import Message
from controller.fabric.topology import Fabric
from controller.planning.analysis.analyse import analyse
from controller.planning.analysis.failures import analyse_failures
from controller.planning.analysis.job import analyse_job
from controller.planning.analysis.requests import (
    AnalyseFailures,
    AnalyseJob,
    AnalysisRequest,
    FabricNames,
    GetPlanProof,
    Network,
    ProveRoutes,
    Question,
    WhatIf,
)
from controller.planning.problem import PlanLimits, Problem, whole
from controller.planning.verify import read, verify
from controller.status import StatusBoard
from signalbox.cli import main
from signalbox.client import Client
from signalbox.commands.output import fields
from signalbox.errors import Conflict, InvalidInput, NotFound, SignalboxError
from signalbox.jobs.spec import JobId
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from signalbox.words import FailureKind
from tests.support.planning.fabrics import RATE, flow, leaf_spine, pinned, problem_of
from tests.support.waiting import until

Signalbox = Callable[..., tuple[int, str, str]]


def a_network() -> Network:
    """Return a network where jobs a and b meet on the first of two spines."""
    fabric: Fabric = leaf_spine(2, 2)
    problem: Problem = problem_of(fabric, [flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 2), (2, 2), RATE)])
    problem = pinned(problem, {f.id: whole(problem.candidates(f)[0]) for f in problem.flows})
    return Network(problem, fabric, fabric, PlanLimits(), FabricNames(fabric))


@dataclass
class Loop:
    """Stand-in for the control loop; it runs analyses in this process that the loop would send to another process."""

    network: Network = field(default_factory=a_network)
    messages: list[Message] = field(default_factory=list)

    def put(self, message: Message) -> None:
        self.messages.append(message)
        assert isinstance(message, Question)
        try:
            message.reply.set_result(analyse(self.request(message)))
        except SignalboxError as error:
            message.reply.set_exception(error)

    def request(self, message: Question) -> AnalysisRequest:
        if isinstance(message, GetPlanProof):
            return ProveRoutes(self.network)
        if isinstance(message, WhatIf):
            return AnalyseFailures(self.network, message.kinds, message.top, message.within_s)
        if message.job_id == "late":
            raise Conflict("job 'late' waits for 10.0.9.9")
        return AnalyseJob(self.network, message.job_id, efficiency_measured=0.3)


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def address(loop: Loop) -> Iterator[str]:
    server = ApiServer(ApiConfig(listen=("127.0.0.1:0",)), StatusBoard(), loop.put, LeaseTokens.of(None))
    try:
        yield server.start()[0]
    finally:
        server.stop(grace_s=0.2)


@pytest.fixture
def signalbox(address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Signalbox:
    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["signalbox", *map(str, arguments), "--address", address])
        with pytest.raises(SystemExit) as stopped:
            main()
        return int(stopped.value.code or 0), *capsys.readouterr()

    return run


def test_an_analysis_of_a_job_arrives_unchanged(signalbox: Signalbox, loop: Loop) -> None:
    status, out, _ = signalbox("explain", "a", "--json")
    assert status == 0
    found = analyse_job(AnalyseJob(loop.network, JobId("a"), efficiency_measured=0.3))
    assert out == json.dumps(fields(explain_message(found)), indent=2) + "\n"
    assert list(json.loads(out)) == list(pb.ExplainResponse.DESCRIPTOR.fields_by_name)


def test_people_read_sentences_first(signalbox: Signalbox) -> None:
    status, out, _ = signalbox("explain", "a")
    assert status == 0
    said = " ".join(out.split())
    assert said.startswith("The network slows job 'a': its communication takes up to 2.00 times as long")
    assert "Routing can gain 50%" in said
    assert "The measured efficiency is 30.0%, the predicted efficiency 50.0%" in said


def test_an_analysis_of_failures_arrives_unchanged(signalbox: Signalbox, loop: Loop) -> None:
    status, out, _ = signalbox("what-if", "--fail", "cables", "--top", 1, "--within", 30, "--json")
    assert status == 0
    found = analyse_failures(AnalyseFailures(loop.network, frozenset({FailureKind.CABLE}), 1, 30.0))
    assert json.loads(out) == fields(what_if_message(found))
    (message,) = loop.messages
    assert isinstance(message, WhatIf)
    assert (message.kinds, message.top, message.within_s) == (frozenset({FailureKind.CABLE}), 1, 30.0)


def test_the_proof_of_the_routes_arrives_as_a_file(signalbox: Signalbox, tmp_path: Path) -> None:
    file = tmp_path / "proof.json"
    status, out, _ = signalbox("plan", "--proof", file)
    assert (status, out) == (0, "There is no plan yet.\n")
    assert verify(read(file)) == ("worst slowdown 2, at least 1 with any routes; 0 of 2 slowdowns proven", 0)


def test_all_failures_are_analysed_unless_kinds_are_chosen(address: str, loop: Loop) -> None:
    with Client(address) as client:
        assert client.what_if().failures > 4
    (message,) = loop.messages
    assert isinstance(message, WhatIf)
    assert (message.kinds, message.top, message.within_s) == (frozenset(FailureKind), None, 60.0)


@pytest.mark.parametrize(
    ("job", "error", "message"),
    [
        ("nobody", NotFound, "there is no job 'nobody'; jobs: a, b"),
        ("late", Conflict, "job 'late' waits for 10.0.9.9"),
    ],
)
def test_what_cannot_be_explained_is_an_error(
    address: str, signalbox: Signalbox, job: str, error: type[SignalboxError], message: str
) -> None:
    with Client(address) as client, pytest.raises(error, match=message):
        client.explain(job)
    status, _, err = signalbox("explain", job)
    assert (status, err.strip()) == (5 if error is NotFound else 8, f"error: {message}")


def test_an_analysis_that_clients_would_not_wait_for_is_refused(address: str) -> None:
    with Client(address) as client, pytest.raises(InvalidInput, match="within: must be more than 0 and at most 120"):
        client.what_if(within_s=1e9)


@pytest.mark.parametrize("option", [("--scheme", "ecmp"), ("--time-limit", "3"), ("--leaves", "4")])
def test_options_of_offline_analyses_need_a_workload(signalbox: Signalbox, option: tuple[str, str]) -> None:
    status, _, err = signalbox("explain", "a", *option)
    assert status == 2
    assert "needs a --workload" in " ".join(err.split())


@contextmanager
def working(*given: Any) -> Iterator[Answerer]:
    worker = Answerer(*given)
    try:
        yield worker
    finally:
        worker.stop(timeout_s=60)


def ready(worker: Answerer) -> Any:
    """Return the process of the worker that waits for a request."""
    until(lambda: worker._ready is not None)
    assert worker._ready
    return worker._ready.process


def test_the_worker_process_gives_the_same_results_and_errors(loop: Loop) -> None:
    replies: list[Future[Any]] = [Future(), Future()]
    requests = [AnalyseJob(loop.network, JobId(job), None) for job in ("a", "nobody")]
    expected = analyse_job(requests[0])  # before a thread sends it: shared objects are filled in later
    with working(analyse) as worker:
        for request, reply in zip(requests, replies, strict=True):
            worker.submit(request, reply)
        assert replies[0].result(timeout=60) == expected
        with pytest.raises(NotFound, match="there is no job 'nobody'; jobs: a, b"):
            replies[1].result(timeout=60)


class Endless:
    """Request that no process ever finishes: it sleeps where it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return time.sleep, (10_000,)


def test_a_request_that_is_cancelled_holds_up_no_other(loop: Loop) -> None:
    endless: Any = Endless()
    given_up: list[Future[Any]] = [Future() for _ in range(20)]
    wanted: Future[Any] = Future()
    request = AnalyseJob(loop.network, JobId("a"), None)
    with working(analyse) as worker:
        for number, reply in enumerate(given_up):
            worker.submit(endless, reply)
            if number:
                reply.cancel()  # the request waits behind the first one
        until(lambda: not worker._waiting or given_up[0] is not worker._waiting[0][1])
        worker.submit(request, wanted)
        given_up[0].cancel()
        assert wanted.result(timeout=60) == analyse_job(request)


def test_a_running_analysis_is_ended_when_the_controller_stops() -> None:
    worker = Answerer(analyse)
    endless: Any = Endless()
    worker.submit(endless, Future())
    until(lambda: not worker._waiting)
    worker.stop(timeout_s=60)
    assert not worker._thread.is_alive()


def test_a_process_answers_one_request_after_the_other_while_it_is_small() -> None:
    with working(process_number, Path.cwd) as worker:
        pid = ready(worker).pid
        assert [answered(worker, None) for _ in range(3)] == [pid] * 3
        large = answered(worker, answerer.KEPT_BYTES)
        assert large == pid
        assert answered(worker, None) != large
    assert not worker._thread.is_alive()


def test_a_request_to_a_process_that_does_not_read_can_be_cancelled() -> None:
    given_up: Future[Any] = Future()
    with working(process_number, Path.cwd) as worker:
        stopped = ready(worker).pid
        assert stopped
        os.kill(stopped, signal.SIGSTOP)
        worker.submit(bytes(10 << 20), given_up)
        until(lambda: worker._ready is None)
        given_up.cancel()
        assert answered(worker, None) != stopped


def test_a_process_goes_on_after_an_error() -> None:
    with working(process_number) as worker:
        first = answered(worker, None)
        with pytest.raises(SignalboxError, match="the analysis failed"):
            answered(worker, "no number")
        assert answered(worker, None) == first


def test_a_process_that_was_killed_while_it_was_ready_is_replaced() -> None:
    with working(process_number, Path.cwd) as worker:
        killed = ready(worker)
        killed.kill()
        killed.join()
        assert answered(worker, None) != killed.pid


def process_number(holds: int | None) -> int:
    """Return the process id; ``holds``: bytes that the process keeps."""
    if holds is not None:
        kept.append(b"x" * holds)
    return os.getpid()


kept: list[bytes] = []


def answered(worker: Answerer, request: object) -> object:
    reply: Future[Any] = Future()
    worker.submit(request, reply)
    return reply.result(timeout=60)


def test_a_call_that_is_cancelled_gives_up_what_changes_nothing() -> None:
    asked: queue.Queue[Any] = queue.Queue()
    server = ApiServer(ApiConfig(listen=("127.0.0.1:0",)), StatusBoard(), asked.put, LeaseTokens.of(None))
    try:
        with grpc.insecure_channel(server.start()[0]) as channel:
            controller = pb_grpc.ControllerServiceStub(channel)  # type: ignore[no-untyped-call]
            for method, request in (
                (controller.WhatIf, pb.WhatIfRequest()),
                (controller.Explain, pb.ExplainRequest(job_id="a")),
                (controller.Replan, pb.ReplanRequest()),
            ):
                call = method.future(request)
                message = asked.get(timeout=60)
                assert not message.reply.done()
                call.cancel()
                until(message.reply.cancelled)
            call = controller.SetMode.future(pb.SetModeRequest(mode=pb.MODE_ECMP))
            change = asked.get(timeout=60)
            call.cancel()
            until(lambda: not server._services._waiting)
            assert not change.reply.cancelled()
    finally:
        server.stop()
