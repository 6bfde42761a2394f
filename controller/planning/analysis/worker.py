"""Answers in a separate process what takes many plans, such as analyses of the network: neither OpenFlow nor the
control loop shall wait for the interpreter meanwhile.

In: requests with the futures of their results. Out: the results, or errors of ``signalbox.errors``. One request is
worked on at a time; a few may wait. A request whose future is cancelled is dropped, and the process ended. The process
takes a second or more to start, longer while plans are being made, and therefore goes on to answer the next request. It
ends when an answer took much memory, which is given back in this way. With ``prepare`` it is started before there is a
request.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import MappingProxyType
from typing import Any

import structlog

from controller import child_signals
from controller.planning.analysis.failures import analyse_failures
from controller.planning.analysis.job import analyse_job
from controller.planning.analysis.proof import prove_routes
from controller.planning.analysis.requests import AnalyseFailures, AnalyseJob, AnalysisRequest, ProveRoutes
from controller.planning.analysis.results import Analysis
from signalbox.errors import Exhausted, SignalboxError

log = structlog.get_logger(__name__)

MOST_WAITING = 8
CANCELLED_WITHIN_S = 0.1
"""How long a process may go on after its request was cancelled."""
RETRY_S = 10.0
"""An analysis of a large fabric takes about so long."""
NICENESS = 10
"""Of the process: OpenFlow and the control loop have priority."""
KEPT_BYTES = 256 << 20
"""A process that has more memory than this after its answer ends. It begins with 85 MB."""


def analyse(request: AnalysisRequest) -> Analysis:
    """Raises ``NotFound`` for a job without flows, ``SignalboxError`` when there is no answer."""
    match request:
        case AnalyseJob():
            return analyse_job(request)
        case AnalyseFailures():
            return analyse_failures(request)
        case ProveRoutes():
            return prove_routes(request)


class AnalysisWorker:
    """Starts its thread at once, and the process with the first request. ``answer``: what the process does.
    ``prepare``: what it does before, while there is no request yet."""

    def __init__(self, answer: Callable[[Any], object] = analyse, prepare: Callable[[], object] | None = None) -> None:
        self._answer, self._prepare = answer, prepare
        self._ready: tuple[BaseProcess, Connection] | None = None
        self._processes = multiprocessing.get_context("spawn")  # a fork would copy locks that other threads hold
        self._waiting: deque[tuple[object, Future[Any]]] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="analysis", daemon=True)
        self._thread.start()

    def submit(self, request: object, reply: Future[Any]) -> None:
        """Never blocks; ``Exhausted`` is the reply when too many requests wait."""
        with self._changed:
            self._waiting = deque(waiting for waiting in self._waiting if not waiting[1].cancelled())
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append((request, reply))
                self._changed.notify()
                return
        about = {"limit": "waiting_analyses", "limitValue": MOST_WAITING, "used": MOST_WAITING}
        text = f"{MOST_WAITING} requests wait already; try again later"
        resolve(reply, Exhausted(text, retry_s=RETRY_S, about=about))

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ends the running process; replies that are due are never resolved."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            self._get_ready()
            if (waiting := self._next()) is None:
                break
            request, reply = waiting
            try:
                if (result := self._in_process(request, reply)) is not None:
                    resolve(reply, result)
            except Exception:
                log.exception("an analysis could not be started")
                resolve(reply, _failed())
        if self._ready:
            _end(*self._ready)

    def _get_ready(self) -> None:
        if self._prepare and not self._ready:
            with suppress(OSError):  # the next request tries again, and says so
                self._ready = self._started()

    def _taken(self) -> tuple[BaseProcess, Connection] | None:
        """The process that is ready, unless it has ended meanwhile."""
        ready, self._ready = self._ready, None
        if ready and not ready[0].is_alive():
            ready[1].close()
            return None
        return ready

    def _started(self) -> tuple[BaseProcess, Connection]:
        """Raises ``OSError``."""
        ours, its = self._processes.Pipe()
        process = self._processes.Process(
            target=_work, args=(its, self._answer, self._prepare), name="analysis", daemon=True
        )
        with its, child_signals.kept_from_child():
            process.start()
        return process, ours

    def _next(self) -> tuple[object, Future[Any]] | None:
        """The request that has waited longest and is still wanted; None to stop."""
        with self._changed:
            while not self._stopping:
                while self._waiting:
                    waiting = self._waiting.popleft()
                    if not waiting[1].cancelled():
                        return waiting
                self._changed.wait()
        return None

    def _in_process(self, request: object, reply: Future[Any]) -> object:
        """None when nobody waits for the result any more."""
        pickled = ForkingPickler.dumps(request)
        process, connection = self._taken() or self._started()
        stays = False
        sending = threading.Thread(target=_send, args=(connection, pickled), name="analysis-request", daemon=True)
        sending.start()  # a process that does not read would hold this up, though the request is cancelled
        try:
            while not connection.poll(CANCELLED_WITHIN_S):
                if reply.cancelled() or self._stopping:
                    return None
            result, stays = connection.recv()
        except (EOFError, ConnectionError):
            result = "the process ended without a result"
        finally:
            if stays:
                sending.join()
                self._ready = process, connection
            else:
                _end(process, connection, sending)
        if isinstance(result, str):
            log.error("an analysis failed", why=result)
            return _failed()
        return result


def _send(connection: Connection, pickled: memoryview) -> None:
    with suppress(OSError):  # the process has ended
        connection.send_bytes(pickled)


def _end(process: BaseProcess, connection: Connection, sending: threading.Thread | None = None) -> None:
    """``sending``: writes to the process, until that has ended."""
    process.kill()
    process.join()
    if sending:
        sending.join()
    connection.close()


def _work(connection: Connection, answer: Callable[[Any], object], prepare: Callable[[], object] | None) -> None:
    """The process: sends the result, the error that the caller should read, or a traceback, and whether it stays."""
    child_signals.leave_to_controller()
    os.nice(NICENESS)
    if prepare:
        prepare()
    stays = True
    while stays:
        result: object
        try:
            result = answer(connection.recv())
        except EOFError:
            return  # the controller has ended
        except SignalboxError as error:
            result = error
        except Exception:
            result = traceback.format_exc()
        stays = _memory_bytes() <= KEPT_BYTES
        connection.send((result, stays))


def _memory_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
