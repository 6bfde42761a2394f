"""``explain`` and ``what-if`` from the command to the worker process, over the real server."""

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
from controller.planning.analysis.dispatch import analyse
from controller.planning.analysis.failures import analyse_failures
from controller.planning.analysis.job import analyse_job
from controller.planning.analysis.messages import (
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
from signalbox.errors import Conflict, NotFound, SignalboxError
from signalbox.jobs.spec import JobId
from signalbox.v1 import signalbox_pb2 as pb
from signalbox.v1 import signalbox_pb2_grpc as pb_grpc
from signalbox.words import FailureKind
from tests.support.planning.fabrics import RATE, flow, leaf_spine, pinned, problem_of
from tests.support.preloaded import forked_children
from tests.support.waiting import until

__all__ = ("forked_children",)

pytestmark = pytest.mark.usefixtures("forked_children")
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
    server = ApiServer(ApiConfig(listen=("127.0.0.1:0",)), StatusBoard(), loop.put, LeaseTokens())
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


def test_an_analysis_of_a_job_arrives_unchanged_and_people_read_sentences(signalbox: Signalbox, loop: Loop) -> None:
    status, out, _ = signalbox("explain", "a", "--json")
    assert status == 0
    found = analyse_job(AnalyseJob(loop.network, JobId("a"), efficiency_measured=0.3))
    assert out == json.dumps(fields(explain_message(found)), indent=2) + "\n"
    assert list(json.loads(out)) == list(pb.ExplainResponse.DESCRIPTOR.fields_by_name)
    said = " ".join(signalbox("explain", "a")[1].split())
    assert said.startswith("The network slows job 'a': its communication takes up to 2.00 times as long")
    assert "Routing can gain 50%" in said
    assert "The measured efficiency is 30.0%, the predicted efficiency 50.0%" in said


def test_an_analysis_of_failures_arrives_unchanged(signalbox: Signalbox, address: str, loop: Loop) -> None:
    status, out, _ = signalbox("what-if", "--fail", "cables", "--top", 1, "--within", 30, "--json")
    assert status == 0
    found = analyse_failures(AnalyseFailures(loop.network, frozenset({FailureKind.CABLE}), 1, 30.0))
    assert json.loads(out) == fields(what_if_message(found))
    with Client(address) as client:
        assert client.what_if().failures > 4, "of all kinds, unless some are chosen"
    asked = [(each.kinds, each.top, each.within_s) for each in loop.messages if isinstance(each, WhatIf)]
    assert asked == [(frozenset({FailureKind.CABLE}), 1, 30.0), (frozenset(FailureKind), None, 60.0)]


def test_the_proof_of_the_routes_arrives_as_a_file(signalbox: Signalbox, tmp_path: Path) -> None:
    file = tmp_path / "proof.json"
    status, out, _ = signalbox("plan", "--proof", file)
    assert (status, out) == (0, "There is no plan yet.\n")
    assert verify(read(file)) == ("worst slowdown 2, at least 1 with any routes; 0 of 2 slowdowns proven", 0)


def test_what_cannot_be_explained_is_an_error(address: str, signalbox: Signalbox) -> None:
    for job, error, status, message in (
        ("nobody", NotFound, 5, "there is no job 'nobody'; jobs: a, b"),
        ("late", Conflict, 8, "job 'late' waits for 10.0.9.9"),
    ):
        with Client(address) as client, pytest.raises(error, match=message):
            client.explain(job)
        assert signalbox("explain", job)[::2] == (status, f"error: {message}\n")


def test_options_of_offline_analyses_need_jobs_in_files(signalbox: Signalbox) -> None:
    for option in (("--scheme", "ecmp"), ("--time-limit", "3"), ("--leaves", "4")):
        status, _, err = signalbox("explain", "a", *option)
        assert status == 2
        assert "needs --workload or --jobs" in " ".join(err.split())


@contextmanager
def working(*given: Any) -> Iterator[Answerer]:
    worker = Answerer(*given)
    try:
        yield worker
    finally:
        worker.stop(timeout_s=60)


class Endless:
    """Request that no process ever finishes: it sleeps where it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return time.sleep, (10_000,)


def test_the_worker_process_gives_the_same_results_and_errors_and_a_cancelled_request_holds_up_none(loop: Loop) -> None:
    """The last request is running when the controller stops, and is ended."""
    endless: Any = Endless()
    requests = [AnalyseJob(loop.network, JobId(job), None) for job in ("a", "nobody")]
    expected = analyse_job(requests[0])  # before a thread sends it: shared objects are filled in later
    given_up: list[Future[Any]] = [Future() for _ in range(20)]
    replies: list[Future[Any]] = [Future(), Future()]
    with working(analyse) as worker:
        for number, reply in enumerate(given_up):
            worker.submit(endless, reply)
            if number:
                reply.cancel()  # the request waits behind the first one
        until(lambda: not worker._waiting or given_up[0] is not worker._waiting[0][1])
        for request, reply in zip(requests, replies, strict=True):
            worker.submit(request, reply)
        given_up[0].cancel()
        assert replies[0].result(timeout=60) == expected
        with pytest.raises(NotFound, match="there is no job 'nobody'; jobs: a, b"):
            replies[1].result(timeout=60)
        worker.submit(endless, Future())
        until(lambda: not worker._waiting)
    assert not worker._thread.is_alive()


def test_a_process_answers_one_request_after_the_other_until_it_is_large_or_ends() -> None:
    """A process stays in use after an error. It is replaced when it is killed, or does not read its request."""
    given_up: Future[Any] = Future()
    with working(process_number, Path.cwd) as worker:
        first = ready(worker).pid
        assert [answered(worker, None) for _ in range(3)] == [first] * 3
        with pytest.raises(SignalboxError, match="the analysis failed"):
            answered(worker, "no number")
        assert answered(worker, answerer.KEPT_BYTES) == first
        killed = ready(worker)
        assert killed.pid != first, "it had become large"
        killed.kill()
        killed.join()
        stopped = answered(worker, None)
        assert isinstance(stopped, int)
        assert stopped != killed.pid
        until(lambda: worker._ready is not None)
        os.kill(stopped, signal.SIGSTOP)
        worker.submit(bytes(10 << 20), given_up)
        until(lambda: worker._ready is None)
        given_up.cancel()
        assert answered(worker, None) != stopped


def ready(worker: Answerer) -> Any:
    until(lambda: worker._ready is not None)
    assert worker._ready
    return worker._ready.process


def process_number(holds: int | None) -> int:
    """Return the process id. ``holds``: bytes of memory that the process allocates and keeps."""
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
    server = ApiServer(ApiConfig(listen=("127.0.0.1:0",)), StatusBoard(), asked.put, LeaseTokens())
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
