"""How long calls took, by method and code: what is not a stream, from the call's begin until its answer is there.

In: calls, in the API's thread. Out: all histograms, given to ``publish`` after each call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc

from controller.histogram import FEW_SECONDS, Histogram
from signalbox.v1 import signalbox_pb2 as pb

Answer = Callable[[Any, Any], Awaitable[Any]]
ByMethod = Mapping[tuple[str, str], Histogram]
"""By the name of a method (``other`` for those of other services, and for those that do not exist), and the name of a
status code (``OK``, ``NOT_FOUND`` ...)."""

_METHODS = {
    f"/{service.full_name}/{method.name}": str(method.name)
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""Clients may ask for any other."""

_CODES = {code.value[0]: code.name for code in grpc.StatusCode}


class CallTimes:
    """Histograms of the calls so far. ``publish`` may keep the mapping, which does not change."""

    def __init__(self, publish: Callable[[ByMethod], None]) -> None:
        self._publish = publish
        self._times: ByMethod = {}

    def timed(self, method: str, answer: Answer) -> Answer:
        """``method``: with its service, as gRPC names it."""
        name = _METHODS.get(method, "other")

        async def timed(requests: Any, context: Any) -> Any:
            began, code = time.perf_counter(), "OK"
            try:
                return await answer(requests, context)
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED.name
                raise
            except BaseException:
                code = _name(context.code())
                raise
            finally:
                known = self._times.get((name, code)) or Histogram(FEW_SECONDS)
                self._times = {**self._times, (name, code): known.observed(time.perf_counter() - began)}
                self._publish(self._times)

        return timed


def _name(code: Any) -> str:
    """Return the name of a failed call's code; gRPC has none for a call that it is about to end with ``UNKNOWN``."""
    number = code.value[0] if isinstance(code, grpc.StatusCode) else code
    return _CODES[number] if number and number in _CODES else grpc.StatusCode.UNKNOWN.name
