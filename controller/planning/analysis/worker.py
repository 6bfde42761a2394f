"""Analyses the network in a separate process: an analysis may take many plans, and neither OpenFlow nor the control
loop shall wait for the interpreter meanwhile.

In: requests with the futures of their results. Out: the results, or errors of ``controller.errors``. One request is
worked on at a time; a few may wait.
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
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from types import MappingProxyType
from typing import Any

import structlog

from controller.errors import Exhausted, SignalboxError
from controller.planning.analysis.failures import analyse_failures
from controller.planning.analysis.job import analyse_job
from controller.planning.analysis.requests import AnalyseJob, AnalysisRequest
from controller.planning.analysis.results import Analysis

log = structlog.get_logger(__name__)

MOST_WAITING = 8
RETRY_S = 10.0
"""An analysis of a large fabric takes about so long."""
NICENESS = 10
"""Of the process: OpenFlow and the control loop have priority."""


def analyse(request: AnalysisRequest) -> Analysis:
    """Raises ``NotFound`` for a job without flows, ``SignalboxError`` when the planner has no answer."""
    return analyse_job(request) if isinstance(request, AnalyseJob) else analyse_failures(request)


class AnalysisWorker:
    """Starts its thread at once, and a process for every request."""

    def __init__(self) -> None:
        self._processes = multiprocessing.get_context("spawn")  # a fork would copy locks that other threads hold
        self._waiting: queue.Queue[tuple[AnalysisRequest, Future[Any]] | None] = queue.Queue(MOST_WAITING)
        self._process: multiprocessing.process.BaseProcess | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="analysis", daemon=True)
        self._thread.start()

    def submit(self, request: AnalysisRequest, reply: Future[Any]) -> None:
        """Never blocks; ``Exhausted`` is the reply when too many requests wait."""
        try:
            self._waiting.put_nowait((request, reply))
        except queue.Full:
            resolve(reply, Exhausted(f"{MOST_WAITING} requests wait already; try again later", retry_s=RETRY_S))

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends the running process; replies that are due are never resolved."""
        self._stopping.set()
        if self._process is not None and self._process.is_alive():
            self._process.terminate()
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping.is_set() and (item := self._waiting.get()) is not None:
            request, reply = item
            try:
                resolve(reply, self._in_process(request))
            except Exception:
                log.exception("an analysis could not be started")
                resolve(reply, _failed())

    def _in_process(self, request: AnalysisRequest) -> Analysis | SignalboxError:
        receiver, sender = self._processes.Pipe(duplex=False)
        process = self._processes.Process(target=_work, args=(sender, request), name="analysis", daemon=True)
        with receiver:
            with sender:
                process.start()
                self._process = process
            try:
                result: Analysis | SignalboxError | str = receiver.recv()
            except EOFError:
                result = "the process ended without a result"
        process.join()
        if isinstance(result, str):
            log.error("an analysis failed", why=result)
            return _failed()
        return result


def _work(sender: Connection, request: AnalysisRequest) -> None:
    """The process: sends the result, the error that the caller should read, or a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the controller ends this one
    os.nice(NICENESS)
    result: Analysis | SignalboxError | str
    try:
        result = analyse(request)
    except SignalboxError as error:
        result = error
    except Exception:
        result = traceback.format_exc()
    sender.send(result)


def _failed() -> SignalboxError:
    return SignalboxError("the analysis failed; the controller's log has the reason")


def _view(plain: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(plain)


def _reduced(view: MappingProxyType[Any, Any]) -> tuple[Callable[..., object], tuple[dict[Any, Any]]]:
    return _view, (dict(view),)


# Snapshots of the fabric hold such views, which cannot be pickled by themselves.
ForkingPickler.register(MappingProxyType, _reduced)


def resolve(reply: Future[Any], result: object) -> None:
    """The result, or the error that the caller should get. A caller that no longer waits gets nothing."""
    with suppress(InvalidStateError):
        if isinstance(result, SignalboxError):
            reply.set_exception(result)
        else:
            reply.set_result(result)
