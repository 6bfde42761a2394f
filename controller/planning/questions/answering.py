"""Answers questions about the network in a process of its own: an answer may take many plans, and neither OpenFlow
nor the control loop shall wait for the interpreter meanwhile.

In: questions with the futures that wait for their answers. Out: the fields of ``explain_words`` or ``what_if_words``,
or the error of ``controller.errors``. One question is worked on at a time; a few may wait.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from types import MappingProxyType
from typing import Any

import structlog

from controller.errors import Exhausted, SignalboxError
from controller.fabric.topology import Dpid, Fabric, LinkId
from controller.planning.first_aid import running
from controller.planning.plan import NoPlan
from controller.planning.planner import plan
from controller.planning.problem import Flow, Problem
from controller.planning.questions import explain_words, single_failures, what_if_words
from controller.planning.questions.asked import AboutFailures, AboutJob, Network, Question
from controller.planning.questions.explain import explain
from controller.planning.questions.what_if import SurveyLimits, what_if

log = structlog.get_logger(__name__)

MOST_WAITING = 8
NICENESS = 10
"""Of the process: what forwards traffic goes first."""
NOTHING_PINNED = "No flow is pinned now: what follows is about the routes that would be planned."


def answer(question: Question) -> dict[str, Any]:
    """Raises ``NotFound`` for a job without flows, ``SignalboxError`` when the planner has no answer."""
    if isinstance(question, AboutJob):
        return _about_job(question)
    return _about_failures(question)


def _about_job(question: AboutJob) -> dict[str, Any]:
    asked = question.network
    found = explain(
        asked.problem, question.job_id, asked.fabric, asked.limits, intact=asked.intact, measured=question.measured
    )
    return explain_words.fields(found, _Names(asked.intact))


def _about_failures(question: AboutFailures) -> dict[str, Any]:
    asked = question.network
    problem, pinned = _with_routes(asked)
    failures = single_failures.single_failures(asked.fabric, question.kinds, asked.intact)
    cases = single_failures.cases(problem, asked.fabric, failures)
    found = what_if(problem, cases, SurveyLimits(question.top, question.within_s, asked.limits))
    fields = what_if_words.fields(found, _Names(asked.intact).flow)
    return fields if pinned else {**fields, "answer": [NOTHING_PINNED, *fields["answer"]]}


def _with_routes(asked: Network) -> tuple[Problem, bool]:
    """The problem with routes in force, if need be those of a plan; and whether it had any."""
    problem = asked.problem
    crossing = [flow for flow in problem.flows if flow.src_leaf != flow.dst_leaf]
    if not crossing or any(map(problem.stands, crossing)):
        return problem, True
    planned = plan(problem, replace(asked.limits, ecmp_draws=0))
    if isinstance(planned, NoPlan):
        raise SignalboxError(f"no plan: {planned.reason}")
    return running(problem, planned.routes), False


class _Names:
    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    def link(self, link_id: LinkId) -> str:
        return self._fabric.link_name(link_id)

    def switch(self, dpid: Dpid) -> str:
        return self._fabric.name(dpid)

    def flow(self, flow: Flow) -> str:
        return f"{flow.id.src_ip}>{flow.id.dst_ip} ({self.switch(flow.src_leaf)}>{self.switch(flow.dst_leaf)})"


class ForesightWorker:
    """Starts its thread at once, and a process for every question."""

    def __init__(self) -> None:
        self._processes = multiprocessing.get_context("spawn")  # a fork would copy locks that other threads hold
        self._waiting: queue.Queue[tuple[Question, Future[Any]] | None] = queue.Queue(MOST_WAITING)
        self._process: multiprocessing.process.BaseProcess | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="foresight", daemon=True)
        self._thread.start()

    def submit(self, question: Question, reply: Future[Any]) -> None:
        """Never blocks; ``Exhausted`` is the reply when too many wait."""
        try:
            self._waiting.put_nowait((question, reply))
        except queue.Full:
            _resolve(reply, Exhausted(f"{MOST_WAITING} questions wait already; ask again later"))

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends the process that works on a question; nobody is told."""
        self._stopping.set()
        if self._process is not None and self._process.is_alive():
            self._process.terminate()
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping.is_set() and (asked := self._waiting.get()) is not None:
            question, reply = asked
            try:
                _resolve(reply, self._ask(question))
            except Exception:
                log.exception("a question could not be asked")
                _resolve(reply, _unanswered())

    def _ask(self, question: Question) -> dict[str, Any] | SignalboxError:
        receiver, sender = self._processes.Pipe(duplex=False)
        process = self._processes.Process(target=_work, args=(sender, question), name="foresight", daemon=True)
        with receiver:
            with sender:
                process.start()
                self._process = process
            try:
                answered: dict[str, Any] | SignalboxError | str = receiver.recv()
            except EOFError:
                answered = "its process ended before it"
        process.join()
        if isinstance(answered, str):
            log.error("a question was not answered", why=answered)
            return _unanswered()
        return answered


def _work(sender: Connection, question: Question) -> None:
    """The process: sends the fields, the error that the caller should read, or what went wrong as text."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the controller says when it stops
    os.nice(NICENESS)
    sent: dict[str, Any] | SignalboxError | str
    try:
        sent = answer(question)
    except SignalboxError as error:
        sent = error
    except Exception:
        sent = traceback.format_exc()
    sender.send(sent)


def _unanswered() -> SignalboxError:
    return SignalboxError("the question could not be answered; the controller's log has the reason")


def _view(plain: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(plain)


def _reduced(view: MappingProxyType[Any, Any]) -> tuple[Callable[..., object], tuple[dict[Any, Any]]]:
    return _view, (dict(view),)


ForkingPickler.register(
    MappingProxyType, _reduced
)  # snapshots of the fabric hold such views, which have no pickled form


def _resolve(reply: Future[Any], answered: dict[str, Any] | SignalboxError) -> None:
    with suppress(InvalidStateError):
        if isinstance(answered, SignalboxError):
            reply.set_exception(answered)
        else:
            reply.set_result(answered)
