"""The guard around every handler of the API.

It stands between gRPC and the services, which know nothing of it: requests that do not come, bytes that are no message
of the method, errors, and calls that take too long become a status with details (``errors``); what is no error of ours
goes to the log too. Every method is served in gRPC's streaming form, which alone is called before the request is there;
on the wire there is no difference.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, NoReturn

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from controller.api.call_times import CallTimes
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
Answer = Callable[[Any, Any], Awaitable[Any]]
Decode = Callable[[bytes], Any]


class GuardedServer:
    """Stands for the server towards the generated ``add_..._to_server`` functions, and guards what they add.
    ``behind_gate``: what is to run for a method, from its full name, its handler, and whether it answers in a
    stream. ``silent_s``: how long the request of a call may take to come."""

    def __init__(
        self,
        server: grpc.aio.Server,
        behind_gate: Callable[[str, Handler, bool], Handler],
        times: CallTimes,
        silent_s: float,
    ) -> None:
        self._server = server
        self._behind_gate = behind_gate
        self._times = times
        self._silent_s = silent_s

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """The same handlers come registered."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        guarded = {name: self._guarded(f"/{service}/{name}", handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, guarded),))

    def refuse_other_methods(self) -> None:
        """Calls of methods that were not added end with details too. To be called last."""
        self._server.add_generic_rpc_handlers((_OtherMethods(self._answering("", _no_method, bytes, None)),))

    def _guarded(self, path: str, handler: Any) -> Any:
        """Return gRPC's handler of a method. Only reflection has a stream of requests, each of which is answered before
        the next is read; no gate is before it."""
        decode, encode = handler.request_deserializer, _unless_bytes(handler.response_serializer)
        if handler.request_streaming:
            guarded = freed(self._dialogue(path, handler.stream_stream, decode))
            return grpc.stream_stream_rpc_method_handler(guarded, response_serializer=encode)
        streams = handler.response_streaming
        method = self._behind_gate(path, _decoded(path, handler.unary_stream or handler.unary_unary), streams)
        if streams:
            guarded = freed(self._one_request(path, method, decode, streams=True))
            return grpc.stream_stream_rpc_method_handler(guarded, response_serializer=encode)
        return self._answering(path, method, decode, encode)

    def _answering(self, path: str, method: Handler, decode: Decode, encode: Callable[[Any], bytes] | None) -> Any:
        """Return gRPC's handler of a method with one response."""
        guarded = self._times.timed(path, self._one_request(path, method, decode, streams=False))
        return grpc.stream_unary_rpc_method_handler(freed(guarded), response_serializer=encode)

    def _one_request(self, path: str, method: Handler, decode: Decode, streams: bool) -> Answer:
        """Return what reads one request and answers it."""
        name = _name(path)

        async def guarded(_requests: object, context: Context) -> Any:
            async with _errors_told(name, context):
                data = await self._read(context)
                if data is grpc.aio.EOF:
                    raise InvalidInput.of("", "the call ended without a request")
                async with _within(None if streams else limit_s(name)):
                    return await method(_lenient(decode, data), context)

        return guarded

    def _dialogue(self, path: str, method: Any, decode: Decode) -> Answer:
        """Return what answers requests until one does not come in time."""

        async def requests(context: Context) -> AsyncIterator[Any]:
            with suppress(TooSlow):
                while (data := await self._read(context)) is not grpc.aio.EOF:
                    request = _lenient(decode, data)
                    _refuse_undecodable(_name(path), request)
                    yield request

        async def guarded(_requests: object, context: Context) -> None:
            async with _errors_told(_name(path), context):
                async for answer in method(requests(context), context):
                    await context.write(answer)

        return guarded

    async def _read(self, context: Context) -> Any:
        """Return the bytes of the next message, or ``EOF``. Raises ``TooSlow``."""
        try:
            async with asyncio.timeout(self._silent_s):
                return await context.read()
        except TimeoutError:
            raise TooSlow("the request did not come in time") from None


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

    def __init__(self, handler: Any) -> None:
        self._handler = handler

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


def _lenient(decode: Decode, data: bytes) -> Any:
    """Return the request, or ``_Undecodable`` in its place."""
    try:
        return decode(data)
    except DecodeError:
        return _Undecodable()


def _unless_bytes(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Watches answer with bytes: what they send is encoded once for all watchers."""
    return lambda answer: answer if isinstance(answer, bytes) else encode(answer)


def _decoded(path: str, method: Handler) -> Handler:
    """Who may not call the method is told that first."""

    async def decoded(request: Any, context: Context) -> Any:
        _refuse_undecodable(_name(path), request)
        answer = method(request, context)
        return await answer if inspect.isawaitable(answer) else answer

    return decoded


def _name(path: str) -> str:
    """Return the method's name without its service."""
    return path.rpartition("/")[2]


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


@asynccontextmanager
async def _within(limit: float | None) -> AsyncIterator[None]:
    """Raises ``TimeoutError`` after ``limit`` seconds; never without a limit."""
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
