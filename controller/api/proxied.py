"""Who makes a call that HAProxy hands over: HAProxy says it in header fields of its own.

In: calls that arrive at ``api.proxy_socket``, which only HAProxy may open. Out: the peer, from their metadata. The
configuration that ``controller/serving/haproxy.py`` writes deletes such fields from what a client sends before it sets
them. At any other address the fields mean nothing: calls that arrive there are never given to this module.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Any, cast

import grpc
import structlog
from grpc_status import rpc_status

from controller.api import certificate_names
from controller.api.budget import COST, Bucket
from controller.api.call_times import CallTimes
from controller.api.errors import status_of
from controller.api.guard import Context, freed
from controller.api.peers import Peer
from controller.config import ApiConfig
from signalbox.errors import Exhausted

PREFIX = "x-signalbox-"
ADDRESS, PORT, TLS = f"{PREFIX}address", f"{PREFIX}port", f"{PREFIX}tls"
CERTIFICATE = f"{PREFIX}certificate-bin"
"""The client's certificate in DER. gRPC decodes the base64 of fields whose name ends so."""
_YES = "1"


def peer(context: Context) -> Peer:
    """Return who makes the call. A peer without an address, whom the gate refuses, when HAProxy does not say it in
    exactly one field of each name, or in a form that is not HAProxy's."""
    given = [(key, value) for key, value in context.invocation_metadata() or () if key.startswith(PREFIX)]
    fields = dict(given)
    if len(fields) != len(given) or not fields.keys() <= {ADDRESS, PORT, TLS, CERTIFICATE}:
        return Peer("")
    try:
        address = ip_address(str(fields[ADDRESS]))
        port = int(fields[PORT])
        encrypted = fields[TLS] == _YES
        certificate = fields.get(CERTIFICATE)
        names = certificate_names.of(certificate) if isinstance(certificate, bytes) else ()
    except (KeyError, ValueError):
        return Peer("")
    address = getattr(address, "ipv4_mapped", None) or address
    shown = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
    return Peer(shown, private=encrypted or address.is_loopback, names=names)


class Around(grpc.aio.ServerInterceptor):
    """Around every call: its request in time, how long it takes, its peer in its log lines, its memory free when it
    ends. A call that counts as many is owed by its client, since HAProxy cannot know of it. ``name_of``: of an
    authenticated client; empty without one.

    HAProxy waits for a request as far as its buffer reaches; the rest, for which none of HAProxy's limits ends a
    client, is waited for here.

    Every method is served in gRPC's streaming form, which alone is called before the request is there; on the wire
    there is no difference."""

    def __init__(
        self, config: ApiConfig, times: CallTimes, name_of: Callable[[Context], str | None] = lambda _: ""
    ) -> None:
        self._times = times
        self._name_of = name_of
        self._silent_s = config.silent_s
        self._per_s = config.max_client_calls_per_s
        self._owed: dict[str, Bucket] = {}
        self._handlers: dict[Any, Any] = {}

    async def intercept_service(self, continuation: Any, details: grpc.HandlerCallDetails) -> Any:
        """Return the method's handler in that form."""
        handler = await continuation(details)
        if handler not in self._handlers:
            self._handlers[handler] = self._around(handler, details.method)
        return self._handlers[handler]

    def _around(self, handler: Any, method: str) -> Any:
        decode = handler.request_deserializer or bytes
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(
                freed(self._dialogue(handler.stream_stream, decode)), None, handler.response_serializer
            )
        answer = handler.unary_stream if handler.response_streaming else handler.unary_unary

        async def named(_requests: object, context: Any) -> Any:
            address = peer(context).address
            structlog.contextvars.bind_contextvars(peer=address)
            client = self._name_of(context) or address.rpartition(":")[0]
            await self._refuse_debtor(client, context)
            request = decode(await self._request(context))
            costs = COST.set(partial(self._charge, client))
            try:
                return await answer(request, context)
            finally:
                COST.reset(costs)

        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(freed(named), None, handler.response_serializer)
        timed = self._times.timed(method, named)
        return grpc.stream_unary_rpc_method_handler(freed(timed), None, handler.response_serializer)

    def _charge(self, client: str, calls: float) -> None:
        now = time.monotonic()
        for known in [known for known, owed in self._owed.items() if owed.is_full(now)]:
            del self._owed[known]
        self._owed.setdefault(client, Bucket(self._per_s, now)).spend(calls, now)

    async def _refuse_debtor(self, client: str, context: Context) -> None:
        owed = self._owed.get(client)
        wait_s = owed.spend(0, time.monotonic()) if owed else 0.0
        if wait_s:
            text = f"{client}: former calls counted as more than {self._per_s:g} calls per second, which is the limit"
            about = {"limit": "api.max_client_calls_per_s", "limitValue": f"{self._per_s:g}"}
            status = rpc_status.to_status(status_of(Exhausted(text, client, wait_s, about)))
            await context.abort(status.code, status.details, status.trailing_metadata)

    async def _request(self, context: Any) -> bytes:
        """Return the bytes of the request. Ends the call when they do not come."""
        try:
            async with asyncio.timeout(self._silent_s):
                data = await context.read()
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the request did not come in time")
        if data is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call ended without a request")
        return cast(bytes, data)

    def _dialogue(self, answer: Any, decode: Callable[[bytes], Any]) -> Callable[[Any, Any], Awaitable[None]]:
        """Each request has to come in time; without one the call ends."""

        async def requests(context: Any) -> AsyncIterator[Any]:
            with suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(self._silent_s):
                        data = await context.read()
                    if data is grpc.aio.EOF:
                        return
                    yield decode(data)

        async def answered(_requests: object, context: Any) -> None:
            async for response in answer(requests(context), context):
                await context.write(response)

        return answered
