"""Durations of calls by method and status code, from the beginning of a call to its answer. Streams are not measured.

All calls are recorded in the API's thread. After each call, ``publish`` receives the histograms of all calls so far.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc

from controller.shared_map import FEW_SECONDS, Histogram
from signalbox.v1 import signalbox_pb2 as pb

Answer = Callable[[Any, Any], Awaitable[Any]]
ByMethod = Mapping[tuple[str, str], Histogram]
"""Histograms by (method, code). The method is a name such as ``RegisterJob``, or ``other`` for methods of other
services and unknown methods. The code is a name such as ``OK`` or ``NOT_FOUND``."""

_METHODS = {
    f"/{service.full_name}/{method.name}": str(method.name)
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""Name of each method of this API, by its path (``/package.Service/Method``). Clients may also send unknown paths."""

_CODES = {code.value[0]: code.name for code in grpc.StatusCode}


class CallTimes:
    """Histograms of the calls so far. ``publish`` receives a new mapping after each call."""

    def __init__(self, publish: Callable[[ByMethod], None]) -> None:
        self._publish = publish
        self._times: ByMethod = {}

    def timed(self, method: str, answer: Answer) -> Answer:
        """Return a handler that runs ``answer`` and measures its duration. ``method``: path of the method."""
        name = _METHODS.get(method, "other")

        async def timed(requests: Any, context: Any) -> Any:
            began, code = time.perf_counter(), "OK"
            try:
                return await answer(requests, context)
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED.name
                raise
            except BaseException:
                code = _code_name(context.code())
                raise
            finally:
                known = self._times.get((name, code)) or Histogram(FEW_SECONDS)
                self._times = {**self._times, (name, code): known.observed(time.perf_counter() - began)}
                self._publish(self._times)

        return timed


def _code_name(code: Any) -> str:
    """Return the name of a failed call's status code.

    The name is ``UNKNOWN`` if the handler has set no code, because gRPC then sends this code to the client."""
    number = code.value[0] if isinstance(code, grpc.StatusCode) else code
    return _CODES[number] if number and number in _CODES else grpc.StatusCode.UNKNOWN.name
