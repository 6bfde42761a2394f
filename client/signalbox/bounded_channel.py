"""gRPC channel whose ``close``, and whose calls with a single answer, take a limited time.

With grpcio 1.83.2, calls continued for minutes after their time-out when servers had closed connections (GOAWAY). So
each call is a future here, and the thread that waits for it stops waiting ``MARGIN_S`` after the time-out.

Futures need a thread, and Python starts no more threads once the main thread has ended. From then on, calls and
``close`` use gRPC's own methods, and their time is not limited.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock, Thread, main_thread
from typing import Any

import grpc

MARGIN_S = 0.5
"""Longest time in seconds that a thread waits for a call after the call's time-out.

``close`` takes at most ``MARGIN_S``."""


@grpc.Call.register
class Overdue(grpc.RpcError):
    """Error of a call that gRPC has not ended in time, with the status that gRPC gives a call after its time-out."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.DEADLINE_EXCEEDED

    def details(self) -> str:
        return "Deadline Exceeded"

    def trailing_metadata(self) -> Any:
        return ()


class Unary:
    """Function that makes a call with a single answer.

    ``method``: gRPC's function that makes the call. ``future``: its function that begins the call and returns a
    future."""

    def __init__(self, method: Any) -> None:
        self._method = method
        self.future: Callable[..., Any] = method.future

    def __call__(self, request: Any, timeout: float, metadata: Any = None) -> Any:
        """Return the answer of a call. Raises ``RpcError``, at most ``MARGIN_S`` seconds after the time-out."""
        if not main_thread().is_alive():
            return self._method(request, timeout=timeout, metadata=metadata)
        answer, ended = self.future(request, timeout=timeout, metadata=metadata), Event()
        answer.add_done_callback(lambda _: ended.set())
        try:
            if not ended.wait(max(0.0, timeout) + MARGIN_S):  # gRPC's own wait would end when the clock is changed
                raise Overdue
            return answer.result()
        finally:
            answer.cancel()


class BoundedChannel:
    """Channel to ``address``. Any thread may close it.

    ``unary_unary`` and ``unary_stream`` return functions that make calls. Once the channel is closed, either the method
    or the returned function raises ``ValueError``. The methods hold a lock, because gRPC crashes when a closed channel
    is asked for such a function."""

    def __init__(self, address: str, channel: Any) -> None:
        self.address = address
        self._channel = channel
        self._lock = Lock()
        self._closed = False

    def close(self) -> None:
        """End all calls and streams.

        gRPC's own method waits until all calls have ended; this method waits at most ``MARGIN_S`` seconds."""
        with self._lock:
            self._closed = True
        if main_thread().is_alive():
            closing = Thread(target=self._channel.close, name="signalbox-close", daemon=True)
            closing.start()
            closing.join(MARGIN_S)
        else:
            self._channel.close()

    def unary_unary(self, *method: Any, **more: Any) -> Unary:
        return Unary(self._method(self._channel.unary_unary, *method, **more))

    def unary_stream(self, *method: Any, **more: Any) -> Any:
        return self._method(self._channel.unary_stream, *method, **more)

    def stream_stream(self, *method: Any, **more: Any) -> Any:
        return self._method(self._channel.stream_stream, *method, **more)

    def _method(self, of: Callable[..., Any], *method: Any, **more: Any) -> Any:
        with self._lock:
            if self._closed:
                raise ValueError("the channel is closed")
            return of(*method, **more)
