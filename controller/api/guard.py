"""The guard around every handler of the API.

It stands between gRPC and the services, which know nothing of it: bytes that are no message of the method, errors, and
calls that take too long become a status with details (``errors``); what is no error of ours goes to the log too.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, NoReturn

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from controller.api.errors import NotServed, TooSlow, status_of
from controller.log_limit import LimitedLog
from signalbox.errors import InvalidInput, SignalboxError, Unavailable

log = LimitedLog(structlog.get_logger(__name__))

ANSWER_S = 5.0
"""How long a call may take that needs no switch and no solver; less than clients wait."""

INSTALL_S = 120.0
"""How long a plan and the barriers of all switches may take."""

ANALYSIS_S = 140.0
"""How long an analysis may take, which needs many plans, with those that wait before it."""

CANCELLED_WITHIN_S = 10.0
"""gRPC cancels a call soon after its client has gone."""

NO_RETRY = ("grpc-retry-pushback-ms", "-1")
"""gRPC A6: clients do not send the call again by themselves, a moment later. RetryInfo says when it can succeed."""

_LIMIT: ContextVar[asyncio.Timeout | None] = ContextVar("limit", default=None)
"""Of the call that runs."""

_GRPC_LOG = logging.getLogger("grpc._cython.cygrpc")

Context = grpc.aio.ServicerContext[Any, Any]
Handler = Callable[[Any, Context], Any]


class GuardedServer:
    """Stands for the server towards the generated ``add_..._to_server`` functions, and guards what they add.
    ``behind_gate``: what is to run for a method, from its full name, its handler, and whether it answers in a
    stream."""

    def __init__(self, server: grpc.aio.Server, behind_gate: Callable[[str, Handler, bool], Handler]) -> None:
        self._server = server
        self._behind_gate = behind_gate

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """The same handlers come registered."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        guarded = {name: self._guarded(f"/{service}/{name}", handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, guarded),))

    def refuse_other_methods(self) -> None:
        """Calls of methods that were not added end with details too. To be called last."""
        self._server.add_generic_rpc_handlers((_OtherMethods(),))

    def _guarded(self, path: str, handler: Any) -> Any:
        """Of one request, with one response or a stream of them; or of a stream of requests that are answered one
        after the other, as reflection does it, which no gate is before."""
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(
                _guard_dialogue(path.rpartition("/")[2], handler.stream_stream),
                request_deserializer=_lenient(handler.request_deserializer),
                response_serializer=handler.response_serializer,
            )
        streams = handler.response_streaming
        kind, method = (
            (grpc.unary_stream_rpc_method_handler, handler.unary_stream)
            if streams
            else (grpc.unary_unary_rpc_method_handler, handler.unary_unary)
        )
        return kind(
            _guard(path.rpartition("/")[2], self._behind_gate(path, _decoded(path, method), streams), streams),
            request_deserializer=_lenient(handler.request_deserializer),
            response_serializer=_unless_bytes(handler.response_serializer),
        )


def task_of_call() -> asyncio.Task[Any]:
    """Return the asyncio task of the current call. gRPC makes one per call; it ends after the status is sent."""
    task = asyncio.current_task()
    assert task is not None
    return task


def freed(answer: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return a handler whose errors keep no frames alive. gRPC keeps the error that ended a call, its traceback keeps
    the frames, and these keep the call: a cycle with 20 kB of gRPC's own memory, which only the garbage collector would
    free, up to an hour later."""

    async def freed(requests: object, context: Any) -> Any:
        try:
            return await answer(requests, context)
        except BaseException as error:
            task_of_call().add_done_callback(functools.partial(_forget_frames, error))
            raise

    return freed


def _forget_frames(error: BaseException | None, _task: object) -> None:
    while error is not None:
        error.__traceback__ = None
        error = error.__context__


class _OtherMethods(grpc.GenericRpcHandler):
    """gRPC asks it for methods that no handler before it has. All have the same handler: there is no end of them."""

    def __init__(self) -> None:
        self._handler: Any = grpc.unary_unary_rpc_method_handler(
            _guard("", _no_method, streams=False), request_deserializer=bytes
        )

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # noqa: ARG002
        return self._handler


async def _no_method(_request: bytes, _context: Context) -> NoReturn:
    raise NotServed("there is no such method; reflection and the proto file have all there are")


def limit_s(method: str) -> float:
    """How long a unary call may take, whatever the caller's deadline."""
    if method in ("Replan", "SetStrategy"):
        return INSTALL_S
    return ANALYSIS_S if method in ("Explain", "WhatIf", "GetPlanProof") else ANSWER_S


def keep_clients_out_of_log() -> None:
    """gRPC logs as errors with a traceback, as often as a client likes: metadata and paths that are not UTF-8, tokens
    too; and that a client had gone when its answer was sent."""
    _GRPC_LOG.addFilter(_is_no_client)


def _is_no_client(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, UnicodeDecodeError | grpc.aio.InternalError)


class _Undecodable:
    """In the place of a request that cannot be decoded: gRPC itself would end the call with UNKNOWN and put a traceback
    into the log."""


def _lenient(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def decoded(data: bytes) -> Any:
        try:
            return decode(data)
        except DecodeError:
            return _Undecodable()

    return decoded


def _unless_bytes(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Watches answer with bytes: what they send is encoded once for all watchers."""
    return lambda answer: answer if isinstance(answer, bytes) else encode(answer)


def _decoded(path: str, method: Handler) -> Handler:
    """Who may not call the method is told that first."""

    async def decoded(request: Any, context: Context) -> Any:
        _refuse_undecodable(path.rpartition("/")[2], request)
        answer = method(request, context)
        return await answer if inspect.isawaitable(answer) else answer

    return decoded


def _guard(name: str, method: Handler, streams: bool) -> Callable[[Any, Context], Awaitable[Any]]:
    async def guarded(request: Any, context: Context) -> Any:
        async with _errors_told(name, context), _within(None if streams else limit_s(name)):
            return await method(request, context)

    return guarded


def _guard_dialogue(name: str, method: Handler) -> Callable[[AsyncIterator[Any], Context], AsyncIterator[Any]]:
    async def decoded(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            _refuse_undecodable(name, request)
            yield request

    async def guarded(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        async with _errors_told(name, context):
            async for answer in method(decoded(requests), context):
                yield answer

    return guarded


def _refuse_undecodable(name: str, request: Any) -> None:
    if isinstance(request, _Undecodable):
        raise InvalidInput.of("", f"the bytes of the request are no message of {name}")


@asynccontextmanager
async def _errors_told(name: str, context: Context) -> AsyncIterator[None]:
    """What is raised within ends the call with its status."""
    try:
        yield
    except grpc.aio.AbortError:
        raise
    except grpc.aio.InternalError:  # it could not send, because the client has gone
        await asyncio.sleep(CANCELLED_WITHIN_S)
        raise
    except TimeoutError:
        log.error("the control loop did not answer in time", method=name)
        await _abort(context, TooSlow("the controller did not answer in time"))
    except SignalboxError as error:
        await _abort(context, error)
    except Exception as error:
        log.exception("request failed", method=name)
        await _abort(context, error)


def _within(limit: float | None) -> AbstractAsyncContextManager[Any]:
    return nullcontext() if limit is None else _limited(limit)


@asynccontextmanager
async def _limited(limit: float) -> AsyncIterator[None]:
    async with asyncio.timeout(limit) as running:
        before = _LIMIT.set(running)
        try:
            yield
        finally:
            _LIMIT.reset(before)  # it knows the task, and the task its variables


@contextmanager
def not_counted() -> Iterator[None]:
    """Around what takes long because of the request alone: the limit of the call is for its answer."""
    running, loop = _LIMIT.get(), asyncio.get_running_loop()
    ends = running.when() if running else None
    if running is None or ends is None:
        yield
        return
    began = loop.time()
    running.reschedule(None)
    try:
        yield
    finally:
        running.reschedule(ends + loop.time() - began)


async def _abort(context: Context, error: Exception) -> NoReturn:
    status = rpc_status.to_status(status_of(error))
    trailers = status.trailing_metadata
    if isinstance(error, Unavailable):
        trailers = (*trailers, NO_RETRY)
    await context.abort(status.code, status.details, trailers)
