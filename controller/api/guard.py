"""Guard around every handler of the API.

A missing request, a request that cannot be decoded, an error, or an exceeded time limit becomes a status with details
(``errors``). Unexpected exceptions are also logged.

The guard limits the time in which a request must arrive, since HAProxy's ``timeout client`` (2.6.12) does not end an
incomplete request. For a method with a single request, gRPC would call the handler only after the request has arrived.
So every method is registered as one with a stream of requests, which has the same wire format.
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
"""Time limit in seconds of a call that waits for neither switches nor a solver. Clients wait longer."""

INSTALL_S = 120.0
"""Time limit in seconds of a call that waits for a plan and for the barriers of all switches."""

ANALYSIS_S = 140.0
"""Time limit in seconds of a call that waits for an analysis of many plans and for analyses queued before it."""

CANCELLED_WITHIN_S = 10.0
"""Largest number of seconds until gRPC cancels a call whose client has disconnected."""

NO_RETRY = ("grpc-retry-pushback-ms", "-1")
"""Trailer that keeps gRPC in the client from retrying automatically (gRPC A6). ``RetryInfo`` says when a retry can
succeed."""

_LIMIT: ContextVar[asyncio.Timeout | None] = ContextVar("limit", default=None)
"""Time limit of the current call; None outside a call."""

_GRPC_LOG = logging.getLogger("grpc._cython.cygrpc")

Context = grpc.aio.ServicerContext[Any, Any]
Handler = Callable[[Any, Context], Any]
Answer = Callable[[Any, Any], Awaitable[Any]]
Decode = Callable[[bytes], Any]


class GuardedServer:
    """Server for the generated ``add_..._to_server`` functions, which puts a guard around each of their handlers.

    ``behind_gate``: see ``Gate.behind``. ``silent_s``: seconds in which the request of a call must arrive."""

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
        """Do nothing, because generated code passes the same handlers to ``add_registered_method_handlers`` too."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        guarded = {name: self._guarded(f"/{service}/{name}", handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, guarded),))

    def refuse_other_methods(self) -> None:
        """Answer calls of unknown methods with a detailed error. Call this after all handlers were added."""
        self._server.add_generic_rpc_handlers((_OtherMethods(self._one_response("", _no_method, bytes, None)),))

    def _guarded(self, path: str, handler: Any) -> Any:
        """Return gRPC's handler of a method.

        Only the method of reflection has a stream of requests. Its handler has no gate, and reads the next request only
        after it has answered."""
        decode, encode = handler.request_deserializer, _unless_bytes(handler.response_serializer)
        if handler.request_streaming:
            guarded = freed(self._stream_of_requests(path, handler.stream_stream, decode))
            return grpc.stream_stream_rpc_method_handler(guarded, response_serializer=encode)
        streams = handler.response_streaming
        method = self._behind_gate(path, _decoded(path, handler.unary_stream or handler.unary_unary), streams)
        if streams:
            guarded = freed(self._one_request(path, method, decode, streams=True))
            return grpc.stream_stream_rpc_method_handler(guarded, response_serializer=encode)
        return self._one_response(path, method, decode, encode)

    def _one_response(self, path: str, method: Handler, decode: Decode, encode: Callable[[Any], bytes] | None) -> Any:
        guarded = self._times.timed(path, self._one_request(path, method, decode, streams=False))
        return grpc.stream_unary_rpc_method_handler(freed(guarded), response_serializer=encode)

    def _one_request(self, path: str, method: Handler, decode: Decode, streams: bool) -> Answer:
        name = _name(path)

        async def guarded(_requests: object, context: Context) -> Any:
            async with errors_answered(name, context):
                data = await self._read(context)
                if data is grpc.aio.EOF:
                    raise InvalidInput.of("", "the call ended before its request had arrived")
                async with _within(None if streams else limit_s(name)):
                    return await method(_decoded_or_undecodable(decode, data), context)

        return guarded

    def _stream_of_requests(self, path: str, method: Any, decode: Decode) -> Answer:
        """Return a handler of a stream of requests, which ends when the next request does not arrive in time."""

        async def requests(context: Context) -> AsyncIterator[Any]:
            with suppress(TooSlow):
                while (data := await self._read(context)) is not grpc.aio.EOF:
                    request = _decoded_or_undecodable(decode, data)
                    _refuse_undecodable(_name(path), request)
                    yield request

        async def guarded(_requests: object, context: Context) -> None:
            async with errors_answered(_name(path), context):
                async for answer in method(requests(context), context):
                    await context.write(answer)

        return guarded

    async def _read(self, context: Context) -> Any:
        """Return the bytes of the next message, or ``EOF``. Raises ``TooSlow``."""
        try:
            async with asyncio.timeout(self._silent_s):
                return await context.read()
        except TimeoutError:
            raise TooSlow(f"the request did not arrive within {self._silent_s:g} s (api.silent_s)") from None


def task_of_call() -> asyncio.Task[Any]:
    """Return the asyncio task of the current call, which ends after gRPC has sent the status."""
    task = asyncio.current_task()
    assert task is not None
    return task


def freed(answer: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return a handler whose errors release their memory at once.

    gRPC's call object, the error that ended the call, and the frames of its traceback refer to each other. Such a cycle
    occupies 20 kB, which the garbage collector would free up to an hour later."""

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
    """Handler of all methods for which no other handler exists.

    Unknown methods share one handler, since clients may name any number of them."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # noqa: ARG002
        return self._handler


async def _no_method(_request: bytes, _context: Context) -> NoReturn:
    raise NotServed("there is no such method; server reflection and the proto file list all methods")


def limit_s(method: str) -> float:
    """Return the time limit in seconds of a unary call; the client's deadline may be shorter."""
    if method in ("Replan", "SetMode"):
        return INSTALL_S
    return ANALYSIS_S if method in ("Explain", "WhatIf", "GetPlanProof") else ANSWER_S


def keep_clients_out_of_log() -> None:
    """Drop gRPC's log records about faults of clients, so that no client can fill the log.

    For metadata and paths that are not UTF-8, gRPC logs a traceback with their contents, including tokens. gRPC also
    logs answers that it cannot send because the client has disconnected."""
    _GRPC_LOG.addFilter(_is_no_client)


def _is_no_client(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, UnicodeDecodeError | grpc.aio.InternalError)


class _Undecodable:
    """Placeholder for a request that cannot be decoded.

    Without it gRPC would end the call with ``UNKNOWN`` and write a traceback to the log."""


def _decoded_or_undecodable(decode: Decode, data: bytes) -> Any:
    try:
        return decode(data)
    except DecodeError:
        return _Undecodable()


def _unless_bytes(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return an encoder that leaves bytes unchanged, since some answers are already serialized."""
    return lambda answer: answer if isinstance(answer, bytes) else encode(answer)


def _decoded(path: str, method: Handler) -> Handler:
    """Return a handler that refuses requests that were not decoded, and passes other requests to the method's handler.

    The request is refused here, and not when it is decoded, so that the gate checks the caller first."""

    async def decoded(request: Any, context: Context) -> Any:
        _refuse_undecodable(_name(path), request)
        answer = method(request, context)
        return await answer if inspect.isawaitable(answer) else answer

    return decoded


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _refuse_undecodable(name: str, request: Any) -> None:
    if isinstance(request, _Undecodable):
        raise InvalidInput.of("", f"the bytes of the request are not a message of {name}")


@asynccontextmanager
async def errors_answered(name: str, context: Context) -> AsyncIterator[None]:
    """End the call with an error status if the block raises an exception."""
    try:
        yield
    except grpc.aio.AbortError:
        raise
    except grpc.aio.InternalError:  # gRPC could not send, because the client has disconnected
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
    """Limit the block to ``limit`` seconds, after which ``TimeoutError`` is raised; None: no limit."""
    async with asyncio.timeout(limit) as running:
        before = _LIMIT.set(running)
        try:
            yield
        finally:
            _LIMIT.reset(before)  # break the cycle of references: timeout, task, context variables of the task


@contextmanager
def not_counted() -> Iterator[None]:
    """Do not count the block's duration towards the time limit of the call."""
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
