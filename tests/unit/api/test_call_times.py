"""Durations of calls, counted by method and code, however the calls end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from controller.api.call_times import ByMethod, CallTimes

METHOD = "/signalbox.v1.JobService/GetJob"


class Context:
    """Stand-in for the context of gRPC; ``code`` is a number until a status code is set."""

    def __init__(self) -> None:
        self._code: Any = 0

    def code(self) -> Any:
        return self._code

    async def abort(self, code: grpc.StatusCode) -> None:
        self._code = code
        raise grpc.aio.AbortError


async def answered(_: object, _context: Context) -> str:
    return "answer"


async def not_found(_: object, context: Context) -> None:
    await context.abort(grpc.StatusCode.NOT_FOUND)


async def cancelled(_: object, _context: Context) -> None:
    raise asyncio.CancelledError


async def failed(_: object, _context: Context) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("answer", "code"), [(answered, "OK"), (not_found, "NOT_FOUND"), (cancelled, "CANCELLED"), (failed, "UNKNOWN")]
)
def test_a_call_counts_with_its_code(answer: Callable[[Any, Any], Awaitable[Any]], code: str) -> None:
    published: list[ByMethod] = []
    times = CallTimes(published.append)

    async def call() -> str:
        try:
            return str(await times.timed(METHOD, answer)(None, Context()))
        except BaseException as error:
            return type(error).__name__

    asyncio.run(call())
    asyncio.run(call())
    found = published[-1]
    assert len(published) == 2
    assert found.keys() == {("GetJob", code)}
    assert dict(found["GetJob", code].buckets)["+Inf"] == 2
