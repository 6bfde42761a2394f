"""``explain`` and ``what-if`` from the command to the process that answers, over the real server."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest

from controller.api.client import Client
from controller.api.server import ApiServer
from controller.cli import main
from controller.config import ApiConfig
from controller.core.messages import Message
from controller.errors import Conflict, InvalidInput, NotFound, SignalboxError
from controller.fabric.topology import Fabric
from controller.jobs.spec import JobId
from controller.planning.messages import Explain, WhatIf
from controller.planning.problem import PlanLimits, Problem, whole
from controller.planning.questions.answering import ForesightWorker, answer
from controller.planning.questions.asked import AboutFailures, AboutJob, Network, Question
from controller.planning.questions.single_failures import Kind
from controller.status import StatusBoard
from tests.support.planning.fabrics import RATE, flow, leaf_spine, pinned, problem_of

Signalbox = Callable[..., tuple[int, str, str]]


def a_network() -> Network:
    """Jobs a and b meet on the first of two spines."""
    fabric: Fabric = leaf_spine(2, 2)
    problem: Problem = problem_of(fabric, [flow("a", (1, 1), (2, 1), RATE), flow("b", (1, 2), (2, 2), RATE)])
    problem = pinned(problem, {f.id: whole(problem.candidates(f)[0]) for f in problem.flows})
    return Network(problem, fabric, fabric, PlanLimits())


@dataclass
class Asked:
    """Answers in this process what the control loop would have asked of another one."""

    network: Network = field(default_factory=a_network)
    messages: list[Message] = field(default_factory=list)

    def put(self, message: Message) -> None:
        self.messages.append(message)
        assert isinstance(message, Explain | WhatIf)
        try:
            message.reply.set_result(answer(self.question(message)))
        except SignalboxError as error:
            message.reply.set_exception(error)

    def question(self, message: Explain | WhatIf) -> Question:
        if isinstance(message, WhatIf):
            return AboutFailures(self.network, message.kinds, message.top, message.within_s)
        if message.job_id == "late":
            raise Conflict("job 'late' waits for 10.0.9.9")
        return AboutJob(self.network, message.job_id, measured=0.3)


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def address(asked: Asked) -> Iterator[str]:
    server = ApiServer(ApiConfig(listen=("127.0.0.1:0",)), StatusBoard(), asked.put)
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


def test_an_explanation_arrives_as_it_was_given(signalbox: Signalbox, asked: Asked) -> None:
    status, out, _ = signalbox("explain", "a", "--json")
    assert status == 0
    assert json.loads(out) == answer(AboutJob(asked.network, JobId("a"), measured=0.3))


def test_people_read_sentences_first(signalbox: Signalbox) -> None:
    status, out, _ = signalbox("explain", "a")
    assert status == 0
    said = " ".join(out.split())
    assert said.startswith("The network slows a: its communication takes up to 2.00 times as long")
    assert "Routing can gain 50%" in said
    assert "Measured is an efficiency of 30.0%, predicted are 50.0%" in said


def test_a_survey_arrives_as_it_was_given(signalbox: Signalbox, asked: Asked) -> None:
    status, out, _ = signalbox("what-if", "--fail", "cables", "--top", 1, "--within", 30, "--json")
    assert status == 0
    assert json.loads(out) == answer(AboutFailures(asked.network, frozenset({Kind.CABLE}), 1, 30.0))
    (message,) = asked.messages
    assert isinstance(message, WhatIf)
    assert (message.kinds, message.top, message.within_s) == (frozenset({Kind.CABLE}), 1, 30.0)


def test_everything_that_can_fail_is_asked_about_unless_chosen(address: str, asked: Asked) -> None:
    with Client(address) as client:
        assert client.what_if().failures > 4
    (message,) = asked.messages
    assert isinstance(message, WhatIf)
    assert (message.kinds, message.top, message.within_s) == (frozenset(Kind), None, 60.0)


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
    assert (status, err.strip()) == (1, f"error: {message}")


def test_a_survey_that_clients_would_not_wait_for_is_refused(address: str) -> None:
    with Client(address) as client, pytest.raises(InvalidInput, match="within_s: must be more than 0 and at most 120"):
        client.what_if(within_s=1e9)


@pytest.mark.parametrize("option", [("--strategy", "ecmp"), ("--time-limit", "3"), ("--leaves", "4")])
def test_options_of_paper_need_a_workload(signalbox: Signalbox, option: tuple[str, str]) -> None:
    status, _, err = signalbox("explain", "a", *option)
    assert status == 2
    assert "needs a --workload" in " ".join(err.split())


def test_another_process_gives_the_same_answer_and_the_same_errors(asked: Asked) -> None:
    worker = ForesightWorker()
    replies: list[Future[Any]] = [Future(), Future()]
    questions = [AboutJob(asked.network, JobId(job), None) for job in ("a", "nobody")]
    try:
        for question, reply in zip(questions, replies, strict=True):
            worker.submit(question, reply)
        assert replies[0].result(timeout=60) == answer(questions[0])
        with pytest.raises(NotFound, match="there is no job 'nobody'; jobs: a, b"):
            replies[1].result(timeout=60)
    finally:
        worker.stop()
