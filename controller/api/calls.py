"""Around every call: its budget, its request in time, an answer that is read.

In: calls, as gRPC begins them when their headers have come. Out: the same calls with their request, or an end. Every
method is served in gRPC's streaming form, which alone is called before the request is there; on the wire there is no
difference. Runs in the API's thread.
"""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import Any, NoReturn, cast

import grpc
import structlog
from grpc_status import rpc_status

from controller.api import guard
from controller.api.access import OPEN_TO_ALL
from controller.api.budget import COST, Budget, Call, CallLimits
from controller.api.call_times import CallTimes
from controller.api.errors import TooSlow, status_of
from controller.api.relay.connections import Connection
from controller.api.relay.relay import Relay
from controller.config import ApiConfig
from controller.log_limit import LimitedLog
from signalbox.errors import Exhausted, InvalidInput

Context = grpc.aio.ServicerContext[Any, Any]

TICK_S = 1.0
SPREAD = 1.5
"""Watchers that stopped reading at the same moment are ended one after the other, over half the time that they had
besides: to end one takes a millisecond or two, in which nothing else is answered."""
ENDED_AT_ONCE = 50
"""For the same reason, of those that do not read an answer."""

log = LimitedLog(structlog.get_logger(__name__))


_FROM_THE_START = ("tls",)
"""Reasons that an alert asks for: an increase from nothing is none."""


class Refusals:
    """Counts and logs what is refused and ended. ``publish`` takes the counts, by reason, when they have changed."""

    def __init__(self, publish: Callable[[Mapping[str, int]], None]) -> None:
        self._publish = publish
        self._count: Counter[str] = Counter(dict.fromkeys(_FROM_THE_START, 0))
        self._published = 0
        publish(dict(self._count))

    def add(self, reason: str, peer: str, why: str = "") -> None:
        self._count[reason] += 1
        log.warning("API client refused", reason=reason, peer=peer, **({"why": why} if why else {}))

    def tick(self) -> None:
        if self._count.total() != self._published:
            self._published = self._count.total()
            self._publish(dict(self._count))
        log.summarise()
        guard.log.summarise()


class Calls(grpc.aio.ServerInterceptor):
    """``name_of``: of an authenticated client, which then has a budget of its own; empty without one, None for a client
    that is not let in."""

    def __init__(
        self,
        config: ApiConfig,
        relay: Relay,
        refusals: Refusals,
        times: CallTimes,
        name_of: Callable[[Context], str | None] = lambda _: "",
    ) -> None:
        self._times = times
        self._name_of = name_of
        self._relay = relay
        self._refusals = refusals
        self._max_message_bytes = config.max_message_bytes
        self._silent_s = config.silent_s
        self._stalled_s = config.stalled_s
        self._budget = Budget(
            CallLimits(config.max_client_calls, config.max_client_streams, config.max_client_calls_per_s),
            CallLimits(config.max_calls, config.max_streams, config.max_calls_per_s),
        )
        self._answered: dict[Call, tuple[float, Connection]] = {}
        self._handlers: dict[Any, Any] = {}

    async def intercept_service(self, continuation: Any, details: grpc.HandlerCallDetails) -> Any:
        """The method's handler, in the form that is called at once."""
        handler = await continuation(details)
        if handler is None:
            return None
        if handler not in self._handlers:
            self._handlers[handler] = self._guarded(handler, details.method)
        return self._handlers[handler]

    async def run(self) -> None:
        """Ends what has stopped and forgets who has gone; until it is cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            self._relay.tick(now)
            self._budget.forget_idle(now)
            late = (connection for at, connection in self._answered.values() if now >= at + self._stalled_s)
            for connection in list(islice(late, ENDED_AT_ONCE)):
                self._relay.end(connection, "not_reading")
            self._refusals.tick()
            self._times.tick()

    # ---- one call

    def _guarded(self, handler: Any, method: str) -> Any:
        """``method``: with its service; some depend on the caller."""
        for_all = method.startswith(OPEN_TO_ALL)
        if handler.request_streaming:
            return self._guarded_stream(handler, for_all)
        return self._guarded_unary(handler, method, for_all)

    def _guarded_unary(self, handler: Any, method: str, for_all: bool) -> Any:
        decode, is_stream = handler.request_deserializer or bytes, handler.response_streaming
        answer = handler.unary_stream if is_stream else handler.unary_unary

        async def guarded(_requests: object, context: Context) -> Any:
            call, connection = await self._begin(is_stream, for_all, context)
            request = decode(await self._request(call, connection, context))
            if is_stream:
                return await _streamed(
                    answer(request, _Reading(context, self._ended_when_stalled(connection))), context
                )
            costs = COST.set(functools.partial(self._charge, call))
            try:
                answered = await answer(request, context)
            finally:
                COST.reset(costs)
            if connection and not call.ended:
                self._answered[call] = time.monotonic(), connection
            return answered

        if is_stream:
            return grpc.stream_stream_rpc_method_handler(guard.freed(guarded), None, handler.response_serializer)
        timed = self._times.timed(method, guarded)
        return grpc.stream_unary_rpc_method_handler(guard.freed(timed), None, handler.response_serializer)

    def _guarded_stream(self, handler: Any, for_all: bool) -> Any:
        """Reflection alone takes a stream of requests; each has to come in time."""

        async def guarded(_requests: object, context: Context) -> Any:
            call, connection = await self._begin(True, for_all, context)
            self._budget.received(call)
            while True:
                try:
                    async with asyncio.timeout(self._silent_s):
                        data = await context.read()
                except TimeoutError:
                    return
                if data is grpc.aio.EOF:
                    return
                await self._refuse_large(data, context)
                reading = _Reading(context, self._ended_when_stalled(connection))
                async for response in handler.stream_stream(_one(handler.request_deserializer(data)), context):
                    await reading.write(response)

        return grpc.stream_stream_rpc_method_handler(guard.freed(guarded), None, handler.response_serializer)

    def _charge(self, call: Call, calls: float) -> None:
        self._budget.charge(call, calls, time.monotonic())

    async def _begin(self, is_stream: bool, for_all: bool, context: Context) -> tuple[Call, Connection | None]:
        """Within the budget of the client; the call counts until gRPC has sent its end. Raises the status else. A call
        that is ``for_all`` keeps its connection no place that others need: it may never end."""
        connection = self._relay.peer(context.peer())
        name = self._name_of(context)
        client = name or (connection.client if connection else "unknown client")
        try:
            call = self._budget.begin(client, is_stream, time.monotonic())
        except Exhausted as error:
            self._refuse("calls", connection)
            await _abort(context, error)
        if connection:
            structlog.contextvars.bind_contextvars(peer=connection.peer)  # of this call's log lines
            self._relay.connections.call_began(connection, time.monotonic())
            if name is not None:
                self._relay.let_in(connection)
            if for_all:
                self._relay.connections.call_ended(connection, time.monotonic())

        def ended(_task: object) -> None:
            self._answered.pop(call, None)
            self._budget.end(call)
            if connection:
                self._relay.connections.call_ended(connection, time.monotonic())

        # The same moment as that of the context's own callbacks, which gRPC keeps in a ring with the context.
        guard.task_of_call().add_done_callback(ended)
        return call, connection

    async def _request(self, call: Call, connection: Connection | None, context: Context) -> bytes:
        """The bytes of the request. Raises the status when they do not come."""
        try:
            async with asyncio.timeout(self._silent_s) as waiting:
                call.give_way = lambda: waiting.reschedule(time.monotonic())
                data = await context.read()
        except TimeoutError:
            self._refuse("silent_call", connection)
            await _abort(context, TooSlow("the request did not come in time"))
        finally:
            self._budget.received(call)
        if data is grpc.aio.EOF:
            await _abort(context, InvalidInput.of("", "the call ended without a request"))
        await self._refuse_large(data, context)
        return cast(bytes, data)

    async def _refuse_large(self, data: Any, context: Context) -> None:
        """gRPC itself takes larger messages than the configured limit, so that this status has details."""
        limit = self._max_message_bytes
        if len(data) > limit:
            text = f"the message has {len(data):,} bytes; the controller accepts {limit:,} (api.max_message_bytes)"
            about = {"limit": "api.max_message_bytes", "limitValue": limit, "wanted": len(data)}
            await _abort(context, Exhausted(text, about=about))

    def _refuse(self, reason: str, connection: Connection | None) -> None:
        self._refusals.add(reason, connection.peer if connection else "unknown")
        if connection:
            self._relay.punish(connection)

    def _ended_when_stalled(self, connection: Connection | None) -> Callable[[Awaitable[None]], Awaitable[None]]:
        async def within(writing: Awaitable[None]) -> None:
            try:
                async with asyncio.timeout(self._stalled_s * random.uniform(1.0, SPREAD)):
                    await writing
            except TimeoutError:
                if connection:
                    self._relay.end(connection, "not_reading")
                await asyncio.Event().wait()  # the call is cancelled with its connection

        return within


class _Reading:
    """A call's context whose ``write`` ends the connection of a client that does not read."""

    def __init__(self, context: Context, within: Callable[[Awaitable[None]], Awaitable[None]]) -> None:
        self._context = context
        self._within = within

    async def write(self, message: Any) -> None:
        await self._within(self._context.write(message))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


async def _streamed(answer: Any, context: Any) -> None:
    """Both forms of gRPC's streaming handlers: one that writes, and one that yields."""
    if hasattr(answer, "__aiter__"):
        async for message in answer:
            await context.write(message)
    else:
        await answer


async def _one(request: Any) -> Any:
    yield request


async def _abort(context: Context, error: Exception) -> NoReturn:
    status = rpc_status.to_status(status_of(error))
    await context.abort(status.code, status.details, status.trailing_metadata)
