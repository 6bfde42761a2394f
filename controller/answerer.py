"""Separate process for questions that take long to answer, such as analyses that need many plans.

In: questions with the futures of their answers. Out: answers, or errors of ``signalbox.errors``. The process pools of
``concurrent.futures`` can end neither the process of a cancelled question nor one that uses much memory.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import MappingProxyType
from typing import Any

import structlog

from controller.child import Child
from signalbox.errors import Exhausted, SignalboxError

log = structlog.get_logger(__name__)

MOST_WAITING = 8
"""Largest number of questions that wait in the queue of an ``Answerer``."""
CANCELLED_WITHIN_S = 0.1
"""Longest time in seconds from the cancellation of a question to the end of the process that works on it."""
RETRY_S = 10.0
"""Seconds after which a refused client should ask again: about the duration of an analysis of a large fabric."""
KEPT_BYTES = 256 << 20
"""Memory in bytes above which the process ends after an answer. A new process takes 85 MB."""


class Answerer:
    """Process that answers questions one after the other, in the order of their arrival.

    The process ends within ``CANCELLED_WITHIN_S`` after the caller has cancelled its question, or the controller stops.
    Otherwise it stays for the next question, unless it uses more than ``KEPT_BYTES``: starting a process takes one
    second, or five while all processors are busy."""

    def __init__(self, answer: Callable[[Any], object], prepare: Callable[[], object] | None = None) -> None:
        """Start a thread that controls the process.

        ``answer``: function that the process calls with each question. A ``SignalboxError`` that the function raises
        goes to the caller. ``prepare``: function that the process calls at its start; if it is given, the process
        starts before the first question."""
        self._answer, self._prepare = answer, prepare
        self._ready: Child | None = None
        self._waiting: deque[tuple[object, Future[Any]]] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="analysis", daemon=True)
        self._thread.start()

    def submit(self, question: object, reply: Future[Any]) -> None:
        """Queue the question without blocking; its answer resolves ``reply`` later.

        If too many questions wait, ``Exhausted`` resolves ``reply`` at once."""
        with self._changed:
            self._waiting = deque(waiting for waiting in self._waiting if not waiting[1].cancelled())
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append((question, reply))
                self._changed.notify()
                return
        about = {"limit": "waiting_analyses", "limitValue": MOST_WAITING, "used": MOST_WAITING}
        text = f"{MOST_WAITING} analyses are waiting already, which is the limit; try again later"
        resolve(reply, Exhausted(text, retry_s=RETRY_S, about=about))

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the process; open replies are never resolved."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            if self._prepare and not self._ready:
                with suppress(OSError):  # the next question tries again and reports the error
                    self._ready = self._started()
            if (waiting := self._next()) is None:
                break
            question, reply = waiting
            try:
                if (result := self._result(question, reply)) is not None:
                    resolve(reply, result)
            except Exception:
                log.exception("could not start an analysis")
                resolve(reply, _failed())
        if self._ready:
            self._ready.end()

    def _started(self) -> Child:
        return Child("analysis", _answer_all, self._answer, self._prepare)

    def _next(self) -> tuple[object, Future[Any]] | None:
        """Return the oldest question that is not cancelled; None to stop."""
        with self._changed:
            while not self._stopping:
                while self._waiting:
                    waiting = self._waiting.popleft()
                    if not waiting[1].cancelled():
                        return waiting
                self._changed.wait()
        return None

    def _result(self, question: object, reply: Future[Any]) -> object:
        """Return the result, or None when the reply is cancelled or the controller stops."""
        packed = ForkingPickler.dumps(question)
        ready, self._ready = self._ready, None
        if ready and not ready.process.is_alive():
            ready.close()
            ready = None
        child = ready or self._started()
        sending = threading.Thread(target=child.send_packed, args=(packed,), name="analysis-request", daemon=True)
        sending.start()  # a process that does not read must not delay a cancellation
        stays = False
        try:
            while not child.answers_within(CANCELLED_WITHIN_S):
                if reply.cancelled() or self._stopping:
                    return None
            result, stays = child.receive()
        except (EOFError, ConnectionError):
            result = "the process ended without a result"
        finally:
            if not stays:
                child.end()
            sending.join()
            if stays:
                self._ready = child
            else:
                child.close()
        if isinstance(result, str):
            log.error("an analysis failed", why=result)
            return _failed()
        return result


def _answer_all(connection: Connection, answer: Callable[[Any], object], prepare: Callable[[], object] | None) -> None:
    """Answer questions in the process of an ``Answerer``.

    Each message back to the controller is a pair. Its first value is the result, the error for the caller, or the text
    of a traceback. Its second value is whether the process stays for another question."""
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
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _failed() -> SignalboxError:
    return SignalboxError("the analysis failed; the controller's log has the reason")


def _view(plain: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(plain)


def _reduced(view: MappingProxyType[Any, Any]) -> tuple[Callable[..., object], tuple[dict[Any, Any]]]:
    return _view, (dict(view),)


# Snapshots of the fabric contain mapping proxies, which cannot be pickled without this function.
ForkingPickler.register(MappingProxyType, _reduced)


def resolve(reply: Future[Any], result: object) -> None:
    """Resolve the reply with the result; a ``SignalboxError`` becomes its exception.

    A reply that is cancelled or already resolved does not change."""
    with suppress(InvalidStateError):
        if isinstance(result, SignalboxError):
            reply.set_exception(result)
        else:
            reply.set_result(result)
